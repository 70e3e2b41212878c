"""What somebody changes by hand in what was made for a cluster is put back: every field, changed, added and removed."""

import contextlib
import json
import random
import re
import statistics
import time
from dataclasses import replace
from typing import Any, cast

import pytest
from sterna_operator.apply import Applier
from sterna_operator.builders import certificate, differences, monitoring
from sterna_operator.kube import APPLY, MERGE, InvalidError, Kube, Ref, path
from sterna_operator.plans import RemoveObject, RepairObject
from sterna_operator.put_back import PutBack
from sterna_operator.settings import OperatorSettings

from tests.operator.cluster_world import World as PlanWorld
from tests.operator.conftest import MakeOperator
from tests.operator.drift import Patch, applied, by_hand, essence, told
from tests.operator.kubelet import install_surroundings
from tests.operator.pairs import pair
from tests.operator.worlds import World
from tests.support.seeds import is_complete, seed
from tests.waiting import eventually

# What nobody told of would not be back within this: the next look at all clusters comes later.
SEEN_S = 60.0
# What is promised. A machine that others hold up takes longer for some, so the median counts.
BACK_S = 5.0
JSON_PATCH = "application/json-patch+json"

RICH = {
    "brokers": 2,
    "insecure": False,
    "tls": {"secretName": "server"},
    "listeners": [{"name": "out", "type": "nodePort", "annotations": {"team": "a"}}],
    "pod": {"nodeSelector": {"disk": "fast"}, "resources": {"limits": {"memory": "1024Mi"}}},
}


def rich() -> PlanWorld:
    """A settled cluster with most that there is, TLS and an etcd that the operator runs included."""
    world = PlanWorld(RICH)
    world.observed = replace(world.observed, has_pod_monitors=True, secrets={"server": pair()})
    world.settle()
    return world


def test_each_change_to_each_field_of_each_child_is_seen_and_undone() -> None:
    world = rich()
    count = 0
    for child in world.observed.children.values():
        standing = dict(child)
        assert differences.corrected(standing, standing) == standing
        for patch in by_hand(standing):
            changed = applied(standing, patch)
            corrected = differences.corrected(standing, changed)
            label = f"{standing['kind']} {standing['metadata']['name']}: {told(patch)}"
            assert corrected != changed, label
            assert essence(corrected) == essence(standing), label
            count += 1
    assert count > 500


def test_what_is_added_is_taken_away_by_a_patch_of_just_that_and_said() -> None:
    world = rich()
    service = dict(world.child("Service", "orders"))
    service["spec"] = {**service["spec"], "selector": {**service["spec"]["selector"], "more": "x"}}
    world.observed = replace(world.observed, children={**world.observed.children, ("Service", "orders"): service})
    plan = world.decide()
    [step] = plan.steps
    assert isinstance(step, RepairObject)
    assert step.patch == {"spec": {"selector": {"more": None}}}
    [said] = [one for one in plan.announcements if one.reason.name == "DriftRepaired"]
    assert "Service orders" in said.message
    assert 'spec.selector.more: "x" -> absent' in said.message


@pytest.mark.parametrize("name", ["another", None])
def test_a_port_that_somebody_renamed_keeps_its_node_port(name: str | None) -> None:
    """Clients outside know it by that number, and the settings tell it to brokers."""
    standing = dict(rich().child("Service", "orders-at-out-0"))
    given, node_port = standing["spec"]["ports"][0], standing["spec"]["ports"][0]["nodePort"]
    port = {key: value for key, value in given.items() if key != "nodePort"}
    manifest = {**standing, "spec": {**standing["spec"], "ports": [port]}}
    renamed = {key: value for key, value in {**given, "name": name}.items() if value is not None}
    changed = {**standing, "spec": {**standing["spec"], "ports": [renamed]}}
    assert differences.corrected(manifest, changed)["spec"]["ports"] == [{**port, "nodePort": node_port}]


def test_what_comes_back_at_once_is_left_and_said() -> None:
    world = rich()
    service = dict(world.child("Service", "orders"))
    service["spec"] = {**service["spec"], "trafficDistribution": "PreferClose"}
    children = {**world.observed.children, ("Service", "orders"): service}
    left = differences.remaining(world.child("Service", "orders"), service)
    uid = service["metadata"]["uid"]
    world.observed = replace(world.observed, children=children, put_back={uid: frozenset(left)})
    assert world.decide().steps == ()
    world.reconcile()
    assert "left so: Service orders (spec.trafficDistribution)" in world.message()
    service["spec"] = {**service["spec"], "externalIPs": ["192.0.2.1"]}
    assert len(world.decide().steps) == 1, "what is left alone is no excuse for anything else"


