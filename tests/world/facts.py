"""What the applications were told: all that the checker knows of a run, besides what is left when all is drained."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field, replace
from typing import Literal

Outcome = Literal["open", "confirmed", "refused", "unknown"]
Taken = Literal["no", "maybe", "yes"]
Ending = Literal["open", "committed", "rolled back", "in doubt"]


@dataclass(eq=False)
class Transaction:
    """One of an application's, and how it was told that it ended."""

    program: str
    ending: Ending = "open"
    sent: list[Sending] = field(default_factory=list)
    handed: list[Handing] = field(default_factory=list)


@dataclass(eq=False)
class Sending:
    """One message that an application sent, once. `number` grows within what one program sends by one producer."""

    key: str
    queue: str
    lane: str
    number: int
    persistent: bool
    began_s: float
    outcome: Outcome = "open"
    durable: bool = False
    lives_s: float = 0.0
    """By the broker's clock; 0: for ever."""

    confirmed_s: float = math.inf
    """When it was, of what is published."""

    transaction: Transaction | None = None


@dataclass(eq=False)
class Subscription:
    """A durable one. It holds all that was published since it was there, until it was ended, with what it held."""

    client_id: str
    name: str
    began_s: float | None = None
    ended_s: float | None = None

    def holds(self, sending: Sending) -> bool:
        """Whether a message that was published, and confirmed, has to be in it."""
        return self.ended_s is None and self.began_s is not None and sending.began_s > self.began_s

    def key(self, key: str) -> str:
        """That of its copy of a message."""
        return f"{key}@{self.name}"


@dataclass(eq=False)
class Handing:
    """One message in an application's hands. `taken`: whether it may have been, or was, acknowledged."""

    key: str
    queue: str
    consumer: str
    message_id: str
    redelivered: bool
    at_s: float
    is_belated: bool = False
    """Whether a broker had given the client up by then, of which that knew nothing: it may have gone to another."""

    taken: Taken = "no"
    taken_s: float = 0.0
    transaction: Transaction | None = None


@dataclass(eq=False)
class Look:
    """A browser's, through a queue to its end: what was surely there when it began, and what was shown."""

    queue: str
    held: frozenset[str]
    shown: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)


@dataclass
class Facts:
    """See the module."""

    sendings: dict[str, Sending] = field(default_factory=dict)
    handings: list[Handing] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    published: list[Sending] = field(default_factory=list)
    """What was sent to the topic; each subscription has a copy."""

    subscriptions: list[Subscription] = field(default_factory=list)
    emptied: dict[str, float] = field(default_factory=dict)
    """When an administrator last may have thrown away what a queue held."""

    deleted: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """From when until when somebody may have deleted a queue."""

    _emptying: dict[str, int] = field(default_factory=dict)

    configured: dict[str, bool] = field(default_factory=dict)
    """Durable subscriptions (`client/name`) that an administrator was told are there, or are gone."""

    placed: list[str] = field(default_factory=list)
    """The topics that an operator has given a broker."""

    clock_steps: list[tuple[float, float]] = field(default_factory=list)
    """When a broker's clock was set forward, and by how many seconds."""

    given_up_s: float = math.inf
    """When homes were first given away by force."""

    ended_s: float = 0.0
    """When the last was drained."""

    hung: list[str] = field(default_factory=list)
    """Calls that did not end."""

    odd: list[str] = field(default_factory=list)
    """What an application saw that no call may do."""

    calls: dict[str, int] = field(default_factory=dict)
    """How often each call ended how."""

    def held(self, queue: str) -> frozenset[str]:
        """What is confirmed to be in a queue by now, if nobody has taken it.

        What lives for a while is not: it is not shown while it has expired, and is there again when the broker's clock
        is put back.
        """
        return frozenset(
            one.key
            for one in self.sendings.values()
            if one.queue == queue
            and not one.lives_s
            and (one.outcome if one.transaction is None else one.transaction.ending) in ("confirmed", "committed")
        )

    def begin_to_empty(self, queue: str, *, deletes: bool = False) -> None:
        """Somebody is about to throw away what a queue holds."""
        self.emptied[queue] = math.inf
        if deletes:
            self.deleted.setdefault(queue, []).append((asyncio.get_running_loop().time(), math.inf))
        self._emptying[queue] = self._emptying.get(queue, 0) + 1

    def has_emptied(self, queue: str, until_s: float) -> None:
        """Whoever was about it has done so, at the latest by then; of one that was killed meanwhile nobody knows."""
        self._emptying[queue] -= 1
        if not self._emptying[queue]:
            self.emptied[queue] = until_s
            deleted = self.deleted.get(queue, [])
            deleted[:] = [(began_s, min(ended_s, until_s)) for began_s, ended_s in deleted]

    def may_be_new(self, queue: str, since_s: float, until_s: float) -> bool:
        """Whether a queue may have been deleted and made again in between: it knows nothing of what came before."""
        return any(began_s <= until_s and since_s <= ended_s for began_s, ended_s in self.deleted.get(queue, ()))

    def may_be_emptied(self, sending: Sending) -> bool:
        """Whether an administrator may have thrown it away."""
        return self.emptied.get(sending.queue, -1.0) >= sending.began_s

    def copy_published(self) -> None:
        """Makes of each message that was published one for each subscription: as promised, or as what may be there.

        A durable subscription does not go along with a topic that is given away by force: from then on until it is
        opened at the new home it holds what is published at the old one, and nobody can say which was that.
        """
        for sending in self.published:
            for subscription in self.subscriptions:
                copy = replace(sending, key=subscription.key(sending.key), queue=f"news@{subscription.name}")
                is_there = subscription.holds(sending) and sending.confirmed_s < self.given_up_s
                if copy.outcome == "confirmed" and not is_there:
                    copy.outcome = "unknown"
                self.sendings[copy.key] = copy

    def may_have_expired(self, sending: Sending) -> bool:
        """Whether the time that a message had may have passed, by any broker's clock."""
        if not sending.lives_s:
            return False
        passed_s = self.ended_s - sending.began_s
        return passed_s + sum(by_s for at_s, by_s in self.clock_steps if at_s >= sending.began_s) >= sending.lives_s

    def count(self, what: str) -> None:
        """One more of it."""
        self.calls[what] = self.calls.get(what, 0) + 1
