"""What an object claims in the cluster: the name that no other of its kind may have, as etcd's keys have it."""

from sterna_etcd import Claim
from sterna_resources.resource import Resource


def claim_of(resource: Resource) -> Claim:
    """Queues and topics: the destination's name; durables: client id and name; the others: the object's name."""
    return Claim(resource.kind, resource.claim)
