"""The mirror of a cluster's etcd, and the copy of Kubernetes' objects: what is older never undoes what is newer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sterna_etcd import Claim, Etcd, EtcdSettings, Layout, Watch
from sterna_etcd.proto import etcd_pb2 as pb
from sterna_etcd.records import BrokerStatus, ConfigRecord, HomeRecord, ObjectStatus, Owner, RecordError, UserRecord
from sterna_operator.keys import Key
from sterna_operator.mirror import Mirror
from sterna_operator.objects import Objects

LAYOUT = Layout("mq")
ORDERS = Claim("Queue", "orders")
OWNER = Key("Queue", "ns", "orders")


def config(owner: Owner | None = None) -> bytes:
    return ConfigRecord(
        manifest={}, owner=owner or Owner(by="operator", namespace="ns", name="orders", uid="u")
    ).encode()


@pytest.fixture
def mirror() -> Mirror:
    return Mirror(LAYOUT)


def test_a_record_is_found_by_its_claim_and_by_its_owner(mirror: Mirror) -> None:
    change = mirror.put(LAYOUT.config(ORDERS), config(), 5)
    assert change is not None
    assert (change.claim, change.owner) == (ORDERS, OWNER)
    kept = mirror.config(ORDERS)
    assert kept is not None
    assert kept.revision == 5
    assert mirror.owned(OWNER) == [ORDERS]
    assert mirror.owner_of(ORDERS) == OWNER
    assert mirror.claims("Queue") == ["orders"]


def test_a_removed_record_tells_whose_it_was(mirror: Mirror) -> None:
    mirror.put(LAYOUT.config(ORDERS), config(), 5)
    change = mirror.remove(LAYOUT.config(ORDERS), 6)
    assert change is not None
    assert change.owner == OWNER
    assert mirror.owned(OWNER) == []
    assert len(mirror) == 0


@pytest.mark.parametrize("is_known", [False, True], ids=["by-others", "by-ourselves"])
async def test_a_key_that_is_removed_and_written_again_in_one_batch_stands(mirror: Mirror, is_known: bool) -> None:
    """By one response of a watch: whose revision is that of the last change, not of each."""
    key = LAYOUT.config(ORDERS)
    mirror.put(key, config(), 5)
    if is_known:
        mirror.remove(key, 6)
        mirror.put(key, config(), 7)
    removed = pb.Event(type=pb.Event.DELETE, kv=pb.KeyValue(key=key.encode(), mod_revision=6))
    written = pb.Event(type=pb.Event.PUT, kv=pb.KeyValue(key=key.encode(), value=config(), mod_revision=7))
    client = Etcd(EtcdSettings.of_urls("http://127.0.0.1:1"))
    batch = await Watch(client, LAYOUT.prefix, "", None, 1.0)._take(pb.WatchResponse(events=[removed, written]))
    await client.close()
    assert batch is not None
    for event in batch.events:
        mirror.take(event)
    mirror.come_to(batch.revision)
    kept = mirror.config(ORDERS)
    assert kept is not None
    assert kept.revision == 7
    assert mirror.owned(OWNER) == [ORDERS]


def test_what_the_watch_tells_late_changes_nothing(mirror: Mirror) -> None:
    key = LAYOUT.config(ORDERS)
    mirror.put(key, config(), 7)
    assert mirror.put(key, config(Owner(by="admin")), 6) is None
    assert mirror.remove(key, 6) is None
    mirror.remove(key, 8)
    assert mirror.put(key, config(), 7) is None
    assert mirror.config(ORDERS) is None
    mirror.come_to(8)
    assert mirror.put(key, config(), 9) is not None


def test_names_with_slashes_and_the_like_keep_their_places(mirror: Mirror) -> None:
    durable = Claim("DurableSubscription", "client/a.b>*")
    mirror.put(LAYOUT.config(durable), config(), 1)
    status = ObjectStatus(uid="u", generation=1, state="applied")
    mirror.put(LAYOUT.object_status(durable, "b-0"), status.encode(), 2)
    assert mirror.statuses(durable) == {"b-0": status}
    mirror.put(LAYOUT.user("ann/ä"), UserRecord(owner=Owner(by="admin")).encode(), 3)
    assert mirror.user("ann/ä") is not None


def test_homes_brokers_and_what_is_a_brokers_alone(mirror: Mirror) -> None:
    mirror.put(LAYOUT.home("queue", "orders"), HomeRecord(broker="b-0", static=True).encode(), 1)
    mirror.put(LAYOUT.broker_status("b-0"), BrokerStatus(applied_revision=4, state="serving").encode(), 2)
    status = ObjectStatus(uid="u", generation=1, state="applied").encode()
    mirror.put(LAYOUT.object_status(ORDERS, "b-0"), status, 3)
    mirror.put(LAYOUT.object_status(ORDERS, "b-1"), status, 4)
    assert mirror.home("queue", "orders") == "b-0"
    assert mirror.home("topic", "orders") is None
    assert mirror.broker_statuses()["b-0"].applied_revision == 4
    mirror.put(LAYOUT.drain("b-0"), b'{"force":true}', 5)
    # The order to go comes last: whoever begins to remove them and dies leaves it for the next one.
    *others, last = mirror.keys_of_broker("b-0")
    assert set(others) == {LAYOUT.broker_status("b-0"), LAYOUT.object_status(ORDERS, "b-0")}
    assert last == LAYOUT.drain("b-0")
    mirror.put(LAYOUT.home("pattern", "a.>"), HomeRecord(broker="b-0").encode(), 6)
    mirror.put(LAYOUT.home("topic", "a.b"), HomeRecord(broker="b-1").encode(), 7)
    assert mirror.homes_of("b-0") == {LAYOUT.home("queue", "orders"): 1, LAYOUT.home("pattern", "a.>"): 6}


def test_what_cannot_be_read_concerns_its_key_alone(mirror: Mirror) -> None:
    mirror.put(LAYOUT.config(ORDERS), b"{", 1)
    mirror.put(LAYOUT.object_status(ORDERS, "b-0"), b"[]", 2)
    with pytest.raises(RecordError):
        mirror.config(ORDERS)
    assert mirror.statuses(ORDERS) == {}
    assert mirror.put(f"{LAYOUT.prefix}something/else", b"", 3) is not None
    assert mirror.put(f"{LAYOUT.configs}odd", b"", 4) is not None


@given(st.permutations(range(1, 7)))
def test_in_whatever_order_it_is_told_the_last_write_is_what_stands(order: list[int]) -> None:
    """Our own writes are noted before the watch tells of older ones; even revisions write, odd ones remove."""
    mirror, key = Mirror(LAYOUT), LAYOUT.drain("b")
    for revision in order:
        if revision % 2:
            mirror.remove(key, revision)
        else:
            mirror.put(key, b'{"force":false}', revision)
    assert list(mirror.drains()) == ["b"]


def test_an_old_removal_that_is_told_late_lets_nothing_rise_again(mirror: Mirror) -> None:
    """Removed, written and removed again, all by ourselves, before the watch tells the first of it."""
    key = LAYOUT.config(ORDERS)
    mirror.remove(key, 5)
    mirror.put(key, config(), 7)
    mirror.remove(key, 10)
    assert mirror.remove(key, 5) is None
    mirror.come_to(5)
    assert mirror.put(key, config(), 7) is None
    assert not mirror.has_config(ORDERS)
    mirror.come_to(10)
    assert mirror.put(key, config(), 11) is not None


# The objects of Kubernetes


def made(called: str, version: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {
            "name": called,
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": str(version),
            "annotations": {"sterna.dev/plan": "true", "other": "x" * 1000},
            "managedFields": [{}],
        },
        "spec": {"clusterRef": {"name": "mq"}, **spec},
    }


def test_objects_are_kept_slim_and_found_by_cluster_and_claim() -> None:
    objects = Objects()
    assert objects.put(made("orders", 3, name="a.b"))
    cluster = Key("MessagingCluster", "ns", "mq")
    assert objects.of_cluster(cluster) == {OWNER}
    assert objects.of_claim(cluster, "Queue", "a.b") == {OWNER}
    kept = objects.get(OWNER)
    assert kept is not None
    assert kept["metadata"]["annotations"] == {"sterna.dev/plan": "true"}
    assert "managedFields" not in kept["metadata"]
    assert objects.remove(OWNER, 4)
    assert objects.of_cluster(cluster) == set()


def test_an_object_that_went_is_not_brought_back_by_an_old_word() -> None:
    objects = Objects()
    objects.put(made("orders", 3))
    assert not objects.put(made("orders", 3))
    assert not objects.put(made("orders", 2))
    assert objects.remove(OWNER, 5)
    assert not objects.put(made("orders", 4))
    assert objects.put(made("orders", 6))
    assert not objects.remove(OWNER, 5)


def test_what_is_gone_is_not_remembered_for_ever() -> None:
    objects = Objects()
    for number in range(20):
        objects.put(made(f"q-{number}", 1))
        objects.remove(Key("Queue", "ns", f"q-{number}"), 2)
    objects.forget_gone(kept_max=10)
    assert objects.put(made("q-0", 2))
    assert not objects.put(made("q-19", 2))
