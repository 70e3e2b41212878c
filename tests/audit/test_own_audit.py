"""The example of an audit of one's own: installed as a package, found by its entry point, and run with the others."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from sterna_audit import main as command
from sterna_audit.audits import registry, running
from sterna_audit.audits.history import History, open_history
from sterna_audit.audits.registry import Audit
from sterna_audit.report.page import page
from sterna_audit.snapshots.stores import Directory
from typer.testing import CliRunner

from tests.audit.html_pages import Page
from tests.audit.kept import PLAIN, VERIFIER
from tests.audit.living import Living
from tools import uv
from tools.fingerprints import ROOT

NAME = "house-rules"


@pytest.fixture
def installed(tier_broker: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package, built and installed into a folder of its own, from which Python imports."""
    source, target = tmp_path / "source", tmp_path / "target"
    # What is built leaves nothing behind in the tree.
    shutil.copytree(ROOT / "examples" / "own_audit", source)
    alone = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    subprocess.run(
        (uv.UV, "pip", "install", *alone, "--python", sys.executable, "--target", target, source), check=True
    )
    monkeypatch.syspath_prepend(target)
    monkeypatch.delitem(sys.modules, "house_rules", raising=False)
    return target


def test_a_package_brings_an_audit_that_runs_with_ours(spark: SparkSession, installed: Path, tmp_path: Path) -> None:
    assert registry.names()[-1] == NAME
    result = CliRunner().invoke(command.app, ["list"])
    assert "house-rules    Messages keep to the rules of the house." in result.output
    living = Living(tmp_path / "store", 3)
    living.volatile = 0
    snapshots = Directory(tmp_path / "snapshots")
    living.cut(snapshots, PLAIN)
    living.send("orders", 40)
    living.send("bills", 1, size=70_000)
    living.cut(snapshots, PLAIN)
    living.stop()
    history = open_history(spark, snapshots, VERIFIER)
    audits = registry.audits([NAME, "conservation"])
    assert [one.name for one in audits] == ["conservation", NAME]
    done = running.run(history, audits, Directory(tmp_path / "out"))
    assert done.verdict == "violated"
    theirs = done.results[1]
    [large] = [one for one in theirs.findings if one.verdict == "violated"]
    assert (large.what, large.object, large.broker, large.cut) == ("too-large", "bills", "broker-3", 2)
    assert large.evidence["bytes"] > 70_000
    assert large.message.startswith("ID:broker-3.")
    assert {one.what for one in theirs.findings} == {"too-large", "all-urgent", "looked-at"}
    # What it says of its kinds is in the report.
    shown = Page(page(done, audits)).ids[f"audit-{NAME}"]
    assert "Ask its sender to put the body elsewhere." in shown.text
    assert large.message in shown.text


def test_one_that_fails_costs_itself_alone(spark: SparkSession, tmp_path: Path) -> None:
    living = Living(tmp_path / "store", 4)
    snapshots = Directory(tmp_path / "snapshots")
    living.cut(snapshots, PLAIN)
    living.stop()

    def broken(history: History) -> DataFrame:
        return history.events("nothing of that name")

    history = open_history(spark, snapshots, VERIFIER)
    audits = [Audit("broken", "It cannot be run.", broken), *registry.audits(["chain"])]
    done = running.run(history, audits, Directory(tmp_path / "out"))
    assert [bool(one.error) for one in done.results] == [True, False]
    assert "KeyError" in done.results[0].error
    assert "has no table events/nothing of that name" in done.results[0].error
    assert done.has_failed
