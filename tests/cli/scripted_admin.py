"""An admin service that answers as a test tells it to: for what a real broker does not do yet, or not on demand."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from sterna._proto.sterna.v1 import admin_pb2, admin_pb2_grpc, messaging_pb2

Answer = Callable[[Any], Any]


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """Ends a call with the contract's Error in the trailing metadata, as a broker does."""

    def __init__(self, code: str, message: str = "no", remedy: str = "ask somebody") -> None:
        super().__init__(message)
        self.error = messaging_pb2.Error(code=code, subject="orders", message=message, remedy=remedy)


class _Scripted(admin_pb2_grpc.AdminServicer):
    def __init__(self, answers: dict[str, Answer]) -> None:
        self._answers = answers

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattribute__(name)
        return self._method(name)

    def _method(self, name: str) -> Any:
        async def method(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            try:
                return self._answers[name](request)
            except Refusal as refusal:
                metadata = (("sterna-error-bin", refusal.error.SerializeToString()),)
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal), metadata)

        return method


@contextlib.asynccontextmanager
async def serving(**answers: Answer) -> AsyncIterator[str]:
    """Serve on a free port; gives the URL. `answers` are functions of the request, by the methods' names."""
    server = grpc.aio.server()
    admin_pb2_grpc.add_AdminServicer_to_server(_Scripted(answers), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"sterna://127.0.0.1:{port}"
    finally:
        # A call whose answer the command has read may still be ending here; it is not cut off.
        await server.stop(5)


def queue(name: str, messages: int = 0) -> admin_pb2.Resource:
    """A static queue as the broker lists it."""
    return admin_pb2.Resource(
        kind="Queue",
        name=name,
        origin=admin_pb2.STATIC,
        owner="folder",
        manifest=f'{{"apiVersion": "sterna.dev/v1alpha1", "kind": "Queue", "metadata": {{"name": "{name}"}}}}',
        effective='{"prefetch": 5}',
        statistics=admin_pb2.DestinationStatistics(messages=messages, bytes=messages * 100),
    )
