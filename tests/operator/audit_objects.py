"""Manifests, runs and results of audits, for tests of plans and for those that play Kubernetes' part."""

import json
from collections.abc import Mapping
from typing import Any

from sterna_operator import conditions
from sterna_resources.audit_job import AuditJob
from sterna_resources.messaging_cluster import MessagingCluster
from sterna_resources.store_snapshot import StoreSnapshot

SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
API = "sterna.dev/v1alpha1"
SNAPSHOT: dict[str, Any] = {
    "snapshots": {"principals": "none", "unsigned": True},
    "storage": {"volumeClaim": "audits"},
}
AUDIT: dict[str, Any] = {**SNAPSHOT, "schedule": "0 3 * * *"}


def audit_job(spec: Mapping[str, Any] | None = None, name: str = "nightly") -> AuditJob:
    """An AuditJob of namespace `mq`, of the cluster `orders`."""
    return AuditJob.model_validate(_document("AuditJob", name, {**AUDIT, **(spec or {})}))


def store_snapshot(spec: Mapping[str, Any] | None = None, name: str = "once") -> StoreSnapshot:
    """A StoreSnapshot, likewise."""
    return StoreSnapshot.model_validate(_document("StoreSnapshot", name, {**SNAPSHOT, **(spec or {})}))


def cluster(spec: Mapping[str, Any] | None = None) -> MessagingCluster:
    """The cluster."""
    whole = {"etcd": {"managed": {}}, "insecure": True, "authentication": {"enabled": False}, **(spec or {})}
    document = _document("MessagingCluster", "orders", whole)
    del document["spec"]["clusterRef"]
    return MessagingCluster.model_validate(document)


def _document(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "mq"}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": {"clusterRef": {"name": "orders"}, **spec}}


def result(run: str, verdict: str = "ok", ended_ms: int = 60_000, **more: Any) -> str:
    """What a run says last."""
    said = {
        "run": run,
        "verdict": verdict,
        "started_ms": ended_ms - 60_000,
        "ended_ms": ended_ms,
        "snapshots": [{"broker": "orders-broker-0", "cut": 12, "state": "new", "error": None}],
        "counts": {"ok": 5, "in flight": 0, "not provable": 0, "violated": 0},
        "audits": [],
        "worst": [],
        "report": f"s3://audits/{run}/report.html",
        "error": None,
    }
    return json.dumps({**said, **more})


def violated(run: str, ended_ms: int) -> str:
    """What a run says that found a message lost."""
    counts = {"ok": 4, "in flight": 1, "not provable": 0, "violated": 2}
    worst = [{"audit": "conservation", "what": "lost", "object": "orders", "message": "ID:b0.7"}]
    return result(run, "violated", ended_ms, counts=counts, worst=worst)


def job(name: str, *, scheduled_ms: int | None = None, end: str | None = None, **condition: Any) -> dict[str, Any]:
    """A run's Job as the API server has it. `end`: `Complete` or `Failed`, an hour after it was due."""
    began = conditions.timestamp(scheduled_ms or 0)
    over = conditions.timestamp((scheduled_ms or 0) + 3_600_000)
    annotations = {} if scheduled_ms is None else {SCHEDULED: began}
    status: dict[str, Any] = {"startTime": began}
    if end is not None:
        status["conditions"] = [{"type": end, "status": "True", "lastTransitionTime": over, **condition}]
    metadata = {"name": name, "namespace": "mq", "uid": f"uid-{name}", "creationTimestamp": began}
    return {"kind": "Job", "metadata": {**metadata, "annotations": annotations}, "spec": {}, "status": status}


def pod(run: str, number: int = 0, **state: Any) -> dict[str, Any]:
    """A pod of a run; `state` is its container's."""
    metadata = {
        "name": f"{run}-{number}",
        "namespace": "mq",
        "creationTimestamp": conditions.timestamp(number * 1_000),
        "ownerReferences": [{"kind": "Job", "name": run, "uid": f"uid-{run}"}],
    }
    status = {"containerStatuses": [{"name": "audit", "state": state}]} if state else {}
    return {"kind": "Pod", "metadata": metadata, "status": status}


def ended(message: str | None = None, status: int = 0, reason: str = "Completed") -> dict[str, Any]:
    """The state of a container that has ended."""
    said = {} if message is None else {"message": message}
    return {"terminated": {"exitCode": status, "reason": reason, **said}}
