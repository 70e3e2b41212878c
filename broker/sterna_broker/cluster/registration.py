"""Says that this broker lives, and where: a key under a lease that is kept alive as long as the process is.

When the lease is lost (etcd was away for longer than it lives) another one is taken; meanwhile clients that are told
to come here come by the address that was known last.
"""

import asyncio

import structlog
from sterna_etcd import Etcd, EtcdError, Layout, Lease, Put, StoreIdentity, UnknownOutcomeError
from sterna_etcd.records import BrokerRecord

_log = structlog.get_logger(part="registration")

LEASE_S = 10
_RETRY_S = 0.5


class Registration:
    """See the module."""

    def __init__(self, etcd: Etcd, identity: StoreIdentity, layout: Layout, name: str) -> None:
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
            done = await self._etcd.transact([self._identity.condition()], [put])
        except UnknownOutcomeError:
            # Writing the same again does no harm.
            self._changed.set()
            raise
        if not done.succeeded:
            # Not our etcd any more, or for the moment: nothing is written.
            self._changed.set()
            await asyncio.sleep(_RETRY_S)
            return
        lost, changed = asyncio.create_task(lease.lost.wait()), asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait((lost, changed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (lost, changed):
                task.cancel()
            await asyncio.gather(lost, changed, return_exceptions=True)
