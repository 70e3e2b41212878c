"""Who takes part: the sender, the workers, the archive, and whoever looks after the undelivered.

Each has a connection of its own and keeps it through the broker's crash: the SDK reconnects, sends again what was not
confirmed, and whoever receives sees what was not acknowledged again, flagged. Nothing here handles the crash.
"""

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sterna

from examples.flights.flights import Flight
from examples.flights.tally import Tally

TOPICS = sterna.Topic("flights.>")
DELAYS = sterna.Queue("delays")
BOARDING = sterna.Queue("boarding")
UNDELIVERED = sterna.Queue("$sys.undelivered")
WORKERS = 3

# A worker that hears nothing for so long has a reason to look whether all is done.
_LOOK_S = 0.5


@dataclass
class Sender:
    """Publishes every flight, persistent, and keeps book of the confirmations; in a ledger, too, if it has a folder."""

    flights: Sequence[Flight]
    ledger: Path | None = None
    confirmed: bytearray = field(init=False)
    sent_count: int = 0
    confirmed_count: int = 0
    refused: list[str] = field(default_factory=list)
    halfway: asyncio.Event = field(default_factory=asyncio.Event)
    resumed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.confirmed = bytearray(len(self.flights))

    async def run(self, url: str) -> None:
        """Send them all; ends when the last one is confirmed."""
        async with sterna.connect(url, ledger=self.ledger) as connection:
            producers = {
                topic: await connection.producer(sterna.Topic(topic))
                for topic in sorted({flight.topic for flight in self.flights})
            }
            for flight in self.flights:
                await producers[flight.topic].send_soon(
                    flight.row,
                    correlation_id=flight.key,
                    properties=_properties(flight),
                    on_completion=functools.partial(self._completed, flight.index),
                )
                self.sent_count += 1
            for producer in producers.values():
                await producer.flush()

    def _completed(self, index: int, outcome: sterna.Sent | sterna.SternaError) -> None:
        if isinstance(outcome, sterna.SternaError):
            self.refused.append(str(outcome))
            return
        self.confirmed[index] = 1
        self.confirmed_count += 1
        self.resumed.set()
        if self.confirmed_count * 2 >= len(self.flights):
            self.halfway.set()


def _properties(flight: Flight) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "origin": flight.origin,
        "carrier": flight.carrier,
        "cancelled": flight.cancelled,
        # What cannot be delivered is kept in $sys.undelivered instead of being dropped.
        "JMS_STERNA_PRESERVE_UNDELIVERED": True,
    }
    if flight.dep_delay is not None:
        properties["dep_delay"] = flight.dep_delay
    return properties


@dataclass
class Receiver:
    """Takes flights from one place into one tally, until the place has nothing more to give.

    Args:
        place: the queue or topics.
        tally: where they are counted.
        index_of: flights' places in the file, by key.
        is_done: whether all that was to come has come.
        options: of the consumer: its subscription, its prefetch.
        client_id: of the connection, for a durable subscription that belongs to one.
        ledger: the folder in which the connection keeps a ledger; None: it keeps none.
    """

    place: sterna.Destination
    tally: Tally
    index_of: Mapping[str, int]
    is_done: Callable[[], bool]
    options: dict[str, Any] = field(default_factory=dict)
    client_id: str = ""
    ledger: Path | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, url: str) -> None:
        """Receive, count and acknowledge."""
        async with sterna.connect(url, client_id=self.client_id, ledger=self.ledger) as connection:
            async with await connection.session(self._mode()) as session:
                consumer = await session.consumer(self.place, **self.options)
                self.ready.set()
                while not self.is_done():
                    message = await consumer.receive(timeout=_LOOK_S)
                    if message is not None:
                        self._take(message, self.index_of[message.correlation_id or ""])

    def _mode(self) -> sterna.AcknowledgeMode:
        return sterna.AcknowledgeMode.AUTO

    def _take(self, message: sterna.Message, index: int) -> None:
        self.tally.delivered(index, flagged=message.redelivered)


@dataclass
class Gate(Receiver):
    """Takes flights to be boarded, and rejects those that were cancelled, each time they come."""

    def _mode(self) -> sterna.AcknowledgeMode:
        return sterna.AcknowledgeMode.INDIVIDUAL

    def _take(self, message: sterna.Message, index: int) -> None:
        rejected = message.properties.get_bool("cancelled")
        self.tally.delivered(index, flagged=message.redelivered, accept=not rejected)
        if rejected:
            message.release()
        else:
            message.acknowledge()


@dataclass
class Undertaker(Receiver):
    """Empties `$sys.undelivered` and tells the place that gave those flights up."""

    def _take(self, message: sterna.Message, index: int) -> None:
        self.tally.put_aside(index, flagged=message.redelivered)
