"""A cluster's life: made, used from inside and outside, changed, scaled, deleted."""

import asyncio
import base64
import json
from functools import partial
from typing import Any

import pytest
import sterna

from tests.kubernetes import killing
from tests.kubernetes.conftest import Loads, MakeCluster, outside_url
from tests.kubernetes.exchanging import receive_bodies, send_numbers
from tests.kubernetes.kubectl import Namespace
from tests.kubernetes.rolling import Rolling

# The machine may be the cluster's only node as well.
pytestmark = pytest.mark.slow_callbacks(5_000)

NODE_PORT = {"listeners": [{"name": "out", "type": "nodePort"}]}

INSIDE = """
import asyncio, sterna
async def main():
    async with sterna.connect({url!r}) as connection:
        await connection.send({queue!r}, {text!r})
        consumer = await connection.consumer({queue!r})
        message = await consumer.receive(timeout=60)
        await message.acknowledge()
        print(message.body)
asyncio.run(main())
"""


def queue(cluster: str, **spec: Any) -> dict[str, Any]:
    return {"clusterRef": {"name": cluster}, **spec}


async def through(url: str, name: str, text: str) -> object:
    async with sterna.connect(url) as connection:
        await connection.send(name, text)
        consumer = await connection.consumer(name)
        message = await consumer.receive(timeout=60)
        assert message is not None
        await message.acknowledge()
        return message.body


def test_a_message_goes_through_from_inside_and_from_outside(operator: Namespace, make_cluster: MakeCluster) -> None:
    cluster = make_cluster({"brokers": 2, **NODE_PORT})
    for name in ("orders", "invoices", "letters"):
        operator.apply("Queue", name, queue(cluster, deletionPolicy="delete"))
    homes = {operator.ready("queue", name, 90)["status"]["home"] for name in ("orders", "invoices", "letters")}
    assert homes == {f"{cluster}-broker-0", f"{cluster}-broker-1"}, "the least loaded broker gets the next"
    secret = operator.get("secret", f"{cluster}-connection")
    assert secret is not None
    url = base64.b64decode(secret["data"]["url"]).decode()
    outside = outside_url(operator, cluster).split("+")[0]
    for name in ("orders", "invoices", "letters"):
        # One address serves the whole cluster, inside and outside.
        code = INSIDE.format(url=url, queue=name, text=f"inside {name}")
        assert operator.python(f"{cluster}-broker-0", code).strip() == f"inside {name}"
        assert asyncio.run(through(outside, name, f"outside {name}")) == f"outside {name}"
    for name in ("orders", "invoices", "letters"):
        operator.delete("queue", name)


def test_what_was_made_is_there_again_when_somebody_removes_it(operator: Namespace, make_cluster: MakeCluster) -> None:
    cluster = make_cluster({"brokers": 1})
    before = {name: pod["metadata"]["uid"] for name, pod in operator.broker_pods(cluster).items()}
    for kind, name in (
        ("service", cluster),
        ("configmap", f"{cluster}-settings"),
        ("poddisruptionbudget", f"{cluster}-broker"),
    ):
        operator.delete(kind, name)
        operator.wait(partial(operator.get, kind, name), 90, f"{kind} {name} back")
    operator.patch("service", cluster, {"spec": {"selector": {"app.kubernetes.io/instance": "another"}}})
    operator.wait(
        lambda: (operator.get("service", cluster) or {})["spec"]["selector"]["app.kubernetes.io/instance"] == cluster,
        90,
        "the Service's selector put right",
    )
    after = {name: pod["metadata"]["uid"] for name, pod in operator.broker_pods(cluster).items()}
    assert before == after


