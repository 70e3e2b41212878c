"""What the cluster tells others: its brokers (ConfigMap) and applications (connection Secret)."""

import base64
import json
from typing import Any

from sterna_operator.builders.blueprint import Blueprint

OWNER_FILE = "owner"
"""The cluster's uid: brokers compare it with who has claimed their place in etcd."""


def settings(blueprint: Blueprint) -> dict[str, Any]:
    """The brokers' ConfigMap: the Broker manifest, whose they are, and for each broker what it is reached by."""
    manifest = {
        "apiVersion": blueprint.cluster.api_version,
        "kind": "Broker",
        "metadata": {"name": blueprint.name},
        "spec": blueprint.spec.settings.model_dump(by_alias=True, exclude_defaults=True, mode="json"),
    }
    # JSON is YAML, and is written in one way only.
    data = {"broker.yaml": json.dumps(manifest, indent=2, sort_keys=True) + "\n", OWNER_FILE: blueprint.uid + "\n"}
    for ordinal in range(blueprint.replicas):
        data[blueprint.broker(ordinal)] = ",".join(blueprint.advertised(ordinal)) + "\n"
    return blueprint.object("v1", "ConfigMap", blueprint.settings, data=data)


def connection(blueprint: Blueprint) -> dict[str, Any]:
    """The applications' Secret: `url`, `ca.crt` where there is TLS, `external-url` where there are listeners.

    It holds nobody's password: users have Secrets of their own.
    """
    data = {"url": encoded(blueprint.url.encode())}
    if blueprint.ca is not None:
        data["ca.crt"] = encoded(blueprint.ca.encode())
    if blueprint.outside_urls:
        data["external-url"] = encoded(blueprint.outside_urls[0].encode())
    return blueprint.object("v1", "Secret", blueprint.connection_secret, type="Opaque", data=data)


def encoded(value: bytes) -> str:
    """As it stands in a Secret."""
    return base64.b64encode(value).decode()
