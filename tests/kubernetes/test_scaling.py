"""More brokers and fewer while messages flow; and a broker that is given up with what it holds."""

import asyncio
import json
from functools import partial

import pytest
import sterna

from tests.kubernetes.conftest import Loads, MakeCluster, outside_url
from tests.kubernetes.kubectl import Namespace

# The machine may be the cluster's only node as well.
pytestmark = pytest.mark.slow_callbacks(5_000)

NODE_PORT = {"listeners": [{"name": "out", "type": "nodePort"}]}


def _brokers(namespace: Namespace, cluster: str, count: int) -> None:
    """Asks for so many brokers, and waits until there are."""
    namespace.patch("messagingcluster", cluster, {"spec": {"brokers": count}})
    namespace.wait(
        lambda: len(namespace.broker_pods(cluster)) == count,
        180,
        f"{count} pods",
        lambda: json.dumps((namespace.get("messagingcluster", cluster) or {}).get("status"), indent=1),
    )
    namespace.ready("messagingcluster", cluster, 120)


def _home(namespace: Namespace, queue: str) -> str:
    return str((namespace.get("queue", queue) or {}).get("status", {}).get("home"))


def _moved(namespace: Namespace, queue: str, broker: str) -> None:
    namespace.wait(lambda: _home(namespace, queue) == broker, 90, f"{queue} on broker {broker}")


def test_brokers_come_and_go_under_load_and_nothing_is_lost(
    operator: Namespace, make_cluster: MakeCluster, load: Loads
) -> None:
    cluster = make_cluster({"brokers": 1, **NODE_PORT})
    first, second = f"{cluster}-broker-0", f"{cluster}-broker-1"
    operator.apply("Queue", "stays", {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    operator.ready("queue", "stays", 90)
    url = outside_url(operator, cluster)
    staying = load(url, "stays")
    staying.goes_on()

    _brokers(operator, cluster, 2)
    # What is new goes to the broker that has least.
    idle = ["idle-1", "idle-2"]
    for name in ("moves", *idle):
        operator.apply("Queue", name, {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
        operator.ready("queue", name, 90)
    assert _home(operator, "stays") == first
    assert _home(operator, "moves") == second
    assert second in {_home(operator, name) for name in idle}
    # One address serves the whole cluster: this load begins at the first broker.
    moving = load(url, "moves")
    moving.goes_on()
    staying.goes_on()

    _brokers(operator, cluster, 1)
    for name in ("stays", "moves", *idle):
        _moved(operator, name, first)
    staying.goes_on()
    moving.goes_on()
    reports = {"stays": staying.stop(), "moves": moving.stop()}
    print(json.dumps(reports))
    for report in reports.values():
        assert report["lost"] == 0
        assert report["twice_unflagged"] == 0
    for name in ("stays", "moves", *idle):
        operator.delete("queue", name)


def test_a_broker_that_is_given_up_keeps_its_messages_and_says_so_when_it_is_back(
    operator: Namespace, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster({"brokers": 2, **NODE_PORT})
    first, second = f"{cluster}-broker-0", f"{cluster}-broker-1"
    for name in ("filler", "given-up"):
        operator.apply("Queue", name, {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
        operator.ready("queue", name, 90)
    assert _home(operator, "given-up") == second
    url = outside_url(operator, cluster)

    async def send() -> None:
        async with sterna.connect(url) as connection:
            for number in range(3):
                await connection.send("given-up", str(number))

    asyncio.run(send())
    operator.patch("messagingcluster", cluster, {"spec": {"brokers": 1}})
    condition = partial(operator.condition, "messagingcluster", cluster)
    operator.wait(lambda: condition().get("reason") == "DrainBlocked", 90, "the drain blocked")
    operator.wait(lambda: "3 messages" in condition()["message"], 90, "the count", lambda: json.dumps(condition()))
    operator.kubectl("annotate", "messagingcluster", cluster, "sterna.dev/force-drain=true")
    operator.wait(lambda: len(operator.broker_pods(cluster)) == 1, 120, "one broker left")
    operator.ready("messagingcluster", cluster, 120)
    _moved(operator, "given-up", first)
    # Its volume stays, whatever the policy.
    assert operator.get("pvc", f"data-{second}") is not None

    operator.kubectl("annotate", "messagingcluster", cluster, "sterna.dev/force-drain-")
    _brokers(operator, cluster, 2)
    operator.wait(
        lambda: "'given-up' (3)" in condition().get("message", ""),
        90,
        "what is stranded named in the status",
        lambda: json.dumps(condition()),
    )
    assert second in operator.broker_pods(cluster)
    for name in ("filler", "given-up"):
        operator.delete("queue", name)
