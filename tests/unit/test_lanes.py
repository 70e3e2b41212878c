"""A producer's lane, without a broker: what a flush waits for, and what an answer that comes late finds."""

import asyncio
from types import SimpleNamespace
from typing import Any

from sterna import errors
from sterna._flow import Flow
from sterna._lane import Lane
from sterna._link import Link
from sterna._machines.producing import Opened
from sterna._machines.publishing import Outbox
from sterna._proto.sterna.v1 import messaging_pb2 as pb


def lane_of(numbers: range, handed: int) -> Any:
    """With these numbers unconfirmed, of which those up to `handed` were given to a link that broke."""
    lifeline: Any = SimpleNamespace(
        options=SimpleNamespace(book=None), flow=Flow(1 << 20), next_producer_id=lambda: 1, broker="b"
    )
    part: Any = SimpleNamespace(lifeline=lifeline, number=1, state=SimpleNamespace(transacted=False))
    owner: Any = SimpleNamespace(told=lambda: None)
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
    machine.marks = list(marks.items())
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


def linked() -> tuple[Any, Any]:
    """A lane, and a link whose frames are looked at here."""
    lifeline: Any = SimpleNamespace(
        options=SimpleNamespace(book=None),
        flow=Flow(1 << 20),
        next_producer_id=lambda: 1,
        broker="b",
        unroute_lane=lambda lane: None,
    )
    link = Link("127.0.0.1:1", lambda _: None)
    part: Any = SimpleNamespace(
        lifeline=lifeline,
        number=3,
        state=SimpleNamespace(transacted=False),
        is_at=lambda *_: True,
        check_at=lambda *_: None,
    )
    owner: Any = SimpleNamespace(told=lambda: None)
    return Lane(owner, part, None, 100, confirmed=True), link


def written(link: Any) -> list[Any]:
    """What the link has to write, which is gone from it then."""
    return list(pb.ClientBatch.FromString(link._take()).frames)


def answer(link: Any, request: int, incarnation: int) -> None:
    opened = pb.ProducerOpened(incarnation=incarnation, token=b"token")
    link._handle(pb.ServerFrame(reply=pb.Reply(request=request, producer_opened=opened)))


async def test_a_lane_that_is_over_before_the_broker_has_opened_it_is_closed_there() -> None:
    lane, link = linked()
    opening = asyncio.create_task(lane.open(link, again=True))
    await asyncio.sleep(0)
    (asked,) = written(link)
    assert asked.open_producer.producer == 1
    await lane.leave()
    answer(link, asked.request, 7)
    await opening
    assert [(one.session, one.close_producer.producer) for one in written(link)] == [(3, 1)]


async def test_a_lane_that_was_opened_once_is_the_same_for_the_broker_however_it_is_opened_again() -> None:
    """As when of two lanes the second could not be opened, and both are tried again on the next link."""
    lane, link = linked()
    for incarnation in (0, 7):
        opening = asyncio.create_task(lane.open(link, again=False))
        await asyncio.sleep(0)
        asked = written(link)[-1]
        assert asked.open_producer.incarnation == incarnation
        answer(link, asked.request, 7)
        await opening
        lane.machine.give(b"x")
        lane.write()
        written(link)
        lane.interrupted()
    assert list(lane.machine.unconfirmed) == [1, 2]
