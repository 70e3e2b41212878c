"""Stores, and what is there after a restart (EMS-STORE-A01 to A11, EMS-DEST-A37, EMS-MSG-A20)."""

from __future__ import annotations

import pytest

from tests.conformance.provider import (
    NON_PERSISTENT,
    PERSISTENT,
    RELIABLE,
    Mode,
    Provider,
    Queue,
    Refusal,
    Session,
    Topic,
    refused,
)
from tests.conformance.steps import bodies, receive, send_all, session_of, until_end, waiting


@pytest.mark.covers("EMS-STORE-A01", "EMS-STORE-A02", "EMS-STORE-A03", "EMS-MSG-A17", "EMS-MSG-A18", "EMS-MSG-A19")
@pytest.mark.covers("EMS-STORE-A05", "EMS-STORE-A07", "EMS-CLI-A01", "EMS-CLI-A02", "FMQ-MSG-03", "UM-MSG-B07")
@pytest.mark.parametrize("crash", [True, False], ids=["kill", "stop"])
async def test_what_was_confirmed_and_persistent_is_there_after_a_restart_and_nothing_else(
    provider: Provider, word: str, crash: bool
) -> None:
    static, dynamic, topic = Queue(f"{word}.static"), Queue(f"any.{word}"), Topic(f"any.{word}")
    await provider.define(static, maxmsgs=100)
    session = await session_of(provider, client_id=word)
    await (await session.consumer(topic, durable="d")).close()
    await (await session.consumer(topic, durable=f"{word}-g", shared=f"{word}-g")).close()
    plain = await session.consumer(topic)
    for place in (static, dynamic, topic):
        for mode in (PERSISTENT, NON_PERSISTENT, RELIABLE):
            await session.send(place, mode, delivery_mode=mode, properties={"p": 1}, priority=7)
    assert sorted(await bodies(plain, 3)) == sorted([PERSISTENT, NON_PERSISTENT, RELIABLE])
    temporary = await (await provider.connect()).temporary(Queue)
    await session.send(temporary, "x")
    await provider.restart(crash=crash)
    for queue, origin in ((static, "static"), (dynamic, "dynamic")):
        assert await waiting(provider, queue) == [PERSISTENT]
        assert (await provider.held(queue)).origin == origin
    assert (await provider.effective(static))["maxmsgs"] == 100
    assert temporary.name not in await provider.names(Queue)
    session = await session_of(provider, client_id=word)
    # A plain subscriber is a new one, and gets nothing of what was published before it came.
    plain = await session.consumer(topic)
    await session.send(topic, "end")
    assert await until_end(plain) == []
    kept = await receive(await session.consumer(topic, durable="d"), 2)
    assert [(one.body, one.priority, one.properties["p"]) for one in kept[:1]] == [(PERSISTENT, 7, 1)]
    group = await session.consumer(topic, durable=f"{word}-g", shared=f"{word}-g")
    assert await bodies(group, 2) == [PERSISTENT, "end"]


@pytest.mark.covers("EMS-MSG-A20", "EMS-DEST-A23", "EMS-STORE-A02")
@pytest.mark.parametrize("crash", [True, False], ids=["kill", "stop"])
async def test_the_count_of_deliveries_begins_again_with_the_server_and_the_flag_stays(
    provider: Provider, word: str, crash: bool
) -> None:
    queue = Queue(f"{word}.counted")
    await provider.define(queue, maxRedelivery=8)
    session = await session_of(provider)
    await send_all(session, queue, "delivered", "acknowledged", "never delivered")
    taking = await session_of(provider, Mode.EXPLICIT)
    consumer = await taking.consumer(queue, prefetch=0)
    for _ in range(5):
        await consumer.receive()
        await consumer.receive()
        await taking.recover()
    first, second = await receive(consumer, 2)
    assert (first.delivery_count, second.delivery_count) == (6, 6)
    await second.acknowledge()
    await provider.restart(crash=crash)
    taking = await session_of(provider, Mode.CLIENT)
    consumer = await taking.consumer(queue, prefetch=0)
    # That it was delivered is all that is known of it: the limit begins anew, too.
    for count in range(1, 9):
        message = await consumer.receive()
        assert (message.body, message.redelivered, message.delivery_count) == ("delivered", True, count)
        await taking.recover()
    assert (await consumer.receive()).body == "never delivered"
    assert await waiting(provider, queue) == ["never delivered"]


@pytest.mark.covers("EMS-TX-D01", "EMS-STORE-A02", "EMS-TX-A03")
async def test_of_transactions_a_restart_knows_what_was_committed(provider: Provider, word: str) -> None:
    source, target = Queue(f"any.{word}.s"), Queue(f"any.{word}.t")
    await send_all(await session_of(provider), source, "a", "b")
    working = await session_of(provider, Mode.TRANSACTED)
    consumer = await working.consumer(source)
    for commits in (True, False):
        message = await consumer.receive()
        await working.send(target, message.body.upper())
        if commits:
            await working.commit()
    await provider.restart(crash=True)
    assert await waiting(provider, source) == ["b"]
    assert await waiting(provider, target) == ["A"]


