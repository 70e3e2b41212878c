"""Cycles of load, fault, restart and verdict. `python -m tests.soak --cycles 300` runs them; `make soak CYCLES=300`.

A cycle starts a broker, lets clients work until the fault comes (and at least 200 messages were confirmed, where it
lets them), ends it, starts it again without a fault, and compares what it holds with what clients were told. Six cycles
in a row have one store. What it does not cover: a loss of power, after which writes that were not synced are gone; the
simulation of the engine has that.
"""

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import sterna
from sterna import Topic, errors

from tests.running import RunningBroker, manifest
from tests.soak.faults import CALLS, KINDS, Plan
from tests.soak.ledger import Ledger
from tests.soak.load import Load, stored
from tests.support.system_calls import Supervised
from tests.waiting import eventually_blocking

CYCLES_OF_A_STORE = 6
CONFIRMED_MIN = 200
_LOAD_S = 8.0
_END_S = 30.0
_HASTY = sterna.Reconnect(give_up_after_s=0.2)
_OBJECTS = (
    manifest("Broker", "sterna", "log: {segmentBytes: 1048576}, limits: {messageBytes: 262144}"),
    manifest("Queue", "plain"),
    manifest("Queue", "in"),
    manifest("Queue", "out"),
    manifest("Queue", "copies"),
    manifest("Queue", "last", "maxMessages: 1, overflowPolicy: discardOld"),
    manifest("Topic", "news"),
    manifest("Bridge", "copies", "source: {topic: news}, targets: [{queue: copies}]"),
)


@dataclass
class Outcome:
    """What a cycle came to."""

    kind: str
    seed: int
    happened: bool = False
    confirmed: int = 0
    faults: list[str] = field(default_factory=list)


class Soak:
    """Cycles, one after the other, in a folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed
        self._number = 0
        self._ledger = Ledger()
        self._keys = 0
        self._broker: RunningBroker | None = None
        self._supervised = Supervised(folder)

    def close(self) -> None:
        """Ends whatever is left."""
        if self._broker is not None:
            self._broker.stop()
        self._supervised.close()

    async def cycle(self) -> Outcome:
        """The next one. A cycle without a verdict has a fault that says so."""
        number, self._number = self._number, self._number + 1
        choices = random.Random(f"{self._seed}/{number}")
        if number % CYCLES_OF_A_STORE == 0:
            await asyncio.to_thread(self._begin_store, number // CYCLES_OF_A_STORE)
        outcome = Outcome(KINDS[(number + self._seed) % len(KINDS)], self._seed)
        try:
            async with asyncio.timeout(120):
                await self._run(outcome, choices)
        except Exception as error:  # noqa: BLE001, whatever it is: the cycle has no verdict
            assert self._broker is not None
            said = self._broker.stderr.strip().splitlines()[-3:]
            outcome.faults.append(f"no verdict: {type(error).__name__}: {error}; the broker said: {said}")
            await asyncio.to_thread(self._broker.stop)
        if outcome.faults:
            # What follows on a store that is wrong says nothing.
            self._number += -self._number % CYCLES_OF_A_STORE
        return outcome

    def _begin_store(self, number: int) -> None:
        if self._broker is not None:
            self._broker.stop()
            shutil.rmtree(self._broker.folder)
        self._ledger = Ledger()
        self._broker = RunningBroker(
            self._folder / f"store-{number}", _OBJECTS, supervised=(self._supervised.address, CALLS)
        )

    async def _run(self, outcome: Outcome, choices: random.Random) -> None:
        broker = self._broker
        assert broker is not None
        plan = Plan.drawn(outcome.kind, choices, lambda: broker.pid)
        await asyncio.to_thread(broker.start)
        await self._work(broker, plan, outcome, choices)
        await asyncio.to_thread(_end, broker, plan, outcome)
        outcome.happened = plan.happened or outcome.kind == "clean stop"
        self._supervised.decide, self._supervised.delay_s = (lambda _: 0), 0.0
        if choices.random() < 0.3:
            await asyncio.to_thread(self._die_while_starting, broker, choices)
        await asyncio.to_thread(broker.start)
        async with sterna.connect(f"sterna://{broker.address}", client_id="soak") as connection:
            outcome.faults += self._ledger.judge(await stored(connection))
        self._ledger.settle()
        # Not cleanly: the next start has more to find out.
        await asyncio.to_thread(broker.kill)

    async def _work(self, broker: RunningBroker, plan: Plan, outcome: Outcome, choices: random.Random) -> None:
        connection = await sterna.connect(f"sterna://{broker.address}", client_id="soak", reconnect=_HASTY)
        try:
            reader = await connection.consumer(Topic("news"), durable="reader")
            await reader.close()
            load = Load(connection, self._ledger, choices, self._keys)
            over = asyncio.Event()
            connection.on_closed(lambda _: over.set())
            running = asyncio.create_task(load.run())
            self._supervised.delay_s, self._supervised.decide = plan.delay_s, plan.decide
            began = asyncio.get_running_loop().time()
            while not over.is_set() and asyncio.get_running_loop().time() - began < _LOAD_S:
                done = plan.happened or plan.kind == "clean stop"
                if done and load.confirmed >= CONFIRMED_MIN and not plan.is_final:
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), 0.05)
            load.stopped.set()
            await running
            if load.hanging and not plan.happened:
                outcome.faults.append(f"clients hang at a broker that is well: {', '.join(load.hanging)}")
            self._keys, outcome.confirmed = load.next_number, load.confirmed
        finally:
            with suppress(errors.SternaError):
                await connection.close(failed=True, timeout_s=2)

    def _die_while_starting(self, broker: RunningBroker, choices: random.Random) -> None:
        plan = Plan("kill", choices.randint(1, 12), 0, lambda: broker.pid)
        self._supervised.decide = plan.decide
        broker.launch()
        with suppress(AssertionError):
            # It may be quicker than its end.
            _until(lambda: broker.has_started or plan.happened)
        broker.stop()
        self._supervised.decide = lambda _: 0


def _until(check: Callable[[], bool]) -> None:
    eventually_blocking(check, timeout_s=_END_S, what="the start")


def _end(broker: RunningBroker, plan: Plan, outcome: Outcome) -> None:
    """Ends the broker as the plan has it, and notes when it did not end as it should."""
    if plan.kind == "clean stop":
        status = broker.terminate(_END_S)
        if status != 0:
            outcome.faults.append(f"a clean stop ended with {status}: {broker.stderr[-500:]}")
    elif plan.is_final and plan.happened:
        status = broker.wait(_END_S)
        if status != 1:
            outcome.faults.append(f"a failed disk ended the broker with {status}: {broker.stderr[-500:]}")
    else:
        broker.stop()


async def run(folder: Path, seed: int, cycles: int, told: Callable[[Outcome], None]) -> Counter[str]:
    """So many cycles; how often each fault came about. `told` hears of each."""
    soak = Soak(folder, seed)
    happened: Counter[str] = Counter()
    try:
        for _ in range(cycles):
            outcome = await soak.cycle()
            happened[outcome.kind] += outcome.happened
            told(outcome)
    finally:
        await asyncio.to_thread(soak.close)
    return happened
