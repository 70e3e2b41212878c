"""The monitor's HTTP application: /livez, /readyz, /metrics.

/livez answers as long as the event loop turns: a broker that does not answer is to be restarted. /readyz says whether
clients should be sent here, with reasons; a broker that cannot write its disk is alive, and never ready. The two ask
nobody who they are, since probes cannot say; /metrics names destinations, and asks as gRPC does, by the `authorization`
header or a client certificate.
"""

import asyncio
from collections.abc import Callable

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from sterna_broker.access.gate import Gate
from sterna_broker.addresses import Address
from sterna_broker.monitor.metrics import Metrics
from sterna_broker.monitor.readiness import Readiness
from sterna_broker.refusals import RefusedError
from sterna_broker.server.listening import ListenError

_HANDSHAKE_S = 10.0


class Monitor:
    """Serves the probes and metrics on one address."""

    def __init__(
        self,
        readiness: Callable[[], Readiness],
        state: Callable[[], str],
        metrics: Metrics,
        gate: Gate,
        connections_max: int = 64,
    ) -> None:
        self._connections_max = max(connections_max, 1)
        self._server: asyncio.Server | None = None
        self._gate = gate
        self._readiness = readiness
        self._state = state
        self._metrics = metrics
        application = web.Application()
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._show_metrics)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False)

    async def start(self, address: Address) -> Address:
        """Begins to listen; the address with the port that it got.

        Raises:
            ListenError: the port is taken, or not for us.
        """
        await self._runner.setup()
        tls = self._gate.tls
        try:
            self._server = server = await asyncio.get_running_loop().create_server(
                self._connection,
                address.host,
                address.port,
                ssl=tls.http_context() if tls else None,
                ssl_handshake_timeout=_HANDSHAKE_S if tls else None,
                reuse_address=True,
                reuse_port=False,
            )
        except OSError as error:
            await self._runner.cleanup()
            raise ListenError(f"cannot listen on {address}: {error.strerror or error}") from error
        port: int = server.sockets[0].getsockname()[1]
        return Address(address.host, port)

    async def stop(self) -> None:
        """Ends; requests under way are not waited for long."""
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    def _connection(self) -> asyncio.Protocol:
        """The protocol of a new connection. One too many takes the place of the oldest: a probe always gets through."""
        server = self._runner.server
        assert server is not None  # as long as it listens
        connections = server.connections
        for oldest in connections[: len(connections) + 1 - self._connections_max]:
            oldest.force_close()
        return server()

    async def _livez(self, _request: web.Request) -> web.Response:
        return web.json_response({"live": True, "state": self._state()})

    async def _readyz(self, _request: web.Request) -> web.Response:
        readiness = self._readiness()
        return web.json_response(readiness.document(self._state()), status=200 if readiness.ready else 503)

    async def _show_metrics(self, request: web.Request) -> web.Response:
        certified = bool(request.get_extra_info("peercert"))
        try:
            header = request.headers.get("Authorization")
            await self._gate.admit_request(header, certified=certified, host=request.remote or "")
        except RefusedError as refused:
            text = f"{refused.message} {refused.remedy}\n"
            if refused.code == "UNAUTHENTICATED":
                return web.Response(status=401, text=text, headers={"WWW-Authenticate": 'Basic realm="sterna"'})
            return web.Response(status=503, text=text)
        self._metrics.ready = self._readiness().ready
        certificates = self._gate.certificates
        self._metrics.certificate_not_after_ms = certificates.not_after_ms if certificates else None
        return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})
