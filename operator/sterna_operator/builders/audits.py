"""What is made for AuditJobs and StoreSnapshots: the file that a run is told by, a CronJob or a Job, and its results.

A pod of theirs runs one command, which takes the snapshots, audits them and says in a few thousand bytes what came of
it, as the pod's termination message. It speaks to brokers and to its storage, and to Kubernetes not at all: it has no
token. Whatever is secret is mounted by reference; the file names where it is mounted.

A run goes by its Job's name, which a CronJob makes of the time that the run was due: the same run, repeated, takes and
judges nothing twice.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sterna_resources.audit_job import AuditJob
from sterna_resources.messaging_cluster import MessagingCluster
from sterna_resources.resource import API_VERSION
from sterna_resources.store_snapshot import StoreSnapshot

from sterna_operator.builders import pods
from sterna_operator.builders.blueprint import CLUSTER_LABEL, MANAGER, MESSAGING_PORT

AUDIT_LABEL = "sterna.dev/audit"
"""On all that is made for an AuditJob or a StoreSnapshot, runs' Jobs and pods included: whose it is (`label`)."""

LAST_ANNOTATION = "sterna.dev/last-of"
"""On Jobs that take a last snapshot: of which brokers. They are no runs of the audit."""

RUN_FILE = "run.json"
STATUS_FILE = "status.json"
RESULT_FILE = "result.json"

_CONFIG_FOLDER = "/etc/sterna-audit"
_SECRETS_FOLDER = "/secrets"
_VOLUME_FOLDER = "/audits"
_SCRATCH_FOLDER = "/scratch"
# The exit statuses that another try would only repeat: the file is wrong, something is violated.
_FINAL = [2, 8]
_TRIES_MORE = 1
_GRACE_S = 60


