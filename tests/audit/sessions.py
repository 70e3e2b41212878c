"""How a Spark of the tests is set up: for plans that run once, over a few rows each."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession
from sterna_audit.spark import FEW, for_rows

from tests.support.seeds import is_complete


def settings() -> dict[str, str]:
    """Of a session: as for few rows; `make test-all` makes plans as they are for many."""
    chosen = for_rows("local[2]", rows=0)
    return {"spark.log.level": "ERROR"} | {
        name: value for name, value in chosen.items() if not (is_complete() and name in FEW)
    }


@contextmanager
def as_for_large(spark: SparkSession) -> Iterator[None]:
    """Plans are made and run as those of large tables are: they are what is looked at, or there are many rows."""
    before = {name: spark.conf.get(name) or "" for name in FEW}
    for name in FEW:
        spark.conf.unset(name)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
