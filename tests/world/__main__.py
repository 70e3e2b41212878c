"""Runs seeds, and says what does not hold: `python -m tests.world --seeds 100 --first 1`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

import grpc.aio  # noqa: F401 - the SDK imports it in a thread, if nobody has before
import structlog

from tests.world.run import Scene, run


def main() -> int:
    """Exit status 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.world")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="end after so long")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--trace", action="store_true")
    arguments = parser.parse_args()
    quiet = structlog.make_filtering_bound_logger(logging.INFO if arguments.verbose else logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    logging.getLogger("sterna").setLevel(logging.INFO if arguments.verbose else logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    began, bad = time.monotonic(), 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        with tempfile.TemporaryDirectory(prefix="world", dir="/dev/shm") as folder:
            verdict = run(Scene.of(seed), Path(folder), traced=arguments.trace)
        if verdict.trace:
            print("\n".join(verdict.trace))
        if verdict.problems:
            bad += 1
            print(f"seed {seed}: {verdict.scene}, {verdict.steps} steps, {verdict.took_s:.1f} s; {verdict.faults}")
            for problem in verdict.problems[:12]:
                print(f"  {problem}")
        if arguments.verbose:
            print(seed, verdict.steps, f"{verdict.took_s:.1f}", dict(sorted(verdict.calls.items())))
        if time.monotonic() - began > arguments.seconds:
            break
    print(f"{seed - arguments.first + 1} runs in {time.monotonic() - began:.1f} s, {bad} of them bad")
    return 1 if bad else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # Without cleaning up: the coroutines of processes that were killed would run their `finally` blocks.
    os._exit(status)
