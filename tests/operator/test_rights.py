"""The rights that the chart gives are enough, and no more are asked for: an operator for named namespaces."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from sterna_operator.kube import path

from tests.operator.audit_objects import AUDIT, SNAPSHOT
from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(30_000)

_RULES = Path(__file__).parent.parent.parent / "charts" / "sterna-operator" / "files" / "rules.yaml"


def chart_rules() -> list[dict[str, Any]]:
    """The chart's rules, and its one for the Lease."""
    rules = YAML(typ="safe").load(_RULES.read_text())
    verbs = ["get", "create", "update", "patch"]
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}
    return [{key: value for key, value in rule.items() if key != "reason"} for rule in rules] + [lease]


async def test_roles_in_two_namespaces_are_enough(world: World, operator: MakeOperator) -> None:
    guest = world.server.namespace(f"{world.namespace}-guest")
    kubeconfig = world.limited("chart", chart_rules(), more=[guest])
    world.make_cluster(allowedNamespaces={"policy": "all"})
    # With all that is made for a cluster, which takes most of the rights.
    images = {"broker_image": "broker:1", "audit_image": "audit:1"}
    flags = {"namespaces": [world.namespace, guest], "only_etcd": False, **images}
    running = operator(kubeconfig=kubeconfig, **flags)
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        world.secret("her-password", "one")
        world.apply("User", "ann", {"passwordSecret": {"name": "her-password"}})
        await world.ready("User", "ann")
        world.secret("her-password", "two")
        await eventually(lambda: broker.credentials.get("ann") == 2, timeout_s=30.0)
        broker.messages["blocked"] = 1
        connect = {"connect": {"user": "ann", "passwordSecret": {"name": "her-password"}}}
        world.apply("AuditJob", "nightly", {**AUDIT, **connect})
        audit = path("batch/v1", "CronJob", world.namespace, "nightly")
        await eventually(lambda: world.server.request("GET", audit).ok, what="the CronJob")
        world.apply("StoreSnapshot", "once", {**SNAPSHOT, **connect})
        await world.reason("StoreSnapshot", "once", "ReferenceMissing")
        world.apply("Queue", "blocked", {"deletionPolicy": "onlyIfEmpty"}, namespace=guest, ref=world.namespace)
        await world.ready("Queue", "blocked", namespace=guest)
        brokers = path("apps/v1", "StatefulSet", world.namespace, "mq-broker")
        await eventually(lambda: world.server.request("GET", brokers).ok)
        # A namespace that goes is known to go, without a cluster role.
        assert world.server.request("DELETE", path("v1", "Namespace", None, guest)).ok
        world.delete("Queue", "blocked", namespace=guest)
        await world.gone("Queue", "blocked", namespace=guest)
    # So begins what the API server says of a right that is lacking.
    assert "cannot " not in running.log
