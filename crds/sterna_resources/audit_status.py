"""What the operator says of AuditJobs and StoreSnapshots: their runs, as their pods have told of them."""

from typing import Literal

from pydantic import Field

from sterna_resources.fields import Count, Time
from sterna_resources.status import Status, StatusModel

WORST_MAX = 10
SNAPSHOTS_MAX = 128

Verdict = Literal["ok", "in flight", "not provable", "violated", "failed"]


class VerdictCounts(StatusModel):
    """How many findings there are of each verdict."""

    ok: Count = 0
    """What was shown to be right."""

    in_flight: Count = 0
    """What is open still, so that a later run can judge it."""

    not_provable: Count = 0
    """What the snapshots do not tell."""

    violated: Count = 0
    """What is wrong."""


class WorstFinding(StatusModel):
    """One of the worst findings."""

    audit: str = Field(default="", max_length=64)
    """Which audit found it."""

    what: str = Field(default="", max_length=128)
    """What is wrong: `lost`, say."""

    object: str = Field(default="", max_length=512)
    """The queue, topic or subscription that it concerns."""

    message: str = Field(default="", max_length=512)
    """The message that it concerns, by its id."""


class SnapshotTaken(StatusModel):
    """What became of the snapshot of one broker."""

    broker: str = Field(min_length=1, max_length=64)
    """The broker."""

    cut: Count | None = None
    """The number of the cut."""

    state: Literal["new", "there already", "failed"] = "failed"
    """`there already`: an earlier try of the same run has taken it."""

    error: str | None = Field(default=None, max_length=512)
    """Why there is none."""


class RunStatus(StatusModel):
    """One run that has ended."""

    run: str = Field(min_length=1, max_length=63)
    """Its name, which is its Job's; its result is in the ConfigMap of this name with `-result` behind it."""

    scheduled_at: Time | None = None
    """When it was due by the schedule; absent: it was started by hand."""

    started_at: Time | None = None
    """When it began."""

    ended_at: Time | None = None
    """When it ended."""

    verdict: Verdict
    """The worst of what the audits found. `failed`: they did not come to their end."""

    counts: VerdictCounts | None = None
    """How many findings there are."""

    worst: list[WorstFinding] = Field(default_factory=list, max_length=WORST_MAX)
    """Some of the worst findings."""

    snapshots: list[SnapshotTaken] = Field(default_factory=list, max_length=SNAPSHOTS_MAX)
    """The snapshots that it took."""

    report: str | None = Field(default=None, max_length=1_024)
    """Where the report is."""

    error: str | None = Field(default=None, max_length=1_024)
    """Why it failed."""


class RunningStatus(StatusModel):
    """A run that goes on."""

    run: str = Field(min_length=1, max_length=63)
    """Its name, which is its Job's."""

    started_at: Time | None = None
    """When its Job was made."""

    message: str | None = Field(default=None, max_length=1_024)
    """What keeps its pod from running."""


class AuditJobStatus(Status):
    """Of an AuditJob."""

    next_run_at: Time | None = None
    """When the next run is due."""

    held: str | None = Field(default=None, max_length=512)
    """Why the operator lets no run begin at present, whatever the schedule says."""

    running: RunningStatus | None = None
    """The run that goes on."""

    last_run: RunStatus | None = None
    """The run that ended last."""

    last_verdict: RunStatus | None = None
    """The last one that came to a verdict."""


class StoreSnapshotStatus(Status):
    """Of a StoreSnapshot."""

    running: RunningStatus | None = None
    """The Job that takes it."""

    taken: RunStatus | None = None
    """What became of it."""
