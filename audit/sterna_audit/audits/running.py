"""A run of audits over a history: what they found into Parquet and JSON, and one verdict of it all.

    <out>/findings/<audit>/*.parquet
    <out>/findings.json

Two audits run at a time: while one's plan is made, by one core, the executors have the other's. Each has a history of
its own, so that what one keeps goes with it.

The JSON is written last. It has of each audit how many findings of each verdict there are, and the worst of them, at
most 1,000; all of them are in the Parquet files.
"""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from sterna_audit import surroundings
from sterna_audit.audits import findings
from sterna_audit.audits.findings import COLLECTED_MAX, VERDICTS, Finding, Verdict
from sterna_audit.audits.history import History
from sterna_audit.audits.registry import Audit
from sterna_audit.snapshots.stores import Directory, Store, StoreError
from sterna_audit.spark import first_line, knows

#: Of the JSON.
VERSION = 1
JSON = "findings.json"
_FILES = 8
#: So many audits run at a time.
AT_ONCE = 2


@dataclass(frozen=True)
class Result:
    """What an audit found.

    Attributes:
        name: the audit's.
        about: what it proves.
        counts: how many findings of each verdict there are.
        findings: the worst of them, at most `COLLECTED_MAX`.
        seconds: how long it took.
        error: why it did not come to an end; empty: it did.
    """

    name: str
    about: str
    counts: Mapping[Verdict, int]
    findings: tuple[Finding, ...]
    seconds: float
    error: str = ""

    @property
    def verdict(self) -> Verdict:
        """The worst of its findings; an audit that found nothing to say proved nothing."""
        if self.error:
            return "not provable"
        return next((verdict for verdict in VERDICTS if self.counts.get(verdict)), "not provable")


@dataclass(frozen=True)
class Run:
    """What a run found.

    Attributes:
        results: of each audit, in the order in which they were asked for.
        range: of each broker which cuts, and what cannot be judged.
        began_ms: when, milliseconds since 1970.
        seconds: how long all of them together took; since two run at a time, less than the sum of theirs.
    """

    results: tuple[Result, ...]
    range: tuple[Mapping[str, Any], ...] = field(default=())
    began_ms: int = 0
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        return min((result.verdict for result in self.results), key=VERDICTS.index, default="not provable")

    @property
    def has_failed(self) -> bool:
        """Whether an audit did not come to an end."""
        return any(result.error for result in self.results)

    def values(self) -> dict[str, Any]:
        """As the JSON has it."""
        return {
            "version": VERSION,
            "verdict": self.verdict,
            "began_ms": self.began_ms,
            "seconds": round(self.seconds, 3),
            "brokers": list(self.range),
            "audits": [
                {
                    "name": result.name,
                    "about": result.about,
                    "verdict": result.verdict,
                    "counts": dict(result.counts),
                    "seconds": round(result.seconds, 3),
                    "error": result.error,
                    "findings": [asdict(finding) for finding in result.findings],
                }
                for result in self.results
            ],
        }


def run(history: History, audits: Iterable[Audit], out: Store, progress: Callable[[str], None] = lambda _: None) -> Run:
    """Runs audits and writes what they found. What was written there by an earlier run is replaced.

    `progress` is told of each when it begins and when it has ended, by whichever thread runs it.

    Raises:
        StoreError: `out` does not take it.
    """
    began_ms, began_s = surroundings.wall_ms(), surroundings.monotonic_s()
    out.remove(JSON)

    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sterna-audit")

    def told(audit: Audit) -> Result:
        progress(f"{audit.name} …")
        history.spark.sparkContext.setJobDescription(audit.name)  # in Spark's own pages; of this thread's jobs alone
        try:
            result = _run_one(replace(history), audit, out)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # before this thread takes the next
            raise
        counted = ", ".join(f"{count} {verdict}" for verdict, count in result.counts.items() if count)
        progress(f"{audit.name}: {result.verdict} ({result.error or counted or 'nothing'}), {result.seconds:.1f} s")
        return result

    try:
        running: list[Future[Result]] = [pool.submit(told, audit) for audit in audits]
        results = tuple(one.result() for one in running)
    finally:
        # Whoever has had enough, and who cannot write, waits for those that run and for no other.
        pool.shutdown(cancel_futures=True)
    done = Run(results, tuple(_range(history)), began_ms, surroundings.monotonic_s() - began_s)
    out.put(JSON, json.dumps(done.values(), ensure_ascii=False, indent=1, sort_keys=True).encode())
    return done


