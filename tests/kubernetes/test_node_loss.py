"""A node that is gone from one moment to the next, with a broker on it: what it had comes back with its volume.

The node is one of the local cluster's own (`tools/cluster/cluster second up`). Both nodes share the folders that are
volumes, as machines share storage in a network: a volume that lives on the lost machine's own disk is lost with it.
"""

import json
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.kubernetes import killing
from tests.kubernetes.conftest import BROKER_IMAGE, Loads, MakeCluster, is_local, outside_url, queues_on_both
from tests.kubernetes.kubectl import ROOT, Namespace, run
from tests.support.leaving_out import leave_out

# The machine may be the cluster's only node as well.
pytestmark = [
    pytest.mark.slow_callbacks(5_000),
    pytest.mark.long,
    pytest.mark.usefixtures("whole_cluster"),
]

_CLUSTER = str(ROOT / "tools" / "cluster" / "cluster")
SECOND = "node-2"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


def _second(*command: str) -> None:
    run(_CLUSTER, "second", *command, timeout_s=180)


@pytest.fixture
def second_node(operator: Namespace) -> Iterator[None]:
    """A node beside the first, with the brokers' image."""
    if not is_local():
        leave_out("a node that is lost", "only the local cluster's second node may be lost")
    _second("up")
    try:
        _second("load", BROKER_IMAGE)
        yield
    finally:
        _second("down")


def _nodes(namespace: Namespace, cluster: str) -> dict[str, str]:
    return {name: pod["spec"].get("nodeName", "") for name, pod in namespace.broker_pods(cluster).items()}


def _is_not_ready() -> bool:
    node = json.loads(run("kubectl", "get", "node", SECOND, "-o", "json"))
    return any(one["type"] == "Ready" and one["status"] != "True" for one in node["status"]["conditions"])


@pytest.mark.usefixtures("second_node")
def test_a_node_that_is_lost_costs_its_brokers_messages_a_while_and_no_message(
    operator: Namespace, make_cluster: MakeCluster, load: Loads
) -> None:
    tolerations = [{"key": "sterna.dev/second", "operator": "Exists", "effect": "NoSchedule"}]
    resources = {"requests": {"cpu": "10m", "memory": "64Mi"}}
    # Etcd stays on the first node, which is the only one to begin with.
    run("kubectl", "cordon", SECOND)
    cluster = make_cluster(
        {
            "brokers": 1,
            "listeners": [{"name": "out", "type": "nodePort"}],
            "pod": {"resources": resources, "tolerations": tolerations},
        }
    )
    run("kubectl", "uncordon", SECOND)
    operator.patch("messagingcluster", cluster, {"spec": {"brokers": 2}})
    operator.wait(lambda: len(_nodes(operator, cluster)) == 2, 90, "the second broker")
    operator.ready("messagingcluster", cluster, 180)
    queues_on_both(operator, cluster)
    on_second = [name for name, node in _nodes(operator, cluster).items() if node == SECOND]
    assert len(on_second) == 1, f"brokers spread over nodes by default: {_nodes(operator, cluster)}"
    lost = on_second[0]
    homes = {name: operator.ready("queue", name, 90)["status"]["home"] for name in ("here", "there")}
    url = outside_url(operator, cluster)
    # The lost broker's address outside is its node's. The SDK tries those that it knows until it gives up; who connects
    # anew asks, and is told where the broker is by now.
    patience = {"LOAD_SEND_TIMEOUT_S": "360", "LOAD_GIVE_UP_S": "20"}
    running = {home: load(url, name, **patience) for name, home in homes.items()}
    staying = next(one for home, one in running.items() if home != lost)
    for one in running.values():
        one.goes_on()

    _second("crash")
    began = time.monotonic()
    staying.goes_on()
    staying_s = time.monotonic() - began
    condition = partial(operator.condition, "messagingcluster", cluster)
    operator.wait(
        lambda: condition().get("status") == "False" and lost in condition()["message"], 180, "the lost broker said"
    )
    said_s, said = time.monotonic() - began, condition()["message"]
    operator.wait(_is_not_ready, 180, "the node said to be gone")
    # Nobody but a person knows that the machine is off, and not only cut off: this is how they say it.
    run("kubectl", "taint", "node", SECOND, OUT_OF_SERVICE)
    told_s = time.monotonic() - began

    def is_back() -> bool:
        pod = operator.get("pod", lost)
        return pod is not None and pod["spec"].get("nodeName") == "node-1" and killing.is_ready(pod)

    operator.wait(is_back, 180, "the broker on the other node", lambda: operator.kubectl("describe", "pod", lost))
    back_s = time.monotonic() - began
    for one in running.values():
        one.goes_on(timeout_s=180)
    # The machine is repaired, and comes back empty.
    _second("up")
    operator.wait(lambda: condition().get("reason") == "Serving", 120, "the cluster well")
    staying.goes_on()
    reports = {home: one.stop() for home, one in running.items()}
    times = {"staying_went_on_s": staying_s, "said_s": said_s, "told_s": told_s, "back_s": back_s}
    print(
        json.dumps({"lost_broker": lost, **reports, **{name: round(s, 1) for name, s in times.items()}, "said": said})
    )
    for report in reports.values():
        assert report["lost"] == report["twice_unflagged"] == 0
    assert set(_nodes(operator, cluster).values()) == {"node-1"}, "nothing moves back by itself"
    for name in ("here", "there"):
        operator.delete("queue", name)
