"""The Services of a cluster.

- The client Service leads to any broker that is ready; every broker leads on to the one that has what is asked for.
- One Service for each broker has an address that outlives its pod. It leads there even while the broker is not ready:
  a broker with a full disk is not, and is to be read from all the same.
- The headless one names the pods, as a StatefulSet wants it.
- A listener for outside has one Service for each broker, unless its addresses lead to those above.
"""

from typing import Any

from sterna_resources.cluster_access import Listener

from sterna_operator.builders.blueprint import MESSAGING_PORT, MONITOR_PORT, Blueprint

_POD_LABEL = "statefulset.kubernetes.io/pod-name"


def build(blueprint: Blueprint) -> list[dict[str, Any]]:
    """All of them."""
    brokers = range(blueprint.replicas)
    services = [_headless(blueprint), _client(blueprint), *(_broker(blueprint, ordinal) for ordinal in brokers)]
    for listener in blueprint.spec.listeners:
        if listener.type != "addresses":
            services += [_listener(blueprint, listener, ordinal) for ordinal in brokers]
    return services


def _port(name: str, port: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "port": port, "protocol": "TCP", "targetPort": name, **more}


def _messaging(port: int = MESSAGING_PORT, **more: Any) -> dict[str, Any]:
    # `appProtocol` tells meshes and gateways what it is that they carry.
    return {**_port("messaging", port, **more), "appProtocol": "kubernetes.io/h2c"}


def _headless(blueprint: Blueprint) -> dict[str, Any]:
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": blueprint.selector("broker"),
        "ports": [_secured(blueprint, _messaging()), _port("monitor", MONITOR_PORT)],
    }
    return blueprint.object("v1", "Service", blueprint.headless, spec=spec)


def _client(blueprint: Blueprint) -> dict[str, Any]:
    spec = {
        "type": "ClusterIP",
        "selector": blueprint.selector("broker"),
        "ports": [_secured(blueprint, _messaging())],
    }
    return blueprint.object("v1", "Service", blueprint.name, spec=spec)


def _broker(blueprint: Blueprint, ordinal: int) -> dict[str, Any]:
    name = blueprint.broker(ordinal)
    spec = {
        "type": "ClusterIP",
        "publishNotReadyAddresses": True,
        "selector": {**blueprint.selector("broker"), _POD_LABEL: name},
        "ports": [_secured(blueprint, _messaging())],
    }
    return blueprint.object("v1", "Service", name, spec=spec)


def _listener(blueprint: Blueprint, listener: Listener, ordinal: int) -> dict[str, Any]:
    port = _secured(blueprint, _messaging(listener.port))
    if listener.node_ports is not None:
        port["nodePort"] = listener.node_ports[ordinal]
    spec: dict[str, Any] = {
        "type": "NodePort" if listener.type == "nodePort" else "LoadBalancer",
        "publishNotReadyAddresses": True,
        "selector": {**blueprint.selector("broker"), _POD_LABEL: blueprint.broker(ordinal)},
        "ports": [port],
    }
    if listener.load_balancer_class is not None:
        spec["loadBalancerClass"] = listener.load_balancer_class
    if listener.load_balancer_source_ranges:
        spec["loadBalancerSourceRanges"] = list(listener.load_balancer_source_ranges)
    name = blueprint.listener(listener.name, ordinal)
    return blueprint.object("v1", "Service", name, spec=spec, annotations=listener.annotations)


def _secured(blueprint: Blueprint, port: dict[str, Any]) -> dict[str, Any]:
    # What is carried encrypted is not to be looked into; plain HTTP/2 has a name of its own.
    return port if blueprint.spec.tls is None else {**port, "appProtocol": "https"}
