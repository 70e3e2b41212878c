"""Which certificates the operator makes itself for a cluster: the brokers' (`tls.generated`), and a managed etcd's.

A managed etcd speaks to those alone who show a certificate of its own authority. So there is one for the server, which
its pod mounts, and one for brokers and operator; the authority's key stays in a Secret that no pod mounts.
"""

from collections.abc import Mapping
from typing import Any

from sterna_operator.builders import authority, certificate, connection
from sterna_operator.builders.authority import Order
from sterna_operator.builders.blueprint import Blueprint

_LOCAL = ("localhost", "127.0.0.1")


def issued(
    blueprint: Blueprint, standing: Mapping[str, Mapping[str, bytes] | None], now_ms: int
) -> dict[str, dict[str, bytes]]:
    """The Secrets that have to be written, by name, with what they are to have."""
    made: dict[str, dict[str, bytes]] = {}
    tls = blueprint.spec.tls
    if tls is not None and tls.generated is not None:
        names, numbers = certificate.hosts(blueprint, [*_LOCAL, *tls.generated.dns_names])
        order = Order(f"{blueprint.name}-tls", blueprint.host(blueprint.name), "server", (*names, *numbers))
        made |= authority.issued(f"{blueprint.name}-ca", [order], standing, now_ms)
    if blueprint.is_etcd_secured:
        orders = [
            Order(blueprint.etcd_server_secret, blueprint.host(blueprint.etcd), "server", _etcd_hosts(blueprint)),
            Order(blueprint.etcd_client_secret, f"{blueprint.name}.{blueprint.namespace}", "client"),
        ]
        made |= authority.issued(f"{blueprint.etcd}-ca", orders, standing, now_ms)
    return made


def names(name: str, *, has_generated: bool, may_secure_etcd: bool) -> set[str]:
    """The Secrets that are made for a cluster of this name."""
    found = {f"{name}-ca", f"{name}-tls"} if has_generated else set()
    return found | ({f"{name}-etcd-{end}" for end in ("ca", "server", "client")} if may_secure_etcd else set())


def manifests(blueprint: Blueprint, made: Mapping[str, Mapping[str, bytes]]) -> list[dict[str, Any]]:
    """The Secrets as objects."""
    return [
        blueprint.object(
            "v1",
            "Secret",
            name,
            "etcd" if name.startswith(f"{blueprint.etcd}-") else "broker",
            type="kubernetes.io/tls",
            data={key: connection.encoded(value) for key, value in sorted(data.items())},
        )
        for name, data in made.items()
    ]


def _etcd_hosts(blueprint: Blueprint) -> tuple[str, ...]:
    return (*certificate.forms(blueprint, blueprint.etcd), *_LOCAL)
