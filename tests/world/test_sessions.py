"""What a session promises when its application is interrupted: cancelled, restarted, cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import sterna
from sterna import AcknowledgeMode, errors
from sterna._link import Link, LinkLostError

from tests.world.brokers import Broker
from tests.world.stage import Stage, staged


async def _drained(connection: sterna.Connection, name: str) -> list[tuple[str, bool]]:
    """What is left of a queue, and which of it is flagged."""
    found = []
    consumer = await connection.consumer(name)
    while (message := await consumer.receive(3.0)) is not None:
        found.append((message.body, message.redelivered))
    return found


async def _filled(connection: sterna.Connection, name: str, count: int) -> None:
    for number in range(count):
        await connection.send(name, str(number))


@pytest.mark.covers("EMS-CLI-A08")
@staged
async def test_an_acknowledgement_that_is_waited_for_does_not_wait_for_others(stage: Stage) -> None:
    connection = await stage.connect(await stage.broker())
    await _filled(connection, "q", 2)
    session = await connection.session(AcknowledgeMode.EXPLICIT_CLIENT_DUPS_OK)
    consumer = await session.consumer("q")
    message = await consumer.receive(5)
    assert message is not None
    async with asyncio.timeout(5):
        assert await message.acknowledge()
    second = await consumer.receive(5)
    assert second is not None
    async with asyncio.timeout(5), second:
        pass
    await session.close()
    assert await _drained(connection, "q") == []
    await connection.close()


@staged
async def test_a_close_from_elsewhere_does_not_acknowledge_what_a_loop_is_working_on(stage: Stage) -> None:
    broker = await stage.broker()
    for closes in ("consumer", "session", "connection"):
        connection = await stage.connect(broker)
        await _filled(connection, closes, 2)
        session = await connection.session()
        consumer = await session.consumer(closes)
        begun = asyncio.Event()

        async def work(consumer: sterna.Consumer = consumer, begun: asyncio.Event = begun) -> None:
            async for _ in consumer:
                begun.set()
                await asyncio.sleep(3600)

        working = asyncio.create_task(work())
        await begun.wait()
        await {"consumer": consumer, "session": session, "connection": connection}[closes].close()  # type: ignore[attr-defined]
        working.cancel()
        await asyncio.wait((working,))
        again = await stage.connect(broker)
        assert await _drained(again, closes) == [("0", True), ("1", False)], closes
        await again.close()
        await connection.close()


@staged
async def test_two_loops_over_one_consumer_acknowledge_each_their_own(stage: Stage) -> None:
    connection = await stage.connect(await stage.broker())
    await _filled(connection, "q", 3)
    consumer = await connection.consumer("q")
    begun = asyncio.Event()

    async def slow() -> None:
        async for _ in consumer:
            begun.set()
            await asyncio.sleep(3600)

    async def quick() -> None:
        async for message in consumer:
            if message.body == "2":
                return

    working = asyncio.create_task(slow())
    await begun.wait()
    await quick()
    await consumer.close(failed=True)
    working.cancel()
    await asyncio.wait((working,))
    left = await _drained(connection, "q")
    assert ("0", True) in left
    assert "1" not in dict(left)
    await connection.close()


@staged
async def test_what_each_call_of_its_own_task_has_handed_out_is_done_with_at_the_next(stage: Stage) -> None:
    connection = await stage.connect(await stage.broker())
    await _filled(connection, "q", 3)
    consumer = await connection.consumer("q")
    for _ in range(2):
        await asyncio.create_task(consumer.__anext__())  # as a time limit around it makes one
    failing = asyncio.create_task(_fails(consumer))
    await asyncio.wait((failing,))
    await consumer.close()
    assert await _drained(connection, "q") == [("2", True)]
    await connection.close()


async def _fails(consumer: sterna.Consumer) -> None:
    async for _ in consumer:
        raise RuntimeError("the application's own")


@pytest.mark.covers("EMS-TX-A05")
@staged
async def test_who_waits_for_a_message_in_a_transaction_learns_that_a_break_has_undone_it(stage: Stage) -> None:
    connection = await stage.connect(await stage.broker())
    await _filled(connection, "q", 1)
    session = await connection.session(transacted=True)
    consumer = await session.consumer("q")
    assert await consumer.receive(5) is not None
    waiting = asyncio.create_task(consumer.receive(60))
    await asyncio.sleep(0.1)
    stage.break_links()
    with pytest.raises(errors.TransactionRolledBackError):
        await waiting
    await session.rollback()
    again = await consumer.receive(5)
    assert again is not None
    assert again.redelivered
    await session.rollback()
    await connection.close()


@staged
async def test_a_break_inside_a_transaction_loses_nothing_of_what_comes_behind_it(stage: Stage) -> None:
    connection = await stage.connect(await stage.broker())
    await _filled(connection, "q", 3)
    session = await connection.session(transacted=True)
    consumer = await session.consumer("q")
    assert await consumer.receive(5) is not None
    await stage.broken(connection)
    with pytest.raises(errors.TransactionRolledBackError):
        await consumer.receive(5)
    await session.rollback()
    found = [await consumer.receive(5) for _ in range(3)]
    assert next((one.body, one.redelivered) for one in found if one) == ("0", True)
    assert await session.commit() is not None
    await session.close()
    assert await _drained(connection, "q") == []
    await connection.close()


@pytest.mark.covers("EMS-MSG-A20")
@staged
async def test_what_is_in_hand_when_a_connection_is_told_to_leave_comes_again_with_its_flag(stage: Stage) -> None:
    connection = await stage.connect(await stage.broker())
    await _filled(connection, "q", 3)
    session = await connection.session(AcknowledgeMode.CLIENT)
    consumer = await session.consumer("q", prefetch=3)
    seen = [await consumer.receive(5) for _ in range(2)]
    assert len(seen) == 2
    lifeline = connection._lifeline
    assert lifeline._link is not None
    # As at a broker's going away; this one stays, and forgets nothing that would flag all that it had handed out.
    await lifeline._leave(lifeline._link, 2.0)
    found = [await consumer.receive(5) for _ in range(3)]
    assert [(one.body, one.redelivered) for one in found if one] == [("0", True), ("1", True), ("2", False)]
    await connection.close()


@staged
async def test_what_is_cancelled_while_it_is_being_made_is_not_made(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    await _filled(connection, "q", 1)
    session = await connection.session()
    made: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "session": connection.session,
        "consumer": lambda: session.consumer("q"),
        "producer": lambda: session.producer("q"),
        "temporary": connection.temporary_queue,
        "consumer with its session": lambda: connection.consumer("q", acknowledge_mode=AcknowledgeMode.CLIENT),
        "request": lambda: connection.request("nobody", "?", timeout=5, needs_responder=False),
    }
    for what, make in made.items():
        await connection.send("other", "settled")
        before = _counted(broker)
        for delay_s in (0.0, 0.00005, 0.0002, 0.0005, 0.001, 0.002, 0.004, 0.008):
            making = asyncio.create_task(make())
            await asyncio.sleep(delay_s)
            making.cancel()
            await asyncio.wait((making,))
            if not making.cancelled():
                break
            await asyncio.sleep(1)
            if what == "request" and _counted(broker) == {key: count + 1 for key, count in before.items()}:
                break  # the place for replies, whole: it is kept for the next request
            assert _counted(broker) == before, f"{what}, cancelled after {delay_s} s"
    await connection.close()


def _counted(broker: Broker) -> dict[str, Any]:
    """What the broker keeps for its one connection."""
    row = next(one for one in broker.connections() if not one["peer"].startswith("internal:"))
    return {key: row[key] for key in ("sessions", "producers", "consumers")} | {
        "temporaries": sum(str(one["name"]).startswith("$TMP$") for one in broker.listed("queue"))
    }


@staged
async def test_a_close_that_is_cut_while_its_listener_works_closes(stage: Stage) -> None:
    """Also when the link breaks then: nothing of it is left, here or at the broker, and what it had comes again."""
    broker = await stage.broker()
    for breaks in (False, True):
        connection = await stage.connect(broker)
        await _filled(connection, "q", 2)
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def listener(_: sterna.Message, begun: asyncio.Event = begun, goes_on: asyncio.Event = goes_on) -> None:
            begun.set()
            await goes_on.wait()

        session = await connection.session()
        other = await session.consumer("other")
        consumer = await session.consumer("q", listener=listener)
        await begun.wait()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait((closing,))
        assert closing.cancelled()
        if breaks:
            await stage.broken(connection)
        await stage.until(lambda: [row["consumers"] for row in broker.connections()] == [1])
        goes_on.set()
        assert [feed for part in connection._lifeline.parts for feed in part.feeds] == [other._feed]
        await consumer.close()
        assert await _drained(connection, "q") == [("0", True), ("1", breaks)]
        await connection.close()


@staged
async def test_a_session_whose_close_is_cut_while_its_listener_works_closes(stage: Stage) -> None:
    """Half a session would be left otherwise, whose consumers say that they are closed."""
    broker = await stage.broker()
    connection = await stage.connect(broker)
    await _filled(connection, "q", 2)
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def listener(_: sterna.Message) -> None:
        begun.set()
        await goes_on.wait()

    session = await connection.session()
    await session.consumer("q", listener=listener)
    await begun.wait()
    closing = asyncio.create_task(session.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait((closing,))
    assert closing.cancelled()
    assert session.closed is not None
    await stage.until(lambda: [row["sessions"] for row in broker.connections()] == [1])
    goes_on.set()
    await session.close()
    assert await _drained(connection, "q") == [("0", True), ("1", False)]
    await connection.close()


@pytest.mark.parametrize("said", [errors.UnavailableError, errors.InUseError])
def test_a_consumer_that_cannot_be_opened_anew_ends_with_what_was_said_last(
    said: type[errors.SternaError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried for a minute; then it is over, which `on_error` tells, and the connection goes on."""

    @staged
    async def shown(stage: Stage) -> None:
        connection = await stage.connect(await stage.broker())
        told: list[BaseException] = []
        connection.on_error(told.append)
        session = await connection.session(sterna.AcknowledgeMode.TRANSACTED)
        consumer = await session.consumer("orders")
        asked = Link.request

        async def request(link: Link, number: int, name: str, *content: object, **how: object) -> object:
            if name == "open_consumer":
                raise said("not now", subject="orders", retryable=True)
            return await asked(link, number, name, *content, **how)  # type: ignore[arg-type]

        monkeypatch.setattr(Link, "request", request)
        began_s = stage.loop.time()
        await stage.broken(connection)
        monkeypatch.undo()
        assert 30 < stage.loop.time() - began_s < 120
        assert isinstance(consumer.closed, said)
        assert consumer.closed.cause == "not now"
        assert told == [consumer.closed]
        await connection.send("orders", "x")
        await connection.close()

    shown()


