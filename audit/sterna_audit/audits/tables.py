"""The rows of snapshots as DataFrames, each with whose they are and of which cut.

Spark's own reader of Parquet reads them where Spark knows the root's scheme, and Arrow where it does not. Columns
`place` (a number, see `History`), `cut` and `file` (its path within the snapshot) are those that no file has; who does
not ask for one does not pay for it.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as T  # noqa: N812

from sterna_audit import arrow_source, schema
from sterna_audit.schema import Folder
from sterna_audit.snapshots.layout import CUT_DIGITS, Place
from sterna_audit.snapshots.reading import Snapshot
from sterna_audit.snapshots.stores import Bucket, Store
from sterna_audit.spark import read_table, struct

# A file's path ends with cluster, broker, cut, folder and file.
_STEPS_OF_BROKER = -5
_STEPS_OF_CUT = -3
_STEPS_OF_FILE = -2
#: So many files at most are told from one another by comparing.
_COMPARED_MAX = 8
_ADDED = {"place": T.IntegerType(), "cut": T.LongType(), "file": T.StringType()}


class Reader(Protocol):
    """Reads tables of snapshots."""

    def read(self, folder: Folder, name: str, snapshots: Sequence[Snapshot], columns: Sequence[str] = ()) -> DataFrame:
        """The rows of a table.

        Args:
            folder: `state` or `events`.
            name: of the table.
            snapshots: of which.
            columns: which of its columns; none: all of them. `place`, `cut` and `file` come behind them.
        """
        ...


def reader(spark: SparkSession, store: Store, places: Mapping[Place, int], root: str | None = None) -> Reader:
    """Who reads the tables of a store: Spark itself if it can, and else Arrow.

    Args:
        spark: the session.
        store: where the snapshots are.
        places: the numbers that stand for clusters and brokers.
        root: the store's root as Spark knows it; None: its URI.

    Raises:
        SparkError: neither can; the text says what is missing.
    """
    if root is None and arrow_source.is_needed(store, spark):
        return ArrowReader(spark, store, places)
    return NativeReader(spark, root or store.uri, places)


class NativeReader:
    """By Spark's own reader.

    Args:
        spark: the session.
        root: of the store, in a form that Spark knows.
        places: the numbers that stand for clusters and brokers.
    """

    def __init__(self, spark: SparkSession, root: str, places: Mapping[Place, int]) -> None:
        self._spark = spark
        self._root = root
        self._places = places

    def read(self, folder: Folder, name: str, snapshots: Sequence[Snapshot], columns: Sequence[str] = ()) -> DataFrame:
        """See `Reader`."""
        rows = read_table(self._spark, self._root, snapshots, folder, name)
        wanted = columns or schema.table(folder, name).names
        files = [(one, file) for one in snapshots if one.manifest for file in one.manifest.files_of(folder, name)]
        if not files:
            return rows.select(*wanted, *(F.lit(None).cast(kind).alias(added) for added, kind in _ADDED.items()))
        path = F.col("_metadata.file_path")
        return rows.select(
            *wanted,
            self._place(path, {one.place for one, _ in files}).cast("int").alias("place"),
            _cut(path, files).cast("long").alias("cut"),
            F.substring_index(path, "/", _STEPS_OF_FILE).alias("file"),
        )

    def _place(self, path: Column, places: set[Place]) -> Column:
        # What is the same everywhere costs nothing.
        if len(places) == 1:
            return F.lit(self._places[next(iter(places))])
        broker = F.substring_index(F.substring_index(path, "/", _STEPS_OF_BROKER), "/", 2)
        known = F.create_map(*(F.lit(value) for one in places for value in (str(one), self._places[one])))
        return F.element_at(known, broker)


def _cut(path: Column, files: Sequence[tuple[Snapshot, str]]) -> Column:
    """The number of the cut that a file is of, which its path says."""
    cuts = sorted({snapshot.number for snapshot, _ in files})
    if len(cuts) == 1:
        return F.lit(cuts[0])
    ends = sorted({(snapshot.number, file) for snapshot, file in files})
    if len(ends) > _COMPARED_MAX:
        return F.substring(F.substring_index(path, "/", _STEPS_OF_CUT), 1, CUT_DIGITS)
    # It is done for each row, and to compare the ends of paths is cheaper than to look for steps in them.
    found = F.lit(cuts[-1])
    for number, file in ends:
        if number != cuts[-1]:
            found = F.when(F.endswith(path, F.lit(f"/{number:0{CUT_DIGITS}}/{file}")), number).otherwise(found)
    return found


class ArrowReader:
    """By Arrow on the executors, of a bucket for whose scheme Spark has no connector.

    Args:
        spark: the session.
        store: the bucket.
        places: the numbers that stand for clusters and brokers.
    """

    def __init__(self, spark: SparkSession, store: Bucket, places: Mapping[Place, int]) -> None:
        self._spark = spark
        self._store = store
        self._places = places

    def read(self, folder: Folder, name: str, snapshots: Sequence[Snapshot], columns: Sequence[str] = ()) -> DataFrame:
        """See `Reader`. Spark asks for all of a source's columns: who names those that are needed reads no others."""
        table = schema.table(folder, name)
        kinds = {one.name: one.dataType for one in struct(table).fields} | _ADDED
        wanted = [*(columns or table.names), *_ADDED]
        files = [
            arrow_source.File(
                f"{snapshot.path}/{file}",
                snapshot.manifest.files[file].rows,
                {"place": self._places[snapshot.place], "cut": snapshot.number, "file": file},
            )
            for snapshot in snapshots
            if snapshot.manifest is not None
            for file in snapshot.manifest.files_of(folder, name)
        ]
        of_spark = T.StructType([T.StructField(column, kinds[column]) for column in wanted])
        return arrow_source.read(self._spark, self._store, table.title, files, of_spark)
