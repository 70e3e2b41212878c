"""`sterna browse`: look at messages without taking them."""

import sys
from typing import Annotated

import typer

from sterna.cli import messages, options
from sterna.cli.destinations import destination, durable_of
from sterna.cli.exits import usage
from sterna.cli.output import Format, Printer
from sterna.cli.running import run as run_loop
from sterna.cli.servers import THIS_MACHINE, Server

EXAMPLES = options.examples(
    "sterna browse queue:orders --count 20",
    "sterna browse '$sys.undelivered' -o jsonl",
    "sterna browse --durable audit --client-id auditor -w 'amount > 1000'",
)


def browse(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue; none with --durable.")] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100_000, help="How many at most.")] = 100,
    selector: options.Selector = "",
    after: Annotated[int, typer.Option("--after", metavar="SEQUENCE", min=0, help="Only what comes after it.")] = 0,
    durable: Annotated[str, typer.Option("--durable", metavar="NAME", help="A durable subscription instead.")] = "",
    client_id: options.ClientId = "",
    raw: Annotated[bool, typer.Option("--raw", help="Print bodies alone, each followed by a newline.")] = False,
    output: options.Output = Format.TABLE,
    server: Server = THIS_MACHINE,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Print what a queue or a durable subscription holds, oldest first; nothing is taken."""
    if bool(queue) == bool(durable):
        raise usage("name either a queue or, with --durable, a durable subscription", "sterna browse orders")
    name = durable
    if queue:
        place = destination(queue)
        if place.kind != "queue":
            raise usage(f"{place} is a topic, which holds nothing itself", "browse a durable with --durable NAME")
        name = place.name
    run_loop(_browse(name, durable, client_id, selector, count, after, raw, output, server, timeout))


async def _browse(
    name: str,
    durable: str,
    client_id: str,
    selector: str,
    count: int,
    after: int,
    raw: bool,
    output: Format,
    server: Server,
    timeout: float,
) -> None:
    printer = Printer(output, messages.COLUMNS)
    async with server.admin(timeout=timeout) as client:
        if durable:
            owner, own = await durable_of(client, durable, client_id)
            found = client.browse_durable(own, client_id=owner, selector=selector, limit=count, after_sequence=after)
        else:
            found = client.browse_queue(name, selector=selector, limit=count, after_sequence=after)
        async for message in found:
            if raw:
                sys.stdout.buffer.write(messages.raw_body(message) + b"\n")
            else:
                printer.add(messages.row(message))
    if not raw:
        printer.close()
