"""A producer's lane, without a link: what a flush waits for when a broker does not know the producer any more."""

import asyncio
from types import SimpleNamespace
from typing import Any

from sterna import errors
from sterna._flow import Flow
from sterna._lane import Lane
from sterna._machines.producing import Opened
from sterna._machines.publishing import Outbox


def lane_of(numbers: range, handed: int) -> Any:
    """With these numbers unconfirmed, of which those up to `handed` were given to a link that broke."""
    lifeline: Any = SimpleNamespace(flow=Flow(1 << 20), next_producer_id=lambda: 1, broker="b")
    part: Any = SimpleNamespace(lifeline=lifeline, number=1, state=SimpleNamespace(transacted=False))
    owner: Any = None
    lane: Any = Lane(owner, part, None, 100, confirmed=True)
    machine = lane.machine
    machine.opened(Opened(5, b"token", "", 0, 0, 0), 1, Outbox(), anew=True)
    for _ in range(handed):
        machine.give(b"x")
    machine.confirmed(1, numbers.start - 1)
    lane.interrupted()
    for _ in range(handed + 1, numbers.stop):
        machine.give(b"x")
    assert (list(machine.unconfirmed), machine.next) == (list(numbers), numbers.stop)
    return lane


async def test_a_flush_waits_for_what_was_numbered_before_it_although_the_numbers_begin_anew() -> None:
    lane = lane_of(range(2, 12), handed=6)
    machine = lane.machine
    marks = {mark: asyncio.get_running_loop().create_future() for mark in (4, 6, 9, 11)}
    machine._marks = list(marks.items())
    # The broker that comes back does not know the producer: 2 to 6 are in doubt, 7 to 11 become 1 to 5.
    assert lane._fail_each(machine.forgotten(), errors.UnknownProducerError("forgotten")) == 5
    machine.opened(Opened(6, b"token", "", 0, 0, 0), 1, Outbox(), anew=True)
    assert (list(machine.unconfirmed), machine.next) == ([1, 2, 3, 4, 5], 6)
    ended = {mark: flush.done() for mark, flush in marks.items()}
    assert ended == {4: True, 6: True, 9: False, 11: False}
    for number, done in ((1, set()), (2, set()), (3, {9}), (4, {9}), (5, {9, 11})):
        machine.confirmed(number, number)
        lane._check_flushed()
        assert {mark for mark in (9, 11) if marks[mark].done()} == done, number
