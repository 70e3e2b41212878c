"""`sterna bench`: how fast a broker takes and hands out messages, from here."""

import asyncio
import enum
from typing import Annotated, Any

import typer

import sterna
from sterna._measuring.latencies import Latencies
from sterna._measuring.loads import MIN_BODY_BYTES, Load, Until, consume, send_pipelined
from sterna.cli import options
from sterna.cli.bench_places import Place, cleaned_up
from sterna.cli.exits import Exit, complain, describe, usage
from sterna.cli.messages import delivery_mode, spelled
from sterna.cli.output import Column, Format, print_rows
from sterna.cli.progress import progress
from sterna.cli.running import run as run_loop
from sterna.cli.servers import THIS_MACHINE, Server

EXAMPLES = options.examples(
    "sterna bench both --duration 10",
    "sterna bench both --rate 20000 --duration 30 --warm-up 5 -o json",
    "sterna bench pub topic:bench.news --count 1000000 --size 200 --delivery-mode non-persistent",
    "sterna bench pub queue:bench.a --keep; sterna bench sub queue:bench.a",
)


class Side(enum.StrEnum):
    """What is measured."""

    PUB = "pub"
    SUB = "sub"
    BOTH = "both"


_COLUMNS = (
    Column("SIDE", "side"),
    Column("MESSAGES", "messages", "right"),
    Column("SECONDS", "seconds", "right"),
    Column("PER SECOND", "rate", "right"),
    Column("MIB/S", "mebibytesPerSecond", "right"),
    Column("LATENCY US", "latency"),
    *(Column(name.upper(), f"latencyUs.{name}", "right") for name in ("p50", "p99", "p999", "max")),
)


def bench(
    side: Annotated[Side, typer.Argument(metavar="SIDE", help="pub, sub or both.")],
    destination: Annotated[
        str, typer.Argument(metavar="DESTINATION", help="queue:NAME or topic:NAME; none: a queue of its own.")
    ] = "",
    size: Annotated[int, typer.Option("--size", metavar="BYTES", min=MIN_BODY_BYTES, help="Bytes of a body.")] = 1_024,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="So many messages; 0: as --duration says.")] = 0,
    duration: Annotated[
        float, typer.Option("--duration", metavar="SECONDS", min=0, help="So long; 0: as --count.")
    ] = 0,
    rate: Annotated[float, typer.Option("--rate", metavar="PER SECOND", min=0, help="By the clock; 0: flat out.")] = 0,
    window: Annotated[int, typer.Option("--window", min=1, help="How many may be unconfirmed.")] = 4_000,
    prefetch: Annotated[int, typer.Option("--prefetch", min=1, help="How many may be sent ahead.")] = 4_096,
    warm_up: Annotated[float, typer.Option("--warm-up", metavar="SECONDS", min=0, help="Not measured, first.")] = 0,
    mode: Annotated[
        str, typer.Option("--delivery-mode", metavar="MODE", help="persistent, non-persistent or reliable.")
    ] = "persistent",
    keep: Annotated[bool, typer.Option("--keep", help="With pub: leave the messages for a sub.")] = False,
    output: options.Output = Format.TABLE,
    server: Server = THIS_MACHINE,
) -> None:
    """Measure throughput and latency against a running broker.

    With --rate messages are sent by the clock, and latencies count from the moment at which each was due: a stall is
    seen by all who waited behind it. Without, the figures are throughput, and latencies those of a sender that waits
    for the broker. pub measures confirmations; both measures from sending to receiving as well, in one process.

    Without a DESTINATION it makes a queue of its own and deletes it afterwards. In one that is named it takes only what
    a bench has sent (it bears the property sterna_bench), removes its own messages when it is done, and says what is
    left; so does one that is interrupted.
    """
    if not count and not duration:
        duration = 10.0
    if side is Side.SUB and rate:
        raise usage("--rate is for senders", "leave it out with sub")
    if side is Side.SUB and not destination:
        raise usage("sub has nothing to take", "name the destination of a 'sterna bench pub --keep', or use both")
    if keep and (side is not Side.PUB or not destination):
        raise usage("--keep is for pub with a DESTINATION", "elsewhere nothing remains that could be kept")
    place = Place.of(destination, takes_any=side is Side.SUB)
    run = _Run(place, size, count, duration, rate, window, prefetch, delivery_mode(mode))
    rows = run_loop(run.measure(side, server, warm_up, keep=keep))
    print_rows(rows, _COLUMNS, output)
    if run.failures:
        raise typer.Exit(Exit.PARTIAL if any(row["messages"] for row in rows) else Exit.ERROR)


