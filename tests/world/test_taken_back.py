"""A broker that is to be emptied, and then is not: what that does to order, and to what was sent meanwhile."""

from __future__ import annotations

import asyncio
import functools
import itertools
from random import Random

import pytest
import sterna
from sterna import AcknowledgeMode

from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained
from tests.world.test_homes import held

_COUNT = 600


class _Consumed:
    """What came, in its order: (number, whether it was flagged)."""

    def __init__(self) -> None:
        self.found: list[tuple[int, bool]] = []

    async def consume(self, connection: sterna.Connection, until: int) -> None:
        """Takes until this number has come."""
        session = await connection.session(AcknowledgeMode.INDIVIDUAL)
        consumer = await session.consumer("orders", prefetch=20)
        while not any(number == until for number, _ in self.found):
            message = await consumer.receive(1)
            if message is not None:
                self.found.append((int(message.body), message.redelivered))
                await message.acknowledge()

    @property
    def fresh(self) -> list[int]:
        """Those that were not flagged."""
        return [number for number, flagged in self.found if not flagged]


async def _started(stage: Stage) -> tuple[Cluster, sterna.Connection, sterna.Connection]:
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    await cluster.apply("Queue", "orders", broker="b1")
    await cluster.until_home("queue", "orders", "b1")
    both = cluster.url()
    return cluster, await sterna.connect(both), await sterna.connect(both)


@pytest.mark.parametrize("seed", range(4))
def test_emptying_that_is_begun_and_taken_back_keeps_order_and_doubles_nothing(seed: int) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        random = Random(f"taken back {seed}")
        cluster, sending, receiving = await _started(stage)
        consumed, confirmed = _Consumed(), list[int]()
        consuming = asyncio.create_task(consumed.consume(receiving, _COUNT - 1))

        def told(number: int, outcome: object) -> None:
            if isinstance(outcome, sterna.Sent):
                confirmed.append(number)

        async def send() -> None:
            producer = await sending.producer("orders", window=50)
            for number in range(_COUNT):
                await producer.send_soon(str(number), on_completion=functools.partial(told, number))
                await asyncio.sleep(random.random() * 0.01)
            await producer.flush()

        async def operate() -> None:
            while True:
                broker = await cluster.home("queue", "orders")
                await cluster.drain(broker)
                await asyncio.sleep(random.choice((0.0, 0.001, 0.01, 0.1, 0.5)))
                await cluster.undrain(broker)
                await asyncio.sleep(random.random() * 0.2)

        operating = asyncio.create_task(operate())
        await send()
        operating.cancel()
        await asyncio.wait_for(consuming, 60)
        assert sorted(confirmed) == list(range(_COUNT))
        assert consumed.fresh == list(range(_COUNT))
        assert sum(len(held(cluster, name).keys() & {"orders"}) for name in ("b0", "b1")) == 1
        await sending.close()
        await receiving.close()

    shown()


@pytest.mark.parametrize("delay_s", [0.0, 0.002, 0.004, 0.006, 0.01, 0.5])
def test_a_forced_hand_over_that_is_taken_back_loses_nothing_and_doubles_nothing(
    delay_s: float,
) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster, sending, receiving = await _started(stage)
        outcomes: dict[int, object] = {}
        producer = await sending.producer("orders", window=50)
        numbers = itertools.count()

        async def send(count: int) -> None:
            for number in itertools.islice(numbers, count):
                await producer.send_soon(str(number), on_completion=functools.partial(outcomes.__setitem__, number))

        await send(100)
        flooding = asyncio.create_task(send(400))
        await asyncio.sleep(0.003)
        await cluster.drain("b1", force=True)
        await asyncio.sleep(delay_s)
        await cluster.undrain("b1")
        await asyncio.wait_for(flooding, 60)
        await producer.flush()
        await cluster.until(lambda: cluster.home("queue", "orders"))
        await asyncio.sleep(3)
        assert all(isinstance(one, sterna.Sent) for one in outcomes.values())
        parts = [held(cluster, name).get("orders", 0) for name in ("b0", "b1")]
        home = await cluster.home("queue", "orders")
        first = [int(str(body)) for body in await drained(receiving, "orders")]
        assert first == sorted(first), "a part is in order"
        other = "b0" if home == "b1" else "b1"
        second: list[int] = []
        if parts[int(other[1])]:
            # The rest is stray where it is, until that broker is its home again.
            assert held(cluster, other)["orders"] == parts[int(other[1])]
            await cluster.give("queue", "orders", other)
            await asyncio.sleep(3)
            second = [int(str(body)) for body in await drained(receiving, "orders")]
            assert second == sorted(second), "and so is the other"
        assert set(first) | set(second) == set(range(500))
        # What was under way when its home was given away is in one of both places.
        assert not set(first) & set(second)
        assert len(first) == len(set(first))
        assert len(second) == len(set(second))
        await sending.close()
        await receiving.close()

    shown()


@staged
async def test_what_is_on_its_way_to_the_disk_when_its_home_is_given_away_is_stored_once(stage: Stage) -> None:
    """Each producer hears of the move when all that its broker had taken is confirmed, and sends the rest again."""
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    names = [f"q{number}" for number in range(20)]
    connection = await stage.connect(cluster.brokers["b1"])
    outcomes: dict[str, object] = {}

    async def flood(name: str) -> None:
        producer = await connection.producer(name, window=20)
        for number in range(100):
            key = f"{name} {number}"
            await producer.send_soon(key, on_completion=functools.partial(outcomes.__setitem__, key))
        await producer.flush()

    for name in names:
        await cluster.apply("Queue", name, broker="b1")
        await cluster.until_home("queue", name, "b1")
        flooding = asyncio.create_task(flood(name))
        await asyncio.sleep(stage.random.random() * 0.02)
        await cluster.give("queue", name, "b0")
        await flooding
    assert [one for one in outcomes.values() if not isinstance(one, sterna.Sent)] == []
    await asyncio.sleep(3)
    parts = [(held(cluster, "b0").get(name, 0), held(cluster, "b1").get(name, 0)) for name in names]
    assert [sum(part) for part in parts] == [100] * len(names)
    assert any(min(part) for part in parts)
    await connection.close()
