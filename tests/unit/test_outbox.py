"""Who sends what nobody confirms waits for its own messages to be written, and not for all that others have to say."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from sterna._flow import Flow
from sterna._lane import Lane
from sterna._link import Link
from sterna._machines.producing import Opened, Producing
from sterna._proto.sterna.v1 import messaging_pb2 as pb

_BODY = bytes(100_000)
_TOTAL = 100


class _Busy:
    """A link that never has nothing to write, since another producer's messages gather as fast."""

    def __init__(self, *, transacted: bool) -> None:
        self.link: Any = Link("127.0.0.1:1", lambda _: None)
        lifeline: Any = SimpleNamespace(
            options=SimpleNamespace(book=None), flow=Flow(1 << 20), next_producer_id=lambda: 1, broker="b"
        )
        part: Any = SimpleNamespace(lifeline=lifeline, number=3, state=SimpleNamespace(transacted=transacted))
        self.lane: Any = Lane(SimpleNamespace(told=lambda: None), part, None, 100, confirmed=transacted)
        self.lane._opened(self.link, 3, pb.ProducerOpened(incarnation=7), pb.OpenProducer(), anew=True)
        self.other = Producing(2, lifeline.flow, 1 << 20, keeps=True)
        self.other.opened(Opened(8, b"", "", 0, 0, 0), 3, self.link.outbox, anew=True)
        self.given = self.written = 0

    def floods(self) -> None:
        """There are three batches more."""
        for _ in range(8):
            self.other.give(_BODY)
        for run in self.other.frames:
            self.link.open_run(run)
        self.other.frames.clear()

    async def send(self, upload: tuple[int, bytes] | None = None) -> None:
        """One message of what nobody confirms."""
        size = len(_BODY) if upload is None else len(upload[1])
        if not self.lane.has_room(size):
            await self.lane.room(size)
        self.lane.machine.give(b"" if upload else _BODY, upload=upload)
        self.lane.write()
        self.given += 1

    def write(self) -> None:
        """A batch leaves."""
        for frame in pb.ClientBatch.FromString(self.link._take()).frames:
            self.written += len(frame.publish.messages) * (frame.publish.producer == 1)


@pytest.mark.parametrize("transacted", [False, True])
@pytest.mark.parametrize("at_once", [1, 10, _TOTAL])
async def test_a_sender_that_nobody_confirms_goes_on_although_its_link_is_always_busy(
    at_once: int, transacted: bool
) -> None:
    busy = _Busy(transacted=transacted)

    async def sends() -> None:
        for _ in range(_TOTAL // at_once):
            await busy.send()

    tasks = [asyncio.create_task(sends()) for _ in range(at_once)]
    for _ in range(20 * _TOTAL):
        if busy.written == _TOTAL:
            break
        busy.floods()
        for _ in range(4):
            await asyncio.sleep(0)
        busy.write()
        assert busy.link._items
    assert (busy.given, busy.written) == (_TOTAL, _TOTAL)
    await asyncio.gather(*tasks)
    # What is left is the other's, and counts nowhere.
    assert busy.link.outbox.bytes == 0


async def test_a_large_body_counts_until_its_message_is_written() -> None:
    busy = _Busy(transacted=False)
    for number in range(5):
        await busy.send((number, bytes(1_000_000)))
    assert busy.link.outbox.bytes == 5_000_000
    waits = asyncio.create_task(busy.send())
    for _ in range(100):
        if waits.done():
            break
        busy.floods()
        await asyncio.sleep(0)
        busy.write()
        await asyncio.sleep(0)
    await waits
    assert 0 < busy.written < 5


async def test_who_waits_for_credit_alone_does_not_keep_the_writer_busy() -> None:
    busy = _Busy(transacted=False)
    lane = busy.lane
    lane.machine.bytes_left = 0
    waits = asyncio.create_task(busy.send())
    await asyncio.sleep(0)
    assert lane.is_waited_for
    assert busy.link._drained is None
    lane.on_credit(pb.ProducerCredit(producer=1, sequence_limit=1 << 40, bytes_limit=1 << 40))
    await waits
