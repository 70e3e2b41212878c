"""Who is looked at when something happens, and how urgently."""

import asyncio
from typing import Any

from sterna_etcd import Claim, Layout
from sterna_etcd.records import BrokerStatus, ConfigRecord, Owner
from sterna_operator.clusters import Clusters
from sterna_operator.keys import Key
from sterna_operator.mirror import Mirror
from sterna_operator.objects import Objects
from sterna_operator.store import ClusterStore
from sterna_operator.wakeups import CLUSTER_LABEL, Wakeups
from sterna_operator.work_queue import Priority, WorkQueue

from tests.waiting import eventually

API = "sterna.dev/v1alpha1"
CLUSTER = Key("MessagingCluster", "ns", "mq")


class OneStore(Clusters):
    """A cluster whose mirror the test fills."""

    def __init__(self) -> None:
        self.mirror = Mirror(Layout("ns.mq"))

    def get(self, cluster: Key) -> ClusterStore | None:
        store: Any = type("Store", (), {"layout": self.mirror.layout, "mirror": self.mirror, "is_usable": True})()
        store.freed = set()
        found: ClusterStore = store
        return found

    def all(self) -> dict[Key, ClusterStore]:
        store = self.get(CLUSTER)
        return {} if store is None else {CLUSTER: store}


class World:
    """The parts that wakeups connect."""

    def __init__(self) -> None:
        self.objects = Objects()
        self.queue = WorkQueue()
        self.wakeups = Wakeups(self.queue, self.objects)
        self.stores = OneStore()
        self.wakeups.clusters = self.stores
        self._version = 0

    def event(self, kind: str, name: str, event: str | None = "ADDED", **more: Any) -> Key:
        self._version += 1
        metadata = {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "generation": 1,
            "resourceVersion": str(self._version),
        }
        reference = {} if kind == "MessagingCluster" else {"clusterRef": {"name": "mq"}}
        self.wakeups.on_event(
            event,
            {
                "apiVersion": API,
                "kind": kind,
                "metadata": metadata | more.get("metadata", {}),
                "spec": {**reference, **more.get("spec", {})},
                "status": more.get("status", {}),
            },
        )
        return Key(kind, "ns", name)

    def taken(self) -> dict[str, Priority]:
        found = {}
        while (item := self.queue.pop()) is not None:
            found[item.key.name] = item.priority
            self.queue.done(item.key)
        return found


READY = {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]}


def test_what_a_listing_finds_waits_behind_what_a_user_does() -> None:
    world = World()
    world.event("Queue", "well", None, status=READY)
    world.event("Queue", "missed", None)
    world.event("Queue", "new", "ADDED")
    assert list(world.taken().items()) == [
        ("new", Priority.USER_CHANGE),
        ("missed", Priority.REFERENCE),
        ("well", Priority.RESYNC),
    ]


def test_a_cluster_that_comes_wakes_who_waits_for_it_and_a_status_of_it_nobody() -> None:
    world = World()
    world.event("Queue", "waiting", None)
    world.event("Queue", "well", None, status=READY)
    world.taken()
    world.event("MessagingCluster", "mq")
    assert world.taken() == {"mq": Priority.USER_CHANGE, "waiting": Priority.REFERENCE, "well": Priority.RESYNC}
    world.event("MessagingCluster", "mq", "MODIFIED", status={"replicas": 1})
    assert world.taken() == {"mq": Priority.USER_CHANGE}
    world.event("MessagingCluster", "mq", "MODIFIED", metadata={"generation": 2})
    assert "waiting" in world.taken()


def test_a_child_wakes_its_cluster() -> None:
    world = World()
    pod = {"name": "mq-0", "namespace": "ns", "labels": {CLUSTER_LABEL: "mq"}}
    world.wakeups.on_event("MODIFIED", {"apiVersion": "v1", "kind": "Pod", "metadata": pod})
    assert world.taken() == {"mq": Priority.REFERENCE}


def test_a_child_whose_label_was_changed_wakes_its_owner() -> None:
    world = World()
    owner = {"apiVersion": API, "kind": "MessagingCluster", "name": "mq", "uid": "u"}
    metadata = {"name": "mq", "namespace": "ns", "labels": {CLUSTER_LABEL: "other"}, "ownerReferences": [owner]}
    world.wakeups.on_event("MODIFIED", {"apiVersion": "v1", "kind": "Service", "metadata": metadata})
    assert world.taken() == {"mq": Priority.REFERENCE, "other": Priority.REFERENCE}


async def test_a_removed_record_wakes_its_owner_and_who_wanted_the_name() -> None:
    world = World()
    mirror = world.stores.mirror
    for name in ("first", "second"):
        world.event("Queue", name, spec={"name": "orders"})
    world.taken()
    key = mirror.layout.config(Claim("Queue", "orders"))
    owner = Owner(by="operator", namespace="ns", name="first", uid="first")
    mirror.put(key, ConfigRecord(manifest={}, owner=owner).encode(), 1)
    removed = mirror.remove(key, 2)
    assert removed is not None
    world.wakeups.on_store(CLUSTER, [removed], False)
    assert world.taken() == {"first": Priority.DRIFT, "second": Priority.REFERENCE}
    # What the operator has done itself it need not look at again; others may.
    again = mirror.put(key, ConfigRecord(manifest={}, owner=owner).encode(), 3)
    assert again is not None
    world.wakeups.on_store(CLUSTER, [again], True)
    assert world.taken() == {"second": Priority.REFERENCE}


