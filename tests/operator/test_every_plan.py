"""Plans and dry runs of every kind: they say what would be done, and nothing is."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from sterna_operator.kube import path
from sterna_resources.kinds import KUBERNETES_KINDS

from tests.operator.audit_objects import AUDIT, SNAPSHOT
from tests.operator.audit_stage import Stage
from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.samples import SAMPLES, stage
from tests.operator.worlds import API, World
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(30_000)

_ROOT = Path(__file__).parent.parent.parent
_FLAGS = {"only_etcd": False, "broker_image": "localhost/broker:0", "audit_image": "localhost/audit:1"}
_PLAN = "sterna.dev/plan"
# What is made beside an object; of all of these there is none of a plan's.
_CHILDREN = (
    *(("v1", kind) for kind in ("ConfigMap", "Secret", "Service", "ServiceAccount")),
    *(("batch/v1", kind) for kind in ("Job", "CronJob")),
    *(("apps/v1", "StatefulSet"), ("policy/v1", "PodDisruptionBudget"), ("networking.k8s.io/v1", "NetworkPolicy")),
)
# The first of what each kind does for a new object.
_FIRST = {
    "MessagingCluster": "create ",
    "Queue": "create Queue 'new'",
    "Topic": "create Topic 'new'",
    "Bridge": "create Bridge 'new'",
    "DurableSubscription": "create DurableSubscription 'app/new'",
    "Store": "create Store 'new'",
    "ConnectionFactory": "create ConnectionFactory 'new'",
    "User": "create user 'new'",
    "StoreSnapshot": "create ConfigMap taken-run",
    "AuditJob": "create ConfigMap new-run",
}
assert _FIRST.keys() == KUBERNETES_KINDS.keys()


def _new(kind: str) -> str:
    """What a new object is called. An AuditJob and a StoreSnapshot of one name would have the same children."""
    return "taken" if kind == "StoreSnapshot" else "new"


def _specs(world: World) -> dict[str, dict[str, Any]]:
    """The spec of a new object of each kind."""
    etcd = {"endpoints": world.etcd_urls.split(","), "clusterName": f"{world.namespace}.other"}
    return {
        "MessagingCluster": {"etcd": etcd, "insecure": True, "authentication": {"enabled": False}},
        **{kind: one.spec for kind, one in SAMPLES.items()},
        "StoreSnapshot": SNAPSHOT,
        "AuditJob": AUDIT,
    }


def _children(world: World) -> dict[str, str]:
    """Everything in the namespace that a plan might have made or changed, with its version."""
    found = {}
    for version, kind in _CHILDREN:
        for one in world.server.request("GET", path(version, kind, world.namespace)).body["items"]:
            found[f"{kind} {one['metadata']['name']}"] = one["metadata"]["resourceVersion"]
    return found


async def _keys(world: World) -> dict[str, bytes]:
    """Everything below the clusters' places in etcd, but for what brokers say of themselves."""
    found: dict[str, bytes] = {}
    for prefix in (world.layout.prefix, world.layout.prefix.replace(".mq/", ".other/")):
        found |= {pair.key: pair.value for pair in (await world.client.list_all(prefix)).values}
    return {key: value for key, value in found.items() if "/status/" not in key}


def _command(world: World, file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sterna_operator.main", "plan", "-f", str(file), "-n", world.namespace]
    command += ["--kubeconfig", str(world.server.kubeconfig)]
    command += ["--broker-image", "localhost/broker:0", "--audit-image", "localhost/audit:1"]
    rooms = os.pathsep.join(str(_ROOT / room) for room in ("operator", "etcd", "crds"))
    environment = {**os.environ, "PYTHONPATH": rooms}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def _manifests(specs: Mapping[str, Mapping[str, Any]], name: Callable[[str], str]) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": API,
            "kind": kind,
            "metadata": {"name": name(kind)},
            "spec": {**({} if kind == "MessagingCluster" else {"clusterRef": {"name": "mq"}}), **spec},
        }
        for kind, spec in specs.items()
    ]