@pytest.mark.covers("EMS-MSG-A04", "EMS-DEST-A14", "EMS-DEST-A62")
async def test_times_go_on_over_a_restart(provider: Provider, word: str) -> None:
    queue = Queue(f"any.{word}")
    session = await session_of(provider)
    await session.send(queue, "short", time_to_live_ms=1)
    await session.send(queue, "long", time_to_live_ms=3_600_000)
    await session.send(queue, "late", delivery_delay_ms=3_600_000)
    before = {one.body: one.expiration_ms for one in await provider.browse(queue)}
    await provider.restart(crash=True)
    found = {one.body: one.expiration_ms for one in await provider.browse(queue)}
    assert "short" not in found
    assert found["long"] == before["long"]
    session = await session_of(provider)
    consumer = await session.consumer(queue)
    await session.send(queue, "end")
    assert await until_end(consumer) == ["long"]


@pytest.mark.covers("EMS-STORE-A07", "EMS-STORE-A10", "EMS-DEST-A37", "EMS-STORE-A06", "EMS-STORE-B02")
async def test_destinations_name_their_store_and_clients_see_no_difference(
    provider: Provider, session: Session, word: str
) -> None:
    await provider.define_store(f"{word}-sync", "sync")
    await provider.define_store(f"{word}-async", "async")
    for store in (f"{word}-sync", f"{word}-async", "$sys.failsafe", "$sys.nonfailsafe"):
        queue = Queue(f"{word}.{store.replace('$', '')}")
        await provider.define(queue, store=store)
        assert (await provider.effective(queue))["store"] == store
        consumer = await session.consumer(queue)
        await send_all(session, queue, "a", "b")
        assert await bodies(consumer, 2) == ["a", "b"]


@pytest.mark.covers("EMS-STORE-B14", "EMS-STORE-A10", "EMS-STORE-B05", "EMS-STORE-A09", "EMS-STORE-B15")
async def test_an_administrator_sees_each_store_with_its_mode_and_what_it_holds(
    provider: Provider, session: Session, word: str
) -> None:
    for mode in ("sync", "async"):
        store = f"{word}-{mode}"
        await provider.define_store(store, mode)
        queues = [Queue(f"{word}.{mode}.{number}") for number in range(2)]
        for queue in queues:
            await provider.define(queue, store=store)
            await send_all(session, queue, "a", "b")
        assert (await provider.stores())[store] == (mode, 4)
        await provider.purge(queues[0])
        assert (await provider.stores())[store] == (mode, 2)
    assert {"$sys.failsafe", "$sys.nonfailsafe"} <= set(await provider.stores())


@pytest.mark.covers("EMS-STORE-A10", "EMS-STORE-A15", "EMS-DEST-A47", "EMS-DEST-A37")
async def test_a_wildcard_entry_names_the_store_of_all_that_it_matches(
    provider: Provider, session: Session, word: str
) -> None:
    await provider.define(Queue(f"{word}.>"), store="$sys.nonfailsafe")
    queue = Queue(f"{word}.a.b")
    await session.send(queue, "x")
    assert (await provider.effective(queue))["store"] == "$sys.nonfailsafe"


@pytest.mark.covers("EMS-STORE-A10", "EMS-DEST-A37")
async def test_a_store_that_is_not_there_is_no_store(provider: Provider, word: str) -> None:
    with refused(provider, Refusal.INVALID_VALUE, Refusal.CONFLICT):
        await provider.define(Queue(f"{word}.q"), store="never-defined")
    assert f"{word}.q" not in await provider.names(Queue)


@pytest.mark.covers("EMS-STORE-A07", "EMS-STORE-B05")
@pytest.mark.parametrize(("name", "mode"), [("$sys.failsafe", "async"), ("$sys.nonfailsafe", "sync"), ("$own", "sync")])
async def test_the_default_stores_keep_their_modes(provider: Provider, name: str, mode: str) -> None:
    with refused(provider, Refusal.INVALID_VALUE):
        await provider.define_store(name, mode)


@pytest.mark.covers("EMS-STORE-A11", "EMS-DEST-A37")
async def test_another_store_loses_nothing_of_what_is_there(provider: Provider, session: Session, word: str) -> None:
    queue = Queue(f"{word}.moving")
    await provider.define(queue, store="$sys.nonfailsafe")
    await send_all(session, queue, "a", "b")
    await provider.define(queue, store="$sys.failsafe")
    await session.send(queue, "c")
    await provider.restart(crash=False)
    assert await waiting(provider, queue) == ["a", "b", "c"]


@pytest.mark.covers("EMS-STORE-C09", "EMS-STORE-B05")
async def test_a_store_that_says_no_mode_is_synchronous(provider: Provider, session: Session, word: str) -> None:
    await provider.define_store(word)
    queue = Queue(f"{word}.q")
    await provider.define(queue, store=word)
    sent = await session.send(queue, "x")
    assert (await provider.stores())[word] == ("sync", 1)
    await provider.define_store(word, "async")
    assert (await provider.stores())[word] == ("async", 1)
    assert [one.message_id for one in await provider.browse(queue)] == [sent.message_id]
    with refused(provider, Refusal.INVALID_VALUE):
        await provider.define_store(f"{word}-2", "replicated")
    assert f"{word}-2" not in await provider.stores()
