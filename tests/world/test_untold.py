"""What failed of `send_soon` is told by the next flush or close, whatever has become of the producer meanwhile."""

from __future__ import annotations

import asyncio

import pytest
import sterna
import sterna.admin
from sterna import DeliveryMode, Queue, errors
from sterna._failures import Failures, Untold
from sterna._parts import part_of
from sterna.producers import _BOUND_MAX

from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged


async def _full(stage: Stage, *brokers: str) -> Cluster:
    """Two brokers, and on these a queue each with room for one message, named after its broker."""
    cluster = await stage.two()
    for broker in brokers:
        await cluster.apply("Queue", f"on-{broker}", maxMessages=1, overflowPolicy="rejectIncoming", broker=broker)
        await cluster.until_home("queue", f"on-{broker}", broker)
    await asyncio.sleep(2)
    return cluster


async def _anonymous(connection: sterna.Connection) -> sterna.Producer:
    return await (await connection.session()).producer()


async def _send(producer: sterna.Producer, *queues: str) -> None:
    """Three to each of these; of those to a full one the last two are refused."""
    for number in range(3):
        for queue in queues:
            await producer.send_soon(f"{number}", destination=Queue(queue))


def _check(told: pytest.ExceptionInfo[errors.FlushError], count: int) -> None:
    assert told.value.count == len(told.value.failures) == count
    assert {type(error) for _, error in told.value.failures} == {errors.DestinationFullError}


@staged
async def test_what_failed_is_told_although_its_destination_was_let_go_for_others(stage: Stage) -> None:
    cluster = await _full(stage, "b0")
    connection = await stage.connect(cluster.brokers["b0"])
    producer = await _anonymous(connection)
    await _send(producer, "on-b0")
    await asyncio.sleep(1)
    for number in range(_BOUND_MAX):
        await producer.send_soon("x", destination=Queue(f"q{number}"))
    with pytest.raises(errors.FlushError) as told:
        await producer.flush()
    _check(told, 2)
    await producer.flush()
    await connection.close()


@staged
async def test_what_failed_is_told_although_its_destination_was_made_anew(stage: Stage) -> None:
    cluster = await stage.two()
    connection = await stage.connect(cluster.brokers["b0"])
    producer = await _anonymous(connection)
    await producer.send("x", destination=Queue("orders"))
    home = await cluster.home("queue", "orders")
    stage.network.slow = 0.2
    async with sterna.admin.connect(cluster.url(home)) as admin:
        deleting = asyncio.create_task(admin.delete("Queue", "orders", with_messages=True))
        count = 0
        while not deleting.done():
            await producer.send_soon("x", destination=Queue("orders"))
            count += 1
            await asyncio.sleep(0.01)
        await deleting
    await asyncio.sleep(2)
    await producer.send("again", destination=Queue("orders"))
    with pytest.raises(errors.FlushError) as told:
        await producer.flush()
    assert 0 < told.value.count <= count
    await connection.close()


@staged
async def test_a_flush_tells_what_failed_on_all_brokers(stage: Stage) -> None:
    cluster = await _full(stage, "b0", "b1")
    connection = await stage.connect(cluster.brokers["b0"])
    producer = await _anonymous(connection)
    await _send(producer, "on-b0", "on-b1", "other")
    with pytest.raises(errors.FlushError) as told:
        await producer.flush()
    _check(told, 4)
    await _send(producer, "on-b0", "on-b1")
    assert producer.unconfirmed > 0
    with pytest.raises(errors.FlushError) as told:
        await connection.flush()
    assert producer.unconfirmed == 0
    _check(told, 6)
    await connection.close()


@pytest.mark.parametrize("closes", ["connection", "session"])
def test_a_close_tells_what_failed_of_all_producers_on_all_brokers(closes: str) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await _full(stage, "b0", "b1")
        connection = await stage.connect(cluster.brokers["b1"])
        session = await connection.session()
        for queue in ("on-b0", "on-b1", "on-b1"):
            producer = await session.producer(queue)
            for number in range(3):
                await producer.send_soon(f"{number}")
        with pytest.raises(errors.FlushError) as told:
            await (connection.close() if closes == "connection" else session.close())
        _check(told, 7)
        assert session.closed is not None
        await connection.close()

    shown()


