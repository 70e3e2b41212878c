"""Bridges: copies from one place to others (EMS-DEST-A48 to A55, B18 to B20, E01; EMS-TX-A01, A02)."""

from __future__ import annotations

import pytest

from tests.conformance.provider import Destination, Mode, Provider, Queue, Refusal, Session, Topic, refused
from tests.conformance.steps import bodies, send_all, session_of, until_end, waiting


@pytest.mark.covers("EMS-DEST-A48", "EMS-DEST-A49", "EMS-DEST-B18")
@pytest.mark.parametrize("target_kind", [Queue, Topic])
async def test_what_is_sent_to_a_source_is_copied_to_its_target_whatever_their_kinds(
    provider: Provider, session: Session, kind: type[Destination], word: str, target_kind: type[Destination]
) -> None:
    source, target = kind(f"any.{word}.s"), target_kind(f"any.{word}.t")
    await provider.define_bridge(source, target)
    original, copy = await session.consumer(source), await session.consumer(target)
    sent = await session.send(source, "x", properties={"p": 1}, correlation_id="c", type="t", priority=6)
    first, second = await original.receive(), await copy.receive()
    # Each has an id of its own; all that the sender said is the same.
    assert first.message_id == sent.message_id != second.message_id
    assert str(first.destination) == str(source)
    for message in (first, second):
        told = (message.body, message.properties["p"], message.correlation_id, message.type, message.priority)
        assert told == ("x", 1, "c", "t", 6)


@pytest.mark.covers("EMS-DEST-A49")
async def test_source_and_targets_are_independent_of_each_other(
    provider: Provider, session: Session, word: str
) -> None:
    source, first, second = (Queue(f"any.{word}.{name}") for name in ("s", "a", "b"))
    await provider.define_bridge(source, first, second)
    await session.send(source, "x")
    assert await bodies(await session.consumer(first), 1) == ["x"]
    assert await waiting(provider, source) == await waiting(provider, second) == ["x"]
    assert await provider.purge(source) == 1
    assert await waiting(provider, second) == ["x"]


@pytest.mark.covers("EMS-DEST-A49")
@pytest.mark.parametrize("pattern", ["b", "*"], ids=["by its name", "by a pattern"])
@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.TRANSACTED])
async def test_copies_do_not_cross_a_further_bridge(
    provider: Provider, kind: type[Destination], word: str, pattern: str, mode: Mode
) -> None:
    session = await session_of(provider, mode)
    first, second, third = Queue(f"any.{word}.a"), kind(f"any.{word}.from.b"), Queue(f"any.{word}.c")
    await provider.define_bridge(first, second)
    await provider.define_bridge(kind(f"any.{word}.from.{pattern}"), third)
    hearing = await (await session_of(provider)).consumer(second)
    await session.send(first, "copied once")
    await session.send(first, "late", delivery_delay_ms=1)
    await session.send(second, "sent there")
    if mode is Mode.TRANSACTED:
        await session.commit()
    assert sorted(await bodies(hearing, 3)) == ["copied once", "late", "sent there"]
    assert await waiting(provider, third) == ["sent there"]


@pytest.mark.covers("EMS-DEST-A50")
@pytest.mark.parametrize("commits", [False, True], ids=["by itself", "in a transaction"])
async def test_two_bridges_that_lead_to_one_target_make_two_copies(
    provider: Provider, kind: type[Destination], word: str, commits: bool
) -> None:
    target = Queue(f"any.{word}.t")
    await provider.define_bridge(kind(f"any.{word}.in.a"), target)
    await provider.define_bridge(kind(f"any.{word}.in.*"), target)
    session = await session_of(provider, Mode.TRANSACTED if commits else Mode.AUTO)
    sent = [await session.send(kind(f"any.{word}.in.{name}"), name) for name in "ab"]
    if commits:
        await session.commit()
    copies = await provider.browse(target)
    assert [copy.body for copy in copies] == ["a", "a", "b"]
    assert len({one.message_id for one in (*copies, *sent)}) == 5


# The source's pattern, names that have the bridge by it, names that do not.
PATTERNS = [
    ("in.*", ["in.a", "in.b"], ["in", "in.a.b", "out.a"]),
    ("in.>", ["in.a", "in.a.b"], ["in", "other"]),
    ("*.x", ["a.x"], ["x", "a.b.x"]),
]


