"""Deleting configured objects as their policy says: what `deleting` in a config record asks of the broker that has it.

retain: the object is managed no more, what it holds stays. delete: it goes with its messages. onlyIfEmpty: it goes once
it is empty, and until then says how many messages keep it. A topic's messages are those of durable subscriptions to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from sterna_core import EngineError
from sterna_etcd import Claim, HomeKey
from sterna_etcd.records import ConfigRecord, Deleting, ObjectStatus
from sterna_resources.resource import Resource

from sterna_broker.cluster.upkeep import EngineView, at_stake
from sterna_broker.cluster.view import Stored

_log = structlog.get_logger(part="cluster")

HOLDING = ("Queue", "Topic", "DurableSubscription")


@dataclass(frozen=True)
class Deletion:
    """How far a deletion has come. `state`: "deleted" or "blocked"."""

    state: str
    messages: int = 0
    reason: str = ""
    message: str = ""


class Deletions:
    """Remembers what it has deleted, until the object's key is gone, or somebody orders something else."""

    def __init__(self) -> None:
        self.done: dict[Claim, Deletion] = {}
        self.blocked: dict[Claim, Deletion] = {}
        self._ordered: dict[Claim, Deleting] = {}
        self._told: dict[Claim, ObjectStatus] = {}

    def recall(self, told: Mapping[Claim, ObjectStatus]) -> None:
        """What a former start of this broker has told: what it has deleted is deleted once.

        What has come under the name since is not what the order was about.
        """
        self._told = {claim: status for claim, status in told.items() if status.state == "deleted"}

    def settle(
        self, engine: EngineView, claim: Claim, record: ConfigRecord, resource: Resource | None, needed: str
    ) -> Deletion:
        """Does what is asked, as far as it can be done now; `needed` names who still needs it."""
        deleting = record.deleting
        assert deleting is not None  # only such records come here
        self._ordered[claim] = deleting
        known = self.done.get(claim)
        if known is not None:
            return known
        if (told := self._told.pop(claim, None)) is not None and _is_of(told, record):
            return self._done(claim, Deletion("deleted", told.messages))
        if needed and deleting.policy == "onlyIfEmpty":
            self.blocked[claim] = Deletion("blocked", 0, "InUse", f"the {needed} needs it")
            return self.blocked[claim]
        if deleting.policy == "retain" or claim.kind not in HOLDING or resource is None:
            return self._done(claim, Deletion("deleted"))
        try:
            count = engine.delete(claim, resource, with_messages=deleting.policy == "delete")
        except EngineError as error:
            rows = engine.rows("durable") if claim.kind == "DurableSubscription" else None
            row = rows.get(claim.name) if rows is not None else _row(engine, claim)
            blocked = Deletion(
                "blocked", at_stake(claim.kind, row), _word(error.code), f"{error.message} {error.remedy}"
            )
            self.blocked[claim] = blocked
            return blocked
        return self._done(claim, Deletion("deleted", count))

    def forget(self, present: Mapping[Claim, Stored]) -> None:
        """Objects that are no longer being deleted, or by another order: gone, made anew, or a mind was changed."""
        for claim, order in list(self._ordered.items()):
            stored = present.get(claim)
            if stored is None or stored.record.deleting != order:
                del self._ordered[claim]
                self.done.pop(claim, None)
                self.blocked.pop(claim, None)
        for claim in [claim for claim in self._told if claim not in present]:
            del self._told[claim]

    def _done(self, claim: Claim, deletion: Deletion) -> Deletion:
        self.blocked.pop(claim, None)
        self.done[claim] = deletion
        _log.info("object_deleted", kind=claim.kind, name=claim.name, messages=deletion.messages)
        return deletion


def _is_of(told: ObjectStatus, record: ConfigRecord) -> bool:
    """Whether this was told of the order in a record."""
    return (told.uid, told.generation) == (record.asked_by, record.generation)


def _row(engine: EngineView, claim: Claim) -> dict[str, object] | None:
    return engine.row(HomeKey(claim.kind.lower(), claim.name))


def _word(code: str) -> str:
    """An error code as a condition's reason."""
    return "".join(part.capitalize() for part in code.split("_"))
