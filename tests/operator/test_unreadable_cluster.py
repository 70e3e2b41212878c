"""A cluster that is being deleted and cannot be read, having a value of a later version, is let go without harm."""

import pytest
from sterna_operator.apply import Applier
from sterna_operator.builders.blueprint import CLUSTER_LABEL
from sterna_operator.kinds.cluster_observing import MessagingClusterKind
from sterna_operator.kube import STERNA_API, load_configuration, path
from sterna_operator.plans import FINALIZER
from sterna_operator.running import assemble
from sterna_operator.settings import OperatorSettings

from tests.operator.worlds import World

pytestmark = pytest.mark.slow_callbacks(30_000)

CLAIMS = "PersistentVolumeClaim"


def _owner(name: str, uid: str) -> dict[str, str]:
    return {"apiVersion": STERNA_API, "kind": "MessagingCluster", "name": name, "uid": uid}


def _made(world: World) -> None:
    """A cluster that holds a volume, both as the operator leaves them."""
    world.make_cluster(deletionPolicy="onlyIfEmpty")
    where = path(STERNA_API, "MessagingCluster", world.namespace, "mq")
    held = {"metadata": {"finalizers": [FINALIZER]}}
    answer = world.server.request("PATCH", where, held, "application/merge-patch+json")
    assert answer.ok, answer.message
    claim = {
        "metadata": {
            "name": "data-mq-broker-0",
            "labels": {CLUSTER_LABEL: "mq"},
            "ownerReferences": [_owner("mq", answer.body["metadata"]["uid"]), _owner("other", "uid-other")],
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    made = world.server.request("POST", path("v1", CLAIMS, world.namespace), claim)
    assert made.ok, made.message


async def test_it_goes_and_its_volumes_stay(world: World) -> None:
    _made(world)
    world.delete("MessagingCluster", "mq")
    object = world.get("MessagingCluster", "mq")
    assert object is not None
    assert "deletionTimestamp" in object["metadata"]
    object["spec"]["deletionPolicy"] = "archive"
    settings = OperatorSettings(kubeconfig=world.server.kubeconfig)
    parts = assemble(settings, await load_configuration(settings.kubeconfig))
    try:
        decision = await MessagingClusterKind().decide(parts.view, object)
        await Applier(parts.kube, object, None, lambda: None).execute(decision.plan.steps)
    finally:
        await parts.kube.close()
    assert world.get("MessagingCluster", "mq") is None
    claim = world.server.request("GET", path("v1", CLAIMS, world.namespace, "data-mq-broker-0")).body
    assert [one["uid"] for one in claim["metadata"]["ownerReferences"]] == ["uid-other"]


async def test_while_it_is_not_deleted_it_is_only_said(world: World) -> None:
    _made(world)
    object = world.get("MessagingCluster", "mq")
    assert object is not None
    object["spec"]["deletionPolicy"] = "archive"
    settings = OperatorSettings(kubeconfig=world.server.kubeconfig)
    parts = assemble(settings, await load_configuration(settings.kubeconfig))
    try:
        decision = await MessagingClusterKind().decide(parts.view, object)
    finally:
        await parts.kube.close()
    assert decision.plan.steps == ()
    assert decision.plan.status is not None
    assert decision.plan.status.conditions[0].reason == "Invalid"
