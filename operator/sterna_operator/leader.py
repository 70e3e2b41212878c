"""Which of several operators acts: a Lease of Kubernetes, as its own controllers do it.

A Lease is not a lock. Its holder may be paused, and wake up believing that it still leads; so every write to etcd
compares an epoch (see `store`), and writes to Kubernetes carry what they have seen. The Lease only keeps two operators
from working against each other all the time.

Whether another one's Lease has run out is judged by our own clock, from when we last saw it change: clocks of machines
differ. Our own counts from when the last renewal that succeeded was sent. Once it has run out nothing is done any more;
if a later renewal succeeds after all, nobody has led in between, and work goes on. Whose Lease has gone to another ends
the process: a new one begins as a standby, with no half-done work in its memory.
"""

import asyncio
import time  # noqa: TID251 - the operator as a process is not simulated
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import structlog

from sterna_operator.kube import ConflictError, Kube, KubeError, NotFoundError, Ref

log = structlog.get_logger(__name__)

_API = "coordination.k8s.io/v1"


class LostLeadError(Exception):
    """Another operator leads."""


class Leader:
    """`elected` is set once we lead. `run` ends with LostLeadError when another one does."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        *,
        duration_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.elected = asyncio.Event()
        self.identity = identity
        self._kube = kube
        self._ref = Ref(_API, "Lease", namespace, name)
        self._duration_s = duration_s
        self._clock = clock
        self._lock = asyncio.Lock()
        self._renewed = asyncio.Event()
        self._seen: tuple[str, float] = ("", 0.0)
        self._lease: dict[str, Any] | None = None
        self._valid_until = 0.0

    @property
    def is_leading(self) -> bool:
        """Whether nobody else can have become the leader yet."""
        return self.elected.is_set() and self._clock() < self._valid_until

    async def leading(self) -> None:
        """Returns at once while we lead; otherwise when we do, for the first time or again."""
        while not self.is_leading:
            self._renewed.clear()
            await self._renewed.wait()

    async def run(self) -> None:
        """Waits until it may lead, then renews the Lease for as long as it can.

        Raises:
            LostLeadError: somebody else has taken over.
        """
        pause_s = self._duration_s / 5
        while not self.elected.is_set():
            try:
                if await self._try_to_acquire():
                    log.info("leading", lease=self._ref.name, identity=self.identity)
                    self.elected.set()
                    self._renewed.set()
            except KubeError as error:
                log.warning("lease not had", error=str(error))
            await asyncio.sleep(pause_s)
        while True:
            try:
                await self.confirm()
            except KubeError as error:
                log.warning("lease not renewed", error=str(error), is_leading=self.is_leading)
            await asyncio.sleep(pause_s)

    async def confirm(self) -> None:
        """Renews the Lease now; when it returns, we were the leader after it was called.

        Raises:
            LostLeadError: we are not.
            KubeError: it cannot be told.
        """
        async with self._lock:
            sent = self._clock()
            lease = self._lease
            if lease is None:
                raise LostLeadError("this operator does not lead")
            lease["spec"]["renewTime"] = _now()
            try:
                self._lease = await self._kube.replace(lease)
            except (ConflictError, NotFoundError) as error:
                self._lease = await self._after_conflict(error, lease["spec"]["renewTime"])
            self._valid_until = sent + self._duration_s
            self._renewed.set()

    async def _after_conflict(self, error: KubeError, sent_time: str) -> dict[str, Any]:
        """The Lease is not as we left it: as it is now, if it is still ours. `sent_time`: as we wanted it renewed.

        Raises:
            LostLeadError: it is not.
            KubeError: it is, and could not be renewed yet.
        """
        standing = await self._kube.get(self._ref)
        if standing is None:
            # Somebody has deleted it. If it can be made anew nobody else holds it; that nobody did in between is what
            # the epoch in etcd is for.
            standing = await self._kube.create(self._mine(None))
            if standing is not None:
                return standing
            raise LostLeadError("the Lease was deleted, and another has it now") from error
        holder = standing["spec"].get("holderIdentity")
        if holder != self.identity:
            raise LostLeadError(f"the Lease is held by {holder or 'nobody'}") from error
        # It is ours. Our renewal was done and its answer lost, or somebody has touched it otherwise (a label, say).
        if standing["spec"].get("renewTime") == sent_time:
            return standing
        standing["spec"]["renewTime"] = _now()
        self._lease = standing
        return await self._kube.replace(standing)

    async def release(self) -> None:
        """Gives the Lease up, so that another one need not wait for its end."""
        async with self._lock:
            if self._lease is None:
                return
            self._lease["spec"].update(holderIdentity="", renewTime=_now())
            try:
                await self._kube.replace(self._lease)
            except KubeError as error:
                log.warning("lease not given up; it runs out by itself", error=str(error))
            self._lease = None
            self._valid_until = 0.0

    async def _try_to_acquire(self) -> bool:
        sent = self._clock()
        standing = await self._kube.get(self._ref)
        if standing is None:
            made = await self._kube.create(self._mine(None))
        elif standing["spec"].get("holderIdentity") == self.identity:
            # We have taken it, and were not answered.
            self._lease = standing
            await self.confirm()
            return True
        elif self._is_free(standing):
            try:
                made = await self._kube.replace(self._mine(standing))
            except ConflictError:
                made = None
        else:
            made = None
        if made is None:
            return False
        self._lease, self._valid_until = made, sent + self._duration_s
        return True

    def _is_free(self, standing: dict[str, Any]) -> bool:
        spec = standing.get("spec") or {}
        if not spec.get("holderIdentity"):
            return True
        version = standing["metadata"]["resourceVersion"]
        if version != self._seen[0]:
            self._seen = (version, self._clock())
            return False
        return self._clock() - self._seen[1] > float(spec.get("leaseDurationSeconds") or self._duration_s)

    def _mine(self, standing: dict[str, Any] | None) -> dict[str, Any]:
        spec = dict((standing or {}).get("spec") or {})
        taken_over = bool(standing) and spec.get("holderIdentity") != self.identity
        spec.update(
            holderIdentity=self.identity,
            leaseDurationSeconds=max(1, round(self._duration_s)),
            renewTime=_now(),
            acquireTime=_now(),
            leaseTransitions=int(spec.get("leaseTransitions") or 0) + (1 if taken_over else 0),
        )
        metadata: dict[str, Any] = {"namespace": self._ref.namespace, "name": self._ref.name}
        if standing is not None:
            metadata = standing["metadata"]
        return {"apiVersion": _API, "kind": "Lease", "metadata": metadata, "spec": spec}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
