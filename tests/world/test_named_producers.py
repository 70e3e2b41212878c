"""Producers that an application names: a program that is started again sends again, and each message is stored once."""

from __future__ import annotations

import pytest
import sterna
from sterna import errors

from tests.world.stage import Stage, staged


async def _left(connection: sterna.Connection, name: str) -> list[object]:
    found = []
    async with await connection.consumer(name) as consumer:
        while (message := await consumer.receive(3.0)) is not None:
            found.append(message.body)
            await message.acknowledge()
    return found


@pytest.mark.covers("EMS-MSG-E01")
@staged
async def test_a_program_that_is_started_again_sends_again_and_is_stored_once(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    producer = await connection.producer("q", name="import")
    assert producer.last_number == 0
    for number in (1, 2, 3):
        await producer.send(str(number))
    await connection.close()
    for first_number in (0, 1):
        # The program has nothing but its name, and where its input begins.
        connection = await stage.connect(broker)
        producer = await connection.producer("q", name="import", first_number=first_number)
        last = producer.last_number
        for number in range(first_number or last + 1, 6 + 2 * first_number):
            await producer.send(str(number))
        await connection.close()
        assert last == (5 if first_number else 3)
    connection = await stage.connect(broker)
    assert await _left(connection, "q") == ["1", "2", "3", "4", "5", "6", "7"]
    await connection.close()


@staged
async def test_a_named_producer_goes_on_over_a_broken_link(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    producer = await connection.producer("q", name="import")
    await producer.send("1")
    stage.break_links()
    await producer.send("2")
    again = await stage.connect(broker)
    assert (await again.producer("q", name="import")).last_number == 2
    await again.close()
    await connection.close()


@staged
async def test_the_later_of_two_programs_takes_over_and_the_earlier_hears_of_it(stage: Stage) -> None:
    broker = await stage.broker()
    earlier, later = await stage.connect(broker), await stage.connect(broker)
    before = await earlier.producer("q", name="import")
    await before.send("1")
    after = await later.producer("q", name="import")
    assert after.last_number == 1
    with pytest.raises(errors.ConflictError):
        await before.send("of the earlier")
    stage.break_links()
    await after.send("2")
    assert await _left(later, "q") == ["1", "2"]
    with pytest.raises(errors.ConflictError):
        await before.send("of the earlier")
    await earlier.close()
    await later.close()


@staged
async def test_a_name_without_a_destination_or_a_number_without_a_name_is_refused_before_anything_is_sent(
    stage: Stage,
) -> None:
    connection = await stage.connect(await stage.broker())
    with pytest.raises(errors.InvalidArgumentError):
        await connection.producer(name="import")
    with pytest.raises(errors.InvalidArgumentError):
        await connection.producer("q", first_number=1)
    await connection.close()