@pytest.mark.parametrize("closes", ["consumer", "session", "connection"])
def test_a_close_within_a_time_limit_is_that_of_whoever_called_it(closes: str) -> None:
    """`asyncio.wait_for` may run it in a task of its own: what its caller was handed last is done with all the same."""

    @staged
    async def shown(stage: Stage) -> None:
        broker = await stage.broker()
        connection = await stage.connect(broker)
        await _filled(connection, "q", 1)
        session = await connection.session()
        consumer = await session.consumer("q")
        async for _ in consumer:
            break
        closing: dict[str, Any] = {"consumer": consumer, "session": session, "connection": connection}
        await asyncio.create_task(closing[closes].close())
        again = await stage.connect(broker)
        assert await _drained(again, "q") == []
        await again.close()
        await connection.close()

    shown()


@staged
async def test_a_listener_may_close_its_session_within_a_time_limit(stage: Stage) -> None:
    connection = await stage.connect(await stage.broker())
    session = await connection.session()
    closed = asyncio.Event()

    async def listener(_: sterna.Message) -> None:
        await asyncio.create_task(session.close())
        closed.set()

    await session.consumer("q", listener=listener)
    await connection.send("q", "x")
    await asyncio.wait_for(closed.wait(), 10)
    await connection.close()


@pytest.mark.parametrize("first", ["consumer", "session"])
@pytest.mark.parametrize("second", ["consumer", "session", "connection"])
def test_a_second_close_does_not_take_from_a_listener_what_the_first_one_waits_for(first: str, second: str) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        broker = await stage.broker()
        connection = await stage.connect(broker)
        await _filled(connection, "q", 1)
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def listener(_: sterna.Message) -> None:
            begun.set()
            await goes_on.wait()

        session = await connection.session()
        consumer = await session.consumer("q", listener=listener)
        await begun.wait()
        what: dict[str, Any] = {"consumer": consumer, "session": session, "connection": connection}
        closing = [asyncio.create_task(what[first].close())]
        await asyncio.sleep(0.01)
        closing.append(asyncio.create_task(what[second].close()))
        await asyncio.sleep(1)
        assert [one.done() for one in closing] == [False, False]
        goes_on.set()
        await asyncio.wait_for(asyncio.gather(*closing), 20)
        again = await stage.connect(broker)
        assert await _drained(again, "q") == []
        await again.close()
        await connection.close()

    shown()


