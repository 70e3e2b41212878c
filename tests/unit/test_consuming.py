"""The machines of consumers and sessions: every short story, long ones walked by hypothesis, and each former defect."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sterna import errors
from sterna._machines import consuming, settling
from sterna._machines.consuming import ConsumerState, InHand, Link
from sterna._machines.settling import (
    COMMITS,
    RULES,
    TRANSACTIONS,
    Answer,
    Effect,
    Event,
    SessionState,
    Transaction,
    failure_of_commit,
)
from sterna.modes import AcknowledgeMode

from tests.support.seeds import is_complete, seed
from tests.unit.consuming_story import Loop, Story, told

#: Of the modes that differ in their letters alone one; INDIVIDUAL is EXPLICIT_CLIENT by another name.
MODES = [
    AcknowledgeMode.AUTO,
    AcknowledgeMode.DUPS_OK,
    AcknowledgeMode.CLIENT,
    AcknowledgeMode.EXPLICIT_CLIENT_DUPS_OK,
    AcknowledgeMode.TRANSACTED,
]
#: In messages and in bytes: some, none, and fewer bytes than one message has.
WINDOWS = [(2, 0), (0, 0), (3, 20)]
#: Where stories begin: before the broker's answer, and with a message handed out.
BEGINNINGS = ["", "ddt"]


def stories(mode: AcknowledgeMode, length: int, prefix: str = "") -> Any:
    """All of so many events, behind those of `prefix`."""
    return map(prefix.__add__, map("".join, itertools.product(Story.events(mode), repeat=length)))


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_every_short_story_ends_well(mode: AcknowledgeMode, window: tuple[int, int]) -> None:
    every = [events for length in range(4) for start in BEGINNINGS for events in stories(mode, length, start)]
    assert [one for events in every if (one := told(mode, events, *window))] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_longer_stories_end_well(mode: AcknowledgeMode) -> None:
    """All of five events in `make test-all`, in any other run one of thirty, another one with each seed."""
    step = 1 if is_complete() else 30
    taken = itertools.islice(stories(mode, 5), seed() % step, None, step)
    wrong = [one for events in taken for window in WINDOWS if (one := told(mode, events, *window))]
    assert wrong == []


def test_a_loop_that_has_ended_says_nothing_of_the_one_behind_it() -> None:
    assert told(AcknowledgeMode.AUTO, "bdddieic") == ""


def test_what_the_first_of_two_recovers_cuts_short_is_not_put_together_with_what_comes_before_the_second() -> None:
    assert told(AcknowledgeMode.CLIENT, "ddrbdrbdrarbdr", 3, 0) == ""


class Walk(RuleBasedStateMachine):
    """Long stories."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Story(AcknowledgeMode.AUTO)
        self.letters = ""

    @initialize(mode=st.sampled_from(MODES), window=st.sampled_from(WINDOWS))
    def begin(self, mode: AcknowledgeMode, window: tuple[int, int]) -> None:
        self.story = Story(mode, *window)
        self.letters = Story.events(mode)

    @rule(number=st.integers(0, 30))
    def goes_on(self, number: int) -> None:
        self.story.tell(self.letters[number % len(self.letters)])

    @invariant()
    def what_was_handed_out_is_of_this_session_alone(self) -> None:
        session = self.story.session
        assert session.keeps_track or not session.handed
        assert (session.failure is None) == (session.stage in (Transaction.NONE, Transaction.OPEN))

    def teardown(self) -> None:
        self.story.settle()


TestWalk = Walk.TestCase
TestWalk.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


# --- Former defects, each put back


def _early_stay(self: ConsumerState) -> None:
    self._expired.clear()
    self._partial, self._pieces, self._pieces_bytes = None, [], 0
    self.is_due = self.is_asked = False


def _first_answer_counts(self: SessionState) -> None:
    self.recovering = 0
    for consumer in self.consumers:
        consumer.recovered()


def _not_counted(self: ConsumerState) -> None:
    self._partial, self._pieces, self._pieces_bytes = None, [], 0
    self.is_due = not self.is_asked


def _void_by_consumer(self: SessionState, consumer: ConsumerState, generation: int) -> bool:
    return not self.is_open or generation != consumer.generation


def _goes_on_after_its_end(self: ConsumerState) -> None:
    self.link = Link.CLOSED
    self.buffer.clear()
    self.session.is_open = True


