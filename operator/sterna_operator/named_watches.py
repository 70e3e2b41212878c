"""Objects that are watched one by one, by their names: Secrets, which nobody may list, and what else is waited for.

Kinds that may not be known, and volume claims that are missing, are the other ones.

A watch is opened for each, with a field selector for its name, so that the rights for it can be given name by name; it
ends when nothing refers to the object any more. Where watching is not allowed it is asked for every few seconds.
"""

import asyncio
import time  # noqa: TID251 - the operator as a process is not simulated
from collections.abc import Callable
from contextlib import aclosing

import structlog

from sterna_operator.kube import ForbiddenError, Kube, KubeError, NotFoundError, Ref

log = structlog.get_logger(__name__)

_WATCH_SECONDS = 290
_POLL_S = 3.0
_RETRY_S = 1.0

# Told that an object has changed, come or gone.
OnChange = Callable[[Ref], None]
IsReferred = Callable[[Ref], bool]


class NamedWatches:
    """One watch for each object. `close` ends them.

    A watch on which nothing comes for `inactivity_s`, not even a bookmark, is opened anew.
    """

    def __init__(
        self, kube: Kube, on_change: OnChange, is_referred: IsReferred, *, inactivity_s: float | None = None
    ) -> None:
        self._kube = kube
        self._on_change = on_change
        self._is_referred = is_referred
        self._inactivity_s = inactivity_s
        self._watches: dict[Ref, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def watch(self, ref: Ref, since: str = "") -> None:
        """Has an object watched, unless it is already. `since`: the resourceVersion that was seen of it."""
        task = self._watches.get(ref)
        if task is None or task.done():
            name = f"{ref.kind} {ref.namespace}/{ref.name}"
            self._watches[ref] = asyncio.create_task(self._watch(ref, since), name=name)

    async def close(self) -> None:
        """Ends all watches."""
        for task in self._watches.values():
            task.cancel()
        await asyncio.gather(*self._watches.values(), return_exceptions=True)
        self._watches.clear()

    async def _watch(self, ref: Ref, since: str) -> None:
        seen = since
        while self._is_referred(ref):
            began = time.monotonic()
            try:
                seen = await self._stream(ref, seen)
            except ForbiddenError:
                seen = await self._poll(ref, seen)
            except NotFoundError:
                # Too old a version to go on from: whatever happened, it is looked at again.
                seen = ""
                self._on_change(ref)
            except KubeError as error:
                log.info("watch broke", kind=ref.kind, namespace=ref.namespace, name=ref.name, error=str(error))
                await asyncio.sleep(_RETRY_S)
            if time.monotonic() - began < _RETRY_S:
                # A server that ends every watch at once is not asked without pause.
                await asyncio.sleep(_RETRY_S)
        self._watches.pop(ref, None)

    async def _stream(self, ref: Ref, seen: str) -> str:
        """Follows until the stream ends; the version that was seen last. One that is new to us is told of."""
        if not seen:
            # From now on: what is there now is told as an addition.
            seen = "0"
        events = self._kube.watch(
            ref.api_version,
            ref.kind,
            ref.namespace,
            ref.name,
            since=seen,
            seconds=_WATCH_SECONDS,
            silence_s=self._inactivity_s,
        )
        async with aclosing(events):
            async for event in events:
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK" and version != seen:
                    self._on_change(ref)
                seen = version
        return seen

    async def _poll(self, ref: Ref, seen: str) -> str:
        await asyncio.sleep(_POLL_S)
        try:
            found = await self._kube.get(ref)
        except ForbiddenError:
            return seen
        version = found["metadata"]["resourceVersion"] if found else ""
        if version != seen:
            self._on_change(ref)
        return version