def test_a_restart_under_load_takes_one_broker_at_a_time_and_loses_nothing(
    operator: Namespace, make_cluster: MakeCluster, load: Loads
) -> None:
    cluster = make_cluster({"brokers": 2, **NODE_PORT})
    operator.apply("Queue", "rolling", queue(cluster, deletionPolicy="delete"))
    operator.ready("queue", "rolling", 90)
    pods = operator.broker_pods(cluster)
    before = {name: pod["metadata"]["uid"] for name, pod in pods.items()}
    rolling = Rolling(pods)
    running = load(outside_url(operator, cluster), "rolling")
    operator.kubectl("annotate", "messagingcluster", cluster, "sterna.dev/restart=now")

    def restarted() -> bool:
        pods = operator.broker_pods(cluster)
        uids = {pod["metadata"]["uid"] for pod in pods.values()}
        return rolling.look(pods) == before.keys() and not uids & set(before.values())

    operator.wait(restarted, 180, "both brokers restarted")
    report = running.stop()
    print(json.dumps(report))
    assert report["lost"] == 0
    assert report["twice_unflagged"] == 0
    assert report["confirmed"] > 50
    assert rolling.most_away == 1
    operator.delete("queue", "rolling")


def test_a_killed_broker_comes_back_under_load_and_nothing_is_lost(
    operator: Namespace, make_cluster: MakeCluster, load: Loads
) -> None:
    cluster = make_cluster({"brokers": 1, **NODE_PORT})
    operator.apply("Queue", "killed", queue(cluster, deletionPolicy="delete"))
    operator.ready("queue", "killed", 90)
    running = load(outside_url(operator, cluster), "killed")
    pod = f"{cluster}-broker-0"
    for _ in range(2):
        killing.kill(operator, pod, killing.broker(pod))
        operator.wait(lambda: killing.is_ready(operator.get("pod", pod)), 120, "the pod ready")
    report = running.stop()
    print(json.dumps(report))
    assert report["lost"] == 0
    assert report["twice_unflagged"] == 0
    operator.delete("queue", "killed")


def test_a_killed_operator_goes_on_and_restarts_no_broker(operator: Namespace, make_cluster: MakeCluster) -> None:
    cluster = make_cluster({"brokers": 1})
    before = {name: pod["metadata"]["uid"] for name, pod in operator.broker_pods(cluster).items()}
    operator.kubectl(
        "delete", "pod", "-l", "app.kubernetes.io/name=sterna-operator", "--grace-period=0", "--force", "--wait=false"
    )
    operator.apply("Queue", "after", queue(cluster, deletionPolicy="delete"))
    operator.ready("queue", "after", 90)
    assert {name: pod["metadata"]["uid"] for name, pod in operator.broker_pods(cluster).items()} == before
    operator.delete("queue", "after")


def test_fewer_brokers_wait_until_one_is_empty(operator: Namespace, make_cluster: MakeCluster) -> None:
    cluster = make_cluster({"brokers": 2, **NODE_PORT})
    operator.apply("Queue", "stays", queue(cluster, deletionPolicy="delete", broker=f"{cluster}-broker-1"))
    assert operator.ready("queue", "stays", 90)["status"]["home"] == f"{cluster}-broker-1"
    url = outside_url(operator, cluster)

    async def send() -> None:
        async with sterna.connect(url) as connection:
            for number in range(3):
                await connection.send("stays", str(number))

    asyncio.run(send())
    operator.patch("messagingcluster", cluster, {"spec": {"brokers": 1}})
    operator.wait(
        lambda: operator.condition("messagingcluster", cluster).get("reason") == "DrainBlocked",
        90,
        "scale-down blocked",
        lambda: json.dumps(operator.condition("messagingcluster", cluster)),
    )
    assert "3 messages" in operator.condition("messagingcluster", cluster)["message"]
    assert len(operator.broker_pods(cluster)) == 2

    async def receive() -> list[str]:
        async with sterna.connect(url) as connection:
            consumer = await connection.consumer("stays")
            bodies = []
            for _ in range(3):
                message = await consumer.receive(timeout=60)
                assert message is not None
                await message.acknowledge()
                bodies.append(str(message.body))
            return bodies

    assert asyncio.run(receive()) == ["0", "1", "2"]
    operator.patch("queue", "stays", {"spec": {"broker": None}})
    operator.wait(lambda: len(operator.broker_pods(cluster)) == 1, 90, "one broker left")
    operator.ready("messagingcluster", cluster, 90)
    assert operator.ready("queue", "stays", 90)["status"]["home"] == f"{cluster}-broker-0"
    operator.patch("messagingcluster", cluster, {"spec": {"brokers": 2}})
    operator.ready("messagingcluster", cluster, 120)
    assert len(operator.broker_pods(cluster)) == 2
    operator.delete("queue", "stays")


