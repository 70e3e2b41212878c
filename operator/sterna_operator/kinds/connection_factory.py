"""ConnectionFactory: every broker answers for it, whichever is asked."""

from sterna_resources.topology import TopologyResource

from sterna_operator.kinds.placed import PlacedKind


class ConnectionFactoryKind(PlacedKind):
    """See topology.plan."""

    name = "ConnectionFactory"

    def is_everywhere(self, resource: TopologyResource) -> bool:
        """Always."""
        return True
