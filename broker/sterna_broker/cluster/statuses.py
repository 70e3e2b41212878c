"""What this broker says in etcd of itself and of the objects that live on it.

Whoever knows says what should stand there (`say`, `forget`); a task writes what differs from what stands, many at a
time, and tries again when etcd is away. Before every write it is asked whether this still is our etcd: one that is not
ours, or an old copy of it, is told nothing. Each write would bring a copy nearer to the revision that is remembered.
"""

import asyncio
import contextlib
from collections.abc import Sequence

import structlog
from sterna_etcd import Claim, Delete, Etcd, EtcdError, KeyLayoutError, Layout, Put, StoreIdentity
from sterna_etcd.records import BrokerStatus, ObjectStatus, RecordError

from sterna_broker.cluster.deletions import Deletion
from sterna_broker.cluster.examined import Refusal
from sterna_broker.surroundings import wall_ms

_log = structlog.get_logger(part="status")

# etcd takes at most 128 operations in a transaction.
_BATCH = 100
_RETRY_S = 0.5
# Changes that come together are written together.
_GATHER_S = 0.02


class Statuses:
    """See the module."""

    def __init__(self, etcd: Etcd, identity: StoreIdentity, layout: Layout, name: str) -> None:
        self._etcd = etcd
        self._identity = identity
        self._layout = layout
        self._name = name
        self._claims: dict[str, Claim] = {}
        # What was said last, so that saying the same of ten thousand objects again costs nothing.
        self._last: dict[Claim, ObjectStatus] = {}
        self._wanted: dict[str, bytes | None] = {}
        self._stands: dict[str, bytes] = {}
        self._awake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to write."""
        self._task = asyncio.create_task(self._run(), name="cluster-status")

    async def stop(self) -> None:
        """Writes no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def say(self, claim: Claim, status: ObjectStatus) -> None:
        """What stands for an object."""
        if self._last.get(claim) == status:
            return
        key = self._layout.object_status(claim, self._name)
        self._last[claim], self._claims[key] = status, claim
        self._want(key, status.encode())

    def forget(self, claim: Claim) -> None:
        """An object is not ours any more."""
        self._last.pop(claim, None)
        self._want(self._layout.object_status(claim, self._name), None)

    def say_of_broker(self, status: BrokerStatus) -> None:
        """What stands for the broker itself."""
        self._want(self._layout.broker_status(self._name), status.encode())

    @property
    def said(self) -> set[Claim]:
        """The objects that something stands for, or is about to."""
        keys = {key for key, value in self._wanted.items() if value is not None}
        keys |= self._stands.keys() - {key for key, value in self._wanted.items() if value is None}
        return {self._claims[key] for key in keys if key in self._claims}

    async def learn(self) -> dict[Claim, ObjectStatus]:
        """Reads what a former start of this broker left, and says it.

        Raises:
            EtcdError: etcd could not be asked.
        """
        listed = await self._etcd.list_all(self._layout.object_statuses)
        self._last.clear()
        found: dict[Claim, ObjectStatus] = {}
        for pair in listed.values:
            try:
                key = self._layout.object_status_of(pair.key)
            except KeyLayoutError:
                continue
            if key.broker == self._name:
                self._stands[pair.key] = pair.value
                self._claims[pair.key] = key.claim
                with contextlib.suppress(RecordError):
                    found[key.claim] = ObjectStatus.decode(pair.key, pair.value)
        self._awake.set()
        return found

    def _want(self, key: str, value: bytes | None) -> None:
        if self._stands.get(key) == value and key not in self._wanted:
            return
        self._wanted[key] = value
        self._awake.set()

    async def _run(self) -> None:
        while True:
            await self._awake.wait()
            await asyncio.sleep(_GATHER_S)
            self._awake.clear()
            while self._wanted:
                batch = list(self._wanted.items())[:_BATCH]
                if not await self._write(batch):
                    await asyncio.sleep(_RETRY_S)

    async def _write(self, batch: Sequence[tuple[str, bytes | None]]) -> bool:
        operations = [Put(key, value) if value is not None else Delete(key) for key, value in batch]
        if self._identity.known is None:
            return False
        try:
            await self._identity.verify(self._etcd, wall_ms())
            done = await self._etcd.transact(self._identity.conditions(), operations)
        except EtcdError as error:
            _log.debug("status_not_written", error=str(error))
            return False
        if not done.succeeded:
            return False
        for key, value in batch:
            if self._wanted.get(key) == value:
                self._wanted.pop(key, None)
            if value is None:
                self._stands.pop(key, None)
                if key not in self._wanted:
                    self._claims.pop(key, None)
            else:
                self._stands[key] = value
        return True


def refused(uid: str, generation: int, refusal: Refusal, *, messages: int = 0, home: str = "") -> ObjectStatus:
    """What is said of an object that is not applied, or not all of it: then it has a home, and may hold messages."""
    return ObjectStatus(
        uid=uid,
        generation=generation,
        state="refused",
        reason=refusal.reason,
        message=refusal.message[:2_000],
        messages=messages,
        home=home,
    )


def deleted(uid: str, generation: int, deletion: Deletion, home: str) -> ObjectStatus:
    """What is said of an object that is being deleted."""
    return ObjectStatus(
        uid=uid,
        generation=generation,
        state="deleted" if deletion.state == "deleted" else "blocked",
        reason=deletion.reason,
        message=deletion.message[:2_000],
        messages=deletion.messages,
        home=home,
    )
