"""What may be uninstalled."""

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from sterna_operator import guard, kube
from sterna_operator.guard import cluster_objection, destinations_objection, operator_objection
from sterna_operator.kube import path

from tests.operator.worlds import API, World

GENERATION = 3


def conditions(**states: str) -> list[dict[str, Any]]:
    """Conditions by their types."""
    return [{"type": name, "status": status, "reason": "Some", "message": "words"} for name, status in states.items()]


def cluster(policy: str | None, *brokers: dict[str, Any], wanted: int = 0, **status: Any) -> dict[str, Any]:
    """A cluster that the operator has just looked at; `wanted`: spec.brokers, as many as are listed unless given."""
    spec: dict[str, Any] = {} if policy is None else {"deletionPolicy": policy}
    spec |= {"brokers": wanted or len(brokers)} if wanted or brokers else {}
    metadata = {"namespace": "mq", "name": "orders", "generation": GENERATION}
    said = {"observedGeneration": GENERATION, "brokers": list(brokers), **status}
    return {"kind": "MessagingCluster", "metadata": metadata, "spec": spec, "status": said}


def broker(ordinal: int, **said: Any) -> dict[str, Any]:
    """A broker as the status lists it."""
    return {"name": f"orders-broker-{ordinal}", "ready": True, **said}


def destination(policy: str | None, kind: str = "Queue", spec: dict[str, Any] | None = None, **said: Any) -> Any:
    """An object of the release, which the operator has just looked at."""
    metadata = {"namespace": "mq", "name": "first", "generation": GENERATION}
    whole = {"clusterRef": {"name": "orders"}, **({"deletionPolicy": policy} if policy else {}), **(spec or {})}
    status = {"observedGeneration": GENERATION, "home": "orders-broker-1", "conditions": conditions(Ready="True")}
    return {"kind": kind, "metadata": metadata, "spec": whole, "status": status | said}


EMPTY = broker(0, messages=0)
FULL = broker(1, messages=3)
AWAY = broker(2, ready=False, messages=0)
BEHIND: Any = {"observedGeneration": GENERATION - 1}


@pytest.mark.parametrize(
    ("found", "word"),
    [
        pytest.param(None, None, id="no cluster"),
        pytest.param(cluster("delete"), "says nothing of its brokers", id="nobody has said anything"),
        pytest.param(cluster(None, FULL), None, id="volumes stay"),
        pytest.param(cluster("delete", EMPTY), None, id="empty"),
        pytest.param(
            cluster("delete", EMPTY, FULL),
            "3 messages, and its deletion policy is delete: they would be lost",
            id="lost",
        ),
        pytest.param(cluster("onlyIfEmpty", FULL), "onlyIfEmpty: its deletion would wait for them", id="waits"),
        pytest.param(
            cluster("delete", EMPTY, broker(1, messages=0), AWAY),
            "1 of 3 brokers did not say: orders-broker-2.",
            id="cannot be told",
        ),
        pytest.param(cluster("delete", broker(0)), "orders-broker-0", id="has not said"),
        pytest.param(
            cluster("delete", EMPTY, wanted=3),
            "2 of 3 brokers did not say: orders-broker-1, orders-broker-2.",
            id="has no pod",
        ),
        pytest.param(
            cluster("delete", EMPTY, **BEHIND), "has not looked at it since it was last changed", id="not looked at"
        ),
        pytest.param(
            cluster("delete", EMPTY, conditions=conditions(Stalled="True")), "may be old", id="paused, counts stand"
        ),
    ],
)
def test_a_cluster_goes_unless_messages_may_be_lost(found: dict[str, Any] | None, word: str | None) -> None:
    objection = cluster_objection(found, replicas=1)
    if word is None:
        assert objection is None
    else:
        assert objection is not None
        assert word in objection


def test_a_cluster_that_is_kept_goes_once_the_operator_has_seen_that_it_is() -> None:
    """A policy that was `delete` a moment ago: its volumes still belong to the cluster, and would go with it."""
    changed = cluster("retain", FULL, **BEHIND)
    assert "has not looked at it since it was last changed" in (cluster_objection(changed, replicas=1) or "")
    paused = cluster("retain", FULL, conditions=conditions(Stalled="True"))
    assert cluster_objection(paused, replicas=1) is None
    paused["metadata"]["finalizers"] = ["sterna.dev/operator"]
    assert "sterna.dev/operator of another policy" in (cluster_objection(paused, replicas=1) or "")
    for found in (changed, paused):
        assert cluster_objection(found, replicas=None) is None


