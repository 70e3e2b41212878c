"""Nodes are emptied one broker at a time: the disruption budget refuses the second eviction until the first is back."""

import json

import pytest

from tests.kubernetes.conftest import Loads, MakeCluster, outside_url, queues_on_both
from tests.kubernetes.killing import is_ready
from tests.kubernetes.kubectl import CommandError, Namespace
from tests.kubernetes.rolling import Rolling

# The machine may be the cluster's only node as well.
pytestmark = [pytest.mark.slow_callbacks(5_000)]


def _evict(namespace: Namespace, pod: str) -> str:
    """Asks for an eviction, as `kubectl drain` does. What it is refused with; "": it was taken."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace.name}}
    path = f"/api/v1/namespaces/{namespace.name}/pods/{pod}/eviction"
    try:
        namespace.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    except CommandError as error:
        return str(error)
    return ""


def test_a_second_broker_is_evicted_only_when_the_first_is_back_and_nothing_is_lost(
    operator: Namespace, make_cluster: MakeCluster, load: Loads
) -> None:
    cluster = make_cluster({"brokers": 2, "listeners": [{"name": "out", "type": "nodePort"}]})
    queues_on_both(operator, cluster)
    running = {name: load(outside_url(operator, cluster), name) for name in ("here", "there")}
    for one in running.values():
        one.goes_on()
    before = operator.broker_pods(cluster)
    first, second = sorted(before)
    rolling = Rolling(before)
    assert _evict(operator, first) == ""
    assert "disruption budget" in _evict(operator, second)

    def is_back() -> bool:
        pods = operator.broker_pods(cluster)
        rolling.look(pods)
        return (
            first in pods
            and pods[first]["metadata"]["uid"] != before[first]["metadata"]["uid"]
            and is_ready(pods[first])
        )

    operator.wait(is_back, 120, "the evicted broker ready again")
    # The budget's count follows the pod's.
    operator.wait(lambda: _evict(operator, second) == "", 60, "the second eviction taken")
    operator.ready("messagingcluster", cluster, 120)
    for one in running.values():
        one.goes_on()
    reports = {name: one.stop() for name, one in running.items()}
    print(json.dumps(reports))
    for report in reports.values():
        assert report["lost"] == report["twice_unflagged"] == 0
    assert rolling.most_away == 1, "one at a time"
    for name in ("here", "there"):
        operator.delete("queue", name)