@dataclass(frozen=True)
class AuditBlueprint:
    """All that is needed to build the children of one object."""

    resource: AuditJob | StoreSnapshot
    namespace: str
    uid: str
    cluster_namespace: str
    cluster: MessagingCluster | None = None
    """None: there is none. Results can be kept all the same."""

    replicas: int = 0
    """How many brokers the cluster has now: more than its spec says while some are being emptied."""

    image: str = ""
    leaving: tuple[str, ...] = ()
    """What is built for these brokers alone: a last snapshot of them, which is not audited."""

    @property
    def name(self) -> str:
        """Of the object, of its CronJob, and of a snapshot's Job."""
        return self.resource.metadata.name

    @property
    def settings(self) -> str:
        """The ConfigMap that a run is told by."""
        return last_settings(self.name) if self.leaving else f"{self.name}-run"

    @property
    def labels(self) -> dict[str, str]:
        """Of every child."""
        return {
            "app.kubernetes.io/name": "sterna",
            "app.kubernetes.io/component": "audit",
            "app.kubernetes.io/managed-by": MANAGER,
            CLUSTER_LABEL: self.resource.spec.cluster_ref.name,
            AUDIT_LABEL: label(self.resource.kind, self.name),
        }

    @property
    def audited(self) -> MessagingCluster:
        """The cluster, where it is there."""
        assert self.cluster is not None  # nothing that speaks of brokers is made without
        return self.cluster

    def object(self, api_version: str, kind: str, name: str, **body: Any) -> dict[str, Any]:
        """A child with its metadata."""
        owner = {
            "apiVersion": API_VERSION,
            "kind": self.resource.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        metadata = {"name": name, "namespace": self.namespace, "labels": self.labels, "ownerReferences": [owner]}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def label(kind: str, name: str) -> str:
    """What AUDIT_LABEL says of an object's children."""
    return f"{kind.lower()}.{name}"


def last_settings(name: str) -> str:
    """The ConfigMap that an AuditJob's last snapshots of brokers are told by."""
    return f"{name}-last"


def last_run(name: str, since_ms: int) -> str:
    """The Job that takes an AuditJob's last snapshots of brokers, for a maintenance that began then."""
    return f"{name}-last-{since_ms // 1000}"


def result_name(run: str) -> str:
    """The ConfigMap that keeps a run's result."""
    return f"{run}-result"


# Settings


def settings(blueprint: AuditBlueprint) -> dict[str, Any]:
    """The ConfigMap."""
    data = {RUN_FILE: json.dumps(run_file(blueprint), indent=2) + "\n"}
    return blueprint.object("v1", "ConfigMap", blueprint.settings, data=data)


def run_file(blueprint: AuditBlueprint) -> dict[str, Any]:
    """What a run is told. Where secrets are, never what they are."""
    resource, place = blueprint.resource, _place(blueprint)
    job = resource if isinstance(resource, AuditJob) and not blueprint.leaving else None
    return {
        "job": f"{blueprint.namespace}/{blueprint.name}",
        "cluster": blueprint.audited.etcd_name,
        "brokers": _brokers(blueprint),
        "connect": _connect(blueprint),
        "snapshots": f"{place}/snapshots",
        "take": _take(blueprint),
        "audit": _audit(job, place) if job is not None else None,
        "results": f"{place}/results",
        "keep": _keep(job) if job is not None else {},
    }


def _place(blueprint: AuditBlueprint) -> str:
    bucket = blueprint.resource.spec.storage.bucket
    return _VOLUME_FOLDER if bucket is None else bucket.uri


def _brokers(blueprint: AuditBlueprint) -> list[dict[str, str]]:
    cluster, resource = blueprint.audited, blueprint.resource
    scheme = "sterna" if cluster.spec.tls is None else "sternas"
    chosen = resource.spec.brokers if isinstance(resource, StoreSnapshot) else blueprint.leaving
    names = [f"{cluster.metadata.name}-broker-{ordinal}" for ordinal in range(blueprint.replicas)]
    return [
        # The broker's own Service: it leads there while the broker is not ready, too.
        {"name": name, "url": f"{scheme}://{name}.{blueprint.cluster_namespace}.svc:{MESSAGING_PORT}"}
        for name in names
        if not chosen or name in chosen
    ]


def _connect(blueprint: AuditBlueprint) -> dict[str, str]:
    connect = blueprint.resource.spec.connect
    found: dict[str, str] = {}
    if connect.user is not None:
        found |= {"user": connect.user, "password_file": f"{_SECRETS_FOLDER}/user/password"}
    if authority(blueprint) is not None:
        found["ca_file"] = f"{_SECRETS_FOLDER}/ca/ca.crt"
    if connect.certificate_secret is not None:
        folder = f"{_SECRETS_FOLDER}/certificate"
        found |= {"certificate_file": f"{folder}/tls.crt", "key_file": f"{folder}/tls.key"}
    return found


def authority(blueprint: AuditBlueprint) -> tuple[str, str] | None:
    """Secret and key of the authority by which brokers are checked; None: there is no TLS, or nobody has said."""
    cluster, connect = blueprint.audited, blueprint.resource.spec.connect
    if cluster.spec.tls is None:
        return None
    if connect.ca is not None:
        return connect.ca.name, connect.ca.key
    if blueprint.namespace != blueprint.cluster_namespace:
        return None
    return cluster.spec.connection_secret or f"{cluster.metadata.name}-connection", "ca.crt"


def _take(blueprint: AuditBlueprint) -> dict[str, Any]:
    policy = blueprint.resource.spec.snapshots
    found: dict[str, Any] = {"principals": policy.principals}
    if policy.principals_key_secret is not None:
        found["principals_key_file"] = f"{_SECRETS_FOLDER}/principals/key"
    if policy.sign_key_secret is not None:
        found["sign_key_file"] = f"{_SECRETS_FOLDER}/sign/key.pem"
        # What was signed with a key of before is there as well.
        found["keys"] = _public_keys(blueprint.resource)
    found["unsigned"] = policy.unsigned
    if policy.rate is not None:
        found["rate"] = policy.rate
    found["wait_s"] = policy.wait_seconds
    return found


def _public_keys(resource: AuditJob | StoreSnapshot) -> list[str]:
    count = len(resource.spec.keys) if isinstance(resource, AuditJob) else 0
    return [f"{_SECRETS_FOLDER}/key-{number}/key.pem" for number in range(count)]


def _audit(job: AuditJob, place: str) -> dict[str, Any]:
    spec = job.spec
    ledgers = spec.ledgers or ""
    return {
        "jobs": list(spec.jobs),
        "keys": _public_keys(job),
        "unsigned": spec.snapshots.unsigned,
        "ledgers": f"{place}/{ledgers}" if ledgers and not ledgers.startswith("s3://") else ledgers,
        "master": spec.spark.master,
        "memory": spec.spark.memory,
        "conf": dict(spec.spark.conf),
    }


def _keep(job: AuditJob) -> dict[str, Any]:
    retention = job.spec.retention
    return {
        **({"snapshots": retention.snapshots} if retention.snapshots is not None else {}),
        **({"results": retention.results} if retention.results is not None else {}),
    }


# Pods


def cron_job(blueprint: AuditBlueprint, job: AuditJob, *, is_held: bool) -> dict[str, Any]:
    """The CronJob. `is_held`: no run is to begin now, whatever the spec says."""
    spec = job.spec
    body = {
        "schedule": spec.schedule,
        "timeZone": spec.time_zone,
        "suspend": spec.suspend or is_held,
        "concurrencyPolicy": spec.concurrency_policy,
        "startingDeadlineSeconds": spec.starting_deadline_seconds,
        "successfulJobsHistoryLimit": spec.successful_jobs_history_limit,
        "failedJobsHistoryLimit": spec.failed_jobs_history_limit,
        "jobTemplate": {"metadata": {"labels": blueprint.labels}, "spec": _job_spec(blueprint)},
    }
    return blueprint.object("batch/v1", "CronJob", blueprint.name, spec=body)


def job(blueprint: AuditBlueprint) -> dict[str, Any]:
    """The Job of a StoreSnapshot."""
    return blueprint.object("batch/v1", "Job", blueprint.name, spec=_job_spec(blueprint))


def last_job(blueprint: AuditBlueprint, since_ms: int) -> dict[str, Any]:
    """The Job that takes the last snapshots of the brokers that are `leaving`."""
    made = blueprint.object("batch/v1", "Job", last_run(blueprint.name, since_ms), spec=_job_spec(blueprint))
    made["metadata"]["annotations"] = {LAST_ANNOTATION: ",".join(blueprint.leaving)}
    return made


def _job_spec(blueprint: AuditBlueprint) -> dict[str, Any]:
    is_final = {"containerName": "audit", "operator": "In", "values": _FINAL}
    is_drained = {"type": "DisruptionTarget", "status": "True"}
    return {
        "backoffLimit": _TRIES_MORE,
        "activeDeadlineSeconds": blueprint.resource.spec.active_deadline_seconds,
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onExitCodes": is_final},
                # A node that is emptied takes no try away.
                {"action": "Ignore", "onPodConditions": [is_drained]},
            ]
        },
        "template": {"metadata": {"labels": blueprint.labels}, "spec": _pod(blueprint)},
    }


