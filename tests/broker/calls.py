"""Unary calls and server streams by name, as any client without generated stubs would make them."""

from typing import Any

import grpc
from sterna._proto.sterna.v1 import admin_pb2 as admin
from sterna._proto.sterna.v1 import messaging_pb2 as messaging

_TYPES: dict[str, tuple[Any, Any]] = {
    "Messaging/Send": (messaging.SendRequest, messaging.SendResponse),
    "Messaging/Receive": (messaging.ReceiveRequest, messaging.ReceiveResponse),
    "Messaging/Acknowledge": (messaging.AcknowledgeRequest, messaging.AcknowledgeResponse),
    "Admin/List": (admin.ListRequest, admin.ListResponse),
    "Admin/Get": (admin.GetRequest, admin.Resource),
    "Admin/Apply": (admin.ApplyRequest, admin.ApplyResponse),
    "Admin/Delete": (admin.DeleteRequest, admin.DeleteResponse),
    "Admin/Purge": (admin.PurgeRequest, admin.PurgeResponse),
    "Admin/GetStatistics": (admin.StatisticsRequest, admin.Statistics),
    "Admin/ListConnections": (admin.ListConnectionsRequest, admin.ListConnectionsResponse),
    "Admin/CloseConnection": (admin.CloseConnectionRequest, admin.CloseConnectionResponse),
    "Admin/BeginCut": (admin.BeginCutRequest, admin.BeginCutResponse),
    "Admin/ConfirmCut": (admin.ConfirmCutRequest, admin.ConfirmCutResponse),
}


class CallError(Exception):
    """A call that failed, with the Error of its trailing metadata."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        metadata = dict(error.trailing_metadata() or ())
        self.status = error.code()
        self.error = messaging.Error.FromString(metadata.get("sterna-error-bin", b""))
        self.code = messaging.ErrorCode.Name(self.error.code)
        super().__init__(f"{self.status.name} {self.code} ({self.error.subject}): {error.details()}")


async def call(
    channel: grpc.aio.Channel, method: str, timeout_s: float = 15, metadata: Any = None, **fields: Any
) -> Any:
    """Makes a unary call, such as `Admin/Get`.

    Raises:
        CallError: it failed.
    """
    request, response = _TYPES[method]
    stub: Any = channel.unary_unary(
        f"/sterna.v1.{method}", request_serializer=request.SerializeToString, response_deserializer=response.FromString
    )
    try:
        return await stub(request(**fields), timeout=timeout_s, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        raise CallError(error) from error


async def browse(channel: grpc.aio.Channel, **fields: Any) -> list[messaging.Delivery]:
    """All deliveries of a browse.

    Raises:
        CallError: it failed.
    """
    stub: Any = channel.unary_stream(
        "/sterna.v1.Admin/Browse",
        request_serializer=admin.BrowseRequest.SerializeToString,
        response_deserializer=admin.BrowseResponse.FromString,
    )
    try:
        return [delivery async for response in stub(admin.BrowseRequest(**fields)) for delivery in response.deliveries]
    except grpc.aio.AioRpcError as error:
        raise CallError(error) from error
