"""AuditJob: snapshots of a cluster's stores and audits over them, again and again, by a schedule."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from sterna_resources.audit_parts import (
    KEYS_MAX,
    NAME_RULE,
    AuditConnection,
    AuditPod,
    AuditStorage,
    KeySecret,
    SnapshotPolicy,
    check_name,
)
from sterna_resources.audit_status import AuditJobStatus
from sterna_resources.cluster_access import refuse
from sterna_resources.fields import Model, section
from sterna_resources.resource import Resource
from sterna_resources.rules import Rule
from sterna_resources.topology import ClusterRef, Paused

# One of cron's shorthands, or five fields. What stands in the fields the API server checks, and the operator says.
SCHEDULE_PATTERN = (
    r"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)"
    r"|[-*/,0-9]+( [-*/,0-9]+)( [-*/,0-9]+)( [-*/,0-9a-zA-Z]+)( [-*/,0-9a-zA-Z]+))$"
)
_KEYS = "needs keys, or snapshots.unsigned: true if signatures need not be there, one of them"
# Names that begin with a dot are none of a folder's: they would lead out of it.
_FOLDER = "[-_a-zA-Z0-9][-_.a-zA-Z0-9]*"
_LEDGERS = rf"^(s3://[a-z0-9][-.a-z0-9]{{1,61}}[a-z0-9](/{_FOLDER})*|{_FOLDER}(/{_FOLDER})*)$"
_KEEP = r"^([1-9][0-9]{0,5}|[1-9][0-9]{0,5}d|[1-9][0-9]{0,5},[1-9][0-9]{0,5}d)$"


class Retention(Model):
    """What is kept in the volume or bucket. Absent fields: everything."""

    snapshots: Annotated[str, Field(max_length=16, pattern=_KEEP)] | None = None
    """Which snapshots: so many of the newest (`30`), those younger (`90d`), or those that are either (`30,90d`). The
    newest always stays, and of what goes a signed note stays, by which the chain can still be followed."""

    results: int | None = Field(default=None, ge=1, le=100_000)
    """The reports and findings of how many runs."""


class Spark(Model):
    """How Spark runs."""

    master: Annotated[str, Field(max_length=512, pattern=r"^(local(\[[0-9*,]+\])?|spark://[-.,:a-zA-Z0-9]+)$")] = (
        "local[*]"
    )
    """`local[*]`: in the pod itself, on as many cores as it has. `spark://HOST:PORT`: on that cluster, whose executors
    need pyarrow and have to reach the storage."""

    memory: Annotated[str, Field(min_length=2, max_length=16, pattern=r"^[1-9][0-9]{0,5}[mg]$")] = "2g"
    """The heap of Spark's driver, which with `local` is all of it: `2g`. `pod.resources` has to have room for it."""

    conf: dict[str, Annotated[str, Field(max_length=4_096)]] = Field(default_factory=dict, max_length=64)
    """More of Spark's own settings, by name: `spark.sql.shuffle.partitions: "64"`."""


class AuditJobSpec(Model):
    """What is audited, when, and where it is kept."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("(has(self.keys) && size(self.keys) > 0) != self.snapshots.unsigned", _KEYS, ".keys"),
        Rule(
            "!has(self.spark) || !has(self.spark.conf) || self.spark.conf.all(name, name.startsWith('spark.'))",
            "the names of Spark's settings begin with spark.",
            ".spark",
        ),
    )

    cluster_ref: ClusterRef
    """The cluster whose brokers are audited. Not changeable."""

    schedule: Annotated[str, Field(min_length=1, max_length=128, pattern=SCHEDULE_PATTERN)]
    """When, as cron writes it: minute, hour, day, month, day of the week. `0 3 * * *` is each night at three."""

    time_zone: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Z][-+_/a-zA-Z0-9]*$")] = "Etc/UTC"
    """The time zone of the schedule, such as `Europe/Zurich`."""

    suspend: bool = False
    """True: no run is begun. One that has begun goes on."""

    concurrency_policy: Literal["Forbid"] = "Forbid"
    """A run is never begun while another one goes on: that is not changeable."""

    starting_deadline_seconds: int = Field(default=3_600, ge=10, le=7 * 24 * 3600)
    """How late a run may begin that could not begin in time, because the cluster was being changed, say."""

    active_deadline_seconds: int = Field(default=6 * 3600, ge=60, le=7 * 24 * 3600)
    """How long a run may take. Then it is ended, and has failed."""

    successful_jobs_history_limit: int = Field(default=14, ge=1, le=100)
    """How many results are kept in Kubernetes of runs that found nothing violated, with their pods' logs."""

    failed_jobs_history_limit: int = Field(default=14, ge=1, le=100)
    """How many of runs that found something violated, or failed."""

    jobs: list[Annotated[str, Field(max_length=40, pattern="^[a-z][a-z0-9-]{0,39}$")]] = Field(
        default_factory=list, max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """The audits, by name (`sterna-audit list`). Empty: all."""

    snapshots: SnapshotPolicy
    """How snapshots are taken."""

    keys: list[KeySecret] = Field(default_factory=list, max_length=KEYS_MAX)
    """The public keys (PEM) whose signatures count."""

    storage: AuditStorage
    """Where snapshots and results are kept."""

    ledgers: Annotated[str, Field(min_length=1, max_length=512, pattern=_LEDGERS)] | None = None
    """Where the ledgers of clients are: an `s3://` address that the same credentials open, or a folder of the volume.
    Absent: there are none, and what only they can vouch for is not provable."""

    retention: Retention = section(Retention)
    """What is kept."""

    spark: Spark = section(Spark)
    """How Spark runs."""

    connect: AuditConnection = section(AuditConnection)
    """How brokers are reached."""

    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """The image of the audits. Absent: the operator's choice."""

    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When the image is fetched."""

    pod: AuditPod = section(AuditPod)
    """The pods' own fields."""

    paused: Paused | None = None
    """Present: the operator leaves the object and its runs alone, which go on by the schedule as it stands."""

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if bool(self.keys) == self.snapshots.unsigned:
            refuse("keys", _KEYS)
        if not all(name.startswith("spark.") for name in self.spark.conf):
            refuse("spark", "the names of Spark's settings begin with spark.")
        if len(set(self.jobs)) < len(self.jobs):
            refuse("jobs", "an audit is named twice")
        return self


class AuditJob(Resource):
    """Takes snapshots of a cluster's stores by a schedule, and audits them: did every message arrive exactly once?"""

    PLURAL: ClassVar[str] = "auditjobs"
    STATUS = AuditJobStatus
    RULES: ClassVar[tuple[Rule, ...]] = (NAME_RULE,)

    kind: Literal["AuditJob"] = "AuditJob"
    """`AuditJob`."""

    spec: AuditJobSpec
    """What is audited, when, and where it is kept."""

    @model_validator(mode="after")
    def _name_fits(self) -> Self:
        check_name(self.metadata.name)
        return self
