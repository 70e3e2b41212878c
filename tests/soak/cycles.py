"""Cycles of load, fault, restart and verdict. `python -m tests.soak --cycles 300` runs them; `make soak CYCLES=300`.

A cycle starts a broker, lets clients work until the fault has come and at least 200 messages were confirmed, ends it,
starts it again without a fault, and compares what it holds with what clients were told; where the fault came too soon,
clients then go on until 200 are confirmed, and it is judged once more. Six cycles in a row have one store. The fault
that came about least often is the next one.
"""

import asyncio
import os
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
from tests.soak.damage import AtRest, damaged_places, reported
from tests.soak.faults import CALLS, KINDS, Kind, Plan
from tests.soak.ledger import Ledger
from tests.soak.load import Keys, Load, Steadfast, stored
from tests.support.forgetful_disk import ForgetfulDisk
from tests.support.system_calls import Supervised
from tests.waiting import eventually_blocking

CYCLES_OF_A_STORE = 6
CONFIRMED_MIN = 200
_LOAD_S = 8.0
_END_S = 30.0
# What a fault leads to has this long to show.
_AFTERWARDS_S = 1.0
_CLOSE_S = 10.0
_SLACK_S = 3.0
_HASTY = sterna.Reconnect(give_up_after_s=0.2)
_PATIENT = sterna.Reconnect(maximum_ms=200)
_QUEUES = ("plain", "fleeting", "in", "out", "copies", "again")
OBJECTS = (
    manifest("Broker", "sterna", "log: {segmentBytes: 1048576, cacheBytes: 1048576}, limits: {messageBytes: 262144}"),
    *(manifest("Queue", name) for name in _QUEUES),
    manifest("Queue", "last", "maxMessages: 1, overflowPolicy: discardOld"),
    manifest("Topic", "news"),
    manifest("Bridge", "copies", "source: {topic: news}, targets: [{queue: copies}]"),
)


@dataclass
class Outcome:
    """What a cycle came to."""

    kind: str
    seed: int
    number: int = 0
    happened: bool = False
    by_transactions: bool = False
    confirmed: int = 0
    unsynced: int = 0
    """Changes that a loss of power found without a sync."""

    note: str = ""
    """What was done to files, and what came of it."""

    faults: list[str] = field(default_factory=list)


