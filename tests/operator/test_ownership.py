"""Two operators over the same clusters, or two clusters over one place in etcd: each has one owner, and others rest."""

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from sterna_etcd import Etcd, EtcdSettings, Put
from sterna_etcd.records import ClaimRecord
from sterna_operator.kube import ForbiddenError, Kube, path
from sterna_operator.ownership import MANAGED_BY, Ownership
from sterna_operator.store import ClusterStore, StaleError, UnusableError

from tests.etcds import RunningEtcd
from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.support.own_names import own_name
from tests.waiting import eventually

REAL = {"only_etcd": False, "broker_image": "localhost/broker:0", "clusters_s": 0.5}
NOW_MS = 1_800_000_000_000


def _owner(world: World, name: str = "mq") -> str:
    return str(((world.get("MessagingCluster", name) or {}).get("status") or {}).get("managedBy", ""))


@pytest.mark.slow_callbacks(30_000)
async def test_the_second_operator_says_whose_it_is_and_rests(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    first = operator("first", **REAL)
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("orders", maxMessages=1)
        await world.ready("Queue", "orders")
        assert _owner(world) == f"{world.namespace}/sterna-operator"
        second = operator("second", lease_name="another", **REAL)
        others = "sterna_operator_clusters_of_others"
        await eventually(lambda: world.metrics(second.address).get(others) == 1.0, timeout_s=30.0)
        await eventually(lambda: "ManagedByOther" in world.events("mq"), timeout_s=30.0)
        for number in range(2, 6):
            world.queue("orders", maxMessages=number)
            await world.ready("Queue", "orders")
        world.queue("more")
        await world.ready("Queue", "more")
        looked = 'sterna_operator_reconcile_seconds_count{kind="MessagingCluster"}'
        begun = world.metrics(second.address).get(looked, 0.0)
        await eventually(lambda: world.metrics(second.address).get(looked, 0.0) > begun + 4, timeout_s=30.0)
    assert [write.split()[0] for write in second.writes] == ["POST"], "the event"
    assert "/events" in second.writes[0]
    assert not first.has_ended
    found = (await world.client.get(world.layout.operator_claim)).found
    assert found is not None
    record = ClaimRecord.decode("claim", found.value)
    cluster = world.get("MessagingCluster", "mq")
    assert cluster is not None
    assert (record.operator, record.uid) == (f"{world.namespace}/sterna-operator", cluster["metadata"]["uid"])


@pytest.mark.slow_callbacks(30_000)
async def test_of_two_that_come_at_once_one_has_each_cluster(world: World, operator: MakeOperator) -> None:
    both = [operator(name, lease_name=name, **REAL) for name in ("first", "second")]
    names = [f"mq-{number}" for number in range(6)]
    for name in names:
        world.make_cluster(name)
    await eventually(lambda: all(_owner(world, name) for name in names), timeout_s=30.0, pause_max_s=0.05)
    owners = {name: _owner(world, name) for name in names}
    for name in names:
        await world.reason("MessagingCluster", name, "Starting")
        services = f"services/{name}-brokers"
        having = {f"{world.namespace}/{one.folder.name}" for one in both if any(services in w for w in one.writes)}
        assert having == {owners[name]}, name
    assert {name: _owner(world, name) for name in names} == owners
    assert not any(one.has_ended for one in both)


@pytest.mark.slow_callbacks(30_000)
async def test_a_cluster_is_handed_over_by_its_annotation(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator("first", **REAL)
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("orders", maxMessages=1)
        await world.ready("Queue", "orders")
        operator("second", lease_name="another", **REAL)
        await eventually(lambda: "ManagedByOther" in world.events("mq"), timeout_s=30.0)
        world.annotate("MessagingCluster", "mq", {MANAGED_BY: f"{world.namespace}/another"})
        await eventually(lambda: _owner(world) == f"{world.namespace}/another", timeout_s=30.0)
        world.queue("orders", maxMessages=2)
        await world.ready("Queue", "orders")
        assert (await world.configured("Queue", "orders")).manifest["spec"]["maxMessages"] == 2


@pytest.mark.slow_callbacks(30_000)
async def test_an_operator_that_is_gone_for_good_leaves_its_clusters(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    first = operator("first", **REAL)
    await eventually(lambda: _owner(world), timeout_s=30.0, what="the cluster claimed")
    operator("second", lease_name="another", lease_duration_s=3.0, **REAL)
    await eventually(lambda: "ManagedByOther" in world.events("mq"), timeout_s=30.0)
    await asyncio.to_thread(first.kill)
    world.end_lead()
    await eventually(lambda: _owner(world) == f"{world.namespace}/another", timeout_s=60.0)


@pytest.mark.slow_callbacks(30_000)
async def test_a_place_in_etcd_that_another_kubernetes_has_is_left_alone(world: World, operator: MakeOperator) -> None:
    theirs = ClaimRecord(operator="them/op", namespace="theirs", name="mq", uid="their-uid", kubernetes="their-ns")
    key = world.layout.operator_claim
    await world.client.put(key, theirs.encode())
    world.make_cluster()
    running = operator(**REAL)
    world.queue("orders")
    text = await world.reason("MessagingCluster", "mq", "ManagedByOther")
    assert "MessagingCluster theirs/mq (uid their-uid, operator them/op)" in text
    assert world.condition("MessagingCluster", "mq", "Stalled")["status"] == "True"
    await world.reason("Queue", "orders", "ManagedByOther")
    # No broker of ours joins theirs, and nothing is written there.
    brokers = path("apps/v1", "StatefulSet", world.namespace, "mq-broker")
    assert not world.server.request("GET", brokers).ok
    assert not any(write.startswith("/sterna/") for write in running.writes)
    world.annotate("MessagingCluster", "mq", {"sterna.dev/accept-store": "true"})
    await eventually(lambda: world.server.request("GET", brokers).ok, timeout_s=30.0)
    await world.configured("Queue", "orders")
    found = (await world.client.get(key)).found
    assert found is not None
    assert ClaimRecord.decode(key, found.value).namespace == world.namespace


@pytest.mark.slow_callbacks(30_000)
async def test_a_cluster_of_another_namespace_takes_no_place_whose_owner_exists(
    world: World, operator: MakeOperator
) -> None:
    guest = world.server.namespace(f"{world.namespace}-guest")
    world.make_cluster()
    running = operator(namespaces=[world.namespace, guest], **REAL)
    await world.configured_claim()
    # The same place under an address that reads otherwise, and with all that says that it is meant.
    other = world.etcd_urls.replace("127.0.0.1", "localhost")
    assert other != world.etcd_urls
    spec = {"etcd": {"endpoints": [other], "clusterName": world.etcd_name}, "insecure": True}
    world.apply("MessagingCluster", "thief", spec, namespace=guest)
    accepted = {"metadata": {"annotations": {"sterna.dev/accept-store": "true"}}}
    where = path("sterna.dev/v1alpha1", "MessagingCluster", guest, "thief")
    assert world.server.request("PATCH", where, accepted, "application/merge-patch+json").ok
    text = await world.reason("MessagingCluster", "thief", "ManagedByOther", namespace=guest)
    assert "which exists, and keeps it" in text
    looked = 'sterna_operator_reconcile_seconds_count{kind="MessagingCluster"}'
    begun = world.metrics(running.address).get(looked, 0.0)
    await eventually(lambda: world.metrics(running.address).get(looked, 0.0) > begun + 4, timeout_s=30.0)
    assert (await world.configured_claim()).namespace == world.namespace
    assert not world.server.request("GET", path("apps/v1", "StatefulSet", guest, "thief-broker")).ok
    assert not running.has_ended


@pytest.mark.slow_callbacks(30_000)
async def test_an_operator_writes_no_more_where_the_place_was_taken(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    running = operator(**REAL)
    mine = await world.configured_claim()
    world.queue("orders", maxMessages=1)
    await world.configured("Queue", "orders")
    theirs = mine.model_copy(update={"uid": "their-uid", "namespace": "theirs"})
    await world.client.put(world.layout.operator_claim, theirs.encode())
    world.queue("orders", maxMessages=2)
    await world.reason("Queue", "orders", "ManagedByOther")
    record = await world.configured("Queue", "orders")
    assert record.manifest["spec"]["maxMessages"] == 1
    # One that is gone is made anew.
    await world.client.delete(world.layout.operator_claim)
    await eventually(lambda: _has_two(world), timeout_s=30.0)
    assert await world.configured_claim() == mine
    assert not running.has_ended


async def _has_two(world: World) -> bool:
    return bool((await world.configured("Queue", "orders")).manifest["spec"]["maxMessages"] == 2)


# Without a server

HERE = ClaimRecord(operator="a/op", namespace="ns", name="mq", uid="one", kubernetes="k-1")


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        pytest.param({}, True, id="itself"),
        pytest.param({"operator": "b/op"}, True, id="handed over"),
        pytest.param({"uid": "two"}, True, id="made anew under its name"),
        pytest.param({"uid": "two", "kubernetes": ""}, True, id="made anew where namespaces cannot be read"),
        pytest.param({"uid": "two", "kubernetes": "k-2"}, False, id="of its name in another Kubernetes"),
        pytest.param({"uid": "two", "namespace": "other"}, False, id="of another namespace"),
        pytest.param({"uid": "two", "name": "other"}, False, id="of another name"),
    ],
)
def test_a_claim_is_of_the_cluster_that_made_it(other: dict[str, str], is_same: bool) -> None:
    assert HERE.is_of(HERE.model_copy(update=other)) == is_same
    assert HERE.model_copy(update=other).is_of(HERE) == is_same


class Leases:
    """An API server that has one Lease, or none, or does not let us see it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.is_forbidden = False

    async def get(self, ref: object) -> dict[str, Any] | None:
        if self.is_forbidden:
            raise ForbiddenError(403, "not for you")
        return self.lease


def _cluster(holder: str = "", wanted: str = "") -> dict[str, Any]:
    annotations = {MANAGED_BY: wanted} if wanted else {}
    metadata = {"name": "mq", "namespace": "ns", "annotations": annotations}
    return {"metadata": metadata, "status": {"managedBy": holder} if holder else {}}


def _renewed(seconds_ago: float) -> dict[str, Any]:
    at = datetime.fromtimestamp(NOW_MS / 1000 - seconds_ago, UTC)
    return {"spec": {"renewTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "leaseDurationSeconds": 10}}


async def test_whose_a_cluster_is() -> None:
    leases, now = Leases(), [0.0]
    own = Ownership(cast("Kube", leases), "ns/own", lease_s=10.0, clock=lambda: now[0])

    async def holder(cluster: dict[str, Any]) -> str | None:
        return await own.holder(cluster, NOW_MS)

    assert await holder(_cluster()) is None
    assert await holder(_cluster("ns/own")) is None
    assert await holder(_cluster("ns/own", wanted="ns/next")) == "ns/next"
    assert await holder(_cluster("ns/other", wanted="ns/own")) is None
    leases.lease = _renewed(200.0)
    assert await holder(_cluster("ns/other")) == "ns/other"
    leases.lease = _renewed(400.0)
    assert await holder(_cluster("ns/other")) is None, "not renewed for thirty times its duration"
    leases.lease = None
    assert await holder(_cluster("ns/other")) == "ns/other", "somebody may have deleted it by mistake"
    now[0] = 31.0
    assert await holder(_cluster("ns/other")) is None
    leases.is_forbidden = True
    assert await holder(_cluster("ns/other")) == "ns/other", "what cannot be seen is there"


# In etcd itself


@pytest.mark.slow_callbacks(30_000)
async def test_etcd_refuses_what_is_written_for_a_cluster_that_has_the_place_no_more(
    store: RunningEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything was heard of it: what the mirror says is old at the moment of each write."""
    opened = ClusterStore(own_name("owned"), EtcdSettings.of_urls(store.urls), claimant=HERE)
    key, layout = f"{opened.layout.prefix}x", opened.layout
    try:
        opened.start()
        await asyncio.wait_for(opened.listed.wait(), 30)
        await opened.claim(_leads)
        await opened.write([], [Put(key, b"1")])
        monkeypatch.setattr(opened.mirror, "claim", lambda: HERE)
        async with Etcd(EtcdSettings.of_urls(store.urls)) as etcd:
            other = HERE.model_copy(update={"uid": "two", "namespace": "theirs"})
            await etcd.put(layout.operator_claim, other.encode())
            with pytest.raises(UnusableError, match="belongs to MessagingCluster theirs/mq") as caught:
                await opened.write([], [Put(key, b"2")])
            assert caught.value.reason == "ManagedByOther"
            assert (found := (await etcd.get(key)).found) is not None
            assert found.value == b"1"
            # One of our own name is ours, as soon as it is claimed again; and so is a place that nobody has.
            await etcd.put(layout.operator_claim, HERE.model_copy(update={"uid": "three"}).encode())
            await opened.claim(_leads)
            await etcd.delete(layout.operator_claim)
            with pytest.raises(StaleError, match="made anew"):
                await opened.write([], [Put(key, b"3")])
            await opened.claim(_leads)
            await opened.write([], [Put(key, b"4")])
            found = (await etcd.get(layout.operator_claim)).found
            assert found is not None
            assert ClaimRecord.decode(found.key, found.value) == HERE
    finally:
        await opened.close()


@pytest.mark.slow_callbacks(30_000)
async def test_a_place_is_taken_over_only_where_its_owner_is_not_known_to_exist(store: RunningEtcd) -> None:
    theirs, exists = HERE.model_copy(update={"uid": "two", "namespace": "theirs"}), [True]
    opened = ClusterStore(
        own_name("taken"), EtcdSettings.of_urls(store.urls), claimant=HERE, stands=lambda claim: exists[0]
    )
    opened.takes_over = True
    try:
        async with Etcd(EtcdSettings.of_urls(store.urls)) as etcd:
            await etcd.put(opened.layout.operator_claim, theirs.encode())
        with pytest.raises(UnusableError, match="which exists, and keeps it"):
            await opened.claim(_leads)
        exists[0] = False
        await opened.claim(_leads)
    finally:
        await opened.close()


async def _leads() -> None:
    """Whoever asks leads."""
