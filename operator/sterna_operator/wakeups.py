"""Who has to be looked at when something happens: an event of Kubernetes, a change in etcd, a Secret, a broker.

Handlers do nothing but this. What brokers say of themselves changes with every revision they apply, and a new object
may be what many wait for; so those who wait for that are woken a few times a second at most, not for each change.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from sterna_operator import conditions
from sterna_operator.clusters import Clusters
from sterna_operator.keys import Key
from sterna_operator.kube import STERNA_API, Ref
from sterna_operator.mirror import Change
from sterna_operator.objects import AUDIT_JOB, CLUSTER, STORE_SNAPSHOT, Objects, cluster_of, key_of
from sterna_operator.own_writes import OwnWrites
from sterna_operator.store import ClusterStore
from sterna_operator.work_queue import Priority, WorkQueue

CLUSTER_LABEL = "sterna.dev/cluster"
AUDIT_LABEL = "sterna.dev/audit"

_GATHERING_S = 0.2
_AWAITED = frozenset({"Queue", "Topic", "Store"})
_CLAIM = "PersistentVolumeClaim"
_AUDITS = {kind.lower(): kind for kind in (AUDIT_JOB, STORE_SNAPSHOT)}


class Wakeups:
    """Fills the queue. `waiting`: objects that wait for brokers, or for others' objects, by cluster."""

    def __init__(self, queue: WorkQueue, objects: Objects, own_writes: OwnWrites | None = None) -> None:
        self.clusters: Clusters | None = None
        self._own_writes = own_writes or OwnWrites()
        self._queue = queue
        self._objects = objects
        self._waiting: dict[Key, set[Key]] = {}
        self._at_work: dict[Key, Key] = {}
        self._gathering: set[Key] = set()
        self._unlisted: set[tuple[str, str | None]] = set()

    # What is told

    def expect(self, kind: str, namespace: str | None) -> None:
        """Objects of a kind are about to be listed: what is not known yet is not taken for gone until `on_listed`."""
        self._unlisted.add((kind, namespace))
        self._queue.hold()

    def on_listed(self, kind: str, namespace: str | None, found: set[Key], version: int) -> None:
        """These are all objects of a kind at this version: what was known besides is gone."""
        self._objects.note_listed(kind, namespace)
        for key in self._objects.keys(kind):
            if key not in found and namespace in (None, key.namespace) and self._objects.remove(key, version):
                self._queue.add(key, Priority.USER_CHANGE)
                if kind == CLUSTER:
                    self._wake_cluster(key)
        if (kind, namespace) in self._unlisted:
            self._unlisted.discard((kind, namespace))
            if not self._unlisted and self.clusters is not None:
                self._queue.release()
                for store in self.clusters.all().values():
                    self._wake_orphans(store)

    def on_event(self, event: str | None, object: Mapping[str, Any]) -> None:
        """An event of Kubernetes; None: found by listing."""
        if object["apiVersion"] != STERNA_API:
            self._on_child(event, object)
            return
        key = key_of(object)
        before = self._objects.get(key)
        if event == "DELETED":
            is_news = self._objects.remove(key, int(object["metadata"]["resourceVersion"]))
        else:
            is_news = self._objects.put(object)
        if not is_news:
            return
        self._queue.add(key, self._urgency(event, key))
        if key.kind != CLUSTER:
            return
        if _concerns_others(before, self._objects.get(key)):
            self._wake_cluster(key)
        elif before is not None:
            self.on_status(key, before["status"])

    def on_status(self, key: Key, before: Mapping[str, Any]) -> None:
        """The status of an object is another than `before`; what we write ourselves the watch tells as nothing new."""
        after = self._objects.get(key)
        if key.kind != CLUSTER or after is None or before.get("maintenance") == after["status"].get("maintenance"):
            return
        for audit in self._objects.of_cluster(key):
            if audit.kind in _AUDITS.values():
                self._queue.add(audit, Priority.REFERENCE)

    def on_store(self, cluster: Key, changes: Sequence[Change], is_own: bool) -> None:
        """Keys of a cluster's etcd have changed."""
        assert self.clusters is not None  # set before any store is opened
        store = self.clusters.get(cluster)
        if store is None:
            return
        layout, wakes_waiting = store.layout, False
        for change in changes:
            key = change.key
            if key.startswith((layout.configs, layout.users)):
                if change.owner is not None and not is_own:
                    self._queue.add(change.owner, Priority.DRIFT)
                if change.claim is not None:
                    self._wake_claimants(cluster, change, but=change.owner)
                    wakes_waiting |= change.claim.kind in _AWAITED
            elif change.claim is not None:
                # A broker's word of an object, or its home.
                if key.startswith(layout.homes):
                    store.freed.discard(change.claim)
                    if store.mirror.left(change.claim) is not None:
                        # Perhaps nothing is left of it.
                        self._queue.add_after(cluster, _GATHERING_S, Priority.REFERENCE)
                self._wake_claimants(cluster, change, but=None)
            elif key == layout.operator_claim:
                # The place is ours now, or another's.
                self.on_state(cluster)
            elif not is_own or key.startswith(layout.drains):
                # Our own word that a broker is to go counts: the status was decided before, and has to say so too.
                self._queue.add_after(cluster, _GATHERING_S, Priority.REFERENCE)
                wakes_waiting |= not is_own
        if wakes_waiting:
            self._gather(cluster)

    def on_state(self, cluster: Key) -> None:
        """A cluster's etcd can be used now, or cannot any more."""
        assert self.clusters is not None  # set before any store is opened
        self._queue.add(cluster, Priority.REFERENCE)
        self._wake_cluster(cluster)
        store = self.clusters.get(cluster)
        if store is not None:
            self._wake_orphans(store)

    def on_secret(self, namespace: str, name: str) -> None:
        """A Secret that is referred to has come, changed or gone."""
        for key in self._objects.of_secret(namespace, name):
            self._queue.add(key, Priority.REFERENCE)
        for key in self.clusters_with_secret(namespace, name):
            self._queue.add(key, Priority.REFERENCE)

    def on_claimed(self, cluster: Key) -> None:
        """A cluster is ours from now on: what is in it may have been passed over."""
        self._wake_cluster(cluster)

    def on_named_child(self, ref: Ref) -> None:
        """What is watched by its name, for a cluster or for an audit that waits for it, has come, changed or gone."""
        for key in self._waiting_for(ref) if ref.kind == _CLAIM else self._clusters_in(ref.namespace):
            self._queue.add(key, Priority.REFERENCE)

    def is_named_child(self, ref: Ref) -> bool:
        """Whether there is a cluster for which such a thing may have been made, or an audit that waits for it."""
        return bool(self._waiting_for(ref) if ref.kind == _CLAIM else self._clusters_in(ref.namespace))

    def _waiting_for(self, claim: Ref) -> list[Key]:
        """The audits that name a volume claim and are not well: that is missing, perhaps."""
        found = []
        for kind in _AUDITS.values():
            for key in self._objects.keys(kind):
                audit = self._objects.get(key) or {}
                storage = (audit.get("spec") or {}).get("storage") or {}
                is_named = key.namespace == claim.namespace and storage.get("volumeClaim") == claim.name
                if is_named and not _is_well(audit):
                    found.append(key)
        return found

    def clusters_with_secret(self, namespace: str, name: str) -> list[Key]:
        """The clusters of a namespace whose manifests name a Secret, in whatever field, or whose own it is."""
        found = []
        for key in self._clusters_in(namespace):
            object = self._objects.get(key)
            own = (f"{key.name}-tls", f"{key.name}-connection")
            if object is not None and (_names(object["spec"], name) or name in own):
                found.append(key)
        return found

    def _clusters_in(self, namespace: str) -> list[Key]:
        return [key for key in self._objects.keys(CLUSTER) if key.namespace == namespace]

    def is_referred(self, namespace: str, name: str) -> bool:
        """Whether any object names a Secret."""
        return bool(self._objects.of_secret(namespace, name) or self.clusters_with_secret(namespace, name))

    def waits(self, key: Key, cluster: Key | None, *, is_waiting: bool) -> None:
        """An object was looked at: whether it waits for brokers or for others' objects."""
        if cluster is None:
            return
        if is_waiting:
            self._waiting.setdefault(cluster, set()).add(key)
        else:
            self._waiting.get(cluster, set()).discard(key)

    def begins(self, key: Key, cluster: Key | None) -> None:
        """An object is being looked at, until `ends`. What comes meanwhile may be what it will be found to wait for.

        It is decided from what is known at some moment in between, and said to wait when its status has been written.
        """
        if cluster is not None:
            self._at_work[key] = cluster

    def ends(self, key: Key) -> None:
        """It has been looked at, well or not; `waits` was told before."""
        self._at_work.pop(key, None)

    def waits_no_more(self, key: Key) -> None:
        """An object is gone."""
        for waiting in self._waiting.values():
            waiting.discard(key)

    # Inside

    def _urgency(self, event: str | None, key: Key) -> Priority:
        """How urgent an event is: what a listing finds well can wait, what nobody has looked at yet cannot."""
        if event is not None:
            return Priority.USER_CHANGE
        return Priority.RESYNC if _is_well(self._objects.get(key)) else Priority.REFERENCE

    def _wake_cluster(self, cluster: Key) -> None:
        """Everything of a cluster; what is well already is in no hurry."""
        for key in self._objects.of_cluster(cluster):
            self._queue.add(key, Priority.RESYNC if _is_well(self._objects.get(key)) else Priority.REFERENCE)

    def _on_child(self, event: str | None, object: Mapping[str, Any]) -> None:
        metadata = object["metadata"]
        if audits := _audits_of(metadata):
            is_own = event != "DELETED" and self._own_writes.has(metadata["uid"], metadata["resourceVersion"])
            for key in audits:
                self._on_child_of_audit(key, object["kind"], is_own=is_own)
            return
        # By its owner, too: somebody may have changed the label.
        owners = [one["name"] for one in metadata.get("ownerReferences") or () if one.get("kind") == CLUSTER]
        for name in dict.fromkeys([(metadata.get("labels") or {}).get(CLUSTER_LABEL), *owners]):
            if name:
                self._queue.add(Key(CLUSTER, metadata["namespace"], name), Priority.REFERENCE)

    def _on_child_of_audit(self, key: Key, kind: str, *, is_own: bool) -> None:
        # Of a Job that was just made its object has still to speak.
        if not is_own or kind == "Job":
            self._queue.add(key, Priority.REFERENCE)
        audit = self._objects.get(key)
        cluster = cluster_of(audit) if audit is not None else None
        # Whether a run goes on, or may begin, is what a cluster may wait for.
        if cluster is not None and kind in ("CronJob", "Job") and _maintenance(self._objects.get(cluster)) is not None:
            self._queue.add(cluster, Priority.REFERENCE)

    def _wake_claimants(self, cluster: Key, change: Change, but: Key | None) -> None:
        assert change.claim is not None
        for key in self._objects.of_claim(cluster, change.claim.kind, change.claim.name):
            if key != but:
                self._queue.add(key, Priority.REFERENCE)
        if but is None and change.owner is None:
            self._wake_owner(cluster, change)

    def _wake_owner(self, cluster: Key, change: Change) -> None:
        """A broker has spoken of an object that is no more in Kubernetes: its record may go now."""
        assert self.clusters is not None
        assert change.claim is not None
        store = self.clusters.get(cluster)
        owner = store.mirror.owner_of(change.claim) if store is not None else None
        if owner is not None and self._objects.get(owner) is None:
            self._queue.add(owner, Priority.REFERENCE)

    def _wake_orphans(self, store: ClusterStore) -> None:
        """Records whose object is not known: it was deleted while nobody looked."""
        if self._unlisted or not store.is_usable:
            return
        for owner in store.mirror.owners():
            if self._objects.get(owner) is None:
                self._queue.add(owner, Priority.RESYNC)

    def _gather(self, cluster: Key) -> None:
        if cluster in self._gathering:
            return
        self._gathering.add(cluster)
        asyncio.get_running_loop().call_later(_GATHERING_S, self._wake_waiting, cluster)

    def _wake_waiting(self, cluster: Key) -> None:
        self._gathering.discard(cluster)
        at_work = {key for key, its in self._at_work.items() if its == cluster}
        for key in self._waiting.get(cluster, set()) | at_work:
            self._queue.add(key, Priority.REFERENCE)