def _range(history: History) -> Iterable[Mapping[str, Any]]:
    for broker in history.brokers:
        yield {
            "cluster": broker.place.cluster,
            "broker": broker.place.broker,
            "first": broker.first,
            "last": broker.last,
            "intervals": len(broker.intervals),
            "unproven": list(broker.unproven),
            "time_ms": {
                str(cut): manifest.cut.time_ms
                for cut, manifest in sorted(broker.snapshots.items())
                if cut in (broker.first, broker.last)
            },
        }


def _run_one(history: History, audit: Audit, out: Store) -> Result:
    began = surroundings.monotonic_s()
    folder = f"findings/{audit.name}"
    out.remove_folder(folder)
    try:
        with _Kept(history, audit.run(history), out, folder) as kept:
            rows = kept.orderBy(*findings.order()).limit(COLLECTED_MAX).collect()
            counts = _counts(kept, rows)
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001 - an audit is anybody's, and one that fails costs itself alone
        why = (
            first_line(error) if isinstance(error, PySparkException) else f"{type(error).__name__}: {first_line(error)}"
        )
        return Result(audit.name, audit.about, {}, (), surroundings.monotonic_s() - began, error=why)
    finally:
        history.release()
    collected = tuple(findings.finding_of(row.asDict()) for row in rows)
    return Result(audit.name, audit.about, counts, collected, surroundings.monotonic_s() - began)


def _counts(kept: DataFrame, worst: Sequence[Row]) -> dict[Verdict, int]:
    """How many findings of each verdict there are; Spark counts only where the worst are not all of them."""
    if len(worst) < COLLECTED_MAX:
        found = Counter(row["verdict"] for row in worst)
    else:
        found = Counter({row["verdict"]: row["count"] for row in kept.groupBy("verdict").count().collect()})
    return {verdict: found[verdict] for verdict in VERDICTS}


class _Kept:
    """Findings that were computed once, and are read from where they are kept.

    Where Spark does not know the store's scheme they are written beside it, on this machine, and then brought there:
    that is for a driver that runs the executors, too.
    """

    def __init__(self, history: History, found: DataFrame, out: Store, folder: str) -> None:
        self._history = history
        self._found = found
        self._out = out
        self._folder = folder
        self._here: Path | None = None

    def __enter__(self) -> DataFrame:
        if isinstance(self._out, Directory) or knows(self._history.spark, self._out.uri):
            path = f"{self._out.uri.rstrip('/')}/{self._folder}"
        else:
            self._here = Path(tempfile.mkdtemp(prefix="sterna-audit-"))
            path = f"{self._here}/{self._folder}"
        spark = self._history.spark
        self._found.select(*findings.SCHEMA.fieldNames()).coalesce(_FILES).write.mode("overwrite").parquet(path)
        if self._here is not None:
            self._bring(self._here)
        return spark.read.schema(findings.SCHEMA).parquet(path).na.fill("").na.fill(0)

    def _bring(self, here: Path) -> None:
        for file in sorted((here / self._folder).glob("*.parquet")):
            output = self._out.create(f"{self._folder}/{file.name}")
            with file.open("rb") as data:
                while piece := data.read(1 << 20):
                    output.write(piece)
            output.finish()

    def __exit__(self, *_: object) -> None:
        if self._here is not None:
            shutil.rmtree(self._here, ignore_errors=True)


def worst(run: Run, count: int) -> list[tuple[str, Finding]]:
    """The worst findings of a run, each with its audit's name."""
    found = [(result.name, finding) for result in run.results for finding in result.findings]
    ranked = sorted(found, key=lambda one: (VERDICTS.index(one[1].verdict), findings.SEVERITIES.index(one[1].severity)))
    return [one for one in ranked if one[1].verdict != "ok"][:count]