@pytest.mark.covers("EMS-DEST-A48", "EMS-DEST-A51", "EMS-DEST-B20", "EMS-DEST-A55")
@pytest.mark.parametrize(("pattern", "matching", "others"), PATTERNS, ids=[one[0] for one in PATTERNS])
async def test_a_source_may_be_a_pattern(
    provider: Provider,
    session: Session,
    kind: type[Destination],
    word: str,
    pattern: str,
    matching: list[str],
    others: list[str],
) -> None:
    archive = Queue(f"any.archive-{word}")
    await provider.define_bridge(kind(f"any.{word}.{pattern}"), archive)
    for name in (*others, *matching):
        await session.send(kind(f"any.{word}.{name}"), name)
    assert await waiting(provider, archive) == matching


@pytest.mark.covers("EMS-DEST-A52", "EMS-DEST-A51", "EMS-DEST-B20", "EMS-CLI-A10", "UM-DEST-A12", "UM-DEST-B22")
async def test_each_target_has_a_selector_of_its_own(provider: Provider, session: Session, word: str) -> None:
    source = Topic(f"any.{word}.s")
    all_, large, none, urgent = (Queue(f"any.{word}.{name}") for name in ("all", "large", "none", "urgent"))
    await provider.define_bridge(source, all_, (large, "n > 1"), (none, "absent = 1"), (urgent, "JMSPriority > 4"))
    for number in (1, 2, 3):
        await session.send(source, str(number), properties={"n": number}, priority=number * 2)
    assert await waiting(provider, all_) == ["1", "2", "3"] or sorted(await waiting(provider, all_)) == ["1", "2", "3"]
    assert sorted(await waiting(provider, large)) == ["2", "3"]
    assert await waiting(provider, none) == []
    assert await waiting(provider, urgent) == ["3"]


@pytest.mark.covers("EMS-DEST-A52", "EMS-DEST-A55")
async def test_a_bridge_has_to_make_sense(provider: Provider, word: str) -> None:
    source, target = Queue(f"any.{word}.s"), Queue(f"any.{word}.t")
    ends: list[tuple[Destination, Destination | tuple[Destination, str]]] = [
        (source, (target, "n >")),
        (source, Queue(f"any.{word}.*")),
        (source, Topic("any.>")),
        (source, source),
        (Queue("a..b"), target),
        (source, Queue("a..b")),
    ]
    for from_, to in ends:
        with refused(provider, Refusal.INVALID_VALUE, Refusal.INVALID_SELECTOR, Refusal.INVALID_NAME):
            await provider.define_bridge(from_, to)


@pytest.mark.covers("EMS-DEST-A53", "EMS-DEST-B19")
@pytest.mark.parametrize("target_kind", [Queue, Topic])
async def test_a_source_is_not_deleted_before_its_bridge_and_a_target_is(
    provider: Provider, session: Session, kind: type[Destination], word: str, target_kind: type[Destination]
) -> None:
    source, target = kind(f"{word}.s"), target_kind(f"{word}.t")
    await provider.define(source)
    await provider.define(target, maxmsgs=7)
    bridge = await provider.define_bridge(source, target)
    await session.send(source, "copied")
    for delete in (provider.delete, provider.delete_empty):
        with refused(provider, Refusal.IN_USE):
            await delete(source)
    assert source.name in await provider.names(kind)
    await provider.delete(target)
    # While a bridge leads there it exists, without anything that an administrator had said of it (EMS-DEST-E01).
    assert (await provider.held(target)).messages == 0
    assert (await provider.effective(target))["maxmsgs"] == 0
    with refused(provider, Refusal.IN_USE):
        await provider.delete(source)
    await provider.delete_bridge(bridge)
    await session.send(source, "not copied")
    await provider.delete(source)
    assert source.name not in await provider.names(kind)
    assert target.name not in await provider.names(target_kind)


@pytest.mark.covers("EMS-DEST-A53")
async def test_a_source_that_is_a_pattern_is_not_deleted_and_what_matches_it_is(provider: Provider, word: str) -> None:
    entry, one, target = Queue(f"{word}.in.*"), Queue(f"{word}.in.a"), Queue(f"{word}.t")
    for place in (entry, one, target):
        await provider.define(place)
    await provider.define_bridge(entry, target)
    with refused(provider, Refusal.IN_USE):
        await provider.delete(entry)
    await provider.delete(one)
    assert set(await provider.names(Queue, f"{word}.>")) >= {target.name}
    assert one.name not in await provider.names(Queue)


@pytest.mark.covers("EMS-DEST-E01")
async def test_a_target_that_nobody_has_described_is_made(provider: Provider, session: Session, word: str) -> None:
    source, target = Queue(f"any.{word}.s"), Queue(f"{word}.nobody.allows.it")
    await provider.define_bridge(source, target)
    await session.send(source, "x")
    assert await bodies(await session.consumer(target), 1) == ["x"]


