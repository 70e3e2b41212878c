"""The kinds of resources, by name: the one place that readers, schemas and commands go through.

A broker takes some of them, Kubernetes others; most are of both. A folder of manifests for Kubernetes may hold a
MessagingCluster, and a broker that is given it says that it is not for brokers.
"""

import difflib

from sterna_resources.audit_job import AuditJob
from sterna_resources.bridge import Bridge
from sterna_resources.broker import Broker
from sterna_resources.connection_factory import ConnectionFactory
from sterna_resources.durable_subscription import DurableSubscription
from sterna_resources.messaging_cluster import MessagingCluster
from sterna_resources.queue import Queue
from sterna_resources.resource import Resource
from sterna_resources.store import Store
from sterna_resources.store_snapshot import StoreSnapshot
from sterna_resources.topic import Topic
from sterna_resources.topology import TopologyResource
from sterna_resources.user import User

# The kinds that live in a cluster, in Kubernetes.
TOPOLOGY_KINDS: dict[str, type[TopologyResource]] = {
    "Queue": Queue,
    "Topic": Topic,
    "Bridge": Bridge,
    "DurableSubscription": DurableSubscription,
    "Store": Store,
    "ConnectionFactory": ConnectionFactory,
    "User": User,
}
# The kinds that Kubernetes knows: those with a custom resource definition.
KUBERNETES_KINDS: dict[str, type[Resource]] = {
    "MessagingCluster": MessagingCluster,
    **TOPOLOGY_KINDS,
    "StoreSnapshot": StoreSnapshot,
    "AuditJob": AuditJob,
}
# The kinds that a broker takes, from a folder, from `sterna apply` or from its cluster.
KINDS: dict[str, type[Resource]] = {
    "Queue": Queue,
    "Topic": Topic,
    "Bridge": Bridge,
    "DurableSubscription": DurableSubscription,
    "Store": Store,
    "ConnectionFactory": ConnectionFactory,
    "Broker": Broker,
}


def suggestion(word: str, known: list[str]) -> str:
    """`; did you mean X?` when a known word is close, otherwise nothing."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""
