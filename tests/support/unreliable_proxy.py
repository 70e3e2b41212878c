"""A proxy in front of an HTTPS server that fails on request: refuses, falls silent, answers late, or cuts off.

It stands between a client and a Kubernetes API server. Requests are passed on one for one; which of them fail, and how,
the test says while it runs.
"""

import asyncio
import contextlib
import gc
import json
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

# Given method and path with query: the status to answer with in the server's place, or None to pass it on.
Failing = Callable[[str, str], int | None]
# Given the same of what the server has done: whether the connection ends in place of its answer.
Losing = Callable[[str, str], bool]

_HOP = {"connection", "transfer-encoding", "keep-alive", "host", "content-length", "content-encoding"}


class UnreliableProxy:
    """`with` starts it, on a thread and a loop of its own, so that a test that asks and asks does not hold it up.

    `failing` and `losing` decide about requests; each answer comes `delay_s` later; a watch is cut off when it has said
    `words_max` things. Between `freeze` and `thaw` open watches say nothing any more.
    """

    def __init__(self, server: str, kubeconfig: Path, folder: Path) -> None:
        self.failing: Failing = lambda method, path: None
        self.losing: Losing = lambda method, path: False
        self.delay_s = 0.0
        self.words_max: int | None = None
        self.retry_after_s: int | None = None
        self.failed: list[str] = []
        self.lost: list[str] = []
        self.passed_watches: list[str] = []
        self._server = server
        self._given = kubeconfig
        self._folder = folder
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="proxy")
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: aiohttp.ClientSession | None = None
        self._ended: asyncio.Event | None = None
        # Of all clients that have asked for something: while it ends, too, others come and go.
        self._clients: dict[asyncio.Transport, None] = {}
        self._thawed: asyncio.Event | None = None

    @property
    def kubeconfig(self) -> Path:
        """As the server's own, with the proxy's address."""
        return self._folder / "proxied.kubeconfig"

    def freeze(self) -> None:
        """From now on watches are silent; their connections stand."""
        assert self._loop is not None
        assert self._thawed is not None
        self._loop.call_soon_threadsafe(self._thawed.clear)

    def thaw(self) -> None:
        """Watches say what they have to say."""
        assert self._loop is not None
        assert self._thawed is not None
        self._loop.call_soon_threadsafe(self._thawed.set)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(20), "the proxy did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.thaw()
        assert self._loop is not None
        assert self._ended is not None
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(20)
        # Connections that were cut off are remarked on when they are collected: here, where that is expected.
        gc.collect()

    async def _run(self) -> None:
        self._loop, self._ended, self._thawed = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._thawed.set()
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        async with aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(), read_bufsize=2**21
        ) as own:
            self._session = own
            app = web.Application(client_max_size=2**24)
            app.router.add_route("*", "/{path:.*}", self._pass_on)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            config = json.loads(self._given.read_text())
            config["clusters"][0]["cluster"] = {"server": f"http://{host}:{port}"}
            self.kubeconfig.write_text(json.dumps(config))
            self._started.set()
            await self._ended.wait()
            server = runner.server
            assert server is not None
            clients = [one.transport for one in server.connections]
            await runner.cleanup()
            clients += self._clients
            clients += (one.transport for one in server.connections)
        # Handlers that waited for a thaw, or were in the middle of an answer: this loop is theirs alone.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        # One that has something to say to a client who does not read, or was accepted meanwhile, is not closed by that.
        for client in clients:
            if client is not None:
                client.abort()
        await asyncio.sleep(0)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            self._clients[request.transport] = None
        status = self.failing(request.method, request.path_qs)
        if status is not None:
            self.failed.append(f"{request.method} {request.path}")
            headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
            refusal = {"kind": "Status", "status": "Failure", "code": status, "message": "the proxy says so"}
            return web.json_response(refusal, status=status, headers=headers)
        assert self._session is not None
        assert self._thawed is not None
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        headers["Accept-Encoding"] = "identity"
        url = f"{self._server}{request.path_qs}"
        # Without a body there must be no type of one.
        body = await request.read() or None
        async with self._session.request(request.method, url, headers=headers, data=body) as answer:
            if self.delay_s:
                await self._delay()
            if answer.status < 400 and self.losing(request.method, request.path_qs):
                await answer.read()
                self.lost.append(f"{request.method} {request.path}")
                return _cut(request)
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            is_watch = "watch=true" in request.query_string
            if is_watch:
                self.passed_watches.append(request.path)
            words = 0
            async for chunk in answer.content.iter_any():
                if is_watch:
                    await self._thawed.wait()
                    words += 1
                await response.write(chunk)
                if is_watch and words == self.words_max:
                    return _cut(request)
            await response.write_eof()
            return response

    async def _delay(self) -> None:
        """Answers late, unless the proxy ends meanwhile."""
        assert self._ended is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.delay_s):
                await self._ended.wait()


def _cut(request: web.Request) -> web.Response:
    """Ends the client's connection in the middle; the response is nobody's."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
