"""What a destination inherits from wildcard entries (EMS-DEST-A25, A30, A43, A47, B05, A39, A40)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.provider import Destination, Mode, Provider, Queue, Refusal, Session, Topic, refused
from tests.conformance.steps import send_all, session_of, waiting
from tests.waiting import eventually

# The property; its values in two wildcard entries that match (None: the entry is silent), and in the destination's own
# definition (the word "dynamic": it has none, a client makes it); what holds.
Values = tuple[Any, Any]
BOTH: list[tuple[str, Values, Any, Any]] = [
    # One parent, no own value; own value wins, be it larger or smaller.
    ("maxmsgs", (7, None), "dynamic", 7),
    ("maxmsgs", (7, None), None, 7),
    ("maxmsgs", (7, None), 9, 9),
    ("maxmsgs", (7, None), 3, 3),
    ("maxbytes", (7_000, None), 9_000, 9_000),
    ("expiration", (7_000, None), 9_000, 9_000),
    # Own 0 is a value: no limit, never.
    ("maxmsgs", (7, None), 0, 0),
    ("expiration", (7_000, None), 0, 0),
    ("maxbytes", (7_000, None), 0, 0),
    # Several parents: the smallest limit.
    ("maxmsgs", (7, 5), "dynamic", 5),
    ("maxmsgs", (5, 7), None, 5),
    ("maxbytes", (7_000, 5_000), "dynamic", 5_000),
    ("maxbytes", (5_000, 7_000), "dynamic", 5_000),
    ("maxbytes", (5_000, 7_000), 9_000, 9_000),
    ("expiration", (7_000, 5_000), "dynamic", 5_000),
    ("expiration", (5_000, 7_000), None, 5_000),
    # Of prefetch the largest.
    ("prefetch", (7, 5), "dynamic", 7),
    ("prefetch", (5, 7), None, 7),
    ("prefetch", (7, 0), "dynamic", 7),
    ("prefetch", (7, 5), 2, 2),
    ("prefetch", (7, 5), 0, 7),
    # Of overflow policies the strictest, unless the own one is not the default.
    ("overflowPolicy", ("discardOld", "rejectIncoming"), "dynamic", "rejectIncoming"),
    ("overflowPolicy", ("rejectIncoming", "discardOld"), None, "rejectIncoming"),
    ("overflowPolicy", ("discardOld", "default"), "dynamic", "discardOld"),
    ("overflowPolicy", ("default", "discardOld"), None, "discardOld"),
    ("overflowPolicy", ("rejectIncoming", "default"), "dynamic", "rejectIncoming"),
    ("overflowPolicy", ("default", "rejectIncoming"), None, "rejectIncoming"),
    ("overflowPolicy", ("discardOld", None), "default", "discardOld"),
    ("overflowPolicy", ("rejectIncoming", "discardOld"), "default", "rejectIncoming"),
    ("overflowPolicy", ("rejectIncoming", "rejectIncoming"), "discardOld", "discardOld"),
    ("overflowPolicy", ("default", "default"), None, "default"),
    ("overflowPolicy", ("discardOld", "discardOld"), "rejectIncoming", "rejectIncoming"),
    # Flags cannot be taken away.
    *(
        (flag, parents, own, holds)
        for flag in ("sender_name", "sender_name_enforced", "secure")
        for parents, own, holds in (
            ((None, None), None, False),
            ((True, None), "dynamic", True),
            ((True, None), False, True),
            ((False, True), None, True),
            ((False, None), True, True),
            ((False, False), None, False),
        )
    ),
    # A store has to be the same.
    ("store", ("$sys.nonfailsafe", None), "dynamic", "$sys.nonfailsafe"),
    ("store", ("$sys.nonfailsafe", "$sys.nonfailsafe"), None, "$sys.nonfailsafe"),
    ("store", (None, None), None, "$sys.failsafe"),
]
QUEUES: list[tuple[str, Values, Any, Any]] = [
    ("prefetch", (None, None), None, 5),
    ("prefetch", ("none", None), "dynamic", "none"),
    ("prefetch", ("none", "none"), None, "none"),
    ("prefetch", ("none", 3), "dynamic", 3),
    ("prefetch", (3, "none"), None, 3),
    ("prefetch", ("none", None), 4, 4),
    ("prefetch", (9, 9), "none", "none"),
    ("maxRedelivery", (7, 5), "dynamic", 5),
    ("maxRedelivery", (7, None), 9, 9),
    ("maxRedelivery", (7, None), 0, 0),
    ("maxRedelivery", (5, 7), None, 5),
    ("redeliveryDelay", (60_000, 20_000), "dynamic", 20_000),
    ("redeliveryDelay", (20_000, 60_000), None, 20_000),
    ("redeliveryDelay", (20_000, None), 60_000, 60_000),
    ("redeliveryDelay", (20_000, None), 0, 0),
    ("exclusive", (True, None), "dynamic", True),
    ("exclusive", (True, None), False, True),
    ("exclusive", (False, None), True, True),
    ("exclusive", (True, False), None, True),
]
TOPICS: list[tuple[str, Values, Any, Any]] = [("prefetch", (None, None), None, 64)]
CASES = [*((kind, *case) for kind in (Queue, Topic) for case in BOTH)]
CASES += [(Queue, *case) for case in QUEUES]
CASES += [(Topic, *case) for case in TOPICS]


@pytest.mark.covers(
    "EMS-DEST-A12", "EMS-DEST-A25", "EMS-DEST-A26", "EMS-DEST-A30", "EMS-DEST-A46", "EMS-DEST-A47", "EMS-DEST-B05",
    "EMS-DEST-D02",
)  # fmt: skip
@pytest.mark.parametrize(("kind", "name", "parents", "own", "holds"), CASES)
async def test_what_holds_of_the_own_value_and_those_of_the_wildcard_entries(
    provider: Provider,
    session: Session,
    word: str,
    kind: type[Destination],
    name: str,
    parents: Values,
    own: Any,
    holds: Any,
) -> None:
    for pattern, value in zip((f"{word}.>", f"{word}.*.c"), parents, strict=True):
        await provider.define(kind(pattern), **({} if value is None else {name: value}))
    place = kind(f"{word}.b.c")
    if own == "dynamic":
        await session.producer(place)
    else:
        await provider.define(place, **({} if own is None else {name: own}))
    assert (await provider.effective(place))[name] == holds


@pytest.mark.covers("EMS-DEST-A47", "EMS-DEST-A25", "EMS-DEST-A30", "EMS-DEST-B05")
async def test_of_several_parents_clients_meet_the_smallest_limit_the_strictest_policy_and_the_largest_prefetch(
    provider: Provider, session: Session, word: str
) -> None:
    queue = Queue(f"{word}.b.c")
    await provider.define(Queue(f"{word}.>"), maxbytes=100_000, prefetch=3, overflowPolicy="discardOld")
    await provider.define(Queue(f"{word}.b.>"), maxbytes=5_500, prefetch=1, overflowPolicy="default")
    await provider.define(Queue(f"{word}.*.c"), maxbytes=50_000, prefetch=2, overflowPolicy="rejectIncoming")
    sent = [name * 1_000 for name in "abcde"]
    await send_all(session, queue, *sent)
    with refused(provider, Refusal.FULL):
        await session.send(queue, "f" * 1_000)
    assert await waiting(provider, queue) == sent
    await (await session_of(provider)).consumer(queue)

    async def three_are_fetched() -> bool:
        return (await provider.held(queue)).delivered == 3

    await eventually(three_are_fetched)
    # Of the others its own values hold, whatever they are.
    await provider.define(queue, maxbytes=0, prefetch=5, overflowPolicy="discardOld", maxmsgs=6)
    await send_all(session, queue, "f" * 1_000, "g" * 1_000)
    assert "".join(body[0] for body in await waiting(provider, queue)) == "abcefg"


@pytest.mark.covers("EMS-DEST-A47", "EMS-DEST-A12")
async def test_a_flag_that_is_inherited_holds_though_the_destination_says_no(
    provider: Provider, session: Session, word: str
) -> None:
    queue = Queue(f"{word}.b")
    await provider.define(Queue(f"{word}.*"), exclusive=True)
    await provider.define(queue, exclusive=False)
    active = await (await session_of(provider, Mode.CLIENT)).consumer(queue, prefetch=1)
    standby = await (await session_of(provider)).consumer(queue, prefetch=5)
    await send_all(session, queue, "a", "b", "c")
    assert [(await active.receive()).body for _ in range(3)] == ["a", "b", "c"]
    assert standby.receive_no_wait() is None


@pytest.mark.covers("EMS-DEST-A47", "EMS-DEST-A46")
async def test_what_does_not_match_inherits_nothing(provider: Provider, session: Session, word: str) -> None:
    await provider.define(Queue(f"{word}.a.*"), maxmsgs=1)
    await provider.define(Queue(f"{word}.>"))
    await provider.define(Topic(f"{word}.>"), maxmsgs=2)
    for name in ("a.b.c", "b.a", "a"):
        queue = Queue(f"{word}.{name}")
        await session.producer(queue)
        assert (await provider.effective(queue))["maxmsgs"] == 0


@pytest.mark.covers("EMS-DEST-A47", "EMS-DEST-B05", "EMS-DEST-A41")
async def test_an_entry_that_changes_changes_what_inherits_from_it_at_once(
    provider: Provider, session: Session, word: str
) -> None:
    entry, queue = Queue(f"{word}.*"), Queue(f"{word}.q")
    await provider.define(entry, maxmsgs=1)
    await session.send(queue, "a")
    with refused(provider, Refusal.FULL):
        await session.send(queue, "b")
    await provider.define(entry, maxmsgs=2)
    await session.send(queue, "b")
    # What is not named any more is gone.
    await provider.define(entry, expiration=60_000)
    await send_all(session, queue, "c", "d")
    assert (await provider.effective(queue))["maxmsgs"] == 0
    assert await waiting(provider, queue) == ["a", "b", "c", "d"]


@pytest.mark.covers("EMS-DEST-A41", "EMS-DEST-B10")
async def test_defining_again_takes_away_what_is_not_named(
    provider: Provider, kind: type[Destination], word: str
) -> None:
    place = kind(f"{word}.x")
    await provider.define(place, maxmsgs=1, maxbytes=1000)
    await provider.define(place, maxmsgs=2)
    effective = await provider.effective(place)
    assert (effective["maxmsgs"], effective["maxbytes"]) == (2, 0)


FULL_SET: list[tuple[type[Destination], dict[str, Any]]] = [
    (
        kind,
        {
            "maxmsgs": 7,
            "maxbytes": 9_000,
            "expiration": 60_000,
            "overflowPolicy": "discardOld",
            "prefetch": 9,
            "store": "$sys.nonfailsafe",
            "sender_name": True,
            "sender_name_enforced": True,
            "secure": True,
            "flowControl": 5_000,
            **more,
        },
    )
    for kind, more in (
        (Queue, {"exclusive": True, "maxRedelivery": 4, "redeliveryDelay": 20_000}),
        (Topic, {}),
    )
]


@pytest.mark.covers("EMS-DEST-A41", "EMS-DEST-B09", "EMS-DEST-B10", "EMS-DEST-B11")
@pytest.mark.parametrize(("kind", "properties"), FULL_SET, ids=["queue", "topic"])
async def test_of_all_that_can_be_set_only_what_is_named_again_stays(
    provider: Provider, word: str, kind: type[Destination], properties: dict[str, Any]
) -> None:
    place, plain = kind(f"{word}.x"), kind(f"{word}.plain")
    await provider.define(plain)
    by_default = await provider.effective(plain)
    assert properties.keys() <= by_default.keys()
    assert all(by_default[name] != value for name, value in properties.items())
    for name, value in properties.items():
        await provider.define(place, **properties)
        assert {one: (await provider.effective(place))[one] for one in properties} == properties
        await provider.define(place, **{name: value})
        assert await provider.effective(place) == {**by_default, name: value}


@pytest.mark.covers("EMS-DEST-A43", "EMS-DEST-A37", "EMS-STORE-A10")
async def test_overlapping_entries_do_not_name_two_stores(
    provider: Provider, kind: type[Destination], word: str
) -> None:
    await provider.define(kind(f"{word}.>"), store="$sys.failsafe")
    for name in (f"{word}.*", f"{word}.a.>", f"{word}.a"):
        with refused(provider, Refusal.INVALID_VALUE, Refusal.CONFLICT):
            await provider.define(kind(name), store="$sys.nonfailsafe")
        assert kind(name).name not in await provider.names(kind)
        await provider.define(kind(name), store="$sys.failsafe")


@pytest.mark.covers("EMS-DEST-A43", "EMS-DEST-A37")
async def test_entries_that_do_not_overlap_name_what_stores_they_like_until_a_destination_would_inherit_both(
    provider: Provider, kind: type[Destination], word: str
) -> None:
    await provider.define(kind(f"{word}.a.*"), store="$sys.failsafe")
    await provider.define(kind(f"{word}.b.*"), store="$sys.nonfailsafe")
    # These overlap, in what is called a.c.
    with refused(provider, Refusal.INVALID_VALUE, Refusal.CONFLICT):
        await provider.define(kind(f"{word}.*.c"), store="$sys.nonfailsafe")


TEMPORARIES: list[dict[str, Any]] = [
    {"maxmsgs": 2},
    {"maxbytes": 10_000},
    {"overflowPolicy": "discardOld", "maxmsgs": 2},
]
NOT_FOR_TEMPORARIES: list[dict[str, Any]] = [
    {"expiration": 1000},
    {"prefetch": 3},
    {"store": "$sys.failsafe"},
    {"exclusive": True},
    {"maxRedelivery": 3},
]


@pytest.mark.covers("EMS-DEST-A11", "EMS-DEST-A39", "EMS-DEST-A40")
async def test_the_entry_for_temporaries_takes_three_properties_alone(
    provider: Provider, kind: type[Destination]
) -> None:
    settings = kind("TMP.>")
    for properties in TEMPORARIES:
        await provider.define(settings, **properties)
    for properties in NOT_FOR_TEMPORARIES:
        with refused(provider, Refusal.INVALID_VALUE):
            await provider.define(settings, **properties)
    await provider.delete(settings)


@pytest.mark.covers("EMS-DEST-A39", "EMS-DEST-A40")
async def test_temporaries_that_come_have_its_limits_and_nothing_else_does(provider: Provider, word: str) -> None:
    connection = await provider.connect()
    session = await connection.session()
    await provider.define(Queue("TMP.>"), maxmsgs=1)
    try:
        temporary = await connection.temporary(Queue)
        await session.send(temporary, "a")
        with refused(provider, Refusal.FULL):
            await session.send(temporary, "b")
        await provider.define(Queue(f"{word}.>"))
        await send_all(session, Queue(f"{word}.x"), "a", "b")
        # Topics have an entry of their own.
        consumer = await session.consumer(topic := await connection.temporary(Topic))
        await send_all(session, topic, "a", "b", "c")
        assert [(await consumer.receive()).body for _ in range(3)] == ["a", "b", "c"]
    finally:
        await provider.delete(Queue("TMP.>"))


@pytest.mark.covers("EMS-DEST-A39")
async def test_temporaries_that_exist_get_its_limits_at_once(provider: Provider) -> None:
    connection = await provider.connect()
    session = await connection.session()
    temporary = await connection.temporary(Queue)
    await send_all(session, temporary, "a", "b")
    await provider.define(Queue("TMP.>"), maxmsgs=1)
    try:
        with refused(provider, Refusal.FULL):
            await session.send(temporary, "c")
    finally:
        await provider.delete(Queue("TMP.>"))


@pytest.mark.covers("EMS-DEST-A40")
async def test_the_entry_for_temporaries_is_no_destination(
    provider: Provider, kind: type[Destination], word: str
) -> None:
    session = await session_of(provider, client_id=word)
    settings = kind("TMP.>")
    attempts: list[Any] = [
        lambda: session.send(settings, "x"),
        lambda: provider.define_bridge(settings, Queue(f"any.{word}")),
        lambda: provider.define_bridge(Queue(f"any.{word}"), settings),
    ]
    if kind is Queue:
        attempts.append(lambda: session.consumer(settings))
    else:
        attempts.append(lambda: session.consumer(settings, durable=word))
    for attempt in attempts:
        with refused(
            provider, Refusal.NOT_ALLOWED, Refusal.INVALID_NAME, Refusal.INVALID_VALUE, Refusal.NO_SUCH_DESTINATION
        ):
            await attempt()


@pytest.mark.covers("EMS-DEST-A40", "EMS-DEST-A39")
@pytest.mark.parametrize("entry", [False, True], ids=["no entry of their own", "an entry of their own"])
async def test_temporaries_inherit_nothing_from_the_entry_for_everything(
    provider: Provider, kind: type[Destination], entry: bool
) -> None:
    connection = await provider.connect()
    session = await connection.session(Mode.CLIENT)
    await provider.define(kind(">"), maxmsgs=1, overflowPolicy="rejectIncoming")
    try:
        if entry:
            await provider.define(kind("TMP.>"), maxmsgs=3, overflowPolicy="rejectIncoming")
        temporary = await connection.temporary(kind)
        consumer = await session.consumer(temporary)
        await send_all(session, temporary, "a", "b", "c")
        if entry:
            with refused(provider, Refusal.FULL):
                await session.send(temporary, "d")
        else:
            await send_all(session, temporary, "d", "e")
        assert (await consumer.receive()).body == "a"
    finally:
        if entry:
            await provider.delete(kind("TMP.>"))
        await provider.delete(kind(">"))
