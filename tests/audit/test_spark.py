"""Spark for audits: which Java and which Spark, what executors have, and sums that do not overflow."""

import importlib.util
import platform
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sterna_audit import schema
from sterna_audit.java import JavaError, find_java
from sterna_audit.spark import (
    FEW,
    FEW_ROWS_MAX,
    JAVA_FOR_FEW,
    JAVA_FOR_MANY,
    Executors,
    SparkError,
    check_version,
    for_rows,
    look,
    read_table,
    session,
)


def test_the_session_computes_as_audits_need_it(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    with pytest.raises(Exception, match="OVERFLOW"):
        spark.sql("select sum(x) from values (9223372036854775807L), (1L) as t(x)").collect()
    assert spark.sparkContext.uiWebUrl is None
    # Asked again it is the same.
    assert session("local[2]") is spark


@pytest.mark.parametrize(
    ("master", "rows", "java"),
    [
        ("local[2]", 0, JAVA_FOR_FEW),
        ("local[*]", FEW_ROWS_MAX, JAVA_FOR_FEW),
        ("local[*]", FEW_ROWS_MAX + 1, JAVA_FOR_MANY),
        ("spark://there:7077", 1, None),
        ("spark://there:7077", FEW_ROWS_MAX + 1, None),
    ],
)
def test_few_rows_on_this_machine_are_worth_no_compiler(master: str, rows: int, java: str | None) -> None:
    settings = for_rows(master, rows)
    assert settings.get("spark.driver.extraJavaOptions") == java
    assert (set(settings) >= set(FEW)) == (java == JAVA_FOR_FEW)
    assert bool(settings) == (java is not None)


def test_what_executors_have_is_found_out_by_a_task(spark: SparkSession) -> None:
    found = look(spark)
    assert found.why == ""
    assert found.python == (platform.python_version(),)
    assert found.has_pyarrow
    assert found.has_selector == _has("sterna_core.selector")
    assert "executors have Python" in str(found)


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def test_what_executors_lack_is_said() -> None:
    assert "not provable" in str(Executors(has_pyarrow=True, has_selector=False, python=("3.11.7",)))
    assert "no connector" not in str(Executors(has_pyarrow=True, has_selector=True, python=("3.11.7",)))
    assert "run no Python: gone" in str(Executors(has_pyarrow=False, has_selector=False, why="gone"))


def test_a_table_of_no_snapshot_has_its_columns(spark: SparkSession) -> None:
    found = read_table(spark, "/nowhere", [], "events", "ends")
    assert found.columns == list(schema.table("events", "ends").names)
    assert found.count() == 0


@pytest.mark.parametrize("version", ["4.1.0", "4.3.0", "4.10.0.dev1", "5.0.0"])
def test_a_spark_that_is_new_enough(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["3.5.3", "4.0.1", "?"])
def test_a_spark_that_is_too_old_is_refused(version: str) -> None:
    with pytest.raises(SparkError, match="too old for audits: pip install"):
        check_version(version)


def program(folder: Path, script: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("tier_spark")
def test_java_is_found_by_java_home_and_else_on_the_path(tmp_path: Path) -> None:
    old = program(tmp_path / "old", "echo 'openjdk version \"1.8.0_412\"' >&2")
    new = program(tmp_path / "new", "echo 'openjdk version \"21.0.2\" 2024-01-16' >&2")
    found = find_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": str(old.parent)})
    assert (found.program, found.version) == (new, 21)
    assert find_java({"PATH": str(new.parent)}).version == 21
    with pytest.raises(JavaError, match="is Java 8, too old for Spark: install Java 17"):
        find_java({"PATH": str(old.parent)})
    with pytest.raises(JavaError, match="no program java on PATH: install Java 17"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaError, match=r"JAVA_HOME is .*nothing, where bin/java is no program"):
        find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": str(new.parent)})
    broken = program(tmp_path / "broken", "echo no; exit 3")
    with pytest.raises(JavaError, match="says no version: 'no'"):
        find_java({"PATH": str(broken.parent)})
