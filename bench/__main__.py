"""`python -m bench`: measure the lines, print a table, write the results."""

import argparse
import sys
import tempfile
import time  # noqa: TID251 - measures real time
from pathlib import Path

from bench import machine, results
from bench.limits import Limits, measure_limits
from bench.lines import lines_for
from bench.measures import MEASURES
from bench.results import Measured
from bench.rig import Rig


def main() -> int:
    """Measure what the arguments ask for; 0 unless a measure failed to run."""
    options = _options()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="sterna-bench-") as folder:
        rig = Rig(Path(folder), quick=options.quick)
        conditions = machine.conditions(rig.folder)
        conditions["quick"] = rig.quick
        before = _limits(rig)
        measured, failed = _measure(rig, options.only)
        after = _limits(rig)
    # A machine that was disturbed at one end of the run is no slower for that: the bounds follow its better moment.
    conditions["limits_before"], conditions["limits_after"] = before.as_dict(), after.as_dict()
    conditions["load_after"] = machine.load()
    # More than half of the cores were taken by others: the figures say little, and B1's bounds least of all.
    conditions["disturbed"] = conditions["load_before"] > (conditions["cores"] or 1) / 2
    if conditions["disturbed"]:
        _say(f"the machine was busy before the run (load {conditions['load_before']}): do not quote these figures")
    lines = lines_for(before.best(after))
    entries = {one.line: results.entry(lines[one.line], one, conditions) for one in measured}
    results.show(entries)
    if not options.only and not failed:
        results.write(entries, options.out)
        _say(f"written to {options.out}")
    return 1 if failed else 0


def _limits(rig: Rig) -> Limits:
    found = measure_limits(rig.folder, syncs=rig.scaled(2_000), echoes=rig.scaled(5_000))
    disk = f"fdatasync p50 {found.fdatasync_p50_us} us, p99 {found.fdatasync_p99_us} us"
    _say(f"{disk}; grpc.aio echo p50 {found.echo_p50_us} us, p99 {found.echo_p99_us} us; load {machine.load()}")
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the load, one repeat: a look, not a figure")
    parser.add_argument("--only", action="append", default=[], metavar="LINE", help="only these lines (not written)")
    parser.add_argument("--folder", type=Path, default=None, help="where brokers keep data (default: the temp folder)")
    parser.add_argument("--out", type=Path, default=results.LATEST, help="where the results go")
    return parser.parse_args()


def _measure(rig: Rig, only: list[str]) -> tuple[list[Measured], list[str]]:
    """All measures that are wanted, one after the other; what failed is said and left out."""
    found: list[Measured] = []
    failed: list[str] = []
    for name, measure in MEASURES.items():
        if only and not any(name == wanted.partition("-")[0].rstrip("a") for wanted in only):
            continue
        begin = time.monotonic()
        try:
            fresh = measure(rig)
        except Exception as error:  # noqa: BLE001 - one line's failure must not cost the others, and is not hidden
            failed.append(name)
            _say(f"{name} failed: {type(error).__name__}: {error}")
            continue
        took = time.monotonic() - begin
        found += fresh
        _say(f"{', '.join(f'{one.line}: {one.value:,.4g}' for one in fresh)}  ({took:.1f} s)")
    return found, failed


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
