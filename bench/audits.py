"""`make bench-audit`: what audits of a night with millions of messages cost.

No line of the benchmarks: it prints what it measures. The history is made (`bench.audit_history` says how); the audits
are those of `sterna-audit run`, in a process of its own with Spark on two cores (`local[2]`), one size after the other:

- `night`: histories of growing size, which says whether cost grows with the messages alone;
- `hot`: one in which a single queue has nine tenths of all.

Spark's time is what the audits say that they took together, without its start and without verifying files; memory is
the most that the whole process tree had at any time, what processes share counted once.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time  # noqa: TID251 - measures real time
from pathlib import Path
from typing import Any

from sterna_audit.snapshots.stores import Directory

from bench import machine
from bench.audit_history import History

_SIZES = (1_000_000, 2_000_000, 5_000_000, 10_000_000)
_HOT = 0.9
_LOOK_S = 0.5


def main() -> int:
    """Measure, and print one line of JSON for each history."""
    parser = argparse.ArgumentParser(prog="python -m bench.audits", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, _SIZES)), help="deliverables of each history, with commas")
    parser.add_argument("--hot", type=int, default=_SIZES[-1], help="deliverables of the uneven one; 0: none")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="2500m", help="of Spark's driver")
    parser.add_argument("--jobs", default="", help="these audits alone")
    options = parser.parse_args()
    status = 0
    for size in map(int, options.sizes.split(",")):
        status |= _measure("night", size, 0.0, options)
    if options.hot:
        status |= _measure("hot", options.hot, _HOT, options)
    return status


def _measure(step: str, size: int, hot: float, options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="sterna-bench-") as folder:
        root, out = Path(folder) / "snapshots", Path(folder) / "out"
        history = History(size, hot=hot)
        begin = time.monotonic()
        asyncio.run(history.write(Directory(root)))
        written_s = time.monotonic() - begin
        bytes_ = sum(path.stat().st_size for path in root.rglob("*.parquet"))
        code, seconds, most = _audited(root, out, options)
        found: dict[str, Any] = json.loads((out / "findings.json").read_text())
    audits = {one["name"]: one["seconds"] for one in found["audits"]}
    said = {
        "step": step,
        "deliverables": history.deliverables,
        "stored": history.stored,
        "rows": history.rows,
        "bytes": bytes_,
        "bytes_a_row": round(bytes_ / history.rows, 2),
        "written_s": round(written_s, 1),
        "verdict": found["verdict"],
        "violated": sum(one["counts"].get("violated", 0) for one in found["audits"]),
        "spark_s": round(found["seconds"], 1),
        "whole_s": round(seconds, 1),
        "memory_mib": most >> 20,
        "audits_s": audits,
        "load": machine.load(),
    }
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    return int(code != 0 or said["violated"] > 0)


def _audited(root: Path, out: Path, options: argparse.Namespace) -> tuple[int, float, int]:
    """How a run of audits ended, how long it took, and the most memory that it had."""
    command = [sys.executable, "-m", "sterna_audit.main", "run", "--snapshots", str(root), "--out", str(out)]
    command += ["--unsigned", "--master", options.master, "--memory", options.memory, "--jobs", options.jobs]
    begin = time.monotonic()
    process = subprocess.Popen(command, env={**os.environ, "SPARK_LOCAL_DIRS": str(root.parent / "spark")})
    most = [0]
    watcher = threading.Thread(target=_watch, args=(process, most))
    watcher.start()
    code = process.wait()
    watcher.join()
    return code, time.monotonic() - begin, most[0]


def _watch(process: "subprocess.Popen[bytes]", most: list[int]) -> None:
    """Notes the most memory that a process and its children have until it ends."""
    before: set[int] = set()
    while process.poll() is None:
        had = _memory(process.pid)
        # Between its birth and its own program a child has all of its parent's memory, and shows it as its own.
        most[0] = max(most[0], sum(size for pid, size in had.items() if pid in before))
        before = set(had)
        time.sleep(_LOOK_S)


def _memory(pid: int) -> dict[int, int]:
    """Of a process and all below it, in bytes; what has ended meanwhile has none."""
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        children = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except (FileNotFoundError, ProcessLookupError):
        return {}
    # A page that several processes have is shared out among them.
    found = {pid: sum(int(row.split()[1]) for row in rows if row.startswith("Pss:")) << 10}
    for child in (int(child) for one in children for child in one):
        found |= _memory(child)
    return found


if __name__ == "__main__":
    sys.exit(main())
