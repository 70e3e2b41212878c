"""One broker for one name: of a data folder and its copy only one goes on."""

from __future__ import annotations

import asyncio

from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained


async def prepared(stage: Stage) -> Cluster:
    """Two brokers; a queue with a message lives on b1."""
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    await cluster.apply("Queue", "orders", broker="b1")
    await cluster.until_home("queue", "orders", "b1")
    connection = await stage.connect(cluster.brokers["b1"])
    await connection.send("orders", "before")
    await connection.close()
    await asyncio.sleep(3)
    return cluster


@staged
async def test_of_a_data_folder_and_its_copy_the_beaten_one_stops_and_says_so(stage: Stage) -> None:
    cluster = await prepared(stage)
    first = cluster.brokers["b1"]
    clone = await stage.start(cluster.cloned("b1"))
    await stage.until(lambda: not first.is_running, timeout_s=10)
    assert len(first.failures) == 1
    assert "the name 'b1' belongs to another broker" in first.failures[0]
    assert clone.address in first.failures[0]
    await asyncio.sleep(60)
    assert clone.is_running
    assert clone.failures == []
    connection = await stage.connect(clone)
    assert await drained(connection, "orders") == ["before"]
    await connection.close()


@staged
async def test_one_that_was_cut_off_meanwhile_stops_when_it_is_back(stage: Stage) -> None:
    cluster = await prepared(stage)
    first = cluster.brokers["b1"]
    cluster.cut_off("b1")
    await asyncio.sleep(30)  # its lease has run out
    clone = await stage.start(cluster.cloned("b1"))
    await asyncio.sleep(5)
    assert first.is_running, "without etcd a broker goes on serving"
    stage.network.heal()
    await stage.until(lambda: not first.is_running, timeout_s=30)
    assert clone.is_running


@staged
async def test_a_broker_that_starts_again_is_nobody_s_rival(stage: Stage) -> None:
    cluster = await prepared(stage)
    again = cluster.brokers["b1"]
    for power in (False, True):
        again.kill(power=power)
        await again.start()
        await asyncio.sleep(30)
        assert again.is_running
    assert again.failures == []
    await again.stop()
    await again.start()
    await asyncio.sleep(30)
    assert again.failures == []


@staged
async def test_a_broker_that_has_lost_its_power_knows_its_own_registration(stage: Stage) -> None:
    cluster = await prepared(stage)
    again = cluster.brokers["b1"]
    for _ in range(12):
        again.kill(power=True)
        before_s = stage.loop.time()
        await again.start()
        assert stage.loop.time() - before_s < 5, "it waited for its own registration to run out"
        await asyncio.sleep(2)
        assert again.is_running
    assert again.failures == []
