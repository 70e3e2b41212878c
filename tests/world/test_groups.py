"""What belongs together moves together, whatever etcd answers meanwhile and whoever thinks better of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sterna
from sterna import errors
from sterna_etcd import Claim, HomeKey
from sterna_etcd.records import ConfigRecord, Deleting

from tests.support.deaf_etcd import DeafEtcd
from tests.support.refusing_etcd import AttentiveEtcd, RefusingEtcd
from tests.world.clusters import LAYOUT, OWNER, Cluster, document
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained
from tests.world.test_homes import held

_TOPIC = HomeKey("topic", "app.x")
_PATTERN = HomeKey("pattern", "app.*")


async def grouped(stage: Stage) -> Cluster:
    """A topic on b1, and a configured durable subscription to a pattern that matches it."""
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    await cluster.apply("Topic", "app.x", broker="b1")
    await cluster.apply("DurableSubscription", "all", "reader/all", topic="app.*", clientId="reader")
    for key in (_PATTERN, _TOPIC):
        await cluster.until_home(key.kind, key.name, "b1")
    await cluster.until(lambda: held(cluster, "b1", "durable") and held(cluster, "b1", "topic"))
    return cluster


def instead(cluster: Cluster, key: HomeKey, *, refuses: bool, broker: str = "b1") -> RefusingEtcd:
    """What a broker has for an etcd from now on as to a home."""
    homes = cluster.member(broker).homes
    etcd = RefusingEtcd(homes._etcd, homes.view.layout.home(key.kind, key.name), refuses=refuses)
    homes._etcd = etcd  # type: ignore[assignment]
    return etcd


async def read(stage: Stage, cluster: Cluster) -> list[Any]:
    """What the durable subscription is given, wherever its reader is sent."""
    reader = await stage.connect(cluster.brokers["b1"], client_id="reader")
    consumer = await reader.consumer(sterna.Topic("app.*"), durable="all")
    found = []
    while (message := await consumer.receive(5)) is not None:
        found.append(message.body)
        await message.acknowledge()
    await reader.close()
    return found


@pytest.mark.parametrize("is_taken_back", [False, True])
@pytest.mark.parametrize(("key", "refuses"), [(_TOPIC, True), (_TOPIC, False), (_PATTERN, False)])
def test_what_is_sent_while_a_group_is_torn_misses_nothing(key: HomeKey, refuses: bool, is_taken_back: bool) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await grouped(stage)
        etcd = instead(cluster, key, refuses=refuses)
        await cluster.drain("b1")
        await cluster.until(lambda: etcd.asked)
        if is_taken_back:
            await cluster.undrain("b1")
            await asyncio.sleep(3)
        connection = await stage.connect(cluster.brokers["b1"])
        sending = asyncio.create_task(connection.send(sterna.Topic("app.x"), "once", timeout=60))
        await asyncio.sleep(5)
        assert not sending.done()
        etcd.has_room = True
        await cluster.until_home("pattern", "app.*", "b0")
        await cluster.until_home("topic", "app.x", "b0")
        await sending
        assert await read(stage, cluster) == ["once"]
        drain = cluster.member("b1")._drain
        assert drain is not None
        await cluster.until(lambda: not (drain._shut or drain._behind or (is_taken_back and drain.has_closed)))
        await connection.close()

    shown()


@staged
async def test_what_is_sent_while_a_pattern_leaves_is_not_left_behind(stage: Stage) -> None:
    cluster = await grouped(stage)
    connection = await stage.connect(cluster.brokers["b1"])
    producer = await connection.producer(sterna.Topic("app.x"))
    sending: list[asyncio.Task[Any]] = []

    async def send() -> None:
        sending.append(asyncio.create_task(producer.send("between", timeout=60)))
        await asyncio.sleep(1)

    homes = cluster.member("b1").homes
    path = homes.view.layout.home("pattern", "app.*")
    homes._etcd = AttentiveEtcd(homes._etcd, path, send)  # type: ignore[assignment]
    await cluster.drain("b1")
    await cluster.until_home("topic", "app.x", "b0")
    await sending[0]
    assert await read(stage, cluster) == ["between"]
    await connection.close()


@staged
async def test_what_would_be_tied_to_a_pattern_in_doubt_is_opened_once_that_is_decided(stage: Stage) -> None:
    cluster = await grouped(stage)
    etcd = instead(cluster, _PATTERN, refuses=False)
    await cluster.drain("b1")
    await cluster.until(lambda: cluster.member("b1").homes.has_doubts)
    connection = await stage.connect(cluster.brokers["b1"])
    sending = asyncio.create_task(connection.send(sterna.Topic("app.new"), "new", timeout=60))
    await asyncio.sleep(3)
    assert not sending.done()
    etcd.has_room = True
    await sending
    assert await cluster.home("topic", "app.new") == "b0"
    assert await read(stage, cluster) == ["new"]
    await connection.close()


@staged
async def test_a_pattern_that_matches_a_topic_in_doubt_is_opened_where_that_goes(stage: Stage) -> None:
    cluster = await stage.two()
    await cluster.apply("Topic", "app.x", broker="b1")
    await cluster.until_home("topic", "app.x", "b1")
    await cluster.until(lambda: held(cluster, "b1", "topic"))
    etcd = instead(cluster, _TOPIC, refuses=False)
    await cluster.drain("b1")
    await cluster.until(lambda: cluster.member("b1").homes.has_doubts)
    connection = await stage.connect(cluster.brokers["b1"])
    opening = asyncio.create_task(connection.consumer(sterna.Topic("app.*")))
    await asyncio.sleep(3)
    etcd.has_room = True
    consumer = await opening
    await connection.send(sterna.Topic("app.x"), "seen", timeout=60)
    message = await consumer.receive(10)
    assert message is not None
    assert message.body == "seen"
    await connection.close()


@staged
async def test_of_all_names_one_is_closed_while_etcd_does_not_answer(stage: Stage) -> None:
    names = [f"q{number}" for number in range(5)]
    cluster = await stage.two()
    for name in names:
        await cluster.placed(name, "b1")
    await cluster.until(lambda: len(held(cluster, "b1")) == len(names))
    homes = cluster.member("b1").homes
    etcd = DeafEtcd(homes._etcd, does=False)
    homes._etcd = etcd  # type: ignore[assignment]
    await cluster.drain("b1")
    await cluster.until(lambda: homes.has_doubts)
    await asyncio.sleep(5)
    assert len(homes.leaving) == 1
    assert len(held(cluster, "b1")) == len(names) - 1
    etcd.hears = True
    for name in names:
        await cluster.until_home("queue", name, "b0")


@staged
async def test_what_etcd_has_no_room_to_give_away_is_here_again_at_once(stage: Stage) -> None:
    cluster = await stage.two("orders")
    etcd = instead(cluster, HomeKey("queue", "orders"), refuses=True)
    await cluster.drain("b1")
    await cluster.until(lambda: etcd.asked)
    await asyncio.sleep(0.3)
    asked = etcd.asked
    assert held(cluster, "b1") == {"orders": 0}
    await asyncio.sleep(3)
    assert asked < etcd.asked < asked + 6
    connection = await stage.connect(cluster.brokers["b1"])
    await connection.send("orders", "once", timeout=10)
    assert await drained(connection, "orders") == ["once"]
    etcd.has_room = True
    await cluster.until_home("queue", "orders", "b0")
    await connection.close()


@staged
async def test_what_is_in_doubt_is_deleted_by_whose_it_is(stage: Stage) -> None:
    cluster = await stage.two("orders")
    homes = cluster.member("b1").homes
    etcd = DeafEtcd(homes._etcd, does=False)
    homes._etcd = etcd  # type: ignore[assignment]
    await cluster.drain("b1")
    await cluster.until(lambda: homes.has_doubts)
    before = dict(cluster.member("b1").deletions.done)
    order = Deleting(policy="onlyIfEmpty", uid="request")
    record = ConfigRecord(manifest=document("Queue", "orders", broker="b1"), generation=9, owner=OWNER, deleting=order)
    await cluster.client.put(LAYOUT.config(Claim("Queue", "orders")), record.encode())
    await cluster.until(lambda: cluster.member("b1").link.view.configs[Claim("Queue", "orders")].record.deleting)
    await asyncio.sleep(3)
    assert cluster.member("b1").deletions.done == before
    etcd.hears = True
    await cluster.until(lambda: cluster.member("b0").deletions.done)


@staged
async def test_who_starts_without_etcd_does_not_open_what_was_in_doubt(stage: Stage) -> None:
    cluster = await stage.two("orders")
    await cluster.placed("other", "b1")
    await cluster.until(lambda: len(held(cluster, "b1")) == 2)
    homes = cluster.member("b1").homes
    etcd = DeafEtcd(homes._etcd, does=False)
    homes._etcd = etcd  # type: ignore[assignment]
    await cluster.drain("b1")
    await cluster.until(lambda: homes.has_doubts)
    await asyncio.sleep(3)
    (left,) = (key.name for key in homes.leaving)
    (stays,) = {"orders", "other"} - {left}
    # It is given away after all: what this broker has asked for was on its way.
    cluster.brokers["b1"].kill()
    await cluster.give("queue", left, "b0")
    cluster.etcd.kill()
    await cluster.brokers["b1"].start()
    assert cluster.member("b1").link.fault is not None
    assert set(held(cluster, "b1")) == {stays}
    connection = await stage.connect(cluster.brokers["b1"])
    with pytest.raises((errors.SternaError, TimeoutError)):
        await connection.send(left, "nowhere", timeout=5)
    await connection.send(stays, "here", timeout=5)
    cluster.etcd.start()
    await connection.send(left, "somewhere", timeout=60)
    assert held(cluster, "b0")[left] >= 1
    assert left not in held(cluster, "b1")
    await connection.close()


@staged
async def test_a_topic_follows_its_pattern_whatever_has_parted_them(stage: Stage) -> None:
    cluster = await grouped(stage)
    await cluster.give("pattern", "app.*", "b0")
    await cluster.until_home("topic", "app.x", "b0")
    connection = await stage.connect(cluster.brokers["b1"])
    await connection.send(sterna.Topic("app.x"), "once", timeout=60)
    assert await read(stage, cluster) == ["once"]
    await cluster.until(lambda: not cluster.member("b1")._drain.has_closed)  # type: ignore[union-attr]
    await connection.close()


@staged
async def test_what_has_not_left_since_etcd_has_no_room_takes_what_is_sent(stage: Stage) -> None:
    cluster = await grouped(stage)
    etcd = instead(cluster, _PATTERN, refuses=True)
    await cluster.drain("b1")
    await cluster.until(lambda: etcd.asked)
    connection = await stage.connect(cluster.brokers["b1"])
    await connection.send(sterna.Topic("app.x"), "once", timeout=5)
    assert await read(stage, cluster) == ["once"]
    etcd.has_room = True
    await cluster.until_home("topic", "app.x", "b0")
    await connection.close()


@pytest.mark.parametrize("is_taken_back", [False, True])
def test_a_bridge_whose_target_is_in_doubt_copies_nothing_until_it_has_followed(is_taken_back: bool) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.cluster("b0", "b1")
        await cluster.allow_all()
        for name in ("source", "target"):
            await cluster.placed(name, "b1")
        await cluster.apply("Bridge", "over", source={"queue": "source"}, targets=[{"queue": "target"}])
        await cluster.until(lambda: set(held(cluster, "b1")) == {"source", "target"})
        await asyncio.sleep(2)
        etcd = instead(cluster, HomeKey("queue", "target"), refuses=False)
        await cluster.drain("b1")
        await cluster.until(lambda: cluster.member("b1").homes.has_doubts)
        if is_taken_back:
            await cluster.undrain("b1")
        connection = await stage.connect(cluster.brokers["b1"])
        sending = asyncio.create_task(connection.send("source", "once", timeout=60))
        await asyncio.sleep(4)
        assert not sending.done()
        assert "target" not in held(cluster, "b1")
        etcd.has_room = True
        await cluster.until_home("queue", "source", "b0")
        await sending
        assert await drained(connection, "target") == ["once"]
        assert await drained(connection, "source") == ["once"]
        await connection.close()

    shown()
