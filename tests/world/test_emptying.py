"""Senders to a queue that is being emptied: it takes nothing for now, which they feel as back-pressure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sterna
import sterna.admin
from sterna import AcknowledgeMode, errors

from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained


async def emptied(stage: Stage, *others: str) -> tuple[Cluster, sterna.Connection]:
    """A queue on b1 that holds a message, and others, which are being emptied."""
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    names = ("orders", *others)
    for name in names:
        await cluster.apply("Queue", name, broker="b1")
        await cluster.until_home("queue", name, "b1")
    connection = await stage.connect(cluster.brokers["b1"])
    for name in names:
        await connection.send(name, "before")
    await cluster.drain("b1")
    await cluster.until(lambda: _left(cluster, len(names)))
    return cluster, connection


async def _left(cluster: Cluster, messages: int) -> bool:
    status = await cluster.status("b1")
    return status is not None and status.draining is not None and status.draining.messages == messages


@staged
async def test_what_is_sent_to_a_queue_that_is_being_emptied_comes_where_it_goes_in_order(stage: Stage) -> None:
    cluster, connection = await emptied(stage)
    producer = await connection.producer("orders")
    told: list[Any] = []
    for number in range(300):
        await producer.send_soon(f"{number}", on_completion=told.append)
    large = asyncio.create_task(producer.send("x" * 700_000))
    one = asyncio.create_task(connection.send("orders", "by nobody in particular"))
    await asyncio.sleep(5)
    assert told == []
    assert not large.done()
    assert not one.done()
    consumer = await connection.consumer("orders")
    message = await consumer.receive(5)
    assert message is not None
    await consumer.close()
    await cluster.until_home("queue", "orders", "b0")
    await large
    await one
    await producer.flush()
    assert [type(outcome) for outcome in told] == [sterna.Sent] * 300
    left = await drained(connection, "orders")
    assert [body for body in left if body.isdigit()] == [str(number) for number in range(300)]
    assert len(left) == 302
    await connection.close()


@staged
async def test_it_goes_on_where_it_is_when_nobody_wants_the_broker_emptied_any_more(stage: Stage) -> None:
    cluster, connection = await emptied(stage)
    sending = asyncio.create_task(connection.send("orders", "after"))
    await asyncio.sleep(20)
    assert not sending.done()
    await cluster.undrain("b1")
    await sending
    assert await drained(connection, "orders") == ["before", "after"]
    await connection.close()


@staged
async def test_the_time_limit_of_a_send_holds_and_what_it_gave_up_is_not_sent_later(stage: Stage) -> None:
    cluster, connection = await emptied(stage)
    producer = await connection.producer("orders")
    began_s = stage.loop.time()
    for number in range(3):
        with pytest.raises(errors.SendTimeoutError):
            await producer.send(f"given up {number}", timeout=2)
    assert stage.loop.time() - began_s == pytest.approx(6, abs=0.1)
    sending = asyncio.create_task(producer.send("after", timeout=30))
    await asyncio.sleep(1)
    await cluster.undrain("b1")
    await sending
    assert await drained(connection, "orders") == ["before", "after"]
    await connection.close()


@staged
async def test_a_break_meanwhile_changes_nothing(stage: Stage) -> None:
    cluster, connection = await emptied(stage)
    producer = await connection.producer("orders")
    sending = [asyncio.create_task(producer.send(f"{number}")) for number in range(5)]
    await asyncio.sleep(2)
    await stage.broken(connection)
    await asyncio.sleep(2)
    assert not any(one.done() for one in sending)
    await cluster.undrain("b1")
    await asyncio.wait(sending)
    assert all(one.result() for one in sending)
    assert await drained(connection, "orders") == ["before", "0", "1", "2", "3", "4"]
    await connection.close()


@staged
async def test_who_gives_up_reconnecting_gives_this_up_as_late_and_a_closed_producer_tells(stage: Stage) -> None:
    cluster, connection = await emptied(stage)
    await connection.close()
    policy = sterna.Reconnect(give_up_after_s=5)
    connection = await stage.connect(cluster.brokers["b1"], reconnect=policy)
    began_s = stage.loop.time()
    with pytest.raises(errors.UnavailableError):
        await connection.send("orders", "?")
    assert 5 <= stage.loop.time() - began_s < 7
    producer = await connection.producer("orders")
    sending = asyncio.create_task(producer.send("?"))
    await asyncio.sleep(1)
    await connection.close(failed=True)
    with pytest.raises(errors.SternaError):
        await sending


@staged
async def test_a_transaction_that_was_to_hold_such_a_message_is_rolled_back(stage: Stage) -> None:
    """It is the application's to do again, as whenever it is told so."""
    cluster, connection = await emptied(stage)
    session = await connection.session(AcknowledgeMode.TRANSACTED)
    producer = await session.producer("orders")
    await producer.send("in a transaction")
    with pytest.raises(errors.TransactionRolledBackError):
        await session.commit()
    await cluster.undrain("b1")
    await asyncio.sleep(2)
    await producer.send("again")
    await session.commit()
    assert await drained(connection, "orders") == ["before", "again"]
    await connection.close()


