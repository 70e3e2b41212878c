"""The workers: take a key, decide, act, say so. Several run at once, never two on one object.

What goes wrong with one object concerns that object: it is looked at again, later each time. Two things concern the
whole process, which then ends: that another operator leads, and that etcd has seen another operator's epoch.
"""

import asyncio
import time  # noqa: TID251 - the operator as a process is not simulated
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog
from sterna_resources.status import UNOBSERVED

from sterna_operator import conditions
from sterna_operator.apply import Applier
from sterna_operator.conditions import Condition
from sterna_operator.events import Events
from sterna_operator.keys import Key
from sterna_operator.kinds.registry import status_fields
from sterna_operator.kube import STERNA_API, ConflictError, Kube, KubeError, NotFoundError, Ref, TransientError
from sterna_operator.leader import Leader, LostLeadError
from sterna_operator.metrics import Metrics
from sterna_operator.objects import CLUSTER, Objects, cluster_of, key_of
from sterna_operator.ownership import MANAGED_BY, Ownership
from sterna_operator.plans import Plan, RemoveFinalizer, Wanted
from sterna_operator.reasons import Reason
from sterna_operator.store import FencedError, StaleError, StoreError, UnusableError
from sterna_operator.view import Decision, Kind, View
from sterna_operator.wakeups import Wakeups
from sterna_operator.work_queue import Item, Priority, WorkQueue

log = structlog.get_logger(__name__)

PLAN_ANNOTATION = "sterna.dev/plan"
_PLAN_STEPS_MAX = 100
_CONFLICTS_MAX = 5
# How long an object that was just created waits for brokers, or for what it was created with, before its status says
# that it waits. Both come within moments, as a rule, and a thousand new objects would have statuses that nobody reads.
_SILENCE_S = 1.0
# Conditions whose object is woken when brokers or others' objects change.
_WAITING = frozenset({"Applying", "NoBrokers", "Deleting", "ReferenceMissing"})


def _is_new(object: Mapping[str, Any]) -> bool:
    """Whether nothing was ever said of an object of ours that brokers have to apply, but by the server itself."""
    seen = (object.get("status") or {}).get("observedGeneration", UNOBSERVED)
    return object["kind"] != CLUSTER and seen == UNOBSERVED and "deletionTimestamp" not in object["metadata"]


def _knows_only_home(object: Mapping[str, Any], wanted: Wanted, ready: Condition) -> bool:
    """Whether an object says already that it waits, and all that is new is on which broker it will live."""
    status = object.get("status") or {}
    standing = conditions.find(status, conditions.READY)
    said = (standing.get("reason"), standing.get("message"), standing.get("observedGeneration"))
    fields = {name: value for name, value in wanted.fields.items() if name != "home"}
    same = said == (ready.reason, ready.message, object["metadata"].get("generation"))
    return same and "home" not in status and all(status.get(name) == value for name, value in fields.items())


def _is_dry(object: Mapping[str, Any]) -> bool:
    """Whether a plan is asked for. Nobody can plan with what is going: its deletion would wait for ever."""
    annotations = object["metadata"].get("annotations") or {}
    return annotations.get(PLAN_ANNOTATION) == "true" and "deletionTimestamp" not in object["metadata"]


def _only_planned(object: Mapping[str, Any], wanted: Wanted) -> Wanted:
    """What is said of an object whose steps are shown and not done: as of one that is paused, not what they lead to."""
    ready = conditions.find(object.get("status") or {}, conditions.READY)
    was_ready = ready.get("status") == "True"
    text = f"nothing is done while the annotation {PLAN_ANNOTATION} stands; status.plan has the steps"
    said = conditions.stalled("Planned", text, is_ready=was_ready)
    if was_ready:
        # That is about what was applied before.
        said = tuple(
            replace(one, generation=ready.get("observedGeneration")) if one.type == conditions.READY else one
            for one in said
        )
    others = tuple(one for one in wanted.conditions if one.type not in {known.type for known in said})
    return replace(wanted, conditions=(*said, *others))


