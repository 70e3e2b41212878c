"""Programs with named producers that are killed, cancelled and cut off anywhere: each number is stored once."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from random import Random

import pytest
import sterna
from sterna import errors

from tests.world.brokers import Broker
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained
from tests.world.test_emptying import emptied

_ITEMS = 60


def _connected(broker: Broker) -> sterna.Connection:
    return sterna.connect(f"sterna://{broker.address}")


async def _import(broker: Broker, random: Random, *, from_the_start: bool) -> None:
    """The program: goes on behind the last that is stored, or sends all of it again, several at a time."""
    async with _connected(broker) as connection:
        first = 1 if from_the_start else 0
        producer = await connection.producer("q", name="import", first_number=first)
        number = first or producer.last_number + 1
        while number <= _ITEMS:
            if not from_the_start:
                # Who knows nothing but the last number awaits each.
                await producer.send(str(number))
                number += 1
                continue
            for _ in range(min(random.randint(1, 9), _ITEMS + 1 - number)):
                assert await producer.send_soon(str(number)) == number
                number += 1
            if random.random() < 0.5:
                await producer.flush()
        await producer.flush()


async def _attack(stage: Stage, seed: int, *, from_the_start: bool) -> None:
    random = Random(seed)
    broker = await stage.broker(f"one{seed}")
    runs = 0
    while True:
        runs += 1
        work = _import(broker, Random(seed + runs), from_the_start=from_the_start)
        process, task = stage.process(f"program {runs}", work)
        if runs > 12:
            await task
            break
        await asyncio.sleep(random.choice((0.0005, 0.002, 0.01, 0.05)) * random.random())
        for _ in range(random.randint(0, 2)):
            match random.randint(0, 3):
                case 0:
                    stage.break_links()
                case 1:
                    broker.kill()
                    await broker.start()
                case 2:
                    broker.kill(power=True)
                    await broker.start()
                case _:
                    pass
            await asyncio.sleep(0.02 * random.random())
        if random.random() < 0.3:
            task.cancel()
            await asyncio.wait((task,))
        elif not task.done():
            process.kill()
    connection = await stage.connect(broker)
    found = await drained(connection, "q")
    await connection.close()
    assert Counter(found) == Counter(str(number) for number in range(1, _ITEMS + 1))
    if not from_the_start:
        assert found == [str(number) for number in range(1, _ITEMS + 1)]


@pytest.mark.covers("EMS-MSG-E01")
@staged
async def test_who_goes_on_behind_the_last_number_stores_each_once_and_in_order(stage: Stage) -> None:
    for seed in range(6):
        await _attack(stage, seed, from_the_start=False)


@pytest.mark.covers("EMS-MSG-E01")
@staged
async def test_who_sends_all_of_it_again_stores_each_once(stage: Stage) -> None:
    for seed in range(6):
        await _attack(stage, 100 + seed, from_the_start=True)


@pytest.mark.covers("EMS-MSG-E01")
@staged
async def test_numbers_that_are_passed_over_are_stored_when_they_come(stage: Stage) -> None:
    broker = await stage.broker()
    async with _connected(broker) as connection:
        producer = await connection.producer("q", name="import", first_number=10)
        await producer.send("10")
    async with _connected(broker) as connection:
        producer = await connection.producer("q", name="import", first_number=9)
        assert producer.last_number == 10
        for number in (9, 10, 11):
            await producer.send(str(number))
        assert sorted(await drained(connection, "q"), key=int) == ["9", "10", "11"]


@pytest.mark.covers("EMS-MSG-E01")
@staged
async def test_a_number_whose_send_was_cancelled_while_there_was_no_link_is_the_next_programs_to_send(
    stage: Stage,
) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    producer = await connection.producer("q", name="import")
    await producer.send("1")
    broker.kill()
    await asyncio.sleep(1)
    given_up = asyncio.create_task(producer.send("2", timeout=0.5))
    with pytest.raises(errors.SendTimeoutError):
        await given_up
    after = asyncio.create_task(producer.send("3"))
    await asyncio.sleep(1)
    await broker.start()
    await after
    await connection.close()
    async with _connected(broker) as connection:
        producer = await connection.producer("q", name="import", first_number=2)
        for number in (2, 3, 4):
            await producer.send(str(number))
        found = await drained(connection, "q")
    assert sorted(found) == ["1", "2", "3", "4"], "each number is stored once"


@pytest.mark.covers("EMS-MSG-E01")
@staged
async def test_two_producers_of_a_name_in_one_session_are_the_laters(stage: Stage) -> None:
    broker = await stage.broker()
    async with _connected(broker) as connection:
        session = await connection.session()
        earlier = await session.producer("q", name="import")
        await earlier.send("1")
        under_way = [await earlier.send_soon(str(number)) for number in (2, 3)]
        later = await session.producer("q", name="import")
        begins = later.last_number + 1
        with pytest.raises(errors.ConflictError):
            await earlier.send("of the earlier")
        for number in range(begins, 5):
            await later.send(str(number))
        assert under_way == [2, 3]
        with suppress(errors.FlushError):
            await earlier.flush()  # of each it was told, or it is stored
        assert await drained(connection, "q") == ["1", "2", "3", "4"]


@pytest.mark.covers("EMS-MSG-E01")
@staged
async def test_a_named_producer_goes_along_when_its_destination_moves_and_what_was_settled_stays_so(
    stage: Stage,
) -> None:
    cluster = await stage.two("orders")
    connection = await stage.connect(cluster.brokers["b1"])
    producer = await connection.producer("orders", name="import")
    for number in (1, 2, 3):
        await producer.send(str(number))
    first = await drained(connection, "orders")
    await cluster.drain("b1")
    await cluster.until_home("queue", "orders", "b0")
    await producer.send("4")
    await connection.close()
    async with _connected(cluster.brokers["b0"]) as again:
        producer = await again.producer("orders", name="import", first_number=1)
        assert producer.last_number == 4
        for number in (1, 2, 3, 4, 5):
            await producer.send(str(number))
        assert first == ["1", "2", "3"]
        assert await drained(again, "orders") == ["4", "5"]


@pytest.mark.covers("EMS-MSG-E01")
@staged
async def test_a_name_is_its_destinations_and_goes_with_it(stage: Stage) -> None:
    broker = await stage.broker()
    async with _connected(broker) as connection:
        one = await connection.producer("q", name="import")
        await one.send("1")
        other = await connection.producer("p", name="import")
        assert other.last_number == 0
        await other.send("1")
        await one.send("2")
        await one.close()
        again = await connection.producer("q", name="import")
        assert again.last_number == 2
        assert isinstance(await other.send("2"), sterna.Sent)


@pytest.mark.covers("EMS-MSG-E01")
@staged
async def test_what_goes_along_to_another_broker_keeps_its_numbers_over_what_was_given_up(stage: Stage) -> None:
    cluster, connection = await emptied(stage)
    producer = await connection.producer("orders", name="import")
    told: list[object] = []
    numbers = [await producer.send_soon("1", on_completion=told.append)]
    with pytest.raises(errors.SendTimeoutError):
        await producer.send("2", timeout=3.0)
    numbers.append(await producer.send_soon("3", on_completion=told.append))
    assert numbers == [1, 3]
    found = await drained(connection, "orders")
    await cluster.until_home("queue", "orders", "b0")
    await producer.flush()
    assert len(told) == 2
    await connection.close()
    async with _connected(cluster.brokers["b0"]) as again:
        producer = await again.producer("orders", name="import", first_number=3)
        assert producer.last_number == 3
        for number in (3, 4):
            await producer.send(str(number))
        assert [*found, *await drained(again, "orders")] == ["before", "1", "3", "4"]