def flow_of(objects: Objects, key: Key) -> tuple[str, str]:
    """With which others an object takes turns in the queue: those of its namespace that stay, or those that go.

    A thousand deletions do not hold up the one queue that is new, nor clusters, to which everything else belongs.
    """
    object = objects.get(key)
    if key.kind == CLUSTER:
        return key.namespace, "clusters"
    return key.namespace, "going" if object is None or "deletionTimestamp" in object["metadata"] else "staying"


def _concerns_others(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bool:
    """Whether a cluster's change may mean something to what belongs to it: not its status alone."""
    if before is None or after is None:
        return True
    return any(
        before["metadata"].get(name) != after["metadata"].get(name) for name in ("generation", "deletionTimestamp")
    )


def _maintenance(cluster: Mapping[str, Any] | None) -> Any:
    return None if cluster is None else cluster["status"].get("maintenance")


def _audits_of(metadata: Mapping[str, Any]) -> set[Key]:
    """For which AuditJob or StoreSnapshot something was made, by its label and by its owner: either may be changed."""
    namespace, found = metadata["namespace"], set()
    kind, _, name = str((metadata.get("labels") or {}).get(AUDIT_LABEL) or "").partition(".")
    if kind in _AUDITS and name:
        found.add(Key(_AUDITS[kind], namespace, name))
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("kind") in _AUDITS.values():
            found.add(Key(owner["kind"], namespace, owner["name"]))
    return found


def _is_well(object: Mapping[str, Any] | None) -> bool:
    if object is None or "deletionTimestamp" in object["metadata"]:
        return False
    ready = conditions.find(object["status"], conditions.READY)
    is_current = ready.get("observedGeneration") == object["metadata"].get("generation")
    return bool(is_current and ready.get("status") == "True")


def _names(value: Any, name: str) -> bool:
    if isinstance(value, Mapping):
        return any(_names(one, name) for one in value.values())
    if isinstance(value, list):
        return any(_names(one, name) for one in value)
    return bool(value == name)
