"""Looks without cause: what has changed where nobody told of it is found by them, and by nothing else.

Watches tell of nearly everything, and at once. A look is for what they did not tell: each object of ours is compared
with its copy by its version, each key in etcd with its copy, and then every object is worked on, which reads what was
made for it. `running` starts both rounds; what is worked on is for the workers.

An object costs some 0.7 ms of a core each time, and one of audits, of which the API server is asked what was made for
it, ten times as much. So few objects are looked at every minute, and with many a look comes so much later that all
looks together cost no more than a bounded part of a core.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import aclosing

import structlog

from sterna_operator.clusters import Clusters
from sterna_operator.keys import Key
from sterna_operator.kube import STERNA_API, Kube, KubeError, Ref
from sterna_operator.leader import Leader
from sterna_operator.objects import AUDIT_JOB, CLUSTER, STORE_SNAPSHOT, Objects, key_of, version_of
from sterna_operator.settings import OperatorSettings
from sterna_operator.store import UnusableError
from sterna_operator.wakeups import Wakeups
from sterna_operator.work_queue import Priority, WorkQueue

log = structlog.get_logger(__name__)

# However many there are, and however much of a core it takes: so rarely they were looked at when that was a fixed time.
_RESYNC_MAX_S = 600.0
# What a look costs, an object that stands in etcd alone being one.
_WEIGHTS = {AUDIT_JOB: 10, STORE_SNAPSHOT: 10}


def weight(keys: Iterable[Key]) -> int:
    """As how many objects these count."""
    return sum(_WEIGHTS.get(key.kind, 1) for key in keys)


def interval_s(settings: OperatorSettings, objects: int) -> float:
    """How long it is from one look at so many objects to the next."""
    return max(settings.resync_s, min(objects / settings.resync_rate, _RESYNC_MAX_S))


async def until_due(settings: OperatorSettings, objects: Callable[[], int]) -> None:
    """Waits from one look to the next: for how many there are by then, since at a start none are known yet."""
    clock = asyncio.get_running_loop().time
    began = clock()
    while True:
        left_s = began + interval_s(settings, objects()) - clock()
        if left_s <= 0:
            return
        await asyncio.sleep(min(left_s, settings.resync_s))


class Looks:
    """Both rounds; neither returns."""

    def __init__(
        self,
        settings: OperatorSettings,
        kube: Kube,
        kinds: Collection[str],
        objects: Objects,
        queue: WorkQueue,
        wakeups: Wakeups,
        clusters: Clusters,
        leader: Leader,
    ) -> None:
        self._settings = settings
        self._kube = kube
        self._kinds = kinds
        self._objects = objects
        self._queue = queue
        self._wakeups = wakeups
        self._clusters = clusters
        self._leader = leader

    async def at_all(self) -> None:
        """Has every object looked at now and then, and drops those of which no deletion was told."""
        await self._leader.elected.wait()
        while True:
            await until_due(self._settings, lambda: weight(self._objects.keys()))
            await self._leader.leading()
            try:
                await self.once()
            except KubeError as error:
                log.warning("resync put off", error=str(error))

    async def at_clusters(self) -> None:
        """Has every cluster looked at: they are few, and what is made for them can be changed by anybody."""
        await self._leader.elected.wait()
        while True:
            await asyncio.sleep(self._settings.clusters_s)
            for key in self._objects.keys(CLUSTER):
                self._queue.add(key, Priority.DRIFT)

    async def once(self) -> None:
        """One round.

        Raises:
            KubeError: the API server could not be asked.
        """
        for store in self._clusters.all().values():
            try:
                await store.compare()
            except UnusableError as error:
                log.info("etcd not compared", cluster=store.layout.cluster, error=str(error))
        behind: dict[Key, int] = {}
        for kind in self._kinds:
            behind |= await self._look_at(kind)
        await self._catch_up(behind)
        for store in self._clusters.all().values():
            for owner in store.mirror.owners():
                self._queue.add(owner, Priority.RESYNC)
        self._objects.forget_gone()

    async def _look_at(self, kind: str) -> dict[Key, int]:
        """Has the objects of a kind looked at; the versions of those that are others than is known."""
        before = set(self._objects.keys(kind))
        found: dict[Key, int] = {}
        for namespace in self._settings.namespaces or (None,):
            async with aclosing(self._kube.pages(STERNA_API, kind, namespace, only_metadata=True)) as pages:
                async for page in pages:
                    found |= {key_of(one): version_of(one) for one in page.items}
        for key in before - found.keys():
            # Asked for by name before anything is concluded: see Worker.reconcile.
            self._objects.remove(key, 0)
        for key in before | found.keys():
            self._queue.add(key, Priority.RESYNC)
        return {key: version for key, version in found.items() if self._is_behind(key, version)}

    async def _catch_up(self, behind: dict[Key, int]) -> None:
        """Asks for objects whose changes nobody has told of. Most are told while others are still being listed."""
        for key in [key for key, version in behind.items() if self._is_behind(key, version)]:
            found = await self._kube.get(Ref(STERNA_API, key.kind, key.namespace, key.name))
            if found is not None and self._is_behind(key, version_of(found)):
                log.warning("a change that no watch told of", key=str(key))
                self._wakeups.on_event("MODIFIED", found)

    def _is_behind(self, key: Key, version: int) -> bool:
        known = self._objects.get(key)
        return known is not None and version_of(known) < version
