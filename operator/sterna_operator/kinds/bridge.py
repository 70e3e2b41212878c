"""Bridge: lives where its source lives."""

from sterna_resources.bridge import Bridge
from sterna_resources.topology import TopologyResource

from sterna_operator.kinds.placed import PlacedKind
from sterna_operator.kinds.references import Needs


class BridgeKind(PlacedKind):
    """See topology.plan."""

    name = "Bridge"

    def needs(self, resource: TopologyResource) -> Needs:
        """Source and targets, where they are single destinations."""
        assert isinstance(resource, Bridge)
        ends = [resource.spec.source.destination, *(target.destination for target in resource.spec.targets)]
        return Needs(destinations=tuple((kind.capitalize(), name) for kind, name in ends))
