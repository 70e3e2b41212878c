"""Parquet files of an object store for which Spark has no connector: read by Arrow, in Python, on the executors.

A data source of Spark (`pyspark.sql.datasource`) that takes by option which table it reads, of which files, and which
columns of it; Spark itself asks Python for all of a source's columns. Whoever can, reads by Spark's own reader, which
is faster and needs no Python on executors.

Executors need pyarrow, and have to be told who we are as this program is: by the environment, a profile, or their
machine. What is sent to them holds no secret.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from threading import Lock
from typing import Any, TypeGuard

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sterna_audit.snapshots.stores import Bucket, Store
from sterna_audit.spark import SparkError, knows, look, nothing

NAME = "sterna-arrow"
_registering = Lock()
#: A task reads so many rows of a large file, and of small ones as many as have so many rows.
_TASK_ROWS = 1 << 20
_TASK_FILES = 64


@dataclass(frozen=True, slots=True)
class File:
    """A file that is read.

    Attributes:
        path: below the store's root.
        rows: how many it has, or about as many.
        values: of columns that are the same in all its rows, and not in the file.
    """

    path: str
    rows: int
    values: Mapping[str, int | str] = field(default_factory=dict)


def is_needed(store: Store, spark: SparkSession) -> TypeGuard[Bucket]:
    """Whether it is this that has to read a store: Spark does not know its scheme.

    Raises:
        SparkError: this cannot either; the text says what executors lack.
    """
    if not isinstance(store, Bucket) or knows(spark, store.uri):
        return False
    executors = look(spark)
    if not executors.has_pyarrow:
        lack = executors.why or f"their Python {', '.join(executors.python)} has no pyarrow"
        raise SparkError(
            f"{store.uri} cannot be read: Spark has no connector for s3://, and its executors cannot do without one:"
            f" {lack}. Install pyarrow there, or give Spark a connector: see docs/audits/audits.md"
        )
    return True


def read(spark: SparkSession, store: Bucket, table: str, files: Sequence[File], columns: StructType) -> DataFrame:
    """The rows of files.

    Args:
        spark: the session.
        store: where they are.
        table: what to call them, in plans.
        files: which.
        columns: which of their columns, and of those that the files' `values` are. One that a file does not have has no
            value there: an older snapshot lacks newer columns.
    """
    if not files:
        return nothing(spark, columns)
    register(spark)
    options = {
        "table": table,
        "columns": ",".join(columns.fieldNames()),
        "store": json.dumps(store.reach),
        "files": json.dumps([asdict(one) | {"path": store.whole(one.path)} for one in files]),
    }
    return spark.read.format(NAME).options(**options).schema(columns).load()


def register(spark: SparkSession) -> None:
    """Makes the source known to a session; again and again, where it is already.

    One after the other: audits run beside each other, and of two that make it known for the first time Spark may refuse
    the second, which finds between two looks that it has come.
    """
    with _registering:
        spark.dataSource.register(_source())


@cache
def _source() -> type[DataSource]:
    """The source. A class within a function is sent as it is: executors need not have this package."""
    task_rows, task_files = _TASK_ROWS, _TASK_FILES

    class Files(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader(self.options["columns"].split(","), self.options["store"], self.options["files"], schema)

    class Reader(DataSourceReader):
        def __init__(self, columns: list[str], store: str, files: str, schema: StructType) -> None:
            assert columns == schema.fieldNames(), "the columns asked for are those of the schema"
            self.types = {one.name: one.dataType.simpleString() for one in schema.fields}
            self.store = store
            self.files = files

        def partitions(self) -> Sequence[InputPartition]:
            tasks: list[list[dict[str, Any]]] = []
            rows = task_rows
            for one in json.loads(self.files):
                parts = max(1, -(-one["rows"] // task_rows))
                for part in range(parts):
                    if rows >= task_rows or len(tasks[-1]) >= task_files:
                        tasks.append([])
                        rows = 0
                    tasks[-1].append({**one, "part": part, "parts": parts})
                    rows += one["rows"] // parts
            return [InputPartition(task) for task in tasks]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import pyarrow as pa
            import pyarrow.parquet as pq
            from pyarrow import fs

            kinds: dict[str, Any] = {
                "bigint": pa.int64(),
                "int": pa.int32(),
                "smallint": pa.int16(),
                "tinyint": pa.int8(),
                "boolean": pa.bool_(),
                "string": pa.string(),
            }
            wanted: Any = pa.schema([(name, kinds[kind]) for name, kind in self.types.items()])
            system = fs.S3FileSystem(**json.loads(self.store))
            for one in partition.value:
                with system.open_input_file(one["path"]) as opened, pq.ParquetFile(opened, pre_buffer=True) as file:
                    count, part, parts = file.num_row_groups, one["part"], one["parts"]
                    groups = range(part * count // parts, (part + 1) * count // parts)
                    there = [name for name in file.schema_arrow.names if name in self.types]
                    # Of a file of which nothing is wanted how many rows it has is.
                    chosen = there or file.schema_arrow.names[:1]
                    for batch in file.iter_batches(row_groups=list(groups), columns=chosen):
                        rows = batch.num_rows
                        arrays = []
                        for column in wanted:
                            if column.name in there:
                                array = batch.column(column.name).cast(column.type)
                            elif column.name in one["values"]:
                                array = pa.repeat(pa.scalar(one["values"][column.name], column.type), rows)
                            else:
                                array = pa.nulls(rows, column.type)
                            arrays.append(array)
                        yield pa.RecordBatch.from_arrays(arrays, schema=wanted)

    return Files