def test_a_broker_that_is_to_go_and_has_no_pod_counts_too() -> None:
    found = cluster("delete", EMPTY, wanted=1)
    assert cluster_objection(found, replicas=1) is None
    assert "1 of 2 brokers did not say: orders-broker-1." in (cluster_objection(found, replicas=2) or "")


def test_the_number_of_brokers_has_a_default() -> None:
    found = cluster("delete", EMPTY)
    del found["spec"]["brokers"]
    assert cluster_objection(found, replicas=1) is None


def test_many_brokers_that_did_not_say_are_counted_and_not_all_named() -> None:
    objection = cluster_objection(cluster("delete", EMPTY, wanted=40), replicas=40)
    assert objection is not None
    assert "39 of 40 brokers did not say: orders-broker-1, " in objection
    assert "and 19 more." in objection


def test_a_cluster_that_never_had_brokers_goes() -> None:
    assert cluster_objection(cluster("delete", wanted=2, **BEHIND), replicas=None) is None


@pytest.mark.parametrize(
    ("found", "word"),
    [
        pytest.param(destination("delete"), "orders-broker-1, where it lives, holds 3 messages", id="lost"),
        pytest.param(destination("delete", kind="Topic"), "holds 3 messages", id="topic"),
        pytest.param(
            destination("delete", kind="DurableSubscription", spec={"topic": "news.>"}),
            "DurableSubscription mq/first: policy delete",
            id="durable subscription",
        ),
        pytest.param(destination(None), None, id="stays, by default"),
        pytest.param(destination("retain"), None, id="stays"),
        pytest.param(destination("delete", home="orders-broker-0"), None, id="lives on an empty broker"),
        pytest.param(destination("delete", home="orders-broker-2"), "did not say what it holds", id="broker is silent"),
        pytest.param(
            destination("delete", home="orders-broker-7"), "did not say what it holds", id="broker is unknown"
        ),
        pytest.param(destination("delete", **BEHIND), "has not looked at it since it was last changed", id="behind"),
        pytest.param(destination("delete") | {"status": {}}, "it has no status", id="never looked at"),
        pytest.param(
            destination("delete", home=None, conditions=conditions(Ready="False")),
            "does not say where it lives",
            id="no home yet",
        ),
        pytest.param(
            destination("delete", home=None, conditions=conditions(Stalled="True")), None, id="nothing of its own"
        ),
        pytest.param(destination("delete", spec={"name": "orders.>"}, **BEHIND), None, id="a wildcard entry"),
        pytest.param(
            destination("delete", spec={"clusterRef": {"name": "orders", "namespace": "other"}}),
            "another namespace",
            id="of another cluster",
        ),
        pytest.param(destination("onlyIfEmpty"), None, id="goes only when it is empty"),
        pytest.param(
            destination("onlyIfEmpty", messages=2), "onlyIfEmpty, and it holds 2 messages", id="waits already"
        ),
        pytest.param(destination("delete", messages=1), "delete, and it holds 1 message", id="says it itself"),
    ],
)
def test_a_destination_goes_with_its_release_unless_messages_may_be_lost(found: Any, word: str | None) -> None:
    objection = destinations_objection([found], cluster("retain", EMPTY, FULL, AWAY), replicas=3)
    if word is None:
        assert objection is None
    else:
        assert objection is not None
        assert word in objection
        assert "--no-hooks" in objection


def test_destinations_of_an_empty_cluster_go_whatever_they_say() -> None:
    found = [destination("delete"), destination("delete") | {"status": {}}]
    assert destinations_objection(found, cluster(None, EMPTY, broker(1, messages=0)), replicas=2) is None


def test_destinations_stay_while_nothing_is_known_of_the_brokers() -> None:
    found = [destination("delete")]
    for seen in (cluster(None), cluster(None, EMPTY, broker(1, messages=0), **BEHIND)):
        objection = destinations_objection(found, seen, replicas=2)
        assert objection is not None
        assert "what the brokers hold cannot be told" in objection
        assert "Of MessagingCluster mq/orders: " in objection


def test_destinations_without_brokers_are_let_go() -> None:
    found = [destination("delete")]
    assert destinations_objection(found, None, replicas=None) is None
    assert destinations_objection(found, cluster(None, FULL), replicas=None) is None


