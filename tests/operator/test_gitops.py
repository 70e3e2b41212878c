"""What GitOps tools and autoscalers do to our objects, without these tools: the requests that they send, and by what.

Argo CD and Flux apply server-side, each as a field manager of its own; Argo CD then compares what a dry run of the same
would give with what stands. A horizontal autoscaler reads and writes the scale subresource.
"""

from pathlib import Path
from typing import Any

import pytest
from sterna_operator.kube import APPLY, path

from tests.crds.test_health import judged
from tests.operator.audit_objects import AUDIT, SNAPSHOT
from tests.operator.audit_stage import Stage
from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import API, World
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(30_000)

_HEALTH = (Path(__file__).parents[2] / "crds" / "argo-cd" / "health.lua").read_text()
_MERGE = "application/merge-patch+json"
TOOLS = ("argocd-controller", "kustomize-controller")
REF = {"clusterRef": {"name": "mq"}}


def _apply(world: World, tool: str, kind: str, name: str, spec: dict[str, Any], *, is_dry: bool = False) -> Any:
    """As a tool does: what others own it does not take."""
    how = f"fieldManager={tool}{'&dryRun=All' if is_dry else ''}"
    manifest = {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}
    return world.server.request("PATCH", f"{path(API, kind, world.namespace, name)}?{how}", manifest, APPLY)


def _shown(object: dict[str, Any]) -> dict[str, Any]:
    """What a comparison looks at."""
    return {**object, "metadata": {key: one for key, one in object["metadata"].items() if key != "managedFields"}}


def _objects(world: World) -> dict[tuple[str, str], dict[str, Any]]:
    etcd = {"endpoints": world.etcd_urls.split(",")}
    return {
        ("MessagingCluster", "mq"): {"etcd": etcd, "insecure": True, "authentication": {"enabled": False}},
        ("Store", "ledger"): {**REF, "mode": "sync"},
        ("ConnectionFactory", "billing"): {**REF, "url": "sternas://a", "aliases": ["Billing"], "tls": {}},
        ("Queue", "orders"): {**REF, "store": "ledger", "deletionPolicy": "delete", "maxMessages": 7},
        ("Topic", "prices"): REF,
        ("Bridge", "copy"): {**REF, "source": {"topic": "prices"}, "targets": [{"queue": "orders"}]},
        ("DurableSubscription", "audit"): {**REF, "topic": "prices", "clientId": "c", "deletionPolicy": "delete"},
        ("User", "ann"): {**REF, "passwordSecret": {"name": "her-password"}},
        ("AuditJob", "nightly"): {**REF, **AUDIT},
        ("StoreSnapshot", "once"): {**REF, **SNAPSHOT},
    }


async def test_an_image_that_is_named_no_more_goes_from_the_manifest_and_runs_on(
    world: World, operator: MakeOperator
) -> None:
    """Server-side apply takes away what its manager says no more, of an object that is left empty, too."""
    operator(only_etcd=False, broker_image="localhost/broker:0", etcd_image="localhost/etcd:0")
    spec = {"insecure": True, "etcd": {"managed": {"image": "localhost/etcd:1"}}, "image": "localhost/broker:1"}
    made = world.apply("MessagingCluster", "mq", spec)
    assert made["spec"]["etcd"]["managed"]["image"] == "localhost/etcd:1"

    def images() -> list[str]:
        found = []
        for name in ("mq-etcd", "mq-broker"):
            answer = world.server.request("GET", path("apps/v1", "StatefulSet", world.namespace, name))
            if answer.ok:
                found.append(answer.body["spec"]["template"]["spec"]["containers"][0]["image"])
        return found

    await eventually(lambda: len(images()) == 2, timeout_s=30.0, what="etcd and brokers")
    without = world.apply("MessagingCluster", "mq", {"insecure": True, "etcd": {"managed": {}}})
    assert "image" not in {**without["spec"], **without["spec"]["etcd"]["managed"]}

    def is_seen() -> bool:
        status = (world.get("MessagingCluster", "mq") or {})["status"]
        return bool(status["observedGeneration"] == without["metadata"]["generation"])

    await eventually(is_seen, timeout_s=30.0, what="the manifest without images")
    assert images() == ["localhost/etcd:1", "localhost/broker:1"]


