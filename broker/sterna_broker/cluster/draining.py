"""Emptying this broker, when the operator takes it out of the cluster: everything that lives here gets a new home.

Nothing moves with messages in it. A name whose messages are not consumed yet is closed to producers and waits; an empty
one leaves at once: first it is deleted here (which the engine refuses when a message came in between), while whoever
asks for it waits, then its home is rewritten, then who asks is sent there. What belongs together (a bridge's ends,
patterns and their topics) moves together. A topic with durable subscriptions that clients made stays: they would not
exist at the new home, and miss what is published there.

Forced, homes are rewritten whatever they hold; what is left here stays on this broker's disk.

Where the whole cluster is to go when it is empty, nothing moves: all that lives here is closed, and then counted.
"""

from dataclasses import dataclass

import structlog
from sterna_etcd import HomeKey
from sterna_etcd.records import Draining, DrainRecord

from sterna_broker.cluster.desk import ClusterDesk
from sterna_broker.cluster.homes import GOING, Homes
from sterna_broker.cluster.placement import Groups, bound_to, least_loaded, loads
from sterna_broker.cluster.upkeep import EngineView, messages_of
from sterna_broker.configuration.objects import ObjectSet
from sterna_broker.configuration.patterns import matches
from sterna_broker.refusals import RefusedError

_log = structlog.get_logger(part="drain")

CLOSED = RefusedError(
    "UNAVAILABLE",
    "destination",
    "The destination is being moved to another broker and takes no messages until it is empty.",
    "Send again later; consumers empty it.",
    retryable=True,
)


@dataclass
class _Held:
    """What a name holds: messages, and durable subscriptions of clients."""

    messages: int
    durables: int


class Drain:
    """One step at a time; `left` says what is still here."""

    def __init__(self, homes: Homes, desk: ClusterDesk, engine: EngineView) -> None:
        self._homes = homes
        self._desk = desk
        self._engine = engine
        self._closed: dict[HomeKey, RefusedError] = {}
        self._stays: dict[HomeKey, str] = {}

    def reopen(self) -> None:
        """Nothing is to be emptied any more: what was closed takes messages again."""
        for key in self._closed:
            self._engine.close_to_producers(key, None)
        self._closed.clear()

    async def step(self, objects: ObjectSet, record: DrainRecord) -> Draining:
        """Moves what can be moved now; what is left."""
        view, name, force = self._homes.view, self._homes.name, record.force
        held = self._held()
        self._stays = {}
        if record.closes_only:
            self._close(list(held), GOING)
            held = self._held()
            messages = sum(one.messages for one in held.values())
            return Draining(destinations=len(view.homes_on(name)), messages=messages, is_closed=True)
        if not set(view.open) - {name}:
            # Nowhere to go: what is here stays as it is, and open.
            self.reopen()
            return self._left(held, "no other broker is there to take them")
        groups, seen = Groups(objects), set[HomeKey]()
        for key in view.homes_on(name):
            if key in seen:
                continue
            group = self._group(key, groups)
            seen |= group
            mine = sorted((one for one in group if view.home(one.kind, one.name) == name), key=lambda one: one.name)
            if not force and any(held[one].messages or held[one].durables for one in mine if one in held):
                self._close([one for one in mine if one in held], CLOSED)
                self._stays |= {one: _durables(one, held[one].durables) for one in mine if one in held}
                continue
            await self._move(mine, force=force)
        return self._left(self._held(), "")

    def _left(self, held: dict[HomeKey, _Held], why: str) -> Draining:
        """What is still here, and why; by default the first thing that keeps a destination other than its messages."""
        left = self._homes.view.homes_on(self._homes.name)
        kept = sorted((key.name, text) for key in left if (text := self._stays.get(key)))
        return Draining(
            destinations=len(left),
            messages=sum(held[key].messages for key in left if key in held),
            waits_for=(why or (kept[0][1] if kept else "")) if left else "",
        )

    def _group(self, key: HomeKey, groups: Groups) -> set[HomeKey]:
        """All that has to move with a name, found step by step."""
        view, found, new = self._homes.view, set[HomeKey](), {key}
        while new:
            one = new.pop()
            found.add(one)
            related = set(groups.of(one))
            if one.kind == "topic":
                related |= {k for k in view.homes if k.kind == "pattern" and matches(k.name, one.name)}
            elif one.kind == "pattern":
                related |= {k for k in view.homes if k.kind == "topic" and matches(one.name, k.name)}
            new |= related - found
        return found

    def _held(self) -> dict[HomeKey, _Held]:
        found = {}
        for kind in ("queue", "topic"):
            for name, row in self._engine.rows(kind).items():
                found[HomeKey(kind, name)] = _Held(messages_of(row), 0)
        for row in self._engine.rows("durable").values():
            if row.get("origin") == "static":
                continue
            for key, held in found.items():
                if key.kind == "topic" and matches(str(row.get("topic", "")), key.name):
                    held.durables += 1
        return found

    def _close(self, keys: list[HomeKey], reason: RefusedError) -> None:
        for key in keys:
            if self._closed.get(key) is not reason:
                self._engine.close_to_producers(key, reason)
                self._closed[key] = reason

    async def _move(self, keys: list[HomeKey], *, force: bool) -> None:
        view = self._homes.view
        counts = loads(view)
        counts.pop(self._homes.name, None)
        for key in keys:
            bound = bound_to(view, key) - {self._homes.name}
            target = next(iter(sorted(bound)), None) or least_loaded(counts)
            if target is None:
                return
            counts = {target: counts.get(target, 0)}  # The rest of the group goes along.
            told = self._desk.moved(f"the {key.kind} '{key.name}'", key.name, target)

            def leave(key: HomeKey = key, told: RefusedError = told) -> bool:
                if key.kind == "pattern":
                    return True
                self._stays[key] = self._engine.leave(key, told)
                return not self._stays[key] or force

            if not await self._homes.move(key, target, leave):
                return
            self._closed.pop(key, None)
            _log.info("home_moved", kind=key.kind, name=key.name, to=target)


def _durables(key: HomeKey, count: int) -> str:
    """Why a topic stays that clients subscribe to durably; empty: none does."""
    if not count:
        return ""
    return f"topic '{key.name}' has {count} durable subscription{'' if count == 1 else 's'} that clients made"
