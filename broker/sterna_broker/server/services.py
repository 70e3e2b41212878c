"""The services as gRPC wants them: methods by name, callers admitted, requests decoded, refusals turned into statuses.

Connect is registered with raw bytes; everything else with the generated types.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
import structlog
from sterna_core import EngineError

from sterna_broker.access.authentication import Proof
from sterna_broker.contract import admin, messaging, naming
from sterna_broker.refusals import ERROR_METADATA, RefusedError, shutting_down
from sterna_broker.server.admin import Administration
from sterna_broker.server.connect import Connect
from sterna_broker.server.cuts import Cuts
from sterna_broker.server.naming import Naming
from sterna_broker.server.receiving import Receiving
from sterna_broker.server.sending import Sending

_log = structlog.get_logger(part="server")

MESSAGING = "sterna.v1.Messaging"
ADMIN = "sterna.v1.Admin"
NAMING = "sterna.v1.Naming"

Unary = Callable[[Any], Awaitable[Any]]
UnaryOfUser = Callable[[Any, str], Awaitable[Any]]
Admit = Callable[[Any], Awaitable[Proof]]


class Services:
    """All methods, behind one gate: while the broker drains, unary calls are refused."""

    def __init__(
        self,
        connect: Connect,
        sending: Sending,
        receiving: Receiving,
        administration: Administration,
        cuts: Cuts,
        names: Naming,
        admit: Admit,
    ) -> None:
        self.accepting = True
        self.refused: Counter[str] = Counter()
        """Calls that were refused, by code; what is refused within a stream the engine counts."""
        self._admit = admit
        self._connect = connect
        self._sending = sending
        self._receiving = receiving
        self._administration = administration
        self._cuts = cuts
        self._names = names

    def handlers(self) -> tuple["grpc.GenericRpcHandler", ...]:
        """For `Server.add_generic_rpc_handlers`."""
        administration, cuts = self._administration, self._cuts
        messaging_methods = {
            # No serializers: bytes in, bytes out.
            "Connect": grpc.stream_stream_rpc_method_handler(self._connect.handle),
            "Send": self._unary_of_user(self._sending.send, messaging.SendRequest),
            "Receive": self._unary(self._receiving.receive, messaging.ReceiveRequest),
            "Acknowledge": self._unary(self._receiving.acknowledge, messaging.AcknowledgeRequest),
        }
        admin_methods = {
            "List": self._unary(administration.list, admin.ListRequest),
            "Get": self._unary(administration.get, admin.GetRequest),
            "Apply": self._unary(administration.apply, admin.ApplyRequest),
            "Delete": self._unary(administration.delete, admin.DeleteRequest),
            "Purge": self._unary(administration.purge, admin.PurgeRequest),
            "Browse": self._stream(administration.browse, admin.BrowseRequest),
            "GetStatistics": self._unary(administration.get_statistics, admin.StatisticsRequest),
            "ListConnections": self._unary(administration.list_connections, admin.ListConnectionsRequest),
            "CloseConnection": self._unary(administration.close_connection, admin.CloseConnectionRequest),
            "BeginCut": self._unary(cuts.begin, admin.BeginCutRequest),
            "ReadCut": self._stream(cuts.read, admin.ReadCutRequest),
            "ConfirmCut": self._unary(cuts.confirm, admin.ConfirmCutRequest),
        }
        naming_methods = {"Lookup": self._unary(self._names.lookup, naming.LookupRequest)}
        return (
            grpc.method_handlers_generic_handler(MESSAGING, messaging_methods),
            grpc.method_handlers_generic_handler(ADMIN, admin_methods),
            grpc.method_handlers_generic_handler(NAMING, naming_methods),
        )

    def _unary(self, method: Unary, request_type: Any) -> "grpc.RpcMethodHandler[Any, Any]":
        return self._unary_of_user(lambda request, _: method(request), request_type)

    def _unary_of_user(self, method: UnaryOfUser, request_type: Any) -> "grpc.RpcMethodHandler[Any, Any]":
        async def call(request: Any, context: Any) -> Any:
            try:
                self._check_accepting()
                proof = await self._admit(context)
                # What the method logs says who asked.
                with structlog.contextvars.bound_contextvars(**({"user": proof.user} if proof.user else {})):
                    return await method(request, proof.user)
            except (RefusedError, EngineError) as error:
                self.refused[error.code] += 1
                return await abort(context, error)

        return grpc.unary_unary_rpc_method_handler(call, request_type.FromString, _encode)

    def _stream(
        self, method: Callable[[Any], AsyncGenerator[Any, None]], request_type: Any
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        async def call(request: Any, context: Any) -> None:
            try:
                self._check_accepting()
                await self._admit(context)
                # Each is written before the next is asked for; what the method holds is let go with the call.
                async with aclosing(method(request)) as responses:
                    async for response in responses:
                        await context.write(response)
            except (RefusedError, EngineError) as error:
                self.refused[error.code] += 1
                await abort(context, error)

        return grpc.unary_stream_rpc_method_handler(call, request_type.FromString, _encode)

    def _check_accepting(self) -> None:
        if not self.accepting:
            raise shutting_down()


async def abort(context: Any, error: RefusedError | EngineError) -> Any:
    """Ends a call with a refusal: its status, its message, and the whole of it in the trailing metadata."""
    refused = error if isinstance(error, RefusedError) else of_engine(error)
    text = f"{refused.message} {refused.remedy}".strip()
    await context.abort(refused.status, text, ((ERROR_METADATA, refused.error.SerializeToString()),))


def of_engine(error: EngineError) -> RefusedError:
    """The engine's refusal as the broker's."""
    return RefusedError(error.code, error.subject, error.message, error.remedy)


def _encode(message: Any) -> bytes:
    encoded: bytes = message.SerializeToString()
    return encoded
