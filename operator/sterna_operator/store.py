"""A cluster's part of etcd, as the operator sees it: a mirror that a watch keeps, and writes that may not be stale.

Decisions are made from the mirror, without asking; so every write says which version of its key it has seen, and is
refused when that is no longer the one. Beside that, each transaction compares

- the store's identity: an etcd that was emptied, exchanged or restored is noticed, and nothing is written to it;
- the operator's epoch: who has become leader counts it up, so whoever was the leader before writes no more, whatever
  it believes about its Lease;
- the claim: the place in etcd is that of one MessagingCluster, by its uid, and what is written is written for that one.
  Its brokers compare the same.

Own writes are put into the mirror as soon as they are answered; what the watch tells later of an older revision is
passed over.
"""

import asyncio
import time  # noqa: TID251 - the operator as a process is not simulated
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

import structlog
from sterna_etcd import (
    Claim,
    Condition,
    Delete,
    Etcd,
    EtcdError,
    EtcdSettings,
    Layout,
    Put,
    Remembered,
    RevisionWentBackError,
    StoreIdentity,
    StoreReplacedError,
    equals,
    mod_revision,
)
from sterna_etcd.records import ClaimRecord, RecordError

from sterna_operator.mirror import HOMED, Change, Mirror

log = structlog.get_logger(__name__)


# So many keys of a list are taken before others have a turn.
_PAUSE_EVERY = 500
# So many keys that are known are compared with etcd at once: all would be as much in memory as at a start.
_COMPARED_AT_ONCE = 5_000


class StoreError(Exception):
    """A write to a cluster's etcd that was not done, or perhaps not."""


class FencedError(StoreError):
    """Another operator has become the leader since: this one writes no more."""


class StaleError(StoreError):
    """The key is not what it was thought to be: look again, once the mirror has caught up."""


