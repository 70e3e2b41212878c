"""Receiving: exclusive queues, round robin, prefetch, synchronous and asynchronous receive.

Rows EMS-DEST-A12, A13, A26 to A29, EMS-CLI-A26, A27.

What a consumer holds ahead of its application is seen by what another consumer of the queue gets.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.provider import Destination, Message, Mode, Provider, Queue, Refusal, Session, Topic, refused
from tests.conformance.steps import bodies, holds, send_all, session_of, shared, until_end
from tests.waiting import eventually


async def delivered(provider: Provider, queue: Queue, count: int) -> None:
    """Waits until so many are with consumers."""

    async def are() -> bool:
        return (await provider.held(queue)).delivered == count

    await eventually(are, what=f"{count} messages with consumers")


@pytest.mark.covers("EMS-DEST-A12", "EMS-DEST-A01", "EMS-HA-A09")
@pytest.mark.parametrize("how", ["closes", "vanishes"])
async def test_an_exclusive_queue_serves_its_first_consumer_and_the_next_when_that_goes(
    provider: Provider, session: Session, queue: Queue, how: str
) -> None:
    await provider.define(queue, exclusive=True)
    connections = [await provider.connect() for _ in range(3)]
    consumers = [await (await one.session()).consumer(queue, prefetch=2) for one in connections]
    await send_all(session, queue, *"abcdefg")
    assert await bodies(consumers[0], 3) == ["a", "b", "c"]
    await holds(provider, queue, 4)
    assert [one.receive_no_wait() for one in consumers[1:]] == [None, None]
    await (connections[0].close if how == "closes" else connections[0].vanish)()
    # One of the standbys gets all of the rest; what the first had and did not see comes again, too.
    rest = await shared(consumers[1:], 4)
    assert rest == ["d", "e", "f", "g"]
    await session.send(queue, "end")
    heard = await shared(consumers[1:], 1)
    assert heard == ["end"]
    assert (await provider.held(queue)).consumers == 2


@pytest.mark.covers("EMS-DEST-A12")
async def test_the_standby_consumers_of_an_exclusive_queue_get_nothing(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await provider.define(queue, exclusive=True)
    active = await (await session_of(provider, Mode.CLIENT)).consumer(queue, prefetch=1)
    standby = await (await session_of(provider)).consumer(queue, prefetch=5)
    await send_all(session, queue, *"abc")
    # It holds one, and has not acknowledged: a queue for all would have given the others away.
    assert (await active.receive()).body == "a"
    await delivered(provider, queue, 2)
    assert standby.receive_no_wait() is None
    assert await bodies(active, 2) == ["b", "c"]


@pytest.mark.covers("EMS-DEST-A13", "EMS-DEST-A01", "UM-DEST-A04")
async def test_messages_go_round_one_to_each_ready_consumer(provider: Provider, session: Session, queue: Queue) -> None:
    consumers = [await (await session_of(provider)).consumer(queue, prefetch=10) for _ in range(3)]
    await send_all(session, queue, *[str(number) for number in range(12)])
    await delivered(provider, queue, 12)
    shares = [await bodies(consumer, 4) for consumer in consumers]
    assert sorted((one for share in shares for one in share), key=int) == [str(number) for number in range(12)]
    for share in shares:  # one in each round of three
        assert [int(body) // 3 for body in share] == [0, 1, 2, 3]


@pytest.mark.covers("EMS-DEST-A13", "EMS-DEST-A27", "EMS-DEST-A28", "EMS-DEST-A26")
async def test_who_has_no_room_is_passed_over_and_what_nobody_has_room_for_waits(
    provider: Provider, session: Session, queue: Queue
) -> None:
    full = await (await session_of(provider, Mode.CLIENT)).consumer(queue, prefetch=2)
    await send_all(session, queue, *"abcde")
    await delivered(provider, queue, 2)
    other = await (await session_of(provider)).consumer(queue, prefetch=9)
    assert await bodies(other, 3) == ["c", "d", "e"]
    assert await bodies(full, 2) == ["a", "b"]


# The queue's prefetch, the consumer's own (None: as the queue says), how many it fetches of ten without being asked.
PREFETCHES = [
    (None, None, 5),
    (0, None, 5),
    (1, None, 1),
    (3, None, 3),
    (8, None, 8),
    ("none", None, 0),
    (3, 1, 1),
    (3, 7, 7),
]


@pytest.mark.covers("EMS-DEST-A26", "EMS-DEST-A27", "EMS-DEST-A28")
@pytest.mark.parametrize(("configured", "own", "fetched"), PREFETCHES)
async def test_a_consumer_fetches_as_many_as_its_prefetch_and_the_others_get_the_rest(
    provider: Provider, session: Session, queue: Queue, configured: Any, own: int | None, fetched: int
) -> None:
    await provider.define(queue, **({} if configured is None else {"prefetch": configured}))
    holding = await (await session_of(provider)).consumer(queue, prefetch=own)
    sent = [str(number) for number in range(10)]
    await send_all(session, queue, *sent)
    await delivered(provider, queue, fetched)
    rest = await (await session_of(provider)).consumer(queue, prefetch=10)
    assert await bodies(rest, 10 - fetched) == sent[fetched:]
    assert await bodies(holding, fetched) == sent[:fetched]


@pytest.mark.covers("EMS-DEST-A26")
async def test_a_subscriber_of_a_topic_fetches_64_unless_told_otherwise(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    await provider.define_durable(topic, word, client_id=word)
    await send_all(session, topic, *["x"] * 70, delivery_mode="NON_PERSISTENT")
    await (await session_of(provider, client_id=word)).consumer(topic, durable=word)

    async def fetched() -> bool:
        return (await provider.held_by_durable(word, client_id=word)).delivered == 64

    await eventually(fetched)


@pytest.mark.covers("EMS-DEST-A29", "EMS-DEST-A26", "EMS-DEST-A27")
async def test_with_prefetch_none_a_message_is_fetched_by_a_receive_alone(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await provider.define(queue, prefetch="none")
    first = await (await session_of(provider)).consumer(queue)
    second = await (await session_of(provider)).consumer(queue)
    await send_all(session, queue, *"abc")
    assert await bodies(second, 1) == ["a"]
    assert await bodies(first, 1) == ["b"]
    assert await bodies(second, 1) == ["c"]


@pytest.mark.covers("EMS-DEST-A29", "EMS-CLI-A26", "EMS-CLI-B32")
async def test_with_prefetch_none_a_receive_that_lapsed_leaves_one_message_with_its_consumer(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await provider.define(queue, prefetch="none")
    lapsing = await (await session_of(provider)).consumer(queue)
    for _ in range(5):
        assert await lapsing.receive_for(1) is None
    await send_all(session, queue, *"abcd")
    # However often it asked, one is held for it, and given to nobody else.
    await delivered(provider, queue, 1)
    other = await (await session_of(provider)).consumer(queue)
    assert await bodies(other, 1) == ["b"]
    # Its next call has what is held and fetches nothing; the one after that fetches again.
    assert await bodies(lapsing, 1) == ["a"]
    await holds(provider, queue, 2)
    await delivered(provider, queue, 0)
    assert await bodies(other, 1) == ["c"]
    assert await bodies(lapsing, 1) == ["d"]


@pytest.mark.covers("EMS-DEST-A29")
@pytest.mark.parametrize("how", ["its consumer closes", "its connection breaks"])
async def test_what_a_lapsed_receive_left_goes_to_others_once_its_consumer_is_gone(
    provider: Provider, session: Session, queue: Queue, how: str
) -> None:
    await provider.define(queue, prefetch="none")
    breaking = await provider.connect()
    lapsing = await (await breaking.session()).consumer(queue)
    assert await lapsing.receive_for(1) is None
    await session.send(queue, "a")
    await delivered(provider, queue, 1)
    other = await (await session_of(provider)).consumer(queue)
    assert await other.receive_for(1) is None
    await (lapsing.close if how == "its consumer closes" else breaking.vanish)()
    assert await bodies(other, 1) == ["a"]


@pytest.mark.covers("EMS-DEST-A28", "EMS-CLI-A26")
async def test_receive_no_wait_gives_what_was_fetched_and_nothing_otherwise(
    provider: Provider, session: Session, queue: Queue
) -> None:
    consumer = await (await session_of(provider)).consumer(queue, prefetch=3)
    assert consumer.receive_no_wait() is None
    await session.send(queue, "a")

    def got() -> Any:
        return consumer.receive_no_wait()

    message = await eventually(got)
    assert message.body == "a"
    assert consumer.receive_no_wait() is None


@pytest.mark.covers("EMS-CLI-A26", "EMS-CLI-D21", "FMQ-CLI-01")
async def test_a_receive_with_a_time_limit_ends_without_a_message(session: Session, queue: Queue) -> None:
    consumer = await session.consumer(queue)
    assert await consumer.receive_for(1) is None
    await session.send(queue, "a")
    assert (await consumer.receive()).body == "a"


@pytest.mark.covers("EMS-CLI-A27", "EMS-CLI-D22", "FMQ-CLI-01")
async def test_a_listener_is_called_with_each_message_in_order(
    provider: Provider, session: Session, kind: type[Destination], word: str
) -> None:
    place = kind(f"any.{word}")
    heard: list[Any] = []
    await (await session_of(provider)).consumer(place, listener=lambda message: heard.append(message.body))
    await send_all(session, place, *"abcde")
    await eventually(lambda: len(heard) == 5)
    assert heard == ["a", "b", "c", "d", "e"]


@pytest.mark.covers("EMS-CLI-D22")
async def test_one_listener_serves_a_queue_and_a_topic(session: Session, queue: Queue, topic: Topic) -> None:
    heard: list[str] = []

    def listen(message: Message) -> None:
        heard.append(str(message.destination))

    await session.consumer(queue, listener=listen)
    await session.consumer(topic, listener=listen)
    await session.send(queue, "x")
    await session.send(topic, "x")
    await eventually(lambda: sorted(heard) == sorted([str(queue), str(topic)]))


@pytest.mark.covers("EMS-CLI-D09")
async def test_nothing_is_delivered_before_the_start_and_nothing_while_stopped(
    provider: Provider, session: Session, queue: Queue
) -> None:
    stopped = await (await provider.connect()).session(stopped=True)
    consumer = await stopped.consumer(queue)
    await session.send(queue, "a")
    assert await consumer.receive_for(1) is None
    await stopped.start()
    assert (await consumer.receive()).body == "a"
    await stopped.stop()
    await stopped.send(queue, "sending needs no start")
    assert consumer.receive_no_wait() is None
    await stopped.start()
    assert (await consumer.receive()).body == "sending needs no start"


@pytest.mark.covers("EMS-CLI-D09", "EMS-CLI-E01")
async def test_closing_a_connection_closes_its_sessions(provider: Provider, queue: Queue) -> None:
    connection = await provider.connect()
    session = await connection.session()
    consumer = await session.consumer(queue)
    await connection.close()
    with refused(provider, Refusal.CLOSED):
        await session.send(queue, "x")
    with refused(provider, Refusal.CLOSED):
        await consumer.receive()


@pytest.mark.covers("EMS-CLI-D16")
async def test_what_no_selector_wants_stays_until_somebody_does(
    provider: Provider, session: Session, queue: Queue
) -> None:
    red = await session.consumer(queue, selector="colour = 'red'")
    for colour in ("blue", "red", "green", "red"):
        await session.send(queue, colour, properties={"colour": colour})
    assert await bodies(red, 2) == ["red", "red"]
    await holds(provider, queue, 2)
    assert await bodies(await session.consumer(queue), 2) == ["blue", "green"]


@pytest.mark.covers("EMS-CLI-D17", "EMS-MSG-A02")
async def test_no_local_leaves_out_what_its_own_connection_published_and_nothing_else(
    provider: Provider, topic: Topic, word: str
) -> None:
    own, other = await provider.connect(), await provider.connect()
    first, second = await own.session(), await own.session()
    deaf = await first.consumer(topic, no_local=True)
    hearing = await first.consumer(topic)
    await first.send(topic, "own")
    await second.send(topic, "own, by another session")
    await (await other.session()).send(topic, "end")
    assert await until_end(deaf) == []
    assert await until_end(hearing) == ["own", "own, by another session"]
