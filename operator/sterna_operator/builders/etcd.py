"""The etcd of one member that the operator runs for trying things out: a StatefulSet and a Service.

Without TLS and without passwords; the network policy is what keeps others out, where the network enforces one.
"""

from typing import Any

from sterna_resources.cluster_etcd import ManagedEtcd

from sterna_operator.builders import pods
from sterna_operator.builders.blueprint import ETCD_PORT, Blueprint

_PROBE_PORT = 2381
_FOLDER = "/var/lib/etcd"
_QUOTA_BYTES = 2 * 1024**3


def build(blueprint: Blueprint, wanted: ManagedEtcd, claim_size: Any = None) -> list[dict[str, Any]]:
    """Both. `claim_size` as in Blueprint."""
    return [_service(blueprint), _stateful_set(blueprint, wanted, claim_size)]


def _service(blueprint: Blueprint) -> dict[str, Any]:
    spec = {
        "type": "ClusterIP",
        "selector": blueprint.selector("etcd"),
        "ports": [{"name": "etcd", "port": ETCD_PORT, "protocol": "TCP", "targetPort": "etcd"}],
    }
    return blueprint.object("v1", "Service", blueprint.etcd, "etcd", spec=spec)


def _stateful_set(blueprint: Blueprint, wanted: ManagedEtcd, claim_size: Any) -> dict[str, Any]:
    labels = blueprint.labels("etcd")
    pod = blueprint.spec.pod
    size = claim_size if claim_size is not None else wanted.storage.size
    body = {
        "replicas": 1,
        "serviceName": blueprint.etcd,
        "podManagementPolicy": "OrderedReady",
        # Losing its only member stops every change: it is restarted by hand, or when its node goes.
        "updateStrategy": {"type": "OnDelete"},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "selector": {"matchLabels": blueprint.selector("etcd")},
        "template": {
            "metadata": {"labels": {**pod.labels, **labels}},
            "spec": {
                "serviceAccountName": blueprint.brokers,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "securityContext": pods.pod_security(),
                "containers": [_container(blueprint)],
                **pods.placement(pod),
            },
        },
        "volumeClaimTemplates": [pods.claim("data", labels, size, wanted.storage.storage_class_name)],
    }
    return blueprint.object("apps/v1", "StatefulSet", blueprint.etcd, "etcd", spec=body)


def _container(blueprint: Blueprint) -> dict[str, Any]:
    own = f"http://{blueprint.host(blueprint.etcd)}:{ETCD_PORT}"
    return {
        "name": "etcd",
        "image": blueprint.etcd_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["etcd"],
        "args": [
            "--name=default",
            f"--data-dir={_FOLDER}/default.etcd",
            f"--listen-client-urls=http://0.0.0.0:{ETCD_PORT}",
            f"--advertise-client-urls={own}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            f"--listen-metrics-urls=http://0.0.0.0:{_PROBE_PORT}",
            f"--quota-backend-bytes={_QUOTA_BYTES}",
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=1h",
        ],
        "ports": [
            {"name": "etcd", "containerPort": ETCD_PORT, "protocol": "TCP"},
            {"name": "probe", "containerPort": _PROBE_PORT, "protocol": "TCP"},
        ],
        "startupProbe": pods.http_probe("/readyz", "probe", "HTTP", 1, 300),
        "livenessProbe": pods.http_probe("/livez", "probe", "HTTP", 10, 6),
        "readinessProbe": pods.http_probe("/readyz", "probe", "HTTP", 5, 3),
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "securityContext": pods.container_security(),
        "volumeMounts": [{"name": "data", "mountPath": _FOLDER}],
    }
