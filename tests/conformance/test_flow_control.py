"""Flow control: senders wait for receivers, and nothing is refused or dropped (EMS-DEST-A16, A56 to A58, A60, A61).

Each test gives a destination room for two messages of BODY characters: the third one that is sent waits.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.provider import (
    NON_PERSISTENT,
    PERSISTENT,
    RELIABLE,
    Destination,
    Mode,
    Provider,
    Queue,
    Session,
    Topic,
)
from tests.conformance.steps import holds, receive, send_all, session_of, waiting
from tests.waiting import eventually

BODY = 1000
#: Two messages of BODY characters are enough, with what a message has besides its body; one is not.
TWO_OF_THEM = 2 * BODY


def text(name: str) -> str:
    """A body of BODY characters."""
    return name * BODY


async def held_up(provider: Provider, destination: Destination, sessions: int = 1) -> None:
    """Waits until so many sessions wait there."""

    async def are() -> bool:
        return (await provider.held(destination)).waiting == sessions

    await eventually(are, what=f"{sessions} sessions that wait at {destination}")


async def send_waits(
    provider: Provider, session: Session, destination: Destination, name: str, at: Destination | None = None
) -> asyncio.Task[object]:
    """A send that has come to the server and waits there."""
    sending: asyncio.Task[object] = asyncio.create_task(session.send(destination, text(name)))
    await held_up(provider, at or destination)
    assert not sending.done()
    return sending


async def full(provider: Provider, session: Session, queue: Queue) -> None:
    """Makes a queue with as much in it as flow control allows."""
    await provider.define(queue, flowControl=TWO_OF_THEM)
    await send_all(session, queue, text("a"), text("b"))


@pytest.mark.covers("EMS-DEST-A16", "EMS-DEST-A57", "EMS-DEST-A58")
@pytest.mark.parametrize("mode", [PERSISTENT, NON_PERSISTENT])
async def test_a_send_returns_once_receivers_have_made_room_and_until_then_waits_although_there_are_none(
    provider: Provider, session: Session, queue: Queue, mode: object
) -> None:
    await provider.define(queue, flowControl=TWO_OF_THEM)
    await send_all(session, queue, text("a"), text("b"), delivery_mode=mode)
    sending = asyncio.create_task(session.send(queue, text("c"), delivery_mode=mode))
    await held_up(provider, queue)
    assert not sending.done()
    assert await waiting(provider, queue) == [text("a"), text("b")]
    receiving = await session_of(provider)
    consumer = await receiving.consumer(queue)
    found = [message.body for message in await receive(consumer, 3)]
    assert found == [text("a"), text("b"), text("c")]
    await sending
    await held_up(provider, queue, 0)


@pytest.mark.covers("EMS-DEST-A57")
async def test_a_send_returns_once_the_limit_is_raised(provider: Provider, session: Session, queue: Queue) -> None:
    await full(provider, session, queue)
    sending = await send_waits(provider, session, queue, "c")
    await provider.define(queue, flowControl=10 * TWO_OF_THEM)
    await sending
    await holds(provider, queue, 3)


async def test_a_send_returns_once_the_queue_is_purged(provider: Provider, session: Session, queue: Queue) -> None:
    await full(provider, session, queue)
    sending = await send_waits(provider, session, queue, "c")
    assert await provider.purge(queue) == 2
    await sending


async def test_reliable_messages_wait_too_and_none_is_dropped(
    provider: Provider, session: Session, queue: Queue
) -> None:
    """Their sender hears of it by nothing but its credit."""
    await full(provider, session, queue)
    await send_all(session, queue, *(text(name) for name in "cdefgh"), delivery_mode=RELIABLE)
    await held_up(provider, queue)
    assert (await provider.held(queue)).messages == 2
    consumer = await (await session_of(provider)).consumer(queue)
    assert [message.body[0] for message in await receive(consumer, 8)] == list("abcdefgh")


async def test_those_that_wait_take_turns(provider: Provider, queue: Queue) -> None:
    """Nobody is passed over for as long as another goes on sending."""
    first, second, receiving = [await session_of(provider) for _ in range(3)]
    await full(provider, first, queue)
    sendings = [
        asyncio.create_task(send_all(session, queue, *(text(name) for _ in range(10))))
        for session, name in ((first, "x"), (second, "y"))
    ]
    await held_up(provider, queue, 2)
    consumer = await receiving.consumer(queue)
    found = "".join(message.body[0] for message in await receive(consumer, 22))
    await asyncio.gather(*sendings)
    assert sorted(found) == sorted("ab" + 10 * "x" + 10 * "y")
    assert "y" in found[:12]
    assert "x" in found[:12]


@pytest.mark.covers("EMS-DEST-A16", "EMS-DEST-A58")
async def test_a_topic_waits_for_its_slowest_subscriber_although_that_one_is_not_there(
    provider: Provider, session: Session, topic: Topic
) -> None:
    await provider.define(topic, flowControl=TWO_OF_THEM)
    fast = await (await session_of(provider)).consumer(topic)
    absent = await provider.connect(client_id=f"{topic.name}-absent")
    durable = await (await absent.session()).consumer(topic, durable="slow")
    await absent.close()
    await send_all(session, topic, text("a"), text("b"))
    sending = await send_waits(provider, session, topic, "c")
    assert [message.body[0] for message in await receive(fast, 2)] == ["a", "b"]
    assert not sending.done()
    again = await provider.connect(client_id=f"{topic.name}-absent")
    durable = await (await again.session()).consumer(topic, durable="slow")
    assert [message.body[0] for message in await receive(durable, 3)] == ["a", "b", "c"]
    await sending
    assert (await fast.receive()).body == text("c")


@pytest.mark.covers("EMS-DEST-A60")
async def test_a_bridges_source_waits_for_a_target_if_both_have_flow_control(
    provider: Provider, session: Session, word: str
) -> None:
    source, target = Queue(f"any.from.{word}"), Queue(f"any.to.{word}")
    await provider.define(target, flowControl=TWO_OF_THEM)
    await provider.define(source)
    bridge = await provider.define_bridge(source, target)
    # At the target alone it holds up nobody who sends to the source.
    await send_all(session, source, *(text(name) for name in "abc"))
    await holds(provider, target, 3)
    await provider.purge(source)
    await provider.define(source, flowControl=100 * TWO_OF_THEM)
    sending = await send_waits(provider, session, source, "d")
    assert await provider.purge(target) == 3
    await sending
    assert await waiting(provider, target) == [text("d")]
    await provider.delete_bridge(bridge)


@pytest.mark.covers("EMS-DEST-A61")
async def test_who_sends_to_what_only_it_receives_waits_for_itself_as_can_be_seen(
    provider: Provider, queue: Queue
) -> None:
    """Nobody finds that out for it; what it does in another task ends it."""
    session = await session_of(provider, Mode.CLIENT)
    await full(provider, session, queue)
    consumer = await session.consumer(queue)
    [first] = await receive(consumer, 1)
    sending = await send_waits(provider, session, queue, "c")
    assert (await provider.held(queue)).delivered >= 1
    await first.acknowledge()
    await sending


async def test_a_transaction_waits_at_its_beginning_and_then_goes_on_to_its_end(
    provider: Provider, session: Session, queue: Queue, word: str
) -> None:
    """It keeps what it has acknowledged until it ends, and could be waiting for itself."""
    other = Queue(f"any.other.{word}")
    transacted = await session_of(provider, Mode.TRANSACTED)
    await send_all(transacted, other, "first")
    await full(provider, session, queue)
    await send_all(transacted, queue, text("c"))
    await transacted.commit()
    await holds(provider, queue, 3)
    # The next one sends nowhere else before: all of it waits, its commit with it.
    await send_all(transacted, queue, text("d"))
    committing = asyncio.create_task(transacted.commit())
    await held_up(provider, queue)
    assert not committing.done()
    await provider.purge(queue)
    await committing
    assert await waiting(provider, queue) == [text("d")]


async def test_a_transaction_does_not_wait_for_what_it_has_received_itself(
    provider: Provider, session: Session, queue: Queue
) -> None:
    """It goes on with its commit, which says what that is."""
    await full(provider, session, queue)
    transacted = await session_of(provider, Mode.TRANSACTED)
    consumer = await transacted.consumer(queue)
    await receive(consumer, 2)
    await send_all(transacted, queue, text("c"))
    await held_up(provider, queue)
    await asyncio.wait_for(transacted.commit(), 10)
    await holds(provider, queue, 1)
    assert [message.body[0] for message in await receive(consumer, 1)] == ["c"]


async def test_a_transaction_that_waits_can_be_rolled_back(
    provider: Provider, session: Session, queue: Queue, word: str
) -> None:
    transacted = await session_of(provider, Mode.TRANSACTED)
    await full(provider, session, queue)
    await send_all(transacted, queue, text("c"))
    await held_up(provider, queue)
    await transacted.rollback()
    await held_up(provider, queue, 0)
    # It does not wait for what it does not send any more.
    other = Queue(f"any.other.{word}")
    await send_all(transacted, other, "elsewhere")
    await transacted.commit()
    assert await waiting(provider, other) == ["elsewhere"]
    assert await waiting(provider, queue) == [text("a"), text("b")]


async def test_what_waits_is_stored_nowhere_once_its_sender_is_gone(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await full(provider, session, queue)
    connection = await provider.connect()
    going = await connection.session()
    sending = await send_waits(provider, going, queue, "c")
    await connection.vanish()
    await held_up(provider, queue, 0)
    sending.cancel()
    await asyncio.wait([sending])
    assert await waiting(provider, queue) == [text("a"), text("b")]


async def test_other_sessions_and_what_a_waiting_session_receives_go_on(
    provider: Provider, session: Session, queue: Queue, word: str
) -> None:
    other = Queue(f"any.other.{word}")
    await full(provider, session, queue)
    consumer = await session.consumer(other)
    sending = await send_waits(provider, session, queue, "c")
    await send_all(await session_of(provider), other, "x", "y")
    assert [message.body for message in await receive(consumer, 2)] == ["x", "y"]
    assert not sending.done()
    await provider.purge(queue)
    await sending


@pytest.mark.covers("EMS-DEST-A16")
async def test_entries_hand_on_the_smallest_and_zero_is_never(provider: Provider, word: str) -> None:
    await provider.define(Queue(f"any.{word}.>"), flowControl=5_000)
    await provider.define(Queue(f"any.{word}.small.*"), flowControl=3_000)
    await provider.define(Queue(f"any.{word}.small.never"), flowControl=0)
    found = []
    for name in ("one", "small.one", "small.never"):
        queue = Queue(f"any.{word}.{name}")
        await send_all(await session_of(provider), queue, "x")
        found.append((await provider.effective(queue))["flowControl"])
    assert found == [5_000, 3_000, 0]
