"""What heals by itself: etcd away, killed and removed; a namespace deleted with everything in it, the operator too."""

import asyncio
import json
import secrets
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import sterna

from tests.kubernetes import killing
from tests.kubernetes.conftest import (
    OPERATOR,
    Loads,
    MakeCluster,
    operator_values,
    outside_url,
    queues_on_both,
    recycle,
)
from tests.kubernetes.kubectl import Namespace, helm, run

NODE_PORT = {"listeners": [{"name": "out", "type": "nodePort"}]}

# The machine may be the cluster's only node as well.
pytestmark = pytest.mark.slow_callbacks(5_000)


def _uids(namespace: Namespace, cluster: str) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in namespace.broker_pods(cluster).items()}


async def _through(url: str, queue: str, text: str) -> object:
    async with sterna.connect(url) as connection:
        await connection.send(queue, text)
        consumer = await connection.consumer(queue)
        message = await consumer.receive(timeout=60)
        assert message is not None
        await message.acknowledge()
        return message.body


def test_brokers_serve_on_without_etcd_and_changes_arrive_when_it_returns(
    operator: Namespace, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster({"brokers": 1, **NODE_PORT})
    operator.apply("Queue", "before", {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    operator.ready("queue", "before", 90)
    brokers = _uids(operator, cluster)
    etcd = f"{cluster}-etcd"
    operator.patch("messagingcluster", cluster, {"spec": {"paused": {}}})
    operator.wait(
        lambda: operator.condition("messagingcluster", cluster, "Stalled").get("reason") == "Paused", 90, "the pause"
    )
    operator.kubectl("scale", "statefulset", etcd, "--replicas=0")
    operator.wait(lambda: operator.get("pod", f"{etcd}-0") is None, 90, "etcd gone")
    url = outside_url(operator, cluster)
    assert asyncio.run(_through(url, "before", "without etcd")) == "without etcd"
    operator.apply("Queue", "meanwhile", {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    assert asyncio.run(_through(url, "before", "still")) == "still"
    # The operator puts its StatefulSet right as soon as it may.
    operator.patch("messagingcluster", cluster, {"spec": {"paused": None}})
    operator.ready("queue", "meanwhile", 90)
    operator.ready("messagingcluster", cluster, 90)
    assert asyncio.run(_through(url, "meanwhile", "and again")) == "and again"
    assert _uids(operator, cluster) == brokers


def test_an_etcd_that_is_killed_under_load_costs_no_message(
    operator: Namespace, make_cluster: MakeCluster, load: Loads
) -> None:
    cluster = make_cluster({"brokers": 2, **NODE_PORT})
    queues_on_both(operator, cluster)
    brokers = _uids(operator, cluster)
    running = {name: load(outside_url(operator, cluster), name) for name in ("here", "there")}
    etcd = f"{cluster}-etcd-0"
    ways: dict[str, Callable[[], None]] = {
        "after-the-kill": partial(killing.kill, operator, etcd, killing.etcd(operator, cluster)),
        "after-the-removal": partial(killing.remove, operator, etcd),
    }
    for queue, kill in ways.items():
        for one in running.values():
            one.goes_on()
        kill()
        # While it comes back, and for whoever asks it for something new.
        for one in running.values():
            one.goes_on()
        operator.wait(lambda: killing.is_ready(operator.get("pod", etcd)), 120, "etcd ready")
        operator.apply("Queue", queue, {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
        operator.ready("queue", queue, 90)
    operator.ready("messagingcluster", cluster, 90)
    for one in running.values():
        one.goes_on()
    reports = [one.stop() for one in running.values()]
    print(json.dumps(reports))
    for report in reports:
        # etcd is on no message's way: not even an outcome is unknown.
        assert report["lost"] == report["unknown"] == report["refused"] == report["twice_unflagged"] == 0
    assert _uids(operator, cluster) == brokers, "no broker was restarted because of it"
    condition = operator.condition("messagingcluster", cluster)
    assert condition["reason"] == "Serving", "an etcd that comes back with what it had is the same one"
    for name in ("here", "there", *ways):
        operator.delete("queue", name)


@pytest.fixture
def whole(definitions: None) -> Iterator[Namespace]:
    """A namespace with an operator of its own."""
    namespace = Namespace(f"sterna-e2e-{secrets.token_hex(3)}")
    run("kubectl", "create", "namespace", namespace.name)
    helm(
        *("install", OPERATOR, "charts/sterna-operator", "--namespace", namespace.name),
        *(*operator_values(namespace.name), "--wait", "--timeout", "180s"),
    )
    yield namespace
    run("kubectl", "delete", "namespace", namespace.name, "--ignore-not-found", "--wait=true", timeout_s=180)
    recycle()


def test_a_namespace_goes_with_everything_in_it_the_operator_too(whole: Namespace) -> None:
    spec = {
        "etcd": {"managed": {"storage": {"size": "1Gi"}}},
        "insecure": True,
        "authentication": {"enabled": False},
        "storage": {"size": "1Gi"},
        "deletionPolicy": "onlyIfEmpty",
        "pod": {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}},
    }
    whole.apply("MessagingCluster", "orders", spec)
    whole.ready("messagingcluster", "orders", 180)
    for number, policy in enumerate(("retain", "delete", "onlyIfEmpty")):
        whole.apply("Queue", f"q{number}", {"clusterRef": {"name": "orders"}, "deletionPolicy": policy})
    for number in range(3):
        whole.ready("queue", f"q{number}", 90)
    run("kubectl", "delete", "namespace", whole.name, "--wait=false")
    whole.wait(
        lambda: not run("kubectl", "get", "namespace", whole.name, "--ignore-not-found").strip(),
        150,
        "the namespace gone",
        lambda: json.dumps(
            json.loads(run("kubectl", "get", "namespace", whole.name, "-o", "json"))["status"], indent=1
        ),
    )
