"""A transacted session goes as a whole to where its first destination lives."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
import sterna
from sterna import errors
from sterna._link import Link
from sterna._parts import Part

from tests.support.held_answers import HeldAnswers
from tests.world.brokers import Broker
from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained


@pytest.mark.parametrize("after_ms", range(1, 13))
def test_whoever_waits_for_it_gives_up_and_it_can_be_used_all_the_same(after_ms: int) -> None:
    """It is where it was, or where it went; never in a session of another's there that has its number."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two("orders")
        connection = await stage.connect(cluster.brokers["b0"])
        session = await connection.session(sterna.AcknowledgeMode.TRANSACTED)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(after_ms / 1000):
                await session.producer("orders")
        producer = await asyncio.wait_for(session.producer("orders"), 20)
        await producer.send("x")
        await session.rollback()
        await producer.send("y")
        await session.commit()
        assert await drained(connection, "orders") == ["y"]
        await asyncio.wait_for(session.close(), 20)
        await connection.close()

    shown()


@pytest.mark.parametrize("count", [2, 3])
def test_what_is_opened_at_the_same_time_takes_it_there_once(count: int) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two()
        names = [f"orders{number}" for number in range(count)]
        for name in names:
            await cluster.placed(name, "b1")
        connection = await stage.connect(cluster.brokers["b0"])
        session = await connection.session(sterna.AcknowledgeMode.TRANSACTED)
        for producer in await asyncio.gather(*(session.producer(name) for name in names)):
            await producer.send("x")
        await session.commit()
        for name in names:
            assert await drained(connection, name) == ["x"]
        await connection.close()

    shown()


async def _apart(stage: Stage) -> tuple[Cluster, sterna.Connection]:
    """Two brokers with a queue each, here and there, and a connection to the one here."""
    cluster = await stage.two("there")
    await cluster.placed("here", "b0")
    return cluster, await stage.connect(cluster.brokers["b0"])


def _cut(stage: Stage, broker: Broker) -> None:
    """Nobody gets to a broker, and it is known."""
    assert broker.process is not None
    stage.network.part(stage.here, broker.process)
    for link in stage.network.links:
        if link.client is stage.here and link.server.process is broker.process:
            link.break_()


async def _is_left(connection: sterna.Connection) -> None:
    """Nothing is in it any more when its sessions are closed; then it is, too."""
    await (await connection.default_session()).close()
    homes: Any = connection._lifeline.homes
    assert [one for at in homes.lifelines for one in (*at._feeds.values(), *at._lanes.values(), *at.parts)] == []
    await connection.close()


