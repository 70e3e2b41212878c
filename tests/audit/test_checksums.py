"""The checksum of rows is Spark's own: the same from Arrow's batches and from Spark SQL, whatever the rows."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from sterna_audit.checksums import RowChecksum, of_batch, row_hashes

TYPES: dict[str, tuple[pa.DataType, str]] = {
    "a": (pa.int64(), "long"),
    "b": (pa.string(), "string"),
    "c": (pa.int32(), "int"),
    "d": (pa.int16(), "short"),
    "e": (pa.int8(), "byte"),
    "f": (pa.bool_(), "boolean"),
    "g": (pa.string(), "string"),
}
BITS = {"long": 63, "int": 31, "short": 15, "byte": 7}
Row = tuple[Any, ...]


def drawn(rng: random.Random, kind: str) -> Any:
    if rng.random() < 0.2:
        return None
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "string":
        # Around the steps of the hash, and well beyond; of one to four bytes each.
        length = rng.choice((0, 1, 3, 4, 5, 7, 8, 9, 12, 31, 32, 33, 63, 64, 65, 100, 1_000))
        return "".join(rng.choice("aß€😀\0") for _ in range(length))
    most = 1 << BITS[kind]
    return rng.choice((0, -1, 1, most - 1, -most, rng.randrange(-most, most)))


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [[] for _ in TYPES]
    arrays = [pa.array(list(column), kind) for column, (kind, _) in zip(columns, TYPES.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(TYPES))


def test_each_row_has_the_hash_that_spark_gives_it(spark: SparkSession) -> None:
    rng = random.Random(7)
    rows = [tuple(drawn(rng, kind) for _, kind in TYPES.values()) for _ in range(800)]
    frame = spark.createDataFrame(rows, ", ".join(f"{name} {kind}" for name, (_, kind) in TYPES.items()))
    numbered = frame.select(F.xxhash64(*TYPES)).collect()
    assert row_hashes(batch_of(rows)).view(np.int64).tolist() == [row[0] for row in numbered]


def test_known_hashes() -> None:
    # As Spark 4.3 shows them: `select xxhash64(1L), xxhash64(''), xxhash64(null)`.
    assert row_hashes(pa.record_batch({"a": pa.array([1], pa.int64())})).view(np.int64).tolist() == [
        -7001672635703045582
    ]
    assert row_hashes(pa.record_batch({"a": ["", None]})).view(np.int64).tolist() == [-7444071767201028348, 42]


@given(st.randoms(use_true_random=False), st.integers(0, 40))
def test_neither_order_nor_division_counts(rng: random.Random, count: int) -> None:
    rows = [tuple(drawn(rng, kind) for _, kind in TYPES.values()) for _ in range(count)]
    whole = of_batch(batch_of(rows))
    rng.shuffle(rows)
    at = rng.randrange(count + 1)
    batch = batch_of(rows)
    assert of_batch(batch.slice(0, at)) + of_batch(batch.slice(at)) == whole
    if rows:
        assert of_batch(batch.slice(1)) != whole


def test_a_column_that_older_rows_lack_changes_nothing() -> None:
    old = pa.record_batch({"a": pa.array([1, 2], pa.int64())})
    new = pa.record_batch({"a": pa.array([1, 2], pa.int64()), "b": pa.array([None, None], pa.int32())})
    assert of_batch(old) == of_batch(new)


def test_what_no_snapshot_has_is_refused() -> None:
    with pytest.raises(TypeError, match="double"):
        of_batch(pa.record_batch({"a": [1.5]}))
    assert RowChecksum() == of_batch(batch_of([]))