def test_a_cluster_that_is_kept_finds_its_messages_again(operator: Namespace, make_cluster: MakeCluster) -> None:
    cluster = make_cluster({"brokers": 1, "deletionPolicy": "retain", **NODE_PORT})
    operator.apply("Queue", "kept", queue(cluster))
    operator.ready("queue", "kept", 90)

    async def send() -> None:
        async with sterna.connect(outside_url(operator, cluster)) as connection:
            await connection.send("kept", "still here")

    asyncio.run(send())
    whole = operator.get("messagingcluster", cluster)
    assert whole is not None
    operator.delete("messagingcluster", cluster)
    operator.wait(lambda: not operator.broker_pods(cluster), 120, "pods gone")
    operator.apply("MessagingCluster", cluster, whole["spec"])
    operator.ready("messagingcluster", cluster, 120)
    operator.ready("queue", "kept", 90)

    async def receive() -> object:
        async with sterna.connect(outside_url(operator, cluster)) as connection:
            consumer = await connection.consumer("kept")
            message = await consumer.receive(timeout=60)
            assert message is not None
            await message.acknowledge()
            return message.body

    assert asyncio.run(receive()) == "still here"
    operator.delete("queue", "kept")
    operator.delete("messagingcluster", cluster)
    operator.wait(lambda: not operator.broker_pods(cluster), 120, "pods gone")
    operator.kubectl("delete", "pvc", "-l", f"app.kubernetes.io/instance={cluster}")


def test_a_cluster_that_goes_when_it_is_empty_serves_until_then_and_leaves_its_volumes(
    operator: Namespace, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster({"brokers": 1, "deletionPolicy": "onlyIfEmpty", **NODE_PORT})
    operator.apply("Queue", "last", queue(cluster))
    operator.ready("queue", "last", 90)
    # The address stands in the status, which goes with the cluster.
    url = outside_url(operator, cluster)
    asyncio.run(send_numbers(url, "last", 1))

    def counted() -> bool:
        found = operator.get("messagingcluster", cluster)
        assert found is not None
        return bool(sum(broker.get("messages", 0) for broker in found["status"]["brokers"]) == 1)

    # Deleted before it was counted, the broker would be closed to producers for a moment, until it says what it holds.
    operator.wait(counted, 60, "the message in the cluster's status")
    operator.delete("messagingcluster", cluster, "--wait=false")

    def blocked() -> bool:
        condition = operator.condition("messagingcluster", cluster)
        return condition.get("reason") == "DeletionBlocked" and "it holds 1 message;" in condition["message"]

    operator.wait(
        blocked,
        60,
        "the deletion blocked by one message",
        lambda: json.dumps((operator.get("messagingcluster", cluster) or {}).get("status"), indent=1),
    )

    async def send_another() -> None:
        async with sterna.connect(url) as connection:
            await connection.send("last", "another")

    asyncio.run(send_another())
    assert len(operator.broker_pods(cluster)) == 1
    assert asyncio.run(receive_bodies(url, "last", 2)) == ["0", "another"]
    operator.wait(
        lambda: operator.get("messagingcluster", cluster) is None,
        90,
        "the empty cluster gone",
        lambda: json.dumps((operator.get("messagingcluster", cluster) or {}).get("status"), indent=1),
    )
    operator.wait(lambda: not operator.broker_pods(cluster), 120, "pods gone")
    volume = operator.get("pvc", f"data-{cluster}-broker-0")
    assert volume is not None, "the volume has gone"
    # Nobody owns it whose going would take it along, nor is it on its way.
    assert not volume["metadata"].get("ownerReferences")
    assert "deletionTimestamp" not in volume["metadata"]
    operator.delete("queue", "last")
    operator.kubectl("delete", "pvc", "-l", f"app.kubernetes.io/instance={cluster}")
