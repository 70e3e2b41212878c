"""What brokers have not taken up yet of that which changes without a restart: their certificate, their addresses.

The kubelet brings new files into a pod when it gets to it, and the broker reads them. Until then the status would
promise an address under which somebody else's certificate is shown, or one that no broker names to its clients.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from sterna_operator.builders.blueprint import Blueprint
from sterna_operator.kinds.cluster_outside import at_node
from sterna_operator.kinds.cluster_rolling import Pod
from sterna_operator.kinds.cluster_scaling import Members


@dataclass(frozen=True)
class Late:
    """Brokers that serve with what held before, in the order of their numbers."""

    certificate: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    def words(self) -> str:
        """What people are told of it; empty when nothing is late."""
        said = []
        if self.certificate:
            said.append(f"still shown is the certificate of before: {', '.join(self.certificate[:3])}")
        if self.addresses:
            said.append(f"not known yet are the addresses outside: {', '.join(self.addresses[:3])}")
        return "; ".join(said)


def late(
    blueprint: Blueprint, pods: tuple[Pod, ...], members: Members, secrets: Mapping[str, Mapping[str, bytes] | None]
) -> Late:
    """By what the brokers say in etcd. Who says nothing of it (an older version, a start not done) is not late."""
    certificate = _certificate(blueprint, secrets)
    old, unknown = [], []
    for pod in sorted(pods, key=lambda pod: pod.ordinal):
        record, status = members.live.get(pod.name), members.statuses.get(pod.name)
        if record is None or pod.is_going or pod.ordinal >= blueprint.replicas:
            continue
        shown = status.certificate if status is not None and status.incarnation == record.incarnation else ""
        if shown and certificate not in (None, shown):
            old.append(pod.name)
        wanted = blueprint.addresses.get(pod.ordinal, ())
        outside = {f"{blueprint.scheme}://{address}" for one in wanted if (address := at_node(one, pod.host_ip))}
        if not outside <= set(record.addresses):
            unknown.append(pod.name)
    return Late(tuple(old), tuple(unknown))


def _certificate(blueprint: Blueprint, secrets: Mapping[str, Mapping[str, bytes] | None]) -> str | None:
    """The digest of the certificate that brokers are to show; None: none that is known."""
    name = blueprint.tls_secret
    data = (secrets.get(name) or {}) if name is not None else {}
    return hashlib.sha256(data["tls.crt"]).hexdigest() if "tls.crt" in data else None
