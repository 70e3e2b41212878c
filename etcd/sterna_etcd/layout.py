"""Every key that Sterna has in etcd, in one place.

All of a cluster stands below `/sterna/<cluster>/`. What people name is percent-quoted, `/` included, so that each name
is one part of a key, and the text of a key says all there is to say of it.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

ROOT = "/sterna/"
_CLUSTER = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


class KeyLayoutError(ValueError):
    """A cluster's name that no keys can be made of, or a key that is none of the cluster's."""


@dataclass(frozen=True)
class Claim:
    """What an object claims in a cluster: its kind, and the name that no other of the kind may have."""

    kind: str
    name: str


@dataclass(frozen=True)
class ObjectStatusKey:
    """Which broker says something of which object."""

    claim: Claim
    broker: str


@dataclass(frozen=True)
class HomeKey:
    """What has a home: `kind` is "queue" or "topic", or "pattern" for a topic pattern that somebody subscribes to."""

    kind: str
    name: str


@dataclass(frozen=True)
class Layout:
    """The keys of one cluster."""

    cluster: str

    def __post_init__(self) -> None:
        if not _CLUSTER.fullmatch(self.cluster):
            raise KeyLayoutError(
                f"'{self.cluster[:64]}' cannot be a cluster's name: letters, digits, '.', '_' and '-', at most 253"
            )

    @property
    def prefix(self) -> str:
        """Everything of the cluster."""
        return f"{ROOT}{self.cluster}/"

    # The store and who writes it

    @property
    def identity(self) -> str:
        """Which store this is; made once, never changed."""
        return f"{self.prefix}identity"

    @property
    def operator_epoch(self) -> str:
        """How often an operator has become the leader; every write of it compares this."""
        return f"{self.prefix}operator/epoch"

    @property
    def operator_claim(self) -> str:
        """Which MessagingCluster this is, and which operator looks after it."""
        return f"{self.prefix}operator/claim"

    @property
    def lefts(self) -> str:
        """What objects in Kubernetes have left behind in the brokers when they went."""
        return f"{self.prefix}operator/left/"

    def left(self, claim: Claim) -> str:
        """Whose a destination was that nobody manages any more."""
        return f"{self.lefts}{_part(claim.kind)}/{_part(claim.name)}"

    def left_of(self, key: str) -> Claim:
        """The destination that a key below `lefts` is of. Errors as claim_of."""
        return Claim(*self._parts(key, self.lefts, 2))

    @property
    def witnesses(self) -> str:
        """The signs that members leave for themselves; nobody follows them, and nothing comes after them."""
        return f"{self.prefix}witnesses/"

    def witness(self, kind: str, name: str) -> str:
        """One member's; `kind` is "broker" or "operator"."""
        return f"{self.witnesses}{_part(kind)}/{_part(name)}"

    # Configuration

    @property
    def configs(self) -> str:
        """All configured objects."""
        return f"{self.prefix}config/"

    def config(self, claim: Claim) -> str:
        """One configured object."""
        return f"{self.configs}{_part(claim.kind)}/{_part(claim.name)}"

    def configs_of(self, kind: str) -> str:
        """All configured objects of a kind."""
        return f"{self.configs}{_part(kind)}/"

    def claim_of(self, key: str) -> Claim:
        """The object that a key below `configs` is of.

        Raises:
            KeyLayoutError: it is no such key.
        """
        return Claim(*self._parts(key, self.configs, 2))

    # Homes

    @property
    def homes(self) -> str:
        """All homes."""
        return f"{self.prefix}homes/"

    def homes_of(self, kind: str) -> str:
        """All homes of a kind: a prefix."""
        return f"{self.homes}{_part(kind)}/"

    def home(self, kind: str, name: str) -> str:
        """The home of a destination or pattern; kinds as in HomeKey."""
        return f"{self.homes}{_part(kind)}/{_part(name)}"

    def home_of(self, key: str) -> HomeKey:
        """The destination that a key below `homes` is of. Errors as claim_of."""
        return HomeKey(*self._parts(key, self.homes, 2))

    # Brokers

    @property
    def brokers(self) -> str:
        """The brokers that live."""
        return f"{self.prefix}brokers/"

    def broker(self, name: str) -> str:
        """One broker, under its lease."""
        return f"{self.brokers}{_part(name)}"

    def broker_of(self, key: str) -> str:
        """The broker that a key below `brokers` is of. Errors as claim_of."""
        return self._parts(key, self.brokers, 1)[0]

    @property
    def drains(self) -> str:
        """The brokers that are to be emptied."""
        return f"{self.prefix}drain/"

    def drain(self, broker: str) -> str:
        """Says that a broker is to be emptied."""
        return f"{self.drains}{_part(broker)}"

    def drain_of(self, key: str) -> str:
        """The broker that a key below `drains` is of. Errors as claim_of."""
        return self._parts(key, self.drains, 1)[0]

    # Status

    @property
    def statuses(self) -> str:
        """Where statuses begin: what members follow ends before."""
        return f"{self.prefix}status/"

    @property
    def object_statuses(self) -> str:
        """What brokers say of objects."""
        return f"{self.prefix}status/objects/"

    def object_statuses_of(self, claim: Claim) -> str:
        """What brokers say of one object: a prefix."""
        return f"{self.object_statuses}{_part(claim.kind)}/{_part(claim.name)}/"

    def object_status(self, claim: Claim, broker: str) -> str:
        """What one broker says of one object."""
        return f"{self.object_statuses_of(claim)}{_part(broker)}"

    def object_status_of(self, key: str) -> ObjectStatusKey:
        """What a key below `object_statuses` is of. Errors as claim_of."""
        kind, name, broker = self._parts(key, self.object_statuses, 3)
        return ObjectStatusKey(Claim(kind, name), broker)

    @property
    def broker_statuses(self) -> str:
        """What brokers say of themselves."""
        return f"{self.prefix}status/brokers/"

    def broker_status(self, name: str) -> str:
        """What one broker says of itself; stays when it is gone."""
        return f"{self.broker_statuses}{_part(name)}"

    def broker_status_of(self, key: str) -> str:
        """The broker that a key below `broker_statuses` is of. Errors as claim_of."""
        return self._parts(key, self.broker_statuses, 1)[0]

    # Users

    @property
    def users(self) -> str:
        """All users. Before `statuses` like all that members follow, so that one watch with one revision has it."""
        return f"{self.prefix}access/users/"

    def user(self, name: str) -> str:
        """One user."""
        return f"{self.users}{_part(name)}"

    def user_of(self, key: str) -> str:
        """The user that a key below `users` is of. Errors as claim_of."""
        return self._parts(key, self.users, 1)[0]

    def _parts(self, key: str, prefix: str, count: int) -> list[str]:
        parts = key.removeprefix(prefix).split("/") if key.startswith(prefix) else []
        if len(parts) != count or not all(parts):
            raise KeyLayoutError(f"'{key[:256]}' is no key below {prefix}")
        return [unquote(part) for part in parts]


def _part(name: str) -> str:
    if not name:
        raise KeyLayoutError("an empty name cannot be a part of a key")
    return quote(name, safe="")
