"""The Naming service: what a name leads to, for everybody who is admitted.

It is asked of the configuration that holds: in a cluster that is every broker's, so that each of them answers for all.
"""

from sterna_resources import names
from sterna_resources.connection_factory import ConnectionFactory

from sterna_broker.configuration import lookups
from sterna_broker.configuration.live import LiveConfiguration
from sterna_broker.contract import message, naming
from sterna_broker.refusals import RefusedError

_DESTINATION_KINDS = {"queue": message.QUEUE, "topic": message.TOPIC}
_WORDS = {
    naming.LookupRequest.ANY: "connection factory, static queue or static topic",
    naming.LookupRequest.CONNECTION_FACTORY: "connection factory",
    naming.LookupRequest.QUEUE: "static queue",
    naming.LookupRequest.TOPIC: "static topic",
}
_BALANCING = {"none": naming.LOAD_BALANCING_NONE, "random": naming.LOAD_BALANCING_RANDOM}
# The fields of a factory that are the same in manifests and in the contract, and absent in both where they are.
_SETTINGS = (
    "client_id",
    "connect_attempts",
    "connect_delay_ms",
    "connect_timeout_ms",
    "reconnect_delay_ms",
    "reconnect_delay_max_ms",
    "reconnect_give_up_ms",
    "heartbeat_ms",
)


class Naming:
    """The handlers of the service."""

    def __init__(self, live: LiveConfiguration) -> None:
        self._live = live

    async def lookup(self, request: naming.LookupRequest) -> naming.LookupResponse:
        """What a name leads to.

        Raises:
            RefusedError: to nothing, or to several things.
        """
        name = request.name
        if request.kind not in _WORDS:
            raise RefusedError("INVALID_ARGUMENT", "kind", f"There is no kind {request.kind}.", "Name one, or none.")
        if not 0 < len(name) <= names.LOOKUP_NAME_CHARACTERS_MAX:
            text = f"A name to look up has 1 to {names.LOOKUP_NAME_CHARACTERS_MAX} characters, this one {len(name)}."
            raise RefusedError("INVALID_NAME", "name", text, "Correct the name.")
        found = [
            one
            for one in lookups.find(self._live.objects, name)
            if request.kind in (naming.LookupRequest.ANY, _kind(one))
        ]
        if not found:
            text = f"There is no {_WORDS[request.kind]} of the name or alias '{name}'."
            remedy = "List what there is; what clients create by using it is not looked up."
            raise RefusedError("NO_SUCH_DESTINATION", name, text, remedy)
        if len(found) > 1 and name not in self._live.objects.aliases:
            several = ", ".join(f"a {_WORDS[_kind(one)]}" for one in found)
            text = f"'{name}' is the name of {several}."
            raise RefusedError("INVALID_ARGUMENT", "kind", text, "Say which kind is wanted, or give it an alias.")
        return _response(found[0])


def _kind(found: lookups.Found) -> naming.LookupRequest.Kind:
    if isinstance(found, ConnectionFactory):
        return naming.LookupRequest.CONNECTION_FACTORY
    return naming.LookupRequest.QUEUE if found.kind == "queue" else naming.LookupRequest.TOPIC


def _response(found: lookups.Found) -> naming.LookupResponse:
    if isinstance(found, lookups.FoundDestination):
        kind = _DESTINATION_KINDS[found.kind]
        return naming.LookupResponse(destination=message.Destination(kind=kind, name=found.name))
    spec = found.spec
    settings = {field: value for field in _SETTINGS if (value := getattr(spec, field)) is not None}
    factory = naming.ConnectionFactory(
        name=found.subject, url=spec.url, load_balancing=_BALANCING[spec.load_balancing], **settings
    )
    if spec.tls is not None:
        factory.tls.CopyFrom(naming.FactoryTls(**spec.tls.model_dump(exclude_none=True)))
        factory.tls.SetInParent()
    return naming.LookupResponse(factory=factory)
