"""Ends of a bridge on two brokers, each of which is to go to where the other is: one goes, and they have met."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest
from sterna_etcd import HomeKey

from tests.support.refusing_etcd import AttentiveEtcd, RefusingEtcd
from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged
from tests.world.test_torn_groups import _TARGET, comes_over, half_gone, until_open


async def _crossing(stage: Stage) -> tuple[Cluster, RefusingEtcd]:
    """The source on b0, where it follows the target; that is on b1, and on its way to b0, which etcd hears later."""
    cluster, etcd = await half_gone(stage, "b0", "b1", refuses=False)
    await cluster.until_home("queue", "target", "b1")
    await cluster.until(lambda: cluster.member("b1").homes.goes_to(_TARGET) == "b0")
    return cluster, etcd


async def _taken_back(cluster: Cluster) -> None:
    for name in ("b0", "b1"):
        await cluster.undrain(name)


async def _meet(stage: Stage, cluster: Cluster, home: str) -> None:
    await asyncio.sleep(10)
    assert [await cluster.home("queue", name) for name in ("source", "target")] == [home, home]
    connection = await stage.connect(cluster.brokers["b2"])
    await comes_over(connection, asyncio.create_task(connection.send("source", "once", timeout=60)))
    await until_open(cluster, "b0", "b1")


@staged
async def test_a_target_does_not_go_to_where_its_source_has_left_it_for(stage: Stage) -> None:
    cluster, etcd = await _crossing(stage)
    await _taken_back(cluster)
    await cluster.until_home("queue", "source", "b1")
    assert cluster.member("b1").homes.has_doubts
    etcd.has_room = True
    await _meet(stage, cluster, "b1")


@staged
async def test_a_source_does_not_go_to_where_its_target_has_left_it_for(stage: Stage) -> None:
    cluster, etcd = await _crossing(stage)
    homes, gone = cluster.member("b0").homes, []

    async def goes_first() -> None:
        etcd.has_room = True
        await cluster.until_home("queue", "target", "b0")
        gone.append(await cluster.home("queue", "source"))

    path = homes.view.layout.home("queue", "source")
    homes._etcd = AttentiveEtcd(homes._etcd, path, goes_first)  # type: ignore[assignment]
    await _taken_back(cluster)
    await _meet(stage, cluster, "b0")
    assert gone == ["b0"]


@pytest.mark.parametrize("is_taken_back", [False, True])
def test_a_source_that_has_not_gone_since_its_target_had_takes_nothing_before_both_are_together(
    is_taken_back: bool,
) -> None:
    """Its change is without an answer, and then cannot be made any more: it goes where the target is by now."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster, etcd = await half_gone(stage, "b0", "b1", refuses=False)
        etcd.has_room = True
        homes = cluster.member("b0").homes
        source = RefusingEtcd(homes._etcd, homes.view.layout.home("queue", "source"), refuses=False)
        homes._etcd = source  # type: ignore[assignment]
        await cluster.until(lambda: source.asked)
        assert [await cluster.home("queue", name) for name in ("source", "target")] == ["b0", "b2"]
        connection = await stage.connect(cluster.brokers["b0"])
        sending = asyncio.create_task(connection.send("source", "once", timeout=60))
        if is_taken_back:
            await _taken_back(cluster)
            await cluster.until(lambda: not any(cluster.member(name).link.view.drains for name in ("b0", "b1")))
        await cluster.give("queue", "target", "b1")
        await asyncio.sleep(5)
        assert not sending.done()
        source.has_room = True
        together = "b1" if is_taken_back else "b2"
        for name in ("target", "source"):
            await cluster.until_home("queue", name, together)
        await comes_over(connection, sending)
        assert not homes.has_doubts

    shown()


@staged
async def test_ends_of_a_bridge_stay_together_with_one_that_comes_while_the_others_are_about_to_leave(
    stage: Stage,
) -> None:
    """It comes while they are being noted in the data folder, and the order is gone once the first of them has left."""
    cluster = await stage.cluster("b0", "b1", "b2")
    await cluster.allow_all()
    for name, home in (("source", "b1"), ("target", "b1"), ("late", "b2")):
        await cluster.placed(name, home)
    targets = [{"queue": "target"}, {"queue": "late"}]
    await cluster.apply("Bridge", "over", source={"queue": "source"}, targets=targets)
    await asyncio.sleep(2)
    member = cluster.member("b1")
    view, left_behind = member.link.view, member._left_behind
    note, came = left_behind.note, list[str]()

    async def while_one_comes(names: Collection[HomeKey]) -> bool:
        if not came:
            came.append("late")
            await cluster.give("queue", "late", "b1")
            await cluster.until(lambda: view.home("queue", "late") == "b1")
        return await note(names)

    async def is_taken_back() -> None:
        await cluster.undrain("b1")
        await cluster.until(lambda: "b1" not in view.drains)

    left_behind.note = while_one_comes  # type: ignore[method-assign]
    path = view.layout.home("queue", "source")
    member.homes._etcd = AttentiveEtcd(member.homes._etcd, path, is_taken_back)  # type: ignore[assignment]
    await cluster.drain("b1")
    await cluster.until(lambda: came and "b1" not in view.drains)
    await asyncio.sleep(10)
    homes = {name: await cluster.home("queue", name) for name in ("source", "target", "late")}
    assert len(set(homes.values())) == 1, homes
    await until_open(cluster, "b1")
