"""A connection's machine by itself: every short sequence of answers and breaks, long random ones, and its table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sterna import errors
from sterna._machines.connecting import (
    TRANSITIONS,
    Connecting,
    Dial,
    Event,
    GiveUp,
    Phase,
    Rest,
    Restore,
    Serve,
    Step,
    is_permanent,
)

_ROUNDS = 2
_PATIENCE_S = 10.0
_OWN = ("a:1", "b:1")
_UNREACHABLE = errors.UnreachableError("nobody answered", retryable=True)
_PERMANENT = errors.UnauthenticatedError("who are you")
_NOT_AGAIN = errors.ConnectionLostError("the store is broken", retryable=False)


def _moved(*addresses: str) -> errors.MovedError:
    moved = errors.MovedError("not here", retryable=True)
    moved.addresses = addresses
    return moved


#: What may come of a dial or a restoration.
_FAILURES = {
    "u": _UNREACHABLE,
    "r": _PERMANENT,
    "s": _NOT_AGAIN,
    "m": _moved("sterna://c:1", "sterna://d:1"),
    "n": _moved(),
    "t": _moved("sternas://c:1"),
}


class Story:
    """The machine, what it wants next, and what is known of this search."""

    def __init__(self) -> None:
        self.machine = Connecting(_OWN, secure=False, rounds=_ROUNDS, patience_s=_PATIENCE_S)
        self.step: Step | None = None
        self.now_s = 100.0
        self.lost_s: float | None = None
        #: Dialled in this round, and how many rounds there were.
        self.dialled: Counter[str] = Counter()
        self.rounds = 0
        self.named: set[str] = set()
        self.was_welcome = False

    def _next(self, step: Step) -> bool:
        before, self.step = self.step, step
        if isinstance(step, Dial):
            if not isinstance(before, Dial):
                self.rounds += 1
                self.dialled.clear()
            self.dialled[step.address] += 1
        self._check_step(step)
        return True

    def _check_step(self, step: Step) -> None:
        phase, machine = self.machine.phase, self.machine
        match step:
            case Dial(address):
                assert phase in (Phase.OPENING, Phase.DIALLING)
                assert address in {*_OWN, *self.named}, f"nobody named {address}"
                assert self.dialled[address] == 1, f"{address} is dialled twice in a round"
            case Rest(rounds):
                assert phase in (Phase.WAITING, Phase.BACKING_OFF)
                assert rounds == self.rounds, "rounds are counted from the beginning of a search"
                assert self.lost_s is None or self.now_s - self.lost_s <= _PATIENCE_S, "beyond all patience"
            case Restore():
                assert phase is Phase.RESTORING
                assert self.lost_s is not None, "there is nothing to restore on the first stream"
            case Serve(rounds):
                assert phase is Phase.SERVING
                assert self.was_welcome
                assert rounds == self.rounds
            case GiveUp(error):
                if self.lost_s is None:
                    assert (phase, machine.closed) == (Phase.UNOPENED, None)
                    assert self.rounds == _ROUNDS or not error.retryable
                else:
                    assert (phase, machine.closed) == (Phase.CLOSED, error)
                    late = self.now_s - self.lost_s > _PATIENCE_S
                    assert is_permanent(error) or late, "it was given up too early"

    # --- Events; False: it cannot happen now

    def open(self) -> bool:
        if self.machine.phase is not Phase.UNOPENED:
            with pytest.raises(errors.NotAllowedError):
                self.machine.open()
            return False
        self.rounds, self.step, self.was_welcome = 0, None, False
        return self._next(self.machine.open())

    def fail(self, kind: str) -> bool:
        if not isinstance(self.step, Dial | Restore) or self.machine.phase in (Phase.CLOSING, Phase.CLOSED):
            return False
        if kind == "m":
            self.named |= {"c:1", "d:1"}
        return self._next(self.machine.refused(_FAILURES[kind], self.now_s))

    def succeed(self) -> bool:
        if self.machine.phase in (Phase.CLOSING, Phase.CLOSED):
            return False
        if isinstance(self.step, Dial):
            self.was_welcome = True
            return self._next(self.machine.welcomed())
        return isinstance(self.step, Restore) and self._next(self.machine.restored())

    def rest(self, pause_s: float) -> bool:
        if not isinstance(self.step, Rest) or self.machine.phase in (Phase.CLOSING, Phase.CLOSED):
            return False
        self.now_s += pause_s
        return self._next(self.machine.rested())

    def lose(self, reason: errors.SternaError) -> bool:
        if self.machine.phase not in (Phase.SERVING, Phase.LEAVING):
            return False
        self.lost_s, self.rounds, self.step, self.was_welcome = self.now_s, 0, None, False
        return self._next(self.machine.lost(reason, self.now_s))

    def go_away(self) -> bool:
        if self.machine.phase not in (Phase.SERVING, Phase.LEAVING, Phase.RESTORING, Phase.CLOSING):
            return False
        self.named.add("z:1")
        self.machine.going_away(["sterna://z:1"])
        return True

    def close(self) -> bool:
        return self.machine.close()

    def end(self) -> bool:
        closed, reason = self.machine.closed, errors.ClosedError("over")
        assert self.machine.ended(reason) == (closed is None)
        assert (self.machine.phase, self.machine.closed) == (Phase.CLOSED, closed or reason)
        self.step = None
        return closed is None

    def check(self) -> None:
        assert (self.machine.closed is not None) == (self.machine.phase is Phase.CLOSED)


_EVENTS: dict[str, Callable[[Story], bool]] = {
    "o": Story.open,
    "w": Story.succeed,
    **{kind: partial(Story.fail, kind=kind) for kind in _FAILURES},
    ".": lambda story: story.rest(1.0),
    "-": lambda story: story.rest(20.0),
    "l": lambda story: story.lose(errors.ConnectionLostError("broken", retryable=True)),
    "p": lambda story: story.lose(_PERMANENT),
    "g": Story.go_away,
    "c": Story.close,
    "e": Story.end,
}


def _stories(length: int) -> Iterator[str]:
    """Each sequence of events that can happen; behind the first stream, if there are more of them."""
    layer = ["", "ow"]
    for _ in range(length):
        found = []
        for before in layer:
            for letter in _EVENTS:
                story = Story()
                try:
                    for one in before:
                        _EVENTS[one](story)
                    if not _EVENTS[letter](story):
                        continue
                    story.check()
                except AssertionError as error:
                    raise AssertionError(f"{before + letter!r}: {error}") from error
                found.append(before + letter)
        yield from found
        layer = found


def test_every_short_sequence_of_answers_leads_where_it_may() -> None:
    assert sum(1 for _ in _stories(6)) > 10_000


def test_the_table_says_each_step_that_is_taken_and_each_line_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[Phase, Event]] = set()
    step = Connecting._to

    def noted(self: Connecting, event: Event) -> None:
        taken.add((self.phase, event))
        step(self, event)

    monkeypatch.setattr(Connecting, "_to", noted)
    for _ in _stories(5):
        pass
    for opening in ("o", "ouu"):
        story = Story()
        for letter in opening:
            _EVENTS[letter](story)
        story.machine.abandon()
        assert story.open()
    listed = {(phase, event) for phase, events in TRANSITIONS.items() for event in events if phase != Phase.CLOSED}
    assert {one for one in taken if one[0] != Phase.CLOSED} == listed


def test_all_phases_can_be_reached_and_only_one_is_never_left() -> None:
    reached, before = {Phase.UNOPENED}, 0
    while len(reached) > before:
        before = len(reached)
        reached |= {after for phase in reached for after in TRANSITIONS[phase].values()}
    assert reached == set(Phase)
    assert [one for one in Phase if set(TRANSITIONS[one].values()) == {one}] == [Phase.CLOSED]
    assert set(TRANSITIONS) == set(Phase)


class Walk(RuleBasedStateMachine):
    """Long stories."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Story()
        self.story.open()

    @rule(kind=st.sampled_from(sorted(_FAILURES)))
    @precondition(lambda self: isinstance(self.story.step, Dial | Restore))
    def fail(self, kind: str) -> None:
        self.story.fail(kind)

    @rule()
    def succeed(self) -> None:
        self.story.succeed()

    @rule(pause_s=st.floats(0.01, 3.0))
    def rest(self, pause_s: float) -> None:
        self.story.rest(pause_s)

    @rule(permanent=st.booleans())
    def lose(self, permanent: bool) -> None:
        self.story.lose(_PERMANENT if permanent else _UNREACHABLE)

    @rule()
    def go_away(self) -> None:
        self.story.go_away()

    @rule()
    @precondition(lambda self: self.story.machine.phase is Phase.UNOPENED)
    def open_again(self) -> None:
        self.story.open()

    @rule(really=st.integers(0, 9))
    def close(self, really: int) -> None:
        if not really:
            self.story.close()

    @invariant()
    def holds(self) -> None:
        self.story.check()


