"""From an earlier version to this one, operator, definitions and brokers, while messages flow.

Only where STERNA_TEST_EARLIER names a checkout of the earlier version, whose images STERNA_TEST_EARLIER_BROKER_IMAGE
and STERNA_TEST_EARLIER_OPERATOR_IMAGE name: `tools/upgrade-from.sh COMMIT` makes all of that, and runs this.
"""

import asyncio
import json
import os
import secrets
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.kubernetes.conftest import (
    BROKER_IMAGE,
    OPERATOR,
    OPERATOR_IMAGE,
    Loads,
    operator_values,
    outside_url,
    queues_on_both,
    recycle,
)
from tests.kubernetes.exchanging import receive_bodies, send_numbers
from tests.kubernetes.kubectl import Namespace, helm, run
from tests.kubernetes.rolling import Rolling

# The machine may be the cluster's only node as well.
pytestmark = [pytest.mark.slow_callbacks(5_000), pytest.mark.usefixtures("whole_cluster")]

EARLIER = Path(os.environ.get("STERNA_TEST_EARLIER", ""))
EARLIER_BROKER = os.environ.get("STERNA_TEST_EARLIER_BROKER_IMAGE", "")
EARLIER_OPERATOR = os.environ.get("STERNA_TEST_EARLIER_OPERATOR_IMAGE", "")
RESTING = 50


def _install_definitions(charts: Path) -> None:
    chart = str(charts / "sterna-crds")
    helm("upgrade", "--install", "sterna-crds", chart, "--namespace", "default", "--take-ownership")


def _install_operator(namespace: Namespace, charts: Path, operator_image: str, broker_image: str) -> None:
    helm(
        *("upgrade", "--install", OPERATOR, str(charts / "sterna-operator"), "--namespace", namespace.name),
        *(*operator_values(namespace.name, operator_image, broker_image), "--wait", "--timeout", "180s"),
    )


@pytest.fixture
def earlier(tier_pods: None) -> Iterator[Namespace]:
    """A namespace with the earlier version's operator, and its definitions."""
    _install_definitions(EARLIER / "charts")
    namespace = Namespace(f"sterna-e2e-{secrets.token_hex(3)}")
    run("kubectl", "create", "namespace", namespace.name)
    try:
        _install_operator(namespace, EARLIER / "charts", EARLIER_OPERATOR, EARLIER_BROKER)
        yield namespace
    finally:
        _install_definitions(Path("charts"))
        run("kubectl", "delete", "namespace", namespace.name, "--ignore-not-found", "--wait=true", timeout_s=180)
        recycle()


def _pods(namespace: Namespace, cluster: str) -> dict[str, str]:
    pods = namespace.broker_pods(cluster).values()
    return {pod["metadata"]["uid"]: pod["spec"]["containers"][0]["image"] for pod in pods}


def test_an_earlier_version_is_upgraded_under_load_first_the_operator_then_the_brokers(
    earlier: Namespace, load: Loads
) -> None:
    cluster = "orders"
    spec = {
        "brokers": 2,
        "etcd": {"managed": {"storage": {"size": "1Gi"}}},
        "insecure": True,
        "authentication": {"enabled": False},
        "storage": {"size": "1Gi"},
        "deletionPolicy": "delete",
        "listeners": [{"name": "out", "type": "nodePort"}],
        "pod": {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}},
    }
    earlier.apply("MessagingCluster", cluster, spec)
    earlier.ready("messagingcluster", cluster, 180)
    queues_on_both(earlier, cluster)
    earlier.apply("Queue", "resting", {"clusterRef": {"name": cluster}, "deletionPolicy": "onlyIfEmpty"})
    earlier.apply("Topic", "prices", {"clusterRef": {"name": cluster}})
    earlier.ready("queue", "resting", 90)
    earlier.ready("topic", "prices", 90)
    url = outside_url(earlier, cluster)
    asyncio.run(send_numbers(url, "resting", RESTING))
    before = _pods(earlier, cluster)
    assert set(before.values()) == {EARLIER_BROKER}
    running = {name: load(url, name) for name in ("here", "there")}

    def all_go_on() -> None:
        for one in running.values():
            one.goes_on()

    all_go_on()
    # As docs/kubernetes say: the definitions, then the operator; no broker is touched by that.
    _install_definitions(Path("charts"))
    all_go_on()
    _install_operator(earlier, Path("charts"), OPERATOR_IMAGE, BROKER_IMAGE)
    earlier.apply("Queue", "new", {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    earlier.ready("queue", "new", 90)
    condition = partial(earlier.condition, "messagingcluster", cluster)
    is_serving = partial(earlier.wait, lambda: condition().get("reason") == "Serving")
    is_serving(120, "the cluster well under the new operator", lambda: json.dumps(condition()))
    all_go_on()
    untouched = _pods(earlier, cluster)
    print(json.dumps({"brokers_restarted_by_operator": len(set(before) - set(untouched))}))
    assert untouched == before, "an operator's upgrade restarts no broker"

    rolling = Rolling(earlier.broker_pods(cluster))
    earlier.patch("messagingcluster", cluster, {"spec": {"image": BROKER_IMAGE}})

    def changed() -> bool:
        ready = rolling.look(earlier.broker_pods(cluster))
        return len(ready) == 2 and set(_pods(earlier, cluster).values()) == {BROKER_IMAGE}

    earlier.wait(changed, 240, "both brokers of this version")
    is_serving(120, "the cluster well with the new brokers", lambda: json.dumps(condition()))
    all_go_on()
    reports = {name: one.stop() for name, one in running.items()}
    print(json.dumps({**reports, "away_s": rolling.longest_s, "most_away": rolling.most_away}))
    for report in reports.values():
        assert report["lost"] == report["twice_unflagged"] == 0
    assert rolling.most_away == 1, "one at a time"
    assert asyncio.run(receive_bodies(url, "resting", RESTING)) == [str(number) for number in range(RESTING)]
    earlier.ready("topic", "prices", 90)
    for name in ("here", "there", "resting", "new"):
        earlier.delete("queue", name)
    earlier.delete("topic", "prices")
    earlier.delete("messagingcluster", cluster, timeout_s=120)
