"""DurableSubscription: lives with its topic."""

from sterna_resources.durable_subscription import DurableSubscription
from sterna_resources.topology import TopologyResource

from sterna_operator.kinds.placed import PlacedKind
from sterna_operator.kinds.references import Needs


class DurableSubscriptionKind(PlacedKind):
    """See topology.plan."""

    name = "DurableSubscription"

    def needs(self, resource: TopologyResource) -> Needs:
        """The topic, where it is a single one."""
        assert isinstance(resource, DurableSubscription)
        return Needs(destinations=(("Topic", resource.spec.topic),))
