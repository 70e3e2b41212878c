"""Names and patterns: which are legal, and what matches what (EMS-DEST-A07 to A09, A42, A44, A45, B01)."""

from __future__ import annotations

import pytest

from tests.conformance.provider import Destination, Provider, Queue, Refusal, Session, Topic, refused
from tests.conformance.steps import bodies

# What follows `any.` in a legal name.
LEGAL = [
    "finance",
    "A.B_C.D",
    "a.b.c.d.e.f",
    "with space",
    "tab\tinside",
    "back\\slash",
    "back\\.dot",  # a dot cannot be escaped: two elements
    "ünïcödé.漢字",
    "x$y",
    "#",  # a wildcard elsewhere, and an ordinary character here
    "x.#.y#",
    "-",
    "_",
    "0",
    "UPPER.lower",
    "e" * 127,  # an element of the most characters
    "é" * 100,
    ".".join(["e" * 2] * 63),  # with `any`: 64 elements, 192 characters
]

ILLEGAL = [
    "",
    ".",
    "..",
    "A..B",
    "A.",
    ".A.B..",
    ".A",
    "any..x",
    "any.x.",
    "any." + "e" * 128,  # an element of one character too many
    "any." + ".".join(["e"] * 64),  # 65 elements
    "any." + ".".join(["e" * 100, "f" * 100, "g" * 50]),  # more than 249 characters
    "$own",
    "$own.name",
]

PATTERNS = ["any.*", "any.>", ">", "*", "any.*.x"]


@pytest.mark.covers("EMS-DEST-A07", "EMS-DEST-A08", "EMS-DEST-A09", "EMS-DEST-B01")
async def test_a_legal_name_is_sent_to_received_from_and_listed_as_it_is_written(
    provider: Provider, session: Session, kind: type[Destination], word: str
) -> None:
    for rest in LEGAL:
        place = kind(f"any.{rest}")
        consumer = await session.consumer(place)
        await session.send(place, rest)
        message = await consumer.receive()
        assert (message.body, str(message.destination)) == (rest, str(place))
        await consumer.close()
    assert {f"any.{rest}" for rest in LEGAL} <= set(await provider.names(kind))


@pytest.mark.covers("EMS-DEST-A07", "EMS-DEST-A08", "EMS-DEST-B01", "EMS-DEST-E01")
@pytest.mark.parametrize("name", ILLEGAL, ids=lambda name: repr(name[:12]) + str(len(name)))
async def test_an_illegal_name_is_neither_sent_to_nor_received_from_nor_defined(
    provider: Provider, session: Session, kind: type[Destination], name: str
) -> None:
    for attempt in (
        lambda: session.send(kind(name), "x"),
        lambda: session.consumer(kind(name)),
        lambda: session.producer(kind(name)),
        lambda: provider.define(kind(name)),
    ):
        with refused(provider, Refusal.INVALID_NAME, Refusal.NOT_ALLOWED, Refusal.INVALID_VALUE):
            await attempt()


@pytest.mark.covers("EMS-DEST-A08")
@pytest.mark.parametrize(("elements", "characters"), [(2, 100), (64, 196)])
async def test_the_lengths_that_are_promised_work(session: Session, elements: int, characters: int) -> None:
    # As many characters as stated, dots not counted among an element's.
    each = (characters - elements + 1 - 3) // (elements - 1)
    parts = ["any", *["e" * each] * (elements - 2)]
    parts.append("e" * (characters - len(".".join(parts)) - 1))
    queue = Queue(".".join(parts))
    assert (len(queue.name), len(parts)) == (characters, elements)
    consumer = await session.consumer(queue)
    await session.send(queue, "x")
    assert (await consumer.receive()).body == "x"


@pytest.mark.covers("EMS-DEST-A44", "EMS-DEST-A45", "EMS-DEST-A09", "FMQ-DEST-05")
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_nothing_is_sent_to_a_pattern(
    provider: Provider, session: Session, kind: type[Destination], pattern: str
) -> None:
    with refused(provider, Refusal.INVALID_NAME, Refusal.NOT_ALLOWED):
        await session.send(kind(pattern), "x")
    with refused(provider, Refusal.INVALID_NAME, Refusal.NOT_ALLOWED):
        await session.producer(kind(pattern))


