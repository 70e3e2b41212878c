"""Two replicas of the operator, as pods: one leads, and when it is killed under load the other one goes on."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.kubernetes import killing
from tests.kubernetes.conftest import OPERATOR, Loads, MakeCluster, operator_values, outside_url
from tests.kubernetes.kubectl import Namespace, helm

# The machine may be the cluster's only node as well.
pytestmark = [pytest.mark.slow_callbacks(5_000)]

# What is promised: the Lease of 10 s runs out, and the other one acts.
ANOTHER_LEADER_S = 15.0


@pytest.fixture
def two(operator: Namespace) -> Iterator[Namespace]:
    """The operator with two replicas; put back to one afterwards."""
    _replicas(operator, 2)
    yield operator
    _replicas(operator, 1)


def _replicas(operator: Namespace, count: int) -> None:
    helm(
        *("upgrade", OPERATOR, "charts/sterna-operator", "--namespace", operator.name, "--set", f"replicas={count}"),
        *(*operator_values(operator.name), "--wait", "--timeout", "180s"),
    )


def _leader(operator: Namespace) -> str:
    """The pod that leads, as its Lease says."""
    lease = operator.get("lease", OPERATOR)
    assert lease is not None
    pods = [pod["metadata"]["name"] for pod in operator.all("pod", "app.kubernetes.io/name=sterna-operator")]
    (leader,) = [pod for pod in pods if pod in str(lease["spec"]["holderIdentity"])]
    return str(leader)


def test_a_leader_is_killed_under_load_and_the_other_operator_goes_on(
    two: Namespace, make_cluster: MakeCluster, load: Loads
) -> None:
    cluster = make_cluster({"brokers": 2, "listeners": [{"name": "out", "type": "nodePort"}]})
    two.apply("Queue", "through", {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    two.ready("queue", "through", 90)
    brokers = {pod["metadata"]["uid"] for pod in two.broker_pods(cluster).values()}
    running = load(outside_url(two, cluster), "through")
    running.goes_on()
    took_s: dict[str, float] = {}
    for queue in ("first", "second"):
        leader = _leader(two)
        began = time.monotonic()
        killing.kill(two, leader, killing.operator(leader))
        two.apply("Queue", queue, {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
        two.ready("queue", queue, 90)
        took_s[queue] = round(time.monotonic() - began, 1)
        assert _leader(two) != leader, "the one that was killed leads again"
        # The next one that is killed must have somebody to follow it.
        two.kubectl("rollout", "status", f"deployment/{OPERATOR}", "--timeout=90s", timeout_s=100)
    running.goes_on()
    report = running.stop()
    print(json.dumps({**report, "another leader after (s)": took_s}))
    assert report["lost"] == report["twice_unflagged"] == report["unknown"] == 0
    assert {pod["metadata"]["uid"] for pod in two.broker_pods(cluster).values()} == brokers
    assert min(took_s.values()) < ANOTHER_LEADER_S
    for queue in ("through", "first", "second"):
        two.delete("queue", queue)