def test_twenty_destinations_are_named() -> None:
    found = [destination("delete") for _ in range(25)]
    for number, one in enumerate(found):
        one["metadata"] = {**one["metadata"], "name": f"q{number:02}"}
    objection = destinations_objection(found, cluster(None, EMPTY, FULL), replicas=2)
    assert objection is not None
    assert "Queue mq/q19: " in objection
    assert "q20" not in objection
    assert "and 5 more" in objection


def guard_rules(world: World) -> list[dict[str, Any]]:
    """What the chart lets the guard of a release `shop` of a cluster `mq` do."""
    arguments = ("--namespace", world.namespace, "--set", "name=mq", "--show-only", "templates/uninstall-guard.yaml")
    outcome = world.server.helm("template", "shop", "charts/sterna", *arguments)
    assert outcome.returncode == 0, outcome.stderr
    [role] = [one for one in YAML(typ="safe").load_all(outcome.stdout) if one and one["kind"] == "Role"]
    return list(role["rules"])


def say(world: World, kind: str, name: str, **status: Any) -> None:
    """Writes an object's status, as an operator does that has just looked."""
    found = world.get(kind, name)
    assert found is not None
    said = {"status": {"observedGeneration": found["metadata"]["generation"], **status}}
    where = f"{path(API, kind, world.namespace, name)}/status"
    answer = world.server.request("PATCH", where, said, "application/merge-patch+json")
    assert answer.ok, answer.message


def make_stateful_set(world: World, name: str) -> None:
    """A StatefulSet; no controller runs that would make its pods."""
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "broker", "image": "broker:1"}]}}
    spec = {"replicas": 1, "serviceName": name, "selector": {"matchLabels": labels}, "template": pod}
    manifest = {"metadata": {"name": name}, "spec": spec}
    answer = world.server.request("POST", path("apps/v1", "StatefulSet", world.namespace), manifest)
    assert answer.ok, answer.message


@pytest.mark.slow_callbacks(30_000)
async def test_the_guard_finds_what_goes_with_a_release_and_its_role_is_enough(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = world.limited("guard", guard_rules(world))

    async def configuration(kubeconfig: Path | None) -> Any:
        assert kubeconfig is None
        return await kube.load_configuration(limited)

    monkeypatch.setattr(guard, "load_configuration", configuration)
    monkeypatch.setenv("POD_NAMESPACE", world.namespace)
    world.make_cluster(deletionPolicy="retain")
    make_stateful_set(world, "mq-broker")
    say(world, "MessagingCluster", "mq", brokers=[{"name": "mq-broker-0", "ready": True, "messages": 2}])
    # Not the release's: they stay when it goes.
    world.queue("others", deletionPolicy="delete")
    assert await guard.objection_of(["cluster", "mq", "--release", "shop"]) is None
    for kind, spec in (("Queue", {}), ("Topic", {}), ("DurableSubscription", {"topic": "own-topic", "clientId": "c"})):
        name = f"own-{kind.lower()}"
        world.apply(kind, name, {**spec, "deletionPolicy": "delete"})
        labels = {"metadata": {"labels": {"app.kubernetes.io/instance": "shop"}}}
        where = path(API, kind, world.namespace, name)
        answer = world.server.request("PATCH", where, labels, "application/merge-patch+json")
        assert answer.ok, answer.message
        say(world, kind, name, home="mq-broker-0")
    objection = await guard.objection_of(["cluster", "mq", "--release", "shop"])
    assert objection is not None
    found = [line.split(":")[0].split("/")[1] for line in objection.splitlines() if line.startswith("  ")]
    assert found == ["own-durablesubscription", "own-queue", "own-topic"], json.dumps(objection)
    assert objection.count("holds 2 messages") == 3
    say(world, "MessagingCluster", "mq", brokers=[{"name": "mq-broker-0", "ready": True, "messages": 0}])
    assert await guard.objection_of(["cluster", "mq", "--release", "shop"]) is None


def test_an_operator_with_clusters_stays() -> None:
    objection = operator_objection([cluster(None)])
    assert objection is not None
    assert "MessagingCluster mq/orders" in objection


def test_an_operator_stays_while_deletions_wait_for_it() -> None:
    queue = {"kind": "Queue", "metadata": {"namespace": "mq", "name": "q", "finalizers": ["sterna.dev/operator"]}}
    objection = operator_objection([queue])
    assert objection is not None
    assert "Queue mq/q" in objection


def test_an_operator_with_nothing_to_do_may_go() -> None:
    assert operator_objection([]) is None
    assert operator_objection([{"kind": "Queue", "metadata": {"namespace": "mq", "name": "q"}}]) is None
