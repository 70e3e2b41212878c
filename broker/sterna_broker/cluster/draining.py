"""Emptying this broker, when the operator takes it out of the cluster: everything that lives here gets a new home.

Nothing moves with messages in it. A name whose messages are not consumed yet is closed to producers and waits; an empty
one leaves at once: first it is deleted here (which the engine refuses when a message came in between), while whoever
asks for it waits, then its home is rewritten, then who asks is sent there. What belongs together (a bridge's ends,
patterns and their topics) moves together. A topic with durable subscriptions that clients made stays: they would not
exist at the new home, and miss what is published there.

Who subscribes to a topic is told when it has moved, and follows; what is published at the new home before a
subscription that is not durable has come there is not for it, as after any interruption.

The source of a bridge cannot leave while the bridge holds: once the group is empty and closed the bridge is parted
from (`parted`, which the engine's configuration leaves out, but for the targets), then all go, the sources last. Nobody
sends to a source meanwhile, so that no copy is missed: one that nobody has opened yet may not be opened (`held_back`),
and one that a change of the configuration makes is closed at once (`shut`).

What the broker has for itself, such as `$sys.undelivered`, has no home and goes nowhere: it is consumed here, and
until then keeps the broker as any other message does.

Of what belongs together some may have gone, or be in doubt, when the order is taken back: the rest (`_behind`) takes
nothing and follows all the same, since what is sent to it would miss what hangs on the others at their new home. Where
etcd does not say whether it has taken a name, no other one is begun with: one is closed for as long, and not all.

Forced, homes are rewritten whatever they hold; what is left here stays on this broker's disk.

Where the whole cluster is to go when it is empty, nothing moves: all that lives here is closed, and then counted.
"""

import asyncio
from collections.abc import Iterable

import structlog
from sterna_etcd import Claim, HomeKey
from sterna_etcd.records import Draining, DrainRecord
from sterna_resources import names
from sterna_resources.bridge import Bridge

from sterna_broker.cluster.desk import ClusterDesk
from sterna_broker.cluster.holding import Held, durables_at, held_of, is_elsewhere
from sterna_broker.cluster.homes import GOING, Homes
from sterna_broker.cluster.left_behind import LeftBehind
from sterna_broker.cluster.placement import Groups, bound_to, least_loaded, led_away, loads
from sterna_broker.cluster.upkeep import EngineView, messages_of
from sterna_broker.configuration.objects import ObjectSet
from sterna_broker.configuration.patterns import matches, overlap
from sterna_broker.refusals import RefusedError

_log = structlog.get_logger(part="drain")

# So many names are told of before others have a turn.
_PAUSE_EVERY = 250
_NAMED_MAX = 5

CLOSED = RefusedError(
    "UNAVAILABLE",
    "destination",
    "The destination is being moved to another broker and takes no messages until it is empty.",
    "Send again later; consumers empty it.",
    retryable=True,
)


