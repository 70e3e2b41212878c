"""Objects of definitions that are newer than the operator: what it knows of them holds, and the rest is passed over."""

from typing import Any

import pytest
from sterna_operator import resources
from sterna_operator.kinds import cluster_observing, placed
from sterna_operator.kinds.messaging_cluster import Desired as DesiredCluster
from sterna_operator.kinds.topology import Desired
from sterna_operator.plans import Plan
from sterna_resources import ManifestError, from_newer
from structlog.testing import capture_logs


def served(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """As an API server hands it out."""
    metadata = {"name": "orders", "namespace": "ns", "uid": "uid-1", "generation": 2, "managedFields": []}
    return {"apiVersion": "sterna.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec, "status": {}}


QUEUE = {"clusterRef": {"name": "mq", "zone": "a"}, "prefetch": 9, "parking": {"level": 3}}


def test_a_queue_is_read_without_what_is_new() -> None:
    desired = placed.read(served("Queue", QUEUE))
    assert isinstance(desired, Desired)
    assert desired.resource.broker_document()["spec"] == {"prefetch": 9}


def test_a_cluster_is_read_without_the_defaults_of_new_fields() -> None:
    spec = {"etcd": {"managed": {"colour": "red"}}, "settings": {"limits": {"sessions": 7, "wishes": 3}}}
    desired = cluster_observing.read(served("MessagingCluster", {**spec, "insecure": True, "brokers": 2}))
    assert isinstance(desired, DesiredCluster)
    assert (desired.cluster.spec.brokers, desired.cluster.spec.settings.limits.sessions) == (2, 7)
    assert spec["settings"] == {"limits": {"sessions": 7, "wishes": 3}}, "what was handed over is not changed"


def test_what_is_passed_over_is_said_once() -> None:
    resources._say.cache_clear()
    with capture_logs() as said:
        for _ in range(3):
            resources.resource_of(served("Queue", QUEUE))
    assert sorted((line["kind"], line["field"]) for line in said) == [
        ("Queue", "spec.clusterRef.zone"),
        ("Queue", "spec.parking"),
    ]


def test_what_is_wrong_stays_wrong() -> None:
    wrong = served("Queue", {**QUEUE, "prefetch": "many"})
    with pytest.raises(ManifestError, match=r"spec\.prefetch"):
        from_newer(wrong)
    refused = placed.read(wrong)
    assert isinstance(refused, Plan)
    with pytest.raises(ManifestError, match="unknown kind"):
        from_newer({**wrong, "kind": "Quqeue"})
    with pytest.raises(ManifestError, match="spec"):
        from_newer({**wrong, "spec": None})


def test_what_is_known_as_a_whole_has_nothing_passed_over() -> None:
    resource, unknown = from_newer(served("Queue", {"clusterRef": {"name": "mq"}}))
    assert (resource.kind, unknown) == ("Queue", ())
