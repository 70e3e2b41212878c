"""What has stayed of a bridge when its broker died follows the rest, also when the order is gone by then."""

from __future__ import annotations

import asyncio

import pytest
import sterna
from sterna_etcd import HomeKey

from tests.support.refusing_etcd import SilentEtcd
from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained
from tests.world.test_groups import instead
from tests.world.test_homes import held
from tests.world.test_torn_groups import comes_over, half_gone, until_open

_SOURCE = HomeKey("queue", "source")
_SENDERS = 10


async def _bridged(stage: Stage) -> Cluster:
    """A bridge from source to target on b1, which nobody has opened yet; what hangs on them has been told."""
    cluster = await stage.two()
    for name in ("source", "target"):
        await cluster.placed(name, "b1")
    await cluster.apply("Bridge", "over", source={"queue": "source"}, targets=[{"queue": "target"}])
    await cluster.until(lambda: set(held(cluster, "b1")) == {"source", "target"})
    await asyncio.sleep(2)
    return cluster


async def _parted(stage: Stage, *, is_in_doubt: bool) -> Cluster:
    """The target has gone to b0, the source is on b1, which has been killed and is to stay.

    `is_in_doubt`: before it knew that the target has gone.
    """
    cluster = await _bridged(stage)
    homes = cluster.member("b1").homes
    if is_in_doubt:
        path = homes.view.layout.home("queue", "target")
        homes._etcd = SilentEtcd(homes._etcd, path)  # type: ignore[assignment]
    else:
        instead(cluster, _SOURCE, refuses=True)
    await cluster.drain("b1")
    await cluster.until_home("queue", "target", "b0")
    await cluster.until(lambda: is_in_doubt or homes.has_doubts)
    cluster.brokers["b1"].kill(power=True)
    await cluster.undrain("b1")
    assert await cluster.home("queue", "source") == "b1"
    return cluster


@pytest.mark.parametrize("is_in_doubt", [False, True])
def test_the_source_follows_after_a_start_and_takes_nothing_before(is_in_doubt: bool) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await _parted(stage, is_in_doubt=is_in_doubt)
        connections = [await stage.connect(cluster.brokers["b0"]) for _ in range(_SENDERS)]
        sending = [asyncio.create_task(one.send("source", f"{n}", timeout=60)) for n, one in enumerate(connections)]
        await cluster.brokers["b1"].start()
        await asyncio.gather(*sending)
        await cluster.until_home("queue", "source", "b0")
        sent = [f"{number}" for number in range(_SENDERS)]
        for name in ("source", "target"):
            assert sorted(await drained(connections[0], name)) == sent, name
        await until_open(cluster, "b1")
        for one in connections:
            await one.close()

    shown()


@staged
async def test_the_source_takes_nothing_while_etcd_is_away_at_a_start(stage: Stage) -> None:
    cluster = await _parted(stage, is_in_doubt=False)
    cluster.etcd.kill()
    await cluster.brokers["b1"].start()
    connection = await stage.connect(cluster.brokers["b1"])
    sending = asyncio.create_task(connection.send("source", "once", timeout=60))
    await asyncio.sleep(10)
    assert not sending.done()
    cluster.etcd.start()
    await comes_over(connection, sending)
    assert await cluster.home("queue", "source") == "b0"
    await until_open(cluster, "b1")


@staged
async def test_what_is_together_still_after_a_start_is_open_and_stays(stage: Stage) -> None:
    """It was about to leave when its broker died, and nothing had gone."""
    cluster = await _bridged(stage)
    etcd = instead(cluster, HomeKey("queue", "target"), refuses=False)
    await cluster.drain("b1")
    await cluster.until(lambda: etcd.asked)
    cluster.brokers["b1"].kill(power=True)
    await cluster.undrain("b1")
    await cluster.brokers["b1"].start()
    connection = await stage.connect(cluster.brokers["b1"])
    await comes_over(connection, asyncio.create_task(connection.send("source", "once", timeout=10)))
    assert [await cluster.home("queue", name) for name in ("source", "target")] == ["b1", "b1"]
    await until_open(cluster, "b1")
    # Nothing is remembered of it: ends that an administrator parts from then on stay where they are.
    await cluster.give("queue", "target", "b0")
    await asyncio.sleep(3)
    cluster.brokers["b1"].kill(power=True)
    await cluster.brokers["b1"].start()
    await asyncio.sleep(10)
    assert await cluster.home("queue", "source") == "b1"


@staged
async def test_whoever_waits_for_what_comes_back_to_it_goes_on_waiting_after_a_start(stage: Stage) -> None:
    """Both brokers are emptied, the source waits on b0 for the target that b1 is to send back, and b0 starts anew."""
    cluster, etcd = await half_gone(stage, "b0", "b1")
    await cluster.until_home("queue", "target", "b1")
    await asyncio.sleep(3)
    cluster.brokers["b0"].kill(power=True)
    for name in ("b0", "b1"):
        await cluster.undrain(name)
    await cluster.brokers["b0"].start()
    connection = await stage.connect(cluster.brokers["b0"])
    await comes_over(connection, asyncio.create_task(connection.send(sterna.Queue("source"), "once", timeout=60)))
    assert await cluster.home("queue", "source") == await cluster.home("queue", "target")
    etcd.has_room = True