def _pod(blueprint: AuditBlueprint) -> dict[str, Any]:
    spec = blueprint.resource.spec
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _GRACE_S,
        "securityContext": pods.pod_security(),
        **pods.placement(spec.pod),
        "containers": [_container(blueprint)],
        "volumes": _volumes(blueprint),
    }


def _container(blueprint: AuditBlueprint) -> dict[str, Any]:
    spec = blueprint.resource.spec
    resources = {"requests": dict(spec.pod.resources.requests), "limits": dict(spec.pod.resources.limits)}
    return {
        "name": "audit",
        "image": blueprint.image,
        "imagePullPolicy": spec.image_pull_policy,
        "command": ["sterna-audit"],
        "args": ["job", "--config", f"{_CONFIG_FOLDER}/{RUN_FILE}", "--run", "$(STERNA_AUDIT_RUN)"],
        "env": _environment(blueprint),
        "resources": {name: values for name, values in resources.items() if values},
        "securityContext": pods.container_security(),
        # What it says last where it says no result.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(blueprint),
    }


def _environment(blueprint: AuditBlueprint) -> list[dict[str, Any]]:
    name = {"apiVersion": "v1", "fieldPath": "metadata.labels['batch.kubernetes.io/job-name']"}
    found: list[dict[str, Any]] = [
        {"name": "STERNA_AUDIT_RUN", "valueFrom": {"fieldRef": name}},
        {"name": "SPARK_LOCAL_DIRS", "value": _SCRATCH_FOLDER},
    ]
    bucket = blueprint.resource.spec.storage.bucket
    if bucket is None:
        return found
    if bucket.endpoint is not None:
        found.append({"name": "AWS_ENDPOINT_URL", "value": bucket.endpoint})
    if bucket.region is not None:
        found.append({"name": "AWS_REGION", "value": bucket.region})
    if bucket.credentials_secret is not None:
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            reference: dict[str, Any] = {"name": bucket.credentials_secret, "key": key}
            if key == "AWS_SESSION_TOKEN":
                reference["optional"] = True
            found.append({"name": key, "valueFrom": {"secretKeyRef": reference}})
    return found