class UnusableError(StoreError):
    """etcd cannot be had, or must not be believed. `reason` is a condition's."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


# Told what has changed among a cluster's keys.
# The last says whether the operator wrote it itself.
OnChange = Callable[["ClusterStore", Sequence[Change], bool], None]
OnState = Callable[["ClusterStore"], None]
# Raises when we are the leader no more. Asked between reading the epoch and counting it up.
ConfirmLead = Callable[[], Awaitable[None]]
# Whether the cluster that a place in etcd is claimed for is known to exist: then nobody takes it over.
Stands = Callable[[ClaimRecord], bool]


class ClusterStore:
    """One cluster in one etcd. `start` it, and `close` it."""

    def __init__(
        self,
        cluster: str,
        settings: EtcdSettings,
        *,
        remembered: Remembered | None = None,
        claimant: ClaimRecord | None = None,
        stands: Stands = lambda _: False,
        on_change: OnChange | None = None,
        on_state: OnState | None = None,
    ) -> None:
        self.layout = Layout(cluster)
        self.settings = settings
        self.claimant = claimant
        """Whom this place in etcd is claimed for; None: nobody asks."""

        self.takes_over = False
        """Whether it is claimed although another cluster has it, unless that is known to exist."""

        self._stands = stands
        self._claimed: bytes | None = None
        self.identity = StoreIdentity(self.layout, remembered)
        self.fault: UnusableError | None = UnusableError("EtcdUnavailable", "etcd has not answered yet")
        self.epoch: int | None = None
        self.on_write: Callable[[str], None] | None = None
        self.writes_total = 0
        self._client = Etcd(settings)
        self._on_change = on_change
        self._on_state = on_state
        self.mirror = Mirror(self.layout)
        self.freed: set[Claim] = set()
        """What brokers have deleted on our order, as long as its home still stands: whoever wants the name now may have
        it. Not kept across restarts; brokers clear such homes away after a while."""

        self.listed = asyncio.Event()
        """Set once the mirror has everything."""

        self._has_failed = False
        self._task: asyncio.Task[None] | None = None

    # Life

    def start(self) -> asyncio.Task[None]:
        """Begins to follow etcd; the task runs until `close`, and whoever owns us looks after it."""
        assert self._task is None
        self._task = asyncio.create_task(self._follow(), name=f"etcd {self.layout.cluster}")
        return self._task

    async def close(self) -> None:
        """Ends the watch and all connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._client.close()

    @property
    def is_listing(self) -> bool:
        """Whether etcd is being read for the first time, and nothing is known to be in the way."""
        return not self.listed.is_set() and not self._has_failed

    @property
    def has_ended(self) -> bool:
        """Whether the task has ended that should run until `close`."""
        return self._task is not None and self._task.done()

    @property
    def is_usable(self) -> bool:
        """Whether the mirror follows etcd, etcd is the one that is remembered, and the place there is ours."""
        return self.fault is None and self.claim_fault is None

    @property
    def claim_fault(self) -> UnusableError | None:
        """That the place in etcd is another cluster's, as far as that is known; None: it is not."""
        standing = self.mirror.claim()
        if standing is None or self._may_have(standing):
            return None
        return self._managed_by(standing)

    def _may_have(self, standing: ClaimRecord) -> bool:
        """Whether a place that is claimed for this one is ours, or may be."""
        if self.claimant is None or standing.is_of(self.claimant):
            return True
        return self.takes_over and not self._stands(standing)

    def _managed_by(self, standing: ClaimRecord) -> UnusableError:
        hint = 'if that is gone, sterna.dev/accept-store: "true" takes it over'
        if self._stands(standing):
            hint = "which exists, and keeps it: give this one another etcd.clusterName"
        text = f"its place in etcd ({self.layout.cluster}) belongs to {standing.label}; {hint}"
        return UnusableError("ManagedByOther", text)

    async def claim(self, confirm_lead: ConfirmLead) -> int:
        """Counts the epoch up, for a leader that has just become one; the epoch that all its writes compare.

        Between reading and counting up it is confirmed that we lead: who has lost the Lease meanwhile either fails
        there, or finds that the epoch was counted up already.

        Raises:
            UnusableError: etcd cannot be had.
            FencedError: somebody else counted it up in between.
        """
        key = self.layout.operator_epoch
        try:
            await self.identity.verify(self._client, _now_ms())
            claims, claimed = await self._claims()
            got = await self._client.get(key)
            await confirm_lead()
            standing = int(got.found.value) if got.found else 0
            seen = got.found.mod_revision if got.found else 0
            value = str(standing + 1).encode()
            conditions = [*self.identity.conditions(), mod_revision(key, seen), *claims]
            done = await self._client.transact(conditions, [Put(key, value), *claimed])
        except StoreReplacedError as error:
            self._note(_unusable(error))
            raise _unusable(error) from error
        except (EtcdError, ValueError) as error:
            raise UnusableError("EtcdUnavailable", str(error)) from error
        self._note_write(key)
        if not done.succeeded:
            raise FencedError(f"another operator counts the epoch of cluster {self.layout.cluster} up")
        self.epoch = standing + 1
        self._claimed = None if self.claimant is None else self.claimant.encode()
        return self.epoch

    async def _claims(self) -> tuple[list[Condition], list[Put]]:
        """What claims the place in etcd: what has to hold, and what is written.

        Raises:
            UnusableError: it is another cluster's.
            EtcdError: etcd cannot be had.
        """
        if self.claimant is None:
            return [], []
        key = self.layout.operator_claim
        found = (await self._client.get(key)).found
        if found is None:
            return [mod_revision(key, 0)], [Put(key, self.claimant.encode())]
        standing = ClaimRecord.decode(key, found.value)
        if not self._may_have(standing):
            raise self._managed_by(standing)
        changed = [] if standing == self.claimant else [Put(key, self.claimant.encode())]
        return [mod_revision(key, found.mod_revision)], changed

    async def read_ahead(self, claim: Claim, *, with_stores: bool = False) -> None:
        """Reads all that concerns one object into the mirror, while everything else is still being read.

        What is read later of an earlier revision is passed over, as always; and a write compares the version that was
        seen. `with_stores`: the stores that are configured, too.

        Raises:
            UnusableError: etcd cannot be had.
        """
        layout = self.layout
        keys = [layout.config(claim), layout.left(claim)]
        keys += [layout.home(claim.kind.lower(), claim.name)] if claim.kind in HOMED else []
        prefixes = [layout.object_statuses_of(claim), layout.brokers]
        prefixes += [layout.configs_of("Store")] if with_stores else []
        try:
            got = await asyncio.gather(*map(self._client.get, keys))
            listed = await asyncio.gather(*map(self._client.list_all, prefixes))
        except EtcdError as error:
            raise UnusableError("EtcdUnavailable", str(error)) from error
        for key, one in zip(keys, got, strict=True):
            if one.found is None:
                self.mirror.remove(key, one.revision)
            else:
                self.mirror.put(key, one.found.value, one.found.mod_revision)
        for prefix, found in zip(prefixes, listed, strict=True):
            for gone in set(self.mirror.below(prefix)) - {pair.key for pair in found.values}:
                self.mirror.remove(gone, found.revision)
            for pair in found.values:
                self.mirror.put(pair.key, pair.value, pair.mod_revision)

    async def compare(self) -> list[str]:
        """Takes what etcd has and the watch has not told of as if it had; the keys that were others.

        Raises:
            UnusableError: etcd cannot be had.
        """
        if not self.listed.is_set() or self.fault is not None:
            return []
        changes: list[Change] = []
        layout = self.layout
        own, theirs = (layout.configs, layout.users, layout.drains, layout.lefts), (layout.homes, layout.statuses)
        for prefix in (*own, *theirs, layout.brokers):
            known = sorted(self.mirror.under(prefix))
            parts = [known[first : first + _COMPARED_AT_ONCE] for first in range(0, len(known), _COMPARED_AT_ONCE)]
            starts = [prefix, *(part[0] for part in parts[1:])]
            # Prefixes end with a slash, and what comes behind all that begin so with the character after it.
            ends = [*starts[1:], f"{prefix[:-1]}0"]
            for part, start, end in zip(parts or [[]], starts, ends, strict=True):
                changes += await self._compare(part, start, end)
        keys = [change.key for change in changes]
        if changes:
            log.warning("changes in etcd that the watch has not told of", count=len(keys), keys=keys[:10])
            if self._on_change is not None:
                self._on_change(self, changes, False)
        return keys

    async def _compare(self, known: Sequence[str], start: str, end: str) -> list[Change]:
        """Reads the keys from one on and before another, of which these are known; what was another than is known."""
        try:
            found = await self._client.list_all(start, until=end)
        except EtcdError as error:
            raise UnusableError("EtcdUnavailable", str(error)) from error
        changes = self.mirror.drop_missing(known, {pair.key for pair in found.values}, found.revision)
        for first in range(0, len(found.values), _PAUSE_EVERY):
            changes += self.mirror.catch_up(found.values[first : first + _PAUSE_EVERY], found.revision)
            await asyncio.sleep(0)
        return changes

    # Writes

    async def write(
        self, conditions: Sequence[Condition], operations: Sequence[Put | Delete], *, is_ahead: bool = False
    ) -> int:
        """One transaction; etcd's revision afterwards. `is_ahead`: what it rests on was read ahead of the rest.

        Raises:
            FencedError: we are the leader no more.
            StaleError: a condition does not hold, or it is not known whether it was done.
            UnusableError: etcd cannot be had, or is not the one we know.
        """
        fault = self.claim_fault or (None if is_ahead and self.is_listing else self.fault)
        if fault is not None:
            raise fault
        if self.epoch is None:
            raise UnusableError("EtcdUnavailable", "the operator has not claimed this cluster yet")
        epoch = equals(self.layout.operator_epoch, str(self.epoch).encode())
        owned = [] if self._claimed is None else [equals(self.layout.operator_claim, self._claimed)]
        all_conditions = [*self.identity.conditions(), epoch, *owned, *conditions]
        try:
            done = await self._client.transact(all_conditions, operations)
        except EtcdError as error:
            raise UnusableError("EtcdUnavailable", str(error)) from error
        if not done.succeeded:
            await self._explain()
            raise StaleError(f"cluster {self.layout.cluster}: a key has changed since it was looked at")
        self.writes_total += 1
        self.identity.note(done.revision)
        self._note_own(operations, done.revision)
        return done.revision

    async def _explain(self) -> None:
        """Why a transaction's conditions did not hold: raises unless it was the caller's own."""
        try:
            await self.identity.verify(self._client, _now_ms())
            await self._look_at_claim()
            got = await self._client.get(self.layout.operator_epoch)
        except StoreReplacedError as error:
            self._note(_unusable(error))
            raise _unusable(error) from error
        except (EtcdError, RecordError) as error:
            raise UnusableError("EtcdUnavailable", str(error)) from error
        if got.found is None or got.found.value != str(self.epoch).encode():
            has = got.found.value.decode(errors="replace") if got.found else "none"
            self.epoch = None
            raise FencedError(f"the epoch of cluster {self.layout.cluster} is {has}: another operator leads")

    async def _look_at_claim(self) -> None:
        """Raises if the place in etcd is not claimed for our cluster any more. Whoever took it counted the epoch up."""
        if self._claimed is None:
            return
        key = self.layout.operator_claim
        found = (await self._client.get(key)).found
        if found is not None and found.value == self._claimed:
            return
        self.epoch = None
        if found is not None and not self._may_have(standing := ClaimRecord.decode(key, found.value)):
            raise self._managed_by(standing)
        raise StaleError(f"the claim to {self.layout.prefix} is gone or another: it is made anew")

    def _note_own(self, operations: Sequence[Put | Delete], revision: int) -> None:
        changes: list[Change | None] = []
        for operation in operations:
            if isinstance(operation, Put):
                changes.append(self.mirror.put(operation.key, operation.value, revision))
            elif operation.is_prefix:
                changes += self.mirror.remove_prefix(operation.key, revision)
            else:
                changes.append(self.mirror.remove(operation.key, revision))
            self._note_write(operation.key)
        told = [change for change in changes if change is not None]
        if told and self._on_change is not None:
            self._on_change(self, told, True)

    def _note_write(self, key: str) -> None:
        if self.on_write is not None:
            self.on_write(key)

    # The watch

    async def _follow(self) -> None:
        watch = self._client.watch(self.layout.prefix, until=self.layout.witnesses, verify=self._verify)
        watch.on_fault = self._on_fault
        async with aclosing(watch.batches()) as batches:
            async for batch in batches:
                is_first, changes = not self.listed.is_set(), []
                for number, event in enumerate(batch.events):
                    if number % _PAUSE_EVERY == _PAUSE_EVERY - 1:
                        await asyncio.sleep(0)
                    if is_first:
                        # What was there before us is no change.
                        self.mirror.fill(event)
                    elif (change := self.mirror.take(event)) is not None:
                        changes.append(change)
                self.mirror.come_to(batch.revision)
                self.identity.note(batch.revision)
                # That the store can be used now has everything looked at.
                self.listed.set()
                self._note(None)
                if changes and self._on_change is not None:
                    self._on_change(self, changes, False)

    async def _verify(self) -> None:
        await self.identity.verify(self._client, _now_ms())

    def _on_fault(self, fault: EtcdError | None) -> None:
        self._note(None if fault is None else _unusable(fault))

    def _note(self, fault: UnusableError | None) -> None:
        if fault is None and self.mirror.revision == 0:
            # It answers, and has not listed yet.
            return
        self._has_failed |= fault is not None
        changed = (fault and (fault.reason, str(fault))) != (self.fault and (self.fault.reason, str(self.fault)))
        self.fault = fault
        if changed:
            log.info("etcd", cluster=self.layout.cluster, state="usable" if fault is None else str(fault))
            if self._on_state is not None:
                self._on_state(self)


def _unusable(error: EtcdError) -> UnusableError:
    replaced = isinstance(error, StoreReplacedError | RevisionWentBackError)
    return UnusableError("EtcdReplaced" if replaced else "EtcdUnavailable", str(error))


def _now_ms() -> int:
    return int(time.time() * 1000)