@pytest.mark.parametrize("what", ["consumer", "producer"])
@pytest.mark.parametrize("then", ["closed", "back"])
def test_what_is_opened_while_it_goes_there_and_is_closed_or_comes_back(
    what: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application hears of the end; and what has come back is not in the session that was there before."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster, connection = await _apart(stage)
        session = await connection.session(sterna.AcknowledgeMode.TRANSACTED)
        gate = HeldAnswers(monkeypatch, cluster.brokers["b0"].address, f"open_{what}")
        opening = asyncio.create_task(getattr(session, what)("here"))
        await gate.arrived.wait()
        monkeypatch.undo()
        producer = await session.producer("there")
        if then == "closed":
            await session.close()
            gate.opened.set()
            with pytest.raises(errors.ClosedError) as told:
                await asyncio.wait_for(opening, 20)
            assert type(told.value) is errors.ClosedError
        else:
            await producer.close()
            back = await session.producer("here")
            gate.opened.set()
            opened = await asyncio.wait_for(opening, 20)
            await (back if what == "consumer" else opened).send("y")
            await session.commit()
            if what == "consumer":
                assert await opened.receive(5) is not None
            else:
                assert await drained(connection, "here") == ["y"]
            await session.close()
        await _is_left(connection)

    shown()


@pytest.mark.parametrize("what", ["consumer", "stop"])
def test_nothing_waits_for_the_broker_that_it_has_left(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And none of its requests is made there, in another session that has its new number."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster, connection = await _apart(stage)
        another = await connection.session()
        consumer = await another.consumer("here")
        session = await connection.session(sterna.AcknowledgeMode.TRANSACTED)
        gate = HeldAnswers(monkeypatch, cluster.brokers["b1"].address, "open_session")
        going = asyncio.create_task(session.consumer("there"))
        await gate.arrived.wait()
        _cut(stage, cluster.brokers["b0"])
        await stage.until(lambda: not connection.connected)
        waiting = asyncio.create_task(session.stop() if what == "stop" else session.consumer("there"))
        await asyncio.sleep(0.01)
        monkeypatch.undo()
        gate.opened.set()
        taken = await asyncio.wait_for(going, 20)
        done, _ = await asyncio.wait((waiting,), timeout=20)
        stage.network.heal()
        await asyncio.wait_for(waiting, 60)
        assert session._part.number == another._part.number
        assert done
        await connection.send("here", "x")
        assert await consumer.receive(10) is not None
        await connection.send("there", "x")
        assert (await taken.receive(5) is None) is (what == "stop")
        await connection.close()

    shown()


@staged
async def test_whoever_waits_for_a_link_in_a_session_hears_that_it_was_closed(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    session = await connection.session()
    _cut(stage, broker)
    await stage.until(lambda: not connection.connected)
    opening = asyncio.create_task(session.consumer("orders"))
    await asyncio.sleep(0.01)
    await session.close()
    with pytest.raises(errors.ClosedError):
        await asyncio.wait_for(opening, 5)
    await connection.close(failed=True)


def test_an_anonymous_producer_that_is_closed_while_it_goes_along_closes_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster, connection = await _apart(stage)
        another = await connection.session()
        kept = await another.producer("here")
        session = await connection.session(sterna.AcknowledgeMode.TRANSACTED)
        anonymous = await session.producer()
        gate = HeldAnswers(monkeypatch, cluster.brokers["b1"].address, "open_session")
        going = asyncio.create_task(session.producer("there"))
        await gate.arrived.wait()
        opening = HeldAnswers(monkeypatch, cluster.brokers["b1"].address, "open_producer")
        gate.opened.set()
        while session._part.lifeline is connection._lifeline:  # noqa: ASYNC110 - in each turn, or it is too late
            await asyncio.sleep(0)
        assert anonymous._sending.lane.id == kept._lane.id
        await asyncio.wait_for(anonymous.close(), 5)
        opening.opened.set()
        await asyncio.wait_for(going, 20)
        await asyncio.wait_for(kept.send("x"), 20)
        await session.close()
        await another.close()
        await _is_left(connection)

    shown()


def test_an_anonymous_producer_goes_along_when_whoever_waits_for_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, or a later break would have one under a number that is another's there."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster, connection = await _apart(stage)
        another = await connection.session()
        producers = [await another.producer(name) for name in ("there", "here", "here")]
        session = await connection.session(sterna.AcknowledgeMode.TRANSACTED)
        anonymous = [await session.producer() for _ in range(2)]
        gate = HeldAnswers(monkeypatch, cluster.brokers["b1"].address, "open_producer")
        going = asyncio.create_task(session.producer("there"))
        await gate.arrived.wait()
        going.cancel()
        await asyncio.wait((going,))
        monkeypatch.undo()
        producers += [await another.producer("there") for _ in range(4)]
        await stage.broken(connection)
        await asyncio.sleep(1)
        for producer in producers:
            await asyncio.wait_for(producer.send("x"), 20)
        for producer in anonymous:
            await producer.send("y", destination="there")
        await session.commit()
        await session.close()
        await another.close()
        await _is_left(connection)

    shown()


def test_what_comes_there_counts_although_a_rollback_had_no_answer_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster, connection = await _apart(stage)
        session = await connection.session(sterna.AcknowledgeMode.TRANSACTED)
        gate = HeldAnswers(monkeypatch, cluster.brokers["b1"].address, "open_session")
        going = asyncio.create_task(session.consumer("there"))
        await gate.arrived.wait()
        producer = await session.producer("here")
        await producer.send("x")
        await producer.close()
        undoing = asyncio.create_task(session.rollback())
        gate.opened.set()
        await asyncio.wait_for(undoing, 20)
        consumer = await asyncio.wait_for(going, 20)
        await connection.send("there", "y")
        assert await consumer.receive(5) is not None
        await session.commit()
        await connection.close()

    shown()


@pytest.mark.parametrize("refusal", [errors.UnknownProducerError, errors.LimitExceededError])
def test_what_was_said_of_its_producers_where_it_was_says_nothing(
    refusal: type[errors.SternaError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are opened anew there, the connection being restored, while the session goes elsewhere with them."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster, connection = await _apart(stage)
        here, there = cluster.brokers["b0"], cluster.brokers["b1"]
        session = await connection.session(sterna.AcknowledgeMode.TRANSACTED)
        anonymous = await session.producer()
        gate = HeldAnswers(monkeypatch, there.address, "open_session")
        going = asyncio.create_task(session.producer("there"))
        await gate.arrived.wait()
        asked, again, refused = Link.request, asyncio.Event(), asyncio.Event()

        async def request(link: Link, number: int, name: str, *content: Any, **how: Any) -> Any:
            if name != "open_producer" or link.address != here.address:
                return await asked(link, number, name, *content, **how)
            again.set()
            await refused.wait()
            raise refusal("it was refused")

        monkeypatch.setattr(Link, "request", request)
        restored = asyncio.Event()
        connection.on_restored(lambda _: restored.set())
        for link in stage.network.links:
            if link.client is stage.here and link.server.process is here.process:
                link.break_()
        await again.wait()
        gate.opened.set()
        producer = await asyncio.wait_for(going, 20)
        await producer.send("x")
        refused.set()
        await asyncio.wait_for(restored.wait(), 20)
        await anonymous.send("y", destination="there")
        await session.commit()
        assert sorted(await drained(connection, "there")) == ["x", "y"]
        await session.close()
        await _is_left(connection)

    shown()


def test_it_is_not_opened_anew_where_it_was_when_that_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """What restores a connection does so in tasks of their own, which begin when others have had their turn."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster, connection = await _apart(stage)
        here, there = cluster.brokers["b0"], cluster.brokers["b1"]
        session = await connection.session(sterna.AcknowledgeMode.TRANSACTED)
        gate = HeldAnswers(monkeypatch, there.address, "open_session")
        going = asyncio.create_task(session.producer("there"))
        await gate.arrived.wait()
        opens, lifeline = Part.open, session._part.lifeline

        def late(part: Part, link: Link) -> Any:
            made = opens(part, link)

            async def begins() -> None:
                gate.opened.set()
                await stage.until(lambda: part.lifeline is not lifeline)
                await made

            return begins() if part is session._part and link.address == here.address else made

        monkeypatch.setattr(Part, "open", late)
        for link in stage.network.links:
            if link.client is stage.here and link.server.process is here.process:
                link.break_()
        producer = await asyncio.wait_for(going, 20)
        await producer.send("x")
        await session.commit()
        assert await drained(connection, "there") == ["x"]
        await session.close()
        await connection.close()

    shown()


@pytest.mark.parametrize("mode", [sterna.AcknowledgeMode.TRANSACTED, sterna.AcknowledgeMode.AUTO])
def test_a_session_that_is_stopped_meanwhile_is_stopped_there_too(
    mode: sterna.AcknowledgeMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it goes as a whole, and where it has a branch from now on."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster, connection = await _apart(stage)
        session = await connection.session(mode)
        gate = HeldAnswers(monkeypatch, cluster.brokers["b1"].address, "open_session")
        going = asyncio.create_task(session.consumer("there"))
        await gate.arrived.wait()
        monkeypatch.undo()
        await asyncio.wait_for(session.stop(), 20)
        gate.opened.set()
        consumer = await asyncio.wait_for(going, 20)
        await connection.send("there", "x")
        assert await consumer.receive(5) is None
        await session.start()
        assert await consumer.receive(5) is not None
        await connection.close(failed=True)

    shown()


@staged
async def test_a_consumer_that_ended_where_it_was_is_closed_without_a_word_to_that_broker(stage: Stage) -> None:
    """The session has another number where it has gone, and here that may be another session's, or none's."""
    cluster, connection = await _apart(stage)
    for _ in range(3):
        async with await connection.session() as earlier:
            await earlier.consumer("there")
    restored = asyncio.Event()
    connection.on_restored(lambda _: restored.set())
    for link in stage.network.links:
        if link.client is stage.here and link.server.process is cluster.brokers["b0"].process:
            link.break_()
    await restored.wait()  # there numbers go on, here they begin anew
    session = await connection.session(sterna.AcknowledgeMode.TRANSACTED)
    consumer = await session.consumer("here")
    await cluster.give("queue", "here", "b1")
    await stage.until(lambda: consumer.closed is not None)
    assert isinstance(consumer.closed, errors.MovedError)
    producer = await session.producer("there")
    await consumer.close()
    await producer.send("x")
    await session.commit()
    assert await drained(connection, "there") == ["x"]
    await session.close()
    await _is_left(connection)


async def _with_one_away(stage: Stage) -> sterna.Connection:
    """As `_apart`, with a third broker, and with the one there away, which is known."""
    cluster = await stage.cluster("b0", "b1", "b2")
    await cluster.allow_all()
    for name, home in (("here", "b0"), ("there", "b1"), ("elsewhere", "b2")):
        await cluster.placed(name, home)
    connection = await stage.connect(cluster.brokers["b0"], client_id="me")
    await connection.send("there", "for it to be connected")
    _cut(stage, cluster.brokers["b1"])
    homes: Any = connection._lifeline.homes
    await stage.until(lambda: not all(one.connected for one in homes.lifelines))
    return connection


@staged
async def test_a_broker_that_is_away_does_not_hold_up_what_is_opened_at_another(stage: Stage) -> None:
    connection = await _with_one_away(stage)
    session = await connection.session()
    waiting = asyncio.create_task(session.producer("there"))
    await asyncio.sleep(0.1)
    producer = await asyncio.wait_for(session.producer("elsewhere"), 10)
    await producer.send("x")
    assert not waiting.done()
    stage.network.heal()
    await (await asyncio.wait_for(waiting, 60)).send("x")
    await connection.close()


@staged
async def test_a_broker_that_is_away_does_not_hold_up_the_end_of_a_subscription_that_another_has(stage: Stage) -> None:
    connection = await _with_one_away(stage)
    session = await connection.session()
    for _ in range(2):
        # At the connection's own broker, of which the one that is away is the second in use.
        await (await session.consumer(sterna.Topic("news"), durable="mine")).close()
        await asyncio.wait_for(session.unsubscribe("mine"), 5)
    asking = asyncio.create_task(session.unsubscribe("mine"))
    await asyncio.sleep(5)
    assert not asking.done(), "nobody can tell whether the one that is away has it"
    stage.network.heal()
    with pytest.raises(errors.NoSuchSubscriptionError):
        await asyncio.wait_for(asking, 60)
    await connection.close()


@pytest.mark.parametrize("mode", [sterna.AcknowledgeMode.TRANSACTED, sterna.AcknowledgeMode.AUTO])
@pytest.mark.parametrize("what", ["consumer", "producer"])
def test_whoever_waits_for_another_broker_hears_that_the_session_was_closed(
    mode: sterna.AcknowledgeMode, what: str
) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        connection = await _with_one_away(stage)
        session = await connection.session(mode)
        waiting = asyncio.create_task(getattr(session, what)("there"))
        await asyncio.sleep(0.1)
        await session.close()
        with pytest.raises(errors.ClosedError):
            await asyncio.wait_for(waiting, 5)
        stage.network.heal()
        await connection.close(failed=True)

    shown()


@staged
async def test_a_broker_that_is_away_does_not_hold_up_a_stop_at_another(stage: Stage) -> None:
    connection = await _with_one_away(stage)
    stage.network.heal()
    homes: Any = connection._lifeline.homes
    await stage.until(lambda: all(one.connected for one in homes.lifelines))
    session = await connection.session()
    there, elsewhere = await session.consumer("there"), await session.consumer("elsewhere")
    assert await there.receive(5) is not None
    _cut(stage, next(one for one in stage.brokers if one.name == "b1"))
    await stage.until(lambda: not all(one.connected for one in homes.lifelines))
    stopping = asyncio.create_task(session.stop())
    await asyncio.sleep(1)
    await connection.send("elsewhere", "x")
    assert await elsewhere.receive(5) is None
    assert not stopping.done()
    stage.network.heal()
    await asyncio.wait_for(stopping, 60)
    await connection.send("there", "x")
    assert await there.receive(5) is None
    await session.start()
    assert await there.receive(5) is not None
    assert await elsewhere.receive(5) is not None
    await connection.close()
