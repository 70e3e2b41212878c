"""Whether this process does what it is there for, and the port on which it says so.

`/healthz` fails when a part that should run has ended, when a watch is dead while the API server answers, or when the
queue has stood still although there is something in it; Kubernetes then starts the process anew. That etcd or the API
server is away is no such reason: a new process would not find them either. `/readyz` says whether it watches; a standby
is ready, too.
"""

import logging
import time  # noqa: TID251 - the operator as a process is not simulated
from collections.abc import Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import generate_latest

from sterna_operator.clusters import Clusters
from sterna_operator.metrics import Metrics
from sterna_operator.watching import WatchClock
from sterna_operator.work_queue import WorkQueue

_STUCK_AFTER_S = 120.0


def _server_log() -> logging.Logger:
    """Of the HTTP server; without what is no request: anybody can send that, and each would be a traceback."""
    log = logging.getLogger("sterna.operator.http")
    log.addFilter(_is_ours)
    return log


def _is_ours(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


class Liveness:
    """Gathers what is wrong."""

    def __init__(
        self,
        clock: WatchClock,
        clusters: Clusters,
        queue: WorkQueue,
        is_leading: Callable[[], bool],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ended: list[str] = []
        self._clock = clock
        self._clusters = clusters
        self._queue = queue
        self._is_leading = is_leading
        self._now = now

    def faults(self) -> list[str]:
        """What is wrong, in words; empty: nothing."""
        found = [f"task ended: {name}" for name in self.ended]
        found += [f"watch is dead: {path}" for path in self._clock.dead()]
        found += [f"watch of etcd ended: {cluster}" for cluster in self._clusters.ended]
        stood_s = self._now() - self._queue.taken_at if self._queue.taken_at is not None else 0.0
        if self._is_leading() and any(self._queue.depth().values()) and stood_s > _STUCK_AFTER_S:
            found.append(f"nothing was taken from the queue for {stood_s:.0f} s")
        return found


async def serve(
    listen: str, liveness: Liveness, metrics: Metrics, is_ready: Callable[[], bool]
) -> tuple[web.AppRunner, str]:
    """Starts the port; the runner to clean up at the end, and the address that was taken."""

    async def healthz(_: web.Request) -> web.Response:
        faults = liveness.faults()
        return web.Response(status=503 if faults else 200, text="\n".join(faults) or "ok")

    async def readyz(_: web.Request) -> web.Response:
        ready = is_ready()
        return web.Response(status=200 if ready else 503, text="ok" if ready else "does not watch yet")

    async def exposition(_: web.Request) -> web.Response:
        body = generate_latest(metrics.registry)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", exposition)])
    runner = web.AppRunner(app, access_log=None, logger=_server_log())
    await runner.setup()
    host, _, port = listen.rpartition(":")
    site = web.TCPSite(runner, host.strip("[]") or None, int(port))
    await site.start()
    name = runner.addresses[0]
    return runner, f"{name[0]}:{name[1]}"
