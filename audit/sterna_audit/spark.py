"""Spark for audits: a session, what its executors have, and snapshots as DataFrames.

The same code runs on a laptop (`local[*]`) and on a cluster. What executors need besides Spark, if an audit asks for
it, is found out by a first tiny task, since the driver's own installation says nothing about theirs.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as T  # noqa: N812

from sterna_audit import schema
from sterna_audit.checksums import RowChecksum
from sterna_audit.columns import Kind
from sterna_audit.gateway import gateway
from sterna_audit.java import find_java
from sterna_audit.schema import Folder, Table
from sterna_audit.snapshots.reading import Snapshot

OLDEST = (4, 1)
_LOW_BITS = 0xFFFFFFFF
_TASKS = 8

#: Up to so many rows, of all tables together, are few: what Spark does for many takes longer than it saves.
FEW_ROWS_MAX = 500_000

#: Over many rows it pays to write and compile Java for each stage, and to plan again between stages. Over few ones that
#: takes far longer than the work itself: plans are interpreted, as they are made.
FEW: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}

#: Of a JVM that lives for a minute. What runs once is not worth the second compiler's time; without that its room for
#: compiled code is a fifth of the usual: full, all that follows is interpreted. One collector's thread does for a heap
#: of this size, where the usual one takes a tenth of both cores.
JAVA_FOR_FEW = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"

#: Over many rows both compilers are worth their time, but for what has run a few thousand times only: plans are many,
#: and most of what is compiled for one is of no use to the next. The collector that stops everything does the most work
#: in the least of two cores' time.
JAVA_FOR_MANY = (
    "-XX:+UseParallelGC -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=100000 -XX:Tier4BackEdgeThreshold=400000"
)

_SPARK: Mapping[Kind, T.DataType] = {
    "int64": T.LongType(),
    "int32": T.IntegerType(),
    "int16": T.ShortType(),
    "int8": T.ByteType(),
    "bool": T.BooleanType(),
    "string": T.StringType(),
}


class SparkError(Exception):
    """Spark cannot be used for audits; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Executors:
    """What the executors have, as far as one found out.

    Attributes:
        has_pyarrow: Arrow for Python, on each that was asked; the reader of s3:// without a connector needs it.
        has_selector: the engine's evaluator of selectors; without it the exact audit of bridges is not provable.
        python: the versions of their Python.
        why: what kept them from running Python at all; empty: nothing did.
    """

    has_pyarrow: bool
    has_selector: bool
    python: tuple[str, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        if self.why:
            return f"executors run no Python: {self.why}"
        pyarrow = "pyarrow" if self.has_pyarrow else "no pyarrow (no s3:// without a connector)"
        selector = (
            "the selectors' evaluator" if self.has_selector else "no evaluator of selectors (bridges: not provable)"
        )
        return f"executors have Python {', '.join(self.python)}, {pyarrow}, {selector}"


def check_version(version: str = pyspark.__version__) -> None:
    """SparkError if this Spark is too old."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise SparkError(f"Spark {version} is too old for audits: pip install 'pyspark>={oldest},<5'")


def session(
    master: str = "local[*]",
    *,
    name: str = "sterna-audit",
    ui: bool = False,
    memory: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session for audits; the one that there is, if there is one.

    Args:
        master: where it runs; `local[*]` are all cores of this machine.
        name: of the application.
        ui: whether Spark's web pages are served.
        memory: of the driver, which with a local master is all there is, such as `3g`; None: Spark's default.
        settings: of Spark, over those made here.

    Raises:
        SparkError: this Spark is too old.
        JavaError: there is no Java for it, or it does not start.
    """
    check_version()
    is_local = master.startswith("local")
    chosen = {**_settings(is_local=is_local, ui=ui, memory=memory), **(settings or {})}
    # What executors run has to be the driver's Python; on a cluster it has one of its own.
    if is_local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # Whatever this machine is called: the name of a container need not have an address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    if SparkSession.getActiveSession() is not None:
        return builder.getOrCreate()
    with gateway(find_java(), {"spark.master": master, "spark.app.name": name, **chosen}):
        return builder.getOrCreate()


def _settings(*, is_local: bool, ui: bool, memory: str | None) -> dict[str, str]:
    chosen = {
        # An overflow is an error and not a wrong sum; times are compared as they were written.
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        # Data frames of pandas are not used, so that nothing has to be converted.
        "spark.sql.execution.arrow.pyspark.enabled": "false",
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",
    }
    if memory is not None:
        chosen["spark.driver.memory"] = memory
    if is_local:
        cores = str(os.cpu_count() or 1)
        chosen |= {
            # Nobody else has to reach the driver, whatever this machine is called.
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": cores,
        }
    return chosen


def for_rows(master: str, rows: int) -> dict[str, str]:
    """The settings of a session on this machine that is to read so many rows; none where it runs elsewhere.

    On a cluster the executors' JVMs are others' business, and what an hour costs there is not the start.
    """
    if not master.startswith("local"):
        return {}
    if rows > FEW_ROWS_MAX:
        return {
            # One machine has as many partitions as cores: there is nothing to be split or put together between stages.
            "spark.sql.adaptive.enabled": "false",
            "spark.driver.extraJavaOptions": JAVA_FOR_MANY,
        }
    return {
        **FEW,
        "spark.driver.extraJavaOptions": JAVA_FOR_FEW,
        # Each sum and each sort of a task takes and clears one, usually of 16 MiB.
        "spark.buffer.pageSize": "1m",
        # Audits of many brokers name more files than a listing by tasks of their own is worth.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    }


def look(spark: SparkSession) -> Executors:
    """What the executors have, by a task that takes no time but the start of their Python."""

    # A function within one is sent as it is: executors need not have this package.
    def found(_: Iterable[int]) -> Iterable[tuple[str, bool, bool]]:
        def has(module: str) -> bool:
            try:
                return importlib.util.find_spec(module) is not None
            except ImportError:
                return False

        yield ".".join(map(str, sys.version_info[:3])), has("pyarrow"), has("sterna_core.selector")

    try:
        answers = spark.sparkContext.parallelize(range(_TASKS), _TASKS).mapPartitions(found).collect()
    except Exception as error:  # noqa: BLE001 - py4j's own, Spark's or Java's: whatever it is, audits go on without
        return Executors(has_pyarrow=False, has_selector=False, why=first_line(error))
    return Executors(
        has_pyarrow=all(pyarrow for _, pyarrow, _ in answers),
        has_selector=all(selector for _, _, selector in answers),
        python=tuple(sorted({python for python, _, _ in answers})),
    )


def knows(spark: SparkSession, uri: str) -> bool:
    """Whether Spark can read and write at this URI by itself: it has a connector for its scheme."""
    jvm: Any = spark.sparkContext._jvm
    java: Any = spark.sparkContext._jsc
    try:
        jvm.org.apache.hadoop.fs.Path(uri).getFileSystem(java.hadoopConfiguration())
    except Exception:  # noqa: BLE001 - py4j's own, Hadoop's or Java's: whatever it is, Spark cannot
        return False
    return True


def first_line(error: Exception) -> str:
    """What an error of Spark or Java says, without its trace."""
    text = str(error) if isinstance(error, PySparkException) else str(getattr(error, "java_exception", error))
    return next((line for line in text.splitlines() if line.strip()), type(error).__name__)[:300]


def struct(table: Table) -> T.StructType:
    """A table's columns as Spark has them. All may be without a value: older snapshots lack newer columns."""
    return T.StructType([T.StructField(column.name, _SPARK[column.kind]) for column in table.columns])


def read_table(spark: SparkSession, root: str, snapshots: Iterable[Snapshot], folder: Folder, name: str) -> DataFrame:
    """One table of snapshots, by Spark's own reader of Parquet: the files that their manifests name, and no others.

    Args:
        spark: the session.
        root: of the store, in a form that Spark knows.
        snapshots: which, with their manifests.
        folder: `state` or `events`.
        name: of the table.
    """
    table = schema.table(folder, name)
    paths = [
        f"{root.rstrip('/')}/{snapshot.path}/{file}"
        for snapshot in snapshots
        if snapshot.manifest is not None
        for file in snapshot.manifest.files_of(folder, name)
    ]
    return spark.read.schema(struct(table)).parquet(*paths) if paths else nothing(spark, struct(table))


def nothing(spark: SparkSession, schema: T.StructType) -> DataFrame:
    """No rows, which Spark knows while it plans: what is joined with them it leaves out.

    Of rows that come from Python, none too, it takes that there may be any number.
    """
    return spark.createDataFrame([], schema).limit(0)


def row_checksums(rows: DataFrame, table: Table) -> dict[str, RowChecksum]:
    """The checksum of the rows of each file, by the file's URI, as `checksums` computes it."""
    hashed = rows.select(
        F.col("_metadata.file_path").alias("file"),
        F.xxhash64(*table.names).alias("hash"),
    )
    sums = hashed.groupBy("file").agg(
        F.count("*").alias("rows"),
        F.sum(F.col("hash").bitwiseAND(F.lit(_LOW_BITS).cast("long"))).alias("low"),
        F.sum(F.shiftrightunsigned("hash", 32)).alias("high"),
    )
    return {row["file"]: RowChecksum(row["rows"], (row["high"] << 32) + row["low"]) for row in sums.collect()}
