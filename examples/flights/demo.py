"""The main job on real input, as `make demo` runs it.

All flights of 2013 are published, persistent, to topics flights.<origin>.<carrier>. A durable subscription is offline
meanwhile; three workers share another; a bridge copies late flights into the queue `delays` and all into `boarding`,
whose worker rejects the cancelled ones until the broker puts them aside. In the middle the broker is killed with -9 and
started again. At the end every flight is accounted for by its key, at every place: exit code 0 says that none was lost
and none came twice without being flagged.

KEEP=1 leaves the broker running, and says what to try. AUDIT=1 takes snapshots of it before, after the crash and at the
end, has the clients keep ledgers, and audits both with PySpark; it needs Java 17.
"""

import asyncio
import logging
import os
import shutil
import sys
import tempfile
import time  # noqa: TID251 - measures real time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sterna import admin

from examples.flights import flights, roles
from examples.flights.broker_process import BrokerProcess
from examples.flights.display import Display
from examples.flights.flights import Flight
from examples.flights.tally import Tally

if TYPE_CHECKING:
    from examples.flights.audited import Audited

# Nothing moved for so long: what is missing will not come any more.
_STALLED_S = 30.0
_POLL_S = 0.25


class StalledError(Exception):
    """What is missing will not come any more."""


@dataclass
class Demo:
    """One run: its input, its books and its figures."""

    everything: Sequence[Flight]
    broker: BrokerProcess
    display: Display
    audited: "Audited | None" = None
    archive: Tally = field(init=False)
    workers: Tally = field(init=False)
    delays: Tally = field(init=False)
    boarding: Tally = field(init=False)
    figures: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        everywhere = bytearray(b"\x01" * len(self.everything))
        late = bytearray(flight.dep_delay is not None and flight.dep_delay > 60 for flight in self.everything)
        self.archive = Tally("archive", everywhere)
        self.workers = Tally("workers", everywhere)
        self.delays = Tally("delays", late)
        self.boarding = Tally("boarding", everywhere)
        self.index_of = {flight.key: flight.index for flight in self.everything}
        self.ledger = self.audited.ledgers if self.audited is not None else None
        self.sender = roles.Sender(self.everything, self.ledger)
        # What the broker still holds at each place, as it says; unknown until it was asked.
        self.held = dict.fromkeys(("archive", "workers", "delays", "boarding", "undelivered"), -1)
        self.is_sent = False
        self._pauses = 0

    @property
    def tallies(self) -> list[Tally]:
        """The books, in the order of the table."""
        return [self.archive, self.workers, self.delays, self.boarding]

    async def run(self) -> bool:
        """The whole job; whether every flight is accounted for."""
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch())
                await self._work()
                watching.cancel()
        except* StalledError as stalled:
            self.display.line(f"giving up: {stalled.exceptions[0]}, while the broker holds {self.held}")
        await self._look_at_what_is_left()
        return self.is_proven()

    def is_proven(self) -> bool:
        """Nothing lost, nothing twice without a flag, nothing where it does not belong, nothing refused or left."""
        return not self.sender.refused and all(
            not tally.lost(self.sender.confirmed)
            and not tally.unflagged_duplicates
            and not tally.strangers
            and not tally.left
            and tally.is_complete()
            for tally in self.tallies
        )

    def _receivers(self) -> list[roles.Receiver]:
        def done(name: str) -> Callable[[], bool]:
            return lambda: self.is_sent and self.held[name] == 0

        shared = {"durable": "workers", "shared": True}
        return [
            *(
                roles.Receiver(roles.TOPICS, self.workers, self.index_of, done("workers"), shared, ledger=self.ledger)
                for _ in range(roles.WORKERS)
            ),
            roles.Receiver(roles.DELAYS, self.delays, self.index_of, done("delays"), ledger=self.ledger),
            roles.Gate(roles.BOARDING, self.boarding, self.index_of, done("boarding"), ledger=self.ledger),
        ]

    async def _work(self) -> None:
        """Workers first, then the flights, with the crash among them; then those who were away."""
        receivers = self._receivers()
        async with asyncio.TaskGroup() as group:
            for receiver in receivers:
                group.create_task(receiver.run(self.broker.url))
            await asyncio.gather(*(receiver.ready.wait() for receiver in receivers))
            await self._cut("before the first flight")
            await self._send()
        await self._drain()

    async def _send(self) -> None:
        self.display.line(f"sending {len(self.everything):,} flights; the archive is offline")
        begin = time.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.sender.run(self.broker.url))
            group.create_task(self._crash())
        self.is_sent = True
        self.figures["sending_s"] = time.monotonic() - begin
        self.display.line(f"all sent and confirmed after {self.figures['sending_s']:.1f} s, the crash included")

    async def _crash(self) -> None:
        await self.sender.halfway.wait()
        begin = time.monotonic()
        with self._pausing():
            await self.broker.kill()
            self.display.line(f"kill -9, with {self.sender.confirmed_count:,} flights confirmed; the clients stay")
            self.sender.resumed.clear()
            self.figures["serving_s"] = await self.broker.start()
        self.display.line(f"started again in {self.figures['serving_s']:.2f} s: {self.broker.greeting}")
        # With few flights all may have been confirmed before the crash; then there is no next confirmation.
        if self.sender.confirmed_count < len(self.everything):
            await self.sender.resumed.wait()
            self.figures["interruption_s"] = time.monotonic() - begin
        await self._cut("behind the crash, while flights are sent")

    async def _drain(self) -> None:
        """The archive comes online, then the undelivered are looked after."""
        begin = time.monotonic()
        archive = roles.Receiver(
            roles.TOPICS,
            self.archive,
            self.index_of,
            lambda: self.held["archive"] == 0,
            {"durable": "archive", "prefetch": 4_096},
            client_id="archive",
            ledger=self.ledger,
        )
        await archive.run(self.broker.url)
        self.figures["archive_s"] = time.monotonic() - begin
        self.display.line(f"the archive caught up in {self.figures['archive_s']:.1f} s")
        undertaker = roles.Undertaker(
            roles.UNDELIVERED, self.boarding, self.index_of, lambda: self.held["undelivered"] == 0, ledger=self.ledger
        )
        await undertaker.run(self.broker.url)
        await self._cut("at the end")

    async def _cut(self, when: str) -> None:
        if self.audited is not None:
            begin = time.monotonic()
            with self._pausing():
                await self.audited.cut(self.broker.url)
            self.display.line(f"a snapshot {when}, in {time.monotonic() - begin:.1f} s")

    @contextmanager
    def _pausing(self) -> Iterator[None]:
        """Flights stand still for as long as this takes, and are not stalled."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1

    async def _watch(self) -> None:
        """Show how far everything is and ask the broker what it holds.

        Raises:
            StalledError: nothing moves any more.
        """
        last, moved_at = (0, 0), time.monotonic()
        while True:
            self._show_bars()
            now = (self.sender.confirmed_count, sum(tally.deliveries for tally in self.tallies))
            now = (now[0], now[1] + self.boarding.undelivered_count)
            if now != last or self._pauses:
                last, moved_at = now, time.monotonic()
            elif time.monotonic() - moved_at > _STALLED_S:
                raise StalledError(f"nothing moved for {_STALLED_S:.0f} s")
            if self.is_sent:
                await self._ask()
            await asyncio.sleep(_POLL_S)

    async def _ask(self) -> None:
        async with admin.connect(self.broker.url) as client:
            for queue, name in (("delays", "delays"), ("boarding", "boarding"), ("$sys.undelivered", "undelivered")):
                self.held[name] = (await client.resource("Queue", queue)).statistics.messages
            for durable in await client.resources("DurableSubscription"):
                spec, metadata = durable.manifest["spec"], durable.manifest["metadata"]
                name = spec.get("name", metadata["name"])
                if name in self.held:
                    self.held[name] = durable.statistics.messages

    async def _look_at_what_is_left(self) -> None:
        """What a place still holds is neither delivered nor lost: its keys are read."""
        await self._ask()
        async with admin.connect(self.broker.url) as client:
            limit = 100_000
            looks = {
                "archive": (self.archive, client.browse_durable("archive", client_id="archive", limit=limit)),
                "workers": (self.workers, client.browse_durable("workers", limit=limit)),
                "delays": (self.delays, client.browse_queue("delays", limit=limit)),
                "boarding": (self.boarding, client.browse_queue("boarding", limit=limit)),
            }
            for name, (tally, look) in looks.items():
                if self.held[name]:
                    tally.left = {self.index_of[message.correlation_id or ""] async for message in look}

    def _show_bars(self) -> None:
        total = len(self.everything)
        self.display.bar("confirmed", self.sender.confirmed_count, total)
        for tally in self.tallies:
            self.display.bar(tally.name, tally.accepted_count + tally.undelivered_count, tally.expected_count)

    def show_result(self) -> None:
        """The table and the figures."""
        self.display.table(self.tallies, self.sender.confirmed)
        self.display.line("")
        deliveries = sum(tally.deliveries for tally in self.tallies)
        took = self.figures
        # A run that was given up has only some of them.
        if "sending_s" in took:
            rate = len(self.everything) / took["sending_s"]
            self.display.line(
                f"sent at {rate:,.0f}/s, the crash included; {deliveries:,} deliveries meanwhile and after"
            )
        if "archive_s" in took:
            rate = self.archive.accepted_count / took["archive_s"]
            self.display.line(f"the archive caught up at {rate:,.0f}/s, in {took['archive_s']:.1f} s")
        if "serving_s" in took:
            self.display.line(f"the broker served again {took['serving_s']:.2f} s after it was started anew")
        if "interruption_s" in took:
            self.display.line(f"the first confirmation came {took['interruption_s']:.2f} s after the kill")


async def main(limit: int | None = None, *, keep: bool = False, audit: Path | None = None) -> int:
    """Run the demo; 0 when every flight is accounted for. `audit`: where snapshots, ledgers and the report go."""
    begin = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="sterna-flights-"))
    broker = BrokerProcess(folder / "data")
    left_running = False
    try:
        with Display() as display:
            audited = _audited(audit)
            display.line("reading the flights")
            everything = list(flights.read(flights.locate(), limit))
            await broker.start()
            display.line(broker.greeting)
            demo = Demo(everything, broker, display, audited)
            proven = await demo.run()
        demo.show_result()
        if keep:
            left_running = True
            _say_what_to_try(broker, folder, display)
        else:
            code = await broker.stop()
            proven = proven and code == 0
        if audited is not None:
            proven = await _say_what_the_audit_says(audited, display) and proven
        else:
            display.line("AUDIT=1 make demo has it audited from outside, by Spark (it needs Java 17)")
        display.line(
            f"{'all flights are accounted for' if proven else 'FAILED'} after {time.monotonic() - begin:.0f} s"
        )
        return 0 if proven else 1
    finally:
        if not left_running:
            await broker.kill()
            shutil.rmtree(folder, ignore_errors=True)


def _audited(folder: Path | None) -> "Audited | None":
    if folder is None:
        return None
    # What audits need is not installed for the plain demo.
    from sterna_audit.java import find_java

    from examples.flights.audited import Audited

    find_java()
    return Audited(folder)


async def _say_what_the_audit_says(audited: "Audited", display: Display) -> bool:
    """Whether nothing is violated."""
    display.line("auditing the snapshots and ledgers with Spark")
    begin = time.monotonic()
    is_fine, said = await audited.verdict()
    display.line(said)
    display.line(f"audited in {time.monotonic() - begin:.0f} s; the report: {audited.report / 'report.html'}")
    return is_fine


def _say_what_to_try(broker: BrokerProcess, folder: Path, display: Display) -> None:
    pid = broker.leave()
    display.line(
        f"\nThe broker goes on (process {pid}, data in {folder}). Try:\n"
        f"  export STERNA_URL={broker.url} PATH={Path(sys.executable).parent}:$PATH\n"
        "  sterna get queues\n"
        "  sterna get topics 'flights.JFK.*'\n"
        "  sterna send topic:flights.JFK.B6 'a late one' -p dep_delay=90\n"
        "  sterna browse delays -o jsonl\n"
        "  sterna receive boarding\n"
        f"  curl http://127.0.0.1:{broker.monitor_port}/readyz\n"
        f"and end it with: kill {pid}; rm -r {folder}\n"
    )


if __name__ == "__main__":
    # The SDK logs each interruption; here the crash is meant, and shown by the display.
    logging.getLogger("sterna").setLevel(logging.ERROR)
    wants = {name: os.environ.get(name, "") not in ("", "0") for name in ("KEEP", "AUDIT")}
    where = Path("build", "flights-audit").resolve() if wants["AUDIT"] else None
    sys.exit(asyncio.run(main(keep=wants["KEEP"], audit=where)))
