"""Temporary destinations that are deleted or abandoned while their connection is restored."""

from __future__ import annotations

import asyncio

import pytest
import sterna
from sterna import errors
from sterna._parts import part_of

from tests.support.held_answers import HeldAnswers
from tests.world.stage import Stage, staged


def _there(stage: Stage) -> list[str]:
    """The temporary queues that the broker has."""
    return [row["name"] for row in stage.brokers[0].listed("queue") if row["origin"] == "temporary"]


async def _one(stage: Stage, count: int = 1) -> tuple[sterna.Connection, list[sterna.Queue]]:
    connection = await stage.connect(await stage.broker())
    made = [await connection.temporary_queue() for _ in range(count)]
    assert len(_there(stage)) == count
    return connection, made


def test_those_that_are_abandoned_while_they_are_made_anew_do_not_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One while it is made, and one before its turn."""

    @staged
    async def shown(stage: Stage) -> None:
        connection, (first, second) = await _one(stage, 2)
        gate = HeldAnswers(monkeypatch, stage.brokers[0].address, "create_temporary")
        restored = asyncio.Event()
        connection.on_restored(lambda _: restored.set())
        stage.break_links()
        await gate.arrived.wait()
        connection._lifeline.abandon_temporary(first)
        connection._lifeline.abandon_temporary(second)
        monkeypatch.undo()
        gate.opened.set()
        await asyncio.wait_for(restored.wait(), 20)
        await asyncio.sleep(1)
        assert _there(stage) == []
        with pytest.raises(errors.NoSuchDestinationError):
            await connection.send(first, "x")
        await connection.close()

    shown()


def test_one_whose_connection_breaks_while_it_is_deleted_is_deleted_under_its_new_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        connection, (made,) = await _one(stage)
        for link in stage.network.links:
            link.stall(5)
        deleting = asyncio.create_task(connection.delete_temporary(made))
        await asyncio.sleep(0.01)
        await stage.broken(connection)
        await asyncio.wait_for(deleting, 20)
        await asyncio.sleep(1)
        assert _there(stage) == []
        await connection.close()

    shown()


async def _interrupted(stage: Stage, connection: sterna.Connection) -> None:
    """Breaks all connections; returns when this one has noticed."""
    noticed = asyncio.Event()
    connection.on_interrupted(lambda _: noticed.set())
    stage.break_links()
    await noticed.wait()


@staged
async def test_what_is_sent_to_one_while_it_has_no_name_goes_where_it_comes_again(stage: Stage) -> None:
    """Also what was sent before, and has not arrived."""
    connection, (place,) = await _one(stage)
    consumer = await connection.consumer(place)
    producer = await (await connection.session()).producer()
    broker = stage.brokers[0]
    assert broker.process is not None
    for _ in range(3):
        stage.network.part(stage.here, broker.process)
        await producer.send_soon("before", destination=place)
        await asyncio.sleep(1)
        await _interrupted(stage, connection)
        await producer.send_soon("meanwhile", destination=place)
        stage.network.heal()
        await asyncio.wait_for(producer.flush(), 60)
        for body in ("before", "meanwhile"):
            message = await consumer.receive(5)
            assert message is not None
            assert message.body == body
    await connection.close()


@staged
async def test_in_a_cluster_one_producer_follows_it_under_all_its_names(stage: Stage) -> None:
    cluster = await stage.two()
    connection = await stage.connect(cluster.brokers["b0"])
    told: list[BaseException] = []
    connection.on_error(told.append)
    place = await connection.temporary_queue()
    session = await connection.session()
    consumer, producer = await session.consumer(place), await session.producer()
    for number in range(4):
        await producer.send(f"{number}", destination=place, timeout=20)
        message = await consumer.receive(5)
        assert message is not None
        assert message.body == f"{number}"
        await stage.broken(connection)
    # The anonymous one, and the one that it has for this.
    assert (told, [len(part.producers) for part in part_of(session).parts]) == ([], [2])
    await connection.close()


@staged
async def test_what_waits_for_room_meanwhile_goes_where_it_comes_again(stage: Stage) -> None:
    connection, (place,) = await _one(stage)
    consumer = await connection.consumer(place)
    producer = await (await connection.session()).producer(window=1)
    broker = stage.brokers[0]
    assert broker.process is not None
    stage.network.part(stage.here, broker.process)
    await producer.send_soon("first", destination=place)
    waiting = asyncio.create_task(producer.send_soon("second", destination=place))
    await asyncio.sleep(1)
    assert not waiting.done()
    await _interrupted(stage, connection)
    stage.network.heal()
    await asyncio.wait_for(waiting, 60)
    await producer.flush()
    for body in ("first", "second"):
        message = await consumer.receive(5)
        assert message is not None
        assert message.body == body
    await connection.close()


def test_one_whose_deletion_nobody_waits_for_any_more_does_not_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker was asked, and has deleted it."""

    @staged
    async def shown(stage: Stage) -> None:
        connection, (made,) = await _one(stage)
        deleting = asyncio.create_task(connection.delete_temporary(made))
        await asyncio.sleep(0)
        deleting.cancel()
        await asyncio.wait((deleting,))
        assert deleting.cancelled()
        await stage.until(lambda: _there(stage) == [])
        await asyncio.sleep(1)
        await stage.broken(connection)
        await asyncio.sleep(1)
        assert _there(stage) == []
        await connection.close()

    shown()


@staged
async def test_what_was_sent_to_one_in_a_cluster_goes_along_at_each_break(stage: Stage) -> None:
    """Also from the connection to one broker to that to another one."""
    cluster = await stage.two()
    connection = await sterna.connect(cluster.url("b0", "b1"))
    told: list[BaseException] = []
    connection.on_error(told.append)
    place = await connection.temporary_queue()
    consumer = await connection.consumer(place)
    for number in range(3):
        await connection.send(place, f"{number}")
        message = await consumer.receive(5)
        assert message is not None
        assert message.body == f"{number}"
        await stage.broken(connection)
    await cluster.brokers["b0"].stop()
    await stage.until(lambda: connection.connected and connection.broker == "b1")
    await connection.send(place, "elsewhere")
    message = await consumer.receive(5)
    assert message is not None
    assert message.body == "elsewhere"
    assert told == []
    await connection.close()
