"""What holds up an object of any kind: it is not what it should be, too new in part, or somebody has paused it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
