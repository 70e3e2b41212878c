"""`sterna send`: send messages from arguments, files, lines or JSON lines."""

import asyncio
import itertools
import sys
import time  # noqa: TID251 - the command line is not simulated
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import sterna
from sterna._loop import run as run_loop
from sterna._measuring.schedules import Schedule
from sterna.cli import messages, options
from sterna.cli.exits import Exit, complain, describe, usage
from sterna.cli.messages import Outgoing, body_in, outgoing, sdk_destination, spelled
from sterna.cli.output import Column, Format, print_rows
from sterna.cli.progress import progress
from sterna.cli.properties import parse_properties
from sterna.cli.servers import THIS_MACHINE, Server
from sterna.errors import FlushError
from sterna.messages import Sent

EXAMPLES = options.examples(
    "sterna send queue:orders 'two teas' -p table:int=7",
    "sterna send topic:news.sport --lines headlines.txt --rate 100",
    "sterna receive orders --count 10 -o jsonl | sterna send copies --jsonl -",
)

_ONE = (
    Column("DESTINATION", "destination"),
    Column("MESSAGE", "messageId"),
    Column("DURABILITY", "durability"),
)
_MANY = (
    Column("DESTINATION", "destination"),
    Column("MESSAGES", "messages", "right"),
    Column("SECONDS", "seconds", "right"),
    Column("PER SECOND", "rate", "right"),
)


@dataclass(frozen=True, slots=True)
class _Sources:
    """Where messages come from; exactly one of them is used."""

    texts: list[str]
    files: list[Path]
    lines: str
    jsonl: str
    body_type: str

    def messages(self, defaults: Outgoing) -> Iterator[Outgoing]:
        """The messages, one by one; headers and properties of `defaults` hold where a message has none of its own."""
        named = [name for name, given in self._given().items() if given]
        if len(named) > 1:
            raise usage(f"messages come from one source, not from {' and '.join(named)}", "give one of them")
        if self.jsonl:
            for number, line in _lines(self.jsonl):
                one = outgoing(line, number)
                yield Outgoing(one.body, {**defaults.properties, **one.properties}, {**defaults.headers, **one.headers})
            return
        for body in self._bodies():
            yield Outgoing(body, defaults.properties, defaults.headers)

    def _given(self) -> dict[str, bool]:
        return {
            "arguments": bool(self.texts),
            "--file": bool(self.files),
            "--lines": bool(self.lines),
            "--jsonl": bool(self.jsonl),
        }

    def _bodies(self) -> Iterator[Any]:
        if self.texts:
            yield from (body_in(text, self.body_type, f"argument {place}") for place, text in enumerate(self.texts, 1))
        elif self.files:
            yield from (self._whole(_read(path), str(path)) for path in self.files)
        elif self.lines:
            yield from (body_in(line, self.body_type, f"line {number}") for number, line in _lines(self.lines))
        elif self.body_type == "none":
            yield None
        elif sys.stdin.isatty():
            raise usage("nothing to send", "give a text, --file, --lines or --jsonl, or pipe something in")
        elif data := sys.stdin.buffer.read():
            yield self._whole(data, "stdin")
        else:
            raise usage("nothing to send: stdin is empty", "give a text; '' sends an empty one")

    def _whole(self, data: bytes, where: str) -> Any:
        if self.body_type in ("bytes", "object"):
            return data if self.body_type == "bytes" else sterna.Object(data)
        try:
            return body_in(data.decode(), self.body_type, where)
        except UnicodeDecodeError as error:
            raise usage(f"{where} is no UTF-8 text", "send it with --body-type bytes") from error


