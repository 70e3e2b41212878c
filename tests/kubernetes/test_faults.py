"""What heals by itself: etcd's pod lost, a namespace deleted with everything in it, the operator among it."""

import asyncio
import json
import secrets
from collections.abc import Iterator

import pytest
import sterna

from tests.kubernetes.conftest import OPERATOR, MakeCluster, operator_values, outside_url, recycle
from tests.kubernetes.kubectl import Namespace, helm, run

NODE_PORT = {"listeners": [{"name": "out", "type": "nodePort"}]}

# The machine may be the cluster's only node as well.
pytestmark = pytest.mark.slow_callbacks(5_000)


async def _through(url: str, queue: str, text: str) -> object:
    async with sterna.connect(url) as connection:
        await connection.send(queue, text)
        consumer = await connection.consumer(queue)
        message = await consumer.receive(timeout=10)
        assert message is not None
        await message.acknowledge()
        return message.body


def test_brokers_serve_on_without_etcd_and_changes_arrive_when_it_returns(
    operator: Namespace, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster({"brokers": 1, **NODE_PORT})
    operator.apply("Queue", "before", {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    operator.ready("queue", "before", 60)
    brokers = {name: pod["metadata"]["uid"] for name, pod in operator.broker_pods(cluster).items()}
    etcd = f"{cluster}-etcd"
    operator.patch("messagingcluster", cluster, {"spec": {"paused": {}}})
    operator.wait(
        lambda: operator.condition("messagingcluster", cluster, "Stalled").get("reason") == "Paused", 30, "the pause"
    )
    operator.kubectl("scale", "statefulset", etcd, "--replicas=0")
    operator.wait(lambda: operator.get("pod", f"{etcd}-0") is None, 60, "etcd gone")
    url = outside_url(operator, cluster)
    assert asyncio.run(_through(url, "before", "without etcd")) == "without etcd"
    operator.apply("Queue", "meanwhile", {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    assert asyncio.run(_through(url, "before", "still")) == "still"
    # The operator puts its StatefulSet right as soon as it may.
    operator.patch("messagingcluster", cluster, {"spec": {"paused": None}})
    operator.ready("queue", "meanwhile", 90)
    operator.ready("messagingcluster", cluster, 60)
    assert asyncio.run(_through(url, "meanwhile", "and again")) == "and again"
    assert {name: pod["metadata"]["uid"] for name, pod in operator.broker_pods(cluster).items()} == brokers


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
        whole.ready("queue", f"q{number}", 60)
    run("kubectl", "delete", "namespace", whole.name, "--wait=false")
    whole.wait(
        lambda: not run("kubectl", "get", "namespace", whole.name, "--ignore-not-found").strip(),
        150,
        "the namespace gone",
        lambda: json.dumps(
            json.loads(run("kubectl", "get", "namespace", whole.name, "-o", "json"))["status"], indent=1
        ),
    )
