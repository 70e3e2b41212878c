"""One run of the world: what is drawn, what happens, and the verdict."""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import sterna
from sterna import AcknowledgeMode, Queue, Topic, errors

from tests.running import ANYTHING, manifest
from tests.world import accounts, awaits, checker
from tests.world.brokers import Broker
from tests.world.clusters import Cluster
from tests.world.facts import Facts, Handing, Subscription
from tests.world.faults import KINDS, Faults
from tests.world.guests import GUESTS
from tests.world.habits import HABITS, STALLS
from tests.world.jugglers import JUGGLERS
from tests.world.keepers import Keeper
from tests.world.loop import SimulatedLoop, StuckError
from tests.world.more_programs import NEWS, PROGRAMS
from tests.world.network import Network
from tests.world.newcomers import NEWCOMERS
from tests.world.processes import Process
from tests.world.programs import Application, client
from tests.world.surroundings import installed
from tests.world.watch import Watch

_QUEUES = ("in.one", "in.two", "out")

_BROKERS = (1, 1, 1, 2, 2, 3)

_EXTRAS = (0, 0, 0, 1, 2, 3)

_DEEDS = (0, 0, 0, 1, 2, 4)

_GUESTS = (0, 0, 0, 1, 1, 2)

_NEWCOMERS = (0, 0, 1, 2)

_JUGGLERS = (0, 0, 1, 2)

_SLOW = (0.02, 0.02, 0.4)

_NARROW_SPEC = "limits: {frameBytes: 16777216, inflightBytes: 2097152}"

_NARROW = manifest("Broker", "narrow", _NARROW_SPEC)

#: In so many of the seeds senders to one of the queues wait for receivers: bytes from which on they do; 0: never.
_FLOWS = (0, 0, 0, 0, 1, 300)

_NAMES = ("one", "two", "three")

#: From then on nobody waits any more: those that would receive may have gone.
_FLOW_S = 60.0
#: A reload takes less than this.
_RELOAD_S = 5.0

#: By so much a clock is set back at once, and so often at most.
_SET_BACK_S = 3_600.0
_SET_BACK_MAX = 12

_WHOLE_S = 3_000.0
"""What a run may take in the world's time, drained and all."""


#: What of a scene may be given, to make a failing run shorter.
NUMBERS = (
    "clients",
    "programs",
    "steps",
    "faults",
    "brokers",
    "extras",
    "deeds",
    "guests",
    "newcomers",
    "jugglers",
    "flow",
)


@dataclass
class Scene:
    """What a seed draws; each can be given, to make a failing run shorter."""

    seed: int
    clients: int = 0
    programs: int = 0
    steps: int = 0
    faults: int = 0
    cut_share: float = 0.0
    kinds: tuple[str, ...] = ()
    brokers: int = 1
    """More than one are a cluster."""

    extras: int = 0
    """Clients with habits besides, and what comes with them: a second hand at the faults, now and then a slow network.

    None in half of the seeds, which are what they were before there were any.
    """

    deeds: int = 0
    """What somebody does who keeps brokers (`keepers.py`); none in half of the seeds, drawn by itself, too."""

    guests: int = 0
    """Clients that do what the others leave alone (`guests.py`); none in half of the seeds, drawn by itself, too."""

    newcomers: int = 0
    """Clients that drain, postpone and listen to several at once (`newcomers.py`); none in half of the seeds, too."""

    jugglers: int = 0
    """Clients whose tasks share a session, or who look through queues (`jugglers.py`); none in half of the seeds."""

    flow: int = 0
    """`flowControlBytes` of the first queue, where one broker is by itself and nobody keeps it."""

    @staticmethod
    def of(seed: int) -> Scene:
        """The scene of a seed."""
        random = Random(f"scene {seed}")
        kinds = tuple(kind for kind in dict.fromkeys(KINDS) if random.random() < 0.6) or KINDS
        return Scene(
            seed,
            clients=random.randrange(2, 6),
            programs=random.randrange(2, 6),
            steps=random.randrange(10, 60),
            faults=random.randrange(0, 11),
            cut_share=random.choice((0.0, 0.05, 0.2)),
            kinds=kinds,
            # Drawn by itself, so that what was drawn before there were clusters stays what it was.
            brokers=Random(f"cluster {seed}").choice(_BROKERS),
            extras=Random(f"extras {seed}").choice(_EXTRAS),
            deeds=Random(f"deeds {seed}").choice(_DEEDS),
            guests=Random(f"guests {seed}").choice(_GUESTS),
            newcomers=Random(f"newcomers {seed}").choice(_NEWCOMERS),
            jugglers=Random(f"jugglers {seed}").choice(_JUGGLERS),
            flow=Random(f"flow {seed}").choice(_FLOWS),
        )


