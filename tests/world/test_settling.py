"""What becomes of messages in hand when a session ends, recovers or loses its link, and the application goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sterna
import sterna.admin
from sterna import AcknowledgeMode

from tests.world.brokers import Broker
from tests.world.stage import Stage, staged


async def _filled(connection: sterna.Connection, name: str, count: int) -> None:
    for number in range(count):
        await connection.send(name, str(number))


@pytest.mark.covers("EMS-CLI-A05")
@staged
async def test_a_loop_that_goes_on_after_its_session_says_nothing_in_it(stage: Stage) -> None:
    connection = await stage.connect(await stage.broker())
    for closes in ("close", "fail"):
        await _filled(connection, closes, 2)
        session = await connection.session()
        consumer = await session.consumer(closes)
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def work(
            consumer: sterna.Consumer = consumer, begun: asyncio.Event = begun, goes_on: asyncio.Event = goes_on
        ) -> None:
            async for _ in consumer:
                begun.set()
                await goes_on.wait()

        working = asyncio.create_task(work())
        await begun.wait()
        if closes == "close":
            await session.close()
        else:
            session._part.fail(sterna.errors.ClosedError("the broker has closed it"))
        link: Any = connection._lifeline._link
        said: list[str] = []
        begin = link.begin

        def told(number: int, name: str, content: Any, settle: Any, said: list[str] = said, go: Any = begin) -> None:
            said.append(name)
            go(number, name, content, settle)

        link.begin = told
        goes_on.set()
        await asyncio.sleep(1)
        await asyncio.wait((working,))
        assert said == [], closes
        link.begin = begin
    await connection.close()


@pytest.mark.covers("EMS-MSG-A20")
@staged
async def test_two_recovers_at_once_deliver_everything_once(stage: Stage) -> None:
    connection = await stage.connect(await stage.broker())
    await _filled(connection, "q", 5)
    for step in range(40):
        session = await connection.session(AcknowledgeMode.CLIENT)
        consumer = await session.consumer("q", prefetch=20)
        assert await consumer.receive(5) is not None
        found: dict[str, int] = {}

        async def receive(consumer: sterna.Consumer = consumer, found: dict[str, int] = found) -> None:
            while (message := await consumer.receive(1)) is not None:
                found[message.body] = found.get(message.body, 0) + 1

        recovering = [asyncio.create_task(session.recover())]
        receiving = asyncio.create_task(receive())
        await asyncio.sleep(step / 50_000)
        is_overtaken = not recovering[0].done() and not found
        recovering.append(asyncio.create_task(session.recover()))
        await asyncio.gather(*recovering, receiving)
        assert sorted(found) == ["0", "1", "2", "3", "4"]
        # The second was asked for before the first was answered: nothing was handed out in between.
        assert not is_overtaken or set(found.values()) == {1}, (step, found)
        await session.close()
    await connection.close()


@staged
async def test_what_is_closed_while_it_is_restored_is_not_left_at_the_broker(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    kept = await connection.default_session()
    for step in range(120):
        closed: Any = await (kept.consumer("q") if step % 2 else connection.session())
        restored = asyncio.Event()
        connection.on_restored(lambda _, told=restored: told.set())  # type: ignore[misc]
        stage.break_links()
        await asyncio.sleep(step / 4000)
        await closed.close()
        await restored.wait()
        await asyncio.sleep(1)
        [row] = [one for one in broker.connections() if not one["peer"].startswith("internal:")]
        assert (row["sessions"], row["consumers"]) == (1, 0), step
    await connection.close()


@pytest.mark.covers("EMS-CLI-A08")
@staged
async def test_a_message_of_a_closed_consumer_is_void_behind_a_break_and_behind_a_recover(stage: Stage) -> None:
    connection = await stage.connect(await stage.broker())
    for mode in (AcknowledgeMode.INDIVIDUAL, AcknowledgeMode.CLIENT):
        for breaks in (True, False):
            name = f"{mode.name}.{breaks}"
            await _filled(connection, name, 2)
            session = await connection.session(mode)
            consumer = await session.consumer(name)
            message = await consumer.receive(5)
            assert message is not None
            await consumer.close()
            if breaks:
                await stage.broken(connection)
            else:
                await session.recover()
            assert not await message.acknowledge()
            message.release()  # it comes again by itself
            await session.close()
            again = await connection.consumer(name)
            found = [await again.receive(5) for _ in range(2)]
            assert [(one.body, one.redelivered) for one in found if one] == [("0", True), ("1", False)], name
            await again.close()
    await connection.close()


@pytest.mark.parametrize("transacted", [False, True])
@pytest.mark.parametrize("makes", ["consumer", "producer"])
def test_what_is_made_elsewhere_while_its_session_is_closed_is_not_left_there(makes: str, transacted: bool) -> None:
    @staged
    async def play(stage: Stage) -> None:
        cluster = await stage.cluster("b0", "b1")
        await cluster.allow_all()
        await cluster.apply("Queue", "there", broker="b0")
        await cluster.until_home("queue", "there", "b0")
        connection = await stage.connect(cluster.brokers["b1"])
        await connection.send("there", "x")  # the connection to that broker stays
        [before] = _sessions(cluster.brokers["b0"])
        for step in range(40):
            session = await connection.session(transacted=transacted)
            making = asyncio.create_task(getattr(session, makes)("there"))
            await asyncio.sleep(step / 10_000)
            await session.close()
            await asyncio.wait((making,))
            assert making.exception() is None or isinstance(making.exception(), sterna.errors.ClosedError)
            await asyncio.sleep(1)
            assert _sessions(cluster.brokers["b0"]) == [before], step
        await connection.close()

    play()


def _sessions(broker: Broker) -> list[int]:
    """How many sessions the broker keeps for each connection."""
    return [one["sessions"] for one in broker.connections() if not one["peer"].startswith("internal:")]


@staged
async def test_an_acknowledgement_that_comes_behind_the_loss_of_its_destination_is_not_called_taken(
    stage: Stage,
) -> None:
    """The broker has given the message back by then, and has nothing left to say of it; its answer says no more."""
    cluster = await stage.two("orders")
    connection = await stage.connect(cluster.brokers["b1"])
    await connection.send("orders", "x")
    session = await connection.session(AcknowledgeMode.INDIVIDUAL)
    consumer = await session.consumer("orders")
    message = await consumer.receive(5)
    assert message is not None
    link: Any = session._part.link
    handle: Any = link._handle
    held: list[Any] = []
    link._handle = held.append
    await cluster.give_up("b1", "b0")

    def is_given_up() -> bool:
        [row] = [row for row in cluster.brokers["b1"].listed("queue") if row["name"] == "orders"]
        return bool(row["statistics"]["consumers"] == 0)

    async def acknowledged() -> bool:
        return await message.acknowledge()

    await stage.until(is_given_up)
    acknowledging = asyncio.create_task(acknowledged())
    await stage.until(lambda: any(frame.HasField("reply") for frame in held))
    link._handle = handle
    for frame in held:
        handle(frame)
    assert await acknowledging is False
    await connection.close()


@pytest.mark.parametrize("mode", [AcknowledgeMode.INDIVIDUAL, AcknowledgeMode.CLIENT])
def test_what_was_handed_out_before_the_broker_ended_its_consumer_is_void(mode: AcknowledgeMode) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        broker = await stage.broker()
        connection = await stage.connect(broker)
        await connection.send("orders", "x")
        session = await connection.session(mode)
        consumer = await session.consumer("orders")
        message = await consumer.receive(5)
        assert message is not None
        async with sterna.admin.connect(f"sterna://{broker.address}") as admin:
            await admin.delete("Queue", "orders", with_messages=True)
        await stage.until(lambda: consumer.closed)
        assert await message.acknowledge() is False
        assert session._part.state.handed == {}, "what comes of it to another consumer is not acknowledged with others"
        await connection.close()

    shown()


@staged
async def test_a_consumer_elsewhere_that_is_given_up_while_it_is_made_leaves_no_session_there(stage: Stage) -> None:
    cluster = await stage.two("orders", "b0")
    connection = await stage.connect(cluster.brokers["b1"])
    await connection.send("orders", "x")  # the connection to that broker stays
    [before] = _sessions(cluster.brokers["b0"])
    for step in range(20):
        making = asyncio.create_task(connection.consumer("orders", acknowledge_mode=AcknowledgeMode.INDIVIDUAL))
        await asyncio.sleep(step / 4_000)
        making.cancel()
        await asyncio.wait((making,))
        if not making.cancelled():
            await making.result().close()
        await asyncio.sleep(1)
        assert _sessions(cluster.brokers["b0"]) == [before], step
    await connection.close()