@staged
async def test_a_session_is_closed_although_something_failed_on_another_broker(stage: Stage) -> None:
    """Where it stayed open its consumers kept messages, and an `async with` left it so."""
    cluster = await _full(stage, "b0")
    connection = await stage.connect(cluster.brokers["b1"])
    with pytest.raises(errors.FlushError):
        async with await connection.session() as session:
            producer = await session.producer("on-b0")
            for number in range(3):
                await producer.send_soon(f"{number}")
    assert session.closed is not None
    await connection.close()


@staged
async def test_an_anonymous_producer_is_closed_for_all_destinations_whatever_failed(stage: Stage) -> None:
    cluster = await _full(stage, "b0")
    connection = await stage.connect(cluster.brokers["b0"])
    producer = await _anonymous(connection)
    await _send(producer, "on-b0", "other")
    with pytest.raises(errors.FlushError) as told:
        await producer.close()
    _check(told, 2)
    assert list(part_of(producer.session).producers) == []
    for queue in ("on-b0", "other", "new"):
        with pytest.raises(errors.ClosedError):
            await producer.send("x", destination=Queue(queue))
        with pytest.raises(errors.ClosedError):
            await producer.send_soon("x", destination=Queue(queue))
    await connection.close()


@staged
async def test_an_anonymous_producer_that_is_closed_while_it_looks_for_a_broker_leaves_nothing_open(
    stage: Stage,
) -> None:
    cluster = await stage.two()
    connection = await stage.connect(cluster.brokers["b0"])
    producer = await _anonymous(connection)
    stage.network.slow = 0.1
    sending = asyncio.create_task(producer.send("x", destination=Queue("other")))
    await stage.until(lambda: producer._binding)
    await producer.close()
    with pytest.raises(errors.ClosedError):
        await sending
    assert list(part_of(producer.session).producers) == []
    await connection.close()


@staged
async def test_a_destination_that_somebody_is_about_to_send_to_is_not_let_go(stage: Stage) -> None:
    cluster = await stage.two()
    connection = await stage.connect(cluster.brokers["b0"])
    producer = await _anonymous(connection)
    for number in range(_BOUND_MAX):
        await producer.send("x", destination=Queue(f"q{number}"))
    stage.network.slow = 0.1
    sending = [asyncio.create_task(producer.send("x", destination=Queue("more")))]
    for number in range(60):
        # The first to each has another producer opened there, and waits for that.
        reliable = producer.send("x", destination=Queue(f"q{number % 3}"), delivery_mode=DeliveryMode.RELIABLE)
        sending.append(asyncio.create_task(reliable))
        await asyncio.sleep(0.01)
    await asyncio.gather(*sending)
    await connection.close()


@staged
async def test_a_connection_that_was_given_up_tells_at_its_close_what_it_has_not_sent(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker, reconnect=sterna.Reconnect(give_up_after_s=3))
    session = await connection.session()
    told, untold = await session.producer("orders"), await session.producer("orders")
    broker.kill()
    for producer in (told, untold):
        for number in range(3):
            await producer.send_soon(f"{number}")
    await stage.until(lambda: connection.closed is not None)
    with pytest.raises(errors.FlushError):
        await told.flush()
    with pytest.raises(errors.FlushError) as failed:
        await connection.close()
    assert failed.value.count == 3
    assert isinstance(failed.value.failures[0][1], errors.ConnectionLostError)
    await connection.close()


@staged
async def test_what_was_on_its_way_to_another_broker_at_the_close_is_told(stage: Stage) -> None:
    cluster = await stage.two("orders")
    connection = await stage.connect(cluster.brokers["b1"])
    producer = await connection.producer("orders")
    await cluster.give("queue", "orders", "b0")
    cluster.brokers["b0"].kill()
    await stage.until(lambda: producer._sending.is_following)
    for number in range(3):
        await producer.send_soon(f"{number}")
    with pytest.raises(errors.FlushError) as told:
        await connection.close()
    assert told.value.count == 3


def test_of_very_many_failures_the_first_are_kept_and_all_counted() -> None:
    untold, error = Untold(), errors.ClosedError("over")
    for number in range(300):
        failures = Failures()
        for message in range(10):
            failures.add(f"{number}.{message}", error)
        untold.add(failures)
    assert len(untold._over) <= 100
    told = untold.take()
    assert told is not None
    assert (told.count, len(told.failures)) == (3000, 1000)
    assert [one for one, _ in told.failures[::10]] == [f"{number}.0" for number in range(100)]
    assert untold.take() is None
