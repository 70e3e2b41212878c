"""A sender and a receiver that count: run as a process of its own while something is done to the cluster.

    STERNA_URL=URL python -m tests.kubernetes.load QUEUE STOP_FILE

It sends numbered messages one after the other, each as soon as the last is confirmed, and receives them, until the stop
file appears; then it receives what is left. A send whose outcome the SDK does not know is done again, as it advises;
such a message may come twice. A send that is refused for a moment, as by a broker that is being emptied, is done again
a little later. How many have been confirmed stands in the file `confirmed` beside the stop file. One JSON object on
stdout: what was confirmed, what came, what is missing, how many sends had an unknown outcome or were refused at first,
how often anything else came twice unflagged, and how long the slowest send took.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import sterna

from tests.waiting import eventually

SEND_TIMEOUT_S = 120.0
# A receiver that was cut off may come back later than the sender: only after so long is what is missing lost.
LAST_S = 60.0


async def main(queue: str, ended: Callable[[], bool], tell: Callable[[int], None]) -> None:
    """See the module."""
    confirmed: set[str] = set()
    seen: dict[str, int] = {}
    unknown: set[str] = set()
    unflagged = refused = 0
    slowest_s = 0.0
    run = os.urandom(4).hex()

    async def sent(connection: sterna.Connection, text: str) -> bool:
        nonlocal refused
        try:
            await connection.send(queue, text)
        except sterna.errors.UnknownProducerError:
            unknown.add(text)
            return False
        except sterna.errors.UnavailableError as error:
            if not error.retryable:
                raise
            refused += 1
            return False
        return True

    async def send() -> None:
        nonlocal slowest_s
        number = 0
        async with sterna.connect() as connection:
            print("begun", file=sys.stderr, flush=True)
            while not ended():
                number += 1
                text = f"{run}-{number}"
                began = time.monotonic()
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await eventually(partial(sent, connection, text), timeout_s=SEND_TIMEOUT_S, what="a send")
                slowest_s = max(slowest_s, time.monotonic() - began)
                confirmed.add(text)
                tell(len(confirmed))

    async def receive(sending: "asyncio.Task[None]") -> None:
        nonlocal unflagged
        async with sterna.connect() as connection:
            consumer = await connection.consumer(queue)
            last = time.monotonic()
            while not sending.done() or time.monotonic() - last < LAST_S:
                if sending.done() and confirmed <= seen.keys():
                    return
                message = await consumer.receive(timeout=1)
                if message is None:
                    continue
                last = time.monotonic()
                text = str(message.body)
                if text in seen and text not in unknown and not message.redelivered:
                    unflagged += 1
                seen[text] = seen.get(text, 0) + 1
                await message.acknowledge()

    sending = asyncio.create_task(send())
    await asyncio.gather(sending, receive(sending))
    missing = sorted(confirmed - seen.keys())
    report = {
        "confirmed": len(confirmed),
        "received": len(seen),
        "missing": missing[:20],
        "lost": len(missing),
        "unknown": len(unknown),
        "refused": refused,
        "twice_unflagged": unflagged,
        "slowest_send_s": round(slowest_s, 3),
    }
    print(json.dumps(report))


def _run() -> None:
    stop = Path(sys.argv[2])
    confirmed = stop.with_name("confirmed")

    def tell(count: int) -> None:
        confirmed.write_text(str(count))

    asyncio.run(main(sys.argv[1], stop.exists, tell))


if __name__ == "__main__":
    _run()
