"""An etcd that lost everything, and one that was restored from an old copy: nobody takes that for orders to delete."""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.kubernetes import killing
from tests.kubernetes.conftest import BROKER_IMAGE, Loads, MakeCluster, outside_url
from tests.kubernetes.exchanging import receive_bodies, send_numbers
from tests.kubernetes.kubectl import Namespace

# The machine may be the cluster's only node as well.
pytestmark = pytest.mark.slow_callbacks(5_000)

NODE_PORT = {"listeners": [{"name": "out", "type": "nodePort"}]}
ACCEPT = "sterna.dev/accept-store"

# What is done to the folder of an etcd that is not running.
_DATA, _COPY = "/data/default.etcd", "/data/copy"
EMPTY = f"shutil.rmtree({_DATA!r})"
COPY = f"shutil.copytree({_DATA!r}, {_COPY!r})"
RESTORE = f"{EMPTY}; os.rename({_COPY!r}, {_DATA!r})"


class EtcdFolder:
    """The managed etcd's volume, to which things are done while the cluster is paused and etcd away."""

    def __init__(self, namespace: Namespace, cluster: str) -> None:
        self._namespace = namespace
        self._cluster = cluster
        self._etcd = f"{cluster}-etcd"

    def change(self, code: str) -> None:
        """Stops etcd, does it, and lets the operator start etcd again."""
        namespace = self._namespace
        namespace.patch("messagingcluster", self._cluster, {"spec": {"paused": {}}})
        paused = partial(namespace.condition, "messagingcluster", self._cluster, "Stalled")
        namespace.wait(lambda: paused().get("reason") == "Paused", 90, "the pause")
        namespace.kubectl("scale", "statefulset", self._etcd, "--replicas=0")
        namespace.wait(lambda: namespace.get("pod", f"{self._etcd}-0") is None, 90, "etcd gone")
        namespace.kubectl("apply", "-f", "-", stdin=json.dumps(self._pod(code)))
        namespace.wait(partial(self._is_done, code), 90, f"{code} done")
        namespace.delete("pod", "etcd-folder")
        namespace.patch("messagingcluster", self._cluster, {"spec": {"paused": None}})

    def _is_done(self, code: str) -> bool:
        pod = self._namespace.get("pod", "etcd-folder")
        phase = pod["status"].get("phase") if pod else None
        assert phase != "Failed", f"{code} failed: {self._namespace.kubectl('logs', 'etcd-folder')}"
        return phase == "Succeeded"

    def _pod(self, code: str) -> dict[str, Any]:
        claim = {"claimName": f"data-{self._etcd}-0"}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "etcd-folder"},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 65532,
                    "runAsGroup": 65532,
                    "fsGroup": 65532,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "volumes": [{"name": "data", "persistentVolumeClaim": claim}],
                "containers": [
                    {
                        "name": "folder",
                        "image": BROKER_IMAGE,
                        "command": ["/opt/sterna/bin/python", "-c", f"import os, shutil; {code}"],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    }
                ],
            },
        }


@pytest.fixture(autouse=True)
def no_folder_pod_is_left(operator: Namespace) -> Iterator[None]:
    """Nothing of what a failed test did to a volume is in the next one's way."""
    yield
    operator.delete("pod", "etcd-folder", "--ignore-not-found", "--wait=false")


def _lose_volume(namespace: Namespace, cluster: str) -> None:
    """The managed etcd's pod and its volume are gone, without notice; Kubernetes makes both anew."""
    pod, claim = f"{cluster}-etcd-0", f"data-{cluster}-etcd-0"
    before = namespace.get("persistentvolumeclaim", claim)
    assert before is not None
    namespace.delete("persistentvolumeclaim", claim, "--wait=false")
    killing.remove(namespace, pod)

    def is_another() -> bool:
        found = namespace.get("persistentvolumeclaim", claim)
        is_new = found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]
        return is_new and killing.is_ready(namespace.get("pod", pod))

    namespace.wait(is_another, 180, "etcd on another volume", lambda: namespace.kubectl("describe", "pod", pod))


def _uids(namespace: Namespace, cluster: str) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in namespace.broker_pods(cluster).items()}


def _homes(namespace: Namespace, *queues: str) -> dict[str, str]:
    return {name: str(namespace.ready("queue", name, 90)["status"]["home"]) for name in queues}


def _replaced(namespace: Namespace, cluster: str, word: str) -> None:
    """Waits until the operator and every broker say what has become of etcd; clients are served all the same."""
    condition = partial(namespace.condition, "messagingcluster", cluster)
    namespace.wait(
        lambda: condition().get("reason") == "EtcdReplaced" and word in condition()["message"],
        90,
        f"EtcdReplaced, {word}, in the status",
        lambda: json.dumps(condition()),
    )
    assert condition()["status"] == "True", "it serves"
    for pod in namespace.broker_pods(cluster):
        logs = partial(namespace.kubectl, "logs", pod)
        namespace.wait(lambda logs=logs: word in logs(), 90, f"{pod} says {word}")  # type: ignore[misc]


