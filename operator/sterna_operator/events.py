"""Events: what `kubectl describe` shows of what happened to an object.

An event that repeats is counted up in the
one that there is: its name is made from what it says, so that even an operator that died in between repeats nothing.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import structlog

from sterna_operator.conditions import timestamp
from sterna_operator.kube import Kube, KubeError, Ref
from sterna_operator.reasons import Reason

log = structlog.get_logger(__name__)

COMPONENT = "sterna-operator"

# An event like this one that was posted less long ago is not posted again.
_QUIET_MS = 60_000
_REMEMBERED_MAX = 5_000


class Events:
    """Posts events. Nothing depends on them: one that cannot be posted is logged, and that is all."""

    def __init__(self, kube: Kube, identity: str) -> None:
        self._kube = kube
        self._identity = identity
        self._posted: dict[str, int] = {}

    async def post(self, object: Mapping[str, Any], reason: Reason, message: str, now_ms: int) -> None:
        """Posts one on an object (with apiVersion, kind and metadata)."""
        metadata = object["metadata"]
        text = message[:1024]
        digest = hashlib.sha256(f"{metadata['uid']} {reason.name} {text}".encode()).hexdigest()[:16]
        if now_ms - self._posted.get(digest, -_QUIET_MS) < _QUIET_MS:
            return
        if len(self._posted) >= _REMEMBERED_MAX:
            self._posted.clear()
        self._posted[digest] = now_ms
        name, namespace, now = f"{metadata['name'][:200]}.{digest}", metadata["namespace"], timestamp(now_ms)
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": object["apiVersion"],
                "kind": object["kind"],
                "namespace": namespace,
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "type": "Warning" if reason.is_warning else "Normal",
            "reason": reason.name,
            "message": text,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._identity,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._post(Ref("v1", "Event", namespace, name), event, now)
        except KubeError as error:
            log.warning("event not posted", reason=reason.name, object=metadata["name"], error=str(error))

    async def _post(self, ref: Ref, event: dict[str, Any], now: str) -> None:
        if await self._kube.create(event) is not None:
            return
        standing = await self._kube.get(ref)
        if standing is not None:
            seen = {"resourceVersion": standing["metadata"]["resourceVersion"]}
            patch = {"metadata": seen, "count": int(standing.get("count") or 1) + 1, "lastTimestamp": now}
            await self._kube.merge_patch(ref, patch)
