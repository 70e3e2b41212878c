"""etcd as a server of its services, behind the world's network: one store, and members that answer for it.

A member is a process: it can be killed and started, and cut off from others by the network. The store is what they
have on their disks. It can be emptied and restored while none of them runs. Reads and writes take effect at one moment
between question and answer, so that an answer can be lost behind it (`lose_answers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any, Final

import grpc
from sterna_etcd import wire
from sterna_etcd.proto import etcd_pb2 as pb

from tests.world.etcd_store import Refused, Store, check_size
from tests.world.loop import SimulatedLoop
from tests.world.network import Network
from tests.world.processes import Process
from tests.world.servers import Context, Server

_EXPIRY_LOOK_S: Final = 0.5
_PROGRESS_S: Final = 600.0
"""How often etcd tells of progress by itself."""

_NO_LEADER: Final = "etcdserver: no leader"


class Etcd:
    """See the module. `url` is what clients are given."""

    def __init__(self, loop: SimulatedLoop, network: Network, random: Random, members: int = 1) -> None:
        self.store = Store(random.getrandbits(60) | 1)
        self.lose_answers = 0
        """So many of the next writes take effect without an answer: the connection breaks in its place."""

        self.has_leader = True
        self.on_written: list[Callable[[], None]] = []
        self.members = [Member(self, loop, network, random, number) for number in range(members)]
        self._changed = asyncio.Event()

    @property
    def urls(self) -> str:
        """All endpoints, commas between."""
        return ",".join(f"http://{member.address}" for member in self.members)

    @property
    def has_quorum(self) -> bool:
        """Whether enough members live for anything to be decided."""
        return self.has_leader and 2 * sum(member.is_running for member in self.members) > len(self.members)

    def start(self) -> None:
        """All that do not run."""
        for member in self.members:
            if not member.is_running:
                member.start()

    def kill(self) -> None:
        """All of them, at once."""
        for member in self.members:
            member.kill()

    def wipe(self) -> None:
        """Empties it; not while it runs."""
        self.store.became(Store(self.store.cluster_id + 1))

    def written(self) -> None:
        """Something has changed: watches look."""
        for told in self.on_written:
            told()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def change(self, timeout_s: float) -> None:
        """Returns when something has changed, or after so long."""
        waiting = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((waiting,), timeout=timeout_s)
        finally:
            waiting.cancel()

    def loses_this_answer(self) -> bool:
        """Whether it is the turn of one that is to be lost."""
        is_lost = self.lose_answers > 0
        self.lose_answers -= is_lost
        return is_lost


class Member:
    """One process that answers."""

    def __init__(self, etcd: Etcd, loop: SimulatedLoop, network: Network, random: Random, number: int) -> None:
        self.address = f"10.0.9.{number + 1}:2379"
        self.process: Process | None = None
        self._name = f"etcd{number}"
        self._etcd = etcd
        self._loop = loop
        self._network = network
        self._random = random
        self._server: Server | None = None
        self._starts = 0

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and not self.process.is_dead

    def start(self) -> None:
        """A new process."""
        assert not self.is_running, "one process at a time"
        if not any(member.is_running for member in self._etcd.members):
            self._etcd.store.promoted(self._loop.time())
        self._starts += 1
        self.process = Process(f"{self._name}.{self._starts}", Random(self._random.getrandbits(64)))
        self.process.context.copy().run(self._listen)
        self._loop.spawn(self.process, self._expire(), "leases")
        self._etcd.written()

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()

    def _listen(self) -> None:
        server = self._server = Server(self._network)
        server.add_generic_rpc_handlers([_Services(self._etcd, self._loop, self._random)])
        server.start(self.address)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_LOOK_S)
            if self._etcd.has_quorum:
                before = self._etcd.store.revision
                self._etcd.store.expire(self._loop.time())
                if self._etcd.store.revision != before:
                    self._etcd.written()


class _Handler:
    """One method, as a server of the world asks for it."""

    response_serializer = staticmethod(lambda answer: answer.SerializeToString())

    def __init__(self, method: wire.Method, work: Callable[..., Any], *, streams: bool) -> None:
        self.request_deserializer = method.request.FromString
        self.request_streaming = streams
        self.response_streaming = streams
        self.unary_unary = self.stream_stream = work


class _Services:
    """All methods of a member."""

    def __init__(self, etcd: Etcd, loop: SimulatedLoop, random: Random) -> None:
        self._etcd = etcd
        self._store = etcd.store
        self._loop = loop
        self._random = random
        store = etcd.store
        read: list[tuple[wire.Method, Callable[[Any], Any]]] = [(wire.RANGE, store.range)]
        write: list[tuple[wire.Method, Callable[[Any], Any]]] = [
            (wire.PUT, store.put),
            (wire.DELETE_RANGE, store.delete_range),
            (wire.TXN, store.transact),
            (wire.COMPACT, store.compact),
            (wire.LEASE_GRANT, lambda request: store.grant(request, loop.time())),
            (wire.LEASE_REVOKE, store.revoke),
        ]
        self._methods: dict[str, _Handler] = {
            method.path: _Handler(method, self._answering(work, writes=number >= len(read)), streams=False)
            for number, (method, work) in enumerate([*read, *write])
        }
        self._methods[wire.STATUS.path] = _Handler(wire.STATUS, self._status, streams=False)
        self._methods[wire.LEASE_KEEP_ALIVE.path] = _Handler(wire.LEASE_KEEP_ALIVE, self._keep_alive, streams=True)
        self._methods[wire.WATCH.path] = _Handler(wire.WATCH, self._watch, streams=True)

    def service(self, details: Any) -> _Handler | None:
        """As grpc asks."""
        return self._methods.get(details.method)

    def _answering(self, work: Callable[[Any], Any], *, writes: bool) -> Callable[[Any, Context], Awaitable[Any]]:
        async def answer(request: Any, context: Context) -> Any:
            try:
                check_size(request)
                await self._agreed(context)
                revision = self._store.revision
                answered = work(request)
            except Refused as refused:
                await context.abort(refused.code, refused.words)
                raise AssertionError("abort raises") from refused
            if self._store.revision != revision:
                self._etcd.written()
            if writes and self._etcd.loses_this_answer():
                context._call.link.break_()
            await asyncio.sleep(self._random.random() * 0.001)
            return answered

        return answer

    async def _agreed(self, context: Context) -> None:
        """Until the members agree that it is this one's turn.

        Raises:
            Refused: there is nobody to agree with.
        """
        await asyncio.sleep(self._random.random() * 0.002)
        while not self._etcd.has_quorum:
            if ("hasleader", "true") in context.invocation_metadata():
                raise Refused(grpc.StatusCode.UNAVAILABLE, _NO_LEADER)
            await asyncio.sleep(0.1)

    async def _status(self, _request: Any, _context: Context) -> Any:
        return pb.StatusResponse(header=self._store.header(), version="3.6.0", leader=int(self._etcd.has_quorum))

    async def _keep_alive(self, requests: AsyncIterator[Any], context: Context) -> None:
        async for request in requests:
            try:
                await self._agreed(context)
            except Refused as refused:
                await context.abort(refused.code, refused.words)
            answer = self._store.keep_alive(request, self._loop.time())
            await context.write(answer)

    async def _watch(self, requests: AsyncIterator[Any], context: Context) -> None:
        stream = _WatchStream(self._etcd, self._loop, context)
        reading = asyncio.ensure_future(stream.read(requests))
        try:
            await stream.run(reading)
        except Refused as refused:
            await context.abort(refused.code, refused.words)
        finally:
            reading.cancel()


class _Watching:
    """One watch of a stream. `next` is the first revision that was not told yet."""

    def __init__(self, request: Any, revision: int) -> None:
        self.key, self.end = request.key, request.range_end
        self.start = request.start_revision
        self.next = request.start_revision or revision + 1
        self.tells_progress = request.progress_notify


class _WatchStream:
    """One stream of the Watch service, with all its watches."""

    def __init__(self, etcd: Etcd, loop: SimulatedLoop, context: Context) -> None:
        self._etcd = etcd
        self._store = etcd.store
        self._loop = loop
        self._context = context
        self._watches: dict[int, _Watching] = {}
        self._made = 0
        self._progress_asked = False
        self._told_s = loop.time()

    async def read(self, requests: AsyncIterator[Any]) -> None:
        """What the client wants."""
        async for request in requests:
            match request.WhichOneof("request_union"):
                case "create_request":
                    await self._create(request.create_request)
                case "cancel_request":
                    number = request.cancel_request.watch_id
                    if self._watches.pop(number, None) is not None:
                        await self._write(watch_id=number, canceled=True)
                case "progress_request":
                    self._progress_asked = True
            self._etcd.written()

    async def _create(self, request: Any) -> None:
        number, self._made = self._made, self._made + 1
        watch = _Watching(request, self._store.revision)
        await self._write(watch_id=number, created=True)
        self._watches[number] = watch

    async def run(self, reading: asyncio.Future[None]) -> None:
        """Until the client has gone, or nobody leads any more.

        Raises:
            Refused: there is no leader.
        """
        while not reading.done():
            if not self._etcd.has_quorum:
                raise Refused(grpc.StatusCode.UNAVAILABLE, _NO_LEADER)
            for number, watch in list(self._watches.items()):
                await self._tell(number, watch)
            await self._tell_progress()
            await self._etcd.change(0.25)

    async def _tell(self, number: int, watch: _Watching) -> None:
        store = self._store
        if watch.next < store.compacted:
            del self._watches[number]
            await self._write(watch_id=number, canceled=True, compact_revision=store.compacted)
            return
        revision = store.revision
        events = store.events(watch.key, watch.end, watch.next) if watch.next <= revision else []
        watch.next = max(watch.next, revision + 1)
        if events:
            await self._write(watch_id=number, events=events)
            self._told_s = self._loop.time()

    async def _tell_progress(self) -> None:
        # As long as one of them waits for a revision that does not exist yet, etcd tells of no progress.
        if self._progress_asked and all(one.start <= self._store.revision for one in self._watches.values()):
            self._progress_asked = False
            await self._write(watch_id=-1)
        if self._loop.time() - self._told_s > _PROGRESS_S:
            self._told_s = self._loop.time()
            for number, watch in list(self._watches.items()):
                if watch.tells_progress:
                    await self._write(watch_id=number)

    async def _write(self, **fields: Any) -> None:
        answer = pb.WatchResponse(header=self._store.header(), **fields)
        await self._context.write(answer)