class _Run:
    """One measurement and its settings."""

    def __init__(
        self,
        place: Place,
        size: int,
        count: int,
        duration: float,
        rate: float,
        window: int,
        prefetch: int,
        mode: sterna.DeliveryMode,
    ) -> None:
        self._place = place
        self._destination = place.destination
        self.failures = 0
        self._size = size
        self._count = count
        self._duration = duration
        self._rate = rate
        self._window = window
        self._prefetch = prefetch
        self._mode = mode

    async def measure(self, side: Side, server: Server, warm_up: float, *, keep: bool) -> list[dict[str, Any]]:
        """Warm up, run, and say what came of it; what was sent is taken away again unless it is to be kept."""
        async with server.connect() as sending, server.connect() as receiving:
            if side is Side.SUB:
                return [self._row("sub", await self._subscribe(receiving, Until(self._count, self._duration)))]
            async with cleaned_up(self._place, server, receiving, keep=keep):
                if warm_up and side is Side.PUB:
                    await self._publish(sending, Until(seconds=warm_up), "warming up")
                elif warm_up:
                    await self._both(sending, receiving, Until(seconds=warm_up), "warming up")
                until = Until(self._count, self._duration)
                if side is Side.PUB:
                    return [self._row("pub", await self._publish(sending, until, "sending"))]
                sent, received = await self._both(sending, receiving, until, "sending and receiving")
                return [self._row("pub", sent), self._row("sub", received)]

    async def _publish(self, connection: "sterna.Connection", until: Until, title: str, *, count: int = 0) -> Load:
        with progress(title, count or self._count or None) as advance:
            sent = await send_pipelined(
                connection,
                self._destination,
                until,
                size=self._size,
                window=self._window,
                rate=self._rate,
                delivery_mode=self._mode,
                timed=True,
                progress=advance,
                properties=self._place.properties,
            )
        self._place.sent += sent.messages
        if sent.failure is not None:
            self.failures += sent.failures
            complain(describe(f"error {sent.failure.code.name}", f"{sent.failures:,} refused: {sent.failure.cause}"))
        return sent

    async def _subscribe(self, connection: "sterna.Connection", until: Until) -> Load:
        async with await connection.session() as session:
            consumer = await self._consumer(session)
            with progress("receiving", self._count or None) as advance:
                # A destination that is empty for so long has nothing more to measure.
                return await consume(session, consumer, until, progress=advance, idle_s=self._duration or 10.0)

    async def _consumer(self, session: "sterna.Session") -> "sterna.Consumer":
        return await session.consumer(self._destination, prefetch=self._prefetch, selector=self._place.selector)

    async def _both(
        self, sending: "sterna.Connection", receiving: "sterna.Connection", until: Until, title: str
    ) -> tuple[Load, Load]:
        async with await receiving.session() as session:
            consumer = await self._consumer(session)
            taking = Until()
            consuming = asyncio.create_task(consume(session, consumer, taking, timed=True, idle_s=3.0))
            try:
                sent = await self._publish(sending, until, title)
                taking.count = sent.messages
                received = await consuming
            finally:
                consuming.cancel()
        self._place.received += received.messages
        if received.messages < sent.messages and self._mode is not sterna.DeliveryMode.RELIABLE:
            complain(f"{sent.messages - received.messages:,} messages did not come back")
        return sent, received

    def _row(self, side: str, load: Load) -> dict[str, Any]:
        return {
            "side": side,
            "destination": spelled(self._destination),
            "messages": load.messages,
            "seconds": round(load.seconds, 3),
            "rate": round(load.rate, 1),
            "mebibytesPerSecond": round(load.rate * self._size / 2**20, 2),
            "latency": self._meaning(side),
            "latencyUs": load.latencies.summary(),
            "sendDelayUs": load.delays.summary() if self._rate else Latencies().summary(),
            "sizeBytes": self._size,
            "window": self._window,
            "scheduledRate": self._rate or None,
        }

    def _meaning(self, side: str) -> str:
        """What the latencies are, so that nobody takes them for something else."""
        what = "to confirmation" if side == "pub" else "to receipt"
        return f"{what}, from due time" if self._rate else f"{what}, closed loop"
