"""A managed etcd is for the operator and the cluster's brokers alone: from the start, or once it is told to be.

Under load, counted from outside: what is done to etcd's access is on no message's way.
"""

import json
from pathlib import Path

import pytest

from tests.kubernetes.conftest import Loads, MakeCluster, outside_url, queues_on_both
from tests.kubernetes.kubectl import CommandError, Namespace

NODE_PORT = {"listeners": [{"name": "out", "type": "nodePort"}]}
ETCD = {"managed": {"storage": {"size": "1Gi"}}}

# Somebody in the cluster's namespace who was given nothing, beside the broker's own flags: asks etcd for everything.
ASK = """
import asyncio
from sterna_etcd import Etcd, EtcdSettings
async def main():
    async with Etcd(EtcdSettings.of_urls({url!r}, timeout_ms=4_000)) as etcd:
        print(len((await etcd.list_all("/sterna/")).values))
asyncio.run(main())
"""

pytestmark = pytest.mark.slow_callbacks(5_000)


def _asked(namespace: Namespace, cluster: str) -> int | None:
    """How many keys somebody without a certificate finds; None: they are not let in."""
    url = f"http://{cluster}-etcd.{namespace.name}.svc:2379"
    try:
        return int(namespace.python(f"{cluster}-broker-0", ASK.format(url=url)))
    except CommandError:
        return None


def _uids(namespace: Namespace, cluster: str) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in namespace.broker_pods(cluster).items()}


def _comes_with_tls(namespace: Namespace, cluster: str) -> bool:
    pods = namespace.broker_pods(cluster)
    return len(pods) == 2 and all("--etcd-cert" in pod["spec"]["containers"][0]["args"] for pod in pods.values())


def test_an_etcd_of_before_is_secured_under_load(operator: Namespace, make_cluster: MakeCluster, load: Loads) -> None:
    cluster = make_cluster({"brokers": 2, "etcd": {"managed": {**ETCD["managed"], "tls": False}}, **NODE_PORT})
    queues_on_both(operator, cluster)
    assert _asked(operator, cluster), "whoever reaches it reads it all"
    # As what an older operator has left: the manifest says nothing of it.
    operator.patch("messagingcluster", cluster, {"spec": {"etcd": {"managed": {"tls": None}}}})
    operator.ready("messagingcluster", cluster, 120)
    brokers = _uids(operator, cluster)
    running = {name: load(outside_url(operator, cluster), name) for name in ("here", "there")}
    assert _uids(operator, cluster) == brokers
    operator.patch("messagingcluster", cluster, {"spec": {"etcd": {"managed": {"tls": True}}}})
    operator.wait(lambda: _comes_with_tls(operator, cluster), 300, "brokers that come with certificates")
    operator.ready("messagingcluster", cluster, 180)
    operator.wait(
        lambda: operator.condition("messagingcluster", cluster, "Reconciling").get("status") == "False", 180, "all done"
    )
    assert _asked(operator, cluster) is None
    operator.apply("Queue", "later", {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    operator.ready("queue", "later", 90)
    for one in running.values():
        one.goes_on()
    reports = [one.stop() for one in running.values()]
    print(json.dumps(reports))
    for report in reports:
        assert report["lost"] == report["twice_unflagged"] == 0
    for name in ("here", "there", "later"):
        operator.delete("queue", name)


def test_another_authority_is_made_under_load_and_no_broker_restarts(
    operator: Namespace, make_cluster: MakeCluster, load: Loads, tmp_path: Path
) -> None:
    cluster = make_cluster({"brokers": 2, "etcd": ETCD, **NODE_PORT})
    queues_on_both(operator, cluster)
    assert _asked(operator, cluster) is None
    brokers, names = _uids(operator, cluster), [f"{cluster}-etcd-{end}" for end in ("ca", "server", "client")]
    for pod in operator.all("pod"):
        mounted = [one["secret"]["secretName"] for one in pod["spec"].get("volumes", ()) if "secret" in one]
        assert f"{cluster}-etcd-ca" not in mounted
    before = [operator.get("secret", name) for name in names]
    running = {name: load(outside_url(operator, cluster), name) for name in ("here", "there")}
    etcd = operator.get("pod", f"{cluster}-etcd-0")
    assert etcd is not None
    operator.delete("secret", f"{cluster}-etcd-ca")

    def anew() -> bool:
        pod, now = operator.get("pod", f"{cluster}-etcd-0"), [operator.get("secret", name) for name in names]
        is_other = all(one and was and one["data"] != was["data"] for one, was in zip(now, before, strict=True))
        return is_other and pod is not None and pod["metadata"]["uid"] != etcd["metadata"]["uid"]

    operator.wait(anew, 120, "certificates of another authority, and etcd started with it")
    operator.apply("Queue", "later", {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    operator.ready("queue", "later", 120)
    operator.ready("messagingcluster", cluster, 120)
    for one in running.values():
        one.goes_on()
    reports = [one.stop() for one in running.values()]
    print(json.dumps(reports))
    for report in reports:
        assert report["lost"] == report["unknown"] == report["refused"] == report["twice_unflagged"] == 0
    assert _uids(operator, cluster) == brokers
    for name in ("here", "there", "later"):
        operator.delete("queue", name)
