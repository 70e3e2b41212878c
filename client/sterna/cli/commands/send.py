"""`sterna send`: send messages from arguments, files, lines or JSON lines."""

import asyncio
import contextlib
import functools
import time  # noqa: TID251 - the command line is not simulated
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

import sterna
from sterna._measuring.schedules import Schedule
from sterna.cli import messages, options
from sterna.cli.exits import CommandError, PartlyDoneError, complain
from sterna.cli.messages import Outgoing, sdk_destination, spelled
from sterna.cli.output import Column, Format, print_rows
from sterna.cli.patience import UNCONFIRMED, UNTAKEN, in_time
from sterna.cli.progress import progress
from sterna.cli.properties import parse_properties
from sterna.cli.running import INTERRUPTIONS
from sterna.cli.running import run as run_loop
from sterna.cli.servers import THIS_MACHINE, Server
from sterna.cli.sources import Placed, Sources
from sterna.cli.tally import Tally
from sterna.errors import SternaError
from sterna.messages import Sent

T = TypeVar("T")

_Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.0,
        help="How long to wait for the broker, and for each confirmation: from when its message went, or from the "
        "confirmation before. Without, there is no limit to how long flow control may hold messages back, and 30 s is "
        "the one for the broker, and for answers once interrupted or refused.",
    ),
]

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
    correlation_id: Annotated[
        str | None, typer.Option("--correlation-id", metavar="ID", help="Links to a request.")
    ] = None,
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
    timeout: _Timeout = None,
) -> None:
    """Send messages, and end when the broker has confirmed them all.

    The message comes from the arguments, from stdin, or from --file, --lines or --jsonl. One message prints its id;
    several print how many went, and how fast. What --lines and --jsonl read is sent as it comes. Refused, out of
    time, interrupted or terminated in between, it says how many are confirmed and from which line to go on, and ends
    with 3. Out of time with none confirmed it ends with 1, and what was sent may arrive all the same. Of reliable
    messages none is confirmed: it waits until the broker has taken them, and what it refuses of them nobody hears.
    """
    headers = {
        "type": type_,
        "reply_to": sdk_destination(reply_to) if reply_to else None,
        "priority": priority,
        "time_to_live_ms": round(ttl * 1_000),
        "delivery_delay_ms": round(delay * 1_000),
    }
    given = {name: value for name, value in headers.items() if value not in (None, "", 0) or value == 0 == priority}
    if correlation_id is not None:  # an empty one is one, too
        given["correlation_id"] = correlation_id
    given["delivery_mode"] = messages.delivery_mode(mode)
    defaults = Outgoing(None, parse_properties(properties or []), given)
    sources = Sources(texts or [], files or [], lines, jsonl, body_type)
    sources.check()
    tally = Tally(sources.noun)
    sending = _Sending(sdk_destination(destination), rate, tally, server, timeout)
    try:
        row = run_loop(sending.run(sources.messages(defaults, count)))
    except (CommandError, SternaError, *INTERRUPTIONS) as error:
        if not sources.is_lined and not tally.confirmed:
            raise
        raise PartlyDoneError(error, tally.report(), is_partly=tally.confirmed > 0) from error
    if row is not None:
        print_rows([row], _ONE if tally.sent == 1 else _MANY, output, single=True)


