"""The lines that are measured: what each is, its floor and its goal.

A floor is what the design must reach for the engine to be the right one; a goal is what it aims at. Two lines (B1's
floor and goal) depend on the machine's own limits measured in the same run, so they are made by `lines_for`.
"""

from dataclasses import dataclass
from typing import Literal

from bench.limits import Limits


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its id, its meaning, and what would be good."""

    id: str
    title: str
    unit: str
    floor: float
    goal: float
    better: Literal["higher", "lower"] = "higher"

    def meets(self, value: float, bound: float) -> bool:
        """Whether a value is at least as good as a bound."""
        return value >= bound if self.better == "higher" else value <= bound


def lines_for(limits: Limits) -> dict[str, Line]:
    """All lines, by id, on a machine with these limits."""
    bare_us = limits.echo_p50_us + limits.fdatasync_p50_us
    lines = [
        Line("B1", "persistent, one outstanding, p50", "us", bare_us + 170, bare_us + 110, "lower"),
        Line("B2", "persistent, pipelined, window 4,000", "msg/s", 120_000, 200_000),
        Line("B2a", "persistent, 1,000 tasks that await each send", "msg/s", 50_000, 90_000),
        Line("B3", "consume and acknowledge from a backlog", "msg/s", 100_000, 180_000),
        Line("B4", "both at once, the slower side", "msg/s", 50_000, 90_000),
        Line("B5-connections", "16 producers on 16 connections, one outstanding each", "msg/s", 9_000, 12_000),
        Line("B5-tasks", "16 tasks on one connection, one outstanding each", "msg/s", 12_000, 25_000),
        Line("B6", "non-persistent, end to end", "msg/s", 100_000, 150_000),
        Line("B7", "raw frames of 64, pipelined: the broker alone", "msg/s", 280_000, 400_000),
        Line("B8", "memory of a queued message beyond the cache", "B", 100, 48, "lower"),
        Line("B9-warm", "restart with 1 M messages, files in the page cache", "s", 2.0, 0.5, "lower"),
        Line("B9-cold", "restart with 1 M messages, files not in it", "s", 3.0, 1.0, "lower"),
    ]
    return {line.id: line for line in lines}