class Drain:
    """One step at a time; `left` says what is still here."""

    def __init__(
        self, homes: Homes, desk: ClusterDesk, engine: EngineView, left_behind: LeftBehind | None = None
    ) -> None:
        self._homes = homes
        self._left_behind = left_behind or LeftBehind()
        self._desk = desk
        self._engine = engine
        self._closed: dict[HomeKey, tuple[int, RefusedError]] = {}
        self._stays: dict[HomeKey, str] = {}
        self.parted: frozenset[Claim] = frozenset()
        """The bridges that hold here no more, although their ends are still here."""

        self._shut: dict[HomeKey, asyncio.Event] = {}
        self._behind: set[HomeKey] = set()

    @property
    def has_closed(self) -> bool:
        """Whether anything takes no messages because of this."""
        return bool(self._closed or self._shut or self._behind)

    @property
    def warnings(self) -> list[str]:
        """Of the first few that wait to follow others, why they do."""
        behind = sorted((key for key in self._behind if self._is_here(key)), key=_by_name)
        what = "takes no messages until it has followed to another broker what belongs to it"
        return [
            f"{key.kind} '{key.name}' {what}" + (f": {why}" if (why := self._stays.get(key)) else "")
            for key in behind[:_NAMED_MAX]
        ]

    def hold_again(self, objects: ObjectSet) -> None:
        """Bridges hold again, but for those whose sources are about to follow others."""
        sources = _sources(objects)
        self.parted &= {claim for key in self._behind for claim in sources.get(key, ())}

    def reopen(self) -> None:
        """What was closed takes messages again, but for what is about to follow others. Before, bridges hold again.

        Not if meanwhile the cluster is to go once more: what was said of the order before may be believed of this one.
        """
        if self._goes():
            return
        self._open([key for key in (*self._closed, *self._shut) if key not in self._behind])

    def _goes(self) -> bool:
        """Whether the whole cluster is to go."""
        return (order := self._order()) is not None and order.closes_only

    def _open(self, keys: Iterable[HomeKey]) -> None:
        for key in keys:
            if self._closed.pop(key, None) is not None:
                self._engine.close_to_producers(key, None)
            if (shut := self._shut.pop(key, None)) is not None:
                shut.set()

    def held_back(self, key: HomeKey) -> asyncio.Event | None:
        """What comes when a destination that is not here may be made again: before, its bridges would miss copies."""
        return self._shut.get(key)

    def shut(self) -> None:
        """Closes what is held back, whatever has made it since: mostly sources of bridges that are parted from.

        Where the whole cluster is to go, all that has been made: it has been said that nothing is taken any more.
        """
        if self._goes():
            self.close()
        for key in self._shut:
            if (row := self._engine.row(key)) is not None:
                self._close({key: Held.of(row)}, CLOSED)

    def _hold_back(self, keys: Iterable[HomeKey]) -> None:
        self._shut |= {key: asyncio.Event() for key in keys if key not in self._shut}

    def close(self) -> None:
        """Closes all that is here: the whole cluster is to go."""
        held = held_of(self._homes, self._engine)
        self._closed = {key: known for key, known in self._closed.items() if key in held}
        self._close(held, GOING)

    async def step(self, objects: ObjectSet, record: DrainRecord) -> Draining:
        """Moves what can be moved now; what is left."""
        view, name, force = self._homes.view, self._homes.name, record.force
        self._stays = {}
        if record.closes_only:
            self.close()
            # Nothing has come in between: nobody else has had a turn since they were closed.
            messages = self._engine.messages()
            return Draining(destinations=len(view.homes_on(name)), messages=messages, is_closed=True)
        held = held_of(self._homes, self._engine)
        if not set(view.open) - {name}:
            # Nowhere to go: what is here stays as it is, and open; first of all its bridges hold again.
            await self._empty(sorted(self._behind, key=_by_name), objects, record, is_following=True)
            parted = self.parted
            self.hold_again(objects)
            if self.parted == parted:
                self.reopen()
            return self._left(held, "no other broker is there to take them", force=force)
        await self._empty(view.homes_on(name), objects, record)
        return self._left(held_of(self._homes, self._engine), "", force=force)

    async def look(self) -> None:
        """Closes and notes topics here of which a pattern that matches lives elsewhere, whatever has parted them.

        Nobody claims them so: two brokers were emptied at once, or one was started anew in between.
        """
        view, name = self._homes.view, self._homes.name
        if any(broker != name for _, broker in view.patterns):
            self._note_torn(await asyncio.to_thread(led_away, view.copy(), name))

    def look_at_once(self) -> None:
        """The same, before anybody can come in between: at a start, when nobody is connected.

        What may have been left behind is closed, too, until it is known to be together: not by what this broker knew
        when etcd was there, but by etcd.
        """
        self._note_torn(self._homes.view.homes_on(self._homes.name))
        left = sorted(self._left_behind.names, key=_by_name)
        self._behind |= set(left)
        self._hold_back(key for key in left if key.kind != "pattern")
        self._close_rest(left, {})

    def close_led_away(self, found: list[HomeKey]) -> None:
        """Closes and notes these topics, whose patterns the engine is about to be told to live elsewhere.

        Whatever has become of that by now: what is subscribed to the patterns goes, or stays away until the next round.
        """
        left = [key for key in found if self._is_here(key)]
        self._behind |= set(left)
        self._close_rest(left, {})

    def _note_torn(self, found: list[HomeKey]) -> None:
        """Those of these that are: others may have had a turn since they were found."""
        self.close_led_away([key for key in found if self._homes.is_torn(key)])

    async def follow(self, objects: ObjectSet) -> None:
        """The order has been taken back: only what others of its group have left behind goes, too."""
        self._stays = {}
        await self._empty(sorted(self._behind, key=_by_name), objects, None, is_following=True)

    def _is_here(self, key: HomeKey) -> bool:
        return self._homes.view.home(key.kind, key.name) == self._homes.name

    async def _empty(
        self, keys: list[HomeKey], objects: ObjectSet, record: DrainRecord | None, *, is_following: bool = False
    ) -> None:
        """Moves the groups of these names; if `is_following` those of which some have gone, or may have.

        `record` is the order; None: there is none any more.
        """
        view, name, force = self._homes.view, self._homes.name, record is not None and record.force
        groups, sources, seen = await asyncio.to_thread(Groups, objects), _sources(objects), set[HomeKey]()
        held = held_of(self._homes, self._engine)
        for key in [key for key in self._shut if view.home(key.kind, key.name) not in (None, name)]:
            # It was in doubt when its turn came, or somebody else has given it away.
            self._shut.pop(key).set()
        self._behind = {key for key in self._behind if self._is_here(key)}
        for key in keys:
            await asyncio.sleep(0)  # Looking for what belongs together takes a while; what follows is looked at anew.
            if self._order() != record:
                break  # Somebody has thought better of it, or wants it otherwise.
            if key in seen or not self._is_here(key):
                continue
            group = self._group(key, groups)
            seen |= group
            in_doubt = any(self._homes.is_leaving(one) for one in group)
            if not in_doubt and all(view.home(one.kind, one.name) in (None, name) for one in group):
                self._behind -= group  # Nothing has gone.
                if is_following:
                    continue
            mine = sorted((one for one in group if self._is_here(one)), key=_by_name)
            here = {one: held[one] for one in mine if one in held}
            if not force and any(one.messages or one.durables for one in here.values()):
                self._close(here, CLOSED)
                self._stays |= {key: _durables(key, one.durables) for key, one in here.items()}
                continue
            if self._homes.has_doubts and not in_doubt:
                continue  # Nobody knows how long that lasts, and what has left is open nowhere.
            bridges = {claim for one in mine for claim in sources.get(one, ())}
            if bridges and not force:
                self._close(here, CLOSED)
                if bridges - self.parted:
                    self.parted |= bridges
                    self._hold_back(one for one in mine if one in sources)
                    self.shut()
                    continue
            if len(group) > 1 and not await self._left_behind.note(self._behind.union(mine)) and not force:
                self._stays |= {key: f"{key.kind} '{key.name}' waits for room in the data folder" for key in mine}
                continue
            if self._order() != record:
                break
            if {one for one in group if self._is_here(one)} != set(mine):
                continue  # One has come while that was written down, and would be left here alone: looked at anew.
            mine.sort(key=lambda one: (one.kind != "pattern", one in sources))
            together = self._gathers_at(group)
            if together == name and not force:
                self._behind |= set(mine)
                self._close_rest(mine, held)
                self._stays |= {key: f"{key.kind} '{key.name}' waits for what is to live with it" for key in mine}
                continue
            others = {one: home for one in group if (home := view.home(one.kind, one.name)) != name}
            await self._move(mine, held, "" if together == name else together, others, force=force)
        await self._left_behind.forget_all_but(self._behind)
        if not is_following:
            await self._send_after()

    def _order(self) -> DrainRecord | None:
        standing = self._homes.view.drains.get(self._homes.name)
        return standing.record if standing is not None else None

    def _gathers_at(self, group: set[HomeKey]) -> str:
        """Where a group comes together that is on several brokers; empty: all of it is here.

        Where others of it are, unless those brokers are being emptied: from there they come here, or where all are
        being emptied to the first of them by name, which passes the whole group on. Apart, bridges would copy nothing;
        and two that each went to the other would miss each other again and again.
        """
        view, name = self._homes.view, self._homes.name
        homes = {self._homes.goes_to(one) or view.home(one.kind, one.name) or name for one in group}
        if homes == {name}:
            return ""
        standing = homes - view.drains.keys()
        return min(standing - {name} or standing or homes)

    def _left(self, held: dict[HomeKey, Held], why: str, *, force: bool) -> Draining:
        """What is still here, and why; by default the first thing that keeps a destination other than its messages.

        The broker's own destinations count while they hold messages, and so do those that live elsewhere by now;
        whoever forces it lets go of these, too.
        """
        left = self._homes.view.homes_on(self._homes.name)
        stray = [] if force else sorted((key for key in held if self._is_stray(key, held[key])), key=_by_name)
        own = [] if force else sorted((key for key in held if self._is_own(key, held[key])), key=_by_name)
        kept = sorted((key.name, text) for key in left if (text := self._stays.get(key)))
        reasons = [why] if why and left else [text for _, text in kept]
        reasons += [_own(key, held[key].messages) for key in own]
        reasons += [_strayed(key, held[key].messages) for key in stray]
        return Draining(
            destinations=len(left) + len(own) + len(stray),
            messages=sum(held[key].messages for key in [*left, *own, *stray] if key in held),
            waits_for=reasons[0] if reasons else "",
        )

    def _is_own(self, key: HomeKey, held: Held) -> bool:
        """Whether messages are here that can only be had here: of a destination that no broker is the home of.

        Temporary destinations have none either, and keep nobody: they go with the connections that made them.
        """
        is_homeless = self._homes.view.home(key.kind, key.name) is None
        return held.messages > 0 and is_homeless and not key.name.startswith(names.TEMPORARY_PREFIX)

    def _is_stray(self, key: HomeKey, held: Held) -> bool:
        """Whether messages are here of what lives on another broker: see `served`."""
        return held.messages > 0 and is_elsewhere(self._homes, key)

    def _group(self, key: HomeKey, groups: Groups) -> set[HomeKey]:
        """All that has to move with a name, found step by step."""
        view, found, new = self._homes.view, set[HomeKey](), {key}
        others = {one for one in view.homes if one.kind != "queue"}
        while new:
            one = new.pop()
            found.add(one)
            related = set(groups.of(one))
            if one.kind == "topic":
                related |= {HomeKey("pattern", pattern) for pattern, _ in view.pattern_index.matching(one.name)}
            elif one.kind == "pattern":
                # A pattern that overlaps, too: on another broker, what both match could be opened nowhere.
                related |= {other for other in others if overlap(one.name, other.name)}
            others -= related
            new |= related - found
        return found

    def _close(self, held: dict[HomeKey, Held], reason: RefusedError) -> None:
        """Closes what is not closed yet. What was deleted and made again is open, and has another number."""
        for key, one in held.items():
            if not one.number:
                continue  # There is no such destination: nobody can send to it.
            wanted = (one.number, reason)
            if self._closed.get(key) != wanted:
                self._engine.close_to_producers(key, reason)
                self._closed[key] = wanted

    def _has_come(self, key: HomeKey, held: dict[HomeKey, Held]) -> str:
        """Who has come to a topic since we looked: the engine minds durable subscriptions alone. Empty: nobody."""
        row = self._engine.row(key) if key.kind == "topic" else None
        if row is None:
            return ""
        now, before = Held.of(row), held.get(key, Held())
        if now.messages > before.strayed or now.subscriptions > before.subscriptions:
            return _in_use(key)
        # Whoever has come as another one went is not more than there were; only who subscribes durably is to stay.
        return _durables(key, durables_at(self._homes, self._engine, key)) if now.subscriptions else ""

    async def _move(
        self,
        keys: list[HomeKey],
        held: dict[HomeKey, Held],
        together: str,
        others: dict[HomeKey, str | None],
        *,
        force: bool,
    ) -> None:
        """Gives keys of one group a new home, in this order; `together`: where others of the group live already.

        `others`: where the rest of the group was when this was chosen. Once it is elsewhere, or has a home, it is
        chosen anew.

        Patterns are the first: from then on what hangs on them holds at the new home before a topic can be opened
        there. What matches takes nothing from before that: nobody would come for it here any more. If one of the group
        has to stay, so do those behind it, and take nothing until they can follow.
        """
        view = self._homes.view
        counts = loads(view)
        counts.pop(self._homes.name, None)
        closed = {*self._closed, *self._shut}
        if not force and keys[0].kind == "pattern":
            self._close_rest(keys, held)
        for number, key in enumerate(keys):
            target = together or min(bound_to(view, key) - {self._homes.name}, default=None) or least_loaded(counts)
            if target is None:
                return
            counts = {target: counts.get(target, 0)}  # The rest of the group goes along.
            told = self._desk.moved(f"the {key.kind} '{key.name}'", key.name, target)

            def leave(key: HomeKey = key, told: RefusedError = told) -> bool:
                if any(view.home(one.kind, one.name) != home for one, home in others.items()):
                    self._stays[key] = f"{key.kind} '{key.name}' waits for what has just moved"
                    return False
                if key.kind == "pattern":
                    self._stays[key] = "" if force else self._keeps(key, keys)
                    return not self._stays[key]
                if not force and (why := self._has_come(key, held)):
                    self._stays[key] = why
                    return False
                self._stays[key] = self._engine.leave(key, told)
                if self._stays[key] and key in held and not force:
                    # What came since we looked, or waits for the end of a transaction: no more may follow it.
                    self._close({key: held[key]}, CLOSED)
                return not self._stays[key] or force

            is_begun = number > 0 or key in self._behind
            if not await self._homes.move(key, target, leave, is_bound=is_begun and not force):
                # Where nothing has left because etcd is away, nothing is different from before. Where nobody knows,
                # what comes behind takes nothing: what has gone might miss it.
                if is_begun or self._homes.is_leaving(key):
                    self._behind |= set(keys[number:])
                if not force and (key in self._behind or self._stays.get(key)):
                    self._close_rest(keys[number:], held)
                elif not force:
                    self._open(one for one in keys[number:] if one not in closed)
                return
            self._behind.discard(key)
            self._closed.pop(key, None)
            if (shut := self._shut.pop(key, None)) is not None:
                shut.set()
            _log.info("home_moved", kind=key.kind, name=key.name, to=target)

    def _keeps(self, pattern: HomeKey, group: list[HomeKey]) -> str:
        """Why a pattern has to stay: durable subscriptions of clients, or what has come to topics meanwhile."""
        view, name = self._homes.view, pattern.name
        if why := _durables(pattern, durables_at(self._homes, self._engine, pattern)):
            return why
        topics = [key for key in view.homes_on(self._homes.name) if key.kind == "topic" and matches(name, key.name)]
        used = (key for key in topics if key not in group or messages_of(self._engine.row(key)))
        return next((_in_use(key) for key in used), "")

    def _close_rest(self, keys: list[HomeKey], held: dict[HomeKey, Held]) -> None:
        """Closes what has to wait for its turn although others of its group have gone, and what is not here yet."""
        self._hold_back(key for key in keys if key.kind == "topic" and self._engine.row(key) is None)
        for key in keys:
            known = held.get(key)
            if known is None and key.kind != "pattern" and (row := self._engine.row(key)) is not None:
                known = Held.of(row)  # It has come since we looked.
            if known is not None:
                self._close({key: known}, CLOSED)

    async def _send_after(self) -> None:
        """Tells whoever subscribes here to what lives elsewhere by now where that is, once they have got everything."""
        view, told = self._homes.view, set[str]()
        for row in self._engine.rows("subscription").values():
            name = str(row["topic"])
            kind = "pattern" if names.is_pattern(name) else "topic"
            home = view.home(kind, name)
            is_done = int(row["statistics"].get("consumers", 0)) > 0 and not messages_of(row)
            if name in told or not is_done or home in (None, self._homes.name):
                continue
            told.add(name)
            self._engine.close_subscribers(name, self._desk.moved(f"the {kind} '{name}'", name, home))
            if len(told) % _PAUSE_EVERY == 0:
                await asyncio.sleep(0)