def _secrets(blueprint: AuditBlueprint) -> list[tuple[str, str, dict[str, str]]]:
    """What is mounted from Secrets: folder, Secret, and keys by the names of the files."""
    spec, found = blueprint.resource.spec, []
    connect, policy = spec.connect, spec.snapshots
    if connect.password_secret is not None:
        found.append(("user", connect.password_secret.name, {"password": connect.password_secret.key}))
    if (trusted := authority(blueprint)) is not None:
        found.append(("ca", trusted[0], {"ca.crt": trusted[1]}))
    if connect.certificate_secret is not None:
        found.append(("certificate", connect.certificate_secret, {"tls.crt": "tls.crt", "tls.key": "tls.key"}))
    if policy.principals_key_secret is not None:
        found.append(("principals", policy.principals_key_secret.name, {"key": policy.principals_key_secret.key}))
    if policy.sign_key_secret is not None:
        found.append(("sign", policy.sign_key_secret.name, {"key.pem": policy.sign_key_secret.key}))
    if isinstance(blueprint.resource, AuditJob):
        found += [(f"key-{n}", one.name, {"key.pem": one.key}) for n, one in enumerate(blueprint.resource.spec.keys)]
    return found


def needed_secrets(blueprint: AuditBlueprint) -> dict[str, set[str]]:
    """The Secrets without which a pod does not start, and the keys that they must have."""
    found: dict[str, set[str]] = {}
    for _, secret, files in _secrets(blueprint):
        found.setdefault(secret, set()).update(files.values())
    bucket = blueprint.resource.spec.storage.bucket
    if bucket is not None and bucket.credentials_secret is not None:
        needed = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
        found.setdefault(bucket.credentials_secret, set()).update(needed)
    return found


def _mounts(blueprint: AuditBlueprint) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": "settings", "mountPath": _CONFIG_FOLDER, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "scratch", "mountPath": _SCRATCH_FOLDER},
    ]
    if blueprint.resource.spec.storage.volume_claim is not None:
        mounts.append({"name": "audits", "mountPath": _VOLUME_FOLDER})
    mounts += [
        {"name": folder, "mountPath": f"{_SECRETS_FOLDER}/{folder}", "readOnly": True}
        for folder, _, _ in _secrets(blueprint)
    ]
    return mounts


def _volumes(blueprint: AuditBlueprint) -> list[dict[str, Any]]:
    spec = blueprint.resource.spec
    volumes: list[dict[str, Any]] = [
        {"name": "settings", "configMap": {"name": blueprint.settings, "defaultMode": 0o444}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "scratch", "emptyDir": {"sizeLimit": spec.pod.scratch}},
    ]
    if spec.storage.volume_claim is not None:
        volumes.append({"name": "audits", "persistentVolumeClaim": {"claimName": spec.storage.volume_claim}})
    for folder, secret, files in _secrets(blueprint):
        items = [{"key": key, "path": path} for path, key in files.items()]
        volumes.append({"name": folder, "secret": {"secretName": secret, "items": items, "defaultMode": 0o440}})
    return volumes


# Results


def result(blueprint: AuditBlueprint, run: str, status: Mapping[str, Any], told: str | None) -> dict[str, Any]:
    """The ConfigMap that keeps what came of a run. `told`: the pod's own words, where it has said a result."""
    data = {STATUS_FILE: json.dumps(status, sort_keys=True) + "\n"}
    if told is not None:
        data[RESULT_FILE] = told
    return blueprint.object("v1", "ConfigMap", result_name(run), immutable=True, data=data)