class Worker:
    """Works the queue off. `run` as often as there are to be workers."""

    def __init__(
        self,
        view: View,
        kinds: Mapping[str, Kind],
        queue: WorkQueue,
        wakeups: Wakeups,
        events: Events,
        leader: Leader,
        metrics: Metrics,
        ownership: Ownership,
    ) -> None:
        self._view = view
        self._kinds = kinds
        self._queue = queue
        self._wakeups = wakeups
        self._events = events
        self._leader = leader
        self._metrics = metrics
        self._ownership = ownership
        self._conflicts: dict[Key, int] = {}
        self._silent_until: dict[Key, float] = {}

    @property
    def _kube(self) -> Kube:
        return self._view.kube

    @property
    def _objects(self) -> Objects:
        return self._view.objects

    async def run(self) -> None:
        """Works for as long as we lead.

        Raises:
            LostLeadError, FencedError: another operator leads.
        """
        while True:
            await self._leader.leading()
            item = await self._queue.get()
            # The wait may have been long.
            await self._leader.leading()
            self._metrics.waited_seconds.labels(item.priority.name.lower()).observe(item.waited_s)
            began = time.monotonic()
            await self._work(item)
            self._metrics.reconcile_seconds.labels(item.key.kind).observe(time.monotonic() - began)
            # What is well needs no answer from anybody: thousands in a row would leave nobody else a turn.
            await asyncio.sleep(0)

    async def _work(self, item: Item) -> None:
        key = item.key
        try:
            await self.reconcile(key)
        except (LostLeadError, FencedError):
            raise
        except ConflictError:
            await self._after_conflict(key)
        except NotFoundError as error:
            await self._after_not_found(key, error)
        except (KubeError, StoreError) as error:
            after = error.retry_after_s if isinstance(error, TransientError) else 0.0
            self._failed(key, error, after)
            if not isinstance(error, TransientError | StoreError):
                await self._say_failed(key, str(error))
        except Exception as error:
            log.exception("reconciling failed", key=str(key))
            self._failed(key, error)
            await self._say_failed(key, f"internal error: {type(error).__name__}: {error}")
        else:
            self._conflicts.pop(key, None)
            self._queue.done(key)

    def _failed(self, key: Key, error: Exception, not_before_s: float = 0.0) -> None:
        delay = self._queue.failed(key, not_before_s=not_before_s)
        self._metrics.failures_total.labels(key.kind, type(error).__name__).inc()
        log.warning("object put back", key=str(key), error=str(error), again_s=round(delay, 1))

    async def _after_conflict(self, key: Key) -> None:
        """Our copy was old: it is made new, and the object looked at again at once; not for ever at once."""
        self._conflicts[key] = self._conflicts.get(key, 0) + 1
        try:
            await self._refresh(key)
        except KubeError as error:
            self._failed(key, error)
            return
        if self._conflicts[key] > _CONFLICTS_MAX:
            self._failed(key, ConflictError(409, "the object changes faster than it can be worked on"))
            return
        self._queue.done(key)
        self._queue.add(key, Priority.USER_CHANGE)

    async def _after_not_found(self, key: Key, error: NotFoundError) -> None:
        """Something went while it was worked on: the object itself, or what it was about."""
        try:
            if await self._refresh(key) is not None:
                self._failed(key, error)
                return
        except KubeError as another:
            self._failed(key, another)
            return
        self._queue.done(key)
        self._queue.add(key, Priority.REFERENCE)

    async def _refresh(self, key: Key) -> Mapping[str, Any] | None:
        found = await self._kube.get(Ref(STERNA_API, key.kind, key.namespace, key.name))
        if found is None:
            self._objects.remove(key, 0)
            return None
        self._objects.put(found)
        return self._objects.get(key) or found

    async def reconcile(self, key: Key) -> None:
        """One object, once.

        Raises:
            KubeError, StoreError: something was not done.
            LostLeadError: another operator leads.
        """
        namespaces = self._view.settings.namespaces
        if namespaces and key.namespace not in namespaces:
            return
        object = self._objects.get(key) or await self._refresh(key)
        kind = self._kinds[key.kind]
        if object is None:
            for decision in await kind.decide_gone(self._view, key):
                await self._execute(decision, None)
            if key.kind == CLUSTER:
                await self._view.clusters.drop(key)
            self._wakeups.waits_no_more(key)
            self._silent_until.pop(key, None)
            return
        ours = await self._ours(key, object)
        if ours is None:
            self._wakeups.waits_no_more(key)
            return
        self._wakeups.begins(key, cluster_of(ours))
        try:
            await self._reconcile(key, kind, ours)
        finally:
            self._wakeups.ends(key)
        if key.kind == CLUSTER and not _is_dry(ours):
            await self._claim_etcd(key)

    async def _ours(self, key: Key, object: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The object to go on with, claimed if it is a cluster; None: its cluster is another operator's."""
        if key.kind != CLUSTER:
            named = cluster_of(object)
            cluster = self._objects.get(named) if named is not None else None
            return None if cluster is not None and self._ownership.is_others(cluster) else object
        holder = await self._ownership.holder(object, self._view.now_ms())
        if holder is not None:
            await self._leave(key, object, holder)
            return None
        self._ownership.others.pop(key, None)
        if self._ownership.has_claimed(object) or _is_dry(object) or "deletionTimestamp" in object["metadata"]:
            return object
        self._check_lead()
        claimed = await self._ownership.claim(object)
        self._objects.put(claimed)
        self._wakeups.on_claimed(key)
        return self._objects.get(key) or claimed

    async def _leave(self, key: Key, object: Mapping[str, Any], holder: str) -> None:
        """The cluster is another operator's: it is left alone, and that is said once."""
        await self._view.clusters.drop(key)
        if self._ownership.others.get(key) == holder:
            return
        self._ownership.others[key] = holder
        own = self._ownership.own
        text = f"operator {own} leaves it alone: it belongs to {holder}. {MANAGED_BY}: {own} hands it over"
        log.warning("cluster of another operator", key=str(key), holder=holder)
        await self._events.post(object, Reason.ManagedByOther, text, self._view.now_ms())

    async def _claim_etcd(self, key: Key) -> None:
        """Says in the cluster's etcd, too, whose it is: another Kubernetes sees nothing but that."""
        clusters = self._view.clusters
        store = clusters.get(key)
        if store is None or store.epoch is not None or clusters.fault(key) is not None:
            return
        try:
            await clusters.claimed(store)
        except UnusableError as error:
            log.info("place in etcd not claimed yet", key=str(key), error=str(error))

    async def _reconcile(self, key: Key, kind: Kind, object: Mapping[str, Any]) -> None:
        decision = await kind.decide(self._view, object)
        plan = decision.plan
        is_dry = _is_dry(object)
        if not is_dry:
            object = await self._execute(decision, object) or object
        if plan.again_s is not None:
            self._queue.add_after(key, max(plan.again_s, 0.1), Priority.DRIFT)
        is_let_go = "deletionTimestamp" in object["metadata"] and any(
            isinstance(s, RemoveFinalizer) for s in plan.steps
        )
        if is_let_go and not is_dry:
            # It has no status any more, perhaps; an event stays for a while.
            await self._announce(object, plan)
            if not object["metadata"].get("finalizers"):
                # The server has answered with its last state, and removed it: nobody has to wait until that is told.
                self._wakeups.on_event("DELETED", object)
            return
        await self._say(key, object, plan, is_dry)

    async def _execute(self, decision: Decision, object: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        plan, store = decision.plan, decision.store
        if not plan.steps:
            return object
        if store is not None:
            await self._view.clusters.claimed(store)
        view = self._view
        applier = Applier(
            self._kube,
            object,
            store,
            self._check_lead,
            view.put_back,
            view.own_writes,
            is_ahead=decision.is_ahead,
        )
        await applier.execute(plan.steps)
        for step in plan.steps:
            self._metrics.steps_total.labels(object["kind"] if object else "", type(step).__name__).inc()
        if object is not None:
            log.info("done", object=f"{object['kind']} {object['metadata']['name']}", steps=plan.lines())
            assert applier.object is not None
            self._objects.put(applier.object)
        return applier.object

    def _check_lead(self) -> None:
        """Called before each write: the process may have been paused since the plan was made.

        Raises:
            StaleError: another operator may lead by now. If none does, the object is looked at again.
        """
        if not self._leader.is_leading:
            raise StaleError("the lead has run out: what is left of the plan is decided anew")

    # Saying it

    async def _say(self, key: Key, object: Mapping[str, Any], plan: Plan, is_dry: bool) -> None:
        if plan.status is None and not is_dry:
            return
        changed = False
        if is_dry or plan.status is None or not self._waits_in_silence(key, object, plan.status):
            self._silent_until.pop(key, None)
            wanted = plan.status or Wanted(())
            if is_dry and plan.steps:
                wanted = _only_planned(object, wanted)
            changed = await self._write_status(object, wanted, plan if is_dry else None)
        self._note_waiting(key, object, plan)
        # What is only planned has not happened: it stands in the status, and is no event.
        if not is_dry and (changed or plan.steps):
            await self._announce(object, plan)

    def _waits_in_silence(self, key: Key, object: Mapping[str, Any], wanted: Wanted) -> bool:
        """Whether a status is left unsaid, since it is about to be another; then the object is looked at again."""
        by_type = {one.type: one for one in wanted.conditions}
        ready, reconciling = by_type.get(conditions.READY), by_type.get(conditions.RECONCILING)
        if ready is None or reconciling is None or reconciling.status != "True":
            return False
        if _knows_only_home(object, wanted, ready):
            return True
        if not _is_new(object):
            return False
        now = time.monotonic()
        left_s = self._silent_until.setdefault(key, now + _SILENCE_S) - now
        if left_s <= 0:
            return False
        self._queue.add_after(key, left_s, Priority.REFERENCE)
        return True

    def _note_waiting(self, key: Key, object: Mapping[str, Any], plan: Plan) -> None:
        wanted = plan.status.conditions if plan.status else ()
        reason = next((one.reason for one in wanted if one.type == conditions.READY), "")
        self._wakeups.waits(key, cluster_of(object), is_waiting=reason in _WAITING)

    async def _announce(self, object: Mapping[str, Any], plan: Plan) -> None:
        for one in plan.announcements:
            await self._events.post(object, one.reason, one.message, self._view.now_ms())

    async def _write_status(self, object: Mapping[str, Any], wanted: Wanted, dry: Plan | None) -> bool:
        """Writes the status if it is another; whether it was."""
        metadata, standing = object["metadata"], object.get("status") or {}
        generation = int(metadata.get("generation") or 0)
        known = standing.get("conditions") or ()
        chosen = wanted.conditions or conditions.standing(standing, *(one["type"] for one in known))
        allowed = status_fields(object["kind"])
        status: dict[str, Any] = {
            "observedGeneration": generation,
            "conditions": conditions.written(chosen, known, generation, self._view.now_ms()),
            **{name: value for name, value in wanted.fields.items() if value is not None and name in allowed},
        }
        if "managedBy" in standing:
            # Not said by any plan: see `_ours`.
            status["managedBy"] = standing["managedBy"]
        if dry is not None:
            lines = dry.lines()
            omitted = {"omitted": len(lines) - _PLAN_STEPS_MAX} if len(lines) > _PLAN_STEPS_MAX else {}
            steps = [line[:4096] for line in lines[:_PLAN_STEPS_MAX]]
            status["plan"] = {"generation": generation, "steps": steps, **omitted}
        if all(status.get(name) == standing.get(name) for name in {*status, *standing}):
            return False
        manifest = {
            "apiVersion": object["apiVersion"],
            "kind": object["kind"],
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "status": status,
        }
        self._check_lead()
        self._objects.put(await self._kube.apply(manifest, "status"))
        self._wakeups.on_status(key_of(object), standing)
        return True

    async def _say_failed(self, key: Key, text: str) -> None:
        object = self._objects.get(key)
        if object is None:
            return
        fields = {name: value for name, value in object["status"].items() if name not in ("conditions", "plan")}
        status = Wanted(conditions.reconciling("Failed", text), fields)
        try:
            if await self._write_status(object, status, None):
                await self._events.post(object, Reason.Failed, text, self._view.now_ms())
        except (KubeError, StaleError) as error:
            log.warning("status not written", key=str(key), error=str(error))
