"""A run of audits from snapshots to the report: what `sterna-audit run` and `sterna-audit job` are both made of.

Into `out` go the findings (`audits.running`) and `report.html`. Spark runs for that long, unless it did before.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from sterna_audit.audits import running
from sterna_audit.audits.declared import Declarations
from sterna_audit.audits.history import Bound, find, history_of
from sterna_audit.audits.ledger_files import Converted, convert
from sterna_audit.audits.registry import Audit
from sterna_audit.audits.running import Run
from sterna_audit.report.page import HTML, page
from sterna_audit.snapshots.keys import Verifier
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.stores import Bucket, Store
from sterna_audit.spark import for_rows, knows, look, session

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Spark:
    """Where Spark runs.

    Attributes:
        master: as Spark has it, `local[*]` for instance.
        memory: of the driver, as `3g`; empty: Spark's default.
        settings: of Spark, over ours.
    """

    master: str = "local[*]"
    memory: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Auditing:
    """What is audited.

    Attributes:
        audits: which audits.
        snapshots: where the snapshots are.
        places: whose.
        verifier: whose signatures count; None: there need be none.
        out: where to the findings and the report go; those of an earlier run are replaced.
        ledgers: where clients' ledgers are; None: there are none.
        manifests: what the configuration should be; None: nobody says.
        start: see `open_history`.
        end: see `open_history`.
    """

    audits: Sequence[Audit]
    snapshots: Store
    places: Sequence[Place]
    verifier: Verifier | None
    out: Store
    ledgers: Store | None = None
    manifests: Declarations | None = None
    start: Bound | None = None
    end: Bound | Mapping[Place, Bound] | None = None


class OutError(ValueError):
    """Findings cannot be written where they should go; the text says why."""


def run(what: Auditing, where: Spark, tell: Tell) -> Run:
    """Runs the audits, and writes what they found.

    How much there is to read is known before Spark starts, which is set up for it.

    Raises:
        HistoryError: there is nothing to audit.
        OutError: Spark cannot write to `out`.
        StoreError: a store does not answer.
        JavaError, SparkError: Spark cannot be used.
        PySparkException: Spark failed.
    """
    tell("verifying manifests, links and files …")
    brokers = find(what.snapshots, what.verifier, start=what.start, end=what.end, places=what.places)
    with _ledgers(what.ledgers, what.out, tell) as ledgers:
        rows = sum(one.rows for one in brokers) + (sum(ledgers.rows.values()) if ledgers else 0)
        with running_spark(where, tell, rows=rows) as spark:
            _check_out(spark, what.out)
            history = history_of(spark, what.snapshots, brokers)
            history.ledgers, history.manifests = ledgers, what.manifests
            what.out.remove(HTML)
            done = running.run(history, what.audits, what.out, tell)
    what.out.put(HTML, page(done, what.audits).encode())
    return done


def report(out: Store) -> str:
    """Where the report is, for people."""
    return f"{out.uri.rstrip('/')}/{HTML}"


@contextmanager
def running_spark(where: Spark, tell: Tell, *, rows: int) -> Iterator[SparkSession]:
    """A session for that long, and what its executors have; set up for so many rows, where it starts here."""
    is_ours = SparkSession.getActiveSession() is None
    settings = {"spark.log.level": "ERROR", **(for_rows(where.master, rows) if is_ours else {}), **where.settings}
    spark = session(where.master, memory=where.memory or None, settings=settings)
    try:
        executors = look(spark)
        tell(f"Spark {spark.version} at {spark.sparkContext.master}: {executors}")
        yield spark
    finally:
        if is_ours:
            spark.stop()


def _check_out(spark: SparkSession, out: Store) -> None:
    """Whether findings can be written there: without a connector they go by this machine, and executors have to."""
    is_here = str(spark.sparkContext.master).startswith("local")
    if isinstance(out, Bucket) and not is_here and not knows(spark, out.uri):
        raise OutError(
            "Spark has no connector for s3://, by which executors would write findings there: name a folder that all of"
            " them share, or give Spark a connector"
        )


@contextmanager
def _ledgers(source: Store | None, target: Store, tell: Tell) -> Iterator[Converted | None]:
    """The ledgers become tables, beside the findings, for as long as they are needed."""
    if source is None:
        yield None
        return
    folder = "ledgers"
    try:
        yield convert(source, target, folder, tell)
    finally:
        target.remove_folder(folder)
