"""Verdicts: a line meets its floor and its goal in its own direction."""

import json
from pathlib import Path

import pytest

from bench import results
from bench.limits import Limits
from bench.lines import lines_for
from bench.measures import MEASURES
from bench.results import Measured

LIMITS = Limits(fdatasync_p50_us=90, fdatasync_p99_us=150, echo_p50_us=170, echo_p99_us=400)


@pytest.mark.parametrize(
    ("line", "value", "floor_met", "goal_met"),
    [
        ("B1", 430, True, False),
        ("B1", 370, True, True),
        ("B1", 431, False, False),
        ("B2", 120_000, True, False),
        ("B2", 119_999, False, False),
        ("B2", 200_000, True, True),
        ("B8", 47.9, True, True),
        ("B8", 101, False, False),
        ("B9-cold", 0.9, True, True),
    ],
)
def test_verdicts(line: str, value: float, floor_met: bool, goal_met: bool) -> None:
    entry = results.entry(lines_for(LIMITS)[line], Measured(line, value), {})
    assert (entry["floor_met"], entry["goal_met"]) == (floor_met, goal_met)


def test_every_line_has_a_measure() -> None:
    assert {line.partition("-")[0].rstrip("a") for line in lines_for(LIMITS)} == set(MEASURES)


def test_results_are_keyed_by_line(tmp_path: Path) -> None:
    entry = results.entry(lines_for(LIMITS)["B7"], Measured("B7", 300_000, {"runs": [1]}), {"cores": 2})
    results.write({"B7": entry}, tmp_path / "latest.json")
    found = json.loads((tmp_path / "latest.json").read_text())
    assert found["B7"]["value"] == 300_000
    assert found["B7"]["unit"] == "msg/s"
    assert found["B7"]["conditions"] == {"cores": 2}
