"""A few cycles in every run, others with every commit; `make soak` runs hundreds."""

from pathlib import Path

import pytest

from tests.soak.cycles import Outcome, run
from tests.soak.ledger import Ledger
from tests.support.seeds import seed
from tests.support.system_calls import is_possible

_CYCLES = 3


@pytest.mark.skipif(not is_possible(), reason="system calls are supervised on Linux on x86-64 alone")
@pytest.mark.slow_callbacks(5_000)
@pytest.mark.timeout(300)
async def test_what_clients_were_told_holds_after_faults_of_process_and_disk(tier_broker: None, tmp_path: Path) -> None:
    outcomes: list[Outcome] = []
    await run(tmp_path, seed(), _CYCLES, outcomes.append)
    assert [outcome.faults for outcome in outcomes] == [[]] * _CYCLES
    assert sum(outcome.confirmed for outcome in outcomes) > 0


def stored(**queues: list[str]) -> dict[str, list[str]]:
    """What queues hold; those that are not named are empty."""
    return {name: queues.get(name, []) for name in ("plain", "in", "out", "copies", "durable", "last")}


def ledger() -> Ledger:
    """Of five messages, of which two were acknowledged, asked for or answered, and one refused; a move; last values."""
    return Ledger(
        sent={"p1", "p2", "p3", "p4", "p5", "m1", "m2", "m3"},
        confirmed={"p1", "p2", "p3", "m1", "m2", "m3"},
        refused={"p5"},
        acknowledging={"p2", "p3"},
        acknowledged={"p3"},
        moves=[(("m1", "m2"), True)],
        last_confirmed=7,
        last_sent=8,
    )


@pytest.mark.parametrize("plain", [["p1"], ["p1", "p2"], ["p1", "p2", "p4"]])
def test_what_is_in_doubt_may_be_there_or_not(plain: list[str]) -> None:
    found = stored(plain=plain, out=["m2", "m1"], last=["8"]) | {"in": ["m3"]}
    assert ledger().judge(found) == []


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ({"plain": ["p2"]}, "plain: confirmed and lost"),
        ({"plain": ["p1", "p1"]}, "plain: there twice"),
        ({"plain": ["p1", "p3"]}, "plain: there although it was acknowledged"),
        ({"plain": ["p1", "p5"]}, "plain: there although it was acknowledged or refused"),
        ({"plain": ["p1", "p9"]}, "plain: there and never sent"),
        ({"in": []}, "in/out: confirmed and lost"),
        ({"in": ["m3", "m1"]}, "in/out: there twice"),
        ({"in": ["m3", "m1", "m2"], "out": []}, "in/out: committed and not moved"),
        ({"in": ["m3", "m1"], "out": ["m2"]}, "in/out: half of a transaction"),
        ({"last": []}, "last: empty"),
        ({"last": ["6"]}, "last: holds 6"),
        ({"last": ["7", "8"]}, "last: holds 2"),
    ],
)
def test_what_was_told_and_does_not_hold_is_found(found: dict[str, list[str]], fault: str) -> None:
    whole = {**stored(plain=["p1"], out=["m1", "m2"], last=["7"]), "in": ["m3"], **found}
    assert any(one.startswith(fault) for one in ledger().judge(whole)), ledger().judge(whole)
