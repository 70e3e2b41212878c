"""The StatefulSet of the brokers.

Its strategy is OnDelete: the operator restarts pods itself, one at a time, and only when what they were made for has
changed (SETTINGS_ANNOTATION). A change of the template alone, as a newer operator may make, restarts nothing.

A stopping pod is first taken out of the Services, during a short pause; then the broker tells its clients to go, which
it bounds itself. It never waits for consumers to empty a queue: what is stored is there when it comes back.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from sterna_resources.fields import amount
from sterna_resources.messaging_cluster import MessagingCluster

from sterna_operator.builders import pods
from sterna_operator.builders.blueprint import (
    FORM_ANNOTATION,
    MESSAGING_PORT,
    MONITOR_PORT,
    SETTINGS_ANNOTATION,
    Blueprint,
)
from sterna_operator.builders.connection import OWNER_FILE

VOLUME = "data"
DATA_FOLDER = "/var/lib/sterna"
SETTINGS_FOLDER = "/etc/sterna/settings"
TLS_FOLDER = "/etc/sterna/tls"
CLIENT_CA_FOLDER = "/etc/sterna/client-ca"
ETCD_CA_FOLDER = "/etc/sterna/etcd-ca"
ETCD_CERTIFICATE_FOLDER = "/etc/sterna/etcd-tls"
ETCD_CREDENTIALS_FOLDER = "/etc/sterna/etcd-credentials"

RESTART_ANNOTATION = "sterna.dev/restart"
ACCEPT_STORE_ANNOTATION = "sterna.dev/accept-store"
"""On the cluster, "true": brokers and operator take etcd as it is, although it is not the one they knew."""

# How long Services may go on sending clients to a pod that is stopping.
_LEAVING_S = 2
# A store with many messages takes its time to be read; until then the broker answers no probe.
_START_S = 3600
_PROBE_S = 5
_MEBIBYTE = 1024 * 1024
# Beside cache and volatile messages: the process itself, connections with their buffers, the index of the store.
_MEMORY_RESERVE_BYTES = 1536 * _MEBIBYTE

FORM = "2"
"""Another one with each default in a cluster's settings that changes; those of before go below, under their form."""

FORMER_DEFAULTS: Mapping[str, Mapping[str, Any]] = {"": {"limits": {"selector_bytes": 65_536}}}
"""By the forms of before (pods of the first have none): what was another default then, by the names of the model."""


def build(blueprint: Blueprint) -> dict[str, Any]:
    """The StatefulSet."""
    spec = blueprint.spec
    labels = blueprint.labels("broker")
    size = blueprint.claim_size if blueprint.claim_size is not None else spec.storage.size
    body = {
        "replicas": blueprint.replicas,
        "serviceName": blueprint.headless,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        # Volumes outlive the StatefulSet, which somebody may delete by mistake. Where they are to go with the cluster,
        # it becomes their owner (see kinds/messaging_cluster.py).
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "selector": {"matchLabels": blueprint.selector("broker")},
        "template": _template(blueprint, labels),
        "volumeClaimTemplates": [pods.claim(VOLUME, labels, size, spec.storage.storage_class_name)],
    }
    return blueprint.object("apps/v1", "StatefulSet", blueprint.brokers, spec=body)


