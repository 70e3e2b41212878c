"""Sending: confirmed one by one, soon with a window, defaults and overrides, refusals."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
import sterna
import sterna.admin
from sterna import DeliveryMode, Durability, Sent, SternaError, Topic, errors

from tests.running import RunningBroker, manifest
from tests.sdk.conftest import Connect, drain
from tests.waiting import eventually


@pytest.mark.covers("EMS-CLI-A21", "EMS-MSG-A17", "EMS-CLI-A04", "EMS-PERF-A09")
async def test_send_returns_what_is_on_disk(connect: Connect, name: str) -> None:
    connection = await connect()
    before = time.time_ns() // 1_000_000
    sent = await connection.send(name, "x")
    assert sent.durability == Durability.DURABLE
    assert before - 1000 <= sent.timestamp_ms <= time.time_ns() // 1_000_000 + 1000
    message = await (await connection.consumer(name)).receive(5)
    assert message is not None
    assert (message.body, message.delivery_mode) == ("x", DeliveryMode.PERSISTENT)


# The store; what a confirmed send says of the message.
STORES = [
    ("", Durability.DURABLE),
    ("$sys.failsafe", Durability.DURABLE),
    ("$sys.nonfailsafe", Durability.ACCEPTED),
]


@pytest.mark.covers("EMS-STORE-A04", "EMS-STORE-A07")
async def test_a_send_waits_for_the_disk_unless_its_store_is_asynchronous(
    connect: Connect, url: str, name: str
) -> None:
    connection = await connect()
    async with sterna.admin.connect(url) as admin:
        for number, (store, expected) in enumerate(STORES):
            place = f"{name}.{number}"
            spec = {"name": place, **({"store": store} if store else {})}
            document = {"apiVersion": "sterna.dev/v1alpha1", "kind": "Queue", "metadata": {"name": f"q{number}"}}
            await admin.apply(json.dumps({**document, "spec": spec}))
            assert (await connection.send(place, "x")).durability is expected, store


@pytest.mark.covers("EMS-STORE-A03")
async def test_what_is_published_persistently_is_stored_only_while_somebody_subscribes_durably(
    own_broker: RunningBroker, connect: Connect
) -> None:
    url = f"sterna://{own_broker.address}"
    connection = await connect(url, client_id="c")
    session = await connection.session()
    news, pattern = Topic("news"), Topic("*")
    producer = await connection.producer(news)

    async def is_stored(admin: sterna.admin.Admin, **how: Any) -> bool:
        before = (await admin.statistics()).log.end_position
        sent = await producer.send("x" * 10_000, **how)
        grown = (await admin.statistics()).log.end_position - before
        assert (grown > 10_000) == (sent.durability is Durability.DURABLE)
        assert grown > 10_000 or grown == 0
        return grown > 10_000

    async with sterna.admin.connect(url) as admin:
        assert not await is_stored(admin)
        plain = await session.consumer(news)
        await session.consumer(pattern)
        await session.consumer(news, shared="group")
        assert not await is_stored(admin)
        assert not await is_stored(admin, delivery_delay_ms=1)
        assert [one.body[:1] for one in await drain(plain, 2)] == ["x", "x"]
        subscriptions: list[tuple[Topic, dict[str, Any]]] = [
            (news, {"durable": "d"}),
            (pattern, {"durable": "d"}),
            (news, {"durable": "d", "shared": True}),
        ]
        for topic, options in subscriptions:
            await (await session.consumer(topic, **options)).close()
            assert await is_stored(admin)
            assert await is_stored(admin, delivery_delay_ms=1)
            assert not await is_stored(admin, delivery_mode=DeliveryMode.NON_PERSISTENT)
            await session.unsubscribe("d")
            assert not await is_stored(admin)
        # Nor for one whose selector does not want it.
        await session.consumer(news, durable="d", selector="wanted")
        assert not await is_stored(admin)
        assert await is_stored(admin, properties={"wanted": True})


@pytest.mark.covers("EMS-MSG-A26")
async def test_the_sender_knows_the_message_id(connect: Connect, name: str) -> None:
    connection = await connect()
    async with await connection.producer(name) as producer:
        sent = [await producer.send(str(number)) for number in range(3)]
    found = await drain(await connection.consumer(name), 3)
    assert [one.message_id for one in found] == [one.message_id for one in sent]
    start = f"ID:{connection.broker}."
    tags = {one.message_id.rpartition(":")[0] for one in sent}
    assert len(tags) == 1
    assert tags.pop().startswith(start)
    assert [int(one.message_id.rpartition(":")[2]) for one in sent] == [1, 2, 3]


@pytest.mark.covers("EMS-MSG-A26")
async def test_sender_receiver_and_selector_write_an_id_alike(connect: Connect, name: str) -> None:
    connection = await connect()
    # Sixteen producers in a row: the hexadecimal numbers of some have letters.
    sent = []
    for _ in range(16):
        async with await connection.producer(name) as producer:
            sent.append((await producer.send("x")).message_id)
    assert [one.message_id async for one in connection.browser(name)] == sent
    for message_id in sent:
        selected = [one.message_id async for one in connection.browser(name, selector=f"JMSMessageID = '{message_id}'")]
        assert selected == [message_id]


@pytest.mark.covers("EMS-MSG-A03")
async def test_the_delivery_time_is_the_arrival_and_the_delay(connect: Connect, name: str) -> None:
    connection = await connect()
    sent = await connection.send(name, "later", delivery_delay_ms=300)
    assert sent.delivery_time_ms == sent.timestamp_ms + 300
    message = await (await connection.consumer(name)).receive(5)
    assert message is not None
    assert time.time_ns() // 1_000_000 >= sent.delivery_time_ms - 5
    assert (message.timestamp_ms, message.delivery_time_ms) == (sent.timestamp_ms, sent.delivery_time_ms)
    at_once = await connection.send(name, "now")
    assert at_once.delivery_time_ms == at_once.timestamp_ms


@pytest.mark.covers("EMS-CLI-A29", "EMS-MSG-A15", "EMS-MSG-A16")
async def test_a_send_overrides_the_producers_defaults(connect: Connect, name: str) -> None:
    connection = await connect()
    options = {"delivery_mode": DeliveryMode.NON_PERSISTENT, "priority": 2, "time_to_live_ms": 60_000}
    async with await connection.producer(name, **options) as producer:
        await producer.send("defaults")
        await producer.send(
            "overridden", delivery_mode=DeliveryMode.PERSISTENT, priority=7, time_to_live_ms=0, delivery_delay_ms=1
        )
    async with await connection.producer(name) as plain:
        await plain.send("plain")
    found = {one.body: one for one in await drain(await connection.consumer(name), 3)}
    defaults, overridden, unset = found["defaults"], found["overridden"], found["plain"]
    assert (defaults.delivery_mode, defaults.priority) == (DeliveryMode.NON_PERSISTENT, 2)
    assert defaults.expiration_ms == defaults.timestamp_ms + 60_000
    assert (overridden.delivery_mode, overridden.priority) == (DeliveryMode.PERSISTENT, 7)
    assert overridden.expiration_ms == 0
    assert overridden.delivery_time_ms == overridden.timestamp_ms + 1
    assert (unset.delivery_mode, unset.priority, unset.expiration_ms) == (DeliveryMode.PERSISTENT, 4, 0)


@pytest.mark.covers("EMS-MSG-A16", "EMS-PERF-A09")
async def test_a_non_persistent_message_is_confirmed_as_accepted(connect: Connect, name: str) -> None:
    connection = await connect()
    sent = await connection.send(name, "x", delivery_mode=DeliveryMode.NON_PERSISTENT)
    assert sent.durability == Durability.ACCEPTED


async def test_many_are_confirmed_in_order_and_none_is_lost(connect: Connect, name: str) -> None:
    connection = await connect()
    producer = await connection.producer(name, window=100)
    most = 0
    for number in range(3000):
        await producer.send_soon(number.to_bytes(4, "big"))
        most = max(most, producer.unconfirmed)
    await producer.flush()
    assert producer.unconfirmed == 0
    assert most <= 100
    consumer = await connection.consumer(name, prefetch=500)
    found = [int.from_bytes((await anext(consumer)).body, "big") for _ in range(3000)]
    assert found == list(range(3000))


async def test_sends_of_many_tasks_all_arrive(connect: Connect, name: str) -> None:
    connection = await connect()
    producer = await connection.producer(name)
    sent = await asyncio.gather(*(producer.send(str(number)) for number in range(500)))
    assert len({one.message_id for one in sent}) == 500
    found = await drain(await connection.consumer(name, prefetch=500), 500)
    assert [one.body for one in found] == [str(number) for number in range(500)]


SMALL = [manifest("Queue", "small", "maxMessages: 2, overflowPolicy: rejectIncoming"), manifest("Queue", "there")]


@pytest.mark.covers("EMS-CLI-A22")
@pytest.mark.parametrize("own_broker", [SMALL], indirect=True)
async def test_a_completion_listener_hears_of_success_and_failure(own_broker: RunningBroker, connect: Connect) -> None:
    connection = await connect(f"sterna://{own_broker.address}")
    producer = await connection.producer("small")
    outcomes: list[Sent | SternaError] = []
    for number in range(4):
        await producer.send_soon(str(number), on_completion=outcomes.append)
    await producer.flush()  # what a listener was told is not raised again
    sent = [one for one in outcomes if isinstance(one, Sent)]
    assert [one.message_id.rpartition(":")[2] for one in sent] == ["1", "2"]
    assert sum(isinstance(one, errors.DestinationFullError) for one in outcomes) == 2

    for number in range(2):
        await producer.send_soon(str(number))
    with pytest.raises(errors.FlushError) as caught:
        await producer.flush()
    assert [message_id.rpartition(":")[2] for message_id, _ in caught.value.failures] == ["5", "6"]
    assert isinstance(caught.value.failures[0][1], errors.DestinationFullError)
    await producer.flush()  # and only once

    with pytest.raises(errors.DestinationFullError):
        await producer.send("refused")
    consumer = await connection.consumer("small")
    assert [one.body for one in await drain(consumer, 2)] == ["0", "1"]


async def test_a_raising_completion_listener_is_reported(connect: Connect, name: str) -> None:
    connection = await connect()
    reported: list[BaseException] = []
    connection.on_error(reported.append)
    producer = await connection.producer(name)

    def broken(_: object) -> None:
        raise RuntimeError("mine")

    await producer.send_soon("x", on_completion=broken)
    await producer.flush()
    assert [str(one) for one in reported] == ["mine"]


@pytest.mark.covers("EMS-MSG-A19", "EMS-PERF-A09")
@pytest.mark.parametrize("own_broker", [SMALL], indirect=True)
async def test_reliable_messages_are_neither_confirmed_nor_refused(own_broker: RunningBroker, connect: Connect) -> None:
    connection = await connect(f"sterna://{own_broker.address}")
    reported: list[BaseException] = []
    connection.on_error(reported.append)
    producer = await connection.producer()
    reliable = DeliveryMode.RELIABLE
    sent = await producer.send("nowhere", destination="not-there", delivery_mode=reliable)
    assert sent.durability is None
    for _ in range(4):
        await producer.send("x", destination="small", delivery_mode=reliable)
    await producer.send("arrives", destination="there", delivery_mode=reliable)
    message = await (await connection.consumer("there")).receive(5)
    assert message is not None
    assert (message.body, message.delivery_mode) == ("arrives", reliable)
    assert len(await drain(await connection.consumer("small"), 2)) == 2
    await producer.flush()
    assert reported == []
    with pytest.raises(errors.NoSuchDestinationError):
        await producer.send("x", destination="not-there")


async def test_an_anonymous_producer_names_a_destination_each_time(connect: Connect, name: str) -> None:
    connection = await connect()
    producer = await connection.producer()
    for destination in (f"{name}.a", f"{name}.b", f"{name}.a"):
        await producer.send_soon(destination, destination=destination)
    await producer.flush()
    assert [one.body for one in await drain(await connection.consumer(f"{name}.a"), 2)] == [f"{name}.a"] * 2
    assert [one.body for one in await drain(await connection.consumer(f"{name}.b"), 1)] == [f"{name}.b"]
    with pytest.raises(errors.InvalidArgumentError):
        await producer.send("x")


async def test_a_bound_producer_sends_nowhere_else(connect: Connect, name: str) -> None:
    connection = await connect()
    producer = await connection.producer(name)
    with pytest.raises(errors.NotAllowedError):
        await producer.send("x", destination="other")
    await producer.send("x", destination=name)


@pytest.mark.covers("EMS-DEST-A44", "EMS-DEST-A45")
async def test_nothing_is_sent_to_a_pattern(connect: Connect) -> None:
    connection = await connect()
    for pattern in ("a.*", "a.>"):
        with pytest.raises(SternaError) as caught:
            await connection.producer(Topic(pattern))
        assert isinstance(caught.value, errors.UsageError)
        with pytest.raises(SternaError):
            await connection.producer(pattern)


async def test_a_closed_producer_says_so(connect: Connect, name: str) -> None:
    connection = await connect()
    producer = await connection.producer(name)
    await producer.close()
    with pytest.raises(errors.ClosedError):
        await producer.send("x")


async def test_closing_the_connection_confirms_what_was_sent_soon(connect: Connect, url: str, name: str) -> None:
    async with sterna.connect(url) as connection:
        producer = await connection.producer(name)
        for number in range(200):
            await producer.send_soon(str(number))
    other = await connect()
    assert len(await drain(await other.consumer(name, prefetch=200), 200)) == 200


async def test_the_window_in_bytes_holds_senders_back_and_lets_go(connect: Connect, name: str) -> None:
    connection = await connect()
    producer = await connection.producer(name)
    body = b"x" * 300_000
    for _ in range(200):  # 60 MB, more than may be in flight
        await producer.send_soon(body)
    await producer.flush()
    consumer = await connection.consumer(name, prefetch=10)
    for _ in range(200):
        assert (await anext(consumer)).body == body


async def test_many_producers_together_have_no_more_in_flight_than_one(connect: Connect, name: str) -> None:
    connection = await connect()
    session = await connection.session()
    producers = [await session.producer(Topic(name)) for _ in range(20)]
    for producer in producers:
        await producer.send("x")
    flow = connection._lifeline.flow
    body, most = b"x" * 100_000, 0

    async def flood(producer: sterna.Producer) -> None:
        nonlocal most
        for _ in range(30):  # 60 MB together
            await producer.send_soon(body)
            most = max(most, flow.bytes)

    await asyncio.gather(*(flood(producer) for producer in producers))
    await session.flush()
    assert flow.limit - len(body) < most <= flow.limit + 2 * len(body)


@pytest.mark.parametrize(
    "own_broker",
    [
        (
            manifest("Broker", "broker", "flowControl: true, limits: {uploadBytes: 2097152}"),
            manifest("Queue", "held", "flowControlBytes: 262144"),
        )
    ],
    indirect=True,
    ids=["2 MiB of uploads"],
)
async def test_large_bodies_that_flow_control_holds_back_are_not_refused(
    own_broker: RunningBroker, connect: Connect
) -> None:
    address = f"sterna://{own_broker.address}"
    connection = await connect(address)
    session = await connection.session()
    producers = [await session.producer("held") for _ in range(4)]
    # The first of them is taken, and the rest held back, with their bodies ahead of them.
    sending = [asyncio.create_task(one.send(b"x" * 1_000_000)) for one in producers for _ in range(2)]
    await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
    assert len(await drain(await (await connect(address)).consumer("held", prefetch=1), 8)) == 8
    await asyncio.gather(*sending)


@pytest.mark.parametrize(
    "own_broker",
    [(manifest("Broker", "broker", "flowControl: true"), manifest("Queue", "held", "flowControlBytes: 1000"))],
    indirect=True,
    ids=["flow control"],
)
async def test_a_producer_is_closed_when_the_broker_has_taken_what_is_held_back_and_nobody_confirms(
    own_broker: RunningBroker, connect: Connect
) -> None:
    address = f"sterna://{own_broker.address}"
    producer = await (await connect(address)).producer("held")
    await producer.send(b"x" * 1_200)
    for body in ("late", "later"):
        await producer.send(body, delivery_mode=DeliveryMode.RELIABLE)
    closing = asyncio.create_task(producer.close())

    async def is_held() -> bool:
        async with sterna.admin.connect(address) as admin:
            return (await admin.resource("Queue", "held")).statistics.flow_controlled_sessions == 1

    await eventually(is_held, what="flow control")
    assert not closing.done()
    found = await drain(await (await connect(address)).consumer("held", prefetch=1), 3)
    await closing
    assert [one.body for one in found][1:] == ["late", "later"]


@pytest.mark.covers("EMS-MSG-A15")
async def test_a_higher_priority_is_handed_out_first(connect: Connect, name: str) -> None:
    connection = await connect()
    producer = await connection.producer(name)
    for priority in (0, 9, 4, 9, 1):
        await producer.send(str(priority), priority=priority)
    found = await drain(await connection.consumer(name, prefetch=1), 5)
    assert [one.body for one in found] == ["9", "9", "4", "1", "0"]
