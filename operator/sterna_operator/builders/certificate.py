"""The Certificate that cert-manager is asked for: it names whatever clients may call the brokers."""

import ipaddress
from collections.abc import Sequence
from typing import Any

from sterna_resources.cluster_access import CertManager

from sterna_operator.builders.blueprint import Blueprint

API_VERSION = "cert-manager.io/v1"


def build(blueprint: Blueprint, wanted: CertManager) -> dict[str, Any]:
    """The Certificate."""
    names, numbers = hosts(blueprint, wanted.dns_names)
    issuer = wanted.issuer_ref
    spec: dict[str, Any] = {
        "secretName": blueprint.tls_secret,
        "issuerRef": {"name": issuer.name, "kind": issuer.kind, "group": issuer.group},
        "dnsNames": names,
        "usages": ["server auth", "digital signature", "key encipherment"],
        "privateKey": {"rotationPolicy": "Always", "algorithm": "ECDSA", "size": 256},
    }
    if numbers:
        spec["ipAddresses"] = numbers
    return blueprint.object(API_VERSION, "Certificate", f"{blueprint.name}-tls", spec=spec)


def hosts(blueprint: Blueprint, more: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names and addresses, each once, in a fixed order: another order would be another certificate."""
    services = (blueprint.name, *(blueprint.broker(ordinal) for ordinal in range(blueprint.replicas)))
    found = [name for service in services for name in forms(blueprint, service)]
    found.append(f"*.{blueprint.host(blueprint.headless)}")
    for ordinal in sorted(blueprint.addresses):
        found += [address.rpartition(":")[0].strip("[]") for address in blueprint.addresses[ordinal]]
    found += more
    # `$(HOST_IP)`: the node's own address, which a certificate cannot name ahead.
    known = dict.fromkeys(host for host in found if not host.startswith("$("))
    numbers = [host for host in known if _is_address(host)]
    return [host for host in known if host not in numbers], numbers


def forms(blueprint: Blueprint, service: str) -> tuple[str, ...]:
    """A Service's names, the short ones first."""
    short = f"{service}.{blueprint.namespace}"
    return (service, short, f"{short}.svc", f"{short}.svc.cluster.local")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