def send(
    destination: options.DestinationArgument,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="A message each. Without any: stdin, one message.")
    ] = None,
    files: Annotated[
        list[Path] | None, typer.Option("--file", "-f", metavar="FILE", help="A message each (repeatable).")
    ] = None,
    lines: Annotated[str, typer.Option("--lines", metavar="FILE", help="A message a line; - for stdin.")] = "",
    jsonl: Annotated[
        str,
        typer.Option("--jsonl", metavar="FILE", help="A JSON object a line, with body and properties; - for stdin."),
    ] = "",
    body_type: Annotated[
        str, typer.Option("--body-type", metavar="TYPE", help="text, bytes, object, map, stream (JSON), or none.")
    ] = "text",
    properties: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="NAME[:TYPE]=VALUE", help="A property (repeatable).")
    ] = None,
    correlation_id: Annotated[str, typer.Option("--correlation-id", metavar="ID", help="Links to a request.")] = "",
    type_: Annotated[str, typer.Option("--type", metavar="TAG", help="A tag, selectable as JMSType.")] = "",
    reply_to: Annotated[str, typer.Option("--reply-to", metavar="DESTINATION", help="Where replies are wanted.")] = "",
    priority: Annotated[int | None, typer.Option("--priority", min=0, max=9, help="0 (lowest) to 9; else 4.")] = None,
    ttl: Annotated[float, typer.Option("--ttl", metavar="SECONDS", min=0, help="How long it may wait; 0: ever.")] = 0.0,
    delay: Annotated[float, typer.Option("--delay", metavar="SECONDS", min=0, help="Not delivered earlier.")] = 0.0,
    mode: Annotated[
        str, typer.Option("--delivery-mode", metavar="MODE", help="persistent, non-persistent or reliable.")
    ] = "persistent",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Send all of it so many times.")] = 1,
    rate: Annotated[
        float, typer.Option("--rate", metavar="PER SECOND", min=0, help="At most so fast; 0: at once.")
    ] = 0,
    output: options.Output = Format.TABLE,
    server: Server = THIS_MACHINE,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Send messages, and end when the broker has confirmed them all.

    The message comes from the arguments, from stdin, or from --file, --lines or --jsonl. One message prints its id;
    several print how many went, and how fast.
    """
    headers = {
        "correlation_id": correlation_id,
        "type": type_,
        "reply_to": sdk_destination(reply_to) if reply_to else None,
        "priority": priority,
        "time_to_live_ms": round(ttl * 1_000),
        "delivery_delay_ms": round(delay * 1_000),
    }
    given = {name: value for name, value in headers.items() if value not in (None, "", 0) or value == 0 == priority}
    given["delivery_mode"] = messages.delivery_mode(mode)
    defaults = Outgoing(None, parse_properties(properties or []), given)
    sources = _Sources(texts or [], files or [], lines, jsonl, body_type)
    found = sources.messages(defaults)
    if count > 1:
        found = itertools.chain.from_iterable(itertools.repeat(list(found), count))
    run_loop(_send(destination, found, rate, output, server, timeout))


async def _send(
    destination: str, found: Iterator[Outgoing], rate: float, output: Format, server: Server, timeout: float
) -> None:
    target = sdk_destination(destination)
    first = next(found, None)
    if first is None:
        return
    second = next(found, None)
    async with server.connect(connect_timeout_s=timeout) as connection:
        producer = await connection.producer(target)
        if second is None:
            sent = await producer.send(first.body, properties=first.properties, **first.headers)
            print_rows([_sent_row(target, sent)], _ONE, output, single=True)
            return
        everything = itertools.chain((first, second), found)
        with progress(f"sending to {spelled(target)}", None) as advance:
            begin = time.monotonic()
            count, failures = await _send_all(producer, everything, rate, advance)
            seconds = time.monotonic() - begin
    confirmed = count - failures
    row = {
        "destination": spelled(target),
        "messages": confirmed,
        "seconds": round(seconds, 3),
        "rate": round(confirmed / seconds, 1) if seconds else 0.0,
    }
    print_rows([row], _MANY, output, single=True)
    if failures:
        raise typer.Exit(Exit.PARTIAL if confirmed else Exit.ERROR)


async def _send_all(producer: Any, found: Iterator[Outgoing], rate: float, advance: Any) -> tuple[int, int]:
    """Send them all, at a rate if there is one; how many, and how many of them were refused."""
    schedule = Schedule(rate) if rate else None
    count = 0
    for number, one in enumerate(found):
        if schedule is not None and (wait := schedule.wait_s(number, time.monotonic_ns())) > 0:
            await asyncio.sleep(wait)
        await producer.send_soon(one.body, properties=one.properties, **one.headers)
        count += 1
        advance(count)
    try:
        await producer.flush()
    except FlushError as error:
        complain(describe(f"error {error.code.name}", error.cause, error.remedy))
        return count, len(error.failures)
    return count, 0


def _sent_row(target: sterna.Destination, sent: Sent) -> dict[str, Any]:
    return {
        "destination": spelled(target),
        "messageId": sent.message_id,
        "timestampMs": sent.timestamp_ms,
        "deliveryTimeMs": sent.delivery_time_ms,
        "durability": sent.durability.name.lower() if sent.durability is not None else "unconfirmed",
    }


def _lines(name: str) -> Iterator[tuple[int, str]]:
    """The lines of a file or of stdin, numbered from 1, without their ends; empty ones are left out."""
    try:
        with sys.stdin if name == "-" else Path(name).open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if text := line.rstrip("\r\n"):
                    yield number, text
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"cannot read {name}", "name a readable text file, or - for stdin") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise usage(f"cannot read {path}", "name a readable file") from error
