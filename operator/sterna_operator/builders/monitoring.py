"""The PodMonitor by which Prometheus finds the brokers, where Kubernetes knows that kind."""

from typing import Any

from sterna_operator.builders.blueprint import Blueprint

API_VERSION = "monitoring.coreos.com/v1"


def build(blueprint: Blueprint) -> dict[str, Any]:
    """The PodMonitor."""
    wanted = blueprint.spec.monitoring
    endpoint: dict[str, Any] = {"port": "monitor", "path": "/metrics", "interval": f"{wanted.interval_seconds}s"}
    if blueprint.spec.tls is not None:
        # The scraper goes to the pod's address, which no certificate names.
        endpoint |= {"scheme": "https", "tlsConfig": {"insecureSkipVerify": True}}
    spec = {
        "selector": {"matchLabels": blueprint.selector("broker")},
        "podMetricsEndpoints": [endpoint],
        "podTargetLabels": ["app.kubernetes.io/instance"],
    }
    manifest = blueprint.object(API_VERSION, "PodMonitor", blueprint.brokers, spec=spec)
    manifest["metadata"]["labels"] = {**wanted.labels, **manifest["metadata"]["labels"]}
    return manifest
