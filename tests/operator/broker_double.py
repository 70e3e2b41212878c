"""A double of a broker's side of etcd: registers, takes configuration, reports. It serves nobody.

Tests of the operator alone need brokers that say what the test wants them to say, at the moment it wants: that they
refuse, that a queue still has messages, that they are late. Everything it reads and writes goes through the same keys
and records as a broker's; that real brokers behave like this is shown where both run.
"""

import asyncio
from contextlib import aclosing
from typing import Any, Self

from sterna_etcd import Batch, Claim, Delete, Etcd, EtcdSettings, Layout, Put, absent
from sterna_etcd.records import BrokerRecord, BrokerStatus, ConfigRecord, HomeRecord, ObjectStatus
from sterna_resources.names import is_pattern


def patient(urls: str) -> EtcdSettings:
    """Settings for whoever only plays a part: a busy machine must not be what a test fails of."""
    return EtcdSettings.of_urls(urls, connect_timeout_ms=20_000, attempt_timeout_ms=30_000, timeout_ms=60_000)


class BrokerDouble:
    """One of them. `messages`: how many a queue holds; `refuses`: what is refused, and why; `is_late`: says nothing.

    `needed`: which stores something is kept in, and by what.
    """

    def __init__(self, urls: str, cluster: str, name: str = "b-0") -> None:
        self.name = name
        self.layout = Layout(cluster)
        self.messages: dict[str, int] = {}
        self.refuses: dict[str, str] = {}
        self.needed: dict[str, str] = {}
        self.is_late = False
        self.applied: dict[Claim, ConfigRecord] = {}
        self.credentials: dict[str, int] = {}
        self._client = Etcd(patient(urls))
        self._records: dict[Claim, ConfigRecord] = {}
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._register()
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._client.close()

    async def report(self) -> None:
        """Says all that there is to say, anew: after the test has changed what it should say."""
        async with self._lock:
            for claim in list(self._records):
                await self._report(claim)

    async def _register(self) -> None:
        record = BrokerRecord(addresses=["sterna://nowhere:1"], version="0", incarnation="i", started_ms=1)
        await self._client.put(self.layout.broker(self.name), record.encode())

    async def _follow(self) -> None:
        async with aclosing(self._client.watch(self.layout.prefix).batches()) as batches:
            async for batch in batches:
                async with self._lock:
                    for event in batch.events:
                        await self._take(event.key, event.current.value if event.current else None)
                    await self._after(batch)

    async def _after(self, batch: Batch) -> None:
        """Everything that came at once has been taken."""
        if not self.is_late and any(self._concerns_us(event.key) for event in batch.events):
            status = BrokerStatus(applied_revision=batch.revision, state="serving")
            await self._client.put(self.layout.broker_status(self.name), status.encode())

    def _concerns_us(self, key: str) -> bool:
        return key.startswith((self.layout.configs, self.layout.users, self.layout.drains))

    async def _take(self, key: str, value: bytes | None) -> None:
        if key.startswith(self.layout.users):
            count = value.count(b"$argon2id$") if value else 0
            self.credentials[self.layout.user_of(key)] = count
        if not key.startswith(self.layout.configs):
            return
        claim = self.layout.claim_of(key)
        if value is None:
            self._records.pop(claim, None)
            self.applied.pop(claim, None)
            await self._client.delete(self.layout.object_status(claim, self.name))
            if not self.messages.get(claim.name) and claim.kind in ("Queue", "Topic"):
                await self._client.delete(self.layout.home(claim.kind.lower(), claim.name))
            return
        self._records[claim] = ConfigRecord.decode(key, value)
        await self._report(claim)

    async def _report(self, claim: Claim) -> None:
        if self.is_late:
            return
        record = self._records[claim]
        said: dict[str, Any] = {"uid": record.owner.uid, "generation": record.generation, "home": self.name}
        operations: list[Put | Delete] = []
        is_placed = claim.kind in ("Queue", "Topic") and not is_pattern(claim.name)
        home = self.layout.home(claim.kind.lower(), claim.name)
        if record.deleting is not None:
            held = self.messages.get(claim.name, 0)
            needed = self.needed.get(claim.name, "") if claim.kind == "Store" else ""
            if record.deleting.policy == "onlyIfEmpty" and needed:
                said |= {"state": "blocked", "reason": "InUse", "message": f"the {needed} needs it"}
            elif record.deleting.policy == "onlyIfEmpty" and held:
                said |= {"state": "blocked", "messages": held, "reason": "NotEmpty"}
            else:
                said |= {"state": "deleted", "messages": held}
                self.messages.pop(claim.name, None)
                self.applied.pop(claim, None)
                if is_placed:
                    operations.append(Delete(home))
        elif claim.name in self.refuses:
            said |= {"state": "refused", "reason": "Refused", "message": self.refuses[claim.name]}
        else:
            said["state"] = "applied"
            self.applied[claim] = record
            if is_placed:
                await self._take_home(home)
        status = ObjectStatus(**said)
        key = self.layout.object_status(claim, self.name)
        await self._client.transact([], [Put(key, status.encode()), *operations])

    async def _take_home(self, home: str) -> None:
        await self._client.transact([absent(home)], [Put(home, HomeRecord(broker=self.name, static=True).encode())])
