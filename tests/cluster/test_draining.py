"""A broker is emptied: what holds nothing moves at once, the rest when it is consumed, and whoever uses it follows."""

import asyncio

import pytest
import sterna
from sterna import errors
from sterna_etcd.records import BrokerStatus, Draining, DrainRecord

from tests.cluster.conftest import LAYOUT, Cluster, Connect, Operator, document, waited
from tests.waiting import eventually


async def drain(operator: Operator, broker: str, *, force: bool = False, closes_only: bool = False) -> None:
    """Has a broker emptied, or only closed."""
    await operator.etcd.put(LAYOUT.drain(broker), DrainRecord(force=force, closes_only=closes_only).encode())


async def draining(operator: Operator, broker: str) -> Draining | None:
    """What a broker says it still has."""
    key = LAYOUT.broker_status(broker)
    found = (await operator.etcd.get(key)).found
    return BrokerStatus.decode(key, found.value).draining if found else None


async def until_left(operator: Operator, broker: str, destinations: int, messages: int) -> None:
    """Until a broker that is being emptied has so much left."""

    async def look() -> bool:
        left = await draining(operator, broker)
        return left is not None and (left.destinations, left.messages) == (destinations, messages)

    await waited(look, 20, f"{destinations} destinations with {messages} messages to be left")


async def until_over(operator: Operator, broker: str) -> None:
    """Until a broker has heard that it is not to be emptied any more."""

    async def over() -> bool:
        return await draining(operator, broker) is None

    await waited(over, 10, "the drain to be over")


@pytest.fixture
async def spread(two: Cluster, operator: Operator) -> Cluster:
    """Two brokers, and any name below app. may be created."""
    for kind in ("Queue", "Topic"):
        claim = await operator.put(document(kind, "any", name="app.>"), claim="app.>")
        await operator.until(claim, "applied")
    return two


async def test_what_is_empty_moves_and_its_users_follow(spread: Cluster, operator: Operator, connect: Connect) -> None:
    connection = await connect(spread.url("b0"))
    await operator.until(await operator.put(document("Queue", "orders", broker="b1")), "applied")
    producer, consumer = await connection.producer("orders"), await connection.consumer("orders")
    # `spec.broker` is where it is placed first; a broker that is being emptied is left nevertheless.
    await producer.send("before")
    first = await consumer.receive(5)
    assert first is not None
    await consumer.receive(0.05)  # the acknowledgement leaves
    await drain(operator, "b1")
    await until_left(operator, "b1", 0, 0)
    assert await operator.home("queue", "orders") == "b0"
    await asyncio.wait_for(producer.send("after"), 10)
    after = await consumer.receive(10)
    assert after is not None
    assert after.text == "after"
    # What is new goes elsewhere from now on.
    for number in range(3):
        await connection.send(f"app.{number}", "x")
        assert await operator.home("queue", f"app.{number}") == "b0"


