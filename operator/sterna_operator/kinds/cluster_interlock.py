"""What keeps audits' runs and changes to brokers out of each other's way.

Before a broker is restarted or taken away the cluster says so in its status (`maintenance`). AuditJobs of the cluster
then have their CronJobs suspended, and the cluster waits until all are, and no run goes on that may be exporting: a
broker that ends breaks an export off, and one that has gone can give none any more. It waits so long and no longer: a
run that hangs must not keep a cluster from being repaired.

Nothing is remembered but what stands in the status. CronJobs are suspended because of it and for no other reason, so
that they go on when it is gone, whatever has failed and whoever decides by then; and when for a while nothing has come
of a maintenance, they go on beside it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sterna_operator import conditions
from sterna_operator.words import counted

# So long a run that goes on is waited for.
WAIT_MS = 600_000
# So long after the last broker was done AuditJobs stand back for a maintenance.
HOLD_MS = 1_800_000


@dataclass(frozen=True)
class AuditSeen:
    """An AuditJob or StoreSnapshot of the cluster. `is_suspended`: no run of it will begin."""

    label: str
    is_suspended: bool
    running: tuple[str, ...] = ()


@dataclass(frozen=True)
class Interlock:
    """The decision. `maintenance`: what the status is to say; `waits`: why no broker may be touched yet."""

    maintenance: Mapping[str, Any] | None = None
    waits: str = ""


def decide(
    standing: Mapping[str, Any] | None,
    audits: Iterable[AuditSeen],
    *,
    outdated: int,
    removable: int,
    are_all_serving: bool,
    now_ms: int,
) -> Interlock:
    """Whether brokers may be touched now, and what is to be said.

    `standing`: the maintenance that the status speaks of. `outdated`, `removable`: the brokers to be restarted, and
    those that have been emptied, to be taken away.
    """
    seen, left = list(audits), outdated + removable
    if not seen or (left == 0 and (standing is None or are_all_serving)):
        return Interlock()
    reason = "Scaling" if removable else "Rolling" if outdated or standing is None else str(standing["reason"])
    is_known = standing is not None and int(standing.get("left") or 0) == left
    since_ms = _since(standing) if standing is not None and is_known else now_ms
    maintenance = {"reason": reason, "left": left, "since": conditions.timestamp(since_ms)}
    if now_ms - since_ms > WAIT_MS:
        return Interlock(maintenance)
    return Interlock(maintenance, _waits(seen))


def holds(maintenance: Mapping[str, Any] | None, now_ms: int) -> str:
    """Why no run is to begin now, by the status of the cluster; empty: nothing is in the way."""
    if maintenance is None or now_ms - _since(maintenance) > HOLD_MS:
        return ""
    left = counted(int(maintenance.get("left") or 0), "broker")
    what = "restarted" if maintenance["reason"] == "Rolling" else "taken away"
    return f"{left} to be {what}" if maintenance.get("left") else "brokers are starting again"


def held_until_ms(maintenance: Mapping[str, Any]) -> int:
    """When runs begin again whatever has come of it."""
    return _since(maintenance) + HOLD_MS + 1


def _since(maintenance: Mapping[str, Any]) -> int:
    return conditions.parse_timestamp(str(maintenance["since"]))


def _waits(seen: Iterable[AuditSeen]) -> str:
    for one in sorted(seen, key=lambda audit: audit.label):
        if one.running:
            return f"waits for run {one.running[0]} of {one.label}"
        if not one.is_suspended:
            return f"waits for {one.label} to begin no run"
    return ""
