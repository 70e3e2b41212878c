"""Says that this broker lives, and where: a key under a lease that is kept alive as long as the process is.

When the lease is lost (etcd was away for longer than it lives) another one is taken; meanwhile clients that are told
to come here come by the address that was known last.

The key is written only over our own, or where there is none: what another broker of the same name has written stays.
Whoever follows etcd finds it there (`naming`).
"""

import asyncio
from collections.abc import Callable

import structlog
from sterna_etcd import (
    Etcd,
    EtcdError,
    Get,
    KeyValue,
    Layout,
    Lease,
    Put,
    StoreIdentity,
    UnknownOutcomeError,
    mod_revision,
)
from sterna_etcd.records import BrokerRecord, RecordError

from sterna_broker.surroundings import wall_ms

_log = structlog.get_logger(part="registration")

LEASE_S = 10
_RETRY_S = 0.5


class Registration:
    """See the module. `is_ours`: whether a registration is this broker's, of this start or an earlier one."""

    def __init__(
        self,
        etcd: Etcd,
        identity: StoreIdentity,
        layout: Layout,
        name: str,
        is_ours: Callable[[BrokerRecord], bool],
    ) -> None:
        self._is_ours = is_ours
        self._revision = 0
        self._etcd = etcd
        self._identity = identity
        self._key = layout.broker(name)
        self._record: BrokerRecord | None = None
        self._changed = asyncio.Event()
        self._lease: Lease | None = None
        self._task: asyncio.Task[None] | None = None

    def say(self, record: BrokerRecord) -> None:
        """What the key says from now on; the first one starts it all."""
        if record == self._record:
            return
        self._record = record
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="cluster-registration")

    async def stop(self) -> None:
        """Takes the key away."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._lease is not None:
            await self._lease.revoke()

    async def _run(self) -> None:
        while True:
            try:
                await self._register()
            except EtcdError as error:
                _log.debug("not_registered", error=str(error))
                await asyncio.sleep(_RETRY_S)

    async def _register(self) -> None:
        """Writes the key, and returns when it has to be written again."""
        if self._identity.known is None:
            await asyncio.sleep(_RETRY_S)
            return
        # An old copy of our etcd has its identity, and takes writes; each would bring it nearer to what is remembered.
        await self._identity.verify(self._etcd, wall_ms())
        lease = self._lease
        if lease is None or not lease.is_alive:
            if lease is not None:
                await lease.stop()
            lease = self._lease = await self._etcd.lease(LEASE_S)
        self._changed.clear()
        record = self._record
        assert record is not None  # `say` started this
        put = Put(self._key, record.encode(), lease.id)
        try:
            conditions = [*self._identity.conditions(), mod_revision(self._key, self._revision)]
            done = await self._etcd.transact(conditions, [put], [Get(self._key)])
        except UnknownOutcomeError:
            # Writing the same again does no harm.
            self._changed.set()
            raise
        if not done.succeeded:
            self._changed.set()
            if not self._learn(done.results[0] if done.results else None):
                await asyncio.sleep(_RETRY_S)
            return
        self._revision = done.revision
        lost, changed = asyncio.create_task(lease.lost.wait()), asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait((lost, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (lost, changed):
                task.cancel()
            await asyncio.gather(lost, changed, return_exceptions=True)

    def _learn(self, found: object) -> bool:
        """What stands under our key instead of what we thought; whether it can be written now.

        It cannot while etcd is not ours any more, or for the moment, nor while the key is somebody else's.
        """
        if not isinstance(found, KeyValue):
            is_news, self._revision = self._revision != 0, 0
            return is_news
        try:
            record = BrokerRecord.decode(found.key, found.value)
        except RecordError as error:
            _log.warning("registration_unreadable", error=str(error))
            record = None
        if record is not None and not self._is_ours(record):
            _log.error("name_taken", addresses=record.addresses)
            return False
        is_news, self._revision = self._revision != found.mod_revision, found.mod_revision
        return is_news
