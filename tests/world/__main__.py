"""Runs seeds of the world, and says what does not hold.

    python -m tests.world --first 7              one run
    python -m tests.world --seeds 1000           the next thousand; what was run is added up in build/world.json
    python -m tests.world --first 7 --reduce     the shortest run of a failing seed that still fails

A failing seed is printed as the command that runs it again.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import grpc.aio  # noqa: F401 - the SDK imports it in a thread, if nobody has before
import structlog

from tests.world import awaits, defects
from tests.world.run import NUMBERS, Scene, Verdict, run

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "build" / "world.json"

#: Where the brokers' own files cost no disk, if there is such a place.
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    """Exit status 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.world")
    parser.add_argument("--first", type=int, help="the first seed; without it, the one behind those that were run")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="end after so long")
    parser.add_argument("--reduce", action="store_true")
    parser.add_argument("--hunt", type=int, nargs="*", help="look for each of these defects (or all), put back")
    parser.add_argument("--verbose", action="store_true", help="with the logs, and how often each call ended how")
    parser.add_argument("--trace", action="store_true", help="each step, one a line")
    for name in NUMBERS:
        parser.add_argument(f"--{name}", type=int)
    arguments = parser.parse_args()
    _quiet(verbose=arguments.verbose)
    if arguments.hunt is not None:
        return hunt(arguments.hunt or list(defects.DEFECTS), arguments.first or 1, max(arguments.seeds, 1000))
    book = _read()
    first = book["next"] if arguments.first is None else arguments.first
    given = {name: value for name in NUMBERS if (value := getattr(arguments, name)) is not None}
    began, bad, seed, counts = time.monotonic(), 0, first, book["awaits"]
    while seed < first + arguments.seeds and time.monotonic() - began < arguments.seconds:
        verdict = played(replace(Scene.of(seed), **given), traced=arguments.trace)
        _tell(verdict, arguments)
        bad += bool(verdict.problems)
        counts.add(verdict.counts)
        if verdict.problems and arguments.reduce:
            _tell(reduced(verdict), arguments)
        seed += 1
    print(f"{seed - first} runs in {time.monotonic() - began:.0f} s, {bad} of them bad")
    if arguments.first is None:
        BOOK.parent.mkdir(exist_ok=True)
        total = book["runs"] + seed - first
        book = {"next": seed, "runs": total, "bad": book["bad"] + bad, "awaits": counts.by_kind()}
        BOOK.write_text(json.dumps(book))
        print(f"{total} runs in all, {book['bad']} of them bad")
        _tell_awaits(counts)
    return 1 if bad else 0


def played(scene: Scene, *, traced: bool = False) -> Verdict:
    """A run, with a folder that goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="world", dir=_MEMORY) as folder:
        return run(scene, Path(folder), traced=traced)


def hunt(numbers: list[int], first: int, seeds: int) -> int:
    """Looks for defects that are put back, and writes down the reduced run that shows each.

    A seed is played with all of them first, since most show nothing: then with none, and with each.
    """
    missing = list(numbers)
    for seed in range(first, first + seeds):
        sought = [one for one in missing if one not in defects.OF_CLUSTERS or Scene.of(seed).brokers > 1]
        if not sought:
            continue
        with ExitStack() as stack:
            for number in sought:
                stack.enter_context(defects.put_back(number))
            if not played(Scene.of(seed)).problems:
                continue
        if (plain := played(Scene.of(seed))).problems:
            print(f"{seed}: without any: {plain.problems[:1]}", flush=True)
            continue
        for number in sought:
            with defects.put_back(number):
                found = played(Scene.of(seed))
                if not found.problems:
                    continue
                short = reduced(found, finely=False)
            if played(short.scene).problems:
                short = found
            missing.remove(number)
            defects.keep(number, short.scene)
            after = seed - first + 1
            print(f"{number}: {defects.DEFECTS[number][0]}: after {after} seeds; {short.problems[:1]}", flush=True)
    for number in missing:
        print(f"{number}: not found in {seeds} seeds from {first} on")
    return 1 if missing else 0


def reduced(verdict: Verdict, *, finely: bool = True) -> Verdict:
    """A shorter run that fails as well: each number is lowered as far as that lasts; not `finely`: by halves."""
    best = verdict
    for name in NUMBERS:
        if name == "brokers":
            continue  # one fewer is another run
        low = 0 if name in ("faults", "extras", "deeds", "guests", "newcomers", "jugglers") else 1
        while (value := getattr(best.scene, name)) > low:
            lower = {low, value // 2, value - 1} if finely else {low, max(low, value // 2)}
            tries = (replace(best.scene, **{name: less}) for less in sorted(lower))
            found = next((one for one in map(played, tries) if one.problems), None)
            if found is None:
                break
            best = found
    return best


def _tell(verdict: Verdict, arguments: Any) -> None:
    if verdict.trace:
        print("\n".join(verdict.trace))
    if verdict.problems:
        scene = asdict(verdict.scene)
        numbers = " ".join(f"--{name} {scene[name]}" for name in NUMBERS)
        print(f"python -m tests.world --first {verdict.scene.seed} {numbers}")
        faults = ", ".join(verdict.faults) or "no faults"
        print(f"  {verdict.steps} steps, {verdict.took_s:.1f} s of the world; {faults}")
        for problem in verdict.problems[:12]:
            print(f"  {problem}")
    if arguments.verbose:
        print(verdict.scene.seed, verdict.steps, f"{verdict.took_s:.1f}", dict(sorted(verdict.calls.items())))


def _tell_awaits(counts: awaits.Counts) -> None:
    """What no run has reached."""
    known = set(awaits.read())
    for what, counted in counts.by_kind().items():
        never = awaits.never(counted)
        print(
            f"{len(known & counted.keys())} of {len(known)} awaits were {what}, {len(never)} never:", *never, sep="\n  "
        )


def _quiet(*, verbose: bool) -> None:
    level = logging.INFO if verbose else logging.CRITICAL
    # Not among what is told of runs: its lines carry the time of day.
    factory = structlog.PrintLoggerFactory(sys.stderr)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level), logger_factory=factory)
    logging.getLogger("sterna").setLevel(level)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def _read() -> dict[str, Any]:
    if not BOOK.exists():
        return {"next": 1, "runs": 0, "bad": 0, "awaits": awaits.Counts()}
    book: dict[str, Any] = json.loads(BOOK.read_text())
    # One of before they were counted for all rooms has none.
    counts = {what: Counter(counted) for what, counted in book.get("awaits", {}).items()}
    return {**book, "awaits": awaits.Counts(**counts)}


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # Without cleaning up: nobody is to wait for what killed processes have left.
    os._exit(status)
