"""Which operator a cluster belongs to, when there are several: it stands in the cluster's status, and others rest.

Operators with one Lease are one operator, of whom one leads. Two with different Leases over the same clusters would
undo each other's work all the time. The first that sees a cluster claims it (`status.managedBy`, and below its prefix
in etcd: `store`); every other leaves it and all that is in it alone, and says so in an event and in its figures.

A claim is given up by the annotation MANAGED_BY, which names the operator that is to have the cluster; or when the
operator that has it is gone: its Lease is not there for a while, or was not renewed for long.
"""

import time  # noqa: TID251 - the operator as a process is not simulated
from collections.abc import Callable, Mapping
from typing import Any

from sterna_operator.conditions import parse_timestamp
from sterna_operator.keys import Key
from sterna_operator.kube import STERNA_API, Kube, KubeError, Ref
from sterna_operator.objects import CLUSTER

MANAGED_BY = "sterna.dev/managed-by"
"""On a cluster: the operator that is to have it, as `status.managedBy` names it."""

_LEASE_API = "coordination.k8s.io/v1"
# So many times the duration of its Lease an operator may be away: without renewing it, and without there being one.
_SILENT_MAX = 30
_ABSENT_MAX = 3


class Ownership:
    """Asks whose a cluster is, and claims it. `own` is how this operator calls itself there."""

    def __init__(self, kube: Kube, own: str, *, lease_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.own = own
        self.others: dict[Key, str] = {}
        """The clusters that belong to another operator, and to which."""

        self.is_unknown = False
        """Whether the definitions are older than the claim: nothing can be claimed then."""

        self._kube = kube
        self._lease_s = lease_s
        self._clock = clock
        self._absent_since: dict[str, float] = {}

    def is_others(self, cluster: Mapping[str, Any]) -> bool:
        """Whether a cluster belongs to another operator, by what is known without asking."""
        holder = _holder(cluster)
        return holder not in ("", self.own)

    async def holder(self, cluster: Mapping[str, Any], now_ms: int) -> str | None:
        """The other operator that a cluster belongs to; None: it is ours, or may be.

        Raises:
            KubeError: it cannot be told.
        """
        holder = _holder(cluster)
        annotations = cluster["metadata"].get("annotations") or {}
        wanted = annotations.get(MANAGED_BY)
        if wanted and wanted != self.own:
            # It is to be given up, or was.
            return str(wanted)
        if holder in ("", self.own) or wanted == self.own or await self._is_gone(holder, now_ms):
            return None
        return holder

    async def claim(self, cluster: Mapping[str, Any]) -> dict[str, Any]:
        """Makes a cluster ours; the object as it is then.

        Raises:
            ConflictError: it has changed since it was seen: perhaps it is somebody else's.
        """
        metadata = cluster["metadata"]
        seen = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        ref = Ref(STERNA_API, CLUSTER, metadata["namespace"], metadata["name"])
        claimed = await self._kube.merge_patch(ref, {"metadata": seen, "status": {"managedBy": self.own}}, "status")
        self.is_unknown = not _holder(claimed)
        return claimed

    def has_claimed(self, cluster: Mapping[str, Any]) -> bool:
        """Whether there is nothing to claim any more."""
        return self.is_unknown or _holder(cluster) == self.own

    async def _is_gone(self, holder: str, now_ms: int) -> bool:
        """Whether an operator leads no more, nor will soon. Where its Lease may not be read it is there."""
        namespace, _, name = holder.partition("/")
        try:
            lease = await self._kube.get(Ref(_LEASE_API, "Lease", namespace, name))
        except KubeError as error:
            if error.code in (401, 403):
                return False
            raise
        if lease is None:
            # It may have been deleted by mistake: its leader makes it anew.
            since = self._absent_since.setdefault(holder, self._clock())
            return self._clock() - since > _ABSENT_MAX * self._lease_s
        self._absent_since.pop(holder, None)
        spec = lease.get("spec") or {}
        renewed, lasts_s = spec.get("renewTime"), float(spec.get("leaseDurationSeconds") or self._lease_s)
        return renewed is not None and now_ms - parse_timestamp(renewed) > _SILENT_MAX * lasts_s * 1000


def _holder(cluster: Mapping[str, Any]) -> str:
    return str((cluster.get("status") or {}).get("managedBy") or "")
