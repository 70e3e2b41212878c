"""`sterna receive`: take messages from a queue or a topic, and print them."""

import sys
from typing import Annotated, Any

import typer

from sterna.cli import messages, options
from sterna.cli.exits import Exit, PartlyDoneError, complain, usage
from sterna.cli.output import Format, Printer
from sterna.cli.running import INTERRUPTIONS
from sterna.cli.running import run as run_loop
from sterna.cli.servers import THIS_MACHINE, Server
from sterna.messages import Message
from sterna.modes import AcknowledgeMode

EXAMPLES = options.examples(
    "sterna receive queue:orders --count 10 -o jsonl",
    "sterna receive 'topic:news.>' --follow -w \"language = 'en'\"",
    "sterna receive topic:audit --durable audit --client-id auditor --all --raw > audit.txt",
)

# Modes in which the application acknowledges; in the others the SDK or the broker does.
_ACKNOWLEDGED_HERE = frozenset(
    {
        AcknowledgeMode.CLIENT,
        AcknowledgeMode.EXPLICIT_CLIENT,
        AcknowledgeMode.EXPLICIT_CLIENT_DUPS_OK,
        AcknowledgeMode.INDIVIDUAL,
    }
)


def receive(
    destination: options.DestinationArgument,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="How many; by itself 1. With --all or --follow: at most.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="All there are: until none came for the timeout.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Until interrupted.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Wait for each so long.")] = 5.0,
    selector: options.Selector = "",
    durable: Annotated[str, typer.Option("--durable", metavar="NAME", help="Of a topic: a durable subscription.")] = "",
    shared: Annotated[
        str, typer.Option("--shared", metavar="NAME", help="Of a topic: a subscription shared with others.")
    ] = "",
    client_id: options.ClientId = "",
    no_local: Annotated[bool, typer.Option("--no-local", help="Nothing that this client id published.")] = False,
    ack_mode: Annotated[
        str,
        typer.Option("--ack-mode", metavar="MODE", help="individual, auto, client, dups-ok or none."),
    ] = "individual",
    leave: Annotated[bool, typer.Option("--leave", help="Acknowledge nothing: they are delivered again.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print bodies alone, each followed by a newline.")] = False,
    output: options.Output = Format.TABLE,
    server: Server = THIS_MACHINE,
) -> None:
    """Receive messages and print them; each is acknowledged once it was printed: what could not be printed comes again.

    Ends with 3 when fewer came than asked for, with 4 when none did. Interrupted or terminated, it says how many it has
    received, and ends with 3 if there were any; with --follow that is how it ends, with 0.
    """
    mode = _mode(ack_mode)
    if leave and mode not in _ACKNOWLEDGED_HERE:
        raise usage(f"--leave does not go with --ack-mode {ack_mode}", "with it nothing is left: use individual")
    is_open_ended = all_ or follow
    wanted = count if is_open_ended else count or 1
    # Printed as they come: what is acknowledged must have been printed.
    printer = Printer(output, messages.COLUMNS, streaming=True)
    subscription: dict[str, Any] = {"durable": durable, "shared": shared, "no_local": no_local}
    taking = {name: value for name, value in {"selector": selector, **subscription}.items() if value}
    taken = _Taken()
    is_done = False
    try:
        run_loop(
            _receive(
                destination,
                wanted,
                None if follow else timeout,
                taking,
                mode,
                server,
                client_id,
                printer,
                taken,
                raw=raw,
                leave=leave,
            )
        )
        is_done = True
    except INTERRUPTIONS as error:
        if not follow:
            raise PartlyDoneError(error, taken.report(leave=leave), is_partly=taken.count > 0) from error
        complain(taken.report(leave=leave))
        is_done = True
    finally:
        if not raw and (is_done or printer.count):
            printer.close()
    received = taken.count
    if wanted is not None and not is_open_ended and received < wanted:
        raise typer.Exit(Exit.PARTIAL if received else Exit.NOT_FOUND)


class _Taken:
    """How many messages were received and printed so far."""

    def __init__(self) -> None:
        self.count = 0

    def report(self, *, leave: bool) -> str:
        """What to say when it ends before its time."""
        return f"{self.count} received" + (", none acknowledged" if leave else "")


async def _receive(
    destination: str,
    wanted: int | None,
    timeout: float | None,
    taking: dict[str, Any],
    mode: AcknowledgeMode,
    server: Server,
    client_id: str,
    printer: Printer,
    taken: _Taken,
    *,
    raw: bool,
    leave: bool,
) -> None:
    async with server.connect(client_id=client_id) as connection, await connection.session(mode) as session:
        consumer = await session.consumer(messages.sdk_destination(destination), **taking)
        while wanted is None or taken.count < wanted:
            message = await consumer.receive(timeout=timeout)
            if message is None:
                break
            _show(message, printer, raw=raw)
            taken.count += 1
            if mode in _ACKNOWLEDGED_HERE and not leave:
                message.acknowledge()
        if not leave:
            await session.flush()


def _show(message: Message, printer: Printer, *, raw: bool) -> None:
    if raw:
        sys.stdout.buffer.write(messages.raw_body(message) + b"\n")
        sys.stdout.buffer.flush()
    else:
        printer.add(messages.row(message))


def _mode(text: str) -> AcknowledgeMode:
    name = text.upper().replace("-", "_")
    if name not in AcknowledgeMode.__members__ or name == "TRANSACTED":
        modes = ", ".join(mode.name.lower().replace("_", "-") for mode in AcknowledgeMode if mode.name != "TRANSACTED")
        raise usage(f"'{text}' is no acknowledge mode", f"one of: {modes}")
    return AcknowledgeMode[name]
