"""`python -m tests.soak --cycles 300 --seed 7`: see tests/soak/cycles.py. Ends with 1 when a cycle found a fault."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.soak.cycles import Outcome, run
from tests.support.system_calls import is_possible
from tools.seeds import chosen


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--cycles", type=int, default=30, help="how many; default 30")
    parser.add_argument("--seed", type=int, default=None, help="default: as SEED says, or the commit's")
    given = parser.parse_args()
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
                print(f"soak: cycle {len(outcomes)}, {outcome.kind}: {fault}", flush=True)

        happened = asyncio.run(run(Path(folder), seed, given.cycles, told))
    confirmed = sum(outcome.confirmed for outcome in outcomes)
    enough = sum(outcome.confirmed >= 200 for outcome in outcomes)
    print(f"soak: seed {seed}: {len(outcomes)} cycles, {confirmed:,} confirmed; {enough} cycles with 200 or more")
    print("soak: " + ", ".join(f"{kind} {count}" for kind, count in sorted(happened.items())))
    wrong = sum(bool(outcome.faults) for outcome in outcomes)
    print(f"soak: {wrong} cycles found a fault" if wrong else "soak: nothing lost, nothing doubled")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
