"""A progress bar on stderr, where somebody looks at a terminal; nothing otherwise."""

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Gives a function that takes how far it is by now.

    Args:
        title: what is under way.
        total: how far it will go; None when nobody knows.
    """
    if not sys.stderr.isatty() or (total is not None and total < 2):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)
