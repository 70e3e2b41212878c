"""The table of what is easily got wrong: each item has its tests, and these exist."""

import ast
import itertools
from pathlib import Path

from tools.fingerprints import ROOT
from tools.generate import compatibility

ITEMS = 20


def _functions(file: Path) -> set[str]:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".rs":
        lines = [line.strip() for line in text.splitlines()]
        return {
            line.removeprefix("fn ").partition("(")[0]
            for before, line in itertools.pairwise(lines)
            if before == "#[test]" and line.startswith("fn ")
        }
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(text).body if isinstance(node, kinds) and node.name.startswith("test_")}


def test_every_item_is_there_and_has_a_test_or_a_reason() -> None:
    items = compatibility.subtle()
    assert list(items) == [str(number) for number in range(1, ITEMS + 1)]
    for number, item in items.items():
        assert item["title"], number
        assert bool(item.get("tests")) != bool(item.get("out")), number


def test_every_test_that_is_named_exists() -> None:
    named = [name for item in compatibility.subtle().values() for name in item.get("tests", [])]
    missing = []
    for name in named:
        file, _, function = name.partition("::")
        if not (ROOT / file).is_file() or function not in _functions(ROOT / file):
            missing.append(name)
    assert missing == []
