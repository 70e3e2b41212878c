"""The Secrets that objects refer to: read by name when they are needed, watched by name, never kept.

Ten thousand Secrets of others cost nothing, for nobody lists them. A watch is opened for each Secret that an object
refers to, with a field selector for its name, so that the rights for it can be given name by name; it ends when nothing
refers to the Secret any more. Where watching is not allowed the Secret is asked for every few seconds instead.
"""

import asyncio
import base64
import binascii
import time  # noqa: TID251 - the operator as a process is not simulated
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import structlog

from sterna_operator.kube import ForbiddenError, Kube, KubeError, NotFoundError, Ref

log = structlog.get_logger(__name__)

_WATCH_SECONDS = 290
_POLL_S = 3.0
_RETRY_S = 1.0

# Told that a Secret has changed, come or gone: namespace and name.
OnChange = Callable[[str, str], None]
IsReferred = Callable[[str, str], bool]


@dataclass(frozen=True)
class Secret:
    """A Secret as it was just read. Not to be kept, nor printed."""

    version: str
    data: dict[str, bytes] = field(repr=False)

    def text(self, key: str) -> str | None:
        """A value as text; None: there is none such.

        Raises:
            ValueError: it is no UTF-8.
        """
        value = self.data.get(key)
        return None if value is None else value.decode("utf-8")


class Secrets:
    """Reads and watches. `close` ends the watches.

    A watch on which nothing comes for `inactivity_s`, not even a bookmark, is opened anew.
    """

    def __init__(
        self, kube: Kube, on_change: OnChange, is_referred: IsReferred, *, inactivity_s: float | None = None
    ) -> None:
        self._kube = kube
        self._on_change = on_change
        self._is_referred = is_referred
        self._inactivity_s = inactivity_s
        self._watches: dict[tuple[str, str], asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._watches)

    async def get(self, namespace: str, name: str) -> Secret | None:
        """The Secret as it is now; None: there is none. It is watched from now on.

        Raises:
            KubeError: it cannot be told.
        """
        found = await self._kube.get(Ref("v1", "Secret", namespace, name))
        self.watch(namespace, name, found["metadata"]["resourceVersion"] if found else "")
        return None if found is None else _secret(found)

    def watch(self, namespace: str, name: str, since: str = "") -> None:
        """Has a Secret watched, unless it is already."""
        key = (namespace, name)
        task = self._watches.get(key)
        if task is None or task.done():
            self._watches[key] = asyncio.create_task(
                self._watch(namespace, name, since), name=f"secret {namespace}/{name}"
            )

    async def close(self) -> None:
        """Ends all watches."""
        for task in self._watches.values():
            task.cancel()
        await asyncio.gather(*self._watches.values(), return_exceptions=True)
        self._watches.clear()

    async def _watch(self, namespace: str, name: str, since: str) -> None:
        seen = since
        while self._is_referred(namespace, name):
            began = time.monotonic()
            try:
                seen = await self._stream(namespace, name, seen)
                if time.monotonic() - began < _RETRY_S:
                    # A server that ends every watch at once is not asked without pause.
                    await asyncio.sleep(_RETRY_S)
            except ForbiddenError:
                seen = await self._poll(namespace, name, seen)
            except NotFoundError:
                # Too old a version to go on from: whatever happened, it is looked at again.
                seen = ""
                self._on_change(namespace, name)
            except KubeError as error:
                log.info("watch of a Secret broke", namespace=namespace, name=name, error=str(error))
                await asyncio.sleep(_RETRY_S)
        self._watches.pop((namespace, name), None)

    async def _stream(self, namespace: str, name: str, seen: str) -> str:
        """Follows until the stream ends; the version that was seen last. One that is new to us is told of."""
        if not seen:
            # From now on: what is there now is told as an addition.
            seen = "0"
        events = self._kube.watch(
            "v1", "Secret", namespace, name, since=seen, seconds=_WATCH_SECONDS, silence_s=self._inactivity_s
        )
        async with aclosing(events):
            async for event in events:
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK" and version != seen:
                    self._on_change(namespace, name)
                seen = version
        return seen

    async def _poll(self, namespace: str, name: str, seen: str) -> str:
        await asyncio.sleep(_POLL_S)
        try:
            found = await self._kube.get(Ref("v1", "Secret", namespace, name))
        except ForbiddenError:
            return seen
        version = found["metadata"]["resourceVersion"] if found else ""
        if version != seen:
            self._on_change(namespace, name)
        return version


def _secret(found: dict[str, Any]) -> Secret:
    data = {}
    for key, value in (found.get("data") or {}).items():
        try:
            data[key] = base64.b64decode(value, validate=True)
        except binascii.Error:
            log.warning("value in a Secret that is not base64", secret=found["metadata"]["name"], key=key)
    metadata = found["metadata"]
    return Secret(f"{metadata['uid']}/{metadata['resourceVersion']}", data)
