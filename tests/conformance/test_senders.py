"""The sender's name in a message, where its destination asks for it (EMS-MSG-A11, EMS-DEST-A35, A36, EMS-SEC-A13)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.conftest import USERS
from tests.conformance.provider import (
    DISABLE_SENDER,
    NON_PERSISTENT,
    PERSISTENT,
    PRESERVE_UNDELIVERED,
    RELIABLE,
    SENDER,
    UNDELIVERED,
    Destination,
    Message,
    Mode,
    Provider,
    Queue,
    Refusal,
    Session,
    Topic,
    refused,
)

NAMED, ENFORCED = {"sender_name": True}, {"sender_name_enforced": True}
# What the destination asks for, what the message says of it, and whether it carries the name.
CASES: list[tuple[dict[str, bool], Any, bool]] = [
    ({}, None, False),
    ({}, False, False),
    (NAMED, None, True),
    (NAMED, False, True),
    (NAMED, True, False),
    # Not the boolean.
    (NAMED, "true", True),
    (ENFORCED, None, True),
    (ENFORCED, True, True),
    ({**NAMED, **ENFORCED}, True, True),
    ({"sender_name": False, **ENFORCED}, None, True),
    ({**NAMED, "sender_name_enforced": False}, True, False),
    ({"sender_name": False, "sender_name_enforced": False}, None, False),
]


async def _session_of(provider: Provider, user: str, mode: Mode = Mode.AUTO) -> Session:
    return await (await provider.connect(user=user, password=USERS.get(user, ""))).session(mode)


def _sender(message: Message) -> Any:
    """What the property says; None where there is none."""
    return message.properties.get(SENDER)


@pytest.mark.covers("EMS-MSG-A11", "EMS-DEST-A35", "EMS-DEST-A36", "EMS-MSG-D02")
async def test_a_message_carries_the_authenticated_name_as_its_destination_and_its_own_flag_say(
    checking: Provider, word: str, kind: type[Destination]
) -> None:
    ada = await _session_of(checking, "ada")
    for number, (properties, declines, carries) in enumerate(CASES):
        place = kind(f"{word}.{number}")
        await checking.define(place, **properties)
        consumer = await ada.consumer(place)
        await ada.send(place, properties={} if declines is None else {DISABLE_SENDER: declines})
        message = await consumer.receive()
        assert _sender(message) == ("ada" if carries else None), (properties, declines)
        if carries:
            assert message.properties.get_string(SENDER) == "ada"


@pytest.mark.covers("EMS-DEST-A35", "EMS-SEC-A13")
async def test_where_users_are_not_checked_it_is_whatever_name_the_client_claims(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await provider.define(queue, **NAMED, **ENFORCED)
    consumer = await session.consumer(queue)
    for claimed in ("ada", "somebody nobody knows", "ünï"):
        await (await _session_of(provider, claimed)).send(queue)
        assert _sender(await consumer.receive()) == claimed
    # Who claims nothing has no name.
    await session.send(queue)
    assert _sender(await consumer.receive()) is None


@pytest.mark.covers("EMS-DEST-A35", "EMS-SEC-A13")
async def test_where_users_are_checked_nobody_sends_under_the_name_of_another(checking: Provider, queue: Queue) -> None:
    await checking.define(queue, **NAMED)
    with refused(checking, Refusal.NOT_ADMITTED):
        await checking.connect(user="ada", password=USERS["bob"])
    consumer = await (await checking.connect()).session()
    mine = await consumer.consumer(queue)
    for name in ("ada", "bob"):
        await (await _session_of(checking, name)).send(queue)
    assert [_sender(await mine.receive()) for _ in range(2)] == ["ada", "bob"]


@pytest.mark.covers("EMS-MSG-A11")
async def test_what_a_producer_writes_there_itself_is_never_taken_for_the_name(checking: Provider, word: str) -> None:
    ada = await _session_of(checking, "ada")
    forged = {SENDER: "bob", SENDER.replace("STERNA", "TIBCO"): "bob", "other": 1}
    for number, (properties, declines, carries) in enumerate(CASES):
        queue = Queue(f"{word}.{number}")
        await checking.define(queue, **properties)
        consumer = await ada.consumer(queue)
        await ada.send(queue, properties={**forged, **({} if declines is None else {DISABLE_SENDER: declines})})
        found = dict((await consumer.receive()).properties)
        assert found.pop("other") == 1
        assert "bob" not in found.values()
        assert found.get(SENDER) == ("ada" if carries else None)


@pytest.mark.covers("EMS-MSG-A11")
async def test_selectors_see_the_name_by_either_property(checking: Provider, word: str) -> None:
    topic, queue, silent = Topic(f"{word}.t"), Queue(f"{word}.q"), Queue(f"{word}.silent")
    await checking.define(topic, **NAMED)
    await checking.define(queue, **NAMED)
    await checking.define(silent)
    ada, bob = await _session_of(checking, "ada"), await _session_of(checking, "bob")
    wanted = {
        f"{SENDER} = 'ada'": ["of ada"],
        "JMS_TIBCO_SENDER LIKE 'b%'": ["of bob"],
        f"{SENDER} IS NULL": ["of nobody"],
    }
    subscribers = {selector: await ada.consumer(topic, selector=selector) for selector in wanted}
    for place in (topic, queue, silent):
        await ada.send(place, "of ada")
        await bob.send(place, "of bob", properties={SENDER: "ada"})
        await bob.send(place, "of nobody", properties={DISABLE_SENDER: True})
    for selector, expected in wanted.items():
        assert [(await subscribers[selector].receive()).body for _ in expected] == expected
        assert [one.body for one in await checking.browse(queue, selector)] == expected
        consumer = await ada.consumer(queue, selector=selector)
        assert [(await consumer.receive()).body for _ in expected] == expected
    assert [one.body for one in await checking.browse(silent, f"{SENDER} IS NOT NULL")] == []


@pytest.mark.covers("EMS-MSG-A11", "EMS-DEST-A36")
@pytest.mark.parametrize("mode", [PERSISTENT, NON_PERSISTENT, RELIABLE])
async def test_the_name_comes_in_every_mode_with_each_size_and_by_every_way(
    checking: Provider, word: str, mode: str
) -> None:
    queue, topic = Queue(f"{word}.q"), Topic(f"{word}.t")
    for place in (queue, topic):
        await checking.define(place, **ENFORCED)
    ada, bob = await _session_of(checking, "ada", Mode.TRANSACTED), await _session_of(checking, "bob")
    by_pattern = await bob.consumer(Topic(f"{word}.*"))
    consumer = await bob.consumer(queue)
    for place in (queue, topic):
        # The larger one does not fit a frame: its body goes and comes in pieces.
        for body in ("small", "x" * 5_000_000):
            await ada.send(place, body, delivery_mode=mode)
        await ada.commit()
    for receiving in (by_pattern, consumer):
        found = [await receiving.receive() for _ in range(2)]
        assert [(len(one.body), _sender(one)) for one in found] == [(5, "ada"), (5_000_000, "ada")]
    await ada.send(queue, "seen", delivery_mode=mode)
    await consumer.close()
    await ada.commit()
    assert [_sender(one) for one in await checking.browse(queue)] == ["ada"]


@pytest.mark.covers("EMS-MSG-A11")
async def test_the_name_is_there_when_a_message_comes_again_after_a_crash_and_when_it_goes_aside(
    checking: Provider, word: str
) -> None:
    queue = Queue(f"{word}.q")
    await checking.define(queue, **NAMED, maxRedelivery=2)
    ada = await _session_of(checking, "ada")
    await ada.send(queue, word, properties={PRESERVE_UNDELIVERED: True})
    await checking.restart(crash=True)
    bob = await _session_of(checking, "bob", Mode.TRANSACTED)
    consumer = await bob.consumer(queue)
    for _ in range(2):
        message = await consumer.receive()
        assert (message.body, _sender(message)) == (word, "ada")
        await bob.rollback()
    [aside] = await checking.browse(UNDELIVERED, f"JMSDestination = '{queue}' AND {SENDER} = 'ada'")
    assert (aside.body, _sender(aside)) == (word, "ada")


@pytest.mark.covers("EMS-MSG-A11")
async def test_of_a_copy_that_a_bridge_makes_its_target_decides(checking: Provider, word: str) -> None:
    places = {name: Queue(f"{word}.{name}") for name in ("asks", "silent", "to-asks", "to-silent")}
    for name, queue in places.items():
        await checking.define(queue, **(NAMED if name.endswith("asks") else {}))
    for source in ("asks", "silent"):
        await checking.define_bridge(places[source], places["to-asks"], places["to-silent"])
    ada = await _session_of(checking, "ada")
    for source in ("asks", "silent"):
        await ada.send(places[source])
    found = {name: [_sender(one) for one in await checking.browse(queue)] for name, queue in places.items()}
    assert found == {"asks": ["ada"], "silent": [None], "to-asks": ["ada", "ada"], "to-silent": [None, None]}


@pytest.mark.covers("EMS-DEST-A35", "EMS-DEST-A36")
async def test_what_a_destination_asks_for_changes_at_once_and_for_what_comes_then(
    checking: Provider, queue: Queue
) -> None:
    ada = await _session_of(checking, "ada")
    producer = await ada.producer(queue)
    for properties in ({}, NAMED, ENFORCED, {}):
        await checking.define(queue, **properties)
        await producer.send(properties={DISABLE_SENDER: True})
        await producer.send()
    found = [_sender(one) for one in await checking.browse(queue)]
    assert found == [None, None, None, "ada", "ada", "ada", None, None]
