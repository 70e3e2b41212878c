"""The rows of snapshots as DataFrames, each with whose they are and of which cut.

Spark's own reader of Parquet reads them where Spark knows the root's scheme. Columns `place` (a number, see `History`),
`cut` and `file` (its path within the snapshot) come from a file's path; who does not ask for one does not pay for it.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.schema import Folder
from sterna_audit.snapshots.layout import CUT_DIGITS, Place
from sterna_audit.snapshots.reading import Snapshot
from sterna_audit.spark import read_table

# A file's path ends with cluster, broker, cut, folder and file.
_STEPS_OF_BROKER = -5
_STEPS_OF_CUT = -3
_STEPS_OF_FILE = -2


class Reader(Protocol):
    """Reads tables of snapshots."""

    def read(self, folder: Folder, name: str, snapshots: Sequence[Snapshot]) -> DataFrame:
        """The table's rows of these snapshots, with `place`, `cut` and `file` behind its own columns."""
        ...


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

    def read(self, folder: Folder, name: str, snapshots: Sequence[Snapshot]) -> DataFrame:
        """See `Reader`."""
        rows = read_table(self._spark, self._root, snapshots, folder, name)
        cuts = {snapshot.number for snapshot in snapshots}
        places = {snapshot.place for snapshot in snapshots}
        if not places:
            nothing = F.lit(None)
            return rows.select(
                "*",
                nothing.cast("int").alias("place"),
                nothing.cast("long").alias("cut"),
                nothing.cast("string").alias("file"),
            )
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
            "*",
            place.cast("int").alias("place"),
            cut.cast("long").alias("cut"),
            F.substring_index(path, "/", _STEPS_OF_FILE).alias("file"),
        )
