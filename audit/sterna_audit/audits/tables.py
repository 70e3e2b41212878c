"""The rows of snapshots as DataFrames, each with whose they are and of which cut.

Spark's own reader of Parquet reads them where Spark knows the root's scheme, and Arrow where it does not. Columns
`place` (a number, see `History`), `cut` and `file` (its path within the snapshot) are those that no file has; who does
not ask for one does not pay for it.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
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
        cuts = {snapshot.number for snapshot in snapshots}
        places = {snapshot.place for snapshot in snapshots}
        if not places:
            return rows.select(*wanted, *(F.lit(None).cast(kind).alias(added) for added, kind in _ADDED.items()))
        path = F.col("_metadata.file_path")
        # What is the same everywhere costs nothing.
        if len(cuts) == 1:
            cut = F.lit(next(iter(cuts)))
        else:
            cut = F.substring(F.substring_index(path, "/", _STEPS_OF_CUT), 1, CUT_DIGITS)
        if len(places) == 1:
            place = F.lit(self._places[next(iter(places))])
        else:
            broker = F.substring_index(F.substring_index(path, "/", _STEPS_OF_BROKER), "/", 2)
            known = F.create_map(*(F.lit(value) for one in places for value in (str(one), self._places[one])))
            place = F.element_at(known, broker)
        return rows.select(
            *wanted,
            place.cast("int").alias("place"),
            cut.cast("long").alias("cut"),
            F.substring_index(path, "/", _STEPS_OF_FILE).alias("file"),
        )


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
