"""What may change and what may not, with the ways around that people find; see `cases`."""

from typing import Any

from tests.crds.cases import AUDIT, BRIDGE, CLUSTER, DURABLE, FACTORY, LEAST, REF, SNAPSHOT, UNSIGNED, USER, Change

_MOVE = "an object cannot move to another cluster: delete it and make it there"
_RENAMED = {
    "Queue": "a destination cannot be renamed: make another, or delete this one first",
    "Topic": "a destination cannot be renamed: make another, or delete this one first",
    "DurableSubscription": "a subscription cannot be renamed: make another, or delete this one first",
    "Store": "a store cannot be renamed: destinations call it by its name",
    "ConnectionFactory": "a connection factory cannot be renamed: give it an alias, or make another",
    "User": "a user cannot be renamed: make another",
}
_LOST = "cannot be changed: it would be another subscription, and what this one keeps would be lost"


def _moves() -> list[Change]:
    changes = []
    for kind, least in LEAST.items():
        if kind == "MessagingCluster":
            continue
        here = {**least, "clusterRef": {"name": "prod", "namespace": "x"}}
        changes += [
            Change(kind, (least, {**least, "clusterRef": {"name": "other"}}), _MOVE),
            Change(kind, (least, here), _MOVE),
            Change(kind, (here, least), _MOVE),
            Change(kind, (here, {**least, "clusterRef": {"name": "prod", "namespace": "y"}}), _MOVE),
            # Taking the reference or the whole spec away first is no way around.
            Change(kind, (least, {**least, "clusterRef": None}), "spec.clusterRef: Required value"),
            Change(kind, (least, {}), "Required value"),
            Change(kind, (least, None), "spec: Required value"),
        ]
    return changes


def _renamings() -> list[Change]:
    changes = []
    for kind, said in _RENAMED.items():
        least = LEAST[kind]
        changes += [
            Change(kind, (least, {**least, "name": "other"}), said),
            Change(kind, ({**least, "name": "other"}, least), said),
            Change(kind, ({**least, "name": "a"}, {**least, "name": "b"}), said),
            # Saying what holds anyway is no change, and no step on the way to one.
            Change(kind, (least, {**least, "name": "thing"}, least)),
            Change(kind, (least, {**least, "name": "thing"}, {**least, "name": "other"}), said),
            Change(kind, ({**least, "name": "thing"}, least, {**least, "name": "other"}), said),
        ]
    return changes


def _subscriptions() -> list[Change]:
    kind = "DurableSubscription"
    shared = {**REF, "topic": "news", "shared": True}
    client = "clientId cannot be changed: it is part of the subscription's name"
    return [
        Change(kind, (DURABLE, {**DURABLE, "deletionPolicy": "delete"})),
        Change(kind, (DURABLE, {**DURABLE, "selector": "", "noLocal": False, "shared": False}, DURABLE)),
        Change(kind, (DURABLE, {**DURABLE, "topic": "other"}), f"topic {_LOST}"),
        Change(kind, (DURABLE, {**DURABLE, "selector": "a = 1"}), f"selector {_LOST}"),
        Change(kind, ({**DURABLE, "selector": "a = 1"}, DURABLE), f"selector {_LOST}"),
        Change(kind, (DURABLE, {**DURABLE, "noLocal": True}), f"noLocal {_LOST}"),
        Change(kind, (DURABLE, {**DURABLE, "shared": True}), f"shared {_LOST}"),
        Change(kind, (DURABLE, {**DURABLE, "clientId": "b"}), client),
        Change(kind, (shared, {**shared, "clientId": "b"}), client),
        Change(kind, ({**shared, "clientId": "b"}, shared), client),
    ]


