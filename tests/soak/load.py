"""The load: what clients do until they are told to stop, or their connection ends."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import sterna
from sterna import Topic, errors

from tests.soak.ledger import Ledger

_BODY_BYTES_MAX = 6_000
_AT_ONCE = 16
# Every part looks at `stopped` more often than this, as long as its calls are answered.
_LAST_S = 5.0
# What a client is told when nothing of a message is kept.
_REFUSED = (errors.StoreFullError, errors.DestinationFullError, errors.LimitExceededError)
Sending = Callable[[str], Awaitable[None]]


class Load:
    """All clients of one cycle, on one connection."""

    def __init__(self, connection: sterna.Connection, ledger: Ledger, choices: random.Random, first: int) -> None:
        self.confirmed = 0
        self.stopped = asyncio.Event()
        self.hanging: list[str] = []
        """The parts that did not end by themselves, some seconds after `stopped` was set."""

        self._connection = connection
        self._ledger = ledger
        self._choices = choices
        self._number = first

    @property
    def next_number(self) -> int:
        """The next key's."""
        return self._number

    async def run(self) -> None:
        """Until `stopped` is set, or nothing goes any more."""
        parts = {
            "sends to plain": self._sends("plain", "p"),
            "sends to in": self._sends("in", "m"),
            "sends to news": self._sends(Topic("news"), "t"),
            "sends to last": self._sends_last(),
            "acknowledges": self._acknowledges(),
            "moves": self._moves(),
        }
        tasks = [asyncio.create_task(self._part(part), name=name) for name, part in parts.items()]
        await self.stopped.wait()
        _, pending = await asyncio.wait(tasks, timeout=_LAST_S)
        self.hanging = [task.get_name() for task in pending]
        for task in pending:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            # A defect of the load itself, or an error that no client may be told.
            if isinstance(result, Exception):
                raise result

    async def _part(self, part: Awaitable[None]) -> None:
        with suppress(errors.SternaError):
            await part

    async def _pause(self) -> None:
        """The disk is full: it is not tried as fast as may be."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await self.stopped.wait()

    def _key(self, kind: str) -> str:
        self._number += 1
        return f"{kind}{self._number}"

    def _body(self, key: str) -> str:
        return key + " " + "x" * self._choices.randrange(_BODY_BYTES_MAX)

    async def _sends(self, destination: str | Topic, kind: str) -> None:
        producer = await self._connection.producer(destination)

        async def send() -> None:
            key = self._key(kind)
            self._ledger.sent.add(key)
            try:
                await producer.send(self._body(key))
            except _REFUSED:
                self._ledger.refused.add(key)
                await self._pause()
            else:
                self._ledger.confirmed.add(key)
                self.confirmed += 1

        while not self.stopped.is_set():
            results = await asyncio.gather(
                *(send() for _ in range(self._choices.randint(1, _AT_ONCE))), return_exceptions=True
            )
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    async def _sends_last(self) -> None:
        producer = await self._connection.producer("last")
        while not self.stopped.is_set():
            self._ledger.last_sent += 1
            number = self._ledger.last_sent
            try:
                await producer.send(str(number))
            except _REFUSED:
                await self._pause()
            else:
                self._ledger.last_confirmed = number
                self.confirmed += 1
            await asyncio.sleep(0)

    async def _acknowledges(self) -> None:
        session = await self._connection.session(sterna.AcknowledgeMode.INDIVIDUAL)
        consumer = await session.consumer("plain")
        while not self.stopped.is_set():
            message = await consumer.receive(timeout=0.2)
            if message is None:
                continue
            if self._choices.random() < 0.3:
                message.release()
                continue
            key = key_of(message)
            self._ledger.acknowledging.add(key)
            if await message.acknowledge():
                self._ledger.acknowledged.add(key)

    async def _moves(self) -> None:
        """Takes from one queue, sends to the other, commits: `in` is drained by transactions alone."""
        session = await self._connection.session(transacted=True)
        consumer, producer = await session.consumer("in"), await session.producer("out")
        while not self.stopped.is_set():
            keys = []
            for _ in range(self._choices.randint(1, 8)):
                message = await consumer.receive(timeout=0.1)
                if message is None:
                    break
                keys.append(key_of(message))
                await producer.send_soon(self._body(keys[-1]))
            if not keys:
                continue
            if self._choices.random() < 0.2:
                await session.rollback()
                continue
            place = len(self._ledger.moves)
            self._ledger.moves.append((tuple(keys), False))
            try:
                await session.commit()
            except errors.TransactionInDoubtError:
                raise
            except errors.TransactionRolledBackError:
                del self._ledger.moves[place]
            else:
                self._ledger.moves[place] = (tuple(keys), True)
                self.confirmed += 1


def key_of(message: sterna.Message) -> str:
    """The key at the beginning of a message's body."""
    return message.text.partition(" ")[0]


async def stored(connection: sterna.Connection) -> dict[str, list[str]]:
    """The keys in every queue, looked at without taking."""
    found = {}
    for queue in ("plain", "in", "out", "copies", "last"):
        async with connection.browser(queue) as browser:
            found[queue] = [key_of(message) async for message in browser]
    async with connection.browser(Topic("news"), durable="reader") as browser:
        found["durable"] = [key_of(message) async for message in browser]
    return found
