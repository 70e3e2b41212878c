"""Whose a name is, and what becomes of it: conflicts, adoption, repair, deletion by each policy."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest
import sterna

from tests.kubernetes.conftest import MakeCluster, outside_url
from tests.kubernetes.exchanging import receive_bodies, send_numbers
from tests.kubernetes.kubectl import API_VERSION, CommandError, Namespace

# The machine may be the cluster's only node as well.
pytestmark = pytest.mark.slow_callbacks(5_000)

NODE_PORT = {"listeners": [{"name": "out", "type": "nodePort"}]}

REMOVE_KEY = """
import asyncio
from pathlib import Path
from sterna_etcd import Claim, Etcd, EtcdSettings, Layout
async def main():
    mounted = Path("/etc/sterna")
    access = dict(cert=mounted / "etcd-tls/tls.crt", key=mounted / "etcd-tls/tls.key", ca=mounted / "etcd-ca/ca.crt")
    async with Etcd(EtcdSettings(({etcd!r},), **access)) as etcd:
        await etcd.delete(Layout({cluster!r}).config(Claim("Queue", {queue!r})))
asyncio.run(main())
"""


def _queue(cluster: str, **spec: Any) -> dict[str, Any]:
    return {"clusterRef": {"name": cluster}, **spec}


def _stalled(namespace: Namespace, name: str, reason: str) -> str:
    """Waits until a queue says that it is stalled for a reason; the words."""

    def found() -> dict[str, Any] | None:
        condition = namespace.condition("queue", name, "Stalled")
        return condition if condition.get("status") == "True" and condition.get("reason") == reason else None

    explain = partial(lambda: json.dumps((namespace.get("queue", name) or {}).get("status"), indent=1))
    return str(namespace.wait(found, 90, f"queue {name} stalled: {reason}", explain)["message"])


def test_of_two_objects_with_one_name_the_first_has_it(operator: Namespace, make_cluster: MakeCluster) -> None:
    cluster = make_cluster({"brokers": 1})
    operator.apply("Queue", "first", _queue(cluster, name="one.name", deletionPolicy="delete"))
    operator.ready("queue", "first", 90)
    operator.apply("Queue", "second", _queue(cluster, name="one.name", deletionPolicy="delete"))
    assert f"{operator.name}/first" in _stalled(operator, "second", "NameClaimed")
    # The same name of another kind is another claim.
    operator.apply("Topic", "third", {"clusterRef": {"name": cluster}, "name": "one.name"})
    operator.ready("topic", "third", 90)
    assert operator.condition("queue", "first")["status"] == "True"
    operator.delete("queue", "first")
    operator.ready("queue", "second", 90)
    operator.delete("topic", "third")
    operator.delete("queue", "second")


def test_what_others_made_is_left_observed_or_adopted_as_the_object_says(
    operator: Namespace, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster({"brokers": 1, **NODE_PORT})
    url = outside_url(operator, cluster)
    operator.apply("Queue", "any", _queue(cluster, name="wild.>", deletionPolicy="delete"))
    operator.ready("queue", "any", 90)
    asyncio.run(send_numbers(url, "wild.one", 1))

    # A client made it: nobody manages it.
    operator.apply("Queue", "one", _queue(cluster, name="wild.one"))
    assert "nobody manages it" in _stalled(operator, "one", "Exists")
    operator.patch("queue", "one", {"spec": {"adoption": "observe"}})
    operator.wait(lambda: operator.condition("queue", "one").get("reason") == "Observed", 90, "the queue observed")
    operator.patch("queue", "one", {"spec": {"adoption": "adopt"}})
    operator.wait(lambda: operator.condition("queue", "one").get("reason") == "Applied", 90, "the queue adopted")

    # An administrator made it, through a broker.
    pod = f"{cluster}-broker-0"
    manifest = {"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": "admins"}, "spec": {"maxMessages": 9}}
    cli = ("/opt/sterna/bin/sterna",)
    operator.kubectl("exec", "-i", pod, "--", *cli, "apply", "-f", "-", stdin=json.dumps(manifest))
    operator.apply("Queue", "admins", _queue(cluster, maxMessages=10))
    assert "belongs to" in _stalled(operator, "admins", "NameClaimed")
    operator.patch("queue", "admins", {"spec": {"adoption": "adopt"}})
    operator.ready("queue", "admins", 90)
    # From now on the administrator is refused, and told whose it is.
    with pytest.raises(CommandError, match=f"{operator.name}/admins"):
        operator.kubectl("exec", "-i", pod, "--", *cli, "apply", "-f", "-", stdin=json.dumps(manifest))
    for name in ("any", "one", "admins"):
        operator.delete("queue", name)


def test_a_queue_that_is_deleted_behind_the_operators_back_comes_back(
    operator: Namespace, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster({"brokers": 1, **NODE_PORT})
    operator.apply("Queue", "drifting", _queue(cluster, deletionPolicy="delete", maxMessages=10))
    operator.ready("queue", "drifting", 90)
    etcd = f"https://{cluster}-etcd.{operator.name}.svc:2379"
    code = REMOVE_KEY.format(etcd=etcd, cluster=f"{operator.name}.{cluster}", queue="drifting")
    operator.python(f"{cluster}-broker-0", code)

    def repaired() -> bool:
        events = operator.all("events")
        return any(one["reason"] == "DriftRepaired" and one["involvedObject"]["name"] == "drifting" for one in events)

    operator.wait(repaired, 90, "the repair told of")
    operator.ready("queue", "drifting", 90)
    url = outside_url(operator, cluster)
    asyncio.run(send_numbers(url, "drifting", 3))
    assert asyncio.run(receive_bodies(url, "drifting", 3)) == ["0", "1", "2"]
    operator.delete("queue", "drifting")


def test_a_deletion_does_what_its_policy_says(operator: Namespace, make_cluster: MakeCluster) -> None:
    cluster = make_cluster({"brokers": 2, **NODE_PORT})
    url = outside_url(operator, cluster)
    policies = ("retain", "delete", "onlyIfEmpty")
    for policy in policies:
        operator.apply("Queue", policy.lower(), _queue(cluster, deletionPolicy=policy))
    for policy in policies:
        operator.ready("queue", policy.lower(), 90)
        asyncio.run(send_numbers(url, policy.lower(), 2))

    operator.delete("queue", "retain")
    assert asyncio.run(receive_bodies(url, "retain", 2)) == ["0", "1"]

    operator.delete("queue", "delete")
    with pytest.raises(sterna.errors.NoSuchDestinationError):
        asyncio.run(receive_bodies(url, "delete", 1))

    operator.delete("queue", "onlyifempty", "--wait=false")

    def blocked() -> bool:
        found = operator.get("queue", "onlyifempty")
        assert found is not None, "it has gone with its messages"
        condition = operator.condition("queue", "onlyifempty")
        return condition.get("reason") == "DeletionBlocked" and "2 messages" in condition["message"]

    operator.wait(blocked, 90, "the deletion blocked, with the count")
    assert asyncio.run(receive_bodies(url, "onlyifempty", 2)) == ["0", "1"]
    operator.wait(lambda: operator.get("queue", "onlyifempty") is None, 90, "the queue gone once it is empty")


def test_queues_whose_cluster_went_first_can_be_deleted(operator: Namespace, make_cluster: MakeCluster) -> None:
    cluster = make_cluster({"brokers": 1, **NODE_PORT})
    policies = ("retain", "delete", "onlyIfEmpty")
    for policy in policies:
        operator.apply("Queue", f"left-{policy.lower()}", _queue(cluster, deletionPolicy=policy))
    for policy in policies:
        operator.ready("queue", f"left-{policy.lower()}", 90)
    asyncio.run(send_numbers(outside_url(operator, cluster), "left-onlyifempty", 2))
    operator.delete("messagingcluster", cluster)
    operator.wait(lambda: not operator.broker_pods(cluster), 120, "the brokers' pods gone")
    for policy in policies:
        operator.delete("queue", f"left-{policy.lower()}", timeout_s=90)
        assert operator.get("queue", f"left-{policy.lower()}") is None
