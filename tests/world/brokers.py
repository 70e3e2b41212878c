"""Brokers of the world: a machine with a data folder, on which processes start, are told to stop, and are killed."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from sterna_broker.addresses import Address
from sterna_broker.monitor.application import Monitor
from sterna_broker.node import Makers, Node
from sterna_broker.options import BrokerOptions
from sterna_core._core import SimulatedDisk

from tests.world import folders
from tests.world.engines import SteppedEngine
from tests.world.loop import SimulatedLoop
from tests.world.network import Network
from tests.world.processes import Process
from tests.world.servers import Server


class _Listener:
    """What stands for the broker's listener."""

    def __init__(self, network: Network, services: Any) -> None:
        self._server = Server(network)
        self._server.add_generic_rpc_handlers(services.handlers())

    async def start(self, address: Address) -> Address:
        self._server.start(str(address))
        return address

    async def set_serving(self, *, serving: bool) -> None:
        """Nobody asks for the health of a broker here."""

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)


class _SilentMonitor(Monitor):
    """The monitor without its port; its answers are asked for directly."""

    async def start(self, address: Address) -> Address:
        return address

    async def stop(self) -> None:
        return None


class Broker:
    """See the module. `node` is the process's at this moment, `process` the last one."""

    def __init__(
        self, loop: SimulatedLoop, network: Network, random: Random, name: str, folder: Path, **options: Any
    ) -> None:
        self.name = name
        # Small segments, so that a short run fills and compacts several.
        self.segment_bytes = options.pop("segment_bytes", 2 * 1024 * 1024)
        self.options = {"drain_ms": 2_000, **options}
        self.folder = folder
        self.files = folders.Folder(folder)
        self.starts = 0
        self.node: Node | None = None
        self.process: Process | None = None
        self.failures: list[str] = []
        self._loop = loop
        self._network = network
        self._random = random
        self._port = network.free_port()
        self._disk = SimulatedDisk(random.getrandbits(63))
        self._engine: SteppedEngine | None = None
        self._monitor: _SilentMonitor | None = None
        self._watching: asyncio.Task[Any] | None = None

    @property
    def address(self) -> str:
        """Where it is to be had."""
        return f"127.0.0.1:{self._port}"

    @property
    def is_running(self) -> bool:
        """Whether its process lives and serves."""
        return self.node is not None and self.node.state == "serving" and not self._is_dead

    @property
    def _is_dead(self) -> bool:
        return self.process is None or self.process.is_dead

    @property
    def listens(self) -> bool:
        """Whether anybody listens at its address."""
        return self._network.server_at(self.address) is not None

    def moves_house(self) -> None:
        """Its next process listens at another address. Not while it runs."""
        assert self._is_dead
        self._port = self._network.free_port()

    def replace_disk(self) -> None:
        """A new machine: nothing that the last one had is here. Not while it runs."""
        assert self._is_dead
        self._disk = SimulatedDisk(self._random.getrandbits(63))
        shutil.rmtree(self.folder, ignore_errors=True)

    def copy_disk_of(self, other: Broker) -> None:
        """Has what the other's disk has now; before the first start."""
        self._disk = other._disk.fork(self._random.getrandbits(63))

    async def start(self) -> None:
        """A new process; returns when it serves.

        Raises:
            Exception: what the start raised.
        """
        await self._in(self._new_process(), self._start())

    def _new_process(self) -> Process:
        assert self._is_dead, "one process at a time"
        self.starts += 1
        process = Process(f"{self.name}.{self.starts}", Random(self._random.getrandbits(64)))
        if self.process is not None:
            process.clock_ms = self.process.clock_ms
        self.process = process
        return process

    def begin(self) -> asyncio.Task[None]:
        """A new process, and the start of it, which can be cancelled: as when it is told to stop."""
        process = self._new_process()
        return self._loop.spawn(process, self._start(), "start")

    def at_work(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Something that its process does, which can be cancelled."""
        assert self.process is not None
        return self._loop.spawn(self.process, work)

    async def _start(self) -> None:
        makers = Makers(engine=self._open, listener=self._listener, monitor=self._silent)
        options = BrokerOptions(
            data=self.folder, listen=self.address, monitor="127.0.0.1:7280", name=self.name, **self.options
        )
        node = self.node = Node(options, makers)
        await node.start()
        self._watching = asyncio.create_task(self._watch(node), name="watching")

    async def _watch(self, node: Node) -> None:
        await node.failed.wait()
        self.failures.append(node.failure)
        # As the process does.
        node.hurry()
        await node.stop()
        if self.node is node:
            self.kill()

    def _open(self, _folder: str, settings: str, wall_ms: int, monotonic_ms: int) -> Any:
        secret = f"{self.name} {self.starts}".encode()
        small = json.dumps({**json.loads(settings), "segment_bytes": self.segment_bytes})
        self._engine = SteppedEngine(self._loop, self._random, self._disk, secret, small, wall_ms, monotonic_ms)
        return self._engine

    def _silent(self, *arguments: Any) -> _SilentMonitor:
        self._monitor = _SilentMonitor(*arguments)
        return self._monitor

    def metrics(self) -> dict[str, float]:
        """What /metrics of the process says, of what has no labels."""
        assert self._monitor is not None
        families = text_string_to_metric_families(self._monitor._metrics.text().decode())
        return {one.name: one.value for family in families for one in family.samples if not one.labels}

    def readyz(self) -> dict[str, Any]:
        """What /readyz of the process says."""
        assert self.node is not None
        return self.node.readiness().document(self.node.state)

    def _listener(self, services: Any, _frame_bytes: int, **_: Any) -> Any:
        return _Listener(self._network, services)

    async def _in(self, process: Process, work: Any) -> Any:
        """Has a process do something, and waits for it; None if the process dies meanwhile."""
        result: asyncio.Future[Any] = self._loop.create_future()
        task = self._loop.spawn(process, work)

        def told(done: asyncio.Task[Any]) -> None:
            if result.done():
                return
            if done.cancelled():
                result.cancel()
            elif (error := done.exception()) is not None:
                result.set_exception(error)
            else:
                result.set_result(done.result())

        task.add_done_callback(told)
        process.on_death.append(lambda: None if result.done() else result.set_result(None))
        return await result

    async def stop(self) -> None:
        """SIGTERM: drains, ends, and the process is gone."""
        process, node = self.process, self.node
        if process is None or node is None or process.is_dead:
            return
        await self._in(process, node.stop())
        self.kill()

    def end(self) -> None:
        """The machine is gone, with what its disk held: whatever is left of its processes keeps no memory of that."""
        self.kill()
        self.files.forget()
        self._disk = SimulatedDisk(0)

    def kill(self, *, power: bool = False) -> None:
        """SIGKILL; with `power` the machine's, which forgets what was not synced."""
        if self.process is not None and not self.process.is_dead:
            self._loop.kill(self.process)
        if power and self.folder.exists():
            self.files.lose_power(self._random)
        if self._engine is not None:
            self._engine.kill()
            self._engine = None
            self._disk.crash(power)
        self.node = None

    def left(self) -> list[str]:
        """The tasks that its process has still, but for what waits for its end from outside."""
        assert self.process is not None
        return [task.get_name() for task in self.process.tasks if not task.done() and task.get_name() != "watching"]

    def connections(self) -> list[dict[str, Any]]:
        """Its connections, as an administrator sees them."""
        assert self._engine is not None
        rows: list[dict[str, Any]] = json.loads(self._engine.connections())
        return rows

    def has(self, client_id: str) -> bool:
        """Whether it has a connection of this client id."""
        # A process lives on for a while after its engine has stopped, and then has nobody any more.
        is_there = self._engine is not None and not self._engine.is_stopped and not self._is_dead
        return is_there and any(row["client_id"] == client_id for row in self.connections())

    def statistics(self) -> dict[str, Any]:
        """Its totals, as an administrator sees them."""
        assert self._engine is not None
        totals: dict[str, Any] = json.loads(self._engine.statistics())
        return totals

    def listed(self, kind: str) -> list[dict[str, Any]]:
        """What it has of a kind."""
        assert self._engine is not None
        rows: list[dict[str, Any]] = json.loads(self._engine.list(kind))
        return rows
