"""Durable and shared subscriptions (EMS-CLI-A01 to A03, B17 to B22, D18 to D20)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.conformance.provider import (
    PRESERVE_UNDELIVERED,
    UNDELIVERED,
    Connection,
    Consumer,
    Message,
    Mode,
    Provider,
    Refusal,
    Session,
    Topic,
    refused,
)
from tests.conformance.steps import bodies, receive, send_all, session_of, shared, until_end
from tests.waiting import eventually


@pytest.mark.covers("EMS-CLI-A01", "EMS-CLI-D18", "EMS-STORE-A01", "FMQ-CLI-04", "FMQ-CLI-05", "UM-CLI-A25")
async def test_a_durable_subscription_keeps_what_is_published_while_nobody_is_there(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    await session.send(topic, "before")
    connection = await provider.connect(client_id=word)
    await (await (await connection.session()).consumer(topic, durable="d")).close()
    await session.send(topic, "away")
    await connection.close()
    await session.send(topic, "gone")
    again = await (await session_of(provider, client_id=word)).consumer(topic, durable="d")
    await session.send(topic, "there")
    assert await bodies(again, 3) == ["away", "gone", "there"]


@pytest.mark.covers("EMS-CLI-A01", "UM-CLI-A26")
async def test_unsubscribing_ends_it_and_what_comes_later_is_lost(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    own = await session_of(provider, client_id=word)
    consumer = await own.consumer(topic, durable="d")
    with refused(provider, Refusal.IN_USE):
        await own.unsubscribe("d")
    await consumer.close()
    await session.send(topic, "kept until then")
    await own.unsubscribe("d")
    await session.send(topic, "lost")
    again = await own.consumer(topic, durable="d")
    await session.send(topic, "end")
    assert await until_end(again) == []
    with refused(provider, Refusal.NO_SUCH_SUBSCRIPTION):
        await own.unsubscribe("never there")


@pytest.mark.covers("EMS-CLI-A01")
async def test_a_durable_subscription_has_one_consumer_at_a_time(provider: Provider, topic: Topic, word: str) -> None:
    own = await session_of(provider, client_id=word)
    consumer = await own.consumer(topic, durable="d")
    with refused(provider, Refusal.IN_USE):
        await own.consumer(topic, durable="d")
    await consumer.close()
    await own.consumer(topic, durable="d")


@pytest.mark.covers("EMS-CLI-A01", "EMS-CLI-B17")
async def test_a_durables_name_belongs_to_its_client_id(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    first = await session_of(provider, client_id=f"{word}-1")
    second = await session_of(provider, client_id=f"{word}-2")
    consumers = [await one.consumer(topic, durable="d") for one in (first, second)]
    await session.send(topic, "x")
    for consumer in consumers:
        assert await bodies(consumer, 1) == ["x"]


@pytest.mark.covers("EMS-CLI-B22", "EMS-CLI-D18")
async def test_client_ids_are_used_once_at_a_time(provider: Provider, word: str) -> None:
    first = await provider.connect(client_id=word)
    with refused(provider, Refusal.IN_USE):
        await provider.connect(client_id=word)
    await first.close()
    await provider.connect(client_id=word)


@pytest.mark.covers("EMS-CLI-B22")
async def test_client_ids_and_names_of_subscriptions_may_have_255_characters_whoever_makes_them(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    client_id = (word * 255)[:255]
    own = await session_of(provider, client_id=client_id)
    by_client = await own.consumer(topic, durable="é" * 255)
    await provider.define_durable(topic, "ü" * 255, client_id=client_id)
    by_administrator = await own.consumer(topic, durable="ü" * 255)
    await session.send(topic, "x")
    for consumer in (by_client, by_administrator):
        assert await bodies(consumer, 1) == ["x"]


@pytest.mark.covers("EMS-CLI-A01")
async def test_what_expires_is_kept_for_nobody(provider: Provider, session: Session, topic: Topic, word: str) -> None:
    await provider.define_durable(topic, "d", client_id=word)
    await session.send(topic, "short", time_to_live_ms=1)
    await session.send(topic, "long")
    consumer = await (await session_of(provider, client_id=word)).consumer(topic, durable="d")
    await session.send(topic, "end")
    found = await until_end(consumer)
    assert found[-1:] == ["long"]


@pytest.mark.covers("EMS-CLI-A01", "EMS-CLI-D18")
@pytest.mark.parametrize("changed", ["selector", "topic"])
async def test_a_durable_with_another_selector_or_topic_is_a_new_one(
    provider: Provider, session: Session, topic: Topic, word: str, changed: str
) -> None:
    own = await session_of(provider, client_id=word)
    await (await own.consumer(topic, durable="d")).close()
    await session.send(topic, "old", properties={"n": 1})
    other = Topic(f"{topic.name}.other") if changed == "topic" else topic
    consumer = await own.consumer(other, durable="d", selector="n = 1" if changed == "selector" else "")
    await session.send(other, "end", properties={"n": 1})
    assert await until_end(consumer) == []


@pytest.mark.covers("EMS-CLI-A01", "EMS-DEST-A44", "EMS-CLI-A03")
async def test_a_durable_subscription_may_be_to_a_pattern_and_have_a_selector(
    provider: Provider, session: Session, word: str
) -> None:
    own = await session_of(provider, client_id=word)
    await (await own.consumer(Topic(f"any.{word}.>"), durable="d", selector="n > 1")).close()
    for name, number in (("a", 1), ("a", 2), ("b.c", 3)):
        await session.send(Topic(f"any.{word}.{name}"), f"{name}{number}", properties={"n": number})
    again = await own.consumer(Topic(f"any.{word}.>"), durable="d", selector="n > 1")
    assert await bodies(again, 2) == ["a2", "b.c3"]


@pytest.mark.covers("EMS-CLI-D17", "EMS-CLI-D18")
async def test_a_durable_subscription_may_leave_out_what_is_its_own(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    own = await session_of(provider, client_id=word)
    consumer = await own.consumer(topic, durable="d", no_local=True)
    await own.send(topic, "own")
    await session.send(topic, "end")
    assert await until_end(consumer) == []


# --- Shared


async def _group(
    provider: Provider, topic: Topic, count: int, **options: Any
) -> tuple[list[Consumer], list[Connection]]:
    connections = [await provider.connect() for _ in range(count)]
    consumers = [await (await one.session()).consumer(topic, **options) for one in connections]
    return consumers, connections


# The options of a shared subscription, with the test's word for {w}: not durable, and durable.
GROUPS: list[dict[str, str]] = [{"shared": "{w}"}, {"shared": "{w}", "durable": "{w}"}]


def _named(options: dict[str, str], word: str) -> dict[str, Any]:
    return {key: value.replace("{w}", word) for key, value in options.items()}


@pytest.mark.covers("EMS-CLI-A02", "EMS-CLI-D19", "EMS-CLI-D20", "UM-CLI-A30", "UM-CLI-B07")
@pytest.mark.parametrize("options", GROUPS, ids=["shared", "shared durable"])
async def test_each_message_goes_to_one_of_a_group(
    provider: Provider, session: Session, topic: Topic, word: str, options: dict[str, str]
) -> None:
    consumers, _ = await _group(provider, topic, 3, prefetch=10, **_named(options, word))
    sent = [str(number) for number in range(30)]
    await send_all(session, topic, *sent)
    shares = [await bodies(consumer, 10) for consumer in consumers]
    assert sorted((one for share in shares for one in share), key=int) == sent


@pytest.mark.covers("EMS-CLI-A02")
async def test_a_shared_subscription_lives_while_somebody_consumes(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    [first, second], _ = await _group(provider, topic, 2, shared=word)
    await first.close()
    await session.send(topic, "one is there")
    assert await bodies(second, 1) == ["one is there"]
    await second.close()
    await session.send(topic, "nobody is there")
    [third], _ = await _group(provider, topic, 1, shared=word)
    await session.send(topic, "end")
    assert await until_end(third) == []


@pytest.mark.covers("EMS-CLI-A02", "EMS-CLI-D20")
async def test_a_shared_durable_subscription_keeps_messages_until_it_is_deleted(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    _, connections = await _group(provider, topic, 2, shared=word, durable=word)
    for connection in connections:
        await connection.close()
    await send_all(session, topic, "a", "b")
    [again], [connection] = await _group(provider, topic, 1, shared=word, durable=word)
    assert await bodies(again, 2) == ["a", "b"]
    own = await connection.session()
    with refused(provider, Refusal.IN_USE):
        await own.unsubscribe(word)
    await again.close()
    await session.send(topic, "kept until then")
    await own.unsubscribe(word)
    [fresh], _ = await _group(provider, topic, 1, shared=word, durable=word)
    await session.send(topic, "end")
    assert await until_end(fresh) == []


@pytest.mark.covers("EMS-CLI-A02", "UM-CLI-A30")
@pytest.mark.parametrize("options", GROUPS, ids=["shared", "shared durable"])
async def test_what_a_member_leaves_goes_to_another(
    provider: Provider, session: Session, topic: Topic, word: str, options: dict[str, str]
) -> None:
    leaving = await provider.connect()
    held = await (await leaving.session(Mode.CLIENT)).consumer(topic, prefetch=10, **_named(options, word))
    [staying], _ = await _group(provider, topic, 1, prefetch=10, **_named(options, word))
    await send_all(session, topic, *"abcd")
    kept = await bodies(staying, 2)
    left = await receive(held, 2)
    await leaving.close()
    again = await receive(staying, 2)
    assert [one.body for one in again] == [one.body for one in left]
    assert all(one.redelivered for one in again)
    assert sorted(kept + [one.body for one in again]) == ["a", "b", "c", "d"]


@pytest.mark.covers("EMS-CLI-A02")
@pytest.mark.parametrize("options", GROUPS, ids=["shared", "shared durable"])
async def test_a_live_group_is_not_joined_with_another_topic_or_selector(
    provider: Provider, topic: Topic, word: str, options: dict[str, str]
) -> None:
    await _group(provider, topic, 1, **_named(options, word))
    other = await session_of(provider)
    for source, selector in ((Topic(f"{topic.name}.other"), ""), (topic, "n = 1")):
        with refused(provider, Refusal.IN_USE, Refusal.CONFLICT):
            await other.consumer(source, selector=selector, **_named(options, word))


@pytest.mark.covers("EMS-CLI-A02")
async def test_a_groups_name_may_belong_to_a_client_id_or_to_nobody(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    everybodys = await (await session_of(provider)).consumer(topic, shared="g" + word)
    theirs = await (await session_of(provider, client_id=word)).consumer(topic, shared="g" + word)
    await session.send(topic, "x")
    # Two groups, so each gets it.
    assert await bodies(everybodys, 1) == await bodies(theirs, 1) == ["x"]


@pytest.mark.covers("EMS-CLI-A03", "EMS-DEST-A02", "EMS-CLI-A02")
async def test_each_subscription_of_a_topic_gets_each_message_once(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    own = await session_of(provider, client_id=word)
    plain = [await session.consumer(topic), await own.consumer(topic)]
    durables = [await own.consumer(topic, durable=name) for name in ("d1", "d2")]
    groups = [
        (await _group(provider, topic, 2, shared=f"{word}-s"))[0],
        (await _group(provider, topic, 2, shared=f"{word}-sd", durable=f"{word}-sd"))[0],
        (await _group(provider, Topic(f"{topic.name[: topic.name.rindex('.')]}.*"), 2, shared=f"{word}-p"))[0],
    ]
    await send_all(session, topic, *"abcd")
    for consumer in (*plain, *durables):
        assert await bodies(consumer, 4) == ["a", "b", "c", "d"]
    found = await asyncio.gather(*(shared(group, 4) for group in groups))
    assert [sorted(one) for one in found] == [["a", "b", "c", "d"]] * 3
    # And none of them a second time.
    await session.send(topic, "end")
    for consumer in (*plain, *durables):
        assert await until_end(consumer) == []
    for group in groups:
        assert await shared(group, 1) == ["end"]


# --- By administrators


@pytest.mark.covers("EMS-CLI-B18", "EMS-CLI-B19", "EMS-DEST-B17")
async def test_a_static_durable_keeps_messages_from_its_definition_on(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    await provider.define_durable(topic, "d", client_id=word, selector="n > 1")
    for number in (1, 2, 3):
        await session.send(topic, str(number), properties={"n": number})
    held = await provider.held_by_durable("d", client_id=word)
    assert (held.messages, held.origin) == (2, "static")
    consumer = await (await session_of(provider, client_id=word)).consumer(topic, durable="d", selector="n > 1")
    assert await bodies(consumer, 2) == ["2", "3"]


@pytest.mark.covers("EMS-CLI-B20")
async def test_a_clients_unsubscribe_leaves_a_static_durable(provider: Provider, topic: Topic, word: str) -> None:
    await provider.define_durable(topic, "d", client_id=word)
    own = await session_of(provider, client_id=word)
    await own.send(topic, "x")
    with refused(provider, Refusal.NOT_ALLOWED, Refusal.CONFLICT, Refusal.IN_USE):
        await own.unsubscribe("d")
    assert (await provider.held_by_durable("d", client_id=word)).messages == 1


@pytest.mark.covers("EMS-CLI-B19", "EMS-CLI-B20")
async def test_a_clients_durable_that_is_defined_alike_becomes_static_and_keeps_its_messages(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    own = await session_of(provider, client_id=word)
    await (await own.consumer(topic, durable="d")).close()
    await session.send(topic, "x")
    await provider.define_durable(topic, "d", client_id=word)
    held = await provider.held_by_durable("d", client_id=word)
    assert (held.messages, held.origin) == (1, "static")
    assert await bodies(await own.consumer(topic, durable="d"), 1) == ["x"]


@pytest.mark.covers("EMS-CLI-B20")
async def test_a_static_durable_wins_over_a_client_that_wants_it_otherwise(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    await provider.define_durable(topic, "d", client_id=word, selector="n = 1")
    await session.send(topic, "x", properties={"n": 1})
    own = await session_of(provider, client_id=word)
    with refused(provider, Refusal.CONFLICT, Refusal.NOT_ALLOWED, Refusal.IN_USE):
        await own.consumer(topic, durable="d", selector="n = 2")
    assert (await provider.held_by_durable("d", client_id=word)).messages == 1


@pytest.mark.covers("EMS-DEST-B17")
async def test_a_durable_is_purged_by_itself(provider: Provider, session: Session, topic: Topic, word: str) -> None:
    for name in ("d1", "d2"):
        await provider.define_durable(topic, name, client_id=word)
    await send_all(session, topic, *"abc")
    assert await provider.purge_durable("d1", client_id=word) == 3
    assert (await provider.held_by_durable("d1", client_id=word)).messages == 0
    assert (await provider.held_by_durable("d2", client_id=word)).messages == 3


@pytest.mark.covers("EMS-CLI-B21")
async def test_a_durable_is_deleted_by_client_and_name_and_who_is_not_there_is_named(
    provider: Provider, topic: Topic, word: str
) -> None:
    await provider.define_durable(topic, "d", client_id=word)
    await provider.delete_durable("d", client_id=word)
    with refused(provider, Refusal.NO_SUCH_SUBSCRIPTION):
        await provider.held_by_durable("d", client_id=word)
    with pytest.raises(Exception, match=f"{word}.d") as caught:
        await provider.delete_durable("d", client_id=word)
    assert provider.refusal_of(caught.value) is Refusal.NO_SUCH_SUBSCRIPTION


@pytest.mark.covers("UM-CLI-A29", "EMS-CLI-A01")
async def test_who_comes_back_to_a_durable_begins_behind_what_was_acknowledged(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    connection = await provider.connect(client_id=word)
    taking = await connection.session(Mode.CLIENT)
    consumer = await taking.consumer(topic, durable="d")
    await send_all(session, topic, *"abcd")
    _, second = await receive(consumer, 2)
    with refused(provider, Refusal.IN_USE):
        await (await connection.session(Mode.CLIENT)).consumer(topic, durable="d")
    await second.acknowledge()  # and the one before it
    await session.send(topic, "e")
    await connection.close()
    again = await (await session_of(provider, client_id=word)).consumer(topic, durable="d")
    found = await receive(again, 3)
    assert [(one.body, one.redelivered) for one in found] == [("c", False), ("d", False), ("e", False)]


@pytest.mark.covers("UM-CLI-A23")
@pytest.mark.parametrize("durable", ["", "d"], ids=["plain", "durable"])
async def test_a_subscription_is_read_by_a_listener_or_by_receiving(
    provider: Provider, session: Session, topic: Topic, word: str, durable: str
) -> None:
    taking = await session_of(provider, client_id=word)
    heard: list[Any] = []
    listening = await taking.consumer(topic, durable=durable, listener=lambda message: heard.append(message.body))
    await session.send(topic, "heard")
    await eventually(lambda: heard == ["heard"])
    await listening.close()
    receiving = await taking.consumer(topic, durable=durable)
    await session.send(topic, "received")
    assert await bodies(receiving, 1) == ["received"]
    assert heard == ["heard"]


@pytest.mark.covers("UM-CLI-A31")
@pytest.mark.parametrize("group", [False, True], ids=["own", "shared"])
async def test_a_listener_of_a_durable_gets_what_it_rolled_back_again_at_once_flagged_and_before_all_else(
    provider: Provider, session: Session, topic: Topic, word: str, group: bool
) -> None:
    taking = await session_of(provider, Mode.TRANSACTED, client_id=word)
    heard: list[tuple[Any, bool, int]] = []

    async def listen(message: Message) -> None:
        heard.append((message.body, message.redelivered, message.delivery_count))
        if len(heard) == 2:
            await taking.rollback()
        elif len(heard) == 6:
            await taking.commit()

    options: dict[str, Any] = {"durable": word, **({"shared": word} if group else {})}
    await (await taking.consumer(topic, prefetch=10, **options)).close()
    await send_all(session, topic, *"abcd")
    await taking.consumer(topic, prefetch=10, listener=listen, **options)
    await eventually(lambda: len(heard) == 6)
    # What had only been sent ahead comes behind them, and was not delivered.
    again = [("a", True, 2), ("b", True, 2), ("c", False, 1), ("d", False, 1)]
    assert heard == [("a", False, 1), ("b", False, 1), *again]

    async def nothing_is_kept() -> bool:
        return (await provider.held_by_durable(word, client_id=word)).messages == 0

    await eventually(nothing_is_kept)


@pytest.mark.covers("UM-CLI-A27")
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
async def test_a_message_stays_until_every_durable_has_acknowledged_it_and_is_gone_then(
    provider: Provider, session: Session, word: str, shared: bool
) -> None:
    topic, names = Topic(f"{word}.t"), [f"{word}-{name}" for name in "abc"]
    await provider.define_store(word)
    await provider.define(topic, store=word)
    for name in names:
        await provider.define_durable(topic, name, client_id="" if shared else word, shared=shared)
    await send_all(session, topic, "x", "y")
    taking = await session_of(provider, Mode.EXPLICIT, client_id=word)
    for left, name in reversed(list(enumerate(names))):
        options: dict[str, Any] = {"durable": name, **({"shared": name} if shared else {})}
        own = taking if not shared else await session_of(provider, Mode.EXPLICIT)
        first, second = await receive(await own.consumer(topic, **options), 2)
        assert (await provider.held(topic)).messages == 2 * (left + 1)
        await second.acknowledge()
        await first.acknowledge()

        async def is_less(expected: int = 2 * left) -> bool:
            return (await provider.held(topic)).messages == expected

        await eventually(is_less, what=f"{2 * left} messages in {topic}")
    assert (await provider.stores())[word] == ("sync", 0)


@pytest.mark.covers("UM-DEST-B11")
async def test_a_topic_keeps_a_message_while_somebody_has_not_consumed_it_and_no_longer(
    provider: Provider, session: Session, word: str
) -> None:
    topic, keep = Topic(f"{word}.t"), {PRESERVE_UNDELIVERED: True}
    await provider.define_store(word)
    await provider.define(topic, store=word, expiration=3_600_000, maxmsgs=10)

    async def stored(messages: int) -> None:
        async def are() -> bool:
            return (await provider.held(topic)).messages == (await provider.stores())[word][1] == messages

        await eventually(are, what=f"{messages} messages in {topic}")

    # Nobody is interested: it is gone at once, although it has an hour to live and there is room.
    await session.send(topic, "for nobody", properties=keep)
    await stored(0)
    plain = await session_of(provider, Mode.EXPLICIT)
    durable = await session_of(provider, Mode.EXPLICIT, client_id=word)
    first = await plain.consumer(topic)
    second = await durable.consumer(topic, durable="d")
    await session.send(topic, "x", properties=keep)
    await stored(2)  # a copy for each
    await (await first.receive()).acknowledge()
    await stored(1)
    await second.close()  # a durable's interest outlives its consumer
    await stored(1)
    again = await (await durable.consumer(topic, durable="d")).receive()
    assert again.body == "x"
    await again.acknowledge()
    await stored(0)
    assert [one for one in await provider.browse(UNDELIVERED) if str(one.destination) == str(topic)] == []
