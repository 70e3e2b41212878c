"""Transactions: sends and acknowledgements that take effect together (EMS-TX-A01 to A08, D01, E02)."""

from __future__ import annotations

import time

import pytest

from tests.conformance.provider import (
    NON_PERSISTENT,
    PERSISTENT,
    Destination,
    Mode,
    Provider,
    Queue,
    Refusal,
    Session,
    Topic,
    refused,
)
from tests.conformance.steps import bodies, holds, receive, send_all, session_of, until_end, waiting
from tests.waiting import eventually


@pytest.mark.covers("EMS-TX-D01", "EMS-TX-A03", "FMQ-TX-01", "UM-TX-A01")
@pytest.mark.parametrize("mode", [PERSISTENT, NON_PERSISTENT])
async def test_what_is_sent_arrives_with_the_commit_and_in_its_order(
    provider: Provider, session: Session, word: str, mode: str
) -> None:
    queue, other, topic = Queue(f"any.{word}.q"), Queue(f"any.{word}.r"), Topic(f"any.{word}.t")
    hearing = await session.consumer(topic)
    sending = await session_of(provider, Mode.TRANSACTED)
    for place in (queue, other, topic):
        await send_all(sending, place, *"abc", delivery_mode=mode)
    assert await waiting(provider, queue) == await waiting(provider, other) == []
    await sending.commit()
    assert await waiting(provider, queue) == await waiting(provider, other) == ["a", "b", "c"]
    assert await bodies(hearing, 3) == ["a", "b", "c"]


@pytest.mark.covers("EMS-TX-D01", "EMS-TX-A05")
async def test_what_is_rolled_back_was_never_sent(provider: Provider, session: Session, word: str) -> None:
    queue, topic = Queue(f"any.{word}.q"), Topic(f"any.{word}.t")
    hearing = await session.consumer(topic)
    sending = await session_of(provider, Mode.TRANSACTED)
    await send_all(sending, queue, "x")
    await send_all(sending, topic, "x")
    await sending.rollback()
    await sending.send(queue, "next")
    await sending.commit()
    await session.send(topic, "end")
    assert await until_end(hearing) == []
    assert await waiting(provider, queue) == ["next"]


@pytest.mark.covers("EMS-TX-D01", "EMS-TX-A05", "EMS-MSG-A20", "FMQ-TX-01", "UM-TX-A01")
async def test_what_was_received_is_done_with_at_the_commit_and_comes_again_after_a_rollback(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await send_all(session, queue, *"abcd")
    taking = await session_of(provider, Mode.TRANSACTED)
    consumer = await taking.consumer(queue, prefetch=10)
    assert await bodies(consumer, 2) == ["a", "b"]
    await taking.rollback()
    again = await receive(consumer, 3)
    seen = [(one.body, one.redelivered, one.delivery_count) for one in again]
    assert seen == [("a", True, 2), ("b", True, 2), ("c", False, 1)]
    await taking.commit()
    await holds(provider, queue, 1)
    assert await bodies(consumer, 1) == ["d"]


@pytest.mark.covers("EMS-TX-D01", "EMS-TX-A08")
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
async def test_receiving_and_sending_on_are_one(provider: Provider, session: Session, word: str, commits: bool) -> None:
    source, target = Queue(f"any.{word}.s"), Queue(f"any.{word}.t")
    await send_all(session, source, *"abc")
    working = await session_of(provider, Mode.TRANSACTED)
    consumer = await working.consumer(source)
    for message in await receive(consumer, 3):
        await working.send(target, message.body.upper())
    await (working.commit if commits else working.rollback)()
    await working.close()
    await holds(provider, source, 0 if commits else 3)
    assert await waiting(provider, target) == (["A", "B", "C"] if commits else [])


@pytest.mark.covers("EMS-TX-D01", "FMQ-TX-08")
@pytest.mark.parametrize("how", ["session closes", "connection closes", "client vanishes"])
async def test_a_transaction_that_is_left_is_rolled_back(
    provider: Provider, session: Session, word: str, how: str
) -> None:
    source, target = Queue(f"any.{word}.s"), Queue(f"any.{word}.t")
    await session.send(source, "x")
    connection = await provider.connect()
    working = await connection.session(Mode.TRANSACTED)
    await (await working.consumer(source)).receive()
    await working.send(target, "y")
    ends = {
        "session closes": working.close,
        "connection closes": connection.close,
        "client vanishes": connection.vanish,
    }
    await ends[how]()
    message = await (await session.consumer(source)).receive()
    assert (message.body, message.redelivered) == ("x", True)
    assert await waiting(provider, target) == []


@pytest.mark.covers("EMS-TX-D01", "FMQ-TX-01")
async def test_the_next_transaction_begins_by_itself(provider: Provider, queue: Queue) -> None:
    sending = await session_of(provider, Mode.TRANSACTED)
    await sending.send(queue, "1")
    await sending.commit()
    await sending.send(queue, "2")
    await sending.rollback()
    await sending.commit()  # nothing to commit is no error
    await sending.send(queue, "3")
    await sending.commit()
    assert await waiting(provider, queue) == ["1", "3"]


@pytest.mark.covers("EMS-TX-A06", "EMS-TX-E02", "EMS-DEST-A22", "UM-TX-B05")
@pytest.mark.parametrize("limit", [{"maxmsgs": 2}, {"maxbytes": 2_500}], ids=str)
async def test_nothing_of_a_transaction_arrives_when_a_part_of_it_finds_no_room(
    provider: Provider, session: Session, word: str, limit: dict[str, int]
) -> None:
    full, other = Queue(f"any.{word}.full"), Queue(f"any.{word}.other")
    await provider.define(full, **limit)
    await session.send(full, "x" * 1000)
    sending = await session_of(provider, Mode.TRANSACTED)
    await sending.send(other, "first")
    with refused(provider, Refusal.FULL, Refusal.ROLLED_BACK):
        await send_all(sending, full, "y" * 1000, "z" * 1000)
        await sending.commit()
    assert await waiting(provider, other) == []
    assert len(await waiting(provider, full)) == 1
    # The session goes on.
    await sending.rollback()
    await sending.send(other, "later")
    await sending.commit()
    assert await waiting(provider, other) == ["later"]


@pytest.mark.covers("EMS-TX-A04", "EMS-MSG-A03", "EMS-MSG-A02")
async def test_delay_and_time_to_live_count_from_the_send_not_from_the_commit(
    provider: Provider, session: Session, kind: type[Destination], word: str
) -> None:
    queue = kind(f"any.{word}")
    consumer = await session.consumer(queue)
    sending = await session_of(provider, Mode.TRANSACTED)
    await sending.send(queue, "delayed", delivery_delay_ms=1)
    await sending.send(queue, "gone", time_to_live_ms=1)
    # The commit comes so much later that both times are over.
    over_ms = time.time() * 1000 + 5
    await eventually(lambda: time.time() * 1000 > over_ms)
    committed_ms = time.time() * 1000
    await sending.commit()
    await session.send(queue, "end")
    delayed, end = await receive(consumer, 2)
    assert (delayed.body, end.body) == ("delayed", "end")
    assert delayed.delivery_time_ms < committed_ms
    assert delayed.delivery_time_ms == delayed.timestamp_ms + 1


@pytest.mark.covers("EMS-TX-A03", "EMS-CLI-A21")
async def test_a_send_in_a_transaction_is_not_confirmed_by_itself_and_has_its_id(
    provider: Provider, queue: Queue
) -> None:
    sending = await session_of(provider, Mode.TRANSACTED)
    sent = [await sending.send(queue, str(number)) for number in range(100)]
    await sending.commit()
    found = await provider.browse(queue)
    assert [one.message_id for one in found] == [one.message_id for one in sent]


@pytest.mark.covers("EMS-TX-A03", "EMS-CLI-E02")
@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.CLIENT])
async def test_only_a_transacted_session_commits(provider: Provider, mode: Mode) -> None:
    session = await session_of(provider, mode)
    for attempt in (session.commit, session.rollback):
        with refused(provider, Refusal.NOT_ALLOWED, Refusal.INVALID_VALUE):
            await attempt()


