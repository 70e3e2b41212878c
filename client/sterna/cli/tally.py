"""What became of each message of a `sterna send`, so that it can say from where to go on.

Messages are numbered in their order; answers come in any. Only what is behind the first message without a
confirmation is remembered, which is no more than may be unconfirmed at once.
"""

import asyncio
import time  # noqa: TID251 - the command line is not simulated
from typing import NamedTuple

from sterna import errors
from sterna.errors import SternaError
from sterna.messages import Sent

_RANGES_SHOWN = 20
# By these a connection ends a message that it has sent: they are no word of the broker's about it.
_UNANSWERED = (errors.ConnectionError, errors.ClosedError, errors.UnknownProducerError)


class Place(NamedTuple):
    """Where a message came from: which time through the source (from 1), and which line or argument (from 1)."""

    round: int
    number: int


class Tally:
    """Counts; `noun` is what a place's number numbers: "line", "argument" or "file".

    `error` is the first refusal, and `refused` is done as soon as there is one. `last` is the newest confirmation.
    `handed_over` are RELIABLE messages, which nobody confirms, until the broker has `taken` them: then they count as
    the others do.
    """

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self.sent = 0
        self.confirmed = 0
        self.handed_over = 0
        self.error: SternaError | None = None
        self.last: Sent | None = None
        self._refused: asyncio.Future[None] | None = None
        # The next place after the last message; what to go on from when everything is confirmed.
        self._next = Place(1, 1)
        # Numbers from the first one that is not confirmed on: where each came from, and its answer if it has one.
        self._places: dict[int, Place] = {}
        self._confirmed_behind: dict[int, None] = {}
        self._answers_open = 0
        self._never_answered = 0
        self._floor = 0
        self._waiting_since_s = 0.0
        self._is_last_answer_awaited = False

    @property
    def waiting_since_s(self) -> float | None:
        """Since when the next answer is waited for, on the monotonic clock; None while there is none to wait for."""
        return self._waiting_since_s if self._answers_open or self._is_last_answer_awaited else None

    @property
    def refused(self) -> "asyncio.Future[None]":
        """Is done when a message was refused."""
        if self._refused is None:
            self._refused = asyncio.get_running_loop().create_future()
        return self._refused

    @property
    def unanswered(self) -> int:
        """How many were sent and have no answer."""
        return self._answers_open + self.handed_over

    def begin(self, place: Place) -> int:
        """Notes a message that is about to be sent; its number."""
        number = self.sent
        self.sent += 1
        if not self._answers_open:
            self._waiting_since_s = time.monotonic()
        self._answers_open += 1
        self._places[number] = place
        self._next = Place(place.round, place.number + 1)
        return number

    def fail(self, error: SternaError) -> None:
        """Notes that the message that was begun last could not be sent."""
        self._answers_open -= 1
        if self.error is None:
            self.error = error
        if not self.refused.done():
            self.refused.set_result(None)

    def settle(self, number: int, outcome: Sent | SternaError) -> None:
        """Notes the answer to a message, or that there will be none."""
        if isinstance(outcome, SternaError):
            self._never_answered += isinstance(outcome, _UNANSWERED)
            self.fail(outcome)
            return
        self.confirmed += 1
        self._answered(number, outcome)

    def hand_over(self, number: int, outcome: Sent) -> None:
        """Notes that a RELIABLE message is on its way, where flow control may still hold it back."""
        self.handed_over += 1
        self._answered(number, outcome)

    def await_taken(self) -> None:
        """From now on it is waited for that the broker has taken what was handed over."""
        self._is_last_answer_awaited = True
        self._waiting_since_s = time.monotonic()

    def taken(self) -> None:
        """The broker has taken what was handed over."""
        self._is_last_answer_awaited = False
        self.confirmed += self.handed_over
        self.handed_over = 0

    def _answered(self, number: int, outcome: Sent) -> None:
        self._answers_open -= 1
        self._waiting_since_s = time.monotonic()
        self.last = outcome
        if number != self._floor:
            self._confirmed_behind[number] = None
            return
        self._advance()

    def all_answered(self) -> None:
        """Nothing is under way any more: what has no answer was never sent."""
        self._answers_open = 0

    def _advance(self) -> None:
        """The first message without a confirmation is the next one."""
        del self._places[self._floor]
        self._floor += 1
        while self._floor in self._confirmed_behind:
            del self._confirmed_behind[self._floor]
            del self._places[self._floor]
            self._floor += 1

    def report(self) -> str:
        """How many are confirmed, from where to go on, and what is different about what lies behind that."""
        place = self._places.get(self._floor, self._next)
        again = f" of round {place.round}" if place.round > 1 else ""
        lines = [f"{self.confirmed} confirmed, go on from {self._noun} {place.number}{again}"]
        if self._confirmed_behind:
            lines.append(f"  of these are confirmed already: {self._named(sorted(self._confirmed_behind))}")
        if unanswered := self._answers_open + self._never_answered:
            lines.append(f"  {unanswered} were sent and not answered: they may have arrived")
        if self.handed_over:
            lines.append(
                f"  {self.handed_over} before that were sent as reliable, which nobody confirms: what flow control "
                "still held back of them is lost"
            )
        return "\n".join(lines)

    def _named(self, numbers: list[int]) -> str:
        ranges: list[list[int]] = []
        for number in numbers:
            if ranges and ranges[-1][1] == number - 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
        shown = [self._range(first, last) for first, last in ranges[:_RANGES_SHOWN]]
        more = [f"and {len(ranges) - _RANGES_SHOWN} more ranges"] if len(ranges) > _RANGES_SHOWN else []
        return f"{self._noun} {', '.join([*shown, *more])}"

    def _range(self, first: int, last: int) -> str:
        begin, end = self._places[first], self._places[last]
        again = f" of round {end.round}" if end.round > 1 else ""
        return f"{begin.number}{again}" if first == last else f"{begin.number}-{end.number}{again}"
