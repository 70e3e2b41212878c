"""The etcd of one member that the operator runs for trying things out: a StatefulSet and a Service.

It speaks TLS to those alone who show a certificate of its own authority, which brokers and operator have; certificates
in place of passwords, since nobody has to be told of them in an etcd that runs, neither at first nor when they are made
anew. One that was begun without goes on without, until its manifest says otherwise: then the network policy is what
keeps others out, where the network enforces one.
"""

from collections.abc import Mapping
from typing import Any

from sterna_resources.cluster_etcd import ManagedEtcd

from sterna_operator.builders import pods
from sterna_operator.builders.authority import AUTHORITY, CERTIFICATE, KEY
from sterna_operator.builders.blueprint import ETCD_PORT, SETTINGS_ANNOTATION, Blueprint

_PROBE_PORT = 2381
_FOLDER = "/var/lib/etcd"
_TLS_FOLDER = "/etc/etcd/tls"
_LISTEN = "--listen-client-urls="
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
            "metadata": {"labels": {**pod.labels, **labels}, **_annotations(blueprint)},
            "spec": {
                "serviceAccountName": blueprint.brokers,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "securityContext": pods.pod_security(),
                "containers": [_container(blueprint)],
                **({"volumes": [_volume(blueprint)]} if blueprint.is_etcd_secured else {}),
                **pods.placement(pod),
            },
        },
        "volumeClaimTemplates": [pods.claim("data", labels, size, wanted.storage.storage_class_name)],
    }
    return blueprint.object("apps/v1", "StatefulSet", blueprint.etcd, "etcd", spec=body)


def made_for(blueprint: Blueprint) -> str:
    """What etcd's pod has to be restarted for when it is another: how it is reached, and whom it trusts."""
    return f"tls-{blueprint.etcd_trust}" if blueprint.is_etcd_secured else ""


def is_secured(
    wanted: ManagedEtcd, standing: Mapping[str, Any] | None, others: Mapping[str, Any] | None = None
) -> bool:
    """Whether it is to speak TLS: a newer operator leaves one alone that was begun without.

    `standing`: its StatefulSet. `others`: that of the brokers, which tells where the former is gone.
    """
    if wanted.tls is not None:
        return wanted.tls
    if standing is not None:
        # Each of both tells. Were it one alone, whoever takes that away by hand would open it to everybody.
        annotations = standing["spec"]["template"]["metadata"].get("annotations") or {}
        given = standing["spec"]["template"]["spec"]["containers"][0].get("args") or ()
        is_marked = str(annotations.get(SETTINGS_ANNOTATION, "")).startswith("tls-")
        return is_marked or any(str(one).startswith(f"{_LISTEN}https://") for one in given)
    arguments = others["spec"]["template"]["spec"]["containers"][0].get("args") or () if others is not None else ()
    return not any(one.startswith("http://") for one in arguments)


def _annotations(blueprint: Blueprint) -> dict[str, Any]:
    made = made_for(blueprint)
    return {"annotations": {SETTINGS_ANNOTATION: made}} if made else {}


def _volume(blueprint: Blueprint) -> dict[str, Any]:
    files = [{"key": key, "path": key} for key in (CERTIFICATE, KEY, AUTHORITY)]
    return {"name": "tls", "secret": {"secretName": blueprint.etcd_server_secret, "items": files, "defaultMode": 0o440}}


def access_flags(folder: str) -> list[str]:
    """The flags for certificates on both sides, from files in a folder. It reads the first two again by itself."""
    return [
        f"--cert-file={folder}/{CERTIFICATE}",
        f"--key-file={folder}/{KEY}",
        f"--trusted-ca-file={folder}/{AUTHORITY}",
        "--client-cert-auth=true",
        # It would come to etcd itself with the server's certificate, which is none for clients.
        "--enable-grpc-gateway=false",
    ]


def _container(blueprint: Blueprint) -> dict[str, Any]:
    is_secured = blueprint.is_etcd_secured
    scheme = "https" if is_secured else "http"
    mounts: list[dict[str, Any]] = [{"name": "data", "mountPath": _FOLDER}]
    if is_secured:
        mounts.append({"name": "tls", "mountPath": _TLS_FOLDER, "readOnly": True})
    return {
        "name": "etcd",
        "image": blueprint.etcd_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["etcd"],
        "args": [
            "--name=default",
            f"--data-dir={_FOLDER}/default.etcd",
            f"{_LISTEN}{scheme}://0.0.0.0:{ETCD_PORT}",
            f"--advertise-client-urls={blueprint.etcd_urls[0]}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            f"--listen-metrics-urls=http://0.0.0.0:{_PROBE_PORT}",
            f"--quota-backend-bytes={_QUOTA_BYTES}",
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=1h",
            *(access_flags(_TLS_FOLDER) if is_secured else []),
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
        "volumeMounts": mounts,
    }
