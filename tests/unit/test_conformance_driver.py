"""The conformance suite runs against whatever its driver reaches: only that and the fixtures know what it is."""

import ast
from pathlib import Path

import pytest

from tools.fingerprints import ROOT

SUITE = ROOT / "tests" / "conformance"
#: What knows it, and may.
KNOW_IT = {"conftest.py", "sterna_provider.py"}
#: Values that only say which type of JMS they are.
VALUES = {"Array", "Byte", "Char", "Double", "Float", "Int", "Long", "MapBody", "Object", "Short", "StreamBody"}
OURS = ("sterna", "sterna_broker", "sterna_core", "sterna_resources", "grpc", "tests.running")


@pytest.mark.parametrize("file", sorted(SUITE.glob("*.py")), ids=lambda file: file.name)
def test_only_the_fixtures_know_the_implementation(file: Path) -> None:
    if file.name in KNOW_IT:
        return
    reached = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            reached += [one.name for one in node.names if one.name.startswith(OURS)]
        elif isinstance(node, ast.ImportFrom) and node.module == "sterna":
            reached += [one.name for one in node.names if one.name not in VALUES]
        elif isinstance(node, ast.ImportFrom):
            module = str(node.module)
            reached += [module] if module.startswith(OURS) or module.endswith(".sterna_provider") else []
    assert reached == []
