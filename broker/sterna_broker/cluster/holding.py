"""What the names on this broker hold, and which of that nobody can come for here."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sterna_etcd import HomeKey
from sterna_resources import names

from sterna_broker.cluster.homes import Homes
from sterna_broker.cluster.upkeep import EngineView, messages_of
from sterna_broker.configuration.patterns import matches

_Row = dict[str, Any]


@dataclass
class Held:
    """What a name holds: messages, subscriptions, and of these durable ones of clients.

    `number` is the engine's, and never used again; without one there is no destination, only what is subscribed to.
    """

    number: int = 0
    messages: int = 0
    subscriptions: int = 0
    durables: int = 0
    strayed: int = 0
    """Messages besides, which subscriptions to patterns hold that live elsewhere by now. They are had again when those
    are back, and do not wait for anybody here."""

    @classmethod
    def of(cls, row: _Row) -> "Held":
        """What a row of a destination says; of durable subscriptions it does not tell the owners."""
        return cls(int(row["id"]), messages_of(row), int(row["statistics"].get("subscriptions", 0)))


def held_of(homes: Homes, engine: EngineView) -> dict[HomeKey, Held]:
    """What is here, by name: destinations, and patterns that durable subscriptions are to without a topic here."""
    found, pending = dict[HomeKey, Held](), set[HomeKey]()
    for kind in ("queue", "topic"):
        for name, row in engine.rows(kind).items():
            key = HomeKey(kind, name)
            found[key] = Held.of(row)
            if int(row["statistics"].get("pending_messages", 0)):
                pending.add(key)
    topics = {key for key in found if key.kind == "topic"}
    for row in engine.rows("durable").values():
        key = key_of(row)
        hangs_on = {one for one in topics if matches(key.name, one.name)} if key.kind == "pattern" else {key}
        if not hangs_on & topics:
            # What it holds stands in no topic's row.
            found.setdefault(key, Held()).messages += messages_of(row)
            hangs_on = {key}
        elif is_elsewhere(homes, key):
            continue  # It keeps no topic here: whoever made it is sent to where the pattern lives.
        for one in hangs_on:
            found[one].durables += row.get("origin") != "static"
    torn = [key for key in topics - pending if found[key].messages and homes.is_torn(key)]
    rows = [row for row in engine.rows("subscription").values() if messages_of(row)] if torn else []
    for key in torn:
        if _all_stray(homes, key, rows):
            found[key].messages, found[key].strayed = 0, found[key].messages
    return found


def durables_at(homes: Homes, engine: EngineView, key: HomeKey) -> int:
    """How many durable subscriptions of clients keep a name here now: of a topic also those to patterns that match."""
    found = (key_of(row) for row in engine.rows("durable").values() if row.get("origin") != "static")
    return sum(one == key or (_covers(one, key) and not is_elsewhere(homes, one)) for one in found)


def _covers(pattern: HomeKey, topic: HomeKey) -> bool:
    return pattern.kind == "pattern" and topic.kind == "topic" and matches(pattern.name, topic.name)


def key_of(row: _Row) -> HomeKey:
    """What a subscription is to."""
    return HomeKey("pattern" if names.is_pattern(str(row["topic"])) else "topic", str(row["topic"]))


def is_elsewhere(homes: Homes, key: HomeKey) -> bool:
    """Whether a name lives on another broker."""
    return homes.view.home(key.kind, key.name) not in (None, homes.name)


def _all_stray(homes: Homes, topic: HomeKey, rows: Iterable[_Row]) -> bool:
    """Whether what a topic holds is all held by subscriptions to patterns that live elsewhere, and by nobody in person.

    `rows` are those of the subscriptions that hold messages. Who is connected still gets what is there, and follows.
    """
    for row in rows:
        key = key_of(row)
        if key != topic and not (key.kind == "pattern" and matches(key.name, topic.name)):
            continue
        if not is_elsewhere(homes, key) or int(row["statistics"].get("consumers", 0)):
            return False
    return True