class Soak:
    """Cycles, one after the other, in a folder."""

    def __init__(self, folder: Path, seed: int, kinds: tuple[Kind, ...] = KINDS) -> None:
        self._folder = folder
        self._seed = seed
        self._kinds = kinds
        self._number = 0
        self._stores = 0
        self._ledger = Ledger()
        self._keys = Keys()
        self._damaged = 0
        self.happened: Counter[str] = Counter()
        self._tried: Counter[str] = Counter()
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
        if self._broker is None or number % CYCLES_OF_A_STORE == 0:
            await asyncio.to_thread(self._begin_store)
        kind = self._next_kind()
        outcome = Outcome(kind.name, self._seed, number, by_transactions=number % 2 == 1)
        try:
            async with asyncio.timeout(180):
                await self._run(kind, outcome, choices)
        except Exception as error:  # noqa: BLE001, whatever it is: the cycle has no verdict
            assert self._broker is not None
            said = self._broker.stderr.strip().splitlines()[-3:]
            outcome.faults.append(f"no verdict: {type(error).__name__}: {error}; the broker said: {said}")
            await asyncio.to_thread(self._broker.stop)
        self.happened[kind.name] += outcome.happened
        if outcome.faults:
            # What follows on a store that is wrong says nothing.
            await asyncio.to_thread(self._put_aside, number)
        return outcome

    def _next_kind(self) -> Kind:
        """The one that came about least often, and of these the one that was tried least often."""
        first = self._seed % len(self._kinds)
        turn = [*self._kinds[first:], *self._kinds[:first]]
        kind = min(turn, key=lambda kind: (self.happened[kind.name], self._tried[kind.name]))
        self._tried[kind.name] += 1
        return kind

    def _begin_store(self) -> None:
        if self._broker is not None:
            self._broker.stop()
            shutil.rmtree(self._broker.folder)
        self._ledger, self._damaged, self._stores = Ledger(), 0, self._stores + 1
        # An address of its own, and always the same port: clients that outlive a broker find the next one.
        listen = f"127.{1 + os.getpid() // 65_536 % 250}.{os.getpid() // 256 % 256}.{os.getpid() % 256}:7222"
        self._broker = RunningBroker(
            self._folder / f"store-{self._stores}",
            OBJECTS,
            supervised=(self._supervised.address, CALLS),
            listen=listen,
        )

    def _put_aside(self, number: int) -> None:
        """A store in which something is wrong is kept where the machine's owner asked for it, and the next is new."""
        assert self._broker is not None
        self._broker.stop()
        if kept := os.environ.get("SOAK_KEEP"):
            shutil.copytree(self._broker.folder, Path(kept) / f"{self._seed}-{number}", dirs_exist_ok=True)
        shutil.rmtree(self._broker.folder)
        self._broker = None

    @property
    def _log(self) -> Path:
        assert self._broker is not None
        return self._broker.data / "log"

    async def _run(self, kind: Kind, outcome: Outcome, choices: random.Random) -> None:
        broker = self._broker
        assert broker is not None
        older = self._folder / "older"
        shutil.rmtree(older, ignore_errors=True)
        plan = Plan.drawn(kind, choices, lambda: broker.pid, self._log)
        if kind.power:
            plan.disk = self._supervised.disk = ForgetfulDisk(self._log)
        await asyncio.to_thread(broker.start)
        patient = await sterna.connect(f"sterna://{broker.address}", client_id="steadfast", reconnect=_PATIENT)
        steadfast = Steadfast(patient, self._ledger, self._keys)
        try:
            await self._work(broker, plan, outcome, choices)
            with suppress(OSError):
                # Waits until damage that was met stands in its log, if it is still there to be asked.
                await asyncio.to_thread(reported, broker)
            await asyncio.to_thread(self._end, broker, plan, outcome, choices)
            if kind.at_rest:
                rest = AtRest(self._folder / "copy", OBJECTS, broker.data, older)
                outcome.faults += await rest.judge(kind.at_rest, choices, self._ledger)
                outcome.happened, outcome.note = bool(rest.done), f"{rest.done}: {rest.note}"
            await self._start_again(broker, outcome, choices)
            outcome.faults += await steadfast.end(_END_S)
            if steadfast.in_doubt:
                outcome.faults.append(f"a broker of the same store does not know {steadfast.in_doubt} sends any more")
        finally:
            steadfast.cancel()
            await patient.close(failed=True, timeout_s=2)
        await self._judge(broker, outcome)
        if outcome.confirmed < CONFIRMED_MIN:
            await self._work(broker, Plan.drawn(KINDS[0], choices, lambda: broker.pid, self._log), outcome, choices)
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            await self._judge(broker, outcome)
        if outcome.confirmed < CONFIRMED_MIN:
            outcome.faults.append(f"no more than {outcome.confirmed} were confirmed by a broker that is well")
        # Not cleanly: the next start has more to find out.
        await asyncio.to_thread(broker.kill)

    async def _judge(self, broker: RunningBroker, outcome: Outcome) -> None:
        async with sterna.connect(f"sterna://{broker.address}", client_id="soak") as connection:
            await stored(connection)
            found = await stored(connection)
        now = await asyncio.to_thread(reported, broker)
        known = None if now.records is None else self._damaged + now.records
        outcome.faults += self._ledger.judge(found, known)
        self._ledger.settle()

    async def _work(self, broker: RunningBroker, plan: Plan, outcome: Outcome, choices: random.Random) -> None:
        connection = await sterna.connect(f"sterna://{broker.address}", client_id="soak", reconnect=_HASTY)
        loop = asyncio.get_running_loop()
        try:
            reader = await connection.consumer(Topic("news"), durable="reader")
            await reader.close()
            load = Load(connection, self._ledger, choices, self._keys, by_transactions=outcome.by_transactions)
            over = asyncio.Event()
            connection.on_closed(lambda _: over.set())
            running = asyncio.create_task(load.run())
            self._supervised.delay_s, self._supervised.decide = plan.delay_s, plan.decide
            began = loop.time()
            while not over.is_set() and loop.time() - began < _LOAD_S:
                enough = outcome.confirmed + load.confirmed >= CONFIRMED_MIN and not plan.kind.must_end
                if enough and (plan.kind.is_load_alone or plan.happened_for() > _AFTERWARDS_S):
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), 0.05)
                if plan.kind.at_rest and load.confirmed and not (older := self._folder / "older").exists():
                    await asyncio.to_thread(_copy, self._log, older)
            load.stopped.set()
            await running
            outcome.confirmed += load.confirmed
            outcome.happened = outcome.happened or plan.happened or plan.kind == KINDS[0]
            if load.hanging and (not plan.happened or plan.kind.errors):
                outcome.faults.append(f"clients hang: {', '.join(load.hanging)}")
        finally:
            began = loop.time()
            with suppress(errors.SternaError):
                await connection.close(failed=choices.random() < 0.5, timeout_s=_CLOSE_S)
            if (took := loop.time() - began) > _CLOSE_S + _SLACK_S:
                outcome.faults.append(f"close() took {took:.0f} s")

    def _end(self, broker: RunningBroker, plan: Plan, outcome: Outcome, choices: random.Random) -> None:
        """Ends the broker as the plan has it, and notes when it did not end as it should."""
        assert broker.process is not None
        if (plan.kind.must_end and plan.happened) or "engine_failed" in broker.stderr:
            broker.wait(_END_S)
        by_itself = broker.process.poll() if plan.kind.errors and not plan.kind.then_killed else None
        if by_itself is not None:
            if by_itself != 1 or "engine_failed" not in broker.stderr:
                outcome.faults.append(f"a failed disk ended the broker with {by_itself}: {broker.stderr[-500:]}")
        elif plan.kind == KINDS[0] or (not plan.kind.power and not plan.happened and choices.random() < 0.5):
            self._let_through()
            status = broker.terminate(_END_S)
            if status != 0:
                outcome.faults.append(f"a clean stop ended with {status}: {broker.stderr[-500:]}")
        else:
            broker.stop()
        self._let_through()
        self._damaged += (damaged := damaged_places(broker.stderr))
        if plan.happened and plan.kind.errors:
            ended = "ended by itself" if by_itself is not None else "went on"
            outcome.note = f"{ended}, {damaged} damaged places"
        if plan.disk is not None:
            outcome.unsynced += plan.disk.forget(choices)

    def _let_through(self) -> None:
        self._supervised.decide, self._supervised.delay_s = (lambda _: 0), 0.0
        self._supervised.disk = None

    async def _start_again(self, broker: RunningBroker, outcome: Outcome, choices: random.Random) -> None:
        if choices.random() < 0.4:
            await asyncio.to_thread(self._die_while_starting, broker, outcome, choices)
        await asyncio.to_thread(broker.start)

    def _die_while_starting(self, broker: RunningBroker, outcome: Outcome, choices: random.Random) -> None:
        name = choices.choice(("kill", "power cut", "read error once", "open error once", "names error"))
        kind = next(kind for kind in KINDS if kind.name == name)
        plan = Plan.drawn(kind, choices, lambda: broker.pid, self._log)
        plan.at = choices.randint(1, 20 if name in ("kill", "power cut") else 6)
        if kind.power:
            plan.disk = self._supervised.disk = ForgetfulDisk(self._log)
        self._supervised.decide = plan.decide
        broker.launch()
        with suppress(AssertionError):
            # It may be quicker than its end.
            _until(lambda: broker.has_started or plan.is_over)
        broker.stop()
        self._let_through()
        self._damaged += damaged_places(broker.stderr)
        if plan.disk is not None:
            outcome.unsynced += plan.disk.forget(choices)


def _until(check: Callable[[], bool]) -> None:
    eventually_blocking(check, timeout_s=_END_S, what="the start")


def _copy(log: Path, target: Path) -> None:
    """Of a log in use: each file as it was at some moment."""
    target.mkdir()
    for path in log.iterdir():
        with suppress(FileNotFoundError):
            shutil.copyfile(path, target / path.name)


async def run(
    folder: Path, seed: int, cycles: int, told: Callable[[Outcome], None], kinds: tuple[Kind, ...] = KINDS
) -> Counter[str]:
    """So many cycles; how often each fault came about. `told` hears of each."""
    soak = Soak(folder, seed, kinds)
    try:
        for _ in range(cycles):
            told(await soak.cycle())
    finally:
        await asyncio.to_thread(soak.close)
    return soak.happened
