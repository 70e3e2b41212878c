"""What the demo shows: progress bars on a terminal, plain lines elsewhere, and the table at the end."""

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from examples.flights.tally import Tally

_LEGEND = (
    "archive: a durable subscription, offline while all was sent; workers: three who share one;",
    "delays: what a bridge's selector let through; boarding: cancelled ones are rejected until they are undelivered.",
    "redelivered came again, flagged as such; unflagged came again without the flag.",
)


class Display:
    """Stages as lines, amounts as bars. Use it with `with`; `line` works at any time."""

    def __init__(self) -> None:
        # A pipe has no width of its own; the table needs so much.
        self._console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
        columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn())
        self._progress = Progress(*columns, console=self._console, disable=not sys.stdout.isatty())
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def line(self, text: str) -> None:
        """Say what happens."""
        self._progress.console.print(text, markup=False, soft_wrap=True)

    def bar(self, name: str, done: int, total: int) -> None:
        """Show how far something is; the first call makes its bar."""
        if name not in self._bars:
            self._bars[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._bars[name], completed=done)

    def table(self, tallies: Sequence[Tally], confirmed: bytearray) -> None:
        """The result, a row for each place."""
        table = Table(title="Every flight, counted by its key", title_justify="left", header_style="bold", box=None)
        table.add_column("destination", no_wrap=True)
        columns = ("sent", "confirmed", "delivered", "redelivered", "undelivered", "left", "lost", "unflagged")
        for column in columns:
            table.add_column(column, justify="right")
        for tally in tallies:
            reached = sum(1 for due, safe in zip(tally.expected, confirmed, strict=True) if due and safe)
            wrong = (len(tally.lost(confirmed)), tally.unflagged_duplicates)
            figures = (tally.expected_count, reached, tally.accepted_count, tally.redelivered, tally.undelivered_count)
            table.add_row(
                tally.name,
                *(f"{figure:,}" for figure in (*figures, len(tally.left))),
                *(f"[{'red' if figure else 'green'}]{figure:,}[/]" for figure in wrong),
            )
        self._console.print()
        self._console.print(table)
        for line in _LEGEND:
            self._console.print(line, style="dim")
