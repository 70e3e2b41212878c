"""Manifests of Kubernetes as the operator and brokers read them: claims, references, what is handed on."""

from typing import Any

import pytest
from sterna_resources import (
    KINDS,
    KUBERNETES_KINDS,
    ManifestError,
    MessagingCluster,
    TopologyResource,
    from_document,
    from_object,
    read_text,
)
from sterna_resources.messaging_cluster import AllowedNamespaces

REF = {"clusterRef": {"name": "prod"}}


def described(kind: str, spec: dict[str, Any], name: str = "thing", **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "sterna.dev/v1alpha1", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def topology(kind: str, spec: dict[str, Any], **metadata: Any) -> TopologyResource:
    resource = from_object(described(kind, {**REF, **spec}, **metadata))
    assert isinstance(resource, TopologyResource)
    return resource


@pytest.mark.parametrize(
    ("kind", "spec", "claim"),
    [
        ("Queue", {}, "thing"),
        ("Queue", {"name": "orders.new"}, "orders.new"),
        ("Topic", {"name": "a.>"}, "a.>"),
        ("Bridge", {"source": {"queue": "a"}, "targets": [{"queue": "b"}]}, "thing"),
        ("DurableSubscription", {"topic": "t", "clientId": "c"}, "c/thing"),
        ("DurableSubscription", {"topic": "t", "clientId": "c", "name": "n/m"}, "c/n/m"),
        ("DurableSubscription", {"topic": "t", "shared": True}, "/thing"),
        ("Store", {"name": "$sys.failsafe"}, "$sys.failsafe"),
        ("ConnectionFactory", {"url": "sterna://a"}, "thing"),
        ("ConnectionFactory", {"url": "sterna://a", "name": "Billing"}, "Billing"),
        ("User", {"passwordSecret": {"name": "s"}, "name": "Some One"}, "Some One"),
    ],
)
def test_what_an_object_claims(kind: str, spec: dict[str, Any], claim: str) -> None:
    assert topology(kind, spec).claim == claim


def test_a_cluster_is_looked_for_in_the_own_namespace_unless_another_is_named() -> None:
    assert topology("Queue", {}, namespace="shop").cluster == ("shop", "prod")
    other = {"clusterRef": {"name": "prod", "namespace": "messaging"}}
    assert topology("Queue", other, namespace="shop").cluster == ("messaging", "prod")


def test_a_manifest_of_a_laptop_names_no_cluster() -> None:
    resource = from_document(described("Queue", {}), "x")
    assert isinstance(resource, TopologyResource)
    with pytest.raises(ValueError, match="Queue thing names no cluster"):
        _ = resource.cluster


def test_what_only_kubernetes_keeps_is_left_out() -> None:
    document = described("Queue", REF, namespace="shop", uid="1", generation=3, managedFields=[], labels={"a": "b"})
    resource = from_object({**document, "status": {"observedGeneration": 3}})
    assert resource.metadata.written() == {"name": "thing", "namespace": "shop", "labels": {"a": "b"}}
    assert resource.status is None


def test_brokers_get_nothing_of_the_operators() -> None:
    spec = {"maxMessages": 3, "broker": "b-0", "deletionPolicy": "delete", "adoption": "adopt", "paused": {}}
    resource = topology("Queue", spec, namespace="shop", labels={"a": "b"})
    assert resource.broker_document() == described("Queue", {"maxMessages": 3, "broker": "b-0"})
    assert from_document(resource.broker_document(), "x").subject == "thing"


def test_defaults_that_kubernetes_filled_in_are_not_handed_on() -> None:
    spec = {
        "topic": "t",
        "clientId": "c",
        "selector": "",
        "noLocal": False,
        "shared": False,
        "deletionPolicy": "retain",
    }
    resource = topology("DurableSubscription", spec)
    assert resource.broker_document() == described("DurableSubscription", {"topic": "t", "clientId": "c"})


def test_a_broker_says_that_a_cluster_is_not_for_it() -> None:
    cluster = "apiVersion: sterna.dev/v1alpha1\nkind: MessagingCluster\nmetadata: {name: c}\nspec: {}\n"
    with pytest.raises(ManifestError, match="kind: a MessagingCluster is for Kubernetes: a broker takes Queue, Topic"):
        read_text(cluster, "f.yaml")


def test_the_operator_reads_folders_with_every_kind() -> None:
    text = "apiVersion: sterna.dev/v1alpha1\nkind: MessagingCluster\nmetadata: {name: c}\nspec: {etcd: {managed: {}}}\n"
    with pytest.raises(ManifestError, match="without tls anybody"):
        read_text(text, "f.yaml", KUBERNETES_KINDS)
    [manifest] = read_text(text.replace("{etcd:", "{insecure: true, etcd:"), "f.yaml", KUBERNETES_KINDS)
    assert isinstance(manifest.resource, MessagingCluster)
    assert manifest.resource.etcd_name == "default.c"


def test_which_kinds_are_whose() -> None:
    assert KUBERNETES_KINDS.keys() - KINDS.keys() == {"MessagingCluster", "User", "StoreSnapshot", "AuditJob"}
    assert KINDS.keys() - KUBERNETES_KINDS.keys() == {"Broker"}


@pytest.mark.parametrize(
    ("allowed", "namespaces"),
    [
        (AllowedNamespaces(), {"own"}),
        (AllowedNamespaces(policy="named", names=["a"]), {"own", "a"}),
        (AllowedNamespaces(policy="all"), {"own", "a", "b"}),
    ],
)
def test_whose_objects_a_cluster_takes(allowed: AllowedNamespaces, namespaces: set[str]) -> None:
    assert {name for name in ("own", "a", "b") if allowed.allow(name, "own")} == namespaces