def _sources(objects: ObjectSet) -> dict[HomeKey, set[Claim]]:
    """The bridges, by their sources."""
    found: dict[HomeKey, set[Claim]] = {}
    for key, entry in objects.entries.items():
        if isinstance(entry.resource, Bridge):
            found.setdefault(HomeKey(*entry.resource.spec.source.destination), set()).add(Claim(*key))
    return found


def _own(key: HomeKey, messages: int) -> str:
    """What a destination that moves nowhere still has."""
    return f"{key.kind} '{key.name}' holds {messages} message{'' if messages == 1 else 's'} of its own"


def _strayed(key: HomeKey, messages: int) -> str:
    """What is here of a destination that lives elsewhere."""
    return f"{key.kind} '{key.name}' lives on another broker, and {messages} of its messages are here"


def _in_use(key: HomeKey) -> str:
    """Why a topic stays that somebody has come to."""
    return f"{key.kind} '{key.name}' was in use just now, and is looked at once more"


def _by_name(key: HomeKey) -> tuple[str, str]:
    return key.name, key.kind


def _durables(key: HomeKey, count: int) -> str:
    """Why a topic stays that clients subscribe to durably; empty: none does."""
    if not count:
        return ""
    return f"{key.kind} '{key.name}' has {count} durable subscription{'' if count == 1 else 's'} that clients made"
