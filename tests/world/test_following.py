"""Who follows a destination to another broker, and is interrupted on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import sterna
from sterna import errors

from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged

#: The move is told at some of these moments after it was ordered, and goes on for long: the new home does not answer.
_DELAYS_S = (0.0, 0.0001, 0.0003, 0.001, 0.002, 0.004, 0.01, 0.02, 0.03, 0.1, 1.0, 5.0)
_TOLD = (errors.ClosedError, errors.UnreachableError, errors.MovedError)


async def to_nowhere(stage: Stage) -> Cluster:
    """A queue on b1 whose next home is b0, which nobody can connect to."""
    cluster = await stage.two("orders")
    away = cluster.brokers["b0"].process
    assert away is not None
    stage.network.part(stage.here, away)
    return cluster


async def moves(cluster: Cluster, broker: str) -> None:
    """Has the queue live there."""
    await cluster.give("queue", "orders", broker)


async def settled_again(cluster: Cluster) -> None:
    """Back where it was, and served there."""
    await moves(cluster, "b1")
    await asyncio.sleep(2)


async def ended(task: asyncio.Task[Any]) -> Any:
    """How a call ended, which it has to do soon."""
    done, _ = await asyncio.wait((task,), timeout=10)
    assert done, "it does not end"
    return task.exception() or task.result()


async def _soon(check: Callable[[], bool]) -> None:
    """Until it is so, looked at more often than anything happens."""
    for _ in range(100_000):
        if check():
            return
        await asyncio.sleep(0.0001)
    raise AssertionError("it did not come true")


async def _taken(consumer: sterna.Consumer) -> list[str]:
    return [message.body async for message in consumer]


@pytest.mark.parametrize("closes", ["connection", "session", "consumer"])
def test_whoever_waits_for_a_message_learns_of_the_end_although_the_consumer_follows_a_move(closes: str) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await to_nowhere(stage)
        for delay_s in _DELAYS_S:
            connection = await stage.connect(cluster.brokers["b1"])
            session = await connection.session()
            consumer = await session.consumer("orders")
            other = await session.consumer("orders")
            receiving, iterating = asyncio.create_task(consumer.receive()), asyncio.create_task(_taken(other))
            await asyncio.sleep(0.01)
            moving = asyncio.create_task(moves(cluster, "b0"))
            await _soon(lambda on=session, by=moving: not on._part.feeds or by.done())  # type: ignore[misc]
            await asyncio.sleep(delay_s)
            closing: dict[str, Any] = {"connection": connection, "session": session}
            if closes == "consumer":
                await asyncio.wait_for(asyncio.gather(consumer.close(), other.close()), 20)
            else:
                await asyncio.wait_for(closing[closes].close(), 20)
            assert isinstance(await ended(receiving), _TOLD), delay_s
            found = await ended(iterating)
            assert isinstance(found, list | errors.SternaError), delay_s
            await moving
            await connection.close()
            await settled_again(cluster)

    shown()


@staged
async def test_whoever_waits_for_a_confirmation_learns_of_the_end_although_the_producer_follows_a_move(
    stage: Stage,
) -> None:
    cluster = await to_nowhere(stage)
    for delay_s in _DELAYS_S:
        connection = await stage.connect(cluster.brokers["b1"])
        session = await connection.session()
        producer = await session.producer("orders")
        await moves(cluster, "b0")
        await _soon(lambda one=producer: one._sending.is_following)  # type: ignore[misc]
        sending = asyncio.create_task(producer.send("?"))
        told: list[Any] = []
        await producer.send_soon("??", on_completion=told.append)
        await asyncio.sleep(delay_s)
        await asyncio.wait_for(connection.close(failed=True), 20)
        assert isinstance(await ended(sending), errors.SternaError), delay_s
        assert [isinstance(one, errors.SternaError) for one in told] == [True], delay_s
        with pytest.raises(errors.SternaError):
            await asyncio.wait_for(producer.send("?"), 5)
        await settled_again(cluster)


@staged
async def test_a_session_that_is_closed_while_its_producers_and_consumers_move_leaves_nothing(stage: Stage) -> None:
    """Here the new home answers: what was sent has come there, and nothing is open anywhere when the session is not."""
    cluster = await stage.two("orders")
    connection = await stage.connect(cluster.brokers["b1"])
    there = await stage.connect(cluster.brokers["b0"])
    await connection.send("other", "for both to be connected")
    sent = 0
    for step in range(60):
        session = await connection.session()
        producer, consumer = await session.producer("orders"), await session.consumer("orders", prefetch=0)
        await moves(cluster, "b0")
        await _soon(lambda one=producer, on=session: one._sending.is_following or one.session is not on)  # type: ignore[misc]
        await producer.send_soon("x")
        await asyncio.sleep(0.0001 * step)
        flushing = asyncio.create_task(session.flush())
        await asyncio.sleep(0)
        if step % 2:
            await consumer.close()
        await asyncio.wait_for(session.close(), 20)
        await asyncio.wait_for(flushing, 20)
        sent += 1
        await asyncio.sleep(0.5)
        for name in ("b0", "b1"):
            rows = {row["name"]: row for row in cluster.brokers[name].listed("queue")}
            if "orders" in rows:
                used = {key: rows["orders"]["statistics"].get(key) for key in ("consumers", "producers", "in_flight")}
                assert not any(used.values()), (step, name, used)
        await moves(cluster, "b1")
        await asyncio.sleep(1)
    held = next(row for row in cluster.brokers["b0"].listed("queue") if row["name"] == "orders")
    assert held["statistics"]["messages"] == sent
    await there.close()
    await connection.close()


@staged
async def test_a_move_and_the_end_of_a_connection_in_one_turn_of_the_loop(stage: Stage) -> None:
    """The task that was to follow is cancelled before it has done anything."""
    cluster = await to_nowhere(stage)
    connection = await stage.connect(cluster.brokers["b1"])
    consumer, producer = await connection.consumer("orders"), await connection.producer("orders")
    receiving = asyncio.create_task(consumer.receive())
    await asyncio.sleep(0.1)
    moved = errors.MovedError("it lives elsewhere")
    moved.addresses = (f"sterna://{cluster.brokers['b0'].address}",)
    assert consumer._feed.moved(moved)
    assert producer._sending.moved(moved)
    told: list[Any] = []
    await producer.send_soon("?", on_completion=told.append)
    await asyncio.wait_for(connection.close(failed=True), 20)
    assert isinstance(await ended(receiving), errors.ClosedError)
    assert [isinstance(one, errors.SternaError) for one in told] == [True]


@staged
async def test_one_dead_broker_holds_up_nobody_who_sends_to_others(stage: Stage) -> None:
    cluster = await to_nowhere(stage)
    await cluster.apply("Queue", "here", broker="b1")
    await cluster.until_home("queue", "here", "b1")
    connection = await stage.connect(cluster.brokers["b1"])
    await moves(cluster, "b0")
    await asyncio.sleep(2)
    lost = asyncio.create_task(connection.send("orders", "?", timeout=20))
    asked = asyncio.create_task(connection.request("orders", "?", timeout=20))
    await asyncio.sleep(1)
    began_s = stage.loop.time()
    for _ in range(10):
        await connection.send("here", "x", timeout=5)
    assert stage.loop.time() - began_s < 1
    began_s = stage.loop.time()
    assert isinstance(await asyncio.wait_for(_outcome(lost), 25), errors.SendTimeoutError)
    assert isinstance(await asyncio.wait_for(_outcome(asked), 25), errors.RequestTimeoutError)
    assert stage.loop.time() - began_s < 20
    await connection.close(failed=True)


@staged
async def test_what_is_sent_to_a_dead_broker_takes_no_room_from_who_sends_to_others(stage: Stage) -> None:
    cluster = await to_nowhere(stage)
    await cluster.placed("here", "b1")
    connection = await stage.connect(cluster.brokers["b1"])
    lost, here = await connection.producer("orders"), await connection.producer("here")
    await moves(cluster, "b0")
    await asyncio.sleep(2)

    async def flood() -> None:
        while True:
            await lost.send_soon(bytes(100_000))

    flooding = asyncio.create_task(flood())
    await asyncio.sleep(2)
    flow = connection._lifeline.flow
    assert flow.limit - 100_000 < flow.away == flow.bytes <= flow.limit
    began_s = stage.loop.time()
    for _ in range(10):
        await here.send(bytes(200_000), timeout=5)
    assert stage.loop.time() - began_s < 1
    flooding.cancel()
    await connection.close(failed=True)
    assert (flow.away, flow.bytes) == (0, 0)


async def _outcome(task: asyncio.Task[Any]) -> Any:
    await asyncio.wait((task,))
    return task.exception() or task.result()


@pytest.mark.parametrize("closes", ["connection", "session"])
def test_whoever_is_sent_from_broker_to_broker_learns_at_once_of_the_end(closes: str) -> None:
    """However long the pause is that has just begun."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two("orders")
        slow = sterna.Reconnect(initial_ms=20_000, maximum_ms=20_000)
        connection = await stage.connect(cluster.brokers["b1"], reconnect=slow)
        session, transacted = await connection.session(), await connection.session(transacted=True)
        cluster.cut_off("b0")
        await cluster.give("queue", "orders", "b0")
        await asyncio.sleep(3)  # b1 has heard of it
        asking: list[Any] = [session.consumer("orders"), session.producer("orders"), transacted.producer("orders")]
        if closes == "connection":
            asking += [connection.send("orders", "?"), connection.request("orders", "?", timeout=None)]
        calls = [asyncio.create_task(one) for one in asking]
        await asyncio.sleep(20)
        assert not any(one.done() for one in calls)
        began_s = stage.loop.time()
        await asyncio.gather(session.close(), transacted.close())
        if closes == "connection":
            await connection.close()
        assert [isinstance(await ended(one), errors.ClosedError) for one in calls] == [True] * len(calls)
        assert stage.loop.time() - began_s < 1
        await connection.close()

    shown()


@staged
async def test_two_brokers_that_send_to_one_another_while_etcd_is_away_end_no_consumer_and_no_producer(
    stage: Stage,
) -> None:
    """One of them has not heard of the move, and cannot for longer than a name is followed without a break."""
    cluster = await stage.two("orders")
    connection = await stage.connect(cluster.brokers["b1"])
    consumer, producer = await connection.consumer("orders"), await connection.producer("orders")
    cluster.cut_off("b0")
    await cluster.give("queue", "orders", "b0")
    receiving = asyncio.create_task(consumer.receive())
    await asyncio.sleep(3)  # b1 has heard of it
    sending = asyncio.create_task(producer.send("after the move"))
    await asyncio.sleep(60)
    assert not receiving.done()
    assert not sending.done()
    stage.network.heal()
    await asyncio.wait_for(sending, 30)
    message = await asyncio.wait_for(receiving, 30)
    assert message is not None
    assert message.body == "after the move"
