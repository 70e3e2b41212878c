"""Other images: of the brokers, one at a time under load; of the operator, which touches no broker. And back again."""

import inspect
import json
from collections.abc import Iterator

import pytest
import sterna

from tests.kubernetes.conftest import (
    BROKER_IMAGE,
    OPERATOR,
    OPERATOR_IMAGE,
    OTHER_BROKER_IMAGE,
    OTHER_OPERATOR_IMAGE,
    Loads,
    MakeCluster,
    operator_values,
    outside_url,
    queues_on_both,
)
from tests.kubernetes.kubectl import Namespace, helm
from tests.kubernetes.rolling import Rolling

# The machine may be the cluster's only node as well.
pytestmark = [pytest.mark.slow_callbacks(5_000), pytest.mark.usefixtures("other_images")]

# How the SDK reconnects when nobody tells it otherwise.
LONGEST_PAUSE_S = sterna.Reconnect().maximum_ms / 1000
LONGEST_TRY_S = float(inspect.signature(sterna.connect).parameters["connect_timeout_s"].default)

NODE_PORT = {"listeners": [{"name": "out", "type": "nodePort"}]}


def _images(namespace: Namespace, cluster: str) -> dict[str, str]:
    """What the brokers' pods were made of, by the pods' uids."""
    pods = namespace.broker_pods(cluster).values()
    return {pod["metadata"]["uid"]: pod["spec"]["containers"][0]["image"] for pod in pods}


def test_another_image_reaches_one_broker_after_the_other_and_nothing_is_lost(
    operator: Namespace, make_cluster: MakeCluster, load: Loads
) -> None:
    cluster = make_cluster({"brokers": 2, **NODE_PORT})
    queues_on_both(operator, cluster)
    before = _images(operator, cluster)
    assert set(before.values()) == {BROKER_IMAGE}
    running = {name: load(outside_url(operator, cluster), name) for name in ("here", "there")}
    for one in running.values():
        one.goes_on()
    rolling = Rolling(operator.broker_pods(cluster))
    operator.patch("messagingcluster", cluster, {"spec": {"image": OTHER_BROKER_IMAGE}})

    def changed() -> bool:
        pods = operator.broker_pods(cluster)
        ready = rolling.look(pods)
        images = {pod["spec"]["containers"][0]["image"] for pod in pods.values()}
        return len(ready) == 2 and images == {OTHER_BROKER_IMAGE}

    operator.wait(changed, 240, "both brokers of the other image")
    operator.ready("messagingcluster", cluster, 90)
    for one in running.values():
        one.goes_on()
    reports = {name: one.stop() for name, one in running.items()}
    print(json.dumps({**reports, "away_s": rolling.longest_s}))
    for report in reports.values():
        assert report["lost"] == 0
        assert report["twice_unflagged"] == 0
        # What a client adds to the time that its broker is away: the longest pause between two tries, and one try that
        # began before the broker was there and takes as long as a try may. The last second is for the send itself and
        # for the wait until the clock is looked at, on a machine that is a node, the clients and this test as well.
        assert report["slowest_send_s"] <= rolling.longest_s + LONGEST_PAUSE_S + LONGEST_TRY_S + 1
    assert rolling.most_away == 1, "one at a time"
    found = operator.get("messagingcluster", cluster)
    assert found is not None
    assert found["status"]["image"] == OTHER_BROKER_IMAGE
    for name in ("here", "there"):
        operator.delete("queue", name)


@pytest.fixture
def own_revision(operator: Namespace) -> Iterator[Namespace]:
    """The operator, put back to what it was installed as whatever becomes of the test."""
    yield operator
    helm(
        *("upgrade", OPERATOR, "charts/sterna-operator", "--namespace", operator.name),
        *(*operator_values(operator.name), "--wait", "--timeout", "180s"),
    )


def test_an_operator_is_upgraded_and_rolled_back_and_no_broker_restarts(
    own_revision: Namespace, make_cluster: MakeCluster, load: Loads
) -> None:
    operator = own_revision
    cluster = make_cluster({"brokers": 2, **NODE_PORT})
    operator.apply("Queue", "through", {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    operator.ready("queue", "through", 90)
    before = _images(operator, cluster)
    running = load(outside_url(operator, cluster), "through")
    running.goes_on()

    def looked_after(image: str, queue: str) -> None:
        """Waits until an operator of this image has looked at the cluster: it makes again what is missing."""
        operator.kubectl("rollout", "status", f"deployment/{OPERATOR}", "--timeout=180s", timeout_s=200)
        deployment = operator.get("deployment", OPERATOR)
        assert deployment is not None
        assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image
        operator.delete("poddisruptionbudget", f"{cluster}-broker")
        operator.wait(lambda: operator.get("poddisruptionbudget", f"{cluster}-broker"), 90, "the budget made again")
        operator.apply("Queue", queue, {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
        operator.ready("queue", queue, 90)
        operator.ready("messagingcluster", cluster, 90)
        # Another default image is for clusters that begin with it.
        assert _images(operator, cluster) == before

    helm(
        *("upgrade", OPERATOR, "charts/sterna-operator", "--namespace", operator.name, "--wait", "--timeout", "180s"),
        *operator_values(operator.name, OTHER_OPERATOR_IMAGE, OTHER_BROKER_IMAGE),
    )
    looked_after(OTHER_OPERATOR_IMAGE, "upgraded")
    helm("rollback", OPERATOR, "--namespace", operator.name, "--wait", "--timeout", "180s")
    looked_after(OPERATOR_IMAGE, "rolled-back")
    running.goes_on()
    report = running.stop()
    print(json.dumps(report))
    assert report["lost"] == report["twice_unflagged"] == report["unknown"] == 0
    for name in ("through", "upgraded", "rolled-back"):
        operator.delete("queue", name)
