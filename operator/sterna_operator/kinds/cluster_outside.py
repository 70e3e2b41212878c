"""What clients outside of Kubernetes call each broker, from the manifest and from what Kubernetes has given out."""

from collections.abc import Mapping
from typing import Any

from sterna_resources.cluster_access import Listener

from sterna_operator.builders.blueprint import Blueprint

# The broker puts the address of its pod's node in: it is known only when the pod runs.
HOST_IP = "$(HOST_IP)"

# Clients take a URL of at most 1,000 characters. Where not all brokers fit into it, the first ones lead to the others.
URL_CHARACTERS_MAX = 900

Services = Mapping[str, Mapping[str, Any]]


def addresses(blueprint: Blueprint, services: Services) -> dict[int, tuple[str, ...]]:
    """`host:port` of each broker at each listener, by the broker's number; what is not given out yet is left out."""
    found = {}
    for ordinal in range(blueprint.replicas):
        known = [
            address
            for listener in blueprint.spec.listeners
            if (address := _address(blueprint, listener, ordinal, services)) is not None
        ]
        if known:
            found[ordinal] = tuple(known)
    return found


def pending(blueprint: Blueprint, services: Services) -> list[str]:
    """The Services that have no address yet."""
    return [
        blueprint.listener(listener.name, ordinal)
        for listener in blueprint.spec.listeners
        for ordinal in range(blueprint.replicas)
        if _address(blueprint, listener, ordinal, services) is None
    ]


def urls(blueprint: Blueprint, services: Services, hosts: Mapping[int, str | None]) -> tuple[str, ...]:
    """One URL for each listener that has addresses: any of its brokers leads to the others.

    `hosts`: the nodes' addresses by the brokers' numbers.
    """
    found = []
    for listener in blueprint.spec.listeners:
        known: list[str] = []
        for ordinal in range(blueprint.replicas):
            address = _address(blueprint, listener, ordinal, services)
            address = None if address is None else at_node(address, hosts.get(ordinal))
            if address is not None and len("+".join([*known, address])) < URL_CHARACTERS_MAX:
                known.append(address)
        if known:
            found.append(f"{blueprint.scheme}://{'+'.join(known)}")
    return tuple(found)


def at_node(address: str, host: str | None) -> str | None:
    """An address with that of the broker's node in its place; None while that is not known."""
    if not address.startswith(HOST_IP):
        return address
    return None if host is None else address.replace(HOST_IP, _bracketed(host))


def _address(blueprint: Blueprint, listener: Listener, ordinal: int, services: Services) -> str | None:
    if listener.addresses is not None:
        return listener.addresses[ordinal] if ordinal < len(listener.addresses) else None
    service = services.get(blueprint.listener(listener.name, ordinal))
    if service is None:
        return None
    host = listener.host_of(ordinal)
    if listener.type == "nodePort":
        ports: Any = (service.get("spec") or {}).get("ports") or ({},)
        port = ports[0].get("nodePort")
        return None if port is None else f"{host or HOST_IP}:{port}"
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    given = next((one.get("hostname") or one.get("ip") for one in ingress), None)
    if given is None:
        return None
    return f"{host or _bracketed(given)}:{listener.port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