def _accept(namespace: Namespace, cluster: str) -> None:
    """Says that this etcd is meant, waits until all is well, and takes that back again."""
    before = _uids(namespace, cluster)
    namespace.kubectl("annotate", "messagingcluster", cluster, f"{ACCEPT}=true")
    namespace.wait(
        lambda: not set(_uids(namespace, cluster).values()) & set(before.values()), 180, "each broker started anew"
    )
    _serves(namespace, cluster)
    namespace.kubectl("annotate", "messagingcluster", cluster, f"{ACCEPT}-")


def _serves(namespace: Namespace, cluster: str) -> None:
    condition = partial(namespace.condition, "messagingcluster", cluster)
    namespace.wait(
        lambda: condition().get("reason") == "Serving", 180, "the cluster well", lambda: json.dumps(condition())
    )


def test_an_emptied_etcd_deletes_nothing_and_is_filled_again_when_somebody_says_so(
    operator: Namespace, make_cluster: MakeCluster, load: Loads
) -> None:
    cluster = make_cluster({"brokers": 2, **NODE_PORT})
    queues = ("flowing", "resting")
    for name in queues:
        operator.apply("Queue", name, {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    homes = _homes(operator, *queues)
    assert len(set(homes.values())) == 2, "each broker has one of them"
    url = outside_url(operator, cluster)
    asyncio.run(send_numbers(url, "resting", 3))
    before = _uids(operator, cluster)
    running = load(url, "flowing")
    running.goes_on()

    EtcdFolder(operator, cluster).change(EMPTY)
    _replaced(operator, cluster, "emptied")
    running.goes_on()
    operator.apply("Queue", "meanwhile", {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    operator.wait(
        lambda: operator.condition("queue", "meanwhile").get("reason") == "EtcdReplaced", 90, "the queue told"
    )
    assert _uids(operator, cluster) == before, "nothing is restarted because of it"

    _accept(operator, cluster)
    # Each queue is where its messages are.
    assert _homes(operator, *queues) == homes
    assert asyncio.run(receive_bodies(url, "resting", 3)) == ["0", "1", "2"]
    operator.ready("queue", "meanwhile", 90)
    running.goes_on()
    _serves(operator, cluster)
    report = running.stop()
    print(json.dumps(report))
    assert report["lost"] == 0
    assert report["twice_unflagged"] == 0
    for name in (*queues, "meanwhile"):
        operator.delete("queue", name)


@pytest.mark.long
def test_an_etcd_whose_volume_is_lost_under_load_deletes_nothing(
    operator: Namespace, make_cluster: MakeCluster, load: Loads
) -> None:
    cluster = make_cluster({"brokers": 2, **NODE_PORT})
    queues = ("flowing", "resting")
    for name in queues:
        # What is to go when it is deleted would go first, were the empty etcd taken at its word.
        operator.apply("Queue", name, {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    homes = _homes(operator, *queues)
    url = outside_url(operator, cluster)
    asyncio.run(send_numbers(url, "resting", 3))
    before = _uids(operator, cluster)
    running = load(url, "flowing")
    running.goes_on()

    _lose_volume(operator, cluster)
    _replaced(operator, cluster, "emptied")
    running.goes_on()
    assert _uids(operator, cluster) == before, "nothing is restarted because of it"

    _accept(operator, cluster)
    assert _homes(operator, *queues) == homes
    assert asyncio.run(receive_bodies(url, "resting", 3)) == ["0", "1", "2"]
    running.goes_on()
    report = running.stop()
    print(json.dumps(report))
    assert report["lost"] == report["twice_unflagged"] == 0
    for name in queues:
        operator.delete("queue", name)


def test_an_etcd_restored_from_an_old_copy_undoes_nothing_until_somebody_says_so(
    operator: Namespace, make_cluster: MakeCluster, load: Loads
) -> None:
    cluster = make_cluster({"brokers": 1, **NODE_PORT})
    operator.apply("Queue", "old", {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    _homes(operator, "old")
    url = outside_url(operator, cluster)
    running = load(url, "old")
    folder = EtcdFolder(operator, cluster)
    folder.change(COPY)
    operator.apply("Queue", "newer", {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    _homes(operator, "newer")
    asyncio.run(send_numbers(url, "newer", 3))
    before = _uids(operator, cluster)

    folder.change(RESTORE)
    _replaced(operator, cluster, "restored")
    # What the copy does not know is there all the same.
    asyncio.run(send_numbers(url, "newer", 1))
    running.goes_on()
    assert _uids(operator, cluster) == before

    _accept(operator, cluster)
    _homes(operator, "old", "newer")
    assert asyncio.run(receive_bodies(url, "newer", 4)) == ["0", "1", "2", "0"]
    running.goes_on()
    _serves(operator, cluster)
    report = running.stop()
    print(json.dumps(report))
    assert report["lost"] == 0
    assert report["twice_unflagged"] == 0
    for name in ("old", "newer"):
        operator.delete("queue", name)
