"""docs/reference/figures.md: the figures of the last whole bench run, with the conditions they were taken under."""

import json
from pathlib import Path
from typing import Any

from tools.fingerprints import ROOT

RESULTS = "bench/results/latest.json"
PAGE = "docs/reference/figures.md"
INPUTS = ("tools/generate/figures.py", RESULTS)
OUTPUTS = (PAGE,)

_HEAD = """\
# Figures

The last whole run of `make bench`, from `{results}`; [benchmarks](../benchmarks.md) says what each line is
and how it is measured.

- Seen on {date} with {cores} cores ({cpu}), {memory_gib:.0f} GiB, Linux {kernel}, {file_system}, {grpcio};
- {where};
- load before the run {load}; a durable write of 4 KiB {disk} us; to another grpc.aio process and back {echo} us.

| line | what | seen | floor | goal | |
|---|---|---:|---:|---:|---|
"""


def make(root: Path) -> None:
    """Leaves the page below `root`."""
    entries: dict[str, dict[str, Any]] = json.loads((ROOT / RESULTS).read_text(encoding="utf-8"))
    conditions = next(iter(entries.values()))["conditions"]
    limits = conditions["limits_before"]
    head = _HEAD.format(
        results=RESULTS,
        date=conditions["date"].partition("T")[0],
        memory_gib=conditions["memory_bytes"] / 2**30,
        load=conditions["load_before"],
        disk=limits["fdatasync_p50_us"],
        echo=limits["echo_p50_us"],
        grpcio=grpcio_of(conditions),
        **{name: conditions[name] for name in ("cores", "cpu", "kernel", "file_system", "where")},
    )
    file = root / PAGE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(head + "\n".join(_row(name, one) for name, one in entries.items()) + "\n", encoding="utf-8")


def grpcio_of(conditions: dict[str, Any]) -> str:
    """Which grpcio figures were taken with, and with which of its experiments, if they were not its own choice."""
    experiments = conditions.get("grpc_experiments")
    return f"grpcio {conditions['versions']['grpcio']}" + (f", `GRPC_EXPERIMENTS={experiments}`" if experiments else "")


def _row(name: str, one: dict[str, Any]) -> str:
    verdict = "goal met" if one["goal_met"] else "floor met" if one["floor_met"] else "**below the floor**"
    figures = (f"{_figure(one[key])} {one['unit']}" for key in ("value", "floor", "goal"))
    return f"| {name} | {one['title']} | {' | '.join(figures)} | {verdict} |"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.4g}"
