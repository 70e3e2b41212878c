"""A broker is emptied: what holds nothing moves at once, the rest when it is consumed, and whoever uses it follows."""

import asyncio

import pytest
import sterna
from sterna import errors
from sterna_etcd.records import BrokerRecord, Deleting, Draining

from tests.cluster.conftest import LAYOUT, Cluster, Connect, Operator, document, waited
from tests.cluster.drains import drain, draining, status, until_left
from tests.waiting import eventually


async def until_held(operator: Operator, broker: str, destinations: int) -> None:
    """Until a message keeps so many here: a counted one, or one that the engine names when they are to leave."""

    async def look() -> bool:
        left = await draining(operator, broker)
        if left is None or left.destinations != destinations:
            return False
        return left.messages > 0 or "still holds 1 messages" in left.waits_for

    await waited(look, 30, f"{destinations} destinations to be held")


async def bridged(operator: Operator) -> None:
    """Two queues on b1, and a bridge from one to the other."""
    for name in ("orders", "orders-archive"):
        await operator.until(await operator.put(document("Queue", name, broker="b1")), "applied")
    bridge = document("Bridge", "keep", source={"queue": "orders"}, targets=[{"queue": "orders-archive"}])
    await operator.until(await operator.put(bridge), "applied")


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
        await operator.everywhere(claim)
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
    with pytest.raises(errors.SendTimeoutError):
        await producer.send("given up", timeout=0.5)
    waiting = asyncio.create_task(producer.send("three"))
    consumer = await connection.consumer("orders")
    assert [message.text for _ in range(2) if (message := await consumer.receive(5))] == ["one", "two"]
    await consumer.receive(0.05)
    await until_left(operator, "b1", 0, 0)
    assert await operator.home("queue", "orders") == "b0"
    await waiting
    third = await consumer.receive(10)
    assert third is not None
    assert third.text == "three"


