"""What a cluster has in etcd, in memory: values as they came, by the key's parent, decoded when asked for.

Most values are written once and not looked at again, and there may be tens of thousands; as bytes they take a tenth of
the memory. Only who owns a configured object is read at once, since a deleted object is found by that alone.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog
from sterna_etcd import Claim, Event, HomeKey, KeyLayoutError, KeyValue, Layout
from sterna_etcd.records import (
    BrokerRecord,
    BrokerStatus,
    ClaimRecord,
    ConfigRecord,
    DrainRecord,
    HomeRecord,
    LeftRecord,
    ObjectStatus,
    Owner,
    Record,
    RecordError,
    UserRecord,
)

from sterna_operator.keys import Key

log = structlog.get_logger(__name__)

R = TypeVar("R", bound=Record)

USER = "User"
# The kinds of what lives in brokers whether or not somebody manages it.
HOMED = ("Queue", "Topic")


@dataclass(frozen=True)
class Kept(Generic[R]):
    """A record and the revision at which it was written."""

    record: R
    revision: int


@dataclass(frozen=True)
class Change:
    """A key that is another now.

    `claim`: the object it concerns, if one; `owner`: the object in Kubernetes that the record belongs, or belonged, to.
    """

    key: str
    claim: Claim | None = None
    owner: Key | None = None


@dataclass(frozen=True, slots=True)
class _Value:
    value: bytes
    revision: int


class Mirror:
    """The keys and values of one cluster. Older than what is known is passed over."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        # Asked for each of tens of thousands of keys.
        self._configs, self._users = layout.configs, layout.users
        self.revision = 0
        self._values: dict[str, dict[str, _Value]] = {}
        self._removed: dict[str, int] = {}
        self._owners: dict[str, Key] = {}
        # Most own one record; a tuple of one takes a quarter of a set.
        self._owned: dict[Key, tuple[str, ...]] = {}

    # What it knows

    def config(self, claim: Claim) -> Kept[ConfigRecord] | None:
        """One configured object.

        Raises:
            RecordError: what stands there cannot be read.
        """
        return self._kept(self.layout.config(claim), ConfigRecord)

    def has_config(self, claim: Claim) -> bool:
        """Whether an object is configured, readable or not."""
        return self._find(self.layout.config(claim)) is not None

    def user(self, name: str) -> Kept[UserRecord] | None:
        """One user. Errors as config."""
        return self._kept(self.layout.user(name), UserRecord)

    def claims(self, kind: str) -> list[str]:
        """What objects of a kind claim."""
        prefix = f"{self.layout.configs}{kind}/"
        return [self.layout.claim_of(key).name for key in self._values.get(prefix, ())]

    def left(self, claim: Claim) -> Kept[LeftRecord] | None:
        """Who left an object behind that brokers may still have."""
        return self._readable(self.layout.left(claim), LeftRecord)

    def lefts(self) -> dict[Claim, int]:
        """All that was left behind, with the revision of the note."""
        found = [self._values.get(f"{self.layout.lefts}{kind}/", {}) for kind in HOMED]
        return {self.layout.left_of(key): one.revision for kept in found for key, one in kept.items()}

    def claim(self) -> ClaimRecord | None:
        """Whose place this is, as far as anybody has said it."""
        kept = self._readable(self.layout.operator_claim, ClaimRecord)
        return kept.record if kept else None

    def owned(self, owner: Key) -> list[Claim]:
        """The records that belong to an object in Kubernetes; users are among them, under the kind User."""
        return [claim for key in self._owned.get(owner, ()) if (claim := self._claim(key)) is not None]

    def owner_of(self, claim: Claim) -> Key | None:
        """The object in Kubernetes that the record of a claim belongs to."""
        key = self.layout.user(claim.name) if claim.kind == USER else self.layout.config(claim)
        return self._owners.get(key)

    def owners(self) -> list[Key]:
        """All objects in Kubernetes to which some record belongs."""
        return list(self._owned)

    def statuses(self, claim: Claim) -> dict[str, ObjectStatus]:
        """What brokers say of an object, by broker."""
        keys = self._values.get(self.layout.object_statuses_of(claim), {})
        return {self.layout.object_status_of(key).broker: record for key, record in self._all(keys, ObjectStatus)}

    def home(self, kind: str, name: str) -> str | None:
        """The broker that is a destination's home; `kind` is "queue" or "topic"."""
        kept = self._readable(self.layout.home(kind, name), HomeRecord)
        return kept.record.broker if kept else None

    def home_of(self, claim: Claim) -> str | None:
        """The home of a queue or topic; nothing else has one."""
        return self.home(claim.kind.lower(), claim.name)

    def homes(self) -> dict[HomeKey, HomeRecord]:
        """All homes."""
        keys = [
            key for kind in ("queue", "topic", "pattern") for key in self._values.get(f"{self.layout.homes}{kind}/", ())
        ]
        return {self.layout.home_of(key): record for key, record in self._all(keys, HomeRecord)}

    def brokers(self) -> dict[str, BrokerRecord]:
        """The brokers that live."""
        keys = self._values.get(self.layout.brokers, ())
        return {self.layout.broker_of(key): record for key, record in self._all(keys, BrokerRecord)}

    def broker_statuses(self) -> dict[str, BrokerStatus]:
        """What brokers say of themselves, those that are gone too."""
        keys = self._values.get(self.layout.broker_statuses, ())
        return {self.layout.broker_status_of(key): record for key, record in self._all(keys, BrokerStatus)}

    def drains(self) -> dict[str, DrainRecord]:
        """The brokers that are to be emptied."""
        keys = self._values.get(self.layout.drains, ())
        return {self.layout.drain_of(key): record for key, record in self._all(keys, DrainRecord)}

    def below(self, prefix: str) -> list[str]:
        """All keys right below a prefix."""
        return list(self._values.get(prefix, ()))

    def under(self, prefix: str) -> list[str]:
        """All keys below a prefix, however far."""
        return [key for parent, keys in self._values.items() if parent.startswith(prefix) for key in keys]

    def keys_of_broker(self, broker: str) -> list[str]:
        """Everything that a broker wrote of itself and of objects, and that was written for it alone.

        What says that it is to go comes last: who dies halfway through their removal finds the rest to do.
        """
        layout = self.layout
        prefix, found = layout.object_statuses, []
        for parent, keys in self._values.items():
            if parent.startswith(prefix):
                found += [key for key in keys if layout.object_status_of(key).broker == broker]
        return found + [key for key in (layout.broker_status(broker), layout.drain(broker)) if self._find(key)]

    def homes_of(self, broker: str) -> dict[str, int]:
        """The keys of all homes on a broker, with their revisions."""
        found = {}
        for home, record in self.homes().items():
            key = self.layout.home(home.kind, home.name)
            if record.broker == broker and (value := self._find(key)) is not None:
                found[key] = value.revision
        return found

    def __len__(self) -> int:
        return sum(map(len, self._values.values()))

    # What it is told

    def fill(self, event: Event) -> None:
        """What was there before anybody looked: it is no change, and what it concerns is not worked out."""
        if event.current is not None:
            self._put(event.key, event.current.value, event.revision)

    def take(self, event: Event) -> Change | None:
        """What the watch tells of one key; None: that is no news."""
        if event.current is None:
            return self.remove(event.key, event.revision)
        return self.put(event.key, event.current.value, event.revision)

    def put(self, key: str, value: bytes, revision: int) -> Change | None:
        """A key was written; None: that is no news."""
        before = self._owners.get(key)
        if not self._put(key, value, revision):
            return None
        return Change(key, self._claim(key), self._owners.get(key) or before)

    def remove(self, key: str, revision: int) -> Change | None:
        """A key was removed; None: that is no news."""
        known = self._find(key)
        if known is not None and known.revision > revision:
            return None
        # What the watch tells late, of a removal before our own, must not let what came in between rise again.
        self._removed[key] = max(revision, self._removed.get(key, 0))
        if known is None:
            return None
        siblings = self._values[_parent(key)]
        del siblings[key]
        if not siblings:
            del self._values[_parent(key)]
        return Change(key, self._claim(key), self._disown(key))

    def remove_prefix(self, prefix: str, revision: int) -> list[Change]:
        """All keys right below a prefix were removed."""
        keys = list(self._values.get(prefix, ()))
        return [change for key in keys if (change := self.remove(key, revision)) is not None]

    def drop_missing(self, known: Iterable[str], there: Collection[str], revision: int) -> list[Change]:
        """Of these keys only those were there at a revision: the others, if they were not written since, are gone."""
        changes = [self.remove(key, revision) for key in known if key not in there]
        return [change for change in changes if change is not None]

    def catch_up(self, found: Iterable[KeyValue], revision: int) -> list[Change]:
        """These keys were read at a revision; what of them is news.

        One that is not known may have been removed since: that is remembered until the watch has told of it. Where it
        has come further than what was read, such keys are passed over.
        """
        is_latest = revision >= self.revision
        news = [pair for pair in found if is_latest or self._find(pair.key) is not None]
        changes = [self.put(pair.key, pair.value, pair.mod_revision) for pair in news]
        return [change for change in changes if change is not None]

    def come_to(self, revision: int) -> None:
        """The watch has told everything up to here."""
        self.revision = max(self.revision, revision)
        if self._removed:
            self._removed = {key: at for key, at in self._removed.items() if at > self.revision}

    # Inside

    def _put(self, key: str, value: bytes, revision: int) -> bool:
        known = self._find(key)
        if (known is not None and known.revision >= revision) or self._removed.get(key, 0) >= revision:
            return False
        self._removed.pop(key, None)
        self._values.setdefault(_parent(key), {})[key] = _Value(value, revision)
        if known is not None:
            self._disown(key)
        self._own(key, value)
        return True

    def _own(self, key: str, value: bytes) -> None:
        if not key.startswith((self._configs, self._users)):
            return
        claim = self._claim(key)
        if claim is None:
            return
        record: type[ConfigRecord | UserRecord] = UserRecord if key.startswith(self._users) else ConfigRecord
        try:
            owner: Owner = record.decode(key, value).owner
        except RecordError as error:
            log.warning("value in etcd that cannot be read", error=str(error))
            return
        if owner.by == "operator":
            held = self._owners[key] = Key(claim.kind, owner.namespace, owner.name)
            self._owned[held] = (*self._owned.get(held, ()), key)

    def _disown(self, key: str) -> Key | None:
        owner = self._owners.pop(key, None)
        if owner is not None:
            rest = tuple(one for one in self._owned[owner] if one != key)
            if rest:
                self._owned[owner] = rest
            else:
                del self._owned[owner]
        return owner

    def _claim(self, key: str) -> Claim | None:
        layout = self.layout
        try:
            if key.startswith(layout.configs):
                return layout.claim_of(key)
            if key.startswith(layout.object_statuses):
                return layout.object_status_of(key).claim
            if key.startswith(layout.users):
                return Claim(USER, layout.user_of(key))
            if key.startswith(layout.homes):
                home = layout.home_of(key)
                return Claim(home.kind.capitalize(), home.name)
        except KeyLayoutError as error:
            log.warning("key in etcd that is none of ours", error=str(error))
        return None

    def _find(self, key: str) -> _Value | None:
        return self._values.get(_parent(key), {}).get(key)

    def _kept(self, key: str, record: type[R]) -> Kept[R] | None:
        found = self._find(key)
        return None if found is None else Kept(record.decode(key, found.value), found.revision)

    def _readable(self, key: str, record: type[R]) -> Kept[R] | None:
        try:
            return self._kept(key, record)
        except RecordError as error:
            log.warning("value in etcd that cannot be read", error=str(error))
            return None

    def _all(self, keys: Iterable[str], record: type[R]) -> list[tuple[str, R]]:
        return [(key, kept.record) for key in keys if (kept := self._readable(key, record)) is not None]


def _parent(key: str) -> str:
    return key[: key.rindex("/") + 1]