@pytest.mark.covers("EMS-TX-D01", "EMS-DEST-B14")
async def test_other_sessions_see_nothing_of_a_transaction_under_way(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await send_all(session, queue, "a", "b")
    taking = await session_of(provider, Mode.TRANSACTED)
    assert await bodies(await taking.consumer(queue, prefetch=1), 1) == ["a"]
    await taking.send(queue, "c")
    assert (await provider.held(queue)).messages == 2
    await taking.commit()
    await holds(provider, queue, 2)


@pytest.mark.covers("UM-TX-B01")
@pytest.mark.parametrize("how", ["rolled back", "closed", "vanished"])
async def test_what_is_rolled_back_stands_in_front_again_whoever_takes_it_next(
    provider: Provider, session: Session, queue: Queue, how: str
) -> None:
    await send_all(session, queue, *"abc")
    connection = await provider.connect()
    taking = await connection.session(Mode.TRANSACTED)
    assert await bodies(await taking.consumer(queue, prefetch=0), 1) == ["a"]
    await send_all(session, queue, "d")
    await {"rolled back": taking.rollback, "closed": taking.close, "vanished": connection.vanish}[how]()
    await holds(provider, queue, 4)
    if how == "rolled back":
        await taking.close()
    again = await receive(await session.consumer(queue), 4)
    assert [(one.body, one.redelivered) for one in again] == [("a", True), ("b", False), ("c", False), ("d", False)]


@pytest.mark.covers("FMQ-TX-02")
async def test_the_transactions_of_a_sender_and_of_a_receiver_are_two(
    provider: Provider, session: Session, queue: Queue
) -> None:
    sender, receiver = await session_of(provider, Mode.TRANSACTED), await session_of(provider, Mode.TRANSACTED)
    await sender.send(queue, "a")
    await sender.commit()
    consumer = await receiver.consumer(queue)
    assert await bodies(consumer, 1) == ["a"]
    # Neither does the receiver's end undo what was sent, nor the sender's next rollback what is being received.
    await receiver.rollback()
    await sender.send(queue, "never")
    assert await bodies(consumer, 1) == ["a"]
    await sender.rollback()
    await receiver.commit()
    await holds(provider, queue, 0)