@dataclass
class Verdict:
    """What came of a run."""

    scene: Scene
    problems: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    counts: awaits.Counts = field(default_factory=awaits.Counts)
    steps: int = 0
    took_s: float = 0.0
    trace: list[str] | None = None


def run(scene: Scene, folder: Path, *, traced: bool = False) -> Verdict:
    """Runs a scene; what it leaves below `folder` is of no use to anybody."""
    awaits.read()
    world = _World(scene, folder)
    if traced:
        world.loop.trace = []
    # What a cycle of objects holds is finalized when the collector comes by, which does not follow from the seed.
    gc.disable()
    try:
        with installed(world.loop, world.network):
            me = Process("world", Random(f"world {scene.seed}"))
            me.context.copy().run(world.loop.run_until_complete, world.loop.spawn(me, world.main(), "world"))
    except StuckError as error:
        world.verdict.problems.append(f"stuck: {error}; {world.doing}")
    finally:
        gc.enable()
        for broker in world.brokers:
            broker.end()
        world.loop.close()
    verdict = world.verdict
    verdict.faults, verdict.calls, verdict.steps = world.faults.told, world.facts.calls, world.loop.steps
    verdict.counts = world.loop.awaits
    verdict.took_s, verdict.trace = world.loop.time() - 1_000, world.loop.trace
    return verdict


def _flowing(*, is_narrow: bool) -> str:
    return manifest("Broker", "flowing", _NARROW_SPEC + ", flowControl: true" if is_narrow else "flowControl: true")


def _waiting(limit: int) -> str:
    return manifest("Queue", "in-one", f"name: {_QUEUES[0]}, flowControlBytes: {limit}")