class Stubborn:
    """An API server with a webhook that adds to each Service whatever is written."""

    def __init__(self, standing: dict[str, Any]) -> None:
        self.standing = standing
        self.writes = 0

    async def merge_patch(self, ref: Ref, patch: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        return self.standing


async def test_what_an_answer_shows_to_come_back_is_not_tried_again() -> None:
    world = rich()
    service = dict(world.child("Service", "orders"))
    service["spec"] = {**service["spec"], "trafficDistribution": "PreferClose"}
    world.observed = replace(world.observed, children={**world.observed.children, ("Service", "orders"): service})
    put_back, server = PutBack(), Stubborn(service)
    for _ in range(3):
        world.observed = replace(world.observed, put_back=put_back.all())
        await Applier(cast("Kube", server), None, None, lambda: None, put_back).execute(world.decide().steps)
    assert server.writes == 1
    assert put_back.of(service["metadata"]["uid"]) == {'spec.trafficDistribution="PreferClose"'}


class Refusing(Stubborn):
    """An API server that does not let a field be changed once it is set."""

    async def merge_patch(self, ref: Ref, patch: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        raise InvalidError(422, "may not change once set")


async def test_what_the_api_server_refuses_to_change_holds_nothing_else_up() -> None:
    world = rich()
    service = dict(world.child("Service", "orders"))
    service["spec"] = {**service["spec"], "newField": "fixed"}
    world.observed = replace(world.observed, children={**world.observed.children, ("Service", "orders"): service})
    put_back, server = PutBack(), Refusing(service)
    for _ in range(3):
        world.observed = replace(world.observed, put_back=put_back.all())
        await Applier(cast("Kube", server), None, None, lambda: None, put_back).execute(world.decide().steps)
    assert server.writes == 1
    world.reconcile()
    assert "left so: Service orders (spec.newField)" in world.message()


def test_what_was_made_immutable_is_made_anew_or_named() -> None:
    world = rich()
    for kind, name in (("ConfigMap", "orders-settings"), ("Secret", "orders-connection")):
        child = {**world.child(kind, name), "immutable": True}
        world.observed = replace(world.observed, children={**world.observed.children, (kind, name): child})
    [step] = world.decide().steps
    assert isinstance(step, RemoveObject)
    assert (step.kind, step.name) == ("ConfigMap", "orders-settings")
    world.settle()
    assert "immutable" not in world.child("ConfigMap", "orders-settings")
    assert "unless it is deleted: Secret orders-connection" in world.message()


def test_defaults_of_the_api_server_are_no_drift_and_other_values_there_are() -> None:
    world = rich()
    service = dict(world.child("Service", "orders"))
    given = {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ipFamilies": ["IPv4"], "sessionAffinity": "None"}
    service["spec"] = {**service["spec"], **given}
    assert differences.corrected(world.child("Service", "orders"), service) == service
    service["spec"] = {**service["spec"], "sessionAffinity": "ClientIP"}
    assert "sessionAffinity" not in differences.corrected(world.child("Service", "orders"), service)["spec"]


def test_an_orphaned_child_is_taken_back_and_a_strangers_is_not() -> None:
    world = rich()
    service = dict(world.child("Service", "orders"))
    service["metadata"] = {key: value for key, value in service["metadata"].items() if key != "ownerReferences"}
    children = {**world.observed.children, ("Service", "orders"): service}
    world.observed = replace(world.observed, children=children)
    [line] = world.decide().lines()
    assert "Service orders right" in line
    service["metadata"]["labels"] = {"sterna.dev/cluster": "orders"}
    world.reconcile()
    assert world.condition("Stalled") == ("True", "NameClaimed")


def test_what_is_asked_for_no_more_is_an_update_and_no_drift() -> None:
    world = rich()
    world.edit({**RICH, "listeners": []})
    plan = world.decide()
    assert any("update ConfigMap orders-settings" in line for line in plan.lines())
    assert not any(one.reason.name == "DriftRepaired" for one in plan.announcements)


# With an API server

CLUSTERS: dict[str, dict[str, Any]] = {
    "mq": {
        "tls": {"certManager": {"issuerRef": {"name": "authority"}}},
        "listeners": [{"name": "out", "type": "nodePort"}],
        "insecure": False,
    },
    "trial": {"etcd": {"managed": {}}},
}
CHILDREN = [
    ("apps/v1", "StatefulSet", "mq-broker"),
    ("apps/v1", "StatefulSet", "trial-etcd"),
    ("v1", "Service", "mq"),
    ("v1", "Service", "mq-brokers"),
    ("v1", "Service", "mq-broker-0"),
    ("v1", "Service", "mq-at-out-0"),
    ("v1", "Service", "trial-etcd"),
    ("v1", "ConfigMap", "mq-settings"),
    ("v1", "Secret", "mq-connection"),
    ("v1", "ServiceAccount", "mq-broker"),
    ("policy/v1", "PodDisruptionBudget", "mq-broker"),
    ("networking.k8s.io/v1", "NetworkPolicy", "mq-broker"),
    ("networking.k8s.io/v1", "NetworkPolicy", "trial-etcd"),
    (certificate.API_VERSION, "Certificate", "mq-tls"),
    (monitoring.API_VERSION, "PodMonitor", "mq-broker"),
]
_TEMPLATE = "/spec/template/spec"
# What was seen to do harm, and has to be among what was tried.
HARM: dict[tuple[str, str], list[Patch]] = {
    ("Service", "mq"): [
        [{"op": "add", "path": "/spec/selector/more", "value": "x"}],
        [{"op": "add", "path": "/spec/externalIPs", "value": ["192.0.2.1"]}],
        [{"op": "replace", "path": "/spec/sessionAffinity", "value": "ClientIP"}],
        [{"op": "replace", "path": "/spec/type", "value": "NodePort"}],
        [
            {"op": "replace", "path": "/spec/type", "value": "ExternalName"},
            {"op": "add", "path": "/spec/externalName", "value": "elsewhere.example.com"},
        ],
    ],
    ("NetworkPolicy", "mq-broker"): [
        [{"op": "add", "path": "/spec/podSelector/matchLabels/more", "value": "x"}],
        [{"op": "add", "path": "/spec/ingress/-", "value": {}}],
    ],
    ("StatefulSet", "mq-broker"): [
        [{"op": "add", "path": f"{_TEMPLATE}/nodeSelector", "value": {"none": "such"}}],
        [{"op": "add", "path": f"{_TEMPLATE}/initContainers", "value": [{"name": "more", "image": "x"}]}],
        [{"op": "add", "path": f"{_TEMPLATE}/containers/-", "value": {"name": "more", "image": "x"}}],
        [{"op": "add", "path": f"{_TEMPLATE}/containers/0/env/-", "value": {"name": "MORE", "value": "x"}}],
        [{"op": "add", "path": f"{_TEMPLATE}/hostNetwork", "value": True}],
        [{"op": "replace", "path": "/spec/updateStrategy", "value": {"type": "RollingUpdate"}}],
    ],
    ("ConfigMap", "mq-settings"): [
        [{"op": "add", "path": "/data/more", "value": "x"}],
        [{"op": "add", "path": "/immutable", "value": True}],
        [{"op": "add", "path": "/binaryData", "value": {"more": "eA=="}}],
    ],
    ("Secret", "mq-connection"): [
        [{"op": "add", "path": "/data/more", "value": "eA=="}],
        [{"op": "remove", "path": "/data/url"}],
    ],
    ("PodDisruptionBudget", "mq-broker"): [
        [
            {"op": "remove", "path": "/spec/maxUnavailable"},
            {"op": "add", "path": "/spec/minAvailable", "value": 1},
        ],
        [{"op": "add", "path": "/spec/selector/matchLabels/more", "value": "x"}],
    ],
    ("StatefulSet", "trial-etcd"): [
        [{"op": "replace", "path": f"{_TEMPLATE}/containers/0/image", "value": "another"}],
        [{"op": "replace", "path": "/spec/replicas", "value": 0}],
    ],
}
# Nobody looks without cause: what is put back was told of.
QUIET = {"etcd_image": "localhost/etcd:0", "clusters_s": 3600.0, "resync_s": 3600.0}
# So many of a child's changes are tried, drawn by the seed; `make test-all` tries all.
TRIED_MAX = 25


def _shown_children(world: World) -> dict[tuple[str, str], dict[str, Any]]:
    found = {}
    for version, kind, name in CHILDREN:
        answer = world.server.request("GET", path(version, kind, world.namespace, name))
        if answer.ok:
            found[kind, name] = dict(answer.body)
    return found


def _node_ports(world: World) -> list[int]:
    """Those that Kubernetes has given out: others, when somebody has made it take the old ones away."""
    service = world.server.request("GET", path("v1", "Service", world.namespace, "mq-at-out-0")).body
    return [port["nodePort"] for port in service["spec"]["ports"] if "nodePort" in port]


def _kept(object: dict[str, Any], node_ports: list[int]) -> dict[str, Any]:
    """An object's essence, in which the settings' word of these ports counts as that of any, their digest too."""
    found = essence(object)
    if object["kind"] != "ConfigMap":
        return found
    text = json.dumps(found)
    for port in node_ports:
        text = re.sub(rf"\b{port}\b", "port", text)
    # The ports are in what it is a digest of.
    digest = rf'("{re.escape(differences.STAMP)}": )"[0-9a-f]{{16}}"'
    return dict(json.loads(re.sub(digest, r'\1"digest"', text)))


async def _made(world: World, operator: MakeOperator) -> None:
    """An operator that has made everything."""
    install_surroundings(world.server)
    world.certificate("mq-tls", pair())
    for name, spec in CLUSTERS.items():
        world.make_cluster(name, **spec)
    operator(only_etcd=False, broker_image="localhost/broker:0", **QUIET)
    await eventually(lambda: len(_shown_children(world)) == len(CHILDREN), timeout_s=60.0, pause_max_s=0.2)
    await world.reason("MessagingCluster", "mq", "Starting")


@pytest.mark.slow_callbacks(30_000)
@pytest.mark.timeout(600)
async def test_each_child_is_put_back_within_5_s(world: World, operator: MakeOperator) -> None:
    await _made(world, operator)
    ports = _node_ports(world)
    before = {key: _kept(one, ports) for key, one in _shown_children(world).items()}
    waiting: dict[tuple[str, str], list[Patch]] = {}
    for key, standing in _shown_children(world).items():
        every = list(by_hand(standing))
        count = len(every) if is_complete() else min(len(every), TRIED_MAX)
        waiting[key] = [*HARM.get(key, ()), *random.Random(f"{seed()} {key}").sample(every, count)]
    tried, refused, harms = 0, 0, {told(patch) for patches in HARM.values() for patch in patches}
    versions = {(kind, name): version for version, kind, name in CHILDREN}
    took_s = []
    while any(waiting.values()):
        changed: dict[tuple[str, str], str] = {}
        ports = _node_ports(world)
        for (kind, name), patches in waiting.items():
            if not patches:
                continue
            patch = patches.pop(0)
            where = path(versions[kind, name], kind, world.namespace, name)
            answer = world.server.request("PATCH", where, patch, JSON_PATCH)
            if answer.ok and _kept(answer.body, ports) != before[kind, name]:
                changed[kind, name] = told(patch)
            else:
                # What the API server itself does not take, or fills in again.
                assert told(patch) not in harms, answer.message
                refused += 1
        tried += len(changed)
        began = time.monotonic()

        left = dict(changed)

        def is_back(left: dict[tuple[str, str], str] = left) -> bool:
            ports = _node_ports(world)
            for key, one in _shown_children(world).items():
                if key in left and _kept(one, ports) == before[key]:
                    del left[key]
            return not left

        with contextlib.suppress(AssertionError):
            await eventually(is_back, timeout_s=SEEN_S, pause_max_s=0.05)
        assert not left, f"not put back: {left}; {world.condition('MessagingCluster', 'mq')}"
        took_s.append(time.monotonic() - began)
    assert tried > 100, (tried, refused)
    assert statistics.median(took_s) < BACK_S


@pytest.mark.slow_callbacks(30_000)
async def test_each_child_that_is_deleted_is_made_again_within_5_s(world: World, operator: MakeOperator) -> None:
    """The connection Secret, too, which nobody may list: it is watched by its name."""
    await _made(world, operator)
    took_s = []
    # Last the one that gets another node port, which the settings tell brokers.
    for version, kind, name in sorted(CHILDREN, key=lambda child: child[2] == "mq-at-out-0"):
        where = path(version, kind, world.namespace, name)
        before = world.server.request("GET", where).body
        began = time.monotonic()
        assert world.server.request("DELETE", where).ok

        def is_back(where: str = where, uid: str = before["metadata"]["uid"]) -> bool:
            answer = world.server.request("GET", where)
            return bool(answer.ok and answer.body["metadata"]["uid"] != uid)

        await eventually(is_back, timeout_s=SEEN_S, what=f"{kind} {name} back", pause_max_s=0.05)
        took_s.append(time.monotonic() - began)
        assert essence(world.server.request("GET", where).body) == essence(before)
    assert statistics.median(took_s) < BACK_S


def test_clusters_are_looked_at_once_a_minute() -> None:
    assert OperatorSettings.clusters_s == 60.0


@pytest.mark.slow_callbacks(30_000)
async def test_what_others_may_add_stays_and_nothing_is_written_for_it(world: World, operator: MakeOperator) -> None:
    world.make_cluster("mq")
    running = operator(only_etcd=False, broker_image="localhost/broker:0", clusters_s=0.3)
    await world.reason("MessagingCluster", "mq", "Starting")
    # Claim and epoch are written together, and noted once etcd has answered.
    await eventually(lambda: any(world.layout.operator_epoch in write for write in running.writes), timeout_s=30.0)
    theirs = {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}}
    for kind, name, patch in (
        ("Service", "mq", theirs),
        ("ServiceAccount", "mq-broker", {**theirs, "imagePullSecrets": [{"name": "registry"}]}),
    ):
        where = path("v1", kind, world.namespace, name)
        answer = world.server.request("PATCH", where, patch, MERGE)
        assert answer.ok, answer.message
    looked = 'sterna_operator_reconcile_seconds_count{kind="MessagingCluster"}'
    begun, written = world.metrics(running.address).get(looked, 0.0), len(running.writes)
    await eventually(lambda: world.metrics(running.address).get(looked, 0.0) > begun + 4, timeout_s=30.0)
    assert running.writes[written:] == []
    account = world.server.request("GET", path("v1", "ServiceAccount", world.namespace, "mq-broker")).body
    assert account["imagePullSecrets"] == [{"name": "registry"}]
    assert account["metadata"]["labels"]["team"] == "a"


@pytest.mark.slow_callbacks(30_000)
async def test_a_foreign_key_in_a_config_map_is_taken_away_once(world: World, operator: MakeOperator) -> None:
    world.make_cluster("mq")
    running = operator(only_etcd=False, broker_image="localhost/broker:0", clusters_s=0.3)
    await world.reason("MessagingCluster", "mq", "Starting")
    where = path("v1", "ConfigMap", world.namespace, "mq-settings")
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mq-settings"},
        "data": {"theirs": "x"},
    }
    assert world.server.request("PATCH", f"{where}?fieldManager=theirs", manifest, APPLY).ok
    await eventually(lambda: "theirs" not in world.server.request("GET", where).body["data"], timeout_s=SEEN_S)
    looked = 'sterna_operator_reconcile_seconds_count{kind="MessagingCluster"}'
    begun = world.metrics(running.address).get(looked, 0.0)
    await eventually(lambda: world.metrics(running.address).get(looked, 0.0) > begun + 4, timeout_s=30.0)
    assert sum("mq-settings" in write for write in running.writes) == 2, "made, and put right once"
    assert "DriftRepaired" in world.events("mq")


@pytest.mark.slow_callbacks(30_000)
async def test_what_was_said_before_goes_when_it_is_said_no_more(world: World, operator: MakeOperator) -> None:
    """A listener's annotations tell a cloud what to do, and its source ranges who is let in."""
    listener = {"name": "out", "type": "loadBalancer", "port": 443}
    ranges = {"loadBalancerSourceRanges": ["192.0.2.0/24"], "annotations": {"team": "a"}}
    world.make_cluster("mq", listeners=[{**listener, **ranges}])
    operator(only_etcd=False, broker_image="localhost/broker:0")
    where = path("v1", "Service", world.namespace, "mq-at-out-0")
    await eventually(lambda: world.server.request("GET", where).ok, timeout_s=30.0)
    theirs = {"metadata": {"annotations": {"theirs": "b"}}}
    assert world.server.request("PATCH", where, theirs, MERGE).ok
    world.make_cluster("mq", listeners=[listener])

    def service() -> dict[str, Any]:
        return dict(world.server.request("GET", where).body)

    await eventually(lambda: "loadBalancerSourceRanges" not in service()["spec"], timeout_s=30.0, pause_max_s=0.05)
    annotations = service()["metadata"]["annotations"]
    assert "team" not in annotations
    assert annotations["theirs"] == "b"
