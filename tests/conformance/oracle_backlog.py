"""One backlog as an EMS user may see it: a queue, or one subscription to a topic. Part of the oracle (`oracle.py`).

A backlog is a list of items in the order of their arrival. Where more than one thing may be true of an item it says all
of them: `marks` are the pairs of redelivered flag and delivery count with which it may come next, and a `Fate` is a
question whose answer is seen later (did the send take effect that nobody answered?). What is seen is compared with all
that is allowed, and what it answers is known from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, TypeAlias

#: The redelivered flag and the delivery count (EMS-MSG-A20).
Marks: TypeAlias = tuple[bool, int]
FIRST: Marks = (False, 1)


def _equals(draft: Draft) -> bool:
    return draft.properties.get("colour") == "red"


def _differs(draft: Draft) -> bool:
    return draft.properties.get("colour") not in (None, "red")  # of NULL nothing is known (EMS-CLI-A14)


#: The selectors that the oracle knows, and what they match (EMS-CLI-A10, A14 to A18).
SELECTORS: dict[str, Callable[[Draft], bool]] = {
    "": lambda _: True,
    "colour = 'red'": _equals,
    "colour <> 'red'": _differs,
    "NOT (colour = 'red')": _differs,
    "colour IS NULL": lambda draft: "colour" not in draft.properties,
    "colour IN ('blue', 'green')": lambda draft: draft.properties.get("colour") in ("blue", "green"),
    "colour LIKE '%e_'": lambda draft: draft.properties.get("colour") in ("red", "green"),
    "number BETWEEN 2 AND 4": lambda draft: 2 <= draft.properties["number"] <= 4,
    "number * 2 > 6 AND JMSPriority >= 4": lambda draft: draft.properties["number"] > 3 and draft.priority >= 4,
}


@dataclass(frozen=True)
class Draft:
    """A message as its sender has it."""

    body: str
    priority: int = 4
    #: PERSISTENT, NON_PERSISTENT or RELIABLE (EMS-MSG-A17 to A19).
    mode: str = "PERSISTENT"
    #: "", "short" (over before anybody looks) or "long" (longer than anybody looks).
    time_to_live: str = ""
    #: JMS_TIBCO_PRESERVE_UNDELIVERED (EMS-MSG-A08).
    preserves: bool = False
    properties: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """A message as somebody sees it, who receives it or looks."""

    body: str
    priority: int
    redelivered: bool
    count: int
    expires: bool

    @property
    def marks(self) -> Marks:
        """Flag and count."""
        return self.redelivered, self.count


@dataclass(eq=False)
class Fate:
    """A question that is open until somebody looks: did it happen?"""

    why: str


@dataclass(eq=False)
class Item:
    """A message in a backlog."""

    draft: Draft
    number: int
    #: Of a transaction's: its number had it not waited for the commit, which may be its place as well.
    number_at_send: int = 0
    marks: frozenset[Marks] = frozenset({FIRST})
    #: Whether an application has it in hand, and it is neither acknowledged nor given back.
    is_held: bool = False
    #: The session that acknowledged it lazily, so that it may be there still.
    leaves_with: Any = None
    #: If there is one, the item is there if and only if this happened, or did not.
    fate: Fate | None = None
    there_if: bool = True
    #: Between which steps it became free to be fetched.
    free_from: int = 0
    free_until: int = 0

    def is_before(self, other: Item) -> bool:
        """Whether it surely stands before the other: by priority, and as they arrived within each (EMS-MSG-A15)."""
        if self.draft.priority != other.draft.priority:
            return self.draft.priority > other.draft.priority
        return self.number < (other.number_at_send or other.number)

    @property
    def is_leaving(self) -> bool:
        """Whether it is acknowledged, and perhaps there still."""
        return self.leaves_with is not None

    @property
    def is_certain(self) -> bool:
        """Whether it has to be seen by whoever looks."""
        return self.fate is None and not self.is_leaving


@dataclass(eq=False)
class Consumer:
    """Somebody who receives from a backlog."""

    session: Any
    backlog: Backlog
    selector: str
    #: How many it may fetch ahead; 0: none but at a receive (EMS-DEST-A26).
    prefetch: int
    opened: int = 0

    def wants(self, item: Item) -> bool:
        """Whether its selector matches."""
        return SELECTORS[self.selector](item.draft)


@dataclass(frozen=True)
class Properties:
    """Of a destination."""

    maxmsgs: int = 0
    maxbytes: int = 0
    overflow: str = "default"
    max_redelivery: int = 0
    exclusive: bool = False
    #: Whether the destination has an expiration of its own, which is long (EMS-DEST-A14).
    expiration: bool = False

    @property
    def is_limited(self) -> bool:
        """Whether it can be full."""
        return bool(self.maxmsgs or self.maxbytes)


@dataclass(eq=False)
class Backlog:
    """The items of a queue or of a subscription, in the order of their arrival, and who receives from it."""

    name: str
    properties: Properties = Properties()
    is_queue: bool = True
    #: Durable subscriptions are there without a consumer and after a restart (EMS-CLI-A01, A02); queues as well.
    is_durable: bool = True
    selector: str = ""
    items: list[Item] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)
    #: Of an exclusive queue: who may be the one that is served (EMS-DEST-A12).
    active: list[Consumer] = field(default_factory=list)
    #: Whether it is `$sys.undelivered`, whose order and marks are nobody's business.
    keeps_undelivered: bool = False

    # --- What may be seen

    def in_order(self) -> list[Item]:
        """By priority, and as they arrived within each (EMS-MSG-A15); what comes again has its old place."""
        return sorted(self.items, key=lambda item: (-item.draft.priority, item.number))

    def disagreements(self, view: list[Seen], selector: str = "") -> list[str]:
        """What somebody who looks must not see, or misses."""
        known = {item.draft.body: item for item in self.in_order() if SELECTORS[selector](item.draft)}
        bodies = [seen.body for seen in view]
        wrong = [f"{body[:6]} is missing" for body, item in known.items() if item.is_certain and body not in bodies]
        wrong += [f"{body[:6]} must not be there" for body in bodies if body not in known]
        wrong += [f"{body[:6]} is there twice" for body in set(bodies) if bodies.count(body) > 1]
        there = [seen for seen in view if seen.body in known]
        if not self.keeps_undelivered:
            wrong += [text for seen in there for text in self.wrong_about(known[seen.body], seen)]
            if not wrong and any(known[later].is_before(known[one]) for one, later in combinations(bodies, 2)):
                wrong.append(f"the order is {[body[:6] for body in bodies]}, not {[body[:6] for body in known]}")
        return [f"{self.name}: {text}" for text in wrong]

    def wrong_about(self, item: Item, seen: Seen) -> list[str]:
        """In what it is seen otherwise than it may."""
        wrong = []
        if seen.marks not in item.marks:
            wrong.append(f"{seen.body[:6]} has flag and count {seen.marks}, not of {sorted(item.marks)}")
        if seen.priority != item.draft.priority:
            wrong.append(f"{seen.body[:6]} has priority {seen.priority}, not {item.draft.priority}")
        # With an expiration of the destination's the header says 0 (EMS-MSG-A04).
        expires = bool(item.draft.time_to_live) and not self.properties.expiration
        if seen.expires != expires:
            wrong.append(f"{seen.body[:6]} says {'that it expires' if seen.expires else 'nothing of its end'}")
        return wrong

    def learn(self, view: list[Seen]) -> None:
        """Takes over what is seen where more than that was allowed."""
        seen_by_body = {seen.body: seen for seen in view}
        for item in list(self.items):
            seen = seen_by_body.get(item.draft.body)
            if seen is None:
                self.items.remove(item)
            elif not self.keeps_undelivered:
                item.marks = frozenset({seen.marks})
            item.fate = None
        places = {seen.body: place for place, seen in enumerate(view)}
        if not self.keeps_undelivered and any(item.number_at_send for item in self.items):
            for priority in {item.draft.priority for item in self.items}:
                alike = [item for item in self.items if item.draft.priority == priority]
                taken = sorted(item.number for item in alike)
                for item, number in zip(sorted(alike, key=lambda one: places[one.draft.body]), taken, strict=True):
                    item.number, item.number_at_send = number, 0

    def counts(self) -> tuple[int, int]:
        """How many items there are at least, and at most."""
        return sum(item.is_certain for item in self.items), len(self.items)

    def handed(self) -> tuple[int, int]:
        """How many consumers have at least, and at most: of those in hand, and fetched besides."""
        held = sum(item.is_held and item.is_certain for item in self.items)
        return held, min(len(self.items), held + sum(item.is_leaving for item in self.items) + self.room_ahead())

    def room_ahead(self, *, but: Consumer | None = None) -> int:
        """How many items its consumers may have fetched."""
        return sum(one.prefetch for one in self.served() if one is not but)

    def served(self) -> list[Consumer]:
        """Who may be handed something."""
        return self.active if self.properties.exclusive else self.consumers

    def may_come(self, consumer: Consumer) -> tuple[list[Item], bool]:
        """What a receive may return next, and whether it may return nothing.

        A consumer that fetches gets what it has fetched in that order: an item of a lower priority comes first if it
        was free before the other (EMS-MSG-A15: only a backlog is in order). What other consumers may have fetched
        need not come (EMS-DEST-A13, A28).
        """
        if consumer not in self.served():
            return [], True
        free = [item for item in self.in_order() if self._is_free(item) and consumer.wants(item)]
        rivals = [one for one in self.served() if one is not consumer and one.prefetch]
        may_be_elsewhere = [item for item in free if any(rival.wants(item) for rival in rivals)]
        ahead = self.room_ahead(but=consumer)
        found: list[Item] = []
        sure_to_wait = [item for item in free if item.is_certain and item not in may_be_elsewhere]
        for item in free:
            before = [one for one in sure_to_wait if one.is_before(item)]
            begins = max(item.free_from, consumer.opened)
            if not any(not consumer.prefetch or max(one.free_until, consumer.opened) <= begins for one in before):
                found.append(item)
        certain = [item for item in free if item.is_certain]
        sure = len(certain) - min(ahead, len(may_be_elsewhere))
        is_served = not self.properties.exclusive or len(self.active) == 1
        return found, not (is_served and sure > 0)

    def _is_free(self, item: Item) -> bool:
        return not item.is_held and not item.is_leaving

    # --- What happens to it

    def fits(self, draft: Draft, *, without: Iterable[Item] = (), besides: Sequence[Draft] = ()) -> bool:
        """Whether there is room for one more (EMS-DEST-A19 to A22): what is in hand counts."""
        gone = set(without)
        left = [*(item.draft for item in self.items if item not in gone), *besides]
        size = sum(len(one.body) for one in left) + len(draft.body)
        # What a message has besides its body is less than half of a body here, all of them together.
        return not (
            (self.properties.maxmsgs and len(left) + 1 > self.properties.maxmsgs)
            or (self.properties.maxbytes and size > self.properties.maxbytes)
        )

    def overflowing(self, draft: Draft) -> list[Item] | None:
        """What `discardOld` drops to make room: the oldest that nobody holds (EMS-DEST-A24). None: nothing helps."""
        dropped: list[Item] = []
        for item in self.items:
            if self.fits(draft, without=dropped):
                break
            if not item.is_held:
                dropped.append(item)
        return dropped if self.fits(draft, without=dropped) else None

    def add(self, draft: Draft, number: int, tick: int) -> Item:
        """It arrives."""
        item = Item(draft, number, free_from=tick, free_until=tick)
        self.items.append(item)
        return item

    def open(self, consumer: Consumer, tick: int) -> None:
        """A consumer comes. Of an exclusive queue the first is served."""
        consumer.opened = tick
        self.consumers.append(consumer)
        if not self.active:
            self.active = [consumer]

    def close(self, consumer: Consumer, tick: int) -> None:
        """A consumer goes. What it may have fetched is free again; of the standbys any is served from now on."""
        self.consumers.remove(consumer)
        if consumer.prefetch:
            for item in self.items:
                item.free_until = tick
        if consumer in self.active:
            self.active.remove(consumer)
            if not self.active:
                self.active = list(self.consumers)
                for one in self.active:
                    one.opened = tick

    def fetched_by(self, consumer: Consumer) -> list[Item]:
        """What it may have fetched without handing it out."""
        if not consumer.prefetch or consumer not in self.served():
            return []
        return [item for item in self.items if self._is_free(item) and consumer.wants(item)]
