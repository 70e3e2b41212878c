"""A grpc.aio server that sends every message of a stream back: the process that `limits` measures against."""

import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
from sterna._loop import run as run_loop

from bench.limits import ECHO_METHOD


async def _stream(requests: AsyncIterator[bytes], context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
    async for request in requests:
        await context.write(request)


async def serve() -> None:
    """Serve on a free port, printed as the first line, until terminated."""
    service, method = ECHO_METHOD.strip("/").split("/")
    server = grpc.aio.server()
    handler: Any = grpc.stream_stream_rpc_method_handler(_stream)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"127.0.0.1:{port}\n")
    sys.stdout.flush()
    await server.wait_for_termination()


if __name__ == "__main__":
    run_loop(serve())
