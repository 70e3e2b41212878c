"""Seeds of the world that follow from the commit: nothing that was promised may break, whatever goes wrong."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time

import pytest

from tests.support.seeds import is_complete, is_slow, seed
from tests.world.__main__ import ROOT, played
from tests.world.checker import problems
from tests.world.facts import Facts, Handing, Look, Sending, Transaction
from tests.world.run import Scene

_PARTS = 8
_RUNS = 400 if is_complete() else 5
_APART = max(_RUNS, 125)
"""So many seeds lie between the first ones of two parts, which have several each even where a run is short."""

_CI_S = 180.0
"""What all parts together take of a processor where every change is tested (`.ci/run`)."""


def _is_enough(runs: int, began_s: float) -> bool:
    """Whether a part has run for long enough: by its number of runs, and in CI by what it has taken of a processor."""
    least_s = _CI_S / _PARTS / (2 if is_slow() else 1) if os.environ.get("CI") == "true" else 0.0
    return runs >= _APART or (runs >= _RUNS and time.process_time() - began_s >= least_s)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(_PARTS))
def test_no_promise_is_broken_whatever_goes_wrong(part: int) -> None:
    first = number = seed() * 1_000 + part * _APART
    found, began_s = {}, time.process_time()
    while not _is_enough(number - first, began_s):
        if wrong := played(Scene.of(number)).problems:
            found[f"python -m tests.world --first {number}"] = wrong
        number += 1
    assert found == {}


def test_in_ci_the_seeds_run_for_three_minutes_of_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("STERNA_SLOW", raising=False)
    now_s = time.process_time()
    assert [_is_enough(runs, now_s) for runs in (_RUNS - 1, _RUNS)] == [False, True]
    monkeypatch.setenv("CI", "true")
    passed = [_is_enough(_RUNS, now_s - spent_s) for spent_s in (0.0, 0.9 * _CI_S / _PARTS, _CI_S / _PARTS)]
    assert passed == [_RUNS == _APART, _RUNS == _APART, True]
    assert _is_enough(_APART, now_s), "parts do not run into one another"
    monkeypatch.setenv("STERNA_SLOW", "1")
    assert _is_enough(_RUNS, now_s - 0.6 * _CI_S / _PARTS)


@pytest.mark.usefixtures("tier_broker")
def test_a_seed_is_the_same_run_in_each_process() -> None:
    number = seed() * 1_000
    traces = set()
    for hashes in ("1", "2"):
        command = [sys.executable, "-m", "tests.world", "--first", str(number), "--seeds", "2", "--trace"]
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False).stdout
        lines = told.splitlines()
        assert len(lines) > 500
        traces.add("\n".join(lines[:-1]))  # the last one says how long it took
    assert len(traces) == 1


def _sent(facts: Facts, key: str, outcome: str = "confirmed", transaction: Transaction | None = None) -> Sending:
    sending = Sending(key, "q", "lane", len(facts.sendings), True, 1.0, transaction=transaction)
    sending.outcome = outcome  # type: ignore[assignment]
    facts.sendings[key] = sending
    if transaction is not None:
        transaction.sent.append(sending)
    return sending


def _handed(key: str, at_s: float, *, flag: bool = False, taken: str = "no", id: str = "1") -> Handing:
    handing = Handing(key, "q", "c", f"{key}:{id}", flag, at_s)
    handing.taken, handing.taken_s = taken, at_s  # type: ignore[assignment]
    return handing


def _judged(facts: Facts, *drained: Handing) -> list[str]:
    return [one.partition(":")[0] for one in problems(facts, list(drained), restarted=False)]


def test_the_checker_finds_each_thing_that_may_not_be() -> None:
    facts = Facts()
    _sent(facts, "a")
    assert _judged(facts) == ["lost"]
    assert _judged(facts, _handed("a", 9)) == []
    facts.handings.append(_handed("a", 2))
    assert _judged(facts) == ["lost"], "it was in hand, and never acknowledged"
    assert _judged(facts, _handed("a", 9)) == ["twice without the flag"]
    assert _judged(facts, _handed("a", 9, flag=True)) == []
    assert _judged(facts, _handed("a", 9, flag=True, id="2")) == ["stored twice"]
    facts.handings = [_handed("a", 2, taken="yes")]
    assert _judged(facts) == []
    assert _judged(facts, _handed("a", 9, flag=True)) == ["acknowledged at 2.000 and there again at 9.000"]
    for id, expected in (("1", 1), ("2", 0)):
        left = [_handed("a", 9, flag=True, id=id)]
        assert len(problems(facts, left, restarted=False, given_up=True)) == expected


def test_the_checker_knows_that_a_broker_forgets_what_is_not_persistent_and_was_handed_out() -> None:
    for persistent, restarted, expected in ((True, True, 1), (False, True, 0), (False, False, 1)):
        facts = Facts()
        _sent(facts, "a").persistent = persistent
        for before, after in (("no", _handed("a", 9)), ("yes", _handed("a", 9, flag=True))):
            facts.handings = [_handed("a", 2, taken=before)]
            assert len(problems(facts, [after], restarted=restarted)) == expected, (before, persistent, restarted)


def test_the_checker_wants_no_browser_to_show_what_lives_for_a_while() -> None:
    """It may have expired meanwhile, and be there again when the broker's clock is put back."""
    for lives_s, expected in ((0.0, 1), (0.05, 0)):
        facts = Facts()
        sent = _sent(facts, "a")
        sent.lives_s = lives_s
        facts.looks.append(Look(sent.queue, facts.held(sent.queue)))
        found = [one for one in problems(facts, [_handed("a", 9)], restarted=False) if "a browser has shown" in one]
        assert len(found) == expected, lives_s


