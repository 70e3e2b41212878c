"""A broker that is cut off from etcd: it serves on, others know, and it catches up when the network is back."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest
import sterna

from tests.kubernetes import partition
from tests.kubernetes.conftest import Loads, MakeCluster, is_local, outside_url
from tests.kubernetes.kubectl import Namespace
from tests.support.leaving_out import leave_out

# The machine may be the cluster's only node as well.
pytestmark = pytest.mark.slow_callbacks(5_000)

NODE_PORT = {"listeners": [{"name": "out", "type": "nodePort"}]}


def _broker(namespace: Namespace, cluster: str, name: str) -> dict[str, Any]:
    """What the cluster's status says of a broker."""
    found = namespace.get("messagingcluster", cluster)
    assert found is not None
    return next((one for one in found["status"].get("brokers", ()) if one["name"] == name), {})


async def _fill(url: str, queue: str) -> int:
    """Sends until the queue is full; how many it took."""
    async with sterna.connect(url) as connection:
        for number in range(100):
            try:
                await connection.send(queue, str(number))
            except sterna.errors.DestinationFullError:
                return number
    raise AssertionError("it was never full")


@pytest.fixture(autouse=True)
def packets_can_be_dropped() -> None:
    """Only the local cluster's network is ours to disturb."""
    if not is_local():
        leave_out(
            "a broker that is cut off", "packets are dropped in the local cluster's network (tools/cluster/cluster)"
        )


def test_a_broker_that_is_cut_off_from_etcd_serves_on_and_catches_up(
    operator: Namespace, make_cluster: MakeCluster, load: Loads
) -> None:
    cluster = make_cluster({"brokers": 2, **NODE_PORT})
    first, second = f"{cluster}-broker-0", f"{cluster}-broker-1"
    for name, broker in (("cut-off", first), ("elsewhere", second), ("bounded", first)):
        spec = {"clusterRef": {"name": cluster}, "deletionPolicy": "delete", "broker": broker}
        operator.apply("Queue", name, spec)
        operator.ready("queue", name, 90)
    url = outside_url(operator, cluster)
    pods = operator.broker_pods(cluster)
    etcd = operator.get("pod", f"{cluster}-etcd-0")
    assert etcd is not None
    running = [load(url, name) for name in ("cut-off", "elsewhere")]
    for one in running:
        one.goes_on()

    with partition.between(pods[first]["status"]["podIP"], etcd["status"]["podIP"]):
        # Its registration lapses, and the status says that one broker is not there for the cluster.
        operator.wait(lambda: _broker(operator, cluster, first).get("ready") is False, 90, "the broker missed")
        condition = partial(operator.condition, "messagingcluster", cluster)
        said = f"1 of 2 brokers serve; {first}: it is ready, and not registered"
        operator.wait(lambda: said in condition().get("message", ""), 90, "the status saying so")
        operator.wait(lambda: "etcd_lost" in operator.kubectl("logs", first), 90, "the broker saying so")
        # It serves all the same; what is new goes to the other, and what is changed here waits.
        for one in running:
            one.goes_on()
        operator.apply("Queue", "meanwhile", {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
        assert operator.ready("queue", "meanwhile", 90)["status"]["home"] == second
        operator.patch("queue", "bounded", {"spec": {"maxMessages": 2}})
        operator.wait(
            lambda: operator.condition("queue", "bounded").get("reason") == "Applying", 90, "the change waiting"
        )

    operator.ready("queue", "bounded", 90)
    operator.ready("messagingcluster", cluster, 90)
    assert asyncio.run(_fill(url, "bounded")) == 2
    for one in running:
        one.goes_on()
    reports = [one.stop() for one in running]
    print(json.dumps(reports))
    assert all(report["lost"] == report["unknown"] == report["twice_unflagged"] == 0 for report in reports)
    after = operator.broker_pods(cluster)
    assert {name: pod["metadata"]["uid"] for name, pod in after.items()} == {
        name: pod["metadata"]["uid"] for name, pod in pods.items()
    }, "no broker was restarted because of it"
    for name in ("cut-off", "elsewhere", "bounded", "meanwhile"):
        operator.delete("queue", name)
