"""Connections and sessions: what ends them, and what a client hears of it (EMS-CLI-A30, B33, D08 to D11, TX-E01)."""

from __future__ import annotations

import pytest

from tests.conformance.provider import Message, Mode, Provider, Queue, Refusal, Session, Topic, refused
from tests.conformance.steps import bodies, holds, receive, send_all, session_of, waiting
from tests.waiting import eventually


@pytest.mark.covers("EMS-CLI-B33", "EMS-CLI-D11", "FMQ-CLI-14")
async def test_who_is_cut_off_by_an_administrator_is_told_and_the_others_are_not(
    provider: Provider, queue: Queue, word: str
) -> None:
    cut, other = await provider.connect(client_id=word), await provider.connect(client_id=f"{word}-2")
    session = await cut.session()
    await session.send(queue, "before")
    assert set(await provider.clients()) >= {word, f"{word}-2"}
    await provider.cut(word)
    await eventually(lambda: len(cut.exceptions) == 1)
    assert not other.exceptions


@pytest.mark.covers("EMS-CLI-B07", "EMS-CLI-D07", "UM-CLI-A03", "EMS-CLI-D11")
async def test_a_client_that_lost_the_server_goes_on_where_it_was(
    provider: Provider, session: Session, queue: Queue, topic: Topic, word: str
) -> None:
    connection = await provider.connect(client_id=word)
    working = await connection.session(Mode.CLIENT)
    consumer = await working.consumer(queue)
    durable = await working.consumer(topic, durable="d")
    await provider.cut(word)
    await eventually(lambda: len(connection.exceptions) == 1)
    await session.send(queue, "while away")
    await session.send(topic, "while away")
    assert await bodies(consumer, 1) == ["while away"]
    assert await bodies(durable, 1) == ["while away"]
    await working.send(queue, "sent again")
    assert await bodies(consumer, 1) == ["sent again"]


@pytest.mark.covers("EMS-CLI-B07", "FMQ-CLI-26", "EMS-MSG-A20")
async def test_what_was_not_acknowledged_when_the_server_was_lost_comes_again_flagged(
    provider: Provider, session: Session, queue: Queue, word: str
) -> None:
    await send_all(session, queue, "a", "b")
    connection = await provider.connect(client_id=word)
    working = await connection.session(Mode.EXPLICIT)
    consumer = await working.consumer(queue)
    first, second = await receive(consumer, 2)
    await second.acknowledge()
    await holds(provider, queue, 1)
    await provider.cut(word)
    again = await consumer.receive()
    assert (again.body, again.redelivered) == ("a", True)
    # What is in hand from before is void.
    assert await first.acknowledge() is False
    await again.acknowledge()
    await holds(provider, queue, 0)


@pytest.mark.covers("EMS-TX-E01", "EMS-TX-D01")
async def test_a_transaction_in_which_the_server_was_lost_is_not_committed(
    provider: Provider, session: Session, word: str
) -> None:
    source, target = Queue(f"any.{word}.s"), Queue(f"any.{word}.t")
    await session.send(source, "x")
    connection = await provider.connect(client_id=word)
    working = await connection.session(Mode.TRANSACTED)
    consumer = await working.consumer(source)
    await consumer.receive()
    await working.send(target, "y")
    await provider.cut(word)
    await eventually(lambda: len(connection.exceptions) == 1)
    with refused(provider, Refusal.ROLLED_BACK):
        await working.commit()
    assert await waiting(provider, target) == []
    # The client tries all of it again.
    message = await consumer.receive()
    assert (message.body, message.redelivered) == ("x", True)
    await working.send(target, "y")
    await working.commit()
    assert await waiting(provider, target) == ["y"]
    await holds(provider, source, 0)


