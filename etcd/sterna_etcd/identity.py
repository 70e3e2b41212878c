"""Whether this is still the etcd that we know.

An etcd can be emptied, restored from an old copy, or be another one altogether (a wrong address, a new volume). To
whoever compares what is there with what was there, each of these looks like "delete everything". So every member of a
cluster remembers the store's identity, made once under a key of its own, and the highest revision that it has seen;
before it believes a newly opened connection, and before it writes after one, it compares both.

What this cannot see: a copy that is restored, and written to until its revision has passed the one that is remembered,
while nobody looks. Changes that were made between copy and restoration are then undone.
"""

import secrets
from dataclasses import dataclass
from typing import Protocol

from sterna_etcd.errors import NotDoneError
from sterna_etcd.layout import Layout
from sterna_etcd.records import IdentityRecord, RecordError
from sterna_etcd.values import Condition, Got, KeyValue, Operation, Put, Transacted, absent, equals


class StoreReplacedError(NotDoneError):
    """This etcd is not the one that is remembered. `kind`: "emptied", "restored", "foreign" or "damaged"."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Remembered:
    """What a member knows of its etcd, and keeps across restarts."""

    id: str
    revision: int


class Reader(Protocol):
    """The part of the client that is needed."""

    async def get(self, key: str) -> Got:
        """One key."""

    async def transact(
        self, conditions: list[Condition], then: list[Operation], otherwise: list[Operation]
    ) -> Transacted:
        """All or nothing."""


class StoreIdentity:
    """The memory of one member. `known` None: it has never seen its etcd."""

    def __init__(self, layout: Layout, known: Remembered | None = None) -> None:
        self.known = known
        self._layout = layout
        self._raw = b""

    async def verify(self, client: Reader, now_ms: int) -> None:
        """Compares; whoever comes first to a new cluster makes its identity.

        Raises:
            StoreReplacedError: it is not the etcd that is remembered.
            NotDoneError, UnknownOutcomeError: etcd could not be asked.
        """
        got = await client.get(self._layout.identity)
        if self.known is None:
            found, revision = got.found, got.revision
            if found is None:
                found, revision = await self._create(client, now_ms)
            self.known = Remembered(self._decode(found).id, revision)
            return
        if got.found is None:
            raise StoreReplacedError("emptied", f"etcd has no {self._layout.identity} any more: it was emptied")
        present = self._decode(got.found)
        if present.id != self.known.id:
            message = f"etcd is store {present.id}, and this cluster's is {self.known.id}: a foreign or new etcd"
            raise StoreReplacedError("foreign", message)
        if got.revision < self.known.revision:
            message = (
                f"etcd is at revision {got.revision} and was at {self.known.revision}: it was restored from an old copy"
            )
            raise StoreReplacedError("restored", message)
        self.note(got.revision)

    def note(self, revision: int) -> None:
        """Remembers that the store has come so far."""
        if self.known is not None and revision > self.known.revision:
            self.known = Remembered(self.known.id, revision)

    def condition(self) -> Condition:
        """For a transaction: that the store is the one we know. Not before `verify`."""
        assert self.known is not None  # the callers verify first
        return equals(self._layout.identity, self._raw)

    async def _create(self, client: Reader, now_ms: int) -> tuple[KeyValue, int]:
        record = IdentityRecord(id=secrets.token_hex(16), created_ms=now_ms)
        key = self._layout.identity
        await client.transact([absent(key)], [Put(key, record.encode())], [])
        # Read back, whoever was first and whatever became of our answer.
        got = await client.get(key)
        if got.found is None:
            raise StoreReplacedError("emptied", f"etcd lost {key} as soon as it was written")
        return got.found, got.revision

    def _decode(self, found: KeyValue) -> IdentityRecord:
        try:
            record = IdentityRecord.decode(found.key, found.value)
        except RecordError as error:
            raise StoreReplacedError("damaged", str(error)) from error
        self._raw = found.value
        return record
