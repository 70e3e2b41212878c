"""The manifests: what people write to describe queues, topics, bridges, subscriptions and the broker itself.

One kind a file. `reading` turns text into resources and says what is wrong with file, line, column and field;
`schema` describes the kinds for editors and for Kubernetes. Nothing here knows a broker: these models are shared by
the broker, the operator and every tool. What a set of manifests means together (inheritance, references among them)
is the broker's.
"""

from sterna_resources.audit_job import AuditJob, AuditJobSpec
from sterna_resources.bridge import Bridge, BridgeSource, BridgeSpec, BridgeTarget
from sterna_resources.broker import (
    Broker,
    BrokerLimits,
    BrokerSettings,
    BrokerSpec,
    BrokerStore,
    Listeners,
    LogSettings,
)
from sterna_resources.connection_factory import ConnectionFactory, ConnectionFactorySpec, FactoryTls
from sterna_resources.destination import DestinationResource, DestinationSpec
from sterna_resources.durable_subscription import DurableSubscription, DurableSubscriptionSpec
from sterna_resources.kinds import KINDS, KUBERNETES_KINDS, TOPOLOGY_KINDS
from sterna_resources.messaging_cluster import MessagingCluster, MessagingClusterSpec
from sterna_resources.metadata import Metadata
from sterna_resources.problems import ManifestError, Place, Problem
from sterna_resources.queue import Queue, QueueSpec
from sterna_resources.reading import (
    Examined,
    Manifest,
    examine_text,
    from_document,
    from_newer,
    from_object,
    read_files,
    read_text,
)
from sterna_resources.resource import API_VERSION, Resource
from sterna_resources.store import Store, StoreSpec
from sterna_resources.store_snapshot import StoreSnapshot, StoreSnapshotSpec
from sterna_resources.topic import Topic, TopicSpec
from sterna_resources.topology import ClusterRef, Paused, TopologyResource, TopologySpec
from sterna_resources.user import User, UserSpec

__all__ = [
    "API_VERSION",
    "KINDS",
    "KUBERNETES_KINDS",
    "TOPOLOGY_KINDS",
    "AuditJob",
    "AuditJobSpec",
    "Bridge",
    "BridgeSource",
    "BridgeSpec",
    "BridgeTarget",
    "Broker",
    "BrokerLimits",
    "BrokerSettings",
    "BrokerSpec",
    "BrokerStore",
    "ClusterRef",
    "ConnectionFactory",
    "ConnectionFactorySpec",
    "DestinationResource",
    "DestinationSpec",
    "DurableSubscription",
    "DurableSubscriptionSpec",
    "Examined",
    "FactoryTls",
    "Listeners",
    "LogSettings",
    "Manifest",
    "ManifestError",
    "MessagingCluster",
    "MessagingClusterSpec",
    "Metadata",
    "Paused",
    "Place",
    "Problem",
    "Queue",
    "QueueSpec",
    "Resource",
    "Store",
    "StoreSnapshot",
    "StoreSnapshotSpec",
    "StoreSpec",
    "Topic",
    "TopicSpec",
    "TopologyResource",
    "TopologySpec",
    "User",
    "UserSpec",
    "examine_text",
    "from_document",
    "from_newer",
    "from_object",
    "read_files",
    "read_text",
]
