"""The load: what clients do until they are told to stop, or their connection ends."""

import asyncio
import random
from collections.abc import Awaitable, Iterable
from contextlib import suppress

import sterna
from sterna import AcknowledgeMode, DeliveryMode, Topic, errors

from tests.soak.ledger import TRANSACTION_MAX, Ledger

_BODY_BYTES_MAX = 6_000
_AT_ONCE = 16
# Every part looks at `stopped` more often than this, as long as its calls are answered.
_LAST_S = 5.0
# What a client is told when nothing of a message is kept.
_REFUSED = (errors.StoreFullError, errors.DestinationFullError, errors.LimitExceededError)
_MODES = (
    AcknowledgeMode.INDIVIDUAL,
    AcknowledgeMode.CLIENT,
    AcknowledgeMode.AUTO,
    AcknowledgeMode.DUPS_OK,
    AcknowledgeMode.EXPLICIT_CLIENT_DUPS_OK,
)
_FLEETING = (DeliveryMode.NON_PERSISTENT, DeliveryMode.RELIABLE)


class Keys:
    """Numbers the messages of a store."""

    def __init__(self) -> None:
        self._number = 0

    def next(self, kind: str) -> str:
        """A key that nobody has; its first letter says where it is sent."""
        self._number += 1
        return f"{kind}{self._number}"


class Load:
    """All clients of one cycle, on one connection. `by_transactions`: nothing is drained otherwise."""

    def __init__(
        self,
        connection: sterna.Connection,
        ledger: Ledger,
        choices: random.Random,
        keys: Keys,
        *,
        by_transactions: bool = False,
    ) -> None:
        self.confirmed = 0
        self.stopped = asyncio.Event()
        self.hanging: list[str] = []
        """The parts that did not end by themselves, some seconds after `stopped` was set."""

        self._connection = connection
        self._ledger = ledger
        self._choices = choices
        self._keys = keys
        self._by_transactions = by_transactions

    async def run(self) -> None:
        """Until `stopped` is set, or nothing goes any more."""
        parts = {
            "sends to plain": self._sends("plain", "p"),
            "sends to in": self._sends("in", "m"),
            "sends to news": self._sends(Topic("news"), "t"),
            "sends to last": self._sends_last(),
            "sends to fleeting": self._sends_fleeting(),
            "moves": self._moves(),
        }
        if self._by_transactions:
            parts["takes"] = self._takes()
        else:
            parts["acknowledges"] = self._acknowledges("plain", self._choices.choice(_MODES))
            parts["acknowledges fleeting"] = self._acknowledges("fleeting", AcknowledgeMode.INDIVIDUAL)
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

    def _body(self, key: str) -> str:
        return key + " x" + "x" * self._choices.randrange(_BODY_BYTES_MAX)

    async def _sends(self, destination: str | Topic, kind: str) -> None:
        producer = await self._connection.producer(destination)

        async def send() -> None:
            key = self._keys.next(kind)
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
            await all_of(send() for _ in range(self._choices.randint(1, _AT_ONCE)))

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

    async def _sends_fleeting(self) -> None:
        """What is not on disk, besides: it has nothing to do there, and must not come twice."""
        producer = await self._connection.producer("fleeting")
        while not self.stopped.is_set():
            key = self._keys.next("v")
            self._ledger.sent.add(key)
            try:
                await producer.send(self._body(key), delivery_mode=self._choices.choice(_FLEETING))
            except _REFUSED:
                self._ledger.refused.add(key)
            await self._pause()

    def _received(self, message: sterna.Message) -> str:
        key = key_of(message)
        self._ledger.receive(key, flagged=message.redelivered)
        return key

    async def _acknowledges(self, queue: str, mode: AcknowledgeMode) -> None:
        session = await self._connection.session(mode)
        consumer = await session.consumer(queue)
        handed: list[str] = []
        while not self.stopped.is_set():
            message = await consumer.receive(timeout=0.2)
            if message is None:
                continue
            handed.append(self._received(message))
            if mode in (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK):
                self._ledger.acknowledging.add(handed.pop())
                continue
            if mode == AcknowledgeMode.INDIVIDUAL and self._choices.random() < 0.3:
                message.release()
                handed.clear()
                continue
            if mode == AcknowledgeMode.CLIENT and self._choices.random() < 0.7:
                continue
            self._ledger.acknowledging.update(handed)
            if await message.acknowledge():
                self._ledger.acknowledged.update(handed)
            handed.clear()

    async def _takes(self) -> None:
        """Takes in transactions, and no other way."""
        session = await self._connection.session(transacted=True)
        consumer = await session.consumer("plain")
        while not self.stopped.is_set():
            keys = await self._some(consumer)
            if not keys:
                continue
            if self._choices.random() < 0.2:
                await session.rollback()
                continue
            before = self._ledger.acknowledging.intersection(keys)
            self._ledger.acknowledging.update(keys)
            try:
                await session.commit()
            except errors.TransactionInDoubtError:
                raise
            except errors.TransactionRolledBackError:
                self._ledger.acknowledging.difference_update(set(keys) - before)
            else:
                self._ledger.acknowledged.update(keys)

    async def _some(self, consumer: sterna.Consumer) -> list[str]:
        keys: list[str] = []
        for _ in range(self._choices.randint(1, TRANSACTION_MAX)):
            message = await consumer.receive(timeout=0.1)
            if message is None:
                break
            keys.append(self._received(message))
        return keys

    async def _moves(self) -> None:
        """Takes from one queue, sends to the other, commits: `in` is drained by transactions alone."""
        session = await self._connection.session(transacted=True)
        consumer, producer = await session.consumer("in"), await session.producer("out")
        while not self.stopped.is_set():
            keys = await self._some(consumer)
            if not keys:
                continue
            for key in keys:
                await producer.send_soon(self._body(key))
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


