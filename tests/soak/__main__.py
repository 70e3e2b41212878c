"""`python -m tests.soak --cycles 300 --seed 7`: see tests/soak/cycles.py. Ends with 1 when a cycle found a fault."""

import argparse
import asyncio
import logging
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.soak.cycles import CONFIRMED_MIN, Outcome, run
from tests.soak.faults import KINDS
from tests.support.system_calls import is_possible
from tools.seeds import chosen


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--cycles", type=int, default=30, help="how many; default 30")
    parser.add_argument("--seed", type=int, default=None, help="default: as SEED says, or the commit's")
    parser.add_argument("--only", default="", help="faults whose names contain it")
    given = parser.parse_args()
    kinds = tuple(kind for kind in KINDS if given.only in kind.name)
    if not kinds:
        parser.error("no fault has such a name: " + ", ".join(kind.name for kind in KINDS))
    # What a client says of each broken connection is no news here.
    logging.getLogger("sterna").setLevel(logging.CRITICAL)
    if not is_possible():
        print("soak: supervises system calls, which it can on Linux on x86-64 alone", file=sys.stderr)
        return 2
    seed = chosen() if given.seed is None else given.seed
    outcomes: list[Outcome] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, disable=not sys.stderr.isatty()) as progress, tempfile.TemporaryDirectory() as folder:
        task = progress.add_task("cycles", total=given.cycles)

        def told(outcome: Outcome) -> None:
            outcomes.append(outcome)
            progress.advance(task)
            for fault in outcome.faults:
                print(f"soak: cycle {outcome.number}, {outcome.kind}: {fault}", flush=True)

        happened = asyncio.run(run(Path(folder), seed, given.cycles, told, kinds))
    for line in _told(outcomes, happened):
        print(f"soak: {line}")
    wrong = sum(bool(outcome.faults) for outcome in outcomes)
    print(f"soak: {wrong} cycles found a fault" if wrong else "soak: nothing lost, nothing doubled")
    return 1 if wrong else 0


def _told(outcomes: list[Outcome], happened: Counter[str]) -> list[str]:
    confirmed = sum(outcome.confirmed for outcome in outcomes)
    enough = sum(outcome.confirmed >= CONFIRMED_MIN for outcome in outcomes)
    by_transactions = sum(outcome.by_transactions for outcome in outcomes)
    unsynced = sum(outcome.unsynced for outcome in outcomes)
    forced = sum("forced" in outcome.note for outcome in outcomes)
    enough_of = f"{enough} with {CONFIRMED_MIN} or more, {by_transactions} drained by transactions only"
    return [
        f"seed {outcomes[0].seed}: {len(outcomes)} cycles, {confirmed:,} confirmed; {enough_of}",
        f"losses of power found {unsynced:,} changes without a sync; {forced} damaged copies started by force alone",
        ", ".join(f"{kind} {count}" for kind, count in sorted(happened.items())),
    ]


if __name__ == "__main__":
    sys.exit(main())