def _clusters() -> list[Change]:
    kind = "MessagingCluster"

    def etcd(**fields: Any) -> dict[str, Any]:
        return {**CLUSTER, "etcd": fields}

    def stored(**fields: Any) -> dict[str, Any]:
        return {**CLUSTER, "storage": fields}

    shrink, storage_class = "a volume cannot shrink", "a volume cannot move to another storage class"
    kept = "clusterName cannot be changed: everything is kept under it"
    move = "a cluster cannot move between a managed etcd and another one: make another cluster"
    outside = {"endpoints": ["http://a:2379"]}
    return [
        Change(kind, (CLUSTER, {**CLUSTER, "brokers": 3}, {**CLUSTER, "brokers": 1})),
        Change(kind, (stored(size="10Gi"), stored(size="20Gi"), stored(size="20480Mi"))),
        Change(kind, (stored(size="10Gi"), stored(size="9Gi")), shrink),
        Change(kind, (stored(size="1Gi"), stored(size=5)), shrink),
        # What is not said is 10Gi, with and without the group.
        Change(kind, (stored(size="20Gi"), CLUSTER), shrink),
        Change(kind, (stored(size="20Gi"), stored()), shrink),
        Change(kind, (stored(size="20Gi"), {**CLUSTER, "storage": None}), shrink),
        Change(kind, (CLUSTER, stored(storageClassName="fast")), storage_class),
        Change(kind, (stored(storageClassName="fast"), CLUSTER), storage_class),
        Change(kind, (stored(storageClassName="fast"), stored(storageClassName="slow")), storage_class),
        Change(kind, (etcd(managed={}), etcd(managed={"storage": {"size": "1Gi"}})), shrink),
        Change(kind, (etcd(managed={}), etcd(managed={"storage": {"storageClassName": "x"}})), storage_class),
        Change(kind, (CLUSTER, etcd(**outside)), move),
        Change(kind, (etcd(**outside), CLUSTER), move),
        Change(kind, (etcd(**outside), etcd(endpoints=["http://b:2379"]))),
        Change(kind, (CLUSTER, etcd(managed={}, clusterName="a")), kept),
        Change(kind, (etcd(managed={}, clusterName="a"), CLUSTER), kept),
        Change(kind, (etcd(managed={}, clusterName="a"), etcd(managed={}, clusterName="b")), kept),
    ]


def _snapshots() -> list[Change]:
    """A snapshot is taken once: what it is cannot be changed, nor by a detour; an audit's schedule and place can."""
    kind, said = "StoreSnapshot", "a StoreSnapshot is taken once, and cannot be changed: make another"
    rated = {**SNAPSHOT, "snapshots": {**UNSIGNED, "rate": "1M"}}
    return [
        Change(kind, (SNAPSHOT, SNAPSHOT)),
        # Saying what holds anyway is no change.
        Change(kind, (SNAPSHOT, {**SNAPSHOT, "activeDeadlineSeconds": 3_600, "connect": {}}, SNAPSHOT)),
        Change(kind, (SNAPSHOT, {**SNAPSHOT, "activeDeadlineSeconds": 3_601}), said),
        Change(kind, (SNAPSHOT, {**SNAPSHOT, "brokers": ["a"]}), said),
        Change(kind, ({**SNAPSHOT, "brokers": ["a"]}, SNAPSHOT), said),
        Change(kind, (SNAPSHOT, {**SNAPSHOT, "storage": {"volumeClaim": "other"}}), said),
        Change(kind, (SNAPSHOT, rated), said),
        Change(kind, (rated, SNAPSHOT), said),
        Change(kind, (SNAPSHOT, {**SNAPSHOT, "image": "x"}), said),
        Change(kind, (SNAPSHOT, {**SNAPSHOT, "imagePullPolicy": "Always"}), said),
        Change(kind, (SNAPSHOT, {**SNAPSHOT, "connect": {"user": "x", "passwordSecret": {"name": "p"}}}), said),
        Change(kind, (SNAPSHOT, {**SNAPSHOT, "pod": {"scratch": "1Gi"}}), said),
        # But for its pause: nothing has been taken yet, or it has no effect.
        Change(kind, ({**SNAPSHOT, "paused": {}}, {**SNAPSHOT, "paused": {"until": "2030-01-31T18:00:00Z"}}, SNAPSHOT)),
        Change(kind, ({**SNAPSHOT, "paused": {}}, {**SNAPSHOT, "image": "x"}), said),
        Change("AuditJob", (AUDIT, {**AUDIT, "schedule": "@hourly", "suspend": True, "storage": {"volumeClaim": "b"}})),
    ]


def changes() -> list[Change]:
    """The whole table."""
    free = [
        Change("Queue", (REF, {**REF, "maxMessages": 5, "store": "x", "exclusive": True, "broker": "b"}, REF)),
        Change("Topic", (REF, {**REF, "maxMessages": 5, "prefetch": 3, "adoption": "adopt", "paused": {}}, REF)),
        Change("Bridge", (BRIDGE, {**BRIDGE, "source": {"topic": "x"}, "targets": [{"topic": "y"}]})),
        Change("Store", (REF, {**REF, "mode": "async", "quotaBytes": 5}, REF)),
        Change("ConnectionFactory", (FACTORY, {**REF, "url": "sternas://b", "aliases": ["x"], "tls": {}}, FACTORY)),
        Change("User", (USER, {**USER, "passwordSecret": {"name": "other", "key": "p"}, "revokeImmediately": True})),
    ]
    return [*_moves(), *_renamings(), *_subscriptions(), *_clusters(), *_snapshots(), *free]
