"""A double of a broker in a pod: one of several, registered under a lease, that is the home of some and can be emptied.

As far as the operator sees it: it says its version, is gone when its lease is, takes what has no home yet or names it,
and gives a home away once it is to be emptied and nothing is left in it. What it holds is on its volume, which outlives
the pod.
"""

import asyncio

from sterna_etcd import Batch, Claim, HomeKey, Lease, Put
from sterna_etcd.records import BrokerRecord, BrokerStatus, Draining, DrainRecord, HomeRecord

from tests.operator.broker_double import BrokerDouble

# A busy machine must not end it.
_LEASE_S = 60


class PodDouble(BrokerDouble):
    """One of them. `volume`: how many messages each queue on it has."""

    def __init__(self, urls: str, cluster: str, name: str, *, uid: str, version: str, volume: dict[str, int]) -> None:
        super().__init__(urls, cluster, name)
        self.messages = volume
        self.uid = uid
        self._version = version
        self._addresses = [f"sterna://{name}:7222"]
        self._lease: Lease | None = None
        self._putting = asyncio.Lock()
        self._homes: dict[HomeKey, str] = {}
        self._drains: dict[str, DrainRecord] = {}
        self._live: set[str] = set()
        self._said: BrokerStatus | None = None

    async def __aexit__(self, *_: object) -> None:
        assert self._lease is not None
        await self._lease.revoke()
        await super().__aexit__()

    async def report(self) -> None:
        """See BrokerDouble."""
        await super().report()
        async with self._lock:
            await self._empty()
            await self._say(self._said.applied_revision if self._said else 0)

    async def advertise(self, addresses: list[str]) -> None:
        """Says that clients reach it there, once it is registered; what it said before is said no more."""
        if addresses != self._addresses:
            self._addresses = addresses
            if self._lease is not None:
                await self._put_record(self._lease)

    async def _register(self) -> None:
        self._lease = await self._client.lease(_LEASE_S)
        await self._put_record(self._lease)

    async def _put_record(self, lease: Lease) -> None:
        # One after the other: of two that are under way at once either may be what stays.
        async with self._putting:
            record = BrokerRecord(addresses=self._addresses, version=self._version, incarnation=self.uid, started_ms=1)
            await self._client.put(self.layout.broker(self.name), record.encode(), lease=lease.id)

    async def _take(self, key: str, value: bytes | None) -> None:
        layout = self.layout
        if key.startswith(layout.homes):
            home = layout.home_of(key)
            self._homes.pop(home, None)
            if value is not None:
                self._homes[home] = HomeRecord.decode(key, value).broker
            claim = Claim(home.kind.capitalize(), home.name)
            if claim in self._records:
                await self._report(claim)
        elif key.startswith(layout.drains):
            if value is None:
                self._drains.pop(layout.drain_of(key), None)
            else:
                self._drains[layout.drain_of(key)] = DrainRecord.decode(key, value)
        elif key.startswith(layout.brokers):
            (self._live.discard if value is None else self._live.add)(layout.broker_of(key))
        await super()._take(key, value)

    async def _report(self, claim: Claim) -> None:
        """Only the home speaks of what has one; what has none goes where its manifest says, or anywhere."""
        if claim.kind in ("Queue", "Topic"):
            home = self._homes.get(HomeKey(claim.kind.lower(), claim.name))
            wanted = self._records[claim].manifest["spec"].get("broker")
            if (home or wanted or self.name) != self.name or (home is None and self.name in self._drains):
                return
        await super()._report(claim)

    async def _after(self, batch: Batch) -> None:
        await self._empty()
        await self._say(batch.revision)

    def _mine(self) -> list[HomeKey]:
        return [home for home, broker in self._homes.items() if broker == self.name]

    async def _empty(self) -> None:
        """What has no messages gets another home, if this broker is to go and another one stays."""
        others = sorted(self._live - self._drains.keys() - {self.name})
        drain = self._drains.get(self.name)
        if drain is None or drain.closes_only or not others:
            return
        for home in self._mine():
            if not self.messages.get(home.name):
                value = HomeRecord(broker=others[0], static=True).encode()
                await self._client.transact([], [Put(self.layout.home(home.kind, home.name), value)])
                self._homes[home] = others[0]

    async def _say(self, revision: int) -> None:
        """Its status, when it is another than before, the revision left aside."""
        held = sum(self.messages.values())
        drain, draining = self._drains.get(self.name), None
        if drain is not None:
            draining = Draining(destinations=len(self._mine()), messages=held, is_closed=drain.closes_only)
        status = BrokerStatus(
            applied_revision=revision, state="serving", draining=draining, messages=held, incarnation=self.uid
        )
        if self._said is None or self._said.model_copy(update={"applied_revision": revision}) != status:
            self._said = status
            await self._client.put(self.layout.broker_status(self.name), status.encode())