def test_the_checker_knows_what_waited_in_a_client_that_was_given_up() -> None:
    """Its broker has given it to another, with the flag; both are handed it, in whichever order."""
    for belated, flags, expected in (
        (True, (True, False), 0),
        (True, (False, False), 1),
        (True, (True, False, False), 2),
        (False, (True, False), 1),
    ):
        facts = Facts()
        _sent(facts, "a")
        facts.handings = [_handed("a", at_s, flag=flag) for at_s, flag in enumerate(flags, 2)]
        facts.handings[-1].is_belated = belated
        assert len(problems(facts, [], restarted=False)) - 1 == expected, (belated, flags)


def test_the_checker_knows_what_another_was_done_with_before_it_was_handed_out_late() -> None:
    for belated, taken, expected in ((True, "maybe", 0), (True, "no", 0), (True, "yes", 1), (False, "maybe", 1)):
        facts = Facts()
        _sent(facts, "a")
        facts.handings = [_handed("a", 2, taken="yes", flag=True), _handed("a", 9, taken=taken, flag=True)]
        facts.handings[-1].is_belated = belated
        found = [one for one in problems(facts, [], restarted=False) if "there again" in one]
        assert len(found) == expected, (belated, taken)


def test_the_checker_knows_that_a_transaction_took_late_what_another_was_done_with() -> None:
    for belated, expected in ((True, 0), (False, 1)):
        facts = Facts()
        transaction = Transaction("p", "in doubt")
        _sent(facts, "a")
        _sent(facts, "b", transaction=transaction)
        late = _handed("a", 9)
        late.is_belated, late.transaction = belated, transaction
        transaction.handed.append(late)
        facts.transactions.append(transaction)
        facts.handings = [_handed("a", 2, flag=True), late]
        found = [one for one in problems(facts, [], restarted=False) if "was not committed" in one]
        assert len(found) == expected, belated


def test_the_checker_knows_that_a_queue_made_again_knows_nothing_of_what_came_before() -> None:
    for deleted, expected in (
        ([(3.0, 4.0)], 0),
        ([(1.0, math.inf)], 0),
        ([(0.5, 1.5)], 1),
        ([(9.5, 10.0)], 1),
        ([], 1),
    ):
        facts = Facts(deleted={"q": deleted})
        _sent(facts, "a")
        facts.handings = [_handed("a", 2), _handed("a", 9)]
        found = [one for one in problems(facts, [], restarted=True) if "without the flag" in one]
        assert len(found) == expected, deleted


def test_the_checker_lets_go_what_may_have_expired_by_the_brokers_clock() -> None:
    for lives_s, steps, expected in (
        (0.0, [], ["lost"]),
        (100.0, [], ["lost"]),
        (10.0, [], []),
        (100.0, [(2.0, 80.0)], []),
        (100.0, [(0.5, 80.0)], ["lost"]),
    ):
        facts = Facts(ended_s=30.0, clock_steps=steps)
        _sent(facts, "a").lives_s = lives_s
        assert _judged(facts) == expected, (lives_s, steps)


def test_what_two_brokers_of_one_name_did_is_not_judged_as_if_it_had_been_one() -> None:
    facts = Facts()
    _sent(facts, "a")
    assert problems(facts, [], restarted=False, copied=True) == []
    facts.hung.append("a call")
    assert problems(facts, [], restarted=False, copied=True) == ["a call"]


def test_the_checker_holds_refusals_and_transactions_to_their_word() -> None:
    facts = Facts()
    _sent(facts, "a", "refused")
    assert _judged(facts, _handed("a", 9)) == ["it was refused, and is there"]
    facts = Facts()
    transaction = Transaction("w")
    facts.transactions.append(transaction)
    _sent(facts, "in")
    taken = _handed("in", 2)
    taken.transaction = transaction
    transaction.handed.append(taken)
    facts.handings.append(taken)
    _sent(facts, "one", "open", transaction)
    _sent(facts, "two", "open", transaction)
    transaction.ending = "rolled back"
    assert _judged(facts, _handed("in", 9, flag=True)) == []
    assert _judged(facts, _handed("in", 9, flag=True), _handed("one", 9)) == ["it was rolled back, and is there"]
    assert _judged(facts) == ["lost"]
    transaction.ending = "committed"
    assert _judged(facts, _handed("one", 9), _handed("two", 9)) == []
    assert _judged(facts, _handed("one", 9)) == ["lost"]
    transaction.ending = "in doubt"
    assert _judged(facts, _handed("one", 9), _handed("two", 9)) == []
    assert _judged(facts, _handed("in", 9, flag=True)) == []
    assert _judged(facts, _handed("one", 9)) == ["half a transaction of w"]
    assert _judged(facts) == ["a transaction of w was not committed, and in is gone"]