async def test_brokers_that_say_something_wake_who_waits_for_them_a_few_times_a_second_at_most() -> None:
    world = World()
    mirror = world.stores.mirror
    waiting = world.event("User", "ann", spec={"passwordSecret": {"name": "s"}})
    world.event("User", "bob", spec={"passwordSecret": {"name": "s"}})
    world.taken()
    world.wakeups.waits(waiting, CLUSTER, is_waiting=True)
    for revision in range(1, 50):
        status = BrokerStatus(applied_revision=revision, state="serving")
        change = mirror.put(mirror.layout.broker_status("b-0"), status.encode(), revision)
        assert change is not None
        world.wakeups.on_store(CLUSTER, [change], False)
    assert world.taken() == {}
    found: dict[str, Priority] = {}

    def woken() -> bool:
        found.update(world.taken())
        return "ann" in found

    await eventually(woken)
    assert "bob" not in found
    await asyncio.sleep(0)


async def test_a_cluster_is_looked_at_again_once_a_broker_was_told_to_go() -> None:
    """Its status was decided before, and does not say so yet."""
    world = World()
    world.event("MessagingCluster", "mq")
    world.taken()
    mirror = world.stores.mirror
    told = mirror.put(mirror.layout.drain("b-0"), b'{"force":false}', 1)
    assert told is not None
    world.wakeups.on_store(CLUSTER, [told], True)
    found: dict[str, Priority] = {}

    def is_looked_at() -> bool:
        found.update(world.taken())
        return bool(found)

    await eventually(is_looked_at)
    assert found == {"mq": Priority.REFERENCE}


async def test_what_brokers_say_while_an_object_is_looked_at_has_it_looked_at_again() -> None:
    """Its status is written after it was decided, which may take long: that it waits is known only then."""
    world = World()
    mirror = world.stores.mirror
    for name in ("ann", "bob"):
        world.event("User", name, spec={"passwordSecret": {"name": "s"}})
    items = [world.queue.pop(), world.queue.pop()]
    ann, bob = (item.key for item in items if item is not None)
    world.wakeups.begins(ann, CLUSTER)
    world.wakeups.begins(bob, CLUSTER)
    world.wakeups.ends(bob)
    world.queue.done(bob)
    status = BrokerStatus(applied_revision=7, state="serving")
    change = mirror.put(mirror.layout.broker_status("b-0"), status.encode(), 7)
    assert change is not None
    world.wakeups.on_store(CLUSTER, [change], False)
    await eventually(lambda: not world.wakeups._gathering)
    world.wakeups.waits(ann, CLUSTER, is_waiting=True)
    world.wakeups.ends(ann)
    world.queue.done(ann)
    found = world.taken()
    assert found.pop("ann") == Priority.REFERENCE
    assert "bob" not in found


def test_a_secret_wakes_whoever_names_it_and_no_other() -> None:
    world = World()
    world.event("User", "ann", spec={"passwordSecret": {"name": "hers"}})
    world.event("User", "bob", spec={"passwordSecret": {"name": "his"}})
    world.event("MessagingCluster", "mq", spec={"tls": {"certificateSecret": "hers"}})
    world.taken()
    world.wakeups.on_secret("ns", "hers")
    assert world.taken() == {"ann": Priority.REFERENCE, "mq": Priority.REFERENCE}
    assert world.wakeups.is_referred("ns", "his")
    assert not world.wakeups.is_referred("ns", "nobodys")
    assert not world.wakeups.is_referred("other", "hers")


def test_a_record_is_no_orphan_as_long_as_objects_are_still_being_listed() -> None:
    """Of ten thousand queues that are not listed yet, none is asked for one by one."""
    world = World()
    mirror = world.stores.mirror
    for number, name in enumerate(("kept", "orphan"), 1):
        owner = Owner(by="operator", namespace="ns", name=name, uid=name)
        mirror.put(mirror.layout.config(Claim("Queue", name)), ConfigRecord(manifest={}, owner=owner).encode(), number)
    world.wakeups.expect("Queue", None)
    world.wakeups.expect("Topic", None)
    world.wakeups.on_state(CLUSTER)
    assert world.taken() == {"mq": Priority.REFERENCE}
    kept, new = world.event("Queue", "kept", None, status=READY), world.event("Queue", "new", None)
    world.wakeups.on_listed("Queue", None, {kept, new}, 10)
    assert world.taken() == {"new": Priority.REFERENCE}
    world.wakeups.on_listed("Topic", None, set(), 10)
    assert world.taken() == {"kept": Priority.RESYNC, "orphan": Priority.RESYNC}
    world.wakeups.on_state(CLUSTER)
    assert world.taken()["orphan"] == Priority.RESYNC


def test_a_cluster_that_a_list_does_not_have_any_more_concerns_all_that_is_in_it() -> None:
    world = World()
    world.event("MessagingCluster", "mq")
    world.event("Queue", "orders")
    world.taken()
    world.wakeups.on_listed("MessagingCluster", None, set(), 10)
    assert set(world.taken()) == {"mq", "orders"}


def test_what_a_list_does_not_have_any_more_is_gone_unless_it_is_newer_or_elsewhere() -> None:
    world = World()
    gone, kept = world.event("Queue", "gone"), world.event("Queue", "kept")
    topic, newer = world.event("Topic", "gone"), world.event("Queue", "newer")
    world.taken()
    world.wakeups.on_listed("Queue", "elsewhere", set(), 3)
    assert world.taken() == {}
    world.wakeups.on_listed("Queue", "ns", {kept}, 3)
    assert world.taken() == {"gone": Priority.USER_CHANGE}
    assert world.objects.get(gone) is None
    assert None not in (world.objects.get(kept), world.objects.get(topic), world.objects.get(newer))
