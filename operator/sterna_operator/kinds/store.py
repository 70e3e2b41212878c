"""Store: a label that every broker knows."""

from sterna_resources.topology import TopologyResource

from sterna_operator.kinds.placed import PlacedKind


class StoreKind(PlacedKind):
    """See topology.plan."""

    name = "Store"

    def is_everywhere(self, resource: TopologyResource) -> bool:
        """Always."""
        return True
