"""Objects of definitions that are newer than the operator: what it knows of them holds, and the rest is passed over."""

from typing import Any, cast

import pytest
from sterna_operator import conditions, resources
from sterna_operator.clusters import Clusters
from sterna_operator.kinds import cluster_observing, placed
from sterna_operator.kinds.cluster_seen import Desired as DesiredCluster
from sterna_operator.kinds.holds import noting
from sterna_operator.kinds.registry import kinds
from sterna_operator.kinds.topology import Desired
from sterna_operator.objects import Objects
from sterna_operator.plans import Plan, Wanted
from sterna_operator.settings import OperatorSettings
from sterna_operator.view import View
from sterna_resources import ManifestError, from_newer
from sterna_resources.kinds import KUBERNETES_KINDS
from sterna_resources.reading import from_document
from structlog.testing import capture_logs


def served(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """As an API server hands it out."""
    metadata = {"name": "orders", "namespace": "ns", "uid": "uid-1", "generation": 2, "managedFields": []}
    return {"apiVersion": "sterna.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec, "status": {}}


QUEUE = {"clusterRef": {"name": "mq", "zone": "a"}, "prefetch": 9, "parking": {"level": 3}}

PASSED_OVER = {"Queue": "spec.clusterRef.zone, spec.parking", "User": "spec.parking"}


def test_a_queue_is_read_without_what_is_new() -> None:
    desired = placed.read(served("Queue", QUEUE))
    assert isinstance(desired, Desired)
    assert desired.resource.broker_document()["spec"] == {"prefetch": 9}
    assert desired.passed_over == ("spec.clusterRef.zone", "spec.parking")


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


def _nothing_there() -> View:
    """What an operator sees that has no copy of any cluster yet."""
    settings, absent = OperatorSettings(), cast("Any", None)
    clusters = Clusters(absent, on_change=absent, on_state=absent)
    return View(settings, absent, Objects(), clusters, absent)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("Queue", QUEUE), ("User", {"clusterRef": {"name": "mq"}, "passwordSecret": {"name": "s"}, "parking": {}})],
)
async def test_the_condition_names_what_is_passed_over(kind: str, spec: dict[str, Any]) -> None:
    decision = await kinds()[kind].decide(_nothing_there(), served(kind, spec))
    assert decision.plan.status is not None
    ready = next(one for one in decision.plan.status.conditions if one.type == "Ready")
    assert "MessagingCluster ns/mq" in ready.message, "what it said before"
    assert ready.message.endswith("without effect, since only a newer operator knows them: " + PASSED_OVER[kind])


def test_a_condition_that_says_nothing_else_names_it_too() -> None:
    told = noting(Plan(status=Wanted(conditions.ready())), ("spec.parking",)).status
    assert told is not None
    assert [one.message for one in told.conditions] == [
        "without effect, since only a newer operator knows them: spec.parking",
        "",
        "",
    ]
    assert noting(Plan(), ("spec.parking",)) == Plan()


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


def test_a_cluster_from_before_a_rule_is_not_refused_by_it() -> None:
    """A volume whose size nobody enforces has room: such a cluster has served all the time."""
    small = served("MessagingCluster", {"etcd": {"managed": {}}, "insecure": True, "storage": {"size": "100Mi"}})
    read = cluster_observing.read(small)
    assert isinstance(read, DesiredCluster)
    assert read.cluster.spec.storage.size == "100Mi"
    # Where it is written, it is refused; and so is what stands there and was never right.
    with pytest.raises(ManifestError, match="a broker's disk is full from the beginning"):
        from_document(
            {key: small[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "mq"}},
            "file",
            KUBERNETES_KINDS,
        )
    assert isinstance(cluster_observing.read(served("MessagingCluster", {"etcd": {"managed": {}}})), Plan)