@pytest.mark.covers("EMS-DEST-A45", "EMS-DEST-E01")
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_nobody_receives_from_a_pattern_of_queues(provider: Provider, session: Session, pattern: str) -> None:
    with refused(provider, Refusal.INVALID_NAME, Refusal.NOT_ALLOWED):
        await session.consumer(Queue(pattern))


# What follows a word of the test's own: the pattern, names that it matches, names that it does not.
MATCHES: list[tuple[str, list[str], list[str]]] = [
    ("foo.>", ["foo.bar", "foo.a.b", "foo.a.b.c"], ["foo", "fo.bar", "foobar", "x.foo.bar"]),
    ("foo.*", ["foo.bar", "foo.b"], ["foo", "foo.a.b", "fooo.b"]),
    ("foo.*.bar", ["foo.x.bar", "foo.bar.bar"], ["foo.bar", "foo.x.y.bar", "foo.x.baz"]),
    ("*.bar", ["foo.bar", "bar.bar"], ["bar", "foo.bar.x", "a.foo.bar"]),
    ("*.*", ["a.b", "foo.bar"], ["a", "a.b.c"]),
    ("*", ["a", "foo"], ["a.b"]),
    ("*.>", ["a.b", "a.b.c"], ["a"]),
    (">", ["a", "a.b", "a.b.c.d"], []),
    ("foo.*.>", ["foo.a.b", "foo.a.b.c"], ["foo.a", "foo"]),
    ("*.x.*", ["a.x.b"], ["x.b", "a.x", "a.y.b", "a.x.b.c"]),
    ("foo", ["foo"], ["Foo", "foo.a", "fo"]),
]


@pytest.mark.covers("EMS-DEST-A42", "EMS-DEST-A09", "EMS-DEST-A44", "EMS-DEST-A02", "FMQ-DEST-12")
@pytest.mark.parametrize(("pattern", "matching", "others"), MATCHES, ids=[one[0] for one in MATCHES])
async def test_a_pattern_matches_exactly_what_it_says(
    session: Session, word: str, pattern: str, matching: list[str], others: list[str]
) -> None:
    consumer = await session.consumer(Topic(f"any.{word}.{pattern}"))
    for name in (*others, *matching):
        await session.send(Topic(f"any.{word}.{name}"), name)
    # All others were sent before: had one of them matched, it would have come first.
    assert await bodies(consumer, len(matching)) == matching


@pytest.mark.covers("EMS-DEST-A44", "FMQ-DEST-13")
async def test_a_subscription_to_a_pattern_gets_what_is_created_afterwards(session: Session, word: str) -> None:
    consumer = await session.consumer(Topic(f"any.{word}.>"))
    for name in ("a", "b.c"):
        await session.send(Topic(f"any.{word}.{name}"), name)
    messages = [await consumer.receive() for _ in range(2)]
    # Each says where it was sent, which is not what was subscribed to.
    assert [str(message.destination) for message in messages] == [f"Topic[any.{word}.a]", f"Topic[any.{word}.b.c]"]


@pytest.mark.covers("EMS-DEST-A44", "EMS-DEST-A46")
async def test_a_pattern_without_any_configured_topic_is_subscribed_to_and_nothing_can_be_published_there(
    provider: Provider, session: Session, word: str
) -> None:
    consumer = await session.consumer(Topic(f"{word}.none.>"))
    with refused(provider, Refusal.NO_SUCH_DESTINATION):
        await session.send(Topic(f"{word}.none.x"), "x")
    await provider.define(Topic(f"{word}.none.x"))
    await session.send(Topic(f"{word}.none.x"), "now")
    assert (await consumer.receive()).body == "now"


@pytest.mark.covers("EMS-DEST-A01", "EMS-DEST-A02")
async def test_a_queue_and_a_topic_of_one_name_have_nothing_to_do_with_each_other(session: Session, word: str) -> None:
    queue, topic = Queue(f"any.{word}"), Topic(f"any.{word}")
    from_queue, from_topic = await session.consumer(queue), await session.consumer(topic)
    await session.send(queue, "to the queue")
    await session.send(topic, "to the topic")
    assert (await from_queue.receive()).body == "to the queue"
    assert (await from_topic.receive()).body == "to the topic"
