"""What all pods have that the operator makes: restricted security, and the fields that the manifest gives."""

from typing import Any

from sterna_resources.audit_parts import AuditPod
from sterna_resources.cluster_pods import PodTemplate

USER = 65532


def pod_security() -> dict[str, Any]:
    """Fit for namespaces that enforce the restricted profile. Volumes are the group's, without a walk over them."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> dict[str, Any]:
    """Nothing that a container does not need."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def placement(pod: PodTemplate | AuditPod) -> dict[str, Any]:
    """The fields that say where a pod may run; absent ones are left out."""
    fields: dict[str, Any] = {}
    if pod.node_selector:
        fields["nodeSelector"] = dict(pod.node_selector)
    if pod.tolerations:
        fields["tolerations"] = [
            toleration.model_dump(by_alias=True, exclude_none=True) for toleration in pod.tolerations
        ]
    if pod.affinity is not None:
        fields["affinity"] = pod.affinity
    if pod.priority_class_name is not None:
        fields["priorityClassName"] = pod.priority_class_name
    if pod.image_pull_secrets:
        fields["imagePullSecrets"] = [{"name": secret.name} for secret in pod.image_pull_secrets]
    return fields


def http_probe(path: str, port: str, scheme: str, period_s: int, failures: int) -> dict[str, Any]:
    """A probe over HTTP."""
    return {
        "httpGet": {"path": path, "port": port, "scheme": scheme},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def claim(name: str, labels: dict[str, str], size: Any, storage_class: str | None) -> dict[str, Any]:
    """A claim template."""
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }
