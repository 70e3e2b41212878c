"""A grpc.aio server that sends every message of a stream back: the process that `limits` measures against."""

from collections.abc import AsyncIterator

import grpc
from sterna._loop import run as run_loop

from bench.limits import ECHO_METHOD
from bench.serving import serve


async def _stream(requests: AsyncIterator[bytes], context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
    async for request in requests:
        await context.write(request)


if __name__ == "__main__":
    run_loop(serve(ECHO_METHOD, _stream))