#: What takes the place of what, and the mode in whose stories it shows.
PUT_BACK: dict[str, tuple[Any, str, Callable[..., Any], AcknowledgeMode]] = {
    "2: a lost transaction goes on receiving": (
        SessionState,
        "check_receive",
        lambda _: None,
        AcknowledgeMode.TRANSACTED,
    ),
    "3: a Goodbye does not say what is in hand": (
        SessionState,
        "seen",
        lambda _self, _only=None: [],
        AcknowledgeMode.CLIENT,
    ),
    "4: a step of one loop is done with another's": (
        InHand,
        "finished",
        lambda self, _: self.clear(),
        AcknowledgeMode.AUTO,
    ),
    "8: an acknowledgement that is waited for stays": (
        SessionState,
        "hurry",
        lambda _: None,
        AcknowledgeMode.EXPLICIT_CLIENT_DUPS_OK,
    ),
    "10: an uploaded body is no credit": (
        consuming,
        "size_of",
        lambda delivery: len(delivery.message),
        AcknowledgeMode.AUTO,
    ),
    "what came before an answer that never did stays": (
        ConsumerState,
        "_forget_coming",
        _early_stay,
        AcknowledgeMode.AUTO,
    ),
    "the first of two recovers ends both": (
        SessionState,
        "recovered",
        _first_answer_counts,
        AcknowledgeMode.CLIENT,
    ),
    "what recover cuts short is no credit": (ConsumerState, "recovered", _not_counted, AcknowledgeMode.CLIENT),
    "a message of a closed consumer is never void": (
        SessionState,
        "is_void",
        _void_by_consumer,
        AcknowledgeMode.CLIENT,
    ),
    "a loop goes on in a closed session": (ConsumerState, "closed", _goes_on_after_its_end, AcknowledgeMode.AUTO),
    "a lost transaction is committed": (SessionState, "_break", lambda _: None, AcknowledgeMode.TRANSACTED),
    "a commit covers nothing": (settling, "ranges_of", lambda _: [], AcknowledgeMode.TRANSACTED),
}


@pytest.mark.parametrize("name", PUT_BACK)
def test_a_former_defect_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, what, former, mode = PUT_BACK[name]
    monkeypatch.setattr(where, what, former)
    every = (one for length in range(5) for start in BEGINNINGS for one in stories(mode, length, start))
    assert any(told(mode, events, *window) for events in every for window in WINDOWS)


# --- The tables


def test_each_state_of_a_transaction_has_an_answer_to_everything() -> None:
    assert set(TRANSACTIONS) == set(itertools.product(Transaction, Event))
    for (state, event), (after, effect) in TRANSACTIONS.items():
        if state is Transaction.LOST:
            assert effect in (Effect.RAISE, Effect.NOTHING), "the broker has undone it: there is nothing to say to it"
        if effect is Effect.COMMIT:
            assert (state, event) == (Transaction.OPEN, Event.COMMIT)
        if event in (Event.COMMIT, Event.ROLLBACK):
            assert after is Transaction.NONE
        if event is Event.BREAK:
            assert after in (Transaction.NONE, Transaction.LOST)


def test_each_mode_has_a_rule() -> None:
    assert set(RULES) == set(AcknowledgeMode)
    assert set(COMMITS) == set(Answer)


def test_what_became_of_a_commit_is_told() -> None:
    assert failure_of_commit(Answer.TAKEN) is None
    assert isinstance(failure_of_commit(Answer.BREAK), errors.TransactionInDoubtError)
    assert isinstance(failure_of_commit(Answer.UNDONE), errors.TransactionRolledBackError)
    full = errors.DestinationFullError("full")
    refused = failure_of_commit(Answer.REFUSED, full)
    assert isinstance(refused, errors.TransactionRolledBackError)
    assert "full" in str(refused)
    said = errors.TransactionRolledBackError("undone")
    assert failure_of_commit(Answer.REFUSED, said) is said


def test_whoever_works_on_what_a_broken_link_took_away_is_at_work_until_he_comes_back() -> None:
    ended: set[Any] = set()
    hands = InHand(lambda _: False, lambda who: who in ended)
    one, other = Loop(), Loop()
    hands.take(one, 1)
    hands.take(other, 2)
    hands.void()
    assert set(hands.holders()) == {one, other}
    assert hands.sequences() == []
    assert hands
    assert hands.finished(one) == []
    assert hands.holders() == [other]
    ended.add(other)  # whoever never comes back is not kept for ever
    hands.void()
    assert not hands
