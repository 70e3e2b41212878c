"""How a Spark of the tests is set up: for plans that run once, over a few rows each."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from tests.support.seeds import is_complete

#: Of a JVM that lives for minutes. What runs once is not worth the second compiler's time; without that its room for
#: compiled code is a fifth of the usual: full, all that follows is interpreted. One collector's thread does for a heap
#: of this size, where the usual one takes a tenth of both cores.
JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"

#: What Spark does for large tables: it writes and compiles Java for each stage, and plans again between stages. Over
#: hundreds of rows that takes far longer than the work itself. `make test-all` has all of it.
_FOR_LARGE = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}


def settings() -> dict[str, str]:
    """Of a session."""
    return {
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": JAVA,
        # Each sum and each sort of a task takes and clears one, usually of 16 MiB.
        "spark.buffer.pageSize": "1m",
        # Audits of many brokers name more files than a listing by tasks of their own is worth.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        **({} if is_complete() else _FOR_LARGE),
    }


@contextmanager
def as_for_large(spark: SparkSession) -> Iterator[None]:
    """Plans are made and run as those of large tables are: they are what is looked at, or there are many rows."""
    before = {name: spark.conf.get(name) or "" for name in _FOR_LARGE}
    for name in _FOR_LARGE:
        spark.conf.unset(name)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
