"""Whether this is still the etcd that we know.

An etcd can be emptied, restored from an old copy, or be another one altogether (a wrong address, a new volume). To
whoever compares what is there with what was there, each of these looks like "delete everything". So every member of a
cluster remembers the store's identity, made once under a key of its own, and the highest revision that it has seen;
before it believes a newly opened connection, and before it writes after one, it compares both.

A copy that was restored may be written to until its revision has passed the one that is remembered, while nobody looks.
So a member leaves a token under a key of its own, a new one every few seconds (`renew`), and remembers it. An etcd that
does not know the last one that is remembered is an older copy, whatever its revision. The key has the last few tokens,
since a member that dies may have remembered fewer than it has left.

What this cannot see: a copy that was made since the last token was left, a few seconds before the loss.

Beside that, a place in etcd has an owner: the operator claims it for one MessagingCluster, by its uid. A member that
was told whose it is (`owner`) looks at the claim whenever it looks at the identity, and compares it in every
transaction: so nobody's brokers write into another cluster's place, whatever endpoints and name they were given.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from sterna_etcd.errors import NotDoneError
from sterna_etcd.layout import Layout
from sterna_etcd.records import ClaimRecord, IdentityRecord, RecordError, WitnessRecord
from sterna_etcd.surroundings import random_hex
from sterna_etcd.values import Condition, Got, KeyValue, Operation, Put, Transacted, absent, equals, mod_revision

RENEW_S = 5.0
"""How often a member leaves a token."""

TOKENS_MAX = 64
SAVE_EVERY = 12
"""After so many tokens what is remembered has to be on disk: well before the oldest that the key has."""


class StoreReplacedError(NotDoneError):
    """This etcd is not the one that is remembered. `kind`: "emptied", "restored", "foreign", "damaged" or "claimed"."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class UnclaimedError(NotDoneError):
    """Nobody has claimed the place in etcd yet, or it is not known for whom: nothing is read or written until then."""


@dataclass(frozen=True)
class Remembered:
    """What a member knows of its etcd, and keeps across restarts."""

    id: str
    revision: int
    witness: str = ""
    """The token that it left last; empty: none yet."""


class Reader(Protocol):
    """The part of the client that is needed."""

    async def get(self, key: str) -> Got:
        """One key."""

    async def transact(
        self, conditions: list[Condition], then: list[Operation], otherwise: list[Operation]
    ) -> Transacted:
        """All or nothing."""


