"""What a kind's pure function answers: what is to be done, what is to be said, and when to look again.

A plan is data. A dry run prints it, `sterna.dev/plan` puts it into the status, and `apply` executes it, step by step in
this order. Each step may be done twice with the same result, and says of what it replaces which version it has seen: a
process that dies between two steps, or a second one that decides from older knowledge, does no harm.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sterna_etcd.layout import Claim
from sterna_etcd.records import ConfigRecord, Owner, UserRecord

from sterna_operator.conditions import Condition
from sterna_operator.reasons import Reason

FINALIZER = "sterna.dev/operator"


@dataclass(frozen=True)
class Step:
    """One write. `summary` is what a person reads of it."""

    summary: str


@dataclass(frozen=True)
class PutConfig(Step):
    """Writes `config/<Kind>/<claim>`. `revision` is the key's revision that was seen, 0: there was none."""

    claim: Claim
    record: ConfigRecord
    revision: int
    takes_back: bool = False
    """Whether the note is to go that says who had left it behind."""


@dataclass(frozen=True)
class RemoveConfig(Step):
    """Removes `config/<Kind>/<claim>`, if it still has that revision, and what brokers said of the object.

    `is_deleted`: brokers have said that it is gone. Its home may stand for a while yet; it is nobody's then.
    """

    claim: Claim
    revision: int
    is_deleted: bool = False
    left_by: Owner | None = None
    """Whose it was, noted where it stays in the brokers; None: it does not."""


@dataclass(frozen=True)
class ForgetLeft(Step):
    """Removes `operator/left/<Kind>/<claim>`, if it still has that revision: nothing is left, or it is another's."""

    claim: Claim
    revision: int


@dataclass(frozen=True)
class PutUser(Step):
    """Writes `users/<name>`. `revision` as in PutConfig."""

    name: str
    record: UserRecord
    revision: int


@dataclass(frozen=True)
class RemoveUser(Step):
    """Removes `users/<name>`, if it still has that revision."""

    name: str
    revision: int


@dataclass(frozen=True)
class PutDrain(Step):
    """Has a broker emptied: `drain/<broker>`."""

    broker: str
    force: bool
    closes_only: bool = False
    """Nothing moves, and everything is closed to producers: the whole cluster is to go."""


@dataclass(frozen=True)
class RemoveDrain(Step):
    """Takes that back."""

    broker: str


@dataclass(frozen=True)
class RemoveBroker(Step):
    """Forgets a broker that is gone for good: its status, its drain, what it said of objects.

    `gives_up_homes`: its destinations, too, may be had elsewhere; what it held of them stays on its volume. Nothing is
    done if it turns out to live.
    """

    broker: str
    gives_up_homes: bool = False


@dataclass(frozen=True)
class AddFinalizer(Step):
    """Keeps the object from vanishing before its deletion has been carried out."""


@dataclass(frozen=True)
class RemoveFinalizer(Step):
    """Lets the object go."""


@dataclass(frozen=True)
class ApplyObject(Step):
    """Server-side apply of a whole object (apiVersion, kind, metadata and what we say of it) under our name."""

    manifest: Mapping[str, Any]
    is_new: bool = False
    """Whether there was none."""

    is_drift: bool = False
    """Whether the object is another than it was made by us, and not because the manifest has changed."""


@dataclass(frozen=True)
class RepairObject(Step):
    """Makes an object again what `manifest` says, which somebody has changed: by a merge patch, as seen (`version`).

    Where somebody has added what must not be there: server-side apply would leave that.
    """

    manifest: Mapping[str, Any]
    patch: Mapping[str, Any]
    version: str
    uid: str = ""
    differences: Mapping[str, str] = field(default_factory=dict)
    """What is not as it should be, as `differences.remaining` tells it: left alone when the patch is not taken."""


@dataclass(frozen=True)
class PatchObject(Step):
    """Merge patch of some fields of another object, such as a pod's annotation, as it was seen (`version`).

    Gone by now counts as done.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    patch: Mapping[str, Any]
    version: str


@dataclass(frozen=True)
class RemoveObject(Step):
    """Deletes an object, if it still is the one with that uid, and as it was seen (`version`)."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    version: str
    propagation: str = "Background"


@dataclass(frozen=True)
class Wanted:
    """What the status should say. `fields` are those beside the conditions; one that is None is left out."""

    conditions: tuple[Condition, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Announcement:
    """An event to post on the object."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class Plan:
    """The answer. `again_s`: look again after so many seconds, whatever happens until then."""

    steps: tuple[Step, ...] = ()
    status: Wanted | None = None
    announcements: tuple[Announcement, ...] = ()
    again_s: float | None = None

    def lines(self) -> list[str]:
        """The steps as text, for status and dry run."""
        return [step.summary for step in self.steps]
