"""Topic: lives on one broker; as a pattern, everywhere."""

from sterna_resources.topic import Topic
from sterna_resources.topology import TopologyResource

from sterna_operator.kinds.placed import PlacedKind
from sterna_operator.kinds.references import Needs
from sterna_operator.store import ClusterStore


class TopicKind(PlacedKind):
    """See topology.plan."""

    name = "Topic"

    def needs(self, resource: TopologyResource) -> Needs:
        """The store that it names."""
        assert isinstance(resource, Topic)
        return Needs(stores=(resource.spec.store,) if resource.spec.store else ())

    def is_everywhere(self, resource: TopologyResource) -> bool:
        """A wildcard entry is every broker's."""
        assert isinstance(resource, Topic)
        return resource.is_pattern

    def home(self, store: ClusterStore, resource: TopologyResource) -> str | None:
        """The broker that owns the name, by whomever it was first opened."""
        assert isinstance(resource, Topic)
        return None if resource.is_pattern else store.mirror.home("topic", resource.subject)