def settings_hash(blueprint: Blueprint, form: str = FORM) -> str:
    """A hash of all that a running broker cannot take up without a restart.

    Made of what the manifest says, defaults left out, and not of the pod template: so that an operator whose templates
    or defaults are others sees nothing to restart. What a broker is reached by is not part of it: brokers read that
    again when it changes, as they do certificates.

    `form`: by which defaults. The API server writes defaults into what it keeps, so that one of before stands there as
    if somebody had chosen it.
    """
    spec = blueprint.spec
    settings = spec.settings.model_dump(exclude_defaults=True, mode="json")
    _leave_out(settings, FORMER_DEFAULTS.get(form, {}))
    tls, etcd = spec.tls, spec.etcd
    inputs: dict[str, Any] = {
        "image": blueprint.image,
        "settings": settings,
        "pod": spec.pod.model_dump(exclude_defaults=True, mode="json"),
        "spread": spec.topology_spread.model_dump(exclude_defaults=True, mode="json"),
        "tls": blueprint.tls_secret,
        "client_ca": tls.client_ca.model_dump() if tls is not None and tls.client_ca is not None else None,
        "etcd": [
            blueprint.etcd_urls,
            etcd.tls.model_dump() if etcd.tls else None,
            etcd.credentials_secret,
            blueprint.etcd_user,
        ],
        "authentication": spec.authentication.enabled,
        "restart": blueprint.cluster.metadata.annotations.get(RESTART_ANNOTATION),
        "accept_store": accepts_store(blueprint.cluster),
    }
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _leave_out(values: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    for name, default in defaults.items():
        if isinstance(default, Mapping):
            if isinstance(inner := values.get(name), dict):
                _leave_out(inner, default)
                if not inner:
                    del values[name]
        elif values.get(name) == default:
            del values[name]


def accepts_store(cluster: MessagingCluster) -> bool:
    """Whether somebody has said that etcd is to be taken as it is."""
    return cluster.metadata.annotations.get(ACCEPT_STORE_ANNOTATION) == "true"


def _template(blueprint: Blueprint, labels: dict[str, str]) -> dict[str, Any]:
    pod = blueprint.spec.pod
    spec: dict[str, Any] = {
        "serviceAccountName": blueprint.brokers,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": pod.termination_grace_period_seconds,
        "securityContext": pods.pod_security(),
        "containers": [_container(blueprint)],
        "volumes": _volumes(blueprint),
        **pods.placement(pod),
    }
    if constraints := _spread(blueprint):
        spec["topologySpreadConstraints"] = constraints
    if apart := _apart(blueprint):
        # What the manifest says itself stays.
        affinity: dict[str, Any] = dict(spec.get("affinity") or {})
        anti = dict(affinity.get("podAntiAffinity") or {})
        preferred = "preferredDuringSchedulingIgnoredDuringExecution"
        spec["affinity"] = affinity | {"podAntiAffinity": anti | {preferred: [*(anti.get(preferred) or ()), *apart]}}
    annotations = {**pod.annotations, SETTINGS_ANNOTATION: blueprint.settings_hash, FORM_ANNOTATION: FORM}
    return {"metadata": {"labels": {**pod.labels, **labels}, "annotations": annotations}, "spec": spec}


def _container(blueprint: Blueprint) -> dict[str, Any]:
    spec = blueprint.spec
    scheme = "HTTP" if spec.tls is None else "HTTPS"
    resources = spec.pod.resources
    container: dict[str, Any] = {
        "name": "broker",
        "image": blueprint.image,
        "imagePullPolicy": spec.image_pull_policy,
        "args": arguments(blueprint),
        "env": [
            _field("POD_NAME", "metadata.name"),
            _field("HOST_IP", "status.hostIP"),
            # Not among the arguments: images from before do not know it, and end when they are told.
            {"name": "STERNA_BROKER_OWNER", "value": f"@{SETTINGS_FOLDER}/{OWNER_FILE}"},
        ],
        "ports": [
            {"name": "messaging", "containerPort": MESSAGING_PORT, "protocol": "TCP"},
            {"name": "monitor", "containerPort": MONITOR_PORT, "protocol": "TCP"},
        ],
        "startupProbe": pods.http_probe("/livez", "monitor", scheme, 1, _START_S),
        "livenessProbe": pods.http_probe("/livez", "monitor", scheme, 10, 6),
        "readinessProbe": pods.http_probe("/readyz", "monitor", scheme, _PROBE_S, 1),
        "lifecycle": {"preStop": {"sleep": {"seconds": _LEAVING_S}}},
        # What a broker says before it ends is kept with its pod, and stands in the cluster's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": pods.container_security(),
        "volumeMounts": _mounts(blueprint),
    }
    wanted = {"requests": dict(resources.requests), "limits": limits(blueprint)}
    if kept := {key: value for key, value in wanted.items() if value}:
        container["resources"] = kept
    return container


def limits(blueprint: Blueprint) -> dict[str, Any]:
    """What a broker may use at most: what the manifest says, and memory in any case.

    A broker without a limit that grows takes its node's memory, and its neighbours go with it. Not the definition's
    default: that would not follow from the settings, and brokers of before would have to be restarted for it.
    """
    resources, log = blueprint.spec.pod.resources, blueprint.spec.settings.log
    if "memory" in resources.limits:
        return dict(resources.limits)
    wanted = Decimal(log.cache_bytes + log.volatile_bytes + _MEMORY_RESERVE_BYTES)
    requested = amount(resources.requests.get("memory", 0))
    if requested > wanted:
        return {**resources.limits, "memory": resources.requests["memory"]}
    mebibytes = math.ceil(wanted / _MEBIBYTE)
    most = f"{mebibytes}Mi" if mebibytes % 1024 else f"{mebibytes // 1024}Gi"
    return {**resources.limits, "memory": most}


def arguments(blueprint: Blueprint) -> list[str]:
    """What the broker is told. `$(POD_NAME)` is put in by the kubelet."""
    spec = blueprint.spec
    given = [
        *("broker", "--name", "$(POD_NAME)", "--cluster", blueprint.cluster.etcd_name),
        *("--etcd", ",".join(blueprint.etcd_urls)),
        *("--listen", f"0.0.0.0:{MESSAGING_PORT}", "--monitor", f"0.0.0.0:{MONITOR_PORT}"),
        *("--data", f"{DATA_FOLDER}/data", "--settings", f"{SETTINGS_FOLDER}/broker.yaml"),
        *("--advertise", f"@{SETTINGS_FOLDER}/$(POD_NAME)", "--log-format", "json"),
        # The network policy says who reaches the monitor port.
        "--open-metrics",
    ]
    if blueprint.etcd_ca is not None:
        given += ["--etcd-ca", f"{ETCD_CA_FOLDER}/ca.crt"]
        if blueprint.etcd_certificate is not None:
            given += ["--etcd-cert", f"{ETCD_CERTIFICATE_FOLDER}/tls.crt"]
            given += ["--etcd-key", f"{ETCD_CERTIFICATE_FOLDER}/tls.key"]
    if spec.etcd.credentials_secret is not None:
        given += ["--etcd-user", blueprint.etcd_user or ""]
        given += ["--etcd-password-file", f"{ETCD_CREDENTIALS_FOLDER}/password"]
    if spec.tls is not None:
        given += ["--tls-cert", f"{TLS_FOLDER}/tls.crt", "--tls-key", f"{TLS_FOLDER}/tls.key"]
        if spec.tls.client_ca is not None:
            given += ["--client-ca", f"{CLIENT_CA_FOLDER}/ca.crt"]
    if spec.authentication.enabled:
        given.append("--cluster-users")
    if accepts_store(blueprint.cluster):
        given.append("--accept-store")
    if spec.insecure:
        given.append("--insecure")
    return given


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _secrets(blueprint: Blueprint) -> list[tuple[str, str, str, dict[str, str]]]:
    """What is mounted from Secrets: volume, folder, Secret, and keys by the name of the file (none: all)."""
    spec = blueprint.spec
    found: list[tuple[str, str, str, dict[str, str]]] = []
    if blueprint.tls_secret is not None and spec.tls is not None:
        found.append(("tls", TLS_FOLDER, blueprint.tls_secret, {"tls.crt": "tls.crt", "tls.key": "tls.key"}))
        if spec.tls.client_ca is not None:
            found.append(("client-ca", CLIENT_CA_FOLDER, spec.tls.client_ca.name, {"ca.crt": spec.tls.client_ca.key}))
    if blueprint.etcd_ca is not None:
        name, key = blueprint.etcd_ca
        found.append(("etcd-ca", ETCD_CA_FOLDER, name, {"ca.crt": key}))
        if (secret := blueprint.etcd_certificate) is not None:
            found.append(("etcd-tls", ETCD_CERTIFICATE_FOLDER, secret, {"tls.crt": "tls.crt", "tls.key": "tls.key"}))
    if (secret := spec.etcd.credentials_secret) is not None:
        found.append(("etcd-credentials", ETCD_CREDENTIALS_FOLDER, secret, {"password": "password"}))
    return found


def mounted_secrets(blueprint: Blueprint) -> list[str]:
    """The names of all Secrets that pods mount: without one of them a pod does not start."""
    return list(dict.fromkeys(secret for _, _, secret, _ in _secrets(blueprint)))


def mounted_files(blueprint: Blueprint) -> list[tuple[str, dict[str, str]]]:
    """What pods mount from Secrets: each Secret, and its keys by the names of the files."""
    return [(secret, files) for _, _, secret, files in _secrets(blueprint)]


def _mounts(blueprint: Blueprint) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": VOLUME, "mountPath": DATA_FOLDER},
        {"name": "settings", "mountPath": SETTINGS_FOLDER, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    mounts += [{"name": name, "mountPath": folder, "readOnly": True} for name, folder, _, _ in _secrets(blueprint)]
    return mounts


def _volumes(blueprint: Blueprint) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": "settings", "configMap": {"name": blueprint.settings, "defaultMode": 0o444}},
        {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
    ]
    for name, _, secret, keys in _secrets(blueprint):
        files = [{"key": key, "path": path} for path, key in keys.items()]
        volumes.append({"name": name, "secret": {"secretName": secret, "items": files, "defaultMode": 0o440}})
    return volumes


def _spread(blueprint: Blueprint) -> list[dict[str, Any]]:
    wanted = blueprint.spec.topology_spread
    return [
        {
            "maxSkew": wanted.max_skew,
            "topologyKey": key,
            "whenUnsatisfiable": wanted.when_unsatisfiable,
            "labelSelector": {"matchLabels": blueprint.selector("broker")},
        }
        for key in wanted.keys
    ]


def _apart(blueprint: Blueprint) -> list[dict[str, Any]]:
    """The same as preferences, each of which counts by itself.

    The scheduler leaves nodes out of account that lack one of the labels that constraints name: where no node has a
    zone, as on machines of one's own, constraints over nodes and zones spread nothing, not over nodes either.
    """
    wanted = blueprint.spec.topology_spread
    if wanted.when_unsatisfiable != "ScheduleAnyway":
        return []
    selector = {"matchLabels": blueprint.selector("broker")}
    return [{"weight": 100, "podAffinityTerm": {"topologyKey": key, "labelSelector": selector}} for key in wanted.keys]
