"""How often the threads of a broker and of a client wake up for a message: a program, run by test_grpc_experiments.

`python -m tests.broker.wakeups URL PID` sends to the broker of that process number, one message after the other, each
awaited: nothing is under way but this one. It prints what woke up, as JSON. Linux counts how often each thread gave its
core up by itself, that is, waited; each time it woke up afterwards. No clock is read.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import sterna
from sterna._grpc_experiments import choose_experiments
from sterna._loop import run

ROUNDS = 10
MESSAGES_IN_A_ROUND = 50
# What the event engine of grpc calls its threads.
EVENT_ENGINE = "event_engine"


def waits(pid: int) -> Counter[str]:
    """How often threads of a process have waited until now, by the name of the thread."""
    found: Counter[str] = Counter()
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            lines = (task / "status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            # It has ended since: pools shrink.
            continue
        values = dict(line.split(":", 1) for line in lines)
        found[values["Name"].strip()] += int(values["voluntary_ctxt_switches"])
    return found


async def measure(url: str, broker: int) -> dict[str, dict[str, float]]:
    """Wake-ups a message of each process, all together and of the event engine: in the quietest of the rounds.

    Timers wake threads as well. They come by the clock, so that a slow machine has more of them in a round; what a
    message needs comes in every round.
    """
    rounds: dict[str, list[Mapping[str, int]]] = {"broker": [], "client": []}
    async with sterna.connect(url) as connection, await connection.session() as session:
        producer = await session.producer(sterna.Queue("wakeups"))
        for number in range(ROUNDS + 1):
            before = waits(broker), waits(os.getpid())
            for _ in range(MESSAGES_IN_A_ROUND):
                await producer.send(b"x")
            # What the first round starts is not what a message needs.
            if number:
                rounds["broker"].append(waits(broker) - before[0])
                rounds["client"].append(waits(os.getpid()) - before[1])
    return {
        side: {
            "all": min(sum(one.values()) for one in seen) / MESSAGES_IN_A_ROUND,
            "event_engine": min(one.get(EVENT_ENGINE, 0) for one in seen) / MESSAGES_IN_A_ROUND,
        }
        for side, seen in rounds.items()
    }


if __name__ == "__main__":
    # As the processes of ours do it; what the test has set counts.
    choose_experiments()
    json.dump(run(measure(sys.argv[1], int(sys.argv[2]))), sys.stdout)
