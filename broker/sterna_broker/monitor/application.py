"""The monitor's HTTP application: /livez, /readyz, /metrics.

/livez answers as long as the event loop turns: a broker that does not answer is to be restarted. /readyz says whether
clients should be sent here, with reasons; a broker that cannot write its disk is alive, and never ready. The two ask
nobody who they are, since probes cannot say; /metrics names destinations, and asks as gRPC does, by the `authorization`
header or a client certificate.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from sterna_broker.access.gate import Gate
from sterna_broker.addresses import Address
from sterna_broker.monitor.metrics import Metrics
from sterna_broker.monitor.readiness import Readiness
from sterna_broker.refusals import RefusedError
from sterna_broker.server.listening import ListenError

_log = structlog.get_logger(part="monitor")

_HANDSHAKE_S = 10.0
_AGAIN_S = 0.1
_BACKLOG = 128
# A free port of one address may be taken on another.
_PORTS_TRIED = 5
# The name has an address of a kind that this machine does not use.
_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def _server_log() -> logging.Logger:
    """Of the HTTP server; without what is no request: anybody can send that, and each would be a traceback."""
    log = logging.getLogger("sterna.monitor.http")
    log.addFilter(_is_ours)
    return log


def _is_ours(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


class Monitor:
    """Serves the probes and metrics on one port of every address that a name has."""

    def __init__(
        self,
        readiness: Callable[[], Readiness],
        state: Callable[[], str],
        metrics: Metrics,
        gate: Gate,
        connections_max: int = 64,
    ) -> None:
        self._connections_max = max(connections_max, 1)
        self._context: ssl.SSLContext | None = None
        self._listening: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._greeting: dict[asyncio.Task[None], None] = {}
        self._gate = gate
        self._readiness = readiness
        self._state = state
        self._metrics = metrics
        application = web.Application()
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._show_metrics)
        self._runner = web.AppRunner(application, access_log=None, logger=_server_log(), handle_signals=False)

    async def start(self, address: Address) -> Address:
        """Begins to listen; the address with the port that it got.

        Raises:
            ListenError: the port is taken, or not for us.
        """
        await self._runner.setup()
        self._context = self._gate.tls.http_context() if self._gate.tls else None
        try:
            self._listening = await _bind(address)
        except OSError as error:
            await self._runner.cleanup()
            raise ListenError(f"cannot listen on {address}: {error.strerror or error}") from error
        for listening in self._listening:
            listening.setblocking(False)
            self._accepting.append(asyncio.create_task(self._accept(listening), name="monitor"))
        port: int = self._listening[0].getsockname()[1]
        return Address(address.host, port)

    async def stop(self) -> None:
        """Ends; requests under way are not waited for long."""
        greeting, self._greeting = [*self._greeting], {}
        for task in (*self._accepting, *greeting):
            task.cancel()
        await asyncio.gather(*self._accepting, *greeting, return_exceptions=True)
        for listening in self._listening:
            listening.close()
        await self._runner.cleanup()

    async def _accept(self, listening: socket.socket) -> None:
        """Takes connections. One too many takes the place of the oldest: a probe always gets through."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                # Out of descriptors, or the client is gone already.
                _log.warning("monitor_cannot_accept", error=error.strerror or str(error))
                await asyncio.sleep(_AGAIN_S)
                continue
            self._make_place()
            task = loop.create_task(self._greet(connection), name="monitor connection")
            self._greeting[task] = None
            task.add_done_callback(partial(self._greeted, connection))

    def _greeted(self, connection: socket.socket, task: "asyncio.Task[None]") -> None:
        """Whoever was not taken over, even before its task began, is closed."""
        self._greeting.pop(task, None)
        if task.cancelled():
            connection.close()
        elif (error := task.exception()) is not None:
            connection.close()
            if not isinstance(error, OSError):
                _log.error("monitor_connection_failed", exc_info=error)

    def _make_place(self) -> None:
        server = self._runner.server
        assert server is not None  # as long as it listens
        connections = server.connections
        over = len(connections) + len(self._greeting) + 1 - self._connections_max
        # Whoever has not even greeted goes first.
        for task in [*self._greeting][: max(over, 0)]:
            over -= 1
            task.cancel()
        for oldest in connections[: max(over, 0)]:
            oldest.force_close()

    async def _greet(self, connection: socket.socket) -> None:
        server = self._runner.server
        assert server is not None  # as long as it listens
        loop = asyncio.get_running_loop()
        # Whoever connects and does not agree on TLS in this time is nobody worth a connection.
        timeout_s = _HANDSHAKE_S if self._context else None
        await loop.connect_accepted_socket(server, connection, ssl=self._context, ssl_handshake_timeout=timeout_s)

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


async def _bind(address: Address) -> list[socket.socket]:
    """Sockets on every address of the name, on one port.

    Bound here, and taken from connection by connection: a server of asyncio takes all that come, and knows of none
    before its handshake is over.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    places = list(dict.fromkeys((family, str(where[0])) for family, _, _, _, where in found))
    for _ in range(_PORTS_TRIED - 1):
        try:
            return _bind_all(places, address.port)
        except OSError as error:
            if address.port or error.errno != errno.EADDRINUSE:
                raise
    return _bind_all(places, address.port)


def _bind_all(places: Sequence[tuple[socket.AddressFamily, str]], port: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, host in places:
            try:
                one = socket.create_server((host, port), family=family, backlog=_BACKLOG)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                absent = error
                continue
            bound.append(one)
            port = one.getsockname()[1]
        if not bound:
            raise absent or OSError(errno.EADDRNOTAVAIL, "the name has no address")
    except OSError:
        for one in bound:
            one.close()
        raise
    return bound
