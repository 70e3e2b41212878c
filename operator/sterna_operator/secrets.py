"""The Secrets that objects refer to: read by name when they are needed, watched by name, never kept.

Ten thousand Secrets of others cost nothing, for nobody lists them. See `named_watches`.
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from sterna_operator.kube import Kube, Ref
from sterna_operator.named_watches import NamedWatches

log = structlog.get_logger(__name__)

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
        self._watches = NamedWatches(
            kube,
            lambda ref: on_change(ref.namespace, ref.name),
            lambda ref: is_referred(ref.namespace, ref.name),
            inactivity_s=inactivity_s,
        )

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
        self._watches.watch(Ref("v1", "Secret", namespace, name), since)

    async def close(self) -> None:
        """Ends all watches."""
        await self._watches.close()


def _secret(found: dict[str, Any]) -> Secret:
    data = {}
    for key, value in (found.get("data") or {}).items():
        try:
            data[key] = base64.b64decode(value, validate=True)
        except binascii.Error:
            log.warning("value in a Secret that is not base64", secret=found["metadata"]["name"], key=key)
    metadata = found["metadata"]
    return Secret(f"{metadata['uid']}/{metadata['resourceVersion']}", data)