class _World:
    def __init__(self, scene: Scene, folder: Path) -> None:
        seed = scene.seed
        self.scene = scene
        self.verdict = Verdict(scene)
        self.facts = Facts()
        self.doing = "beginning"
        self.loop = SimulatedLoop(Random(f"loop {seed}"))
        self.network = Network(self.loop, Random(f"network {seed}"))
        self.brokers: list[Broker] = []
        self.cluster: Cluster | None = None
        self._folder = folder
        self.processes: list[Process] = []
        self.faults = Faults(self.loop, self.network, Random(f"faults {seed}"), self.brokers, self.processes)
        self.applications: list[Application] = []
        self.facts.placed = self.faults.placed
        self.watch = Watch(self.loop, self.network, self.brokers)
        self._queues: tuple[str, ...] = _QUEUES
        self._keeper = Keeper(Random(f"keeper {seed}"), self.faults, self.brokers)
        if scene.extras:
            self._queues = (*_QUEUES, *STALLS)
            self.network.slow = Random(f"slow {seed}").choice(_SLOW)

    async def main(self) -> None:
        """The run, from the first start to the verdict."""
        await self._start_brokers()
        watching = asyncio.create_task(self.watch.run())
        running = [self._begin("client", number) for number in range(self.scene.clients)]
        running += [self._begin("extra", number) for number in range(self.scene.extras)]
        running += [self._begin("guest", number) for number in range(self.scene.guests)]
        running += [self._begin("newcomer", number) for number in range(self.scene.newcomers)]
        running += [self._begin("juggler", number) for number in range(self.scene.jugglers)]
        self.doing = "faults"
        hands = [asyncio.create_task(self.faults.run(self.scene.faults, self.scene.kinds))]
        if self.scene.extras:
            second = Random(f"faults {self.scene.seed} too")
            hands.append(asyncio.create_task(self.faults.run(self.scene.faults, self.scene.kinds, second)))
        if self.scene.deeds:
            hands.append(asyncio.create_task(self._keeper.run(self.scene.deeds)))
        elif self._has_flow:
            hands.append(asyncio.create_task(self._lift_flow_control()))
        await asyncio.wait([*hands, *running], timeout=_WHOLE_S / 3)
        await asyncio.wait(hands)
        for hand in hands:
            if hand.cancelled():
                self.verdict.problems.append(f"cut off: {self.faults.told[-1]}")
            elif (error := hand.exception()) is not None:
                self.verdict.problems.append(f"after {self.faults.told[-1]}: {error!r}")
        self.doing = "applications"
        await asyncio.wait(running, timeout=_WHOLE_S / 3)
        for application in self.applications:
            application.is_over = True
        self.doing = "the end of applications"
        _, pending = await asyncio.wait(running, timeout=_WHOLE_S)
        self.verdict.problems += [f"{one.get_name()} does not end" for one in pending]
        await self._judge()
        watching.cancel()
        await asyncio.wait((watching,))
        self.verdict.problems += self.watch.found
        await self._stop()

    async def _start_brokers(self) -> None:
        seed, count = self.scene.seed, self.scene.brokers
        if count == 1:
            config = self._configuration(Random(f"limits {seed}").random() < 0.15)
            random = Random(f"broker {seed}")
            self.brokers.append(Broker(self.loop, self.network, random, "one", self._folder / "one", config=config))
            await self.brokers[0].start()
            return
        self.cluster = self.faults.cluster = self.watch.cluster = Cluster(self.loop, self.network, seed, self._folder)
        self.brokers.extend(self.cluster.add(name) for name in _NAMES[:count])
        for broker in self.brokers:
            await broker.start()
        await self.cluster.until_live()
        await self.cluster.allow_all()

    def _configuration(self, is_narrow: bool) -> Path | None:
        """Of a broker by itself; for some with frames that take large messages whole, larger than a producer's window.

        None: it needs none.
        """
        narrow: tuple[str, ...] = (_NARROW,) if is_narrow else ()
        if self._has_flow:
            narrow = (_flowing(is_narrow=is_narrow), _waiting(self.scene.flow))
        if not narrow and not self.scene.deeds:
            return None
        folder = self._folder / "config"
        folder.mkdir()
        if self.scene.deeds:
            self._keeper.describe(folder, *narrow)
        else:
            (folder / "all.yaml").write_text("---\n".join((*ANYTHING, *narrow)))
        return folder

    @property
    def _has_flow(self) -> bool:
        return bool(self.scene.flow) and self.scene.brokers == 1 and not self.scene.deeds

    async def _lift_flow_control(self) -> None:
        """Raises the limit, at the running broker or for its next start."""
        await asyncio.sleep(_FLOW_S)
        is_narrow = Random(f"limits {self.scene.seed}").random() < 0.15
        raised = (*ANYTHING, _flowing(is_narrow=is_narrow), _waiting(0))
        (self._folder / "config" / "all.yaml").write_text("---\n".join(raised))
        [broker] = self.brokers
        while broker.is_running and broker.node is not None:
            reloading = broker.at_work(broker.node.reload())
            await asyncio.wait((reloading,), timeout=_RELOAD_S)  # one that is killed meanwhile never ends it
            if reloading.done() and not reloading.cancelled() and reloading.exception() is None:
                return
            await asyncio.sleep(1)

    def _begin(self, name: str, number: int) -> asyncio.Task[None]:
        """One client, with the programs of its kind."""
        scene = self.scene
        random = Random(f"{name} {number} of {scene.seed}")
        process = Process(f"{name}{number}", random)
        self.processes.append(process)
        # Of several each client begins at another.
        first = number % len(self.brokers)
        url = "sterna://" + "+".join(broker.address for broker in self.brokers[first:] + self.brokers[:first])
        queues = self._queues if name == "extra" else _QUEUES
        application = Application(process.name, url, random, self.facts, queues, scene.cut_share, self._audit)
        application.is_given_up = self._is_given_up
        self.applications.append(application)
        programs, count = {
            "client": (PROGRAMS, scene.programs),
            "extra": (HABITS, 2),
            "guest": (GUESTS, 2),
            "newcomer": (NEWCOMERS, 2),
            "juggler": (JUGGLERS, 2),
        }[name]
        work = client(application, programs, count, scene.steps)
        return asyncio.create_task(self._alive(process, work), name=process.name)

    def _is_given_up(self, name: str, client_id: str) -> bool:
        return not any(broker.name == name and broker.has(client_id) for broker in self.brokers)

    async def _alive(self, process: Process, work: Coroutine[Any, Any, None]) -> None:
        """Until the process has done its work, or is dead."""
        ended = asyncio.Event()
        task = self.loop.spawn(process, work)
        task.add_done_callback(lambda _: ended.set())
        process.on_death.append(ended.set)
        await ended.wait()
        if not process.is_dead and (error := task.exception()) is not None:
            raise error
        if not process.is_dead:
            await self._leave(process)
        self.loop.kill(process)

    async def _leave(self, process: Process) -> None:
        """It has closed all its connections, and lives on: then nothing of them is left."""
        await asyncio.sleep(2)
        left = [link for link in self.network.links if link.client is process and not link.client_knows]
        if left and not process.is_dead:
            self.verdict.problems.append(f"{process} has closed what it had, and keeps {len(left)} sockets")

    async def _judge(self) -> None:
        self.doing = "draining"
        found = self.verdict.problems
        await asyncio.sleep(60)  # what broke without a word is noticed
        found += [f"{broker.name} does not run" for broker in self.brokers if not broker.is_running]
        if found:
            return  # nothing can be said about what is left
        found += await self._waited()
        for broker in self.brokers:
            found += [*accounts.left(broker), *accounts.disagreements(broker)]
        drained: list[Handing] = []
        try:
            await self._drain_all(drained)
        except errors.SternaError as error:
            found.append(f"draining: {error!r}")
            return
        if self.faults.given_up_s is not None:
            self.facts.given_up_s = self.faults.given_up_s
        self.facts.copy_published()
        self.facts.ended_s, self.facts.clock_steps = self.loop.time(), self.faults.clock_steps
        found += checker.problems(
            self.facts,
            drained,
            restarted=self.faults.restarted,
            given_up=self.faults.given_up_s is not None,
            copied=self.faults.copied,
        )
        found += self._configured()
        for process in (*self.processes, *(one.process for one in self.brokers if one.process is not None)):
            found += [f"in {process}: {fault}" for fault in process.faults]
        failures = [(broker.name, why) for broker in self.brokers for why in broker.failures]
        found += [f"{name} failed: {why}" for name, why in failures]

    async def _waited(self) -> list[str]:
        """What was given back for later waits on over a restart, by a clock that was perhaps set back by then."""
        for _ in range(_SET_BACK_MAX):
            if not any(map(accounts.postponed, self.brokers)):
                return []
            await asyncio.sleep(_SET_BACK_S)
        return ["what was given back for later has not come again"]

    def _configured(self) -> list[str]:
        """What an administrator was told is what there is."""
        if self.cluster is not None:
            return []
        there = {f"{row['client_id']}/{row['name']}" for row in self.brokers[0].listed("durable")}
        node = self.brokers[0].node
        described = {one.claim for one in node.live.objects.durables()} if node is not None else set()
        found = self._keeper.found(self.brokers[0])
        for name, is_there in self.facts.configured.items():
            if (name in there) != is_there:
                found.append(f"the durable subscription {name} {'is gone' if is_there else 'is there'}")
            if (name in described) != (name in there):
                found.append(f"the durable subscription {name} is described, or kept, and not both")
        return found

    async def _stop(self) -> None:
        for broker in self.brokers:
            await broker.stop()
        if self.cluster is not None:
            await self.cluster.end()
        self.doing = "done"

    async def _audit(self, connection: sterna.Connection) -> None:
        """What the broker keeps for a connection is what the SDK has on it: else something has nobody any more."""
        lifeline: Any = connection._lifeline
        kept: dict[str, Any] = {}
        own: dict[str, Any] = {}
        # For longer than either side needs to notice that it hears nothing of the other.
        for _ in range(140):
            await asyncio.sleep(0.5)
            if not connection.connected:
                return
            here = [one for one in self.brokers if one.is_running and one.name == connection.broker]
            rows = [one for broker in here for one in broker.connections()]
            row = next((one for one in rows if one["client_id"] == connection.client_id), None)
            kept = {key: row[key] for key in ("sessions", "consumers", "producers")} if row is not None else {}
            parts = lifeline.parts
            own = {
                "sessions": len(parts),
                "consumers": sum(len(list(one.feeds)) for one in parts),
                # One that has failed stays with the application until that closes it, and one that is on its way to
                # another broker has nothing here; it may go there for as long as that does not answer.
                "producers": sum(lane.closed is None and not lane.owner.is_following for lane in lifeline.lanes),
            }
            if row is None or kept == own:
                return
        self.facts.odd.append(f"{connection.client_id}: the broker keeps {kept}, the SDK has {own}")

    async def _drain_all(self, drained: list[Handing]) -> None:
        """What is left, wherever it is: of homes that were given away, what stayed where they had been, too."""
        drain = Process("drain", Random(0))
        places = list(self.brokers) if self.faults.given_up_s is not None else []
        await self._alive(drain, self._drain(self.brokers[0], drained))
        for broker in places:
            assert self.cluster is not None
            for kind, name in (*(("queue", name) for name in self._queues), ("topic", NEWS)):
                await self.cluster.give(kind, name, broker.name)
            await asyncio.sleep(5)
            again = Process("drain", Random(0))
            await self._alive(again, self._drain(broker, drained))

    async def _drain(self, broker: Broker, drained: list[Handing]) -> None:
        url = f"sterna://{broker.address}"
        async with sterna.connect(url) as connection:
            session = await connection.session(AcknowledgeMode.INDIVIDUAL)
            for name in self._queues:
                await self._empty(await session.consumer(Queue(name)), name, None, drained)
        for one in self.facts.subscriptions:
            if one.ended_s is None and one.began_s is not None:
                async with sterna.connect(url, client_id=one.client_id) as connection:
                    session = await connection.session(AcknowledgeMode.INDIVIDUAL)
                    consumer = await session.consumer(Topic(NEWS), durable=one.name)
                    await self._empty(consumer, f"news@{one.name}", one, drained)

    async def _empty(
        self, consumer: sterna.Consumer, name: str, subscription: Subscription | None, drained: list[Handing]
    ) -> None:
        try:
            while (message := await consumer.receive(timeout=3.0)) is not None:
                key = str(message.body).partition(" ")[0]
                key = key if subscription is None else subscription.key(key)
                now_s = self.loop.time()
                drained.append(Handing(key, name, "drain", message.message_id, message.redelivered, now_s))
                message.acknowledge()
        except errors.SternaError as error:
            self.verdict.problems.append(f"draining {name}: {error!r}")
        await consumer.close()


def run_seed(seed: int) -> Verdict:
    """A seed, with a folder that goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="world") as folder:
        return run(Scene.of(seed), Path(folder))