@pytest.mark.parametrize("what", ["consumers", "session"])
@pytest.mark.parametrize("is_closed_elsewhere", [False, True])
def test_listeners_that_close_each_what_the_other_belongs_to_do_not_wait_for_one_another(
    what: str, is_closed_elsewhere: bool
) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        broker = await stage.broker()
        connection = await stage.connect(broker)
        session = await connection.session()
        begun: list[object] = []
        ended: list[object] = []
        consumers: list[sterna.Consumer] = []

        async def listener(message: sterna.Message) -> None:
            begun.append(message.body)
            await stage.until(lambda: len(begun) == 2)
            for one in [session] if what == "session" else consumers[:: 1 if message.body == "0" else -1]:
                await one.close()
            ended.append(message.body)

        consumers += [await session.consumer(name, listener=listener) for name in ("q0", "q1")]
        for number in range(2):
            await connection.send(f"q{number}", str(number))
        await stage.until(lambda: len(begun) == 2)
        if is_closed_elsewhere:
            await asyncio.wait_for(session.close(), 20)
        await stage.until(lambda: len(ended) == 2)
        assert [row["consumers"] for row in broker.connections()] == [0]
        await connection.close()

    shown()


def test_the_end_of_a_subscription_whose_answer_is_lost_with_the_connection_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is asked for again, and is not there any more; what never was is an error as before."""

    @staged
    async def shown(stage: Stage) -> None:
        connection = await stage.connect(await stage.broker(), client_id="me")
        session = await connection.session()
        await (await session.consumer(sterna.Topic("news"), durable="mine")).close()
        begun = Link.begin

        def begin(link: Link, number: int, name: str, content: Any, settle: Callable[[Any, Any], None]) -> None:
            def breaks(_reply: Any, _error: errors.SternaError | None) -> None:
                monkeypatch.undo()
                stage.break_links()
                settle(None, LinkLostError("the connection broke", retryable=True))

            begun(link, number, name, content, breaks if name == "unsubscribe" else settle)

        monkeypatch.setattr(Link, "begin", begin)
        await asyncio.wait_for(session.unsubscribe("mine"), 20)
        with pytest.raises(errors.NoSuchSubscriptionError):
            await session.unsubscribe("mine")
        await connection.close()

    shown()
