"""What stands in etcd, as this member has seen it last. It is fed by the watch, and by its own transactions.

Nothing here decides anything or touches etcd. A value that cannot be read is left as it was before, and named among
`faults`: a mistake in one key must not take anything else away.
"""

from dataclasses import dataclass, field
from typing import Any

from sterna_etcd import Batch, Claim, Event, HomeKey, KeyLayoutError, KeyValue, Layout
from sterna_etcd.records import BrokerRecord, ConfigRecord, DrainRecord, HomeRecord, Record, RecordError, UserRecord

from sterna_broker.configuration.patterns import PatternIndex


@dataclass(frozen=True)
class Stored:
    """A record with the revisions of its key."""

    record: Any
    revision: int
    created: int


@dataclass
class View:
    """All records by what they are of; `changed` names the areas that changed since it was last emptied."""

    layout: Layout
    revision: int = 0
    configs: dict[Claim, Stored] = field(default_factory=dict)
    homes: dict[HomeKey, Stored] = field(default_factory=dict)
    brokers: dict[str, Stored] = field(default_factory=dict)
    drains: dict[str, Stored] = field(default_factory=dict)
    users: dict[str, Stored] = field(default_factory=dict)
    addresses: dict[str, list[str]] = field(default_factory=dict)
    """Of every broker that was ever seen: one that is away for a moment comes back where it was."""
    faults: dict[str, str] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    _patterns: list[tuple[str, str]] | None = field(default=None, init=False, repr=False)
    _index: PatternIndex[str] | None = field(default=None, init=False, repr=False)

    def take(self, batch: Batch) -> None:
        """What the watch has told."""
        for event in batch.events:
            self._take_event(event)
        self.revision = max(self.revision, batch.revision)

    def note_home(self, key: HomeKey, record: HomeRecord | None, revision: int) -> None:
        """What our own transaction has written; the watch will tell the same, later."""
        known = self.homes.get(key)
        if known is not None and known.revision > revision:
            return
        if record is None:
            self.homes.pop(key, None)
        else:
            self.homes[key] = Stored(record, revision, known.created if known else revision)
        self._note_pattern(key)
        self.changed.add("homes")

    def keys(self) -> dict[str, int]:
        """Every key that is known, with its revision."""
        layout = self.layout
        found = {layout.config(claim): stored.revision for claim, stored in self.configs.items()}
        found |= {layout.home(key.kind, key.name): stored.revision for key, stored in self.homes.items()}
        found |= {layout.broker(name): stored.revision for name, stored in self.brokers.items()}
        found |= {layout.drain(name): stored.revision for name, stored in self.drains.items()}
        found |= {layout.user(name): stored.revision for name, stored in self.users.items()}
        return found

    def copy(self) -> "View":
        """As it is now, for a thread; records are never changed, only replaced."""
        return View(
            self.layout,
            self.revision,
            dict(self.configs),
            dict(self.homes),
            dict(self.brokers),
            dict(self.drains),
            dict(self.users),
            dict(self.addresses),
        )

    @property
    def live(self) -> list[str]:
        """The brokers that live, by name."""
        return sorted(self.brokers)

    @property
    def open(self) -> list[str]:
        """The brokers that live and are not being emptied, by name."""
        return [name for name in self.live if name not in self.drains]

    @property
    def is_going(self) -> bool:
        """Whether the whole cluster is to go, as it holds no message."""
        return any(stored.record.closes_only for stored in self.drains.values())

    def home(self, kind: str, name: str) -> str | None:
        """The broker that a destination or pattern lives on."""
        stored = self.homes.get(HomeKey(kind, name))
        return stored.record.broker if stored else None

    @property
    def patterns(self) -> list[tuple[str, str]]:
        """The patterns that somebody subscribes to, each with its broker: a few, which are asked for often."""
        if self._patterns is None:
            homes = self.homes.items()
            self._patterns = [(key.name, stored.record.broker) for key, stored in homes if key.kind == "pattern"]
        return self._patterns

    @property
    def pattern_index(self) -> PatternIndex[str]:
        """The same, found by a topic that they match; never changed, only replaced: a thread may have it."""
        if self._index is None:
            self._index = PatternIndex(self.patterns)
        return self._index

    def homes_on(self, broker: str) -> list[HomeKey]:
        """All that lives on a broker."""
        return [key for key, stored in self.homes.items() if stored.record.broker == broker]

    def _note_pattern(self, key: HomeKey) -> None:
        if key.kind == "pattern":
            self._patterns = self._index = None

    def _take_event(self, event: Event) -> None:
        layout, key = self.layout, event.key
        try:
            if key.startswith(layout.configs):
                self._set("configs", self.configs, layout.claim_of(key), ConfigRecord, event)
            elif key.startswith(layout.homes):
                home = layout.home_of(key)
                self._set("homes", self.homes, home, HomeRecord, event)
                self._note_pattern(home)
            elif key.startswith(layout.drains):
                self._set("drains", self.drains, layout.drain_of(key), DrainRecord, event)
            elif key.startswith(layout.users):
                self._set("users", self.users, layout.user_of(key), UserRecord, event)
            elif key.startswith(layout.brokers):
                name = layout.broker_of(key)
                self._set("brokers", self.brokers, name, BrokerRecord, event)
                if name in self.brokers:
                    self.addresses[name] = self.brokers[name].record.addresses
        except (KeyLayoutError, RecordError) as error:
            self.faults[key] = str(error)
            if key.startswith(layout.configs):
                # It says nothing, and has been looked at: who opens a name compares what there is with what was.
                self.changed.add("configs")
        else:
            self.faults.pop(key, None)

    def _set(self, area: str, where: dict[Any, Stored], name: Any, kind: type[Record], event: Event) -> None:
        known, current = where.get(name), event.current
        if current is None:
            if known is not None and known.revision > event.revision:
                # Written again since, by our own transaction (`note_home`): the watch is behind.
                return
            if where.pop(name, None) is not None:
                self.changed.add(area)
            return
        if known is not None and known.revision >= current.mod_revision:
            return
        where[name] = stored_of(kind, current)
        self.changed.add(area)


def stored_of(kind: type[Record], pair: KeyValue) -> Stored:
    """A record of etcd with its revisions.

    Raises:
        RecordError: it cannot be read.
    """
    return Stored(kind.decode(pair.key, pair.value), pair.mod_revision, pair.create_revision)
