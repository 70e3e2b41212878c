"""A sender and a receiver that count: run as a process of its own while something is done to the cluster.

    STERNA_URL=URL python -m tests.kubernetes.load QUEUE STOP_FILE

It sends numbered messages one after the other, each as soon as the last is confirmed, and receives them, until the stop
file appears; then it receives what is left. It ends when nothing is missing, or when the broker, which is asked, holds
nothing, and what is missing is lost. A receiver that is merely slow is waited for.

A send whose outcome the SDK does not know is done again, as it advises; such a message may come twice. A send that is
refused for a moment, as by a broker that is being emptied or has no room, is done again a little later. How many have
been confirmed stands in the file `confirmed` beside the stop file.

One JSON object on stdout: what was confirmed, what came, what is missing, how much the queue's broker still holds then,
how long the last of it took to come, how many sends had an unknown outcome or were refused at first, how often anything
else came twice unflagged, and how long the slowest send took.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import sterna
from sterna import admin

from tests.waiting import eventually

# So long a send is tried again at most; LOAD_SEND_TIMEOUT_S in the environment says another time.
SEND_TIMEOUT_S = float(os.environ.get("LOAD_SEND_TIMEOUT_S", "120"))
# When nothing has come for so long, the broker is asked whether there is anything left to come.
QUIET_S = 5.0
# After so many seconds the SDK gives up a broker that it cannot reach, and this connects anew; None: it is a failure.
GIVE_UP_S = float(os.environ["LOAD_GIVE_UP_S"]) if "LOAD_GIVE_UP_S" in os.environ else None
# A receiver that was cut off may come back much later than the sender, on a busy machine. When nothing comes for so
# long although the broker holds something, it is stuck: that is no loss, and as wrong.
STUCK_S = 240.0


class Load:
    """A sender, a receiver, and what they counted."""

    def __init__(self, queue: str, ended: Callable[[], bool], tell: Callable[[int], None]) -> None:
        self._queue = queue
        self._ended = ended
        self._tell = tell
        self._run = os.urandom(4).hex()
        self._confirmed: set[str] = set()
        self._seen: set[str] = set()
        self._unknown: set[str] = set()
        self._unflagged = self._refused = self._given_up = 0
        self._slowest_s = 0.0
        self._last_sent_s = 0.0

    async def report(self) -> dict[str, Any]:
        """Runs until the end; see the module."""
        sending = asyncio.create_task(self._send_all())
        _, held = await asyncio.gather(sending, self._receive(sending))
        missing = sorted(self._confirmed - self._seen)
        return {
            "confirmed": len(self._confirmed),
            "received": len(self._seen),
            "missing": missing[:20],
            "lost": len(missing),
            "held": held,
            "drained_s": round(time.monotonic() - self._last_sent_s, 3),
            "unknown": len(self._unknown),
            "refused": self._refused,
            "given_up": self._given_up,
            "twice_unflagged": self._unflagged,
            "slowest_send_s": round(self._slowest_s, 3),
        }

    async def _send_all(self) -> None:
        number = 0
        sender = Connected()
        try:
            await sender.get()
            print("begun", file=sys.stderr, flush=True)
            while not self._ended():
                number += 1
                text = f"{self._run}-{number}"
                began = time.monotonic()
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await eventually(partial(self._sent, sender, text), timeout_s=SEND_TIMEOUT_S, what="a send")
                self._slowest_s = max(self._slowest_s, time.monotonic() - began)
                self._confirmed.add(text)
                self._tell(len(self._confirmed))
        finally:
            await sender.close()
        self._last_sent_s = time.monotonic()

    async def _sent(self, sender: "Connected", text: str) -> bool:
        try:
            await (await sender.get()).send(self._queue, text)
        except sterna.errors.UnknownProducerError:
            self._unknown.add(text)
            return False
        except sterna.errors.UnavailableError as error:
            if not error.retryable:
                raise
            self._refused += 1
            return False
        except sterna.errors.StoreFullError:
            # Nothing of it was kept, and there may be room again.
            self._refused += 1
            return False
        except sterna.errors.ConnectionError:
            if GIVE_UP_S is None:
                raise
            self._unknown.add(text)
            await self._anew(sender)
            return False
        return True

    async def _anew(self, connected: "Connected") -> None:
        """The SDK has given a broker up: as an application does that is told so."""
        self._given_up += 1
        await connected.close()

    async def _receive(self, sending: "asyncio.Task[None]") -> int | None:
        """Receives until nothing more is to be expected; how many messages the broker holds then."""
        receiver = Connected()
        try:
            while True:
                try:
                    return await self._receive_on(await receiver.get(), sending)
                except sterna.errors.ConnectionError:
                    if GIVE_UP_S is None:
                        raise
                    await self._anew(receiver)
        finally:
            await receiver.close()

    async def _receive_on(self, connection: sterna.Connection, sending: "asyncio.Task[None]") -> int | None:
        consumer = await connection.consumer(self._queue)
        last = asked = time.monotonic()
        while not sending.done() or time.monotonic() - last < STUCK_S:
            if sending.done() and self._confirmed <= self._seen:
                return 0
            message = await consumer.receive(timeout=1)
            if message is not None:
                last = time.monotonic()
                self._note(message)
                await message.acknowledge()
            elif sending.done() and time.monotonic() - max(last, asked) > QUIET_S:
                asked = time.monotonic()
                # What was delivered counts until it is acknowledged, so nothing can be on its way any more.
                if await _held(self._queue) == 0:
                    return 0
        return await _held(self._queue)

    def _note(self, message: sterna.Message) -> None:
        text = str(message.body)
        if text in self._seen and text not in self._unknown and not message.redelivered:
            self._unflagged += 1
        self._seen.add(text)


class Connected:
    """A connection that is opened when it is asked for, and again after `close`."""

    def __init__(self) -> None:
        self._connection: sterna.Connection | None = None

    async def get(self) -> sterna.Connection:
        """Open, as far as is known."""
        if self._connection is None:
            reconnect = None if GIVE_UP_S is None else sterna.Reconnect(give_up_after_s=GIVE_UP_S)
            self._connection = await sterna.connect(reconnect=reconnect)
        return self._connection

    async def close(self) -> None:
        """As far as it is open; what cannot be said goodbye to is left."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sterna.errors.ConnectionError):
                await connection.close(timeout_s=5)


async def _held(queue: str) -> int | None:
    """How many messages the queue's broker has, delivered or not; None: it cannot be asked just now."""
    try:
        async with admin.connect() as asking:
            return (await asking.resource("Queue", queue)).statistics.messages
    except (sterna.errors.ConnectionError, sterna.errors.UnavailableError):
        return None


def _run() -> None:
    stop = Path(sys.argv[2])
    confirmed = stop.with_name("confirmed")

    def tell(count: int) -> None:
        confirmed.write_text(str(count))

    print(json.dumps(asyncio.run(Load(sys.argv[1], stop.exists, tell).report())))


if __name__ == "__main__":
    _run()
