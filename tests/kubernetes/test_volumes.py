"""A volume that fills while messages flow: what is refused leaves no trace, what was confirmed stays, all goes on."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sterna

from tests.kubernetes.conftest import Loads, MakeCluster, is_local, outside_url
from tests.kubernetes.kubectl import Namespace, run
from tests.support.leaving_out import leave_out

# The machine may be the cluster's only node as well.
pytestmark = [pytest.mark.slow_callbacks(5_000), pytest.mark.long]

NODE_PORT = {"listeners": [{"name": "out", "type": "nodePort"}]}
# Six or seven segments of 64 MiB are set aside before the first message comes: half of this is for messages.
SIZE_MIB = 832
_BODY_BYTES = 200_000
_BALLAST_LEFT_BYTES = 64 * 1024


class SmallVolume:
    """A file system of a few hundred MiB, which Kubernetes knows as a volume of a storage class of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._image = folder / f"{name}.ext4"
        self._mount = folder / name

    def make(self) -> None:
        """Makes it, and mounts it where the node looks for it."""
        self._mount.mkdir(mode=0o777)
        with self._image.open("wb") as file:
            file.truncate(SIZE_MIB * 1024 * 1024)
        # Without the share that only root may use: the broker, who is not root, is to be able to fill all of it.
        run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        run("mount", "-o", "loop", str(self._image), str(self._mount))
        self._mount.chmod(0o777)
        run(
            "kubectl",
            "apply",
            "-f",
            "-",
            stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": self._kinds()}),
        )

    def remove(self) -> None:
        """Takes all of it away, as far as it is there."""
        run("kubectl", "delete", "persistentvolume,storageclass", self.name, "--ignore-not-found", "--wait=false")
        finalizers = '{"metadata":{"finalizers":null}}'
        arguments = ("patch", "persistentvolume", self.name, "--type=merge", "-p", finalizers)
        subprocess.run(["kubectl", *arguments], capture_output=True, timeout=60, check=False)
        subprocess.run(["umount", "--lazy", str(self._mount)], capture_output=True, timeout=60, check=False)
        self._image.unlink(missing_ok=True)

    @property
    def ballast(self) -> Path:
        """The file with which somebody else fills the volume."""
        return self._mount / "ballast"

    def fill(self) -> None:
        """Somebody else takes what is free, but for what a few small writes need."""
        found = run("df", "--output=avail", "-B1", str(self._mount)).split()[-1]
        run("fallocate", "-l", str(int(found) - _BALLAST_LEFT_BYTES), str(self.ballast))

    def _kinds(self) -> list[dict[str, Any]]:
        storage_class = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": self.name},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": self.name},
            "spec": {
                "capacity": {"storage": f"{SIZE_MIB}Mi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": self.name,
                "hostPath": {"path": str(self._mount)},
            },
        }
        return [storage_class, volume]


@pytest.fixture
def small_volume(operator: Namespace, tmp_path: Path) -> Iterator[SmallVolume]:
    """One, where the node is this machine."""
    if not is_local():
        leave_out("a volume that fills", "the node is not this machine, so that no small volume can be made on it")
    made = SmallVolume(tmp_path, f"small-{operator.name}")
    try:
        made.make()
        yield made
    finally:
        made.remove()


def _says_full(operator: Namespace, cluster: str) -> bool:
    found = operator.get("messagingcluster", cluster) or {}
    status = found.get("status", {})
    ready: dict[str, Any] = next((one for one in status.get("conditions", ()) if one["type"] == "Ready"), {})
    return (
        ready.get("status") == "False"
        and "the disk is full" in ready.get("message", "")
        and any("the disk is full" in one.get("message", "") for one in status.get("brokers", ()))
    )


def _body(number: int) -> str:
    return f"{number} ".ljust(_BODY_BYTES, "x")


async def _send_until_full(url: str, queue: str, first: int) -> int:
    """Sends numbers from `first` on until there is no room; the first that was not confirmed."""
    async with sterna.connect(url) as connection:
        for number in range(first, first + SIZE_MIB * 1024 * 1024 // _BODY_BYTES + 1):
            try:
                await connection.send(queue, _body(number))
            except sterna.errors.StoreFullError:
                return number
    raise AssertionError("the volume holds more than it is large")


async def _drain(url: str, queue: str, count: int) -> list[int]:
    """The numbers of what a queue has, until nothing comes any more, at least `count`."""
    numbers: list[int] = []
    async with sterna.connect(url) as connection:
        consumer = await connection.consumer(queue)
        while message := await consumer.receive(timeout=60 if len(numbers) < count else 3):
            numbers.append(int(str(message.body).split()[0]))
            await message.acknowledge()
    return numbers


def _pod_uid(operator: Namespace, cluster: str) -> str:
    return str(operator.broker_pods(cluster)[f"{cluster}-broker-0"]["metadata"]["uid"])


def test_a_volume_that_fills_in_service_refuses_and_goes_on_when_there_is_room_again(
    operator: Namespace, small_volume: SmallVolume, make_cluster: MakeCluster, load: Loads
) -> None:
    storage = {"size": f"{SIZE_MIB}Mi", "storageClassName": small_volume.name}
    cluster = make_cluster({"brokers": 1, "storage": storage, **NODE_PORT})
    for name in ("flowing", "resting"):
        operator.apply("Queue", name, {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
        operator.ready("queue", name, 90)
    url = outside_url(operator, cluster)
    before = _pod_uid(operator, cluster)
    serves = partial(operator.wait, lambda: operator.condition("messagingcluster", cluster).get("reason") == "Serving")

    def says() -> str:
        return json.dumps(operator.get("messagingcluster", cluster), indent=1)

    # Somebody else takes the room, and what the broker has set aside is used up, while messages flow.
    running = load(url, "flowing")
    running.goes_on()
    small_volume.fill()
    confirmed = asyncio.run(_send_until_full(url, "resting", 0))
    operator.wait(lambda: _says_full(operator, cluster), 120, "the full disk in the status", says)
    until_full = {"flowing": running.confirmed(), "resting": confirmed}
    small_volume.ballast.unlink()
    running.goes_on()
    serves(90, "the cluster well again")
    report = running.stop()
    print(json.dumps({**report, "confirmed_until_full": until_full}))
    assert report["lost"] == report["twice_unflagged"] == 0

    # Messages that nobody takes fill it.
    confirmed = asyncio.run(_send_until_full(url, "resting", confirmed))
    assert confirmed > until_full["resting"], "there was room again"
    operator.wait(lambda: _says_full(operator, cluster), 120, "the full disk in the status", says)
    # Who connects now can take messages all the same.
    numbers = asyncio.run(_drain(url, "resting", confirmed))
    print(json.dumps({"resting_confirmed": confirmed, "resting_received": len(numbers)}))
    assert numbers == list(range(confirmed))
    serves(90, "the cluster well again")
    again = load(url, "flowing")
    again.goes_on()
    report = again.stop()
    assert report["lost"] == report["twice_unflagged"] == report["refused"] == 0
    assert _pod_uid(operator, cluster) == before
    pod = operator.broker_pods(cluster)[f"{cluster}-broker-0"]
    assert [one["restartCount"] for one in pod["status"]["containerStatuses"]] == [0], "no restart because of it"
    for name in ("flowing", "resting"):
        operator.delete("queue", name)
