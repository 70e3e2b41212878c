"""What the status of an AuditJob says: which run is next, what the last ones have found, whether there are any.

`Clean` is about the last run that came to a verdict, whether or not a later one has failed: a run that failed has shown
nothing, neither way. That there are verdicts at all is what `Stale` is about.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sterna_resources.audit_job import AuditJob

from sterna_operator import conditions
from sterna_operator.conditions import Condition
from sterna_operator.kinds.audit_runs import Ended, Running
from sterna_operator.plans import Announcement
from sterna_operator.reasons import Reason
from sterna_operator.schedules import Schedule
from sterna_operator.words import counted

CLEAN = "Clean"
STALE = "Stale"

_KEPT = ("claim", "nextRunAt", "running", "lastRun", "lastVerdict")
_REASONS = {"ok": "Ok", "in flight": "InFlight", "not provable": "NotProvable", "violated": "Violated"}
_COUNTS = {"violated": "violated", "notProvable": "not provable", "inFlight": "in flight", "ok": "ok"}
_WORST_SHOWN = 3
# However far away what comes next is: it is looked at again by then.
_AGAIN_MAX_S = 600.0
# A run that has ended so much later than now was told by a clock that was wrong.
_AHEAD_MS = 3_600_000


@dataclass(frozen=True)
class History:
    """All runs that are known, and how many of each sort are kept."""

    all_runs: Mapping[str, Ended]
    now_ms: int
    running: tuple[Running, ...] = ()
    good_max: int = 1
    bad_max: int = 1
    status: Mapping[str, Any] = field(default_factory=dict)
    """What was said before, of runs whose results somebody has removed since."""

    def age(self, one: Ended) -> tuple[bool, int, str]:
        """What runs are put into order by; the greatest is the newest.

        A clock that was ahead for a while must not have its run before all others until that time has come.
        """
        return one.ended_ms <= self.now_ms + _AHEAD_MS, one.ended_ms, one.run

    @cached_property
    def kept(self) -> tuple[Ended, ...]:
        """Those whose results are kept, the newest first; the last verdict is, in any case."""
        found = sorted(self.all_runs.values(), key=self.age, reverse=True)
        good = [one for one in found if one.is_good][: self.good_max]
        bad = [one for one in found if not one.is_good][: self.bad_max]
        judged = [one for one in found if one.verdict != "failed"][:1]
        chosen = {one.run for one in (*good, *bad, *judged)}
        return tuple(one for one in found if one.run in chosen)

    @property
    def last(self) -> Ended | None:
        """The run that ended last."""
        return self._newer(self.kept[0] if self.kept else None, _said(self.status, "lastRun"))

    @property
    def judged(self) -> Ended | None:
        """The last run that came to a verdict."""
        found = next((one for one in self.kept if one.verdict != "failed"), None)
        return self._newer(found, _said(self.status, "lastVerdict"))

    def _newer(self, found: Ended | None, said: Ended | None) -> Ended | None:
        """Of what there is and what was said before: its result may be gone, which says nothing of it."""
        if found is None or said is None or said.run == found.run:
            return said if found is None else found
        return max(found, said, key=self.age)


@dataclass(frozen=True)
class Facts:
    """What the status is made of. `held`: why no run is begun, if so; `schedule` None: it cannot be read."""

    job: AuditJob
    created_ms: int
    history: History
    schedule: Schedule | None
    held: str
    now_ms: int

    @property
    def overdue_ms(self) -> int | None:
        """From when on there was no verdict for two periods of the schedule."""
        if self.schedule is None:
            return None
        judged = self.history.judged
        if judged is None or judged.began_ms > self.now_ms + _AHEAD_MS:
            return self.schedule.after(self.created_ms, 2)
        return self.schedule.overdue_at(judged.began_ms, judged.ended_ms - judged.began_ms)


def kept(status: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that stand while nothing new is known."""
    return {name: status[name] for name in _KEPT if name in status}


def fields(facts: Facts) -> dict[str, Any]:
    """The status beside its conditions."""
    history = facts.history
    running = max(history.running, key=lambda one: one.started_ms or 0, default=None)
    return {
        "claim": facts.job.claim,
        "nextRunAt": _next(facts),
        "held": facts.held[:512] or None,
        "running": _running(running) if running is not None else None,
        "lastRun": dict(history.last.status) if history.last is not None else None,
        "lastVerdict": dict(history.judged.status) if history.judged is not None else None,
    }


def words(facts: Facts) -> str:
    """How it stands, for people."""
    said = [
        f"run {one.run} goes on" if one.fault is None else f"run {one.run} cannot go on: {one.fault}"
        for one in facts.history.running
    ]
    if (due := _next(facts)) is not None:
        said.append(f"the next run is due at {due}")
    elif facts.job.spec.suspend:
        said.append("suspended: no run is begun by the schedule")
    if (last := facts.history.last) is not None:
        said.append(f"the last one, {last.run}: {last.verdict}{_why(last)}")
    return "; ".join(said)