async def _bridged(stage: Stage) -> Cluster:
    """A bridge over two queues that nobody has opened yet, on b1."""
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    await cluster.apply("Queue", "from", broker="b1")
    await cluster.until_home("queue", "from", "b1")
    await cluster.apply("Bridge", "over", source={"queue": "from.here"}, targets=[{"queue": "to.here"}])
    await cluster.until_home("queue", "to.here", await _home_of_source(cluster))
    return cluster


async def _home_of_source(cluster: Cluster) -> str:
    return str(await cluster.until(lambda: cluster.home("queue", "from.here")))


@pytest.mark.parametrize("delay_ms", range(0, 60, 2))
def test_what_is_sent_to_the_source_of_a_bridge_is_copied_whenever_its_broker_is_emptied(delay_ms: int) -> None:
    """Also where nobody had opened the source before: it is not opened while its bridge is parted from."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster = await _bridged(stage)
        home = await _home_of_source(cluster)
        connection = await stage.connect(cluster.brokers[home])
        await asyncio.sleep(2)
        await cluster.drain(home)
        await asyncio.sleep(delay_ms / 1000)
        sending = asyncio.create_task(connection.send("from.here", "x"))
        await asyncio.sleep(0.2)
        await cluster.undrain(home)
        await sending
        await asyncio.sleep(3)
        assert await drained(connection, "from.here") == ["x"]
        assert await drained(connection, "to.here") == ["x"]
        await connection.close()

    shown()


@staged
async def test_who_consumes_from_a_target_of_a_bridge_follows_it_when_its_broker_is_emptied(stage: Stage) -> None:
    """A target that is there because of the bridge alone is there as long as the bridge is, on its way, too."""
    cluster = await _bridged(stage)
    home = await _home_of_source(cluster)
    other = "b0" if home == "b1" else "b1"
    connection = await stage.connect(cluster.brokers[home])
    consumer = await connection.consumer("to.here")
    await connection.send("from.here", "before")
    first = await consumer.receive(5)
    assert first is not None
    assert await drained(connection, "from.here") == ["before"]
    await cluster.drain(home)
    await consumer.receive(0.05)  # the acknowledgement leaves
    await cluster.until_home("queue", "from.here", other)
    await connection.send("from.here", "after")
    after = await consumer.receive(10)
    assert after is not None
    assert after.body == "after"
    await connection.close()


@staged
async def test_a_target_that_moves_is_deleted_where_it_goes_and_is_never_missing(stage: Stage) -> None:
    """What an administrator deletes of a bridge's target, he deletes there; it is not said that there is none."""
    cluster = await _bridged(stage)
    moved = 0
    for number in range(40):
        home = await _home_of_source(cluster)
        async with sterna.admin.connect(cluster.url(home)) as admin:
            await asyncio.sleep(2)
            await cluster.drain(home)
            await asyncio.sleep(number / 1000)
            await admin.delete("Queue", "to.here", with_messages=True)
            await cluster.undrain(home)
        moved += await _home_of_source(cluster) != home
    assert moved > 10


@staged
async def test_a_listener_whose_transaction_is_refused_for_now_does_not_go_in_a_circle(stage: Stage) -> None:
    """It gets its message again after pauses that grow, and goes on when the queue is no longer emptied."""
    cluster, connection = await emptied(stage, "source")
    session = await connection.session(transacted=True)
    producer = await session.producer("orders")
    ended: list[BaseException | None] = []

    async def passes_on(message: sterna.Message) -> None:
        await producer.send(message.body)
        try:
            await session.commit()
        except errors.TransactionRolledBackError as error:
            ended.append(error)
            raise
        ended.append(None)

    await session.consumer("source", listener=passes_on)
    await stage.until(lambda: ended)
    await asyncio.sleep(5)
    assert 5 < len(ended) < 20
    assert None not in ended
    await cluster.undrain("b1")
    await stage.until(lambda: None in ended)
    assert ended.count(None) == 1
    await connection.close()


@staged
async def test_who_subscribes_durably_as_another_one_goes_misses_nothing_by_the_emptying(stage: Stage) -> None:
    """A topic has as many subscriptions when its turn comes as when it was looked at, and one of them is to stay."""
    cluster = await stage.two()
    topic = sterna.Topic("z")
    for name in [*(f"t{number:02}" for number in range(60)), topic.name]:
        await cluster.apply("Topic", name, broker="b1")
    await cluster.until_home("topic", topic.name, "b1")
    connection = await stage.connect(cluster.brokers["b1"])
    passing = await connection.consumer(topic)
    reader = await sterna.connect(cluster.url("b1"), client_id="reader")
    await cluster.drain("b1")
    await cluster.until(lambda: cluster.member("b1").link.view.home("topic", "t05") == "b0")
    await passing.close()
    await reader.consumer(topic, durable="news")
    assert cluster.member("b1").link.view.home("topic", topic.name) == "b1"
    await reader.close()
    await asyncio.sleep(10)
    await cluster.undrain("b1")
    await asyncio.sleep(3)
    await connection.send(topic, "said while the reader was away")
    again = await sterna.connect(cluster.url("b0"), client_id="reader")
    message = await (await again.consumer(topic, durable="news")).receive(10)
    assert message is not None
    assert message.body == "said while the reader was away"
    await again.close()
    await connection.close()