async def test_what_has_messages_is_closed_to_producers_until_they_are_consumed(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    connection = await connect(spread.url("b0"))
    await operator.until(await operator.put(document("Queue", "orders", broker="b1")), "applied")
    producer = await connection.producer("orders")
    await producer.send("one")
    await producer.send("two")
    await drain(operator, "b1")
    await until_left(operator, "b1", 1, 2)
    assert await operator.home("queue", "orders") == "b1"
    with pytest.raises(errors.UnavailableError, match="moved to another broker"):
        await producer.send("refused")
    consumer = await connection.consumer("orders")
    assert [message.text for _ in range(2) if (message := await consumer.receive(5))] == ["one", "two"]
    await consumer.receive(0.05)
    await until_left(operator, "b1", 0, 0)
    assert await operator.home("queue", "orders") == "b0"
    await (await connection.producer("orders")).send("three")
    third = await consumer.receive(10)
    assert third is not None
    assert third.text == "three"


async def test_a_drain_that_is_taken_back_opens_what_was_closed(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    connection = await connect(spread.url("b0"))
    await operator.until(await operator.put(document("Queue", "orders", broker="b1")), "applied")
    producer = await connection.producer("orders")
    await producer.send("one")
    await drain(operator, "b1")
    await until_left(operator, "b1", 1, 1)
    await operator.etcd.delete(LAYOUT.drain("b1"))

    await until_over(operator, "b1")
    await (await connection.producer("orders")).send("two")
    assert await operator.home("queue", "orders") == "b1"


async def test_a_cluster_that_is_to_go_takes_no_messages_moves_nothing_and_can_be_opened_again(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    connection = await connect(spread.url("b0"))
    for name, broker in (("orders", "b1"), ("spare", "b0")):
        await operator.until(await operator.put(document("Queue", name, broker=broker)), "applied")
    await operator.until(await operator.put(document("Topic", "prices", broker="b1")), "applied")
    producers = {name: await connection.producer(name) for name in ("orders", "spare")}
    producers["prices"] = await connection.producer(sterna.Topic("prices"))
    reader = await connect(spread.url("b0"), client_id="reader")
    await reader.consumer(sterna.Topic("prices"), durable="news")
    await producers["orders"].send("one")
    for broker in ("b0", "b1"):
        await drain(operator, broker, closes_only=True)
    await until_left(operator, "b0", 1, 0)
    await until_left(operator, "b1", 2, 1)
    left = await draining(operator, "b1")
    assert left is not None
    assert left.is_closed
    assert left.waits_for == ""
    for producer in producers.values():
        with pytest.raises(errors.UnavailableError, match="is being deleted"):
            await producer.send("refused")
    consumer = await connection.consumer("orders")
    first = await consumer.receive(5)
    assert first is not None
    assert first.text == "one"
    await consumer.receive(0.05)  # the acknowledgement leaves
    await until_left(operator, "b1", 2, 0)
    assert [await operator.home("queue", name) for name in ("orders", "spare")] == ["b1", "b0"]
    # A name that does not exist yet gets no home in a cluster that is going.
    with pytest.raises(errors.UnavailableError, match="is being deleted"):
        await connection.send("app.new", "x")
    assert await operator.home("queue", "app.new") == ""
    for broker in ("b0", "b1"):
        await operator.etcd.delete(LAYOUT.drain(broker))
        await until_over(operator, broker)
    for producer in producers.values():
        await producer.send("taken again")


async def test_a_closed_broker_that_is_to_be_emptied_instead_gives_its_names_away(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    connection = await connect(spread.url("b0"))
    await operator.until(await operator.put(document("Queue", "orders", broker="b1")), "applied")
    await connection.send("orders", "one")
    await drain(operator, "b1", closes_only=True)
    await until_left(operator, "b1", 1, 1)
    await drain(operator, "b1")

    async def tells() -> bool:
        with pytest.raises(errors.UnavailableError) as refused:
            await connection.send("orders", "refused")
        return "moved to another broker" in str(refused.value)

    await waited(tells, 20, "the other reason")
    consumer = await connection.consumer("orders")
    assert await consumer.receive(5) is not None
    await consumer.receive(0.05)
    await until_left(operator, "b1", 0, 0)
    await connection.send("orders", "two")


async def test_force_leaves_messages_behind_and_says_so(spread: Cluster, operator: Operator, connect: Connect) -> None:
    connection = await connect(spread.url("b0"))
    await operator.until(await operator.put(document("Queue", "orders", broker="b1")), "applied")
    await connection.send("orders", "left behind")
    await drain(operator, "b1", force=True)

    async def moved() -> bool:
        return await operator.home("queue", "orders") == "b0"

    await waited(moved, 20, "the new home")
    await (await connect(spread.url("b0"))).send("orders", "new")

    async def said() -> bool:
        found = await asyncio.to_thread(spread.readiness, "b1")
        return any("queue 'orders' (1)" in warning for warning in found["warnings"])

    await waited(said, 30, "a warning of what is left behind")


async def test_a_topic_with_durables_of_clients_stays(spread: Cluster, operator: Operator, connect: Connect) -> None:
    await operator.until(await operator.put(document("Topic", "prices", broker="b1")), "applied")
    reader = await connect(spread.url("b0"), client_id="reader")
    await reader.consumer(sterna.Topic("prices"), durable="news")
    await drain(operator, "b1")
    await until_left(operator, "b1", 1, 0)
    left = await draining(operator, "b1")
    assert left is not None
    assert left.waits_for == "topic 'prices' has 1 durable subscription that clients made"
    await reader.close()
    again = await connect(spread.url("b1"), client_id="reader")
    await again.unsubscribe("news")
    await until_left(operator, "b1", 0, 0)
    assert await operator.home("topic", "prices") == "b0"


async def test_nothing_is_lost_or_doubled_while_a_queue_moves_to_and_fro(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    sender, receiver = await connect(spread.url("b0")), await connect(spread.url("b1"))
    consumer = await receiver.consumer("app.moving")
    producer = await sender.producer("app.moving")
    received: list[str] = []
    sent: list[str] = []
    stop = asyncio.Event()

    async def send() -> None:
        number = 0
        while not stop.is_set():
            try:
                await producer.send(str(number))
            except errors.UnavailableError:
                # Closed for the moment, since it has to become empty to move: told, not lost.
                continue
            sent.append(str(number))
            number += 1

    async def take() -> None:
        async for message in consumer:
            received.append(message.text)  # noqa: PERF401 - it never ends

    sending, taking = asyncio.create_task(send()), asyncio.create_task(take())
    for _ in range(2):
        home = await operator.home("queue", "app.moving")
        await drain(operator, home)

        async def moved(home: str = home) -> bool:
            return await operator.home("queue", "app.moving") not in (home, "")

        await waited(moved, 30, "a move")
        await operator.etcd.delete(LAYOUT.drain(home))
        count = len(sent)
        await eventually(lambda count=count: len(sent) > count + 5, timeout_s=20, what="sends to go on")  # type: ignore[misc]
    stop.set()
    await asyncio.wait_for(sending, 20)
    await eventually(lambda: len(received) >= len(sent), timeout_s=20, what="all to arrive")
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    assert received == sent
