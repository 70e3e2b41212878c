"""Options that several commands share, each with one spelling, one help text and one default."""

from typing import Annotated

import typer

from sterna.cli.output import Format, Row

Output = Annotated[Format, typer.Option("--output", "-o", metavar="FORMAT", help="table, json, jsonl or yaml.")]

Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0.0, help="How long to wait at most.")]
DEFAULT_TIMEOUT = 30.0

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

Kind = Annotated[str, typer.Argument(metavar="KIND", help="What kind of resource, such as queue or topic.")]

DestinationArgument = Annotated[
    str, typer.Argument(metavar="DESTINATION", help="queue:NAME or topic:NAME; a bare NAME is a queue.")
]

Selector = Annotated[
    str, typer.Option("--selector", "-w", metavar="SELECTOR", help="Only messages that match, as \"colour = 'red'\".")
]

ClientId = Annotated[str, typer.Option("--client-id", metavar="ID", help="The client id that a durable belongs to.")]


def change_shown(row: Row) -> str:
    """What a table says of a change: whether it was only shown, too."""
    return f"{row['change']} (dry run)" if row["dryRun"] and row["change"] != "unchanged" else str(row["change"])


def examples(*lines: str) -> str:
    """The examples that end a command's help, a line each."""
    return "Examples:\n\n" + "\n\n".join(f"$ {line}" for line in lines)