@pytest.mark.parametrize("tool", TOOLS)
async def test_what_a_tool_has_applied_is_healthy_and_no_different_from_what_it_would_apply(
    world: World, operator: MakeOperator, tool: str
) -> None:
    objects = _objects(world)
    world.secret("her-password", "one")
    stage = Stage(world)
    operator(audit_image="localhost/audit:1")
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        for (kind, name), spec in objects.items():
            answer = _apply(world, tool, kind, name, spec)
            assert answer.ok, answer.message
            # Before the operator has looked, nothing passes for finished.
            assert judged_as(answer.body) == "Progressing"
        for kind, name in objects:
            if kind not in ("MessagingCluster", "StoreSnapshot"):
                await world.ready(kind, name)
        await world.reason("StoreSnapshot", "once", "Taking")
        await eventually(lambda: stage.get("batch/v1", "Job", "once"), what="the snapshot's Job")
        for (kind, name), spec in objects.items():
            standing = world.get(kind, name)
            assert standing is not None
            again = _apply(world, tool, kind, name, spec, is_dry=True)
            assert again.ok, again.message
            assert _shown(again.body) == _shown(standing), f"{kind} {name} would never be in sync"
            if kind != "MessagingCluster":
                assert judged_as(standing) == ("Progressing" if kind == "StoreSnapshot" else "Healthy")
        # A field that the manifests say no more is nobody's, and goes; a change is taken without force.
        changed = {key: value for key, value in objects["Queue", "orders"].items() if key != "maxMessages"}
        answer = _apply(world, tool, "Queue", "orders", {**changed, "maxRedelivery": 3})
        assert answer.ok, answer.message
        found = await world.ready("Queue", "orders")
        assert "maxMessages" not in found["spec"]
        assert found["metadata"]["finalizers"], "applying again does not take the operator's finalizer away"
        record = await world.configured("Queue", "orders")
        assert (record.manifest["spec"].get("maxMessages"), record.manifest["spec"]["maxRedelivery"]) == (None, 3)


def judged_as(object: dict[str, Any]) -> str:
    """What Argo CD shows, by its script."""
    metadata = {key: value for key, value in object["metadata"].items() if key != "managedFields"}
    return judged(_HEALTH, object.get("status"), **metadata)[0]


async def test_an_autoscaler_owns_the_number_of_brokers_beside_a_tool_that_does_not_say_it(
    world: World, operator: MakeOperator
) -> None:
    spec = _objects(world)["MessagingCluster", "mq"]
    assert _apply(world, TOOLS[0], "MessagingCluster", "mq", spec).ok
    operator(only_etcd=False, broker_image="localhost/broker:0")
    await world.reason("MessagingCluster", "mq", "Starting")
    where = path(API, "MessagingCluster", world.namespace, "mq", "scale")
    scale = world.server.request("GET", where).body
    assert scale["spec"]["replicas"] == 1
    brokers = path("apps/v1", "StatefulSet", world.namespace, "mq-broker")
    template = world.server.request("GET", brokers).body["spec"]["template"]["metadata"]["labels"]
    # By these it finds the pods whose load it goes by.
    selected = dict(one.split("=", 1) for one in scale["status"]["selector"].split(","))
    assert selected
    assert selected.items() <= template.items()

    how = f"{where}?fieldManager=horizontal-pod-autoscaler"
    answer = world.server.request("PATCH", how, {"spec": {"replicas": 3}}, _MERGE)
    assert answer.ok, answer.message
    await eventually(lambda: world.server.request("GET", brokers).body["spec"]["replicas"] == 3, timeout_s=30.0)
    again = _apply(world, TOOLS[0], "MessagingCluster", "mq", {**spec, "deletionPolicy": "onlyIfEmpty"})
    assert again.ok, again.message
    assert again.body["spec"]["brokers"] == 3


async def test_a_tool_that_says_the_number_of_brokers_is_told_when_an_autoscaler_has_it(world: World) -> None:
    spec = {**_objects(world)["MessagingCluster", "mq"], "brokers": 1}
    assert _apply(world, TOOLS[0], "MessagingCluster", "mq", spec).ok
    where = path(API, "MessagingCluster", world.namespace, "mq", "scale")
    how = f"{where}?fieldManager=horizontal-pod-autoscaler"
    answer = world.server.request("PATCH", how, {"spec": {"replicas": 3}}, _MERGE)
    assert answer.ok, answer.message
    # In place of a fight over it.
    refused = _apply(world, TOOLS[0], "MessagingCluster", "mq", spec)
    assert refused.status == 409, refused.message
    assert "horizontal-pod-autoscaler" in refused.message
    assert (world.get("MessagingCluster", "mq") or {})["spec"]["brokers"] == 3