def _by_object(printed: str) -> dict[str, list[str]]:
    """The lines of a plan, by the object that they are indented below."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in printed.splitlines():
        if line.startswith("  "):
            lines.append(line.strip())
        else:
            lines = found.setdefault(line, [])
    return found


async def _planned(world: World, kind: str) -> list[str]:
    """The steps of the plan that stands in the status of a new object, once there are any."""

    def steps() -> list[str]:
        return list((world.get(kind, _new(kind)) or {})["status"].get("plan", {}).get("steps", ()))

    found = await eventually(steps, timeout_s=30.0, what=f"the plan of a {kind}")
    assert found is not None
    return found


async def _is_done(world: World, kind: str) -> None:
    await eventually(lambda: "plan" not in (world.get(kind, _new(kind)) or {})["status"], timeout_s=30.0)


async def test_plan_says_of_each_kind_what_would_be_done_and_does_nothing(
    world: World, operator: MakeOperator, tmp_path: Path
) -> None:
    world.make_cluster(authentication={"enabled": False})
    Stage(world)
    running = operator(**_FLAGS)
    specs = _specs(world)
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        await stage(world)
        for kind, spec in specs.items():
            if kind not in ("MessagingCluster", "StoreSnapshot"):
                world.apply(kind, "old", spec)
                await world.ready(kind, "old")
    running.kill()
    changes: dict[str, dict[str, Any]] = {kind: {**one.spec, **one.changed} for kind, one in SAMPLES.items()}
    changes["AuditJob"] = {**AUDIT, "schedule": "0 4 * * *"}
    file = tmp_path / "wanted.yaml"
    with file.open("w") as to:
        YAML(typ="safe").dump_all([*_manifests(specs, _new), *_manifests(changes, lambda _: "old")], to)
    before = (_children(world), await _keys(world))
    done = await asyncio.to_thread(_command, world, file)
    assert done.returncode == 0, done.stderr
    told = _by_object(done.stdout)
    for kind, first in _FIRST.items():
        lines = told[f"{kind} {world.namespace}/{_new(kind)}"]
        assert any(line.partition(". ")[2].startswith(first) for line in lines), (kind, lines)
        assert lines[-1].startswith("then: Ready="), (kind, lines)
        assert world.get(kind, _new(kind)) is None
    for kind, change in {
        "Queue": "update Queue 'old': spec.maxMessages: absent -> 2",
        "Topic": "update Topic 'old': spec.maxMessages: absent -> 2",
        "Bridge": "update Bridge 'old': spec.targets: ",
        "Store": "update Store 'old': spec.quotaBytes: absent -> 1000000",
        "ConnectionFactory": "update ConnectionFactory 'old': spec.url: 'sterna://a:7222' -> 'sterna://b:7222'",
        "AuditJob": "update CronJob old",
    }.items():
        lines = told[f"{kind} {world.namespace}/old"]
        assert any(change in line for line in lines), (kind, lines)
    for kind in ("DurableSubscription", "User"):
        assert told[f"{kind} {world.namespace}/old"][0] == "nothing to do", told[f"{kind} {world.namespace}/old"]
    after = (_children(world), await _keys(world))
    assert after == before


async def test_a_plan_in_the_status_of_each_kind_is_done_when_the_annotation_goes(
    world: World, operator: MakeOperator
) -> None:
    world.make_cluster(authentication={"enabled": False})
    Stage(world)
    operator(**_FLAGS)
    specs = _specs(world)
    async with (
        BrokerDouble(world.etcd_urls, world.etcd_name),
        BrokerDouble(world.etcd_urls, f"{world.namespace}.other"),
    ):
        await stage(world)
        # Of the cluster itself all has been made by then.
        await world.reason("MessagingCluster", "mq", "Starting")
        before = (_children(world), await _keys(world))
        for kind, spec in specs.items():
            world.apply(kind, _new(kind), spec, annotations={_PLAN: "true"})

        for kind, first in _FIRST.items():
            steps = await _planned(world, kind)
            assert any(step.startswith(first) for step in steps), (kind, steps)
            found = world.get(kind, _new(kind))
            assert found is not None
            assert "finalizers" not in found["metadata"], kind
            assert found["status"]["observedGeneration"] == 1
            # Not what the steps would lead to: nothing has come of them yet.
            ready, stalled = (world.condition(kind, _new(kind), name) for name in ("Ready", "Stalled"))
            assert (ready["status"], ready["reason"], stalled["status"]) == ("False", "Planned", "True"), kind
            assert "managedBy" not in found["status"]
        # Somebody else's change is worked on meanwhile; what is only planned has not happened, and is no event.
        world.queue("afterwards")
        await world.ready("Queue", "afterwards")
        world.delete("Queue", "afterwards")
        await world.unconfigured("Queue", "afterwards")
        keys = {key: one for key, one in (await _keys(world)).items() if "afterwards" not in key}
        # A place is looked at, and whoever comes to a new one first gives it an identity.
        assert keys.pop(f"/sterna/{world.namespace}.other/identity", None)
        after = (_children(world), keys)
        assert after == before
        assert world.events("new") == world.events("taken") == []
        for kind in specs:
            world.annotate(kind, _new(kind), {_PLAN: None})
        for kind in SAMPLES:
            await world.ready(kind, _new(kind))
        await world.reason("AuditJob", "new", "Scheduled")
        await world.reason("StoreSnapshot", "taken", "Taking")
        await world.reason("MessagingCluster", "new", "Starting")
        for kind in specs:
            await _is_done(world, kind)
        made = _children(world).keys() - before[0].keys()
        assert {"Job taken", "CronJob new", "StatefulSet new-broker"} <= made, json.dumps(sorted(made))
