"""The kinds that the operator looks after, by name: the one list that watches, workers and dry runs go through."""

from sterna_resources.kinds import KUBERNETES_KINDS

from sterna_operator.kinds.audit_observing import AuditJobKind, StoreSnapshotKind
from sterna_operator.kinds.bridge import BridgeKind
from sterna_operator.kinds.cluster_observing import MessagingClusterKind
from sterna_operator.kinds.connection_factory import ConnectionFactoryKind
from sterna_operator.kinds.durable_subscription import DurableSubscriptionKind
from sterna_operator.kinds.queue import QueueKind
from sterna_operator.kinds.store import StoreKind
from sterna_operator.kinds.topic import TopicKind
from sterna_operator.kinds.user import UserKind
from sterna_operator.view import Kind


def kinds() -> dict[str, Kind]:
    """All of them, those first on which others depend."""
    every: list[Kind] = [
        MessagingClusterKind(),
        StoreKind(),
        QueueKind(),
        TopicKind(),
        BridgeKind(),
        DurableSubscriptionKind(),
        ConnectionFactoryKind(),
        UserKind(),
        StoreSnapshotKind(),
        AuditJobKind(),
    ]
    return {kind.name: kind for kind in every}


def status_fields(kind: str) -> frozenset[str]:
    """The fields that the status of a kind has, as Kubernetes writes them. Others would be refused."""
    return frozenset(field.alias or name for name, field in KUBERNETES_KINDS[kind].STATUS.model_fields.items())
