"""Static, dynamic and temporary destinations: who makes them, who may use them, when they go (EMS-DEST-A01 to A06)."""

from __future__ import annotations

import pytest

from tests.conformance.provider import Destination, Mode, Provider, Queue, Refusal, Session, Topic, refused
from tests.conformance.steps import bodies, holds, send_all, session_of, shared, waiting
from tests.waiting import eventually


@pytest.mark.covers("EMS-DEST-A01", "EMS-DEST-D04", "FMQ-DEST-01")
async def test_a_queues_message_goes_to_one_consumer_and_is_held_until_one_takes_it(
    provider: Provider, session: Session, queue: Queue
) -> None:
    sent = [str(number) for number in range(10)]
    await send_all(session, queue, *sent)
    consumers = [await (await session_of(provider)).consumer(queue, prefetch=1) for _ in range(2)]
    assert sorted(await shared(consumers, 10)) == sent
    await holds(provider, queue, 0)


@pytest.mark.covers("EMS-DEST-A02", "FMQ-DEST-01", "UM-DEST-A03")
async def test_a_topics_message_goes_to_everybody_who_is_there_and_is_kept_for_nobody_else(
    provider: Provider, session: Session, topic: Topic
) -> None:
    await session.send(topic, "before")
    other = await session_of(provider)
    consumers = [await session.consumer(topic), await session.consumer(topic), await other.consumer(topic)]
    await send_all(session, topic, "1", "2")
    for consumer in consumers:
        assert await bodies(consumer, 2) == ["1", "2"]
    await consumers[0].close()
    await session.send(topic, "3")
    again = await session.consumer(topic)
    await session.send(topic, "4")
    assert await bodies(again, 1) == ["4"]
    assert await bodies(consumers[1], 2) == ["3", "4"]


@pytest.mark.covers("EMS-DEST-A03", "EMS-DEST-A06", "EMS-DEST-B07", "EMS-DEST-B08", "EMS-DEST-B12")
async def test_a_static_destination_stays_until_an_administrator_deletes_it(
    provider: Provider, kind: type[Destination], word: str
) -> None:
    place = kind(f"{word}.static")
    await provider.define(place, maxmsgs=5)
    assert (await provider.held(place)).origin == "static"
    session = await session_of(provider)
    consumer = await session.consumer(place)
    await session.send(place, "x")
    assert await bodies(consumer, 1) == ["x"]
    await session.close()
    assert place.name in await provider.names(kind)
    await provider.delete(place)
    assert place.name not in await provider.names(kind)
    with refused(provider, Refusal.NO_SUCH_DESTINATION):
        await (await session_of(provider)).send(place, "x")


@pytest.mark.covers("EMS-DEST-A03", "EMS-DEST-D01", "EMS-DEST-A46", "FMQ-DEST-16")
async def test_a_dynamic_destination_is_made_by_its_first_use_and_found_by_the_next(
    provider: Provider, session: Session, kind: type[Destination], word: str
) -> None:
    place = kind(f"any.{word}")
    assert place.name not in await provider.names(kind)
    consumer = await session.consumer(place)
    assert (await provider.held(place)).origin == "dynamic"
    other = await session_of(provider)
    await other.send(place, "x")
    assert await bodies(consumer, 1) == ["x"]
    assert (await provider.names(kind)).count(place.name) == 1


