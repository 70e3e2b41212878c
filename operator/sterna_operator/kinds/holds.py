"""What holds up an object of any kind: it is not what it should be, too new in part, or somebody has paused it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sterna_resources.problems import ManifestError
from sterna_resources.topology import Paused

from sterna_operator import conditions
from sterna_operator.keys import Key
from sterna_operator.plans import Announcement, Plan, RemoveFinalizer, Wanted
from sterna_operator.reasons import Reason


@dataclass(frozen=True)
class Pause:
    """`text` says until when; `again_s` is how long that is, None where nobody has set an end."""

    text: str
    again_s: float | None

    def said(
        self, status: Mapping[str, Any], generation: int, *, is_well: bool = True, note: str = ""
    ) -> tuple[conditions.Condition, ...]:
        """What is said while it lasts: a pause is no failure, and what was ready for some generation stays so.

        Nobody has applied what was asked for since: the pause itself is a change of the spec, and there may be others.
        `is_well`: whether what was applied still stands, where that is looked at; `note` says more of it.
        """
        ready = conditions.find(status, conditions.READY)
        applied = int(ready.get("observedGeneration", generation))
        # One that was applied and is not well at the moment says so of the generation that it is about.
        was_applied = ready.get("status") == "True" or (ready.get("reason") == "Paused" and applied < generation)
        if not was_applied:
            return conditions.stalled("Paused", self.text)
        text = self.text if applied == generation else f"{self.text}; generation {applied} is applied"
        text = f"{text}; {note}" if note else text
        said = conditions.ready("Paused", text) if is_well else conditions.stalled("Paused", text)
        return tuple(replace(one, generation=applied) if one.type == conditions.READY else one for one in said)

    def plan(self, status: Wanted) -> Plan:
        """The answer while it lasts."""
        return Plan(status=status, announcements=(Announcement(Reason.Paused, self.text),), again_s=self.again_s)


def pause_of(paused: Paused | None, now_ms: int) -> Pause | None:
    """The pause that `spec.paused` asks for; None: there is none, or it is over."""
    if paused is None:
        return None
    if not paused.until:
        return Pause("paused until spec.paused is removed", None)
    until_ms = conditions.parse_timestamp(paused.until)
    if until_ms <= now_ms:
        return None
    return Pause(f"paused until {paused.until}", (until_ms - now_ms) / 1000)


def invalid(error: ManifestError) -> Plan:
    """Says what is wrong with each field, and does nothing."""
    text = "; ".join(f"{problem.field}: {problem.message}" for problem in error.problems)
    status = Wanted(conditions.stalled("Invalid", text))
    return Plan(status=status, announcements=(Announcement(Reason.Invalid, text),))


def let_go_unread(key: Key) -> Plan:
    """Lets an object go that is being deleted and cannot be read, as one that a newer version wrote: nothing hangs."""
    return Plan(steps=(RemoveFinalizer(f"let {key} go, which cannot be read"),))


def noting(plan: Plan, passed_over: Sequence[str]) -> Plan:
    """A plan whose Ready condition names the fields that this operator is too old for, whatever else it says."""
    if plan.status is None or not passed_over:
        return plan
    text = f"without effect, since only a newer operator knows them: {', '.join(passed_over)}"
    said = tuple(
        replace(one, message=f"{one.message}; {text}" if one.message else text) if one.type == conditions.READY else one
        for one in plan.status.conditions
    )
    return replace(plan, status=replace(plan.status, conditions=said))
