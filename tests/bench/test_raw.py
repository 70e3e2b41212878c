"""Raw frames put together from bytes are the frames of the contract."""

from typing import Any

import pytest
from sterna._proto.sterna.v1 import message_pb2, messaging_pb2

from bench.raw import FRAME_MESSAGES, RawProducer, message_bytes


class _Call:
    """Confirms the frames of each batch as it is written."""

    def __init__(self) -> None:
        self.batches: list[messaging_pb2.ClientBatch] = []
        self._answers: list[bytes] = []

    async def write(self, data: bytes) -> None:
        batch = messaging_pb2.ClientBatch.FromString(data)
        self.batches.append(batch)
        first, final = batch.frames[0].publish, batch.frames[-1].publish
        last = final.first_sequence + len(final.messages) - 1
        confirmed = messaging_pb2.Confirmed(producer=first.producer, first=first.first_sequence, last=last)
        frame = messaging_pb2.ServerFrame(confirm=messaging_pb2.Confirm(confirmed=[confirmed]))
        self._answers.append(messaging_pb2.ServerBatch(frames=[frame]).SerializeToString())

    async def read(self) -> bytes:
        return self._answers.pop(0)


@pytest.mark.parametrize("count", [1, 64, 300])
async def test_frames_are_numbered_without_gaps(count: int) -> None:
    call: Any = _Call()
    credit = messaging_pb2.ProducerCredit(producer=1, sequence_limit=10_000)
    producer = RawProducer(call, session=200, producer=1, credit=credit)
    message = message_bytes()
    sent = await producer.publish(message, count, window=256, batch_frames=3)
    assert max(len(batch.frames) for batch in call.batches) == min(3, -(-count // FRAME_MESSAGES))
    frames = [frame for batch in call.batches for frame in batch.frames]
    expected = 1
    for frame in frames:
        assert (frame.session, frame.publish.first_sequence) == (200, expected)
        assert set(frame.publish.messages) == {message}
        assert len(frame.publish.messages) <= FRAME_MESSAGES
        expected += len(frame.publish.messages)
    assert (sent.messages, expected) == (count, count + 1)


def test_the_message_is_what_the_lines_say() -> None:
    message = message_pb2.Message.FromString(message_bytes())
    assert len(message.bytes) == 1_024
    assert len(message.properties) == 3
    assert message.delivery_mode == message_pb2.PERSISTENT
