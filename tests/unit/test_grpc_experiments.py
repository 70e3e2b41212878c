"""Which grpcio is told to run without its event engine, and that users read of it. What it does: tests/broker."""

import os
import sys
from pathlib import Path

import pytest
from sterna._grpc_experiments import VARIABLE, WITHOUT_EVENT_ENGINE, choose_experiments

from bench.machine import conditions
from tools.fingerprints import ROOT
from tools.generate import figures


@pytest.mark.parametrize(
    ("records", "is_chosen"),
    [
        (["grpcio-1.79.2.dist-info"], False),
        (["grpcio-1.80.0rc1.dist-info"], True),
        (["grpcio-1.85.1.dist-info", "grpcio_status-1.90.0.dist-info"], True),
        (["grpcio-1.86.0.dist-info"], False),
        (["grpcio-2.0.dist-info"], False),
        (["grpcio-1.85.1.dist-info", "grpcio-1.86.0.dist-info"], False),
        ([], False),
    ],
)
def test_only_a_grpcio_that_was_tried_is_told(
    records: list[str], is_chosen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "grpc").mkdir()
    (tmp_path / "grpc" / "__init__.py").touch()
    for name in records:
        (tmp_path / name).mkdir()
    monkeypatch.delitem(sys.modules, "grpc", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(VARIABLE, "to be restored")
    monkeypatch.delenv(VARIABLE)
    choose_experiments()
    assert os.environ.get(VARIABLE) == (WITHOUT_EVENT_ENGINE if is_chosen else None)


@pytest.mark.parametrize("page", ["docs/sdk.md", "docs/broker.md"])
def test_the_documents_name_what_is_chosen(page: str) -> None:
    assert f"{VARIABLE}={WITHOUT_EVENT_ENGINE}" in (ROOT / page).read_text()


def test_figures_say_which_experiments_they_were_taken_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "-some")
    taken = conditions(tmp_path)
    assert taken["grpc_experiments"] == "-some"
    assert figures.grpcio_of(taken) == f"grpcio {taken['versions']['grpcio']}, `GRPC_EXPERIMENTS=-some`"
    # Figures that were kept before it was noted have grpcio's own way.
    assert figures.grpcio_of({"versions": {"grpcio": "1.85.1"}}) == "grpcio 1.85.1"


def test_the_tests_processes_run_as_our_programs_do() -> None:
    # tests/conftest.py has chosen, unless whoever runs the tests has.
    assert VARIABLE in os.environ
