"""The table of defects says what finds each, and is itself held to that."""

import re
from pathlib import Path

import pytest

from tools import defects, mutants
from tools.defects import Defect, DefectsError, Run
from tools.fingerprints import ROOT


def test_the_table_is_complete() -> None:
    table = defects.table()
    assert defects.complaints(table, defects.runs()) == []
    points = {one.number // 100 for one in table if one.number < 5000}
    assert points == set(range(1, 14)), "each of the thirteen points"


@pytest.mark.parametrize(
    ("one", "written", "word"),
    [
        (Defect(1, "x"), {}, "nothing finds it"),
        (Defect(1, "x", simulator=True), {}, "runs.tsv says otherwise"),
        (Defect(1, "x", tests=("a::b",)), {1: Run(1, 2, "3", "lost")}, "runs.tsv says otherwise"),
        (Defect(1, "x", outside=("tests/unit/test_defects.py::test_that_is_gone",)), {}, "there is no test"),
        (Defect(1, "x", outside=("tests/unit/test_of_nothing.py::test_this",)), {}, "there is no test"),
    ],
)
def test_what_nothing_finds_is_told(one: Defect, written: dict[int, Run], word: str) -> None:
    told = [line for line in defects.complaints([one], written) if line.startswith("defect ")]
    assert len(told) == 1, told
    assert word in told[0]


def test_a_patch_without_a_line_is_told() -> None:
    assert any("stands in no line" in line for line in defects.complaints([], {}))


def test_a_defect_without_a_patch_is_told() -> None:
    with pytest.raises(DefectsError, match="0 patches named 9999"):
        defects.patch_of(9999)


def test_runs_read_back_as_they_were_written(tmp_path: Path) -> None:
    found = [Run(2, 2**63, "1-4,9", "lost\tor not"), Run(1, 5, "", "doubled")]
    defects.write_runs(found, tmp_path / "build" / "runs.tsv")
    assert defects.runs(tmp_path / "build" / "runs.tsv") == {run.number: run for run in found}


@pytest.mark.parametrize("before", ["", "test sim::run::hunt::hunt ... "])
@pytest.mark.usefixtures("tier_broker")
def test_what_a_run_says_is_heard_on_a_machine_with_one_core_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: str
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho 'running 1 test'\necho '{before}HUNT fails it is lost'\n")
    program.chmod(0o755)
    monkeypatch.setattr(defects, "COPY", tmp_path)
    assert defects.ask(program, [], 20.0) == (0, "fails it is lost")


def test_survivors_are_known_wherever_their_line_is_now(tmp_path: Path) -> None:
    (tmp_path / "known.tsv").write_text("# mutant, why\nsrc/a.rs: replace < with <= in f\tnever equal\n")
    name = mutants.without_line("src/a.rs:12:40: replace < with <= in f")
    assert mutants.known(tmp_path / "known.tsv") == {name: "never equal"}


def test_every_known_survivor_has_a_reason() -> None:
    assert all(why.strip() for why in mutants.known().values())


def test_a_survivor_that_has_a_reason_is_not_among_those_that_nobody_has_looked_into() -> None:
    assert not mutants.unjudged() & mutants.known().keys()


def test_what_the_engines_tests_read_of_the_rest_of_the_tree_lies_beside_the_copy_with_the_mutants() -> None:
    sources = (ROOT / "core" / "src").rglob("*.rs")
    found = [Path(name) for path in sources for name in re.findall(r'"\.\./([^"]+)"', path.read_text())]
    assert found
    assert [name for name in found if not name.is_relative_to(mutants.BESIDE)] == []