TestWalk = Walk.TestCase


def test_those_that_a_leaving_broker_names_come_first_and_for_one_search_only() -> None:
    machine = Connecting(_OWN, secure=False, rounds=1, patience_s=None)
    machine.open()
    assert machine.welcomed() == Serve(1)
    machine.going_away(["sterna://b:1", "sterna://z:1"])
    assert machine.phase is Phase.LEAVING
    dialled = [machine.lost(_UNREACHABLE, 0.0)]
    while isinstance(dialled[-1], Dial):
        dialled.append(machine.refused(_UNREACHABLE, 0.0))
    assert dialled == [Dial("b:1"), Dial("z:1"), Dial("a:1"), Rest(1)]
    assert machine.rested() == Dial("b:1")
    assert (machine.welcomed(), machine.restored()) == (Restore(), Serve(2))
    assert machine.lost(_UNREACHABLE, 0.0) == Dial("a:1")


def test_a_broker_that_is_not_the_one_to_ask_is_followed_one_step_and_asked_again_in_the_next_round() -> None:
    machine = Connecting(("a:1",), secure=False, rounds=2, patience_s=None)
    moved = _moved("sterna://c:1")
    assert machine.open() == Dial("a:1")
    assert machine.refused(moved, 0.0) == Dial("c:1")
    assert machine.refused(moved, 0.0) == Rest(1)
    assert machine.rested() == Dial("a:1")
    assert machine.refused(moved, 0.0) == Dial("c:1")


