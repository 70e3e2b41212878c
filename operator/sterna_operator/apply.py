"""Executes a plan, step by step, in its order.

Every step may be done twice with the same result. One that finds the world changed raises; nothing after it is done,
and the object is looked at again: what is left of the plan is then decided anew, not resumed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sterna_etcd import Condition, Delete, Put, absent, mod_revision
from sterna_etcd.records import DrainRecord, LeftRecord, Owner

from sterna_operator.builders import differences
from sterna_operator.kube import InvalidError, Kube, NotFoundError, Ref, ref_of
from sterna_operator.own_writes import OwnWrites
from sterna_operator.plans import (
    FINALIZER,
    AddFinalizer,
    ApplyObject,
    ForgetLeft,
    PatchObject,
    PutConfig,
    PutDrain,
    PutUser,
    RemoveBroker,
    RemoveConfig,
    RemoveDrain,
    RemoveFinalizer,
    RemoveObject,
    RemoveUser,
    RepairObject,
    Step,
)
from sterna_operator.put_back import PutBack
from sterna_operator.store import ClusterStore, UnusableError

# etcd takes 128 operations in one transaction.
_OPERATIONS_MAX = 100


class Applier:
    """Executes the steps of one object's plan. `object` is the object as it is after each of them.

    `check_lead` raises when another operator may lead by now, and is called before each step: a process that was paused
    in the middle of a plan may wake up when another one has long decided otherwise.
    """

    def __init__(
        self,
        kube: Kube,
        object: Mapping[str, Any] | None,
        store: ClusterStore | None,
        check_lead: Callable[[], None],
        put_back: PutBack | None = None,
        own_writes: OwnWrites | None = None,
        *,
        is_ahead: bool = False,
    ) -> None:
        """`is_ahead`: as `ClusterStore.write` takes it."""
        self._is_ahead = is_ahead
        self.object = object
        self._own_writes = own_writes or OwnWrites()
        self._put_back = put_back or PutBack()
        self._kube = kube
        self._store = store
        self._check_lead = check_lead
        self._versions: dict[Ref, str] = {}

    async def execute(self, steps: Sequence[Step]) -> None:
        """All steps.

        Raises:
            KubeError, StoreError: a step was not done.
        """
        for step in steps:
            self._check_lead()
            await self._execute(step)

    async def _execute(self, step: Step) -> None:
        match step:
            case ApplyObject():
                # What others have put into what stood before stays, which says nothing of who puts things back.
                self._look_at(step.manifest, await self._kube.apply(step.manifest), is_all_ours=step.is_new)
            case RepairObject():
                await self._repair(step)
            case PatchObject():
                await self._patch(step)
            case RemoveObject():
                ref = Ref(step.api_version, step.kind, step.namespace, step.name)
                await self._kube.delete(ref, step.uid, self._versions.get(ref, step.version), step.propagation)
            case AddFinalizer():
                await self._finalizers(add=True)
            case RemoveFinalizer():
                await self._finalizers(add=False)
            case _:
                await self._write(step)

    async def _repair(self, step: RepairObject) -> None:
        metadata = {**step.patch.get("metadata", {}), "resourceVersion": step.version}
        patch = {**step.patch, "metadata": metadata}
        try:
            answer = await self._kube.merge_patch(ref_of(step.manifest), patch)
        except InvalidError as error:
            # It cannot be put right, as a field that nobody can change once it is set: all else has to go on.
            manifest = step.manifest
            label = f"{manifest['kind']} {manifest['metadata']['name']} ({error})"
            self._put_back.note(step.uid, label, step.differences)
            return
        self._look_at(step.manifest, answer, is_all_ours=True)

    def _look_at(self, manifest: Mapping[str, Any], answer: Mapping[str, Any], *, is_all_ours: bool) -> None:
        """Notes what is not as it should be right after it was put right. `is_all_ours`: nothing was left to others."""
        uid = answer["metadata"]["uid"]
        self._own_writes.note(uid, answer["metadata"]["resourceVersion"])
        left = differences.remaining(manifest, answer, self._put_back.of(uid), also_more=is_all_ours)
        self._put_back.note(uid, f"{manifest['kind']} {manifest['metadata']['name']}", left)

    async def _patch(self, step: PatchObject) -> None:
        ref = Ref(step.api_version, step.kind, step.namespace, step.name)
        # What an earlier step of this plan has made of the object is what this one was decided for.
        version = self._versions.get(ref, step.version)
        metadata = {**step.patch.get("metadata", {}), "resourceVersion": version}
        try:
            patched = await self._kube.merge_patch(ref, {**step.patch, "metadata": metadata})
        except NotFoundError:
            return
        self._versions[ref] = patched["metadata"]["resourceVersion"]
        self._own_writes.note(patched["metadata"]["uid"], patched["metadata"]["resourceVersion"])

    async def _finalizers(self, *, add: bool) -> None:
        assert self.object is not None  # a plan without an object has no such step
        metadata = self.object["metadata"]
        standing = list(metadata.get("finalizers") or ())
        if (FINALIZER in standing) == add:
            return
        wanted = [*standing, FINALIZER] if add else [one for one in standing if one != FINALIZER]
        ref = Ref(self.object["apiVersion"], self.object["kind"], metadata["namespace"], metadata["name"])
        patch = {
            "metadata": {"finalizers": wanted, "resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}
        }
        try:
            self.object = await self._kube.merge_patch(ref, patch)
        except NotFoundError:
            if add:
                raise
            self.object = {**self.object, "metadata": {**metadata, "finalizers": []}}

    async def _write(self, step: Step) -> None:
        if self._store is None:
            raise UnusableError("EtcdUnavailable", f"there is no etcd for: {step.summary}")
        if isinstance(step, RemoveBroker):
            await self._remove_broker(self._store, step)
            return
        conditions, operations = _transaction(self._store, step)
        await self._store.write(conditions, operations, is_ahead=self._is_ahead)
        # Where its home has gone already nobody would take it out again.
        if isinstance(step, RemoveConfig) and step.is_deleted and self._store.mirror.home_of(step.claim):
            self._store.freed.add(step.claim)

    async def _remove_broker(self, store: ClusterStore, step: RemoveBroker) -> None:
        gone = absent(store.layout.broker(step.broker))
        homes = list(store.mirror.homes_of(step.broker).items()) if step.gives_up_homes else []
        for first in range(0, len(homes), _OPERATIONS_MAX):
            some = homes[first : first + _OPERATIONS_MAX]
            unchanged = [mod_revision(key, revision) for key, revision in some]
            await store.write([gone, *unchanged], [Delete(key) for key, _ in some])
        keys = store.mirror.keys_of_broker(step.broker)
        for first in range(0, len(keys), _OPERATIONS_MAX):
            await store.write([gone], [Delete(key) for key in keys[first : first + _OPERATIONS_MAX]])


def _left(owner: Owner) -> bytes:
    return LeftRecord(owner=owner).encode()


def _transaction(store: ClusterStore, step: Step) -> tuple[list[Condition], list[Put | Delete]]:
    layout = store.layout
    match step:
        case PutConfig():
            key = layout.config(step.claim)
            taken_back = [Delete(layout.left(step.claim))] if step.takes_back else []
            return [mod_revision(key, step.revision)], [Put(key, step.record.encode()), *taken_back]
        case RemoveConfig():
            key = layout.config(step.claim)
            said = Delete(layout.object_statuses_of(step.claim), is_prefix=True)
            left = [] if step.left_by is None else [Put(layout.left(step.claim), _left(step.left_by))]
            return [mod_revision(key, step.revision)], [Delete(key), said, *left]
        case ForgetLeft():
            key = layout.left(step.claim)
            return [mod_revision(key, step.revision)], [Delete(key)]
        case PutUser():
            key = layout.user(step.name)
            return [mod_revision(key, step.revision)], [Put(key, step.record.encode())]
        case RemoveUser():
            key = layout.user(step.name)
            return [mod_revision(key, step.revision)], [Delete(key)]
        case PutDrain():
            record = DrainRecord(force=step.force, closes_only=step.closes_only)
            return [], [Put(layout.drain(step.broker), record.encode())]
        case RemoveDrain():
            return [], [Delete(layout.drain(step.broker))]
    raise AssertionError(f"a step that nobody executes: {step!r}")
