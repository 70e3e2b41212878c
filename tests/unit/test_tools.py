"""The house's checks can fail: each is shown something wrong."""

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from tools import fingerprints, tidy
from tools.fingerprints import ROOT
from tools.generate import __main__ as generate
from tools.generate import python_stubs
from tools.generate.generators import Generator


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository in which the build's steps work."""
    for module in (fingerprints, generate):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr("tools.generate.generators.ROOT", tmp_path)
    monkeypatch.setattr(fingerprints, "STAMPS", tmp_path / "build" / "stamps")
    (tmp_path / "source").write_text("one")
    return tmp_path


def copying(tree: Path) -> Generator:
    """A generator that copies `source` to `out/copy`."""

    def make(root: Path) -> None:
        (root / "out").mkdir()
        shutil.copy(tree / "source", root / "out" / "copy")

    return Generator("copying", ("source",), ("out",), make)


def test_what_was_generated_is_fresh_until_the_source_changes(tree: Path) -> None:
    generate.write(copying(tree))
    assert generate.check(copying(tree)) == []
    (tree / "source").write_text("two")
    assert "stale" in generate.check(copying(tree))[0]


def test_an_edited_missing_or_surplus_output_is_noticed(tree: Path) -> None:
    generator = copying(tree)
    assert generate.check(generator) == ["out/copy: missing"]
    generate.write(generator)
    (tree / "out" / "copy").write_text("edited")
    assert "out/copy: stale" in generate.check(generator)[0]
    generate.write(generator)
    (tree / "out" / "left").write_text("over")
    assert "nothing generates this file" in generate.check(generator)[0]
    generate.write(generator)
    assert not (tree / "out" / "left").exists()


def test_a_check_is_not_repeated_while_nothing_changed(tree: Path) -> None:
    generate.write(copying(tree))
    assert generate.check(copying(tree)) == []

    def never(root: Path) -> None:
        raise AssertionError("generated again")

    assert generate.check(Generator("copying", ("source",), ("out",), never)) == []


def test_stubs_move_below_the_sdk_but_descriptors_keep_their_names() -> None:
    source = "from sterna.v1 import message_pb2 as m\nBuild('sterna.v1.message_pb2', 'sterna/v1/message.proto')\n"
    moved = "from sterna._proto.sterna.v1 import message_pb2 as m\n"
    moved += "Build('sterna._proto.sterna.v1.message_pb2', 'sterna/v1/message.proto')\n"
    assert python_stubs.relocated(source) == moved


@pytest.mark.parametrize(
    ("name", "line", "problem"),
    [
        pytest.param("core/src/lib.rs", "// TO" + "DO: later", "note to self", id="note"),
        pytest.param("docs/a.md", "see /roo" + "t/here", "path of one machine", id="path"),
        pytest.param("requirements/a.txt", "https://py" + "pi.org/simple", "package index", id="index"),
        pytest.param("tests/unit/a.py", "time.sl" + "eep(1)", "fixed pause", id="pause"),
        pytest.param("tests/unit/a.py", "await asyncio.sl" + "eep(0.1)", "fixed pause", id="async-pause"),
        pytest.param("core/src/log/tests/a.rs", "std::thread::sl" + "eep(d);", "fixed pause", id="rust-pause"),
        pytest.param("core/src/log/tests.rs", "std::thread::sl" + "eep(d);", "fixed pause", id="rust-pause-in-one"),
    ],
)
def test_what_must_not_be_in_the_tree_is_found(name: str, line: str, problem: str) -> None:
    (found,) = tidy.line_problems(name, ["fine", line])
    assert found.startswith(f"{name}:2: ")
    assert problem in found


def test_giving_way_to_the_loop_is_no_pause() -> None:
    assert list(tidy.line_problems("tests/unit/a.py", ["await asyncio.sl" + "eep(0)"])) == []


def test_functions_are_measured_without_their_docstring() -> None:
    source = 'class A:\n    def f(self):\n        """Two\n        lines."""\n        return 1\n'
    assert list(tidy.functions(ast.parse(source))) == [("A.f", 2)]


def test_a_long_function_is_a_problem_and_so_is_a_needless_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def f():\n" + "    x = 1\n" * 80
    assert "f: 81 lines" in next(tidy.function_problems({"a.py": source}))
    monkeypatch.setattr(tidy, "ratchet", lambda: {"a.py::f": 81, "a.py::gone": 90})
    assert list(tidy.function_problems({"a.py": source})) == [
        "tidy_ratchet.txt: a.py::gone is short enough now: remove its line"
    ]


def _order(**modules: str) -> list[str]:
    return list(tidy.order_problems({f"client/sterna/{name}.py": source for name, source in modules.items()}))


def test_what_reaches_into_another_module_is_counted_and_what_stays_within_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tidy, "ratchet", dict)
    own = "class A:\n    def f(self, other):\n        self._x = other._x\n        super()._y\n        other.__dict__\n"
    assert _order(a=own) == []
    (found,) = _order(a=own, b="def f(a):\n    a._x\n    a.b._z()\n")
    assert "2, at most 0" in found
    assert "client/sterna/b.py 2" in found
    monkeypatch.setattr(tidy, "ratchet", lambda: {tidy.REACHES: 3})
    assert _order(b="def f(a):\n    a._x\n") == ["tidy_ratchet.txt: client/sterna/::reaches is 1 now: say so"]


def test_modules_that_import_one_another_are_a_circle_whatever_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidy, "ratchet", dict)
    back = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sterna.a import A\n"
    chain = {"a": "from sterna.b import B\n", "b": "def f():\n    from sterna import c\n"}
    assert _order(**chain, c="import asyncio\n") == []
    (found,) = _order(**chain, c=back)
    assert "1, at most 0" in found
    assert "sterna.a, sterna.b, sterna.c" in found
    monkeypatch.setattr(tidy, "ratchet", lambda: {tidy.CIRCLES: 1})
    assert _order(**chain) == ["tidy_ratchet.txt: client/sterna/::circles is 0 now: say so"]


@pytest.mark.usefixtures("tier_broker")
def test_what_is_missing_for_a_build_is_said_in_one_line(tmp_path: Path) -> None:
    for tool in ("bash", "sed", "dirname"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
    script = str(ROOT / "tools" / "find-python.sh")
    outcome = subprocess.run([script], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert outcome.returncode != 0
    (line,) = outcome.stderr.splitlines()
    assert "Python >= 3.11" in line
    assert "cargo >= 1.85" in line
