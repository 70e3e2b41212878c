"""Where a name lives cannot be said for a while, since etcd is away or its broker was never there: who can waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import sterna
from sterna import errors

from tests.world.clusters import LAYOUT, Cluster
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained
from tests.world.test_homes import held


def _go(cluster: Cluster, *, leader: bool) -> None:
    """Etcd cannot be used from now on: it has no leader, or is away as a whole."""
    if leader:
        cluster.etcd.has_leader = False
        cluster.etcd.written()
    else:
        cluster.etcd.kill()


def _come_back(cluster: Cluster, *, leader: bool) -> None:
    if leader:
        cluster.etcd.has_leader = True
        cluster.etcd.written()
    else:
        cluster.etcd.start()


async def _soon(connection: sterna.Connection) -> None:
    producer = await connection.producer()
    await producer.send_soon("x", destination="soon")
    await producer.flush()


async def _received(connection: sterna.Connection) -> None:
    consumer = await connection.consumer("received")
    await connection.send("received", "x")
    assert await consumer.receive(10) is not None


_CALLS: dict[str, Callable[[sterna.Connection], Coroutine[Any, Any, Any]]] = {
    "send": lambda connection: connection.send("sent", "x"),
    "send to a topic": lambda connection: connection.send(sterna.Topic("news"), "x"),
    "send_soon": _soon,
    "producer": lambda connection: connection.producer("produced"),
    "consumer": _received,
    "pattern": lambda connection: connection.consumer(sterna.Topic("news.>")),
}


@pytest.mark.parametrize("leader", [False, True])
@pytest.mark.parametrize("call", _CALLS)
def test_what_needs_a_home_waits_for_etcd(call: str, leader: bool) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two()
        connection = await stage.connect(cluster.brokers["b0"])
        _go(cluster, leader=leader)
        await asyncio.sleep(1)
        calling = asyncio.create_task(_CALLS[call](connection))
        await asyncio.sleep(40)
        assert not calling.done()
        _come_back(cluster, leader=leader)
        await asyncio.wait_for(calling, 30)
        await connection.close()

    shown()


@staged
async def test_the_time_limit_of_a_send_holds_meanwhile_and_so_does_that_of_reconnecting(stage: Stage) -> None:
    cluster = await stage.two()
    connection = await stage.connect(cluster.brokers["b0"], reconnect=sterna.Reconnect(give_up_after_s=60))
    _go(cluster, leader=False)
    await asyncio.sleep(1)
    began_s = stage.loop.time()
    with pytest.raises(errors.SendTimeoutError):
        await connection.send("new", "x", timeout=2)
    assert stage.loop.time() - began_s == pytest.approx(2, abs=0.1)
    began_s = stage.loop.time()
    with pytest.raises(errors.UnavailableError, match="cannot be settled now"):
        await connection.send("new", "x")
    assert 60 <= stage.loop.time() - began_s < 75
    _come_back(cluster, leader=False)
    await connection.send("new", "y", timeout=30)
    assert await drained(connection, "new") == ["y"]
    await connection.close()


@pytest.mark.parametrize("breaks", [False, True])
def test_who_uses_what_was_given_to_a_broker_that_was_never_there_waits_and_others_do_not(breaks: bool) -> None:
    """Also when its connection has just broken: the others on it are restored at once."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two()
        for name in ("orders", "other"):
            await cluster.apply("Queue", name, broker="b1")
            await cluster.until_home("queue", name, "b1")
        connection = await stage.connect(cluster.brokers["b1"])
        producer, other = await connection.producer("orders"), await connection.producer("other")
        consumer = await connection.consumer("orders", prefetch=1)
        await producer.send("before")
        first = await consumer.receive(5)
        assert first is not None
        assert await consumer.receive(0.1) is None  # it is acknowledged
        told: list[BaseException] = []
        connection.on_error(told.append)
        if breaks:
            # Who is opened anew hears of it, and nobody else.
            for link in stage.network.links:
                if link.client is stage.here and link.server.process is cluster.brokers["b1"].process:
                    link.break_()
        await cluster.give("queue", "orders", "b9")
        await asyncio.sleep(2)
        sending = [asyncio.create_task(producer.send(f"{number}")) for number in range(3)]
        receiving = asyncio.create_task(consumer.receive(60))
        await other.send("others do not wait", timeout=1)
        await asyncio.sleep(10)
        assert not any(one.done() for one in (*sending, receiving))
        await cluster.give("queue", "orders", "b0")
        await asyncio.wait((*sending, receiving), timeout=5)
        assert [type(one.result()) for one in sending] == [sterna.Sent] * 3
        message = receiving.result()
        assert message is not None
        assert message.body == "0"
        assert (held(cluster, "b0")["orders"], told) == (3, [])
        await connection.close()

    shown()


