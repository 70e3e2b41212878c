"""A server that confirms every frame of messages and keeps none: what gRPC and Python cost by themselves in line B7.

It speaks just enough of the contract for `bench.raw`, runs on the same event loop as the broker, and confirms as the
broker does: one confirmation for all that has come in while the last one was on its way.
"""

import asyncio
from typing import Any

import grpc
from sterna._loop import run as run_loop
from sterna._proto.sterna.v1 import messaging_pb2 as pb

from bench.raw import CONNECT_METHOD, FRAME_MESSAGES
from bench.serving import serve

_REQUEST_BYTES_MAX = 2_000


class _Stream:
    """One call: what has come in, and what of it was confirmed."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._received = 0
        self._awake = asyncio.Event()
        self._ended = False

    async def serve(self) -> None:
        await asyncio.gather(self._read(), self._confirm())

    async def _read(self) -> None:
        while (batch := await self._context.read()) is not grpc.aio.EOF:
            if len(batch) > _REQUEST_BYTES_MAX:
                self._received += FRAME_MESSAGES * _frames(batch)
                self._awake.set()
            else:
                await self._answer(pb.ClientBatch.FromString(batch).frames[0])
        self._ended = True
        self._awake.set()

    async def _answer(self, frame: pb.ClientFrame) -> None:
        answers = {
            "hello": pb.ServerFrame(welcome=pb.Welcome()),
            "open_session": pb.ServerFrame(reply=pb.Reply(session_opened=pb.SessionOpened(session=1))),
            "open_producer": pb.ServerFrame(reply=pb.Reply(producer_opened=pb.ProducerOpened())),
        }
        answer = answers.get(frame.WhichOneof("frame") or "")
        if answer is not None:
            await self._context.write(pb.ServerBatch(frames=[answer]).SerializeToString())

    async def _confirm(self) -> None:
        confirmed = 0
        while True:
            self._awake.clear()
            if self._received > confirmed:
                run = pb.Confirmed(producer=1, first=confirmed + 1, last=self._received)
                confirmed = self._received
                frame = pb.ServerFrame(session=1, confirm=pb.Confirm(confirmed=[run]))
                await self._context.write(pb.ServerBatch(frames=[frame]).SerializeToString())
            elif self._ended:
                return
            else:
                await self._awake.wait()


def _frames(batch: bytes) -> int:
    """How many frames a batch has: each is a key of one byte, its length and so many bytes."""
    frames = at = 0
    while at < len(batch):
        length = shift = 0
        while True:
            at += 1
            length |= (batch[at] & 0x7F) << shift
            shift += 7
            if batch[at] < 0x80:
                break
        at += 1 + length
        frames += 1
    return frames


async def _connect(_requests: Any, context: Any) -> None:
    await _Stream(context).serve()


if __name__ == "__main__":
    run_loop(serve(CONNECT_METHOD, _connect))
