"""Topics leave a broker that is emptied while somebody subscribes to them: whoever subscribes goes along."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import sterna
from sterna import errors

from tests.cluster.conftest import Cluster, Connect, Operator, document, waited
from tests.cluster.drains import drain, until_left
from tests.waiting import eventually

TOPIC = sterna.Topic("prices")


class Reader:
    """Takes what a consumer gets, for as long as the test goes on."""

    def __init__(self, consumer: sterna.Consumer) -> None:
        self.received: list[str] = []
        self._task = asyncio.create_task(self._take(consumer))

    async def _take(self, consumer: sterna.Consumer) -> None:
        async for message in consumer:
            self.received.append(message.text)

    async def until(self, text: str) -> None:
        """Until it has got this."""
        await eventually(lambda: self._task.done() or text in self.received, timeout_s=20, what=f"'{text}'")
        assert text in self.received

    async def close(self) -> None:
        """Stops taking."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.fixture
async def prices(two: Cluster, operator: Operator) -> AsyncIterator[list[Reader]]:
    """A topic on b1. Readers that are put into the list are closed."""
    await operator.until(await operator.put(document("Topic", "prices", broker="b1")), "applied")
    readers: list[Reader] = []
    yield readers
    for reader in readers:
        await reader.close()


async def sent_until_moved(operator: Operator, **producers: sterna.Producer) -> list[str]:
    """Publishes one after the other to topics, by name, until all live on b0; what was confirmed."""
    sent: list[str] = []

    async def have_moved() -> bool:
        for name, producer in producers.items():
            text = f"{name} {len(sent)}"
            try:
                await producer.send(text)
            except errors.UnavailableError:
                # Closed, since it has to become empty to move: told, not lost.
                continue
            sent.append(text)
        return {await operator.home("topic", name) for name in producers} == {"b0"}

    await waited(have_moved, 30, "the topics to move")
    return sent


async def test_a_static_durable_subscription_with_a_consumer_misses_nothing(
    two: Cluster, operator: Operator, connect: Connect, prices: list[Reader]
) -> None:
    durable = document("DurableSubscription", "audit", topic="prices", clientId="reader")
    await operator.until(await operator.put(durable, claim="reader/audit"), "applied")
    producer = await (await connect(two.url("b0"))).producer(TOPIC)
    connection = await connect(two.url("b0"), client_id="reader")
    reader = Reader(await connection.consumer(TOPIC, durable="audit"))
    prices.append(reader)
    await drain(operator, "b1")
    sent = await sent_until_moved(operator, prices=producer)
    await producer.send("last")
    await reader.until("last")
    assert reader.received == [*sent, "last"]
    await until_left(operator, "b1", 0, 0)


async def test_a_static_durable_subscription_to_a_pattern_misses_nothing_of_its_topics(
    two: Cluster, operator: Operator, connect: Connect, prices: list[Reader]
) -> None:
    await operator.until(await operator.put(document("Topic", "trades", broker="b1")), "applied")
    durable = document("DurableSubscription", "all", topic="*", clientId="reader")
    await operator.until(await operator.put(durable, claim="reader/all"), "applied")
    sender = await connect(two.url("b0"))
    producers = {name: await sender.producer(sterna.Topic(name)) for name in ("prices", "trades")}
    connection = await connect(two.url("b0"), client_id="reader")
    reader = Reader(await connection.consumer(sterna.Topic("*"), durable="all"))
    prices.append(reader)
    await drain(operator, "b1")
    sent = await sent_until_moved(operator, **producers)
    for name, producer in producers.items():
        await producer.send(f"{name} last")
        await reader.until(f"{name} last")
    assert sorted(reader.received) == sorted([*sent, "prices last", "trades last"])
    await until_left(operator, "b1", 0, 0)


@pytest.mark.parametrize("subscribed", ["prices", "*"])
async def test_subscriptions_that_are_not_durable_go_on_at_the_new_home(
    two: Cluster, operator: Operator, connect: Connect, prices: list[Reader], subscribed: str
) -> None:
    connection = await connect(two.url("b0"))
    producer = await connection.producer(TOPIC)
    reader = Reader(await connection.consumer(sterna.Topic(subscribed)))
    prices.append(reader)
    await producer.send("before")
    await reader.until("before")
    await drain(operator, "b1")
    await until_left(operator, "b1", 0, 0)

    async def is_heard() -> bool:
        await producer.send("after")
        return "after" in reader.received

    await waited(is_heard, 20, "the subscription to hold at the new home")
    # One that holds once holds on.
    await producer.send("later")
    await reader.until("later")


async def test_what_was_sent_without_acknowledgement_is_not_lost_on_the_way(
    two: Cluster, operator: Operator, connect: Connect, prices: list[Reader]
) -> None:
    connection = await connect(two.url("b0"))
    session = await connection.session(sterna.AcknowledgeMode.NONE)
    consumer = await session.consumer(TOPIC)
    producer = await connection.producer(TOPIC)
    texts = [str(number) for number in range(10)]
    for text in texts:
        await producer.send(text)
    # The broker has forgotten them, and the application has not come to them yet.
    await eventually(lambda: len(consumer._state.buffer) == len(texts), what="all to be here")
    await drain(operator, "b1")
    await until_left(operator, "b1", 0, 0)

    async def is_heard() -> bool:
        await producer.send("after")
        return len(consumer._state.buffer) > len(texts)

    await waited(is_heard, 30, "the subscription to hold at the new home")
    received = [await consumer.receive(10) for _ in range(len(texts) + 1)]
    assert [message.text for message in received if message is not None] == [*texts, "after"]