@pytest.mark.parametrize("closes", ["producer", "session"])
def test_a_producer_that_is_closed_while_it_waits_for_a_home_is_not_opened_any_more(closes: str) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two("orders")
        connection = await stage.connect(cluster.brokers["b1"])
        told: list[BaseException] = []
        connection.on_error(told.append)
        session = await connection.session()
        producer = await session.producer("orders")
        await cluster.give("queue", "orders", "b9")
        await asyncio.sleep(2)
        following = [producer._sending.is_following]
        await (producer if closes == "producer" else session).close()
        await asyncio.sleep(1)
        assert [*following, producer._sending.is_following] == [True, False]
        await cluster.give("queue", "orders", "b1")
        await asyncio.sleep(1)
        assert (connection._lifeline.lanes, told) == ([], [])
        await connection.close()

    shown()


@pytest.mark.parametrize("name", ["", "import"])
def test_what_is_sent_while_a_home_comes_and_goes_arrives_once(name: str) -> None:
    """Also where a producer is ended in the same breath as it was opened."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two("orders")
        connection = await stage.connect(cluster.brokers["b1"])
        producer = await connection.producer("orders", name=name)
        sending: list[asyncio.Task[Any]] = []
        for home in ("b9", "b1", "b9", "b1", "b0", "b1") * 20:
            await cluster.give("queue", "orders", home)
            for _ in range(3):
                sending.append(asyncio.create_task(producer.send(f"{len(sending)}")))
                await asyncio.sleep(stage.random.random() * 0.01)
        await cluster.give("queue", "orders", "b1")
        await asyncio.wait_for(asyncio.gather(*sending), 60)
        found: list[str] = []
        for home in ("b0", "b1"):
            await cluster.give("queue", "orders", home)
            await asyncio.sleep(2)
            found += await drained(connection, "orders")
        assert sorted(found, key=int) == [f"{number}" for number in range(len(sending))]
        await connection.close()

    shown()


@pytest.mark.parametrize("opened", ["from", "to"])
def test_what_is_to_live_on_a_broker_that_was_never_there_waits_for_it_with_what_a_bridge_ties_to_it(
    opened: str,
) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two()
        await cluster.apply("Queue", "to", broker="b2")
        bridge = await cluster.apply("Bridge", "over", source={"queue": "from"}, targets=[{"queue": "to"}])
        await stage.until(lambda: all(list(cluster.member(one).objects.bridges()) for one in cluster.brokers))
        reconnect = sterna.Reconnect(give_up_after_s=20)
        connection = await stage.connect(cluster.brokers["b0"], reconnect=reconnect)
        with pytest.raises(errors.UnavailableError, match=r"spec\.broker names 'b2'.*ever in the") as told:
            await connection.producer(sterna.Queue(opened))
        assert "correct spec.broker" in str(told.value)
        assert [await cluster.home("queue", name) for name in ("from", "to")] == ["", ""]
        said = await cluster.client.get(LAYOUT.object_status(bridge, "b0"))
        assert b"lives with the queue 'to', whose spec.broker names 'b2'" in (said.found.value if said.found else b"")
        opening = asyncio.create_task(connection.producer(sterna.Queue(opened)))
        await asyncio.sleep(5)
        await stage.start(cluster.add("b2"))
        await asyncio.wait_for(opening, 10)
        assert [await cluster.home("queue", name) for name in ("from", "to")] == ["b2", "b2"]
        await connection.close()

    shown()


@pytest.mark.parametrize("leader", [False, True])
def test_nobody_says_that_a_queue_does_not_exist_while_etcd_may_know_it(leader: bool) -> None:
    """It was made while the broker was away, which starts with what it kept; of another one etcd knows nothing."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.cluster("b0")
        broker = cluster.brokers["b0"]
        broker.kill()
        await cluster.apply("Queue", "late")
        _go(cluster, leader=leader)
        await stage.start(broker)
        connection = await stage.connect(broker)
        opening = [asyncio.create_task(connection.producer(name)) for name in ("late", "never")]
        consuming = asyncio.create_task(connection.consumer("late"))
        await asyncio.sleep(40)
        assert not any(one.done() for one in (*opening, consuming))
        _come_back(cluster, leader=leader)
        producer, consumer = await asyncio.wait_for(asyncio.gather(opening[0], consuming), 30)
        await producer.send("x")
        message = await consumer.receive(5)
        assert message is not None
        assert message.body == "x"
        with pytest.raises(errors.NoSuchDestinationError):
            await asyncio.wait_for(opening[1], 30)
        await connection.close()

    shown()
