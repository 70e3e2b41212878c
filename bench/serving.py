"""A grpc.aio server on a free port, on the event loop that the broker runs on: what the limits are measured against."""

import sys
from typing import Any

import grpc


async def serve(method: str, handler: Any) -> None:
    """Serve one streaming method until terminated; the address is printed as the first line.

    Args:
        method: its path, `/service/method`.
        handler: a coroutine that takes the requests, as bytes, and the call's context.
    """
    service, name = method.strip("/").split("/")
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    handlers: dict[str, Any] = {name: grpc.stream_stream_rpc_method_handler(handler)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"127.0.0.1:{port}\n")
    sys.stdout.flush()
    await server.wait_for_termination()
