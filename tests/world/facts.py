"""What the applications were told: all that the checker knows of a run, besides what is left when all is drained."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    transaction: Transaction | None = None


@dataclass(eq=False)
class Handing:
    """One message in an application's hands. `taken`: whether it may have been, or was, acknowledged."""

    key: str
    queue: str
    consumer: str
    message_id: str
    redelivered: bool
    at_s: float
    taken: Taken = "no"
    taken_s: float = 0.0
    transaction: Transaction | None = None


@dataclass
class Facts:
    """See the module."""

    sendings: dict[str, Sending] = field(default_factory=dict)
    handings: list[Handing] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    emptied: dict[str, float] = field(default_factory=dict)
    """When an administrator last may have thrown away what a queue held."""

    hung: list[str] = field(default_factory=list)
    """Calls that did not end."""

    odd: list[str] = field(default_factory=list)
    """What an application saw that no call may do."""

    calls: dict[str, int] = field(default_factory=dict)
    """How often each call ended how."""

    def count(self, what: str) -> None:
        """One more of it."""
        self.calls[what] = self.calls.get(what, 0) + 1