@pytest.mark.covers("EMS-DEST-A03", "EMS-DEST-B06")
async def test_a_dynamic_destination_that_is_defined_becomes_static_and_keeps_its_messages(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await send_all(session, queue, "1", "2")
    await provider.define(queue, maxmsgs=3)
    assert (await provider.held(queue)).origin == "static"
    await session.send(queue, "3")
    with refused(provider, Refusal.FULL):
        await session.send(queue, "4")
    assert await waiting(provider, queue) == ["1", "2", "3"]


@pytest.mark.covers("EMS-DEST-A04", "EMS-DEST-D02", "EMS-DEST-D04")
async def test_a_dynamic_queue_with_messages_outlives_who_made_it(provider: Provider, queue: Queue) -> None:
    making = await provider.connect()
    await (await making.session()).send(queue, "kept")
    await making.close()
    assert await waiting(provider, queue) == ["kept"]
    assert await bodies(await (await session_of(provider)).consumer(queue), 1) == ["kept"]


# The wildcard entry, names that a client may create by it, names that it may not.
GATES: list[tuple[str, list[str], list[str]]] = [
    ("foo.>", ["foo.a", "foo.a.b.c"], ["foo", "bar", "fo.a"]),
    ("foo.*", ["foo.a"], ["foo.a.b", "foo"]),
    ("foo.*.bar", ["foo.x.bar"], ["foo.bar", "foo.x.y", "foo.x.bar.y"]),
    ("*.bar", ["a.bar"], ["bar", "a.b.bar"]),
]


@pytest.mark.covers("EMS-DEST-A46", "EMS-DEST-B04", "EMS-DEST-D01", "EMS-DEST-A44", "EMS-DEST-A45", "EMS-DEST-E01")
@pytest.mark.parametrize(("entry", "allowed", "not_allowed"), GATES, ids=[gate[0] for gate in GATES])
async def test_clients_create_what_a_wildcard_entry_matches_and_nothing_else(
    provider: Provider,
    session: Session,
    kind: type[Destination],
    word: str,
    entry: str,
    allowed: list[str],
    not_allowed: list[str],
) -> None:
    await provider.define(kind(f"{word}.{entry}"))
    for name in allowed:
        place = kind(f"{word}.{name}")
        consumer = await session.consumer(place)
        await session.send(place, name)
        assert await bodies(consumer, 1) == [name]
    for name in not_allowed:
        with refused(provider, Refusal.NO_SUCH_DESTINATION):
            await session.send(kind(f"{word}.{name}"), "x")
        with refused(provider, Refusal.NO_SUCH_DESTINATION):
            await session.consumer(kind(f"{word}.{name}"))


@pytest.mark.covers("EMS-DEST-A46")
async def test_entries_for_queues_allow_no_topics_and_the_other_way_round(
    provider: Provider, session: Session, kind: type[Destination], word: str
) -> None:
    other: type[Destination] = Topic if kind is Queue else Queue
    await provider.define(kind(f"{word}.>"))
    with refused(provider, Refusal.NO_SUCH_DESTINATION):
        await session.send(other(f"{word}.x"), "x")


@pytest.mark.covers("EMS-DEST-A03", "EMS-CLI-A28")
async def test_a_temporary_destination_is_sent_to_by_all_and_received_from_by_its_connection_alone(
    provider: Provider, kind: type[Destination]
) -> None:
    owner, stranger = await provider.connect(), await provider.connect()
    place = await owner.temporary(kind)
    assert (await provider.held(place)).origin == "temporary"
    first, second = await owner.session(), await owner.session()
    consumer = await second.consumer(place)
    theirs = await stranger.session()
    await theirs.send(place, "reply")
    await first.send(place, "own")
    assert await bodies(consumer, 2) == ["reply", "own"]
    with refused(provider, Refusal.NOT_ALLOWED):
        await theirs.consumer(place)
    with refused(provider, Refusal.NOT_ALLOWED):
        await stranger.delete_temporary(place)


@pytest.mark.covers("EMS-DEST-A03")
@pytest.mark.parametrize("how", ["deleted", "closed", "vanished"])
async def test_a_temporary_destination_goes_with_its_connection_or_when_it_is_deleted(
    provider: Provider, kind: type[Destination], how: str
) -> None:
    owner = await provider.connect()
    place = await owner.temporary(kind)
    sender = await session_of(provider)
    await sender.send(place, "x")
    await {"deleted": lambda: owner.delete_temporary(place), "closed": owner.close, "vanished": owner.vanish}[how]()

    async def is_gone() -> bool:
        return place.name not in await provider.names(kind)

    await eventually(is_gone, what=f"the end of {place}")
    with refused(provider, Refusal.NO_SUCH_DESTINATION):
        await sender.send(place, "too late")


@pytest.mark.covers("EMS-DEST-A03")
async def test_temporary_destinations_have_names_that_nobody_chose(provider: Provider, kind: type[Destination]) -> None:
    owner = await provider.connect()
    names = {(await owner.temporary(kind)).name for _ in range(3)}
    assert len(names) == 3
    with refused(provider, Refusal.NOT_ALLOWED, Refusal.INVALID_NAME, Refusal.NO_SUCH_DESTINATION):
        await (await owner.session()).send(kind(f"{names.pop()}x"), "x")


@pytest.mark.covers("EMS-DEST-A03", "FMQ-DEST-21")
async def test_a_temporary_topic_has_no_durable_subscription(provider: Provider, word: str) -> None:
    owner = await provider.connect(client_id=word)
    place = await owner.temporary(Topic)
    with refused(provider, Refusal.NOT_ALLOWED, Refusal.INVALID_NAME):
        await (await owner.session()).consumer(place, durable=word)


@pytest.mark.covers("EMS-DEST-B14", "EMS-DEST-B16")
async def test_a_purge_drops_all_that_waits_and_says_how_much(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await send_all(session, queue, *"abc")
    assert await provider.purge(queue) == 3
    assert await waiting(provider, queue) == []
    assert await provider.purge(queue) == 0
    await session.send(queue, "d")
    assert await bodies(await session.consumer(queue), 1) == ["d"]


@pytest.mark.covers("EMS-DEST-B14")
async def test_what_is_being_processed_is_purged_as_well_and_does_not_come_back(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await send_all(session, queue, "held", "waiting")
    taking = await provider.connect()
    holding = await taking.session(Mode.CLIENT)
    consumer = await holding.consumer(queue, prefetch=1)
    assert (await consumer.receive()).body == "held"
    assert await provider.purge(queue) == 2
    await taking.close()
    await session.send(queue, "next")
    assert await bodies(await session.consumer(queue), 1) == ["next"]


@pytest.mark.covers("EMS-DEST-B12", "EMS-DEST-A53")
async def test_messages_protect_a_queue_from_being_deleted_unless_they_are_meant(
    provider: Provider, session: Session, word: str
) -> None:
    queue = Queue(f"{word}.full")
    await provider.define(queue)
    await session.send(queue, "x")
    with refused(provider, Refusal.IN_USE):
        await provider.delete_empty(queue)
    assert await waiting(provider, queue) == ["x"]
    await provider.delete(queue)
    assert queue.name not in await provider.names(Queue)


@pytest.mark.covers("EMS-CLI-B34", "FMQ-CLI-30")
async def test_what_is_browsed_stays(provider: Provider, session: Session, queue: Queue) -> None:
    await send_all(session, queue, *"abc")
    for _ in range(2):
        assert await waiting(provider, queue) == ["a", "b", "c"]
    assert (await provider.held(queue)).messages == 3


@pytest.mark.covers("EMS-DEST-A65", "EMS-DEST-B01")
async def test_names_that_begin_with_sys_are_the_providers(
    provider: Provider, session: Session, kind: type[Destination]
) -> None:
    for name in ("$sys.mine", "$sys", "$TMP.mine"):
        place = kind(name)
        kinds = (Refusal.NOT_ALLOWED, Refusal.INVALID_NAME, Refusal.NO_SUCH_DESTINATION, Refusal.INVALID_VALUE)
        with refused(provider, *kinds):
            await session.send(place, "x")
        with refused(provider, *kinds):
            await provider.define(place)


@pytest.mark.covers("FMQ-DEST-02")
async def test_a_name_with_dots_is_made_without_its_parents_and_belongs_to_them(
    provider: Provider, session: Session, kind: type[Destination], word: str
) -> None:
    child, sibling, stranger = (kind(f"any.{word}.{rest}") for rest in ("a.b.c", "a.d", "ab.c"))
    for place in (child, sibling, stranger):
        await session.producer(place)
    # Nobody made the levels above, and they are not there.
    assert sorted(await provider.names(kind, f"any.{word}.>")) == sorted([child.name, sibling.name, stranger.name])
    with refused(provider, Refusal.NO_SUCH_DESTINATION):
        await provider.held(kind(f"any.{word}.a"))
    # What is said of a level holds for all below it, at any depth, and for nothing beside it.
    assert sorted(await provider.names(kind, f"any.{word}.a.>")) == sorted([child.name, sibling.name])
    await provider.define(kind(f"any.{word}.a.>"), maxmsgs=7)
    limits = [(await provider.effective(place))["maxmsgs"] for place in (child, sibling, stranger)]
    assert limits == [7, 7, 0]
