"""Queue: lives on one broker; as a pattern, everywhere."""

from sterna_resources.queue import Queue
from sterna_resources.topology import TopologyResource

from sterna_operator.kinds.placed import PlacedKind
from sterna_operator.kinds.references import Needs
from sterna_operator.store import ClusterStore


class QueueKind(PlacedKind):
    """See topology.plan."""

    name = "Queue"

    def needs(self, resource: TopologyResource) -> Needs:
        """The store that it names."""
        assert isinstance(resource, Queue)
        return Needs(stores=(resource.spec.store,) if resource.spec.store else ())

    def is_everywhere(self, resource: TopologyResource) -> bool:
        """A wildcard entry is every broker's."""
        assert isinstance(resource, Queue)
        return resource.is_pattern

    def home(self, store: ClusterStore, resource: TopologyResource) -> str | None:
        """The broker that owns the name, by whomever it was first opened."""
        assert isinstance(resource, Queue)
        return None if resource.is_pattern else store.mirror.home("queue", resource.subject)
