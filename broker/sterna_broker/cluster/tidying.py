"""Bringing together what belongs together and lives on several brokers: by itself, as far as it is empty and not used.

The ends of a bridge may have got their homes before anybody knew of the bridge, or have been given away by hand. Then
the bridge holds nowhere, and would not for ever. So a broker moves what it has of such a group to where that meets
(`meeting` has the rule, which is the same for all), by the way in which a broker is emptied (`Drain.gather`): a name
is taken out of the engine, which refuses that where a message is, and its home is rewritten on condition that all the
others of its group are where they were. So of two brokers that know different bridges one moves, and looks again.

What holds a message, is being consumed, or is subscribed to durably by clients stays, open as it was, and goes once
that is over; the broker's warnings name it. Producers keep nothing: they are told where their destination lives, and
follow. What cannot go alone, since a bridge leads from it or to it here, goes together with that, or stays; such a
bridge is parted from for as long, and its ends are closed.

Administrators are first. While a broker is being emptied it brings nothing together, nor does anybody move anything to
it; an order that comes in the middle finds what has not gone yet. What `spec.broker` keeps apart stays apart. A home
that is written by hand counts like any other: what is apart by it comes together again, if it is empty.

What has just come apart is somebody's business, mostly that of a broker that has been emptied in part and is about to
send the rest after it: so a name is looked at once it has been apart for a moment.

One name, or what has to go with it, leaves at a time, and no more than a few in a round. One that did not leave is
tried again after a pause, which grows. Where the broker stops, or dies, in between, a name is where etcd says, and what
is left behind of those that have to go together follows: see `draining`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

import structlog
from sterna_etcd import HomeKey

from sterna_broker.cluster.draining import Drain
from sterna_broker.cluster.holding import Uses
from sterna_broker.cluster.homes import Homes
from sterna_broker.cluster.meeting import Apart, apart
from sterna_broker.cluster.upkeep import EngineView
from sterna_broker.configuration.objects import ObjectSet

_log = structlog.get_logger(part="tidying")

# What decides who is apart: other changes are none of ours.
_AREAS = frozenset({"configs", "homes", "brokers", "drains", "deletions"})
# So many are looked at in a round, and so many of these moved.
_LOOKED_AT = 250
_MOVED = 8
# So many times as long as a look took, none follows.
_REST = 20
_SETTLED_S = 2.0
_PAUSE_S = 1.0
_PAUSE_MAX_S = 60.0
_NAMED_MAX = 5


class Tidying:
    """See the module. `apply` tells the engine what lives here, `reopen` undoes what was closed and has not left."""

    def __init__(
        self,
        homes: Homes,
        drain: Drain,
        engine: EngineView,
        apply: Callable[[], Awaitable[None]],
        reopen: Callable[[], Awaitable[None]],
    ) -> None:
        self._homes = homes
        self._drain = drain
        self._engine = engine
        self._apply = apply
        self._reopen = reopen
        self._apart: list[Apart] = []
        self._since: dict[HomeKey, tuple[Apart, float]] = {}
        self._uses: dict[HomeKey, str] = {}
        # Until when one that did not leave is left alone, and for how long.
        self._pauses: dict[HomeKey, tuple[float, float]] = {}
        self._next = 0
        self._next_s = 0.0

    @property
    def warnings(self) -> list[str]:
        """Of the first few that are to go to others, why they do not."""
        found = [(one, use) for one in self._apart if (use := self._uses.get(one.key))]
        return [
            f"{one.key.kind} '{one.key.name}' is to live on {one.place} with what belongs to it, and {use} here"
            for one, use in found[:_NAMED_MAX]
        ]

    async def round(self, objects: ObjectSet, changed: Collection[str]) -> None:
        """Looks at what is apart, and brings some of it together. Nobody has an order to empty this broker."""
        if not _AREAS.isdisjoint(changed):
            view = self._homes.view.copy()
            self._apart = await asyncio.to_thread(apart, view, objects, self._homes.name)
            keys, now_s = {one.key for one in self._apart}, asyncio.get_running_loop().time()
            before = self._since
            self._since = {one.key: (one, _since(one, before.get(one.key), now_s)) for one in self._apart}
            self._uses = {key: use for key, use in self._uses.items() if key in keys}
            self._pauses = {key: pause for key, pause in self._pauses.items() if key in keys}
        if self._apart and not self._drain.has_closed and not self._homes.has_doubts and (due := self._due()):
            await self._move(due, objects)

    def _due(self) -> list[Apart]:
        """Those whose turn it is, that are used by nobody, and can leave as far as can be seen."""
        loop, due, uses = asyncio.get_running_loop(), list[Apart](), Uses(self._homes, self._engine)
        now_s = loop.time()
        if now_s < self._next_s:
            return due
        count = len(self._apart)
        first, self._next = self._next % count, (self._next + _LOOKED_AT) % count
        for one in (self._apart[first:] + self._apart[:first])[:_LOOKED_AT]:
            use = self._uses[one.key] = uses.of(one.key)
            is_settled = now_s - self._since[one.key][1] >= _SETTLED_S
            if not use and is_settled and self._pauses.get(one.key, (0.0, 0.0))[0] <= now_s:
                due.append(one)
        # Of many subscriptions, which are listed for topics, a look takes a while.
        self._next_s = loop.time() + _REST * (loop.time() - now_s)
        return due[:_MOVED]

    async def _move(self, due: list[Apart], objects: ObjectSet) -> None:
        parted, now_s = self._drain.parted, asyncio.get_running_loop().time()
        for one in due:
            # Before anything is tried, which may fail by an error.
            _, before_s = self._pauses.get(one.key, (0.0, 0.0))
            pause_s = min(max(_PAUSE_S, before_s * 2), _PAUSE_MAX_S)
            self._pauses[one.key] = (now_s + pause_s, pause_s)
        await self._drain.gather(due, objects)
        if self._drain.parted != parted:
            # What bridges keep here can leave now that the engine has parted from them.
            await self._apply()
            await self._drain.gather(due, objects)
        await self._reopen()
        for one in due:
            if (home := self._homes.view.home(one.key.kind, one.key.name)) != self._homes.name:
                self._pauses.pop(one.key, None)
                _log.info("brought_together", kind=one.key.kind, name=one.key.name, at=home)


def _since(one: Apart, before: tuple[Apart, float] | None, now_s: float) -> float:
    """Since when a name is to go to a place, and nothing else has happened than that others have come there."""
    if before is None or before[0].place != one.place:
        return now_s
    is_same = all(one.homes.get(key) in (home, one.place) for key, home in before[0].homes.items())
    return before[1] if is_same else now_s
