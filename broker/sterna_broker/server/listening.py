"""The gRPC server itself: its options, its health and reflection services, its port with TLS or without.

Health and reflection ask nobody who they are: the one says whether the broker serves, the other what everybody can
read in `proto/`.
"""

from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from sterna_broker.access.tls import ServerTls
from sterna_broker.addresses import Address
from sterna_broker.server.services import ADMIN, MESSAGING, NAMING, Services

# A message may be larger than a batch of frames: so the engine, not gRPC, refuses what is somewhat too large, naming
# the limit; and a manifest may be large. Beyond it gRPC answers RESOURCE_EXHAUSTED by itself.
_MESSAGE_SLACK = 4
_MESSAGE_BYTES_MIN = 16 * 1024 * 1024


class ListenError(Exception):
    """The port cannot be had."""


class Listener:
    """Serves the services on one address."""

    def __init__(
        self,
        services: Services,
        frame_bytes: int,
        *,
        connections_max: int,
        tls: ServerTls | None = None,
        reflects: bool = True,
    ) -> None:
        self._tls = tls
        self._server = grpc.aio.server(options=_options(frame_bytes, connections_max))
        self._server.add_generic_rpc_handlers(services.handlers())
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if reflects:
            names = (MESSAGING, ADMIN, NAMING, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._server)

    async def start(self, address: Address) -> Address:
        """Begins to listen; the address with the port that it got.

        Raises:
            ListenError: the port is taken, or not for us.
        """
        try:
            if self._tls is None:
                port = self._server.add_insecure_port(str(address))
            else:
                port = self._server.add_secure_port(str(address), self._tls.grpc_credentials())
        except RuntimeError as error:
            raise ListenError(f"cannot listen on {address}: {_reason(error)}") from error
        if port == 0:
            raise ListenError(f"cannot listen on {address}")
        await self.set_serving(serving=False)
        await self._server.start()
        return Address(address.host, port)

    async def set_serving(self, *, serving: bool) -> None:
        """What the health service answers."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", MESSAGING, ADMIN, NAMING):
            await self._health.set(service, status)

    async def stop(self, grace_s: float) -> None:
        """Ends: calls under way have so long."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)


def _options(frame_bytes: int, connections_max: int) -> list[tuple[str, Any]]:
    return [
        # Two brokers on one port would each get half of the clients.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", max(frame_bytes * _MESSAGE_SLACK, _MESSAGE_BYTES_MIN)),
        ("grpc.max_send_message_length", -1),
        # Finds peers that vanished without a word; the engine's heartbeats find those that hang.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.max_concurrent_streams", 10_000),
        # Connections of TCP, whoever they are: each is an open file. One too many is closed at once.
        ("grpc.max_allowed_incoming_connections", connections_max),
        # Whoever connects and does not agree on TLS in this time is nobody worth a connection.
        ("grpc.server_handshake_timeout_ms", 10_000),
    ]


def _reason(error: RuntimeError) -> str:
    return "the address is in use or may not be used" if "address" in str(error) else str(error)