async def test_what_is_sent_in_an_open_transaction_keeps_its_queue_and_closes_it(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    connection = await connect(spread.url("b1"))
    await operator.until(await operator.put(document("Queue", "orders", broker="b1")), "applied")
    session = await connection.session(transacted=True)
    await (await session.producer("orders")).send("decided late")
    await drain(operator, "b1")
    await until_held(operator, "b1", 1)
    assert await operator.home("queue", "orders") == "b1"
    # Otherwise transactions of others could follow each other forever.
    with pytest.raises(errors.SendTimeoutError):
        await connection.send("orders", "given up", timeout=0.5)
    await session.commit()
    await until_left(operator, "b1", 1, 1)
    consumer = await connection.consumer("orders")
    assert await consumer.receive(10) is not None
    await consumer.receive(0.05)  # the acknowledgement leaves
    await until_left(operator, "b1", 0, 0)


async def test_a_cluster_that_is_to_go_counts_what_is_sent_in_an_open_transaction(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    connection = await connect(spread.url("b1"))
    await operator.until(await operator.put(document("Queue", "orders", broker="b1")), "applied")
    session = await connection.session(transacted=True)
    await (await session.producer("orders")).send("decided late")
    await drain(operator, "b1", closes_only=True)
    await until_left(operator, "b1", 1, 1)
    await session.rollback()
    await until_left(operator, "b1", 1, 0)


async def test_a_bridge_moves_with_its_ends_and_misses_nothing(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    await bridged(operator)
    connection = await connect(spread.url("b0"))
    producer = await connection.producer("orders")
    sent: list[str] = []
    received: dict[str, list[str]] = {"orders": [], "orders-archive": []}

    async def take(name: str) -> None:
        async for message in await connection.consumer(name):
            received[name].append(message.text)

    taking = [asyncio.create_task(take(name)) for name in received]
    await drain(operator, "b1")

    async def has_moved() -> bool:
        text = f"number {len(sent)}"
        try:
            await producer.send(text)
        except errors.UnavailableError:
            return False  # Closed for the moment.
        sent.append(text)
        return await operator.home("queue", "orders") == "b0"

    await waited(has_moved, 30, "both ends to move")
    await until_left(operator, "b1", 0, 0)
    assert await operator.home("queue", "orders-archive") == "b0"
    await producer.send("last")
    await eventually(lambda: all("last" in texts for texts in received.values()), timeout_s=20, what="all to arrive")
    for task in taking:
        task.cancel()
    await asyncio.gather(*taking, return_exceptions=True)
    assert received == {"orders": [*sent, "last"], "orders-archive": [*sent, "last"]}


async def test_a_bridge_holds_again_before_its_source_is_opened(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    await bridged(operator)
    connection = await connect(spread.url("b1"))
    session = await connection.session(transacted=True)
    # Undecided, it keeps both where they are after they were closed and their bridge was parted from.
    await (await session.producer("orders")).send("decided late")
    await drain(operator, "b1")
    await until_held(operator, "b1", 2)
    await operator.etcd.delete(LAYOUT.drain("b1"))
    await until_over(operator, "b1")
    await connection.send("orders", "at once")
    await session.commit()
    for name in ("orders", "orders-archive"):
        consumer = await connection.consumer(name)
        assert {message.text for _ in range(2) if (message := await consumer.receive(10))} == {
            "at once",
            "decided late",
        }


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
        with pytest.raises(errors.SternaError) as refused:
            await connection.send("orders", "refused", timeout=0.5)
        # For a moment only, in place of for good.
        return isinstance(refused.value, errors.SendTimeoutError)

    await waited(tells, 20, "the other reason")
    consumer = await connection.consumer("orders")
    assert await consumer.receive(5) is not None
    await consumer.receive(0.05)
    await until_left(operator, "b1", 0, 0)
    await connection.send("orders", "two")


async def test_what_expires_while_a_broker_is_emptied_keeps_it_until_somebody_has_it(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    connection = await connect(spread.url("b1"))
    await operator.until(await operator.put(document("Queue", "orders", broker="b1")), "applied")
    kept = {"JMS_STERNA_PRESERVE_UNDELIVERED": True}
    for _ in range(3):
        await connection.send("orders", "too late", properties=kept, time_to_live_ms=1_500)
    await drain(operator, "b1")

    own = "queue '$sys.undelivered' holds 3 messages of its own"

    async def left() -> bool:
        is_gone = await operator.home("queue", "orders") == "b0"
        return is_gone and await draining(operator, "b1") == Draining(destinations=1, messages=3, waits_for=own)

    # The queue becomes empty and leaves; what it held is here, in a queue that every broker has for itself.
    await waited(left, 30, "the queue to leave, and the broker to say what it still has")
    dead = await connection.consumer("$sys.undelivered")
    for _ in range(3):
        assert await dead.receive(10) is not None
    await dead.receive(0.05)  # the acknowledgement leaves
    await until_left(operator, "b1", 0, 0)
    assert await draining(operator, "b1") == Draining(destinations=0, messages=0)


async def test_a_broker_that_is_forced_to_go_does_not_wait_for_what_is_its_own(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    connection = await connect(spread.url("b1"))
    await operator.until(await operator.put(document("Queue", "orders", broker="b1")), "applied")
    kept = {"JMS_STERNA_PRESERVE_UNDELIVERED": True}
    await connection.send("orders", "too late", properties=kept, time_to_live_ms=200)
    await drain(operator, "b1")
    own = Draining(destinations=1, messages=1, waits_for="queue '$sys.undelivered' holds 1 message of its own")

    async def waits() -> bool:
        return await draining(operator, "b1") == own

    await waited(waits, 30, "the broker to wait for what is its own")
    await drain(operator, "b1", force=True)
    await until_left(operator, "b1", 0, 0)


async def test_what_is_made_anew_in_a_cluster_that_is_to_go_is_closed_too(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    connection = await connect(spread.url("b1"))
    claim = await operator.put(document("Queue", "orders", broker="b1"))
    await operator.until(claim, "applied")
    await drain(operator, "b1", closes_only=True)
    await until_left(operator, "b1", 1, 0)
    with pytest.raises(errors.UnavailableError, match="is being deleted"):
        await connection.send("orders", "refused")
    gone = Deleting(policy="delete", uid="r")
    await operator.put(document("Queue", "orders", broker="b1"), generation=2, deleting=gone)
    await operator.until(claim, "deleted", generation=2)
    await operator.put(document("Queue", "orders", broker="b1"), generation=3)
    await operator.until(claim, "applied", generation=3)

    async def is_refused() -> bool:
        try:
            await connection.send("orders", "taken for a moment, at most")
        except errors.UnavailableError as error:
            return "is being deleted" in str(error)
        return False

    await waited(is_refused, 30, "the new queue to be closed")


async def test_a_broker_says_which_of_its_starts_has_closed_everything(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    async def is_closed(before: str = "") -> str:
        """The start that is registered, when it is another than before and has closed everything; else nothing."""
        key = LAYOUT.broker("b1")
        found, said = (await operator.etcd.get(key)).found, await status(operator, "b1")
        if found is None or said is None or said.draining is None or not said.draining.is_closed:
            return ""
        known = BrokerRecord.decode(key, found.value).incarnation
        return known if known == said.incarnation != before else ""

    await operator.until(await operator.put(document("Queue", "orders", broker="b1")), "applied")
    await drain(operator, "b1", closes_only=True)
    first = await waited(is_closed, 20, "b1 to say that it is closed")
    await asyncio.to_thread(spread.brokers["b1"].kill)
    said = await status(operator, "b1")
    # What it said stands, although it is not there: only the start that it was said by shows what it is worth.
    assert said is not None
    assert said.draining is not None
    assert said.draining.is_closed
    assert said.incarnation == first
    await asyncio.to_thread(spread.brokers["b1"].start)
    await waited(lambda: is_closed(first), 30, "b1 to say that it is closed again")


async def test_a_cluster_that_is_to_go_counts_every_message_once(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    for name in ("app.one", "app.two"):
        await operator.until(await operator.put(document("Topic", name, broker="b1")), "applied")
    reader = await connect(spread.url("b1"), client_id="reader")
    consumer = await reader.consumer(sterna.Topic("app.>"), durable="all")
    await consumer.close()
    connection = await connect(spread.url("b1"))
    for name in ("app.one", "app.two"):
        await connection.send(sterna.Topic(name), "x")
    await drain(operator, "b1", closes_only=True)
    # The two topics and what was subscribed to live here; each topic tells of all that its subscriptions hold.
    await until_left(operator, "b1", 3, 2)


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


async def test_a_durable_subscription_to_a_pattern_stays_although_no_topic_is_there(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    reader = await connect(spread.url("b1"), client_id="reader")
    await reader.consumer(sterna.Topic("app.>"), durable="all")
    broker = await operator.home("pattern", "app.>")
    await drain(operator, broker)
    await until_left(operator, broker, 1, 0)
    left = await draining(operator, broker)
    assert left is not None
    assert left.waits_for == "pattern 'app.>' has 1 durable subscription that clients made"


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
