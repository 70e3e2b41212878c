"""B9: a broker that was killed starts again with a million messages of 1 KB in 100 queues, some acknowledged.

Timed from the birth of the process to the first message in a client's hands; Python's own start is in it.
"""

import signal
import time  # noqa: TID251 - measures real time

import sterna
from sterna import admin
from sterna._loop import run as run_loop

from bench.broker import Broker
from bench.filling import acknowledge, fill
from bench.results import Measured
from bench.rig import Rig

QUEUES = 100
MESSAGES = 1_000_000
# Of each queue, so many more are sent and acknowledged.
ACKNOWLEDGED_PART = 10


def measure(rig: Rig) -> list[Measured]:
    """Seconds to the first message, with the log's files in the page cache and without."""
    each = rig.scaled(MESSAGES) // QUEUES
    extra = each // ACKNOWLEDGED_PART
    names = [f"bench.restart.{number}" for number in range(QUEUES)]
    with rig.broker() as broker:
        run_loop(fill(broker, dict.fromkeys(names, each + extra)))
        run_loop(acknowledge(broker, names, extra))
        broker.stop(signal.SIGKILL)
        warm = _start(broker, names[0], each)
        broker.stop(signal.SIGKILL)
        how = broker.drop_page_cache()
        cold = _start(broker, names[-1], each)
    common = {"queues": QUEUES, "messages": each * QUEUES, "acknowledged": extra * QUEUES, "body_bytes": 1_024}
    return [
        Measured("B9-warm", warm["first_message_s"], {**warm, **common, "ended_by": "SIGKILL"}),
        Measured("B9-cold", cold["first_message_s"], {**cold, **common, "ended_by": "SIGKILL", "dropped_by": how}),
    ]


def _start(broker: Broker, queue: str, expected: int) -> dict[str, float]:
    begin = time.monotonic()
    broker.start()
    times = run_loop(_first_message(broker, queue, expected))
    return {
        "first_message_s": round(times["received_at"] - begin, 3),
        "serving_s": round(broker.start_s, 3),
        "recovery_s": times["recovery_s"],
        "recovered_messages": times["recovered_messages"],
    }


async def _first_message(broker: Broker, queue: str, expected: int) -> dict[str, float]:
    async with sterna.connect(broker.url) as connection:
        consumer = await connection.consumer(queue)
        message = await consumer.receive(timeout=60)
        received_at = time.monotonic()
        if message is None:
            raise RuntimeError(f"{queue} is empty after the restart")
    async with admin.connect(broker.url) as client:
        recovery = (await client.statistics()).recovery
        held = (await client.resource("Queue", queue)).statistics.messages
    # The one that was just received and acknowledged may be gone already.
    if held not in (expected, expected - 1):
        raise RuntimeError(f"{queue} holds {held} messages after the restart, not {expected}")
    return {
        "received_at": received_at,
        "recovery_s": recovery.duration_ms / 1_000,
        "recovered_messages": recovery.messages,
    }