class Steadfast:
    """A client that outlives the broker: what was not confirmed when it broke it sends again, and it is stored once."""

    def __init__(self, connection: sterna.Connection, ledger: Ledger, keys: Keys) -> None:
        self._connection = connection
        self._ledger = ledger
        self._keys = keys
        self._stopped = asyncio.Event()
        self._task = asyncio.create_task(self._run())
        self.in_doubt = 0

    def cancel(self) -> None:
        """Ends it, however far it has come."""
        self._task.cancel()

    async def end(self, timeout_s: float) -> list[str]:
        """Sends no more, and waits for what it has sent. What is wrong."""
        self._stopped.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._task
        except TimeoutError:
            return [f"a client that sends again hears nothing for {timeout_s} s"]
        return []

    async def _run(self) -> None:
        producer = await self._connection.producer("again")
        while not self._stopped.is_set():
            await all_of(self._send(producer) for _ in range(4))
            with suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await self._stopped.wait()

    async def _send(self, producer: sterna.Producer) -> None:
        key = self._keys.next("r")
        self._ledger.sent.add(key)
        try:
            await producer.send(f"{key} x")
        except _REFUSED:
            self._ledger.refused.add(key)
        except errors.UnknownProducerError:
            self.in_doubt += 1
        else:
            self._ledger.confirmed.add(key)


async def all_of(parts: Iterable[Awaitable[None]]) -> None:
    """All of them to their end, and then the first error."""
    for result in await asyncio.gather(*parts, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def key_of(message: sterna.Message) -> str:
    """The key at the beginning of a message's body."""
    return message.text.partition(" ")[0]


async def stored(connection: sterna.Connection) -> dict[str, list[str]]:
    """The keys in every queue, looked at without taking; in `gone`, what is not there any more to look at."""
    found: dict[str, list[str]] = {}
    for queue in ("plain", "fleeting", "in", "out", "copies", "again", "last", "$sys.undelivered"):
        async with connection.browser(queue) as browser:
            found[queue.removeprefix("$sys.")] = [key_of(message) async for message in browser]
    try:
        async with connection.browser(Topic("news"), durable="reader") as browser:
            found["durable"] = [key_of(message) async for message in browser]
    except errors.NoSuchSubscriptionError:
        found["durable"], found["gone"] = [], ["reader"]
    return found
