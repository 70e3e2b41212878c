"""Our own kinds, followed by a list and a watch of our own.

kopf makes two tasks for every object it finds, works through them one event at a time, and hands over what comes on the
watch behind all that the list had found. With ten thousand queues a new one waited for half a minute after each start
of the operator, and every object cost twenty kilobytes. And it does not say what was gone when it listed anew: a copy
of the objects would keep it for ever. So kopf follows what is made for clusters (`watching`), and this module the
objects that people make. What comes is handed over at once, as a call; a list is handed over page by page, so that
others have their turn in between.

A watch goes on from the last version that it heard of. When that has become too old everything is listed again, and
what was known and is not in the list is told as gone. The watch begins before the list, so that what is new is told
while ten thousand others are still being read; who is told knows by its version which word is the later one. A watch on
which nothing comes, not even a bookmark, is opened anew. Whatever the API server answers, a follower goes on trying;
that it hears nothing shows in the `WatchClock`, which knows whether the server is away altogether.
"""

import asyncio
import time  # noqa: TID251 - the operator as a process is not simulated
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import structlog

from sterna_operator.keys import Key
from sterna_operator.kube import Kube, KubeError, NotFoundError, TransientError
from sterna_operator.objects import key_of
from sterna_operator.watching import WatchClock, Watched, watch_path

log = structlog.get_logger(__name__)

_WATCH_SECONDS = 290
# Others have their turn after so many objects of a list: a new one's first steps are many short waits.
_PAUSE_EVERY = 25
_RETRY_S = 0.5
_RETRY_MAX_S = 15.0


class Listener(Protocol):
    """Who is told."""

    def on_event(self, event: str | None, object: Mapping[str, Any]) -> None:
        """An object was added, changed or removed; `event` None: a list has it."""

    def on_listed(self, kind: str, namespace: str | None, found: set[Key], version: int) -> None:
        """A list is complete: all that there was at this version."""


class Follower:
    """One kind, in one namespace or in all (`namespace` None). `run` never returns."""

    def __init__(
        self,
        kube: Kube,
        watched: Watched,
        namespace: str | None,
        listener: Listener,
        clock: WatchClock,
        *,
        inactivity_s: float,
        turn: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`turn`: awaited before the first list; what is new is told meanwhile."""
        self._turn = turn
        self._kube = kube
        self._watched = watched
        self._namespace = namespace
        self._listener = listener
        self._clock = clock
        self._inactivity_s = inactivity_s
        self._path = watch_path(watched, namespace)
        self._version = ""
        self._must_list = asyncio.Event()
        self.has_begun = asyncio.Event()
        """Set once it is known from which version on everything is told, at once and not by the list."""

        clock.expect([self._path])

    async def run(self) -> None:
        """Lists, watches, and does so again whenever it must."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_trying(self._watch_from_now), name=f"watch {self._path}")
            group.create_task(self._keep_trying(self._list_when_due), name=f"list {self._path}")

    async def _keep_trying(self, what: Callable[[], Awaitable[None]]) -> None:
        pause_s = _RETRY_S
        while True:
            began = time.monotonic()
            try:
                await what()
            except NotFoundError as error:
                log.info("listing again", path=self._path, why=str(error))
                self._version = ""
            except KubeError as error:
                log.warning("not followed", path=self._path, error=str(error))
                if isinstance(error, TransientError):
                    pause_s = max(pause_s, error.retry_after_s)
            # A server that ends every watch at once is asked ever more rarely.
            pause_s = _RETRY_S if time.monotonic() - began > _RETRY_MAX_S else min(pause_s, _RETRY_MAX_S)
            await asyncio.sleep(pause_s)
            pause_s *= 2

    async def _watch_from_now(self) -> None:
        if not self._version:
            pages = self._kube.pages(
                self._watched.api_version, self._watched.kind, self._namespace, only_metadata=True, page_max=1
            )
            async with aclosing(pages):
                self._version = (await anext(pages)).version
            self.has_begun.set()
            self._must_list.set()
        await self._watch()

    async def _list_when_due(self) -> None:
        """Hands over all objects, whenever nothing is known of what has happened until now."""
        await self._must_list.wait()
        self._must_list.clear()
        if self._turn is not None:
            await self._turn()
            self._turn = None
        began, found, version = time.monotonic(), set[Key](), ""
        try:
            async for page in self._kube.pages(self._watched.api_version, self._watched.kind, self._namespace):
                version = page.version
                for number, object in enumerate(page.items):
                    if number % _PAUSE_EVERY == _PAUSE_EVERY - 1:
                        await asyncio.sleep(0)
                    found.add(key_of(object))
                    self._tell(None, object)
                self._clock.note(self._path)
        except KubeError:
            self._must_list.set()
            raise
        self._listener.on_listed(self._watched.kind, self._namespace, found, int(version))
        log.info("listed", path=self._path, objects=len(found), took_s=round(time.monotonic() - began, 2))

    async def _watch(self) -> None:
        events = self._kube.watch(
            self._watched.api_version,
            self._watched.kind,
            self._namespace,
            since=self._version,
            seconds=_WATCH_SECONDS,
            silence_s=self._inactivity_s,
        )
        async with aclosing(events):
            async for event in events:
                self._clock.note(self._path)
                object = event["object"]
                if event["type"] != "BOOKMARK":
                    self._tell(event["type"], object)
                self._version = object["metadata"]["resourceVersion"]

    def _tell(self, event: str | None, object: Mapping[str, Any]) -> None:
        kind = self._watched.kind
        self._clock.events_total[kind] = self._clock.events_total.get(kind, 0) + 1
        self._listener.on_event(event, object)
