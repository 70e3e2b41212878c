"""A connection to a broker as a machine: opening, restoring, backing off, following a broker elsewhere, giving up.

It is told what came of the last step and answers with the next one: an address to dial, a pause, to restore everything
on the new stream, to serve, or to give up. Addresses are gone through in turn; one whole turn is a *round*, and only
between rounds is there a pause. A broker may name others: one that refuses the greeting because it is not the one to
ask, and one that is about to stop. Those come first, for as long as this interruption lasts.

`_lifeline` is the face: it dials, greets, sleeps, has sessions, producers and consumers re-create themselves, and
tells the application. Time comes with the events, in seconds of a clock that only grows.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sterna import errors
from sterna.urls import named_address


class Phase(enum.Enum):
    """Where a connection stands."""

    UNOPENED = "made, and not open yet"
    OPENING = "no stream was there before: each address is dialled and greeted in turn, until one says Welcome"
    WAITING = "nobody answered in a round of the opening; the next one comes after a pause"
    SERVING = "there is a stream, and everything is on it"
    LEAVING = "the broker is about to stop: what is under way is waited for, then it is left"
    DIALLING = "the stream broke: each address is dialled and greeted in turn"
    RESTORING = "a stream is there: sessions, producers and consumers are made again on it"
    BACKING_OFF = "a round of dialling, or the restoration, failed; the next round comes after a pause"
    CLOSING = "the application ends it: all that was on it is closed, and Goodbye is being said"
    CLOSED = "over, by the application's will or because nothing more was to be tried"


class Event(enum.Enum):
    """What happens to it."""

    OPEN = "the application wants it"
    WELCOMED = "the broker at the address has said Welcome"
    PASSED_ON = "there is another address to dial in this round, or the broker named one"
    EXHAUSTED = "the round is over, and nobody was found"
    RESTED = "the pause is over"
    RESTORED = "everything is on the new stream"
    GOING_AWAY = "the broker says that it is about to stop"
    LOST = "the stream ended"
    GIVEN_UP = "there is no use in going on, or no patience left"
    CLOSE = "the application ends it"
    ENDED = "it is over"


#: Where each event leads. An event without a line in a phase does not happen there.
TRANSITIONS: Final[Mapping[Phase, Mapping[Event, Phase]]] = {
    Phase.UNOPENED: {Event.OPEN: Phase.OPENING, Event.ENDED: Phase.CLOSED},
    Phase.OPENING: {
        Event.PASSED_ON: Phase.OPENING,
        Event.WELCOMED: Phase.SERVING,
        Event.EXHAUSTED: Phase.WAITING,
        Event.GIVEN_UP: Phase.UNOPENED,
        Event.ENDED: Phase.CLOSED,
    },
    Phase.WAITING: {Event.RESTED: Phase.OPENING, Event.GIVEN_UP: Phase.UNOPENED, Event.ENDED: Phase.CLOSED},
    Phase.SERVING: {
        Event.GOING_AWAY: Phase.LEAVING,
        Event.LOST: Phase.DIALLING,
        Event.CLOSE: Phase.CLOSING,
        Event.ENDED: Phase.CLOSED,
    },
    Phase.LEAVING: {
        Event.GOING_AWAY: Phase.LEAVING,
        Event.LOST: Phase.DIALLING,
        Event.CLOSE: Phase.CLOSING,
        Event.ENDED: Phase.CLOSED,
    },
    Phase.DIALLING: {
        Event.PASSED_ON: Phase.DIALLING,
        Event.WELCOMED: Phase.RESTORING,
        Event.EXHAUSTED: Phase.BACKING_OFF,
        Event.GIVEN_UP: Phase.CLOSED,
        Event.CLOSE: Phase.CLOSING,
        Event.ENDED: Phase.CLOSED,
    },
    Phase.RESTORING: {
        Event.RESTORED: Phase.SERVING,
        Event.GOING_AWAY: Phase.RESTORING,
        Event.EXHAUSTED: Phase.BACKING_OFF,
        Event.GIVEN_UP: Phase.CLOSED,
        Event.CLOSE: Phase.CLOSING,
        Event.ENDED: Phase.CLOSED,
    },
    Phase.BACKING_OFF: {
        Event.RESTED: Phase.DIALLING,
        Event.CLOSE: Phase.CLOSING,
        Event.ENDED: Phase.CLOSED,
    },
    Phase.CLOSING: {
        Event.GOING_AWAY: Phase.CLOSING,
        Event.ENDED: Phase.CLOSED,
    },
    Phase.CLOSED: dict.fromkeys(Event, Phase.CLOSED),
}


@dataclass(frozen=True, slots=True)
class Dial:
    """Dial this address and greet, then `welcomed` or `refused`."""

    address: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Wait, the longer the more rounds there were, then `rested`."""

    rounds: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Have everything re-create itself on the stream, then `restored` or `refused`."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Everything is there; after so many rounds."""

    rounds: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nothing more is to be tried, for this reason."""

    error: errors.SternaError


Step = Dial | Rest | Restore | Serve | GiveUp


def is_permanent(error: errors.SternaError) -> bool:
    """Whether dialling again is pointless."""
    kinds = (errors.UsageError, errors.AccessError, errors.ProtocolError, errors.LedgerError)
    return isinstance(error, kinds) and not error.retryable


class Connecting:
    """See the module. `rounds` is how many there may be before the first stream, `patience_s` how long a later search.

    No patience is to search for ever.
    """

    def __init__(self, addresses: tuple[str, ...], *, secure: bool, rounds: int, patience_s: float | None) -> None:
        self.phase = Phase.UNOPENED
        self.closed: errors.SternaError | None = None
        self.addresses = addresses
        self._secure = secure
        self._opening_rounds = rounds
        self._patience_s = patience_s
        # Those of each round of this search, and what is left of them in this one.
        self._searched = addresses
        # Where others said last that the broker is, and what it named itself before this search.
        self._learned: tuple[str, ...] = ()
        self._named: tuple[str, ...] = ()
        self._left: deque[str] = deque()
        # Whether those that are left were named by a broker that was dialled: one such step a round.
        self._is_passed_on = False
        self._rounds = 0
        self._began_s = 0.0
        self._failure: errors.SternaError = errors.UnreachableError("no address was tried", retryable=True)
        # What a broker that is about to stop named.
        self._next_addresses: tuple[str, ...] = ()

    def _to(self, event: Event) -> None:
        self.phase = TRANSITIONS[self.phase][event]

    def named(self, addresses: Iterable[str]) -> tuple[str, ...]:
        """Addresses that a broker named.

        Raises:
            UnreachableError: with TLS where this connection has none, or without where it has.
        """
        return tuple(named_address(one, secure=self._secure) for one in addresses)

    # --- Searching

    def open(self) -> Step:
        """The application wants it.

        Raises:
            NotAllowedError: it was opened before.
        """
        if self.phase is not Phase.UNOPENED:
            raise errors.NotAllowedError("the connection was opened before")
        self._to(Event.OPEN)
        self._searched, self._rounds = self.addresses, 0
        return self._begin_round()

    def _begin_round(self) -> Step:
        self._rounds += 1
        self._left, self._is_passed_on = deque(self._searched), False
        return self._dial_next()

    def _dial_next(self) -> Step:
        return Dial(self._left.popleft())

    def welcomed(self) -> Step:
        """The broker at the address has said Welcome."""
        self._to(Event.WELCOMED)
        return Restore() if self.phase is Phase.RESTORING else Serve(self._rounds)

    def restored(self) -> Step:
        """Everything is on the stream."""
        self._to(Event.RESTORED)
        return Serve(self._rounds)

    def refused(self, error: errors.SternaError, now_s: float) -> Step:
        """The address did not answer, or not with Welcome; or what was to be restored could not be."""
        self._failure = error
        if self.phase is Phase.RESTORING:
            self._next_addresses = ()  # what that broker had said holds no more
            return self._exhausted(now_s)
        if isinstance(error, errors.MovedError):
            if error.addresses and not self._is_passed_on:
                self._follow(error.addresses)
        elif is_permanent(error):
            return self._give_up(error)
        if not self._left:
            return self._exhausted(now_s)
        self._to(Event.PASSED_ON)
        return self._dial_next()

    def _follow(self, addresses: tuple[str, ...]) -> None:
        """A broker has named those to dial in its place."""
        self._is_passed_on = True
        try:
            self._left = deque(self.named(addresses))
        except errors.UnreachableError as unusable:
            self._failure = unusable
            self._left.clear()

    def _exhausted(self, now_s: float) -> Step:
        error = self._failure
        if is_permanent(error):
            return self._give_up(error)
        if self.phase is Phase.OPENING:
            if self._rounds >= self._opening_rounds or not error.retryable:
                return self._give_up(error)
        elif self._patience_s is not None and now_s - self._began_s > self._patience_s:
            cause = f"no broker could be reached again within {self._patience_s:g} s: {error.cause}"
            given_up = errors.ConnectionLostError(cause, subject=", ".join(self._searched))
            given_up.__cause__ = error
            return self._give_up(given_up)
        self._to(Event.EXHAUSTED)
        return Rest(self._rounds)

    def _give_up(self, error: errors.SternaError) -> Step:
        self._to(Event.GIVEN_UP)
        if self.phase is Phase.CLOSED:
            self.closed = error
        return GiveUp(error)

    def rested(self) -> Step:
        """The pause is over."""
        self._to(Event.RESTED)
        return self._begin_round()

    def abandon(self) -> None:
        """Whoever was opening it was cancelled; it may be opened again."""
        if self.phase in (Phase.OPENING, Phase.WAITING):
            self._to(Event.GIVEN_UP)

    # --- What happens to a stream

    def going_away(self, addresses: Iterable[str]) -> None:
        """The broker is about to stop, and named these to go to; those that cannot be used are left out."""
        try:
            self._next_addresses = self.named(addresses)
        except errors.UnreachableError:
            self._next_addresses = ()  # there are the URL's own
        self._to(Event.GOING_AWAY)

    def learned(self, addresses: tuple[str, ...]) -> None:
        """The broker is said to be at these, which are tried before all others from the next round on.

        What was said before of that counts no more: each address at which nobody is costs each round its time.
        """
        self._learned = addresses
        self._searched = tuple(dict.fromkeys((*addresses, *self._named, *self.addresses)))

    def lost(self, reason: errors.SternaError, now_s: float) -> Step:
        """The stream ended."""
        self._to(Event.LOST)
        self._named, self._next_addresses = self._next_addresses, ()
        self._searched = tuple(dict.fromkeys((*self._named, *self._learned, *self.addresses)))
        self._rounds, self._began_s = 0, now_s
        if is_permanent(reason) and not isinstance(reason, errors.ClosedError):
            return self._give_up(reason)
        return self._begin_round()

    # --- The end

    def close(self) -> bool:
        """The application ends it. Whether that is still to be done."""
        if Event.CLOSE not in TRANSITIONS[self.phase] or self.phase is Phase.CLOSED:
            return False
        self._to(Event.CLOSE)
        return True

    def ended(self, reason: errors.SternaError) -> bool:
        """It is over. Whether it was not before; the first reason counts."""
        self._to(Event.ENDED)
        if self.closed is not None:
            return False
        self.closed = reason
        return True
