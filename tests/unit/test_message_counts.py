"""Counting messages: the sum is right at once, and every destination has its turn to be told."""

from typing import Any

import pytest
from sterna_broker.cluster.counting import MessageCounts
from sterna_broker.cluster.upkeep import EngineView

_QUEUES = 450
_AT_ONCE = 200


class Engine(EngineView):
    """An engine of so many queues, and what they hold."""

    def __init__(self) -> None:
        self.held = {f"q{number:04}": 1 for number in range(_QUEUES)}

    async def rows_by_and_by(self, kind: str) -> dict[str, dict[str, Any]]:
        if kind != "queue":
            return {}
        return {name: {"name": name, "statistics": {"messages": count}} for name, count in self.held.items()}

    def messages(self) -> int:
        return sum(self.held.values())


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def counts() -> MessageCounts:
    return MessageCounts()


def told(engine: Engine, counts: MessageCounts) -> int:
    """How many queues are told of as they are."""
    return sum(counts.of(("queue", name)) == count for name, count in engine.held.items())


async def test_the_sum_is_right_at_once_while_queues_have_their_turns(engine: Engine, counts: MessageCounts) -> None:
    assert await counts.count(engine, 0.0)
    assert counts.total == _QUEUES
    assert told(engine, counts) == _AT_ONCE
    # Not yet time to count again.
    engine.held["q0000"] = 7
    assert not await counts.count(engine, 1.0)
    assert counts.total == _QUEUES
    assert await counts.count(engine, 5.0)
    assert counts.total == _QUEUES + 6
    assert await counts.count(engine, 10.0)
    assert told(engine, counts) == _QUEUES
    assert not await counts.count(engine, 15.0)


async def test_a_queue_with_a_late_name_is_told_although_all_others_change(
    engine: Engine, counts: MessageCounts
) -> None:
    last = f"q{_QUEUES - 1:04}"
    for turn in range(1, 4):
        for name in engine.held:
            if name != last:
                engine.held[name] += turn
        await counts.count(engine, turn * 5.0)
    assert counts.of(("queue", last)) == 1


async def test_what_has_gone_is_told_of_no_more(engine: Engine, counts: MessageCounts) -> None:
    await counts.count(engine, 0.0)
    engine.held = {"q0001": 1}
    assert await counts.count(engine, 5.0)
    assert counts.total == 1
    assert counts.of(("queue", "q0000")) == 0
