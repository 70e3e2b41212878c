"""A producer's lane, without a link: what a flush waits for when a broker does not know the producer any more."""

import asyncio
from types import SimpleNamespace
from typing import Any

from sterna import errors
from sterna._lane import Lane


def lane_of(numbers: range, handed: int) -> Any:
    """With these numbers unconfirmed, of which those up to `handed` were given to a link that broke."""
    flow = SimpleNamespace(bytes=0, release=lambda size: None)
    lifeline: Any = SimpleNamespace(flow=flow, next_producer_id=lambda: 1, broker="b")
    lane: Any = Lane(lifeline, SimpleNamespace(_transacted=False), None, 100, True)  # type: ignore[arg-type]
    lane.unconfirmed = dict.fromkeys(numbers, b"x")
    lane.next, lane._handed = numbers.stop, handed
    # What becomes of a single one is another's concern.
    lane._fail_one = lambda sequence, entry, error: None
    return lane


async def test_a_flush_waits_for_what_was_numbered_before_it_although_the_numbers_begin_anew() -> None:
    lane = lane_of(range(2, 12), handed=6)
    marks = {}
    for mark in (4, 6, 9, 11):
        marks[mark] = asyncio.get_running_loop().create_future()
        lane._flushers.append((mark, marks[mark]))
    # The broker that comes back does not know the producer: 2 to 6 are in doubt, 7 to 11 become 1 to 5.
    assert lane._forgotten(errors.UnknownProducerError("forgotten"), lane._handed) == 5
    lane._renumber()
    assert (list(lane.unconfirmed), lane.next) == ([1, 2, 3, 4, 5], 6)
    ended = {mark: flush.done() for mark, flush in marks.items()}
    assert ended == {4: True, 6: True, 9: False, 11: False}
    for number, done in ((1, set()), (2, set()), (3, {9}), (4, {9}), (5, {9, 11})):
        del lane.unconfirmed[number]
        lane._check_flushed()
        assert {mark for mark in (9, 11) if marks[mark].done()} == done, number
