"""Asking before something is destroyed."""

import sys

import typer

from sterna.cli.exits import usage


def confirm(question: str, *, yes: bool) -> None:
    """Go on when `--yes` was given or the person agrees; end the command when not.

    Without a terminal nobody can be asked: then only `--yes` will do.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise usage(f"{question} Nobody is there to answer", "say it with --yes")
    typer.confirm(question, abort=True, err=True)
