"""An AuditJob with real pods: its schedule fires, a clean run is clean, and a message that was lost is named.

Lost is what a client was told is confirmed and no broker has: a send that the queue refused, which the client's ledger
is made to call confirmed. Everything else is as it is: brokers, snapshots, Spark, the kubelet's word of how pods ended.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sterna
from sterna import _ledger_format as form
from sterna import ledger

from tests.kubernetes.conftest import VERSION, MakeCluster, is_local, outside_url
from tests.kubernetes.kubectl import Namespace
from tests.support.leaving_out import leave_out
from tests.waiting import eventually

# The machine may be the cluster's only node as well.
pytestmark = [pytest.mark.slow_callbacks(5_000), pytest.mark.timeout(900)]

AUDIT_IMAGE = os.environ.get("STERNA_TEST_AUDIT_IMAGE", f"localhost/sterna-audit:{VERSION}")
_RUN_S = 240
_PLACE = {
    "snapshots": {"principals": "none", "unsigned": True},
    "storage": {"volumeClaim": "audits"},
    "image": AUDIT_IMAGE,
    "pod": {"resources": {"requests": {"cpu": "10m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}}},
}


@pytest.fixture
def volume(operator: Namespace) -> Iterator[Callable[[], Path]]:
    """A volume claim for audits; where that is on this machine, once a first pod has been given it."""
    if not is_local():
        leave_out("audits with pods", "the volume of another cluster than the local one cannot be written to from here")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "audits"}, "spec": spec}
    # That of the test before goes when its last pod has gone; applied before, this one would go with it.
    operator.wait(lambda: operator.get("persistentvolumeclaim", "audits") is None, 120, "the claim before gone")
    operator.kubectl("apply", "-f", "-", stdin=json.dumps(claim))

    def bound() -> str:
        found = operator.get("persistentvolumeclaim", "audits")
        return "" if found is None else str(found["spec"].get("volumeName") or "")

    def folder() -> Path:
        name = operator.wait(bound, 60, "the volume")
        found = json.loads(operator.kubectl("get", "persistentvolume", name, "-o", "json"))
        return Path(found["spec"]["hostPath"]["path"])

    yield folder
    operator.kubectl("delete", "auditjobs.sterna.dev,storesnapshots.sterna.dev", "--all")
    operator.delete("persistentvolumeclaim", "audits", "--wait=false")


async def _refused_between_two(url: str, folder: Path) -> None:
    """Sends messages, of which the queue refuses some between the first and the last."""
    async with sterna.connect(url, ledger=folder) as connection:
        producer = await connection.producer("small")
        await producer.send("first")
        with pytest.raises(sterna.errors.DestinationFullError):
            await producer.send("second", timeout=5)
        consumer = await connection.consumer("small")
        message = await consumer.receive(timeout=30)
        assert message is not None
        await message.acknowledge()
        await eventually(lambda: _is_sent(producer), timeout_s=30, what="room in the queue")


def _refused(folder: Path) -> list[str]:
    """The ids of messages that were refused, by a ledger."""
    records = [one for file in folder.glob("*.ledger") for one in ledger.read(file)]
    refused = [one for one in records if isinstance(one, ledger.Refused)]
    numbers = {number for one in refused for number in range(one.first, one.last + 1)}
    return [one.message_id for one in records if isinstance(one, ledger.SentRecord) and one.number in numbers]


async def _is_sent(producer: sterna.Producer) -> bool:
    """Whether the queue has taken one more."""
    try:
        await producer.send("last", timeout=5)
    except sterna.errors.DestinationFullError:
        return False
    return True


def _call_it_confirmed(folder: Path) -> None:
    """Has the ledger say of what was refused that it was confirmed."""
    for file in folder.glob("*.ledger"):
        content = file.read_bytes()
        head, begin = form.head_of(content) or ({}, 0)
        raws: list[form.Raw] = []
        at, number = begin, 0
        while at < len(content):
            size = int.from_bytes(content[at : at + 4], "little")
            raws += form.records_of(content[at : at + 12], content[at + 12 : at + 12 + size], number, at)
            at, number = at + 12 + size, number + 1
        told = next((raw.fields for raw in raws if raw.kind == form.CONFIRMED), None)
        if told is None:
            continue
        records = [
            form.record(form.CONFIRMED, *raw.fields[:3], *told[3:])
            if raw.kind == form.REFUSED
            else form.record(raw.kind, *raw.fields, tail=raw.tail)
            for raw in raws
        ]
        file.write_bytes(form.head(head) + b"".join(form.blocks(0, records)))


def _ended(operator: Namespace, run: str) -> str:
    """The verdict of a run, once it has one."""

    def verdict() -> str:
        status = (operator.get("auditjob", "nightly") or {}).get("status") or {}
        last = status.get("lastRun") or {}
        return str(last.get("verdict") or "") if run in ("", last.get("run")) else ""

    return str(operator.wait(verdict, _RUN_S, f"the end of run {run}", lambda: _told(operator)))


def _told(operator: Namespace) -> str:
    """What explains that it does not come."""
    status = json.dumps((operator.get("auditjob", "nightly") or {}).get("status"), indent=1)
    logs = [operator.kubectl("logs", one["metadata"]["name"]) for one in operator.all("pod", "sterna.dev/audit")]
    return "\n".join([status, *logs])


@pytest.mark.long  # Spark starts twice in a pod, and the schedule fires at the full minute
def test_a_schedule_fires_a_clean_run_is_clean_and_a_lost_message_is_named(
    operator: Namespace, make_cluster: MakeCluster, volume: Callable[[], Path], tmp_path: Path
) -> None:
    cluster = make_cluster({"brokers": 1, "listeners": [{"name": "out", "type": "nodePort"}]})
    reference = {"clusterRef": {"name": cluster}}
    full = {"maxMessages": 1, "overflowPolicy": "rejectIncoming", "deletionPolicy": "delete"}
    operator.apply("Queue", "small", {**reference, **full})
    operator.ready("queue", "small", 90)
    audit = {**reference, **_PLACE, "schedule": "* * * * *", "ledgers": "ledgers", "spark": {"memory": "1g"}}
    operator.apply("AuditJob", "nightly", audit)
    operator.ready("auditjob", "nightly", 60)
    # The schedule fires once; further runs are begun by hand.
    operator.wait(lambda: operator.all("job", "sterna.dev/audit"), 90, "the schedule to fire")
    operator.patch("auditjob", "nightly", {"spec": {"suspend": True}})
    assert _ended(operator, "") != "failed", _told(operator)
    clean = operator.condition("auditjob", "nightly", "Clean")
    assert clean["status"] == "True", _told(operator)
    first = (operator.get("auditjob", "nightly") or {})["status"]["lastRun"]
    assert first["scheduledAt"]
    assert [one["state"] for one in first["snapshots"]] == ["new"]
    place = volume()
    assert (place / "results" / operator.name / "nightly" / first["run"] / "report.html").is_file()

    asyncio.run(_refused_between_two(outside_url(operator, cluster), tmp_path / "book"))
    lost = _refused(tmp_path / "book")
    assert lost
    _call_it_confirmed(tmp_path / "book")
    shutil.copytree(tmp_path / "book", place / "ledgers")
    for one in ((place / "ledgers"), *(place / "ledgers").iterdir()):
        one.chmod(0o777)
    operator.kubectl("create", "job", "--from=cronjob/nightly", "by-hand")
    assert _ended(operator, "by-hand") == "violated", _told(operator)
    said = operator.condition("auditjob", "nightly", "Clean")
    assert said["status"] == "False"
    assert any(one in said["message"] for one in lost), said["message"]
    kept = operator.get("configmap", "by-hand-result")
    assert kept is not None
    assert json.loads(kept["data"]["result.json"])["verdict"] == "violated"

    # The same run once more: nothing is taken or judged twice, and the same is said.
    cuts = sorted(one.name for one in (place / "snapshots").rglob("manifest*.json"))
    operator.kubectl("delete", "job", "by-hand")
    operator.delete("configmap", "by-hand-result")
    operator.kubectl("create", "job", "--from=cronjob/nightly", "by-hand")
    operator.wait(lambda: operator.get("configmap", "by-hand-result"), _RUN_S, "its result", lambda: _told(operator))
    again = json.loads((operator.get("configmap", "by-hand-result") or {})["data"]["result.json"])
    assert again == json.loads(kept["data"]["result.json"])
    assert sorted(one.name for one in (place / "snapshots").rglob("manifest*.json")) == cuts


def test_a_snapshot_is_taken_once(operator: Namespace, make_cluster: MakeCluster, volume: Callable[[], Path]) -> None:
    cluster = make_cluster({"brokers": 2})
    operator.apply("StoreSnapshot", "once", {"clusterRef": {"name": cluster}, **_PLACE})
    taken = operator.ready("storesnapshot", "once", _RUN_S)["status"]["taken"]
    assert {one["broker"] for one in taken["snapshots"]} == {f"{cluster}-broker-0", f"{cluster}-broker-1"}
    assert {path.name for path in (volume() / "snapshots" / f"{operator.name}.{cluster}").iterdir()} == {
        f"{cluster}-broker-0",
        f"{cluster}-broker-1",
    }
