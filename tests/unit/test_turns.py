"""Room for bytes in flight is given in turns: what is large is not starved by what is small, nor by what is away."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest
from sterna._flow import Flow
from sterna._lane import Lane
from sterna._link import Link
from sterna._proto.sterna.v1 import messaging_pb2 as pb

from tests.support.seeds import seed as seed_of_run

_LIMIT = 1000
_FOR_NOW = pb.Error(code="UNAVAILABLE", message="for now", retryable=True)


class _Connection:
    """Lanes that share a flow, and a broker of which the test says what it confirms."""

    def __init__(self, lanes: int) -> None:
        self.lanes: list[Any] = []
        self.flow = Flow(_LIMIT)
        self.link: Any = Link("127.0.0.1:1", lambda _: None)
        numbers = iter(range(1, 1000))
        lifeline: Any = SimpleNamespace(
            options=SimpleNamespace(book=None, reconnect=SimpleNamespace(give_up_after_s=None)),
            flow=self.flow,
            next_producer_id=lambda: next(numbers),
            broker="b",
            unroute_lane=lambda lane: None,
        )
        part: Any = SimpleNamespace(lifeline=lifeline, number=3, state=SimpleNamespace(transacted=False))
        owner: Any = SimpleNamespace(told=lambda: None, is_following=False, waits=lambda: False)
        for _ in range(lanes):
            lane: Any = Lane(owner, part, None, 1000, confirmed=True)
            lane._opened(self.link, 3, pb.ProducerOpened(incarnation=7), pb.OpenProducer(), anew=True)
            self.lanes.append(lane)
        self.sent = [0] * lanes

    async def send(self, number: int, size: int) -> None:
        """As a producer does."""
        lane = self.lanes[number]
        machine, flow = lane.machine, self.flow
        is_asked = machine.budget <= 0 or flow.turn is not None or flow.bytes + size > flow.limit
        if is_asked and not lane.has_room(size):
            await lane.room(size)
        machine.give(bytes(size))
        lane.write()
        self.sent[number] += 1

    def confirm(self, number: int, count: int = 1) -> None:
        """The first ones of a lane."""
        unconfirmed = list(self.lanes[number].machine.unconfirmed)[:count]
        if unconfirmed:
            self.lanes[number].on_confirmed(pb.Confirmed(first=unconfirmed[0], last=unconfirmed[-1]))

    async def flood(self, number: int, size: int) -> None:
        """Sends for ever, several at a time, as a producer does."""
        while True:
            for _ in range(8):
                await self.send(number, size)
            await asyncio.sleep(0)

    async def steps(self, count: int, floods: range) -> None:
        """The broker confirms a message of each flood, so often."""
        for _ in range(count):
            for number in floods:
                self.confirm(number)
            for _ in range(4):
                await asyncio.sleep(0)


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _in_line(connection: _Connection) -> tuple[Any, ...]:
    flow = connection.flow
    return flow.turn, len(flow.waiting), len(flow._aside), [len(lane._waiters) for lane in connection.lanes]


@pytest.mark.parametrize("size", [500, 999, 1500, 5000], ids=["half", "nearly all", "more", "far more"])
async def test_a_large_body_goes_beside_floods_of_small_ones(size: int) -> None:
    connection = _Connection(5)
    floods = [asyncio.create_task(connection.flood(number, 20)) for number in range(4)]
    await connection.steps(20, range(4))
    assert connection.flow.bytes >= _LIMIT - 20, "there was room all the time"
    for _ in range(3):
        large = asyncio.create_task(connection.send(4, size))
        # All that is in flight was confirmed once meanwhile, and a little more.
        await connection.steps(20, range(4))
        assert large.done()
        assert connection.flow.bytes <= max(2 * _LIMIT, size)
        connection.confirm(4)
    before = list(connection.sent)
    await connection.steps(30, range(4))
    assert all(now > one + 10 for now, one in zip(connection.sent[:4], before, strict=False)), "the floods stand still"
    await _end(*floods)
    assert _in_line(connection) == (None, 0, 0, [0] * 5)


async def test_a_large_body_keeps_its_turn_when_others_of_its_producer_give_up() -> None:
    connection = _Connection(5)
    floods = [asyncio.create_task(connection.flood(number, 20)) for number in range(4)]
    await connection.steps(20, range(4))
    large = asyncio.create_task(connection.send(4, 1500))
    for _ in range(50):
        # As one whose time is over.
        behind = asyncio.create_task(connection.send(4, 20))
        await connection.steps(1, range(4))
        await _end(behind)
    assert large.done()
    await _end(large, *floods)
    assert _in_line(connection) == (None, 0, 0, [0] * 5)


async def test_what_a_producer_may_send_without_asking_is_no_room_for_others() -> None:
    connection = _Connection(50)
    for number in range(50):
        await connection.send(number, 1)
    floods = [asyncio.create_task(connection.flood(number, 100)) for number in range(50)]
    most = 0
    for _ in range(200):
        await connection.steps(1, range(50))
        most = max(most, connection.flow.bytes)
    assert _LIMIT - 100 < most <= _LIMIT + 100
    await _end(*floods)


async def test_who_comes_later_waits_behind_a_large_body_of_its_producer() -> None:
    connection = _Connection(2)
    await connection.send(0, 1)
    connection.confirm(0)
    await connection.send(1, 900)
    connection.lanes[1].on_rejected(pb.Rejected(first=1, error=_FOR_NOW))
    large = asyncio.create_task(connection.send(0, 5000))
    await asyncio.sleep(0)
    small = asyncio.create_task(connection.send(0, 1))
    await asyncio.sleep(0)
    assert not large.done()
    assert not small.done()
    connection.lanes[1]._due()
    for number in (1, 0, 0):
        connection.confirm(number)
        for _ in range(4):
            await asyncio.sleep(0)
    assert large.done()
    assert small.done()


async def test_what_waits_for_a_destination_that_is_away_stands_aside() -> None:
    connection = _Connection(3)
    away = connection.lanes[0]
    await connection.send(0, 100)
    away.on_rejected(pb.Rejected(first=1, error=_FOR_NOW))
    assert connection.flow.away == 100
    # It may go with nothing beside it, and something is.
    large = asyncio.create_task(connection.send(1, 5000))
    flood = asyncio.create_task(connection.flood(2, 20))
    await connection.steps(50, range(2, 3))
    assert not large.done()
    assert connection.sent[2] > 50
    away._due()  # it is back
    connection.confirm(0)
    await connection.steps(60, range(2, 3))
    assert large.done()
    connection.confirm(1)
    await connection.steps(10, range(2, 3))
    await _end(large, flood)
    away._held.clear()
    assert _in_line(connection) == (None, 0, 0, [0] * 3)


async def test_what_is_away_takes_no_room_from_the_others_however_much_it_is() -> None:
    connection = _Connection(4)
    away = connection.lanes[0]
    waits = asyncio.create_task(connection.flood(0, 100))
    await connection.steps(5, range(0))
    assert connection.flow.bytes == _LIMIT
    away.on_rejected(pb.Rejected(first=1, last=10, error=_FOR_NOW))
    floods = [asyncio.create_task(connection.flood(number, 20)) for number in (1, 2)]
    await connection.steps(50, range(1, 3))
    large = asyncio.create_task(connection.send(3, 900))
    await connection.steps(50, range(1, 3))
    assert large.done()
    assert connection.flow.bytes <= 2 * _LIMIT
    await _end(waits, *floods)
    away._due()
    for number in range(4):
        connection.confirm(number, 100)
    assert (connection.flow.bytes, connection.flow.away) == (0, 0)
    assert _in_line(connection) == (None, 0, 0, [0] * 4)


async def test_one_that_stands_aside_and_is_cancelled_leaves_nothing() -> None:
    connection = _Connection(2)
    await connection.send(0, 100)
    connection.lanes[0].on_rejected(pb.Rejected(first=1, error=_FOR_NOW))
    large = asyncio.create_task(connection.send(1, 5000))
    await asyncio.sleep(0)
    assert len(connection.flow._aside) == 1
    await _end(large)
    await asyncio.sleep(0)
    connection.lanes[0]._held.clear()
    assert _in_line(connection) == (None, 0, 0, [0] * 2)


@pytest.mark.parametrize("seed", range(40))
async def test_whoever_waits_gets_room_in_the_end_whatever_happens_meanwhile(seed: int) -> None:
    """Senders of any size, cancelled, closed, interrupted and put off as the seed says: none waits for ever."""
    choices = random.Random(f"{seed_of_run()} {seed}")
    connection = _Connection(4)
    tasks: list[asyncio.Task[None]] = []
    for _ in range(150):
        number, lane = (which := choices.randrange(4)), connection.lanes[which]
        match choices.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                size = choices.choice([1, 20, 400, 900, 1500, 4000])
                tasks.append(asyncio.create_task(connection.send(number, size)))
            case 5 | 6 | 7:
                connection.confirm(number, choices.randrange(1, 5))
            case 8 if tasks:
                choices.choice(tasks).cancel()
            case 9 if lane.machine.unconfirmed:
                first = next(iter(lane.machine.unconfirmed))
                lane.on_rejected(pb.Rejected(first=first, error=_FOR_NOW))
            case 10:
                lane._due()
            case 11:
                lane.interrupted()
                answer = pb.ProducerOpened(incarnation=7)
                lane._opened(connection.link, 3, answer, pb.OpenProducer(), anew=False)
        for _ in range(choices.randrange(3)):
            await asyncio.sleep(0)
    for _ in range(2000):
        if all(task.done() for task in tasks):
            break
        for number, lane in enumerate(connection.lanes):
            lane._due()
            connection.confirm(number)
        await asyncio.sleep(0)
    assert all(task.done() for task in tasks), _in_line(connection)
    await asyncio.sleep(0)
    for lane in connection.lanes:
        lane._held.clear()
    assert _in_line(connection) == (None, 0, 0, [0] * 4)