class _Sending:
    """One call of the command: sends while it reads, and stops at the first message that is refused."""

    def __init__(
        self, target: sterna.Destination, rate: float, tally: Tally, server: Server, limit_s: float | None
    ) -> None:
        self._target = target
        self._schedule_rate = rate
        self._tally = tally
        self._server = server
        self._limit_s = limit_s
        self._timeout_s = options.DEFAULT_TIMEOUT if limit_s is None else limit_s
        self._closing: asyncio.Future[None] | None = None

    async def run(self, found: AsyncIterator[Placed]) -> dict[str, Any] | None:
        """Sends all there is; what to print, None where there was nothing.

        Raises:
            SternaError: a message was refused or not confirmed in time, or the connection was lost for good.
            CommandError: what was read is no message.
        """
        first = await anext(found, None)
        if first is None:
            return None
        async with self._server.connect(connect_timeout_s=self._timeout_s) as connection:
            opening_s = time.monotonic()
            try:
                # Only what is confirmed is done: until then the producer stays, whoever interrupts.
                producer = await self._in_time(connection.producer(self._target), lambda: opening_s)
                begin = time.monotonic()
                await self._send(connection, producer, first, found)
                seconds = time.monotonic() - begin
            except BaseException:
                # What has no answer by now is waited for no longer, nor for room where flow control holds it back.
                if self._tally.unanswered:
                    await connection.close(failed=True, timeout_s=0)
                raise
        if self._tally.sent == 1 and self._tally.last is not None:
            return _sent_row(self._target, self._tally.last)
        return {
            "destination": spelled(self._target),
            "messages": self._tally.confirmed,
            "seconds": round(seconds, 3),
            "rate": round(self._tally.confirmed / seconds, 1) if seconds else 0.0,
        }

    async def _send(
        self,
        connection: sterna.Connection,
        producer: sterna.Producer,
        first: Placed,
        found: AsyncIterator[Placed],
    ) -> None:
        with progress(f"sending to {spelled(self._target)}", None) as advance:
            feeding = asyncio.ensure_future(self._feed(connection, producer, first, found, advance))
            try:
                either = {feeding, self._tally.refused}
                await self._in_time(asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED))
                if feeding.done():
                    feeding.result()
            finally:
                feeding.cancel()
                await self._answered(producer)
        if self._tally.error is not None:
            raise self._tally.error

    def _in_time(self, work: Awaitable[T], since_s: Callable[[], float | None] | None = None) -> Awaitable[T]:
        waiting_since_s = since_s or (lambda: self._tally.waiting_since_s)
        return in_time(self._limit_s, waiting_since_s, spelled(self._target), work, self._out_of_time)

    def _out_of_time(self) -> str:
        return UNTAKEN if self._tally.handed_over else UNCONFIRMED

    async def _feed(
        self,
        connection: sterna.Connection,
        producer: sterna.Producer,
        first: Placed,
        found: AsyncIterator[Placed],
        advance: Callable[[int], None],
    ) -> None:
        schedule = Schedule(self._schedule_rate) if self._schedule_rate else None
        tally = self._tally
        one: Placed | None = first
        while one is not None:
            if schedule is not None and (wait := schedule.wait_s(tally.sent, time.monotonic_ns())) > 0:
                await asyncio.sleep(wait)
            message = one.message
            headers = message.headers_at(connection.broker_time_ms()) if message.expiration_ms else message.headers
            number = tally.begin(one.place)
            try:
                if headers.get("delivery_mode") is sterna.DeliveryMode.RELIABLE:
                    # Nothing confirms these: `_finish` sees to it that the broker takes them.
                    sent = await producer.send(message.body, properties=message.properties, **headers)
                    tally.hand_over(number, sent)
                else:
                    settled = functools.partial(tally.settle, number)
                    await producer.send_soon(
                        message.body, properties=message.properties, on_completion=settled, **headers
                    )
            except SternaError as error:
                tally.fail(error)
                return
            advance(tally.sent)
            one = await anext(found, None)
        # Here, and not where it is waited for whatever happens: an interruption is told then, too.
        await self._finish(producer)

    async def _finish(self, producer: sterna.Producer) -> None:
        """Waits until all that was sent is confirmed, and the broker has taken what nobody confirms.

        It answers the end of a producer behind all that this has sent, and not while flow control holds some of that
        back; with the connection that would be gone.
        """
        await producer.flush()
        if not self._tally.handed_over:
            return
        if self._closing is None:
            self._tally.await_taken()
            self._closing = asyncio.ensure_future(producer.close())
        # Asked again after an interruption, a second end of the producer would be answered by nobody.
        await asyncio.shield(self._closing)
        self._tally.taken()

    async def _answered(self, producer: sterna.Producer) -> None:
        """Waits for the answers to what is under way; not for ever when the command is over already.

        Raises:
            SendTimeoutError: one takes too long, or has.
        """
        waiting = asyncio.current_task()
        is_interrupted = waiting is not None and waiting.cancelling() > 0
        if is_interrupted and self._tally.unanswered:
            complain("waiting for the broker's answers; interrupt again to leave without them")
        if not is_interrupted and self._tally.error is None:
            await self._in_time(self._finish(producer))
            self._tally.all_answered()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await self._finish(producer)
                self._tally.all_answered()


def _sent_row(target: sterna.Destination, sent: Sent) -> dict[str, Any]:
    return {
        "destination": spelled(target),
        "messageId": sent.message_id,
        "timestampMs": sent.timestamp_ms,
        "deliveryTimeMs": sent.delivery_time_ms,
        "durability": sent.durability.name.lower() if sent.durability is not None else "unconfirmed",
    }
