"""Asking before something is destroyed."""

import signal
import sys
import threading
from types import FrameType

import typer

from sterna.cli.exits import complain, usage
from sterna.cli.running import Terminated


def confirm(question: str, *, yes: bool) -> None:
    """Go on when `--yes` was given or the person agrees; end the command when not.

    Without a terminal nobody can be asked: then only `--yes` will do.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise usage(f"{question} Nobody is there to answer", "say it with --yes")
    if threading.current_thread() is not threading.main_thread():
        _ask(question)
        return
    # A running event loop takes the first Ctrl-C for the task that it runs, which is held up by the question: it would
    # be heard of only when the question is answered. SIGTERM has its way through the same loop.
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        _ask(question)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _ask(question: str) -> None:
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as ending:
        # Ctrl-C and the end of the input look the same here; only the first is an interruption, and ends as one.
        if isinstance(ending.__context__, KeyboardInterrupt):
            complain("")
            raise KeyboardInterrupt from None
        raise
    if not agreed:
        raise typer.Abort


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated
