"""kopf: its watches become calls of ours.

Nothing else of kopf is used but its lifecycle, and this is the only module that knows it. It watches what is made for
clusters; our own kinds, of which we keep a copy, are followed by `following`. kopf lists every kind once
and follows it, reconnects, and lists again when it must. We take the raw events (`on.event`), never its change
handlers: those keep state in annotations and drop finalizers when a handler returns.

kopf does not say whether its watches live. It takes an HTTP session of ours, though: every chunk that is read of a
watch, bookmarks included, is noted by path (`Heard`: aiohttp itself traces only bodies that are read as a whole). A
watch on which nothing has come for longer than Kubernetes ever leaves one without a bookmark is dead (`WatchClock`), if
the API server has answered all the while: the Lease alone has it asked every few seconds.
"""

import asyncio
import time  # noqa: TID251 - the operator as a process is not simulated
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiohttp
import kopf
from kubernetes.aio import client

from sterna_operator.kube import plural
from sterna_operator.settings import OperatorSettings

# Told of every event: its type (None: found by listing), and the object.
OnEvent = Callable[[str | None, Mapping[str, Any]], None]

# The server sends bookmarks once a minute, and ends a watch after this many seconds; kopf opens it again.
_SERVER_TIMEOUT_S = 290
DEAD_AFTER_S = OperatorSettings.watch_dead_after_s

# An API server that has refused or not answered for so long is away; a single failure is none.
_AWAY_AFTER_S = 10.0


@dataclass(frozen=True)
class Watched:
    """A kind that is watched; `labels`: only objects that match this selector."""

    api_version: str
    kind: str
    labels: str = ""


@dataclass
class WatchClock:
    """When something was last heard on each watch, by its path, and whether the API server answers at all."""

    clock: Callable[[], float] = time.monotonic
    dead_after_s: float = DEAD_AFTER_S
    heard: dict[str, float] = field(default_factory=dict)
    events_total: dict[str, int] = field(default_factory=dict)
    _failing_since: float | None = None
    _back_since: float = float("-inf")

    def note(self, path: str) -> None:
        """Something came."""
        self.heard[path] = self.clock()

    def note_server(self, answered: bool) -> None:
        """A request to the API server has ended: with an answer, or with a failure that is the server's."""
        if not answered:
            self._failing_since = self.clock() if self._failing_since is None else self._failing_since
            return
        if self.is_server_away:
            # Watches begin anew, and have their time from now on.
            self._back_since = self.clock()
        self._failing_since = None

    @property
    def is_server_away(self) -> bool:
        """Whether requests have failed for a while, and none has been answered since."""
        return self._failing_since is not None and self.clock() - self._failing_since > _AWAY_AFTER_S

    def expect(self, paths: Iterable[str]) -> None:
        """From now on these are to be heard of."""
        for path in paths:
            self.heard.setdefault(path, self.clock())

    def ages_s(self) -> dict[str, float]:
        """The seconds since, by path."""
        now = self.clock()
        return {path: now - at for path, at in self.heard.items()}

    def dead(self) -> list[str]:
        """The watches on which nothing has come for too long, although the API server has answered all that time."""
        now = self.clock()
        if self.is_server_away:
            return []
        return sorted(path for path, at in self.heard.items() if now - max(at, self._back_since) > self.dead_after_s)


class Heard:
    """The body of a watch, which tells of every chunk that is read of it. All else is the body's own."""

    def __init__(self, content: aiohttp.StreamReader, note: Callable[[], None]) -> None:
        self._content = content
        self._note = note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """As kopf reads it."""
        async for chunk in self._content.iter_chunked(size):
            self._note()
            yield chunk


def watch_path(watched: Watched, namespace: str | None) -> str:
    """The path on which a kind is watched."""
    root = "apis" if "/" in watched.api_version else "api"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"/{root}/{watched.api_version}{within}/{plural(watched.kind)}"


async def follow(
    configuration: client.Configuration,
    namespaces: tuple[str, ...],
    everything: Iterable[Watched],
    on_event: OnEvent,
    clock: WatchClock,
    ready: asyncio.Event,
    stop: asyncio.Event,
    *,
    inactivity_s: float,
) -> None:
    """Runs kopf until `stop` is set, a signal comes, or kopf fails."""
    kinds = list(everything)
    for namespace in namespaces or (None,):
        clock.expect(watch_path(watched, namespace) for watched in kinds)
    registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
    _configure(settings, kinds, inactivity_s)

    async def login(**_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(
            server=configuration.host, aiohttp_session=_session(configuration, clock), default_namespace=None
        )

    kopf.on.login(registry=registry)(login)
    for watched in kinds:
        _register(registry, watched, on_event, clock)
    await kopf.operator(
        registry=registry,
        settings=settings,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        ready_flag=ready,
        stop_flag=stop,
    )


def _register(registry: kopf.OperatorRegistry, watched: Watched, on_event: OnEvent, clock: WatchClock) -> None:
    group, _, version = watched.api_version.rpartition("/")

    async def handler(event: Mapping[str, Any], **_: Any) -> None:
        object = dict(event["object"])
        # Objects from a list do not say what they are.
        object["apiVersion"], object["kind"] = watched.api_version, watched.kind
        clock.events_total[watched.kind] = clock.events_total.get(watched.kind, 0) + 1
        on_event(event["type"], object)

    name = f"on_{watched.kind}"
    kopf.on.event(group, version, plural(watched.kind), registry=registry, id=name)(handler)


def _configure(settings: kopf.OperatorSettings, kinds: Iterable[Watched], inactivity_s: float) -> None:
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = _SERVER_TIMEOUT_S
    settings.watching.client_timeout = _SERVER_TIMEOUT_S + 30
    settings.watching.connect_timeout = 10.0
    settings.watching.reconnect_backoff = 0.5
    settings.watching.inactivity_timeout = inactivity_s
    settings.watching.chunk_size = 500
    # kopf keeps two tasks for each object whose events it has just handed over.
    settings.queueing.idle_timeout = 0.2
    for watched in kinds:
        if watched.labels:
            group, _, version = watched.api_version.rpartition("/")
            settings.watching.label_selectors[group, version, plural(watched.kind)] = watched.labels


def _session(configuration: client.Configuration, clock: WatchClock) -> aiohttp.ClientSession:
    """A session with the credentials of `configuration`, renewed for each request, that notes what it hears."""
    rest = client.ApiClient(configuration).rest_client

    async def authorize(
        request: aiohttp.ClientRequest, handler: Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]
    ) -> aiohttp.ClientResponse:
        for one in (await configuration.auth_settings()).values():
            if one["in"] == "header" and one["value"]:
                request.headers[one["key"]] = one["value"]
        response = await handler(request)
        if "watch" in request.url.query:
            heard = Heard(response.content, partial(clock.note, request.url.path))
            response.content = heard  # type: ignore[assignment]
        return response

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=rest.ssl_context),
        middlewares=(authorize,),
        read_bufsize=2**21,
    )
