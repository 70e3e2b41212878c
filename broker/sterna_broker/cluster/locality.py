"""What of the cluster's configuration is this broker's: the part that its engine is told.

Destinations that live here, with the bridges and durable subscriptions that hang on them; wildcard entries and whatever
else has no home are everybody's.
"""

from sterna_etcd import Claim, HomeKey
from sterna_resources.bridge import Bridge
from sterna_resources.destination import DestinationResource
from sterna_resources.durable_subscription import DurableSubscription
from sterna_resources.resource import Resource

from sterna_broker.cluster.placement import key_of_durable, spanning
from sterna_broker.cluster.view import View
from sterna_broker.configuration.objects import ObjectSet


def home_key(resource: Resource) -> HomeKey | None:
    """What decides where an object lives; None: it lives everywhere."""
    if isinstance(resource, Bridge):
        return HomeKey(*resource.spec.source.destination)
    if isinstance(resource, DurableSubscription):
        return key_of_durable(resource)
    if isinstance(resource, DestinationResource) and not resource.is_pattern:
        return HomeKey(resource.kind.lower(), resource.subject)
    return None


def home_of(view: View, resource: Resource) -> str | None:
    """The broker an object lives on; empty: on all of them; None: it has no home yet."""
    key = home_key(resource)
    return "" if key is None else view.home(key.kind, key.name)


def local(view: View, objects: ObjectSet, name: str) -> ObjectSet:
    """The objects that this broker's engine is told of."""
    return ObjectSet(
        {
            key: entry
            for key, entry in objects.entries.items()
            if home_of(view, entry.resource) in ("", name)
            and not (isinstance(entry.resource, Bridge) and spanning(view, entry.resource))
        }
    )


def without(objects: ObjectSet, claims: set[Claim]) -> ObjectSet:
    """The set without the objects of these claims."""
    if not claims:
        return objects
    return ObjectSet({key: entry for key, entry in objects.entries.items() if Claim(*key) not in claims})
