"""The live configuration of a broker in a cluster: what administrators apply here goes into etcd, and holds everywhere.

The same examination as for a folder; then one transaction that compares the revision of every object concerned, as it
was when it was examined, so that nobody's change is overwritten unseen. Objects that the operator owns are refused,
naming the owner: they are changed in Kubernetes. What a change leads to comes back through the watch, here as on every
other broker.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from sterna_etcd import (
    Claim,
    Delete,
    EtcdError,
    NotDoneError,
    Put,
    UnknownOutcomeError,
    mod_revision,
)
from sterna_etcd.records import ConfigRecord, Owner
from sterna_etcd.values import Condition, Operation
from sterna_resources.broker import Broker
from sterna_resources.reading import Manifest

from sterna_broker.cluster.claims import claim_of
from sterna_broker.cluster.member import Member
from sterna_broker.cluster.view import Stored
from sterna_broker.configuration import checks
from sterna_broker.configuration.applied import OWNER, AppliedFolder
from sterna_broker.configuration.live import LiveConfiguration, Outcome, examine_texts, refuse
from sterna_broker.configuration.objects import Entry, ObjectSet
from sterna_broker.configuration.source import DefaultSource
from sterna_broker.refusals import RefusedError
from sterna_broker.surroundings import wall_ms

_log = structlog.get_logger(part="configuration")

# etcd takes 128 operations in a transaction; the identity is compared, too.
DOCUMENTS_MAX = 100
_SETTLE_S = 5.0
# How long a bridge's target may be where its bridge has not come, and how often that is looked at without a change.
_FOLLOWS_S = 10.0
_LOOK_S = 0.5


class ClusterConfiguration(LiveConfiguration):
    """See the module."""

    def __init__(self, member: Member, applied: AppliedFolder, selector_check: checks.SelectorCheck) -> None:
        super().__init__(DefaultSource(), applied, selector_check)
        self._member = member

    @property
    def objects(self) -> ObjectSet:
        """What holds now in the cluster."""
        return self._member.objects

    @objects.setter
    def objects(self, _: ObjectSet) -> None:
        """The member's business alone."""

    async def load(self) -> ObjectSet:
        """See LiveConfiguration; the member has it already."""
        return self.objects

    def _local_objects(self) -> ObjectSet:
        return self._member.local_objects

    async def hand_over(self, objects: ObjectSet, before: Callable[[], None]) -> list[dict[str, Any]] | None:
        """For the member: makes the engine's configuration so; what it refuses of it. None: it is so already.

        `before` is called just before, when nothing is waited for any more: what has moved meanwhile is told so, and
        not taken for deleted.
        """
        prepared = await self._prepare(objects)
        before()
        if prepared is None or not (prepared.is_news or self.lacks_room):
            return None
        return self._hand_over(prepared)

    def discard(self, word: str, name: str, client_id: str = "") -> None:
        """See LiveConfiguration. What a bridge leads to, the engine has made again in the same step, and open."""
        super().discard(word, name, client_id)
        self._member.shut()

    async def settled(self) -> None:
        """See LiveConfiguration."""
        await self._member.settled(self._member.link.view.revision, _SETTLE_S)

    async def follows(self, kind: str, name: str, is_there: Callable[[], bool]) -> None:
        """See LiveConfiguration: targets move before the source, with which their bridge comes."""
        targets = {("Queue" if word == "queue" else "Topic", target) for word, target in self.objects.targets}
        if (kind, name) not in targets:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FOLLOWS_S):
                while not is_there():
                    await self._member.settled(self._member.link.view.revision + 1, _LOOK_S)

    async def restore(self) -> None:
        """See LiveConfiguration; the next round does it."""
        self._member.remake()

    async def reload(self) -> None:
        """Nothing to read again: changes come by themselves."""
        self._member.wake()

    async def apply_all(
        self, texts: Sequence[tuple[str, str]], *, dry_run: bool = False, create_only: bool = False
    ) -> list[Outcome]:
        """See LiveConfiguration; into etcd."""
        async with self._changing:
            await self.settled()
            # What comes from here on while the documents are examined is not looked at, and makes it a conflict.
            judged = self._member.examined.judged
            examined = await asyncio.to_thread(examine_texts, texts)
            entries = [self._entry(one.manifest) for one in examined if one.manifest is not None]
            objects = self.objects.replaced(entries)
            problems = await asyncio.to_thread(self._apply_problems, objects, entries)
            outcomes = self._outcomes(examined, problems, create_only=create_only)
            # What is no manifest has an outcome, and no entry.
            places = [index for index, one in enumerate(examined) if one.manifest is not None]
            owned = {index: why for index, entry in zip(places, entries, strict=True) if (why := self._owned(entry))}
            refuse(outcomes, owned)
            if dry_run or any(outcome.change == "refused" for outcome in outcomes):
                return outcomes
            changed = [entry for entry in entries if self._change_of(entry)[0] != "unchanged"]
            if len(changed) > DOCUMENTS_MAX:
                message = f"{len(changed)} objects are changed at once; in a cluster at most {DOCUMENTS_MAX} may be."
                raise RefusedError("LIMIT_EXCEEDED", "manifests", message, "Apply them in several calls.")
            if changed:
                await self._write(changed, judged)
                self._note_lost(outcomes, entries)
            return outcomes

    async def prepare_delete(self, entry: Entry) -> int:
        """Before anything is deleted: whether it may be, and whether etcd can be told; the revision for `delete`.

        Raises:
            RefusedError: it belongs to somebody else, something needs it, or etcd cannot be used.
        """
        claim = claim_of(entry.resource)
        stored = self._member.examined.judged.get(claim)
        # Before the engine deletes anything.
        self._check_judged([claim], self._member.examined.judged)
        self.check_deletable(entry)
        if owned := self._owned(entry):
            raise owned
        try:
            await self._member.link.identity.verify(self._member.link.etcd, wall_ms())
        except EtcdError as error:
            raise _unreachable(error) from error
        return stored.revision if stored is not None else 0

    async def delete(self, entry: Entry, revision: int = 0) -> None:
        """See LiveConfiguration; from etcd, unless somebody has changed it since."""
        async with self._changing:
            self.check_deletable(entry)
            claim = claim_of(entry.resource)
            if self._member.link.view.configs.get(claim) is None:
                return
            key = self._member.link.layout.config(claim)
            await self._transact([mod_revision(key, revision)], [Delete(key)], [claim])

    def _entry(self, manifest: Manifest) -> Entry:
        return Entry(manifest, OWNER, claim_of(manifest.resource).name)

    def _owned(self, entry: Entry) -> RefusedError | None:
        """Why an administrator may not change an object; None: he may."""
        claim = claim_of(entry.resource)
        if isinstance(entry.resource, Broker):
            message = "A Broker manifest says how one broker starts; in a cluster its flags do."
            return RefusedError("NOT_ALLOWED", claim.name, message, "Leave it out.")
        stored = self._member.link.view.configs.get(claim)
        if stored is None or stored.record.owner.by != "operator" or self._is_unchanged(entry):
            return None
        owner: Owner = stored.record.owner
        message = f"The {claim.kind} '{claim.name}' belongs to the Kubernetes object {owner.label}."
        return RefusedError("OWNED", claim.name[:256], message, "Change it there, with kubectl.")

    def _note_lost(self, outcomes: list[Outcome], entries: list[Entry]) -> None:
        """Marks what was written and does not hold, or not all of it, since somebody else wrote at the same time."""
        examined = self._member.examined
        for outcome, entry in zip(outcomes, entries, strict=True):
            claim = claim_of(entry.resource)
            found = examined.refused.get(claim) or examined.partly.get(claim)
            if outcome.change != "unchanged" and found is not None:
                message = f"It was written, and somebody else was first: {found.message}."
                remedy = "Change it and apply it again, or delete it."
                outcome.change, outcome.changes = "refused", []
                outcome.refusal = RefusedError("CONFLICT", claim.name[:256], message, remedy)

    def _is_unchanged(self, entry: Entry) -> bool:
        before = self.objects.entries.get(entry.key)
        return before is not None and before.manifest is not entry.manifest and self._change_of(entry)[0] == "unchanged"

    async def _write(self, entries: list[Entry], judged: dict[Claim, Stored]) -> None:
        layout = self._member.link.layout
        conditions: list[Condition] = []
        operations: list[Operation] = []
        claims = []
        for entry in entries:
            claim = claim_of(entry.resource)
            stored = judged.get(claim)
            document: dict[str, Any] = entry.resource.document()
            generation = (stored.record.generation if stored else 0) + 1
            record = ConfigRecord(manifest=document, owner=Owner(by="admin"), generation=generation)
            key = layout.config(claim)
            conditions.append(mod_revision(key, stored.revision if stored else 0))
            operations.append(Put(key, record.encode()))
            claims.append(claim)
        self._check_judged(claims, judged)
        await self._transact(conditions, operations, claims)

    def _check_judged(self, claims: list[Claim], judged: dict[Claim, Stored]) -> None:
        """Whether what was judged is what is there, as far as this broker has heard.

        Raises:
            RefusedError: one has changed since; perhaps from here.
        """
        configs = self._member.link.view.configs
        names = ", ".join(claim.name for claim in claims if configs.get(claim) is not judged.get(claim))[:256]
        if names:
            message = f"{names} has just been changed, and that does not hold on this broker yet."
            raise RefusedError("CONFLICT", names, message, "Look at it and do it again.", retryable=True)

    async def _transact(self, conditions: list[Condition], operations: list[Operation], claims: list[Claim]) -> None:
        link = self._member.link
        if link.identity.known is None:
            raise _unreachable(NotDoneError("etcd has not been reached yet"))
        try:
            done = await link.etcd.transact([*link.identity.conditions(), *conditions], operations)
            if not done.succeeded:
                await link.identity.verify(link.etcd, wall_ms())
        except UnknownOutcomeError as error:
            message = f"Whether it was changed is not known: {error}."
            remedy = "Look at it, and do it again if need be."
            raise RefusedError("UNAVAILABLE", "etcd", message, remedy, retryable=True) from error
        except EtcdError as error:
            raise _unreachable(error) from error
        names = ", ".join(claim.name for claim in claims)[:256]
        if not done.succeeded:
            message = f"Somebody else changed {names} at the same time."
            raise RefusedError("CONFLICT", names, message, "Look at it and do it again.", retryable=True)
        _log.info("configuration_changed", actor=OWNER, objects=[f"{claim.kind} {claim.name}" for claim in claims])
        if not await self._member.settled(done.revision, _SETTLE_S):
            _log.warning("change_not_seen_yet", revision=done.revision)


def _unreachable(error: Exception) -> RefusedError:
    message = f"The shared store cannot be used now: {error}."
    return RefusedError("UNAVAILABLE", "etcd", message, "Try again when it is back.", retryable=True)