class StoreIdentity:
    """The memory of one member. `known` None: it has never seen its etcd.

    `member`: the kind and name under which it leaves tokens; None: it leaves none. `owner`: the uid of the
    MessagingCluster whose place this has to be; None: nobody asks.
    """

    def __init__(
        self,
        layout: Layout,
        known: Remembered | None = None,
        member: tuple[str, str] | None = None,
        owner: str | None = None,
    ) -> None:
        self.known = known
        self.owner = owner
        self.only_looks = False
        """Whether a place that is new is left without an identity: nothing is known of it then, and nothing written."""

        self._witness = layout.witness(*member) if member is not None else ""
        self._tokens: list[str] = []
        self._tokens_revision = 0
        self._layout = layout
        self._raw = b""
        self._claim = b""

    async def verify(self, client: Reader, now_ms: int) -> None:
        """Compares; whoever comes first to a new cluster makes its identity.

        Raises:
            StoreReplacedError: it is not the etcd that is remembered, or another cluster's place in it.
            UnclaimedError: nobody's place yet.
            NotDoneError, UnknownOutcomeError: etcd could not be asked.
        """
        # What is compared is what was remembered before etcd was asked: while its answer is on its way, somebody else
        # here may hear of a later revision, of a new token, or make the store's identity.
        before = self.known
        got = await client.get(self._layout.identity)
        found, revision = got.found, got.revision
        claim = b""
        if before is None and found is None and self.only_looks:
            return
        if before is None and found is None:
            claim = await self._whose(client)
            found, revision = await self._create(client, now_ms, claim)
        if found is None:
            raise StoreReplacedError("emptied", f"etcd has no {self._layout.identity} any more: it was emptied")
        present = _decoded(found)
        if self.known is None:
            self.known = Remembered(present.id, revision)
        if present.id != self.known.id:
            message = f"etcd is store {present.id}, and this cluster's is {self.known.id}: a foreign or new etcd"
            raise StoreReplacedError("foreign", message)
        if before is not None and revision < before.revision:
            message = f"etcd is at revision {revision} and was at {before.revision}: it was restored from an old copy"
            raise StoreReplacedError("restored", message)
        claim = claim or await self._whose(client)
        # Only now: transactions are made on condition of both.
        self._raw, self._claim = found.value, claim
        await self._look_for(client, before.witness if before is not None else "")
        self.note(revision)

    async def renew(self, client: Reader, now_ms: int) -> None:
        """Leaves a new token. Errors as `verify`; what is not done now is done the next time."""
        await self.verify(client, now_ms)
        if not self._witness or self.known is None:
            return
        token = random_hex(6)
        record = WitnessRecord(tokens=[*self._tokens, token][-TOKENS_MAX:])
        conditions = [*self.conditions(), mod_revision(self._witness, self._tokens_revision)]
        done = await client.transact(conditions, [Put(self._witness, record.encode())], [])
        if done.succeeded:
            self.known = replace(self.known, witness=token)
            self.note(done.revision)

    async def _look_for(self, client: Reader, token: str) -> None:
        if not self._witness:
            return
        found = (await client.get(self._witness)).found
        tokens: list[str] = []
        if found is not None:
            try:
                tokens = WitnessRecord.decode(found.key, found.value).tokens
            except RecordError as error:
                raise StoreReplacedError("damaged", str(error)) from error
        if token and token not in tokens:
            message = (
                "etcd does not know what this member left there last: it was restored from an old copy, "
                "and written to since; or what this member remembers is an old copy itself"
            )
            raise StoreReplacedError("restored", message)
        self._tokens, self._tokens_revision = tokens, found.mod_revision if found else 0
        if tokens and self.known is not None and not self.known.witness:
            self.known = replace(self.known, witness=tokens[-1])

    def note(self, revision: int) -> None:
        """Remembers that the store has come so far."""
        if self.known is not None and revision > self.known.revision:
            self.known = replace(self.known, revision=revision)

    def conditions(self) -> list[Condition]:
        """For a transaction: that the store is the one we know, and the place there ours. Not before `verify`."""
        assert self.known is not None  # the callers verify first
        return [equals(self._layout.identity, self._raw), *self._ours(self._claim)]

    def _ours(self, claim: bytes) -> list[Condition]:
        return [] if self.owner is None else [equals(self._layout.operator_claim, claim)]

    async def _whose(self, client: Reader) -> bytes:
        """The claim as it stands, which is ours; empty when nobody asks."""
        if self.owner is None:
            return b""
        key = self._layout.operator_claim
        found = (await client.get(key)).found
        if found is None or not self.owner:
            lacks = "nobody has claimed it" if found is None else "whose this member is has not been told"
            raise UnclaimedError(f"etcd: {self._layout.prefix} is not used yet: {lacks}")
        try:
            claim = ClaimRecord.decode(key, found.value)
        except RecordError as error:
            raise StoreReplacedError("damaged", str(error)) from error
        if claim.uid != self.owner:
            message = f"{self._layout.prefix} belongs to {claim.label}, and this member to uid {self.owner}"
            raise StoreReplacedError("claimed", message)
        return found.value

    async def _create(self, client: Reader, now_ms: int, claim: bytes) -> tuple[KeyValue, int]:
        record = IdentityRecord(id=random_hex(16), created_ms=now_ms)
        key = self._layout.identity
        await client.transact([absent(key), *self._ours(claim)], [Put(key, record.encode())], [])
        # Read back, whoever was first and whatever became of our answer.
        got = await client.get(key)
        if got.found is None:
            raise StoreReplacedError("emptied", f"etcd lost {key} as soon as it was written")
        return got.found, got.revision


def _decoded(found: KeyValue) -> IdentityRecord:
    try:
        return IdentityRecord.decode(found.key, found.value)
    except RecordError as error:
        raise StoreReplacedError("damaged", str(error)) from error