@pytest.mark.covers("EMS-DEST-B19")
async def test_a_bridge_that_is_deleted_copies_nothing_more(provider: Provider, session: Session, word: str) -> None:
    source, target = Queue(f"any.{word}.s"), Queue(f"any.{word}.t")
    bridge = await provider.define_bridge(source, target)
    await session.send(source, "1")
    await provider.delete_bridge(bridge)
    await session.send(source, "2")
    assert await waiting(provider, source) == ["1", "2"]
    assert await waiting(provider, target) == ["1"]


@pytest.mark.covers("EMS-DEST-A48", "EMS-DEST-A49")
async def test_a_copy_has_the_targets_limits_and_expiration(provider: Provider, session: Session, word: str) -> None:
    source, target = Queue(f"any.{word}.s"), Queue(f"any.{word}.t")
    await provider.define(target, maxmsgs=1, overflowPolicy="discardOld", expiration=60_000)
    await provider.define_bridge(source, target)
    await send_all(session, source, "1", "2", time_to_live_ms=90_000)
    [copy] = await provider.browse(target)
    assert (copy.body, copy.expiration_ms) == ("2", 0)
    assert all(message.expiration_ms > 0 for message in await provider.browse(source))


@pytest.mark.covers("EMS-TX-A02", "EMS-DEST-A54")
async def test_a_copy_that_finds_no_room_refuses_the_message_as_a_whole(
    provider: Provider, session: Session, word: str
) -> None:
    source, open_, full = (Queue(f"any.{word}.{name}") for name in ("s", "open", "full"))
    await provider.define(full, maxmsgs=1)
    await provider.define_bridge(source, open_, full)
    await session.send(source, "1")
    with refused(provider, Refusal.FULL):
        await session.send(source, "2")
    assert await waiting(provider, source) == await waiting(provider, open_) == await waiting(provider, full) == ["1"]


@pytest.mark.covers("EMS-DEST-A24", "EMS-DEST-A48")
async def test_a_copy_to_a_topic_whose_subscriber_is_full_is_no_failure(
    provider: Provider, session: Session, word: str
) -> None:
    source, target = Queue(f"any.{word}.s"), Topic(f"any.{word}.t")
    await provider.define(target, maxmsgs=1)
    await provider.define_durable(target, word, client_id=word)
    await provider.define_bridge(source, target)
    await send_all(session, source, "1", "2")
    assert await waiting(provider, source) == ["1", "2"]
    assert (await provider.held_by_durable(word, client_id=word)).messages == 1


@pytest.mark.covers("EMS-TX-A01")
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
async def test_copies_belong_to_the_senders_transaction(provider: Provider, word: str, commits: bool) -> None:
    source, queue, topic = Queue(f"any.{word}.s"), Queue(f"any.{word}.q"), Topic(f"any.{word}.t")
    await provider.define_bridge(source, queue, topic)
    listening = await session_of(provider)
    hearing = await listening.consumer(topic)
    sending = await session_of(provider, Mode.TRANSACTED)
    await send_all(sending, source, "1", "2")
    assert await waiting(provider, queue) == await waiting(provider, source) == []
    await (sending.commit if commits else sending.rollback)()
    await listening.send(topic, "end")
    expected = ["1", "2"] if commits else []
    assert await until_end(hearing) == expected
    assert await waiting(provider, queue) == await waiting(provider, source) == expected


@pytest.mark.covers("EMS-TX-A02", "EMS-TX-E02")
async def test_a_copy_that_finds_no_room_fails_the_whole_transaction(provider: Provider, word: str) -> None:
    source, other, full = (Queue(f"any.{word}.{name}") for name in ("s", "other", "full"))
    await provider.define(full, maxmsgs=1)
    await provider.define_bridge(source, full)
    sending = await session_of(provider, Mode.TRANSACTED)
    with refused(provider, Refusal.FULL, Refusal.ROLLED_BACK):
        await sending.send(other, "fits")
        await send_all(sending, source, "1", "2")
        await sending.commit()
    for queue in (source, other, full):
        assert await waiting(provider, queue) == []


@pytest.mark.covers("EMS-DEST-A49", "UM-DEST-A13")
async def test_bridges_in_a_circle_copy_a_message_once_and_not_again(
    provider: Provider, session: Session, word: str
) -> None:
    ring = [Queue(f"any.{word}.{name}") for name in "abc"]
    for source, target in zip(ring, [*ring[1:], ring[0]], strict=True):
        await provider.define_bridge(source, target)
    await session.send(ring[0], "x")
    assert [await waiting(provider, queue) for queue in ring] == [["x"], ["x"], []]
