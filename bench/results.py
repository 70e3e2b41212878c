"""What was measured, as JSON keyed by line and as a table for people."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.lines import Line

LATEST = Path(__file__).parent / "results" / "latest.json"


@dataclass(frozen=True, slots=True)
class Measured:
    """A line's value, with what else is worth knowing about how it came about.

    Args:
        line: the line's id.
        value: in the line's unit; the median where it was measured several times.
        details: the single runs, percentiles, sizes, windows.
    """

    line: str
    value: float
    details: dict[str, Any] = field(default_factory=dict)


def entry(line: Line, measured: Measured, conditions: dict[str, Any]) -> dict[str, Any]:
    """A line's entry in the results."""
    return {
        "title": line.title,
        "value": round(measured.value, 3),
        "unit": line.unit,
        "better": line.better,
        "floor": line.floor,
        "goal": line.goal,
        "floor_met": line.meets(measured.value, line.floor),
        "goal_met": line.meets(measured.value, line.goal),
        "details": measured.details,
        "conditions": conditions,
    }


def write(entries: dict[str, dict[str, Any]], path: Path = LATEST) -> None:
    """Write the results in place of those before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".fresh")
    fresh.write_text(json.dumps(entries, indent=2) + "\n")
    fresh.replace(path)


def show(entries: dict[str, dict[str, Any]]) -> None:
    """Print the results as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("LINE", "WHAT"):
        table.add_column(title)
    for title in ("VALUE", "UNIT", "FLOOR", "GOAL"):
        table.add_column(title, justify="right")
    table.add_column("")
    for name, one in entries.items():
        verdict = "[green]goal[/]" if one["goal_met"] else "floor" if one["floor_met"] else "[red]below the floor[/]"
        figures = [f"{one[key]:,.4g}" if one[key] < 1_000 else f"{one[key]:,.0f}" for key in ("value", "floor", "goal")]
        table.add_row(name, one["title"], figures[0], one["unit"], figures[1], figures[2], verdict)
    # A pipe has no width of its own; the table needs so much.
    Console(width=None if sys.stdout.isatty() else 130).print(table)
