"""What keeps audits' runs and changes to brokers out of each other's way.

Before a broker is restarted or taken away the cluster says so in its status (`maintenance`). AuditJobs of the cluster
then have their CronJobs suspended, and the cluster waits until all are, and no run goes on that may be exporting: a
broker that ends breaks an export off, and one that has gone can give none any more. It waits so long and no longer: a
run that hangs must not keep a cluster from being repaired. A broker that has been emptied goes only when each AuditJob
has taken a last snapshot of it, however long that takes, or by force.

Nothing is remembered but what stands in the status. CronJobs are suspended because of it and for no other reason, so
that they go on when it is gone, whatever has failed and whoever decides by then; and when for a while nothing has come
of a maintenance, they go on beside it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sterna_operator import conditions
from sterna_operator.builders import audits
from sterna_operator.plans import Announcement
from sterna_operator.reasons import Reason
from sterna_operator.words import counted

# So long a run that goes on is waited for.
WAIT_MS = 600_000
# So long after the last broker was done AuditJobs stand back for a maintenance.
HOLD_MS = 1_800_000
_FORCE = "sterna.dev/force-drain"


@dataclass(frozen=True)
class AuditSeen:
    """An AuditJob or StoreSnapshot of the cluster. `is_suspended`: no run of it will begin."""

    label: str
    is_suspended: bool
    running: tuple[str, ...] = ()
    takes_last: str = ""
    """The AuditJob's name, if a broker may not go before it has taken a last snapshot of it."""

    ended: Mapping[str, bool] = field(default_factory=dict)
    """The Jobs of such last snapshots that have ended, and whether well."""


@dataclass(frozen=True)
class Interlock:
    """The decision. `maintenance`: what the status is to say; `waits`: why no broker may be touched yet.

    `keeps`: why no broker may be taken away, though it may be touched.
    """

    maintenance: Mapping[str, Any] | None = None
    waits: str = ""
    keeps: str = ""


def decide(
    standing: Mapping[str, Any] | None,
    seen: Sequence[AuditSeen],
    *,
    outdated: int,
    leaving: Sequence[str],
    are_all_serving: bool,
    now_ms: int,
) -> Interlock:
    """Whether brokers may be touched now, and what is to be said.

    `standing`: the maintenance that the status speaks of. `outdated`: how many brokers are to be restarted; `leaving`:
    those that have been emptied, to be taken away.
    """
    left = outdated + len(leaving)
    if not seen or (left == 0 and (standing is None or are_all_serving)):
        return Interlock()
    reason = "Scaling" if leaving else "Rolling" if outdated or standing is None else str(standing["reason"])
    is_known = standing is not None and int(standing.get("left") or 0) == left
    # As the status has it: in whole seconds.
    began_ms = since_ms(standing) if standing is not None and is_known else now_ms // 1000 * 1000
    maintenance: dict[str, Any] = {"reason": reason, "left": left, "since": conditions.timestamp(began_ms)}
    if leaving:
        maintenance["leaving"] = list(leaving)
    waits = _waits(seen) if now_ms - began_ms <= WAIT_MS else ""
    if standing is None and not waits:
        # What is suspended may be so because of a maintenance before, and about to go on: it stands there first.
        waits = "waits for AuditJobs to hear of it"
    return Interlock(maintenance, waits, _keeps(seen, leaving, began_ms) if leaving else "")


def announced(interlock: Interlock, *, is_forced: bool) -> list[Announcement]:
    """That brokers are taken away by force, of which there is no last snapshot."""
    if not (interlock.keeps and is_forced and interlock.maintenance is not None):
        return []
    names = ", ".join(interlock.maintenance["leaving"])
    text = f"{names} taken away by force, without a last snapshot: what happened there since the one before is in none"
    return [Announcement(Reason.BrokerGivenUp, text)]


def holds(maintenance: Mapping[str, Any] | None, now_ms: int) -> str:
    """Why no run is to begin now, by the status of the cluster; empty: nothing is in the way."""
    if maintenance is None or now_ms - since_ms(maintenance) > HOLD_MS:
        return ""
    left = counted(int(maintenance.get("left") or 0), "broker")
    what = "restarted" if maintenance["reason"] == "Rolling" else "taken away"
    return f"{left} to be {what}" if maintenance.get("left") else "brokers are starting again"


def held_until_ms(maintenance: Mapping[str, Any]) -> int:
    """When runs begin again whatever has come of it."""
    return since_ms(maintenance) + HOLD_MS + 1


def since_ms(maintenance: Mapping[str, Any]) -> int:
    """When a maintenance began, or came one broker further."""
    return conditions.parse_timestamp(str(maintenance["since"]))


def _keeps(seen: Iterable[AuditSeen], leaving: Sequence[str], began_ms: int) -> str:
    """What happened on a broker since its last snapshot is nowhere else once it has gone."""
    for one in sorted(seen, key=lambda audit: audit.label):
        job = audits.last_run(one.takes_last, began_ms)
        if not one.takes_last or one.ended.get(job):
            continue
        if job in one.ended:
            how = f"Job {job} says why, and deleting it tries again"
            return f'{one.label} could not take a last snapshot: {how}; {_FORCE}: "true" does without'
        return f"waits for {one.label} to take a last snapshot of {', '.join(leaving)}"
    return ""


def _waits(seen: Iterable[AuditSeen]) -> str:
    for one in sorted(seen, key=lambda audit: audit.label):
        if one.running:
            return f"waits for run {one.running[0]} of {one.label}"
        if not one.is_suspended:
            return f"waits for {one.label} to begin no run"
    return ""