def judged(facts: Facts) -> tuple[Condition, ...]:
    """`Clean` and `Stale`."""
    return (_clean(facts), _stale(facts))


def announcements(facts: Facts) -> list[Announcement]:
    """What has not been said yet: a run has ended, or there was no verdict for too long."""
    said, last, before = [], facts.history.last, facts.history.status
    if last is not None and (before.get("lastRun") or {}).get("run") != last.run:
        if last.verdict == "violated":
            said.append(Announcement(Reason.AuditViolated, _found(last)))
        elif last.verdict == "failed":
            said.append(Announcement(Reason.AuditFailed, f"run {last.run}{_why(last)}"))
        else:
            said.append(Announcement(Reason.AuditPassed, _found(last)))
    stale = _stale(facts)
    if stale.status == "True" and conditions.find(before, STALE).get("status") != "True":
        said.append(Announcement(Reason.AuditStale, stale.message))
    return said


def again_s(facts: Facts) -> float | None:
    """When it is to be looked at again without cause: what is due comes, or is overdue."""
    moments = [facts.overdue_ms]
    if facts.schedule is not None and _next(facts) is not None:
        moments.append(facts.schedule.after(facts.now_ms))
    coming = [one for one in moments if one is not None and one > facts.now_ms]
    return min([*((one - facts.now_ms) / 1000 + 0.05 for one in coming), _AGAIN_MAX_S])


def _next(facts: Facts) -> str | None:
    if facts.schedule is None or facts.job.spec.suspend or facts.held:
        return None
    return conditions.timestamp(facts.schedule.after(facts.now_ms))


def _running(one: Running) -> dict[str, Any]:
    said: dict[str, Any] = {"run": one.run}
    if one.started_ms is not None:
        said["startedAt"] = conditions.timestamp(one.started_ms)
    if one.fault is not None:
        said["message"] = one.fault[:1_024]
    return said


def _clean(facts: Facts) -> Condition:
    found, last = facts.history.judged, facts.history.last
    if found is None:
        text = "no run has come to a verdict yet"
        return Condition(CLEAN, "Unknown", "NoVerdict", f"{text}{_later_failure(last)}")
    after = _later_failure(last) if last is not None and last.run != found.run else ""
    status = "False" if found.verdict == "violated" else "True"
    return Condition(CLEAN, status, _REASONS[found.verdict], f"{_found(found)}{after}")


def _later_failure(last: Ended | None) -> str:
    return "" if last is None or last.verdict != "failed" else f"; run {last.run} has failed{_why(last)}"


def _stale(facts: Facts) -> Condition:
    overdue_ms, found = facts.overdue_ms, facts.history.judged
    if overdue_ms is None:
        return Condition(STALE, "Unknown", "Invalid", "spec.schedule or spec.timeZone cannot be read")
    since = f"since {found.status['endedAt']}" if found is not None else "yet"
    if facts.now_ms < overdue_ms:
        text = f"the last verdict is of {found.status['endedAt']}" if found is not None else "the first run is awaited"
        return Condition(STALE, "False", "Current" if found is not None else "Awaited", text)
    why = f"; {facts.held}" if facts.held else "; spec.suspend is true" if facts.job.spec.suspend else ""
    text = f"no verdict {since}, and two periods of the schedule are over{why}{_later_failure(facts.history.last)}"
    return Condition(STALE, "True", "NoVerdict", text)


def _found(one: Ended) -> str:
    """What a run has found, the worst of it by name."""
    status = one.status
    counts = status.get("counts") or {}
    told = ", ".join(f"{counts[name]} {word}" for name, word in _COUNTS.items() if counts.get(name))
    said = [f"run {one.run}: {told or one.verdict}"]
    worst = status.get("worst") or () if one.verdict == "violated" else ()
    for finding in worst[:_WORST_SHOWN]:
        about = " ".join(filter(None, (finding.get("object"), finding.get("message"))))
        said.append(f"{finding.get('audit', '')}: {finding.get('what', '')}: {about}".rstrip(": "))
    lost = [taken["broker"] for taken in status.get("snapshots") or () if taken.get("state") == "failed"]
    if lost:
        said.append(f"no snapshot of {counted(len(lost), 'broker')}: {', '.join(lost[:_WORST_SHOWN])}")
    if status.get("report"):
        said.append(f"report: {status['report']}")
    return "; ".join(said)


def _why(one: Ended) -> str:
    return f": {one.status['error']}" if one.verdict == "failed" and one.status.get("error") else ""


def _said(status: Mapping[str, Any], name: str) -> Ended | None:
    """A run that was spoken of before."""
    found = status.get(name)
    return None if not found else Ended(str(found["run"]), found)