@pytest.mark.covers("EMS-CLI-D08", "EMS-CLI-D10", "FMQ-CLI-02", "UM-CLI-A10")
async def test_sessions_of_one_connection_are_independent_contexts(
    provider: Provider, session: Session, word: str
) -> None:
    queue = Queue(f"any.{word}.q")
    connection = await provider.connect()
    automatic = await connection.session()  # acknowledges by itself when nothing is said
    transacted = await connection.session(Mode.TRANSACTED)
    await transacted.send(queue, "not yet")
    await automatic.send(queue, "at once")
    consumer = await automatic.consumer(queue)
    assert await bodies(consumer, 1) == ["at once"]
    await holds(provider, queue, 0)
    await automatic.close()
    await transacted.commit()
    assert await bodies(await session.consumer(queue), 1) == ["not yet"]


@pytest.mark.covers("EMS-CLI-A30")
async def test_what_a_client_sets_for_itself_changes_nothing_for_others(
    provider: Provider, session: Session, queue: Queue
) -> None:
    producer = await session.producer(queue, priority=9, time_to_live_ms=60_000)
    consumer = await session.consumer(queue, prefetch=1)
    await producer.send("theirs")
    await consumer.receive()
    effective = await provider.effective(queue)
    assert (effective["prefetch"], effective["expiration"]) == (5, None)
    other = await session_of(provider)
    await other.send(queue, "plain")
    message = await consumer.receive()
    assert (message.body, message.priority, message.expiration_ms) == ("plain", 4, 0)


@pytest.mark.covers("EMS-CLI-D02", "EMS-CLI-D19", "EMS-CLI-D15")
async def test_what_jms_2_added_works_together(provider: Provider, session: Session, topic: Topic, word: str) -> None:
    heard: list[object] = []
    group = await session.consumer(topic, shared=word)
    producer = await session.producer(topic, delivery_delay_ms=1)
    await producer.send_soon("late", on_completion=heard.append)
    message = await group.receive()
    assert (message.body, message.delivery_time_ms - message.timestamp_ms) == ("late", 1)
    await eventually(lambda: len(heard) == 1)


@pytest.mark.covers("EMS-CLI-E01", "EMS-CLI-D09")
@pytest.mark.parametrize("what", ["session", "producer", "consumer"])
async def test_what_is_closed_takes_nothing_more_and_closing_it_again_is_no_harm(
    provider: Provider, session: Session, queue: Queue, what: str
) -> None:
    own = await session_of(provider)
    producer, consumer = await own.producer(queue), await own.consumer(queue)
    close = {"session": own.close, "producer": producer.close, "consumer": consumer.close}[what]
    await close()
    await close()
    if what != "consumer":
        with refused(provider, Refusal.CLOSED):
            await producer.send("x")
    if what != "producer":
        with refused(provider, Refusal.CLOSED):
            await consumer.receive()
    await session.send(queue, "others go on")
    assert await waiting(provider, queue) == ["others go on"]


@pytest.mark.covers("UM-DEST-A02")
@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.TRANSACTED], ids=["plain", "transacted"])
async def test_one_session_mixes_queues_and_topics_waiting_and_not(provider: Provider, word: str, mode: Mode) -> None:
    session = await session_of(provider, mode)
    heard: dict[str, list[str]] = {"queue": [], "topic": []}
    completed: list[object] = []
    places = {"queue": Queue(f"any.{word}"), "topic": Topic(f"any.{word}")}
    others = {"queue": Queue(f"any.{word}.2"), "topic": Topic(f"any.{word}.2")}
    receiving = {what: await session.consumer(place) for what, place in places.items()}
    for what, place in others.items():

        def listen(message: Message, what: str = what) -> None:
            heard[what].append(message.body)

        await session.consumer(place, listener=listen)

    async def settle() -> None:
        if mode is Mode.TRANSACTED:
            await session.commit()

    for place in (*places.values(), *others.values()):
        await session.send(place, "waited for")
        await (await session.producer(place)).send_soon("sent", on_completion=completed.append)
    await settle()
    for consumer in receiving.values():
        assert await bodies(consumer, 2) == ["waited for", "sent"]
    await eventually(lambda: heard == {"queue": ["waited for", "sent"], "topic": ["waited for", "sent"]})
    if mode is Mode.AUTO:  # in a transaction the commit answers for all
        await eventually(lambda: len(completed) == 4)
    await settle()
    for place in (places["queue"], others["queue"]):
        await holds(provider, place, 0)