def test_patience_is_counted_from_the_break_and_its_end_says_what_it_was_that_failed() -> None:
    machine = Connecting(("a:1",), secure=False, rounds=1, patience_s=10.0)
    machine.open()
    machine.welcomed()
    assert machine.lost(_UNREACHABLE, 100.0) == Dial("a:1")
    assert machine.refused(_UNREACHABLE, 110.0) == Rest(1)
    machine.rested()
    given_up = machine.refused(_UNREACHABLE, 110.5)
    assert isinstance(given_up, GiveUp)
    assert "within 10 s: nobody answered" in given_up.error.cause
    assert given_up.error.__cause__ is _UNREACHABLE
    assert (machine.closed, machine.close()) == (given_up.error, False)


def test_what_is_permanent_ends_the_search_whoever_is_left_to_ask() -> None:
    machine = Connecting(_OWN, secure=False, rounds=5, patience_s=None)
    assert machine.open() == Dial("a:1")
    assert (machine.refused(_PERMANENT, 0.0), machine.phase) == (GiveUp(_PERMANENT), Phase.UNOPENED)
    machine.open()
    machine.welcomed()
    # So do a stream that ends for such a reason, and a restoration that fails for one.
    assert machine.lost(_UNREACHABLE, 0.0) == Dial("a:1")
    assert machine.welcomed() == Restore()
    assert (machine.refused(_PERMANENT, 0.0), machine.phase) == (GiveUp(_PERMANENT), Phase.CLOSED)
    machine = Connecting(_OWN, secure=False, rounds=5, patience_s=None)
    machine.open()
    machine.welcomed()
    assert (machine.lost(_PERMANENT, 0.0), machine.closed) == (GiveUp(_PERMANENT), _PERMANENT)


def test_a_stream_that_the_broker_closed_is_looked_for_again() -> None:
    machine = Connecting(_OWN, secure=False, rounds=5, patience_s=None)
    machine.open()
    machine.welcomed()
    assert machine.lost(errors.ClosedError("closed by an administrator"), 0.0) == Dial("a:1")


def test_what_a_broker_named_that_broke_before_all_was_restored_holds_no_more() -> None:
    machine = Connecting(("a:1",), secure=False, rounds=1, patience_s=None)
    machine.open()
    machine.welcomed()
    machine.lost(_UNREACHABLE, 0.0)
    assert machine.welcomed() == Restore()
    machine.going_away(["sterna://z:1"])
    assert machine.refused(_UNREACHABLE, 0.0) == Rest(1)
    machine.rested()
    machine.welcomed()
    machine.restored()
    assert machine.lost(_UNREACHABLE, 1.0) == Dial("a:1")


def test_only_what_was_said_last_of_where_the_broker_is_counts() -> None:
    """Each address at which nobody is any more costs each round its time, and there may be one more at each start."""
    machine = Connecting(_OWN, secure=False, rounds=_ROUNDS, patience_s=None)
    machine.open()
    machine.welcomed()
    for number in range(10):
        step = machine.lost(_UNREACHABLE, 0.0)
        machine.learned((f"x{number}:1",))
        while not isinstance(step, Rest):
            step = machine.refused(_UNREACHABLE, 0.0)
        dialled = []
        step = machine.rested()
        while isinstance(step, Dial):
            dialled.append(step.address)
            step = machine.refused(_UNREACHABLE, 0.0)
        assert dialled == [f"x{number}:1", *_OWN]
        machine.rested()
        machine.welcomed()
        machine.restored()
