"""What has to happen at an end happens also when whoever ends it is cancelled there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_ROOMS = ("broker", "client", "etcd", "operator", "crds")
_WAITS = (ast.Await, ast.AsyncFor)


def _waits(node: ast.AST) -> bool:
    return any(isinstance(one, _WAITS) for one in ast.walk(node))


def _behind_a_wait(statements: list[ast.stmt]) -> Iterator[int]:
    """Lines of what a cancellation skips: whatever follows an await, also in the next turn of a loop."""
    waited = False
    for statement in statements:
        if waited:
            yield statement.lineno
        if isinstance(statement, ast.For | ast.While | ast.AsyncFor) and _waits(statement):
            yield statement.lineno
        if isinstance(statement, ast.If):
            yield from _behind_a_wait(statement.body)
            yield from _behind_a_wait(statement.orelse)
        # The callbacks of an AsyncExitStack run all, whichever of them is cancelled.
        waited = waited or _waits(statement)


def _found(source: str) -> list[int]:
    blocks = [node.finalbody for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Try)]
    return [line for block in blocks for line in _behind_a_wait(block)]


@pytest.mark.parametrize("room", _ROOMS)
def test_nothing_stands_behind_an_await_in_a_finally(room: str) -> None:
    files = sorted((_ROOT / room).rglob("*.py"))
    assert files
    found = [f"{file.relative_to(_ROOT)}:{line}" for file in files for line in _found(file.read_text())]
    assert found == []


def test_what_is_looked_for_is_found() -> None:
    for body in ("await a()\n  b()", "for a in b:\n   await a()", "if a:\n   await a()\n   b()"):
        assert _found(f"async def f():\n try:\n  pass\n finally:\n  {body}\n") != [], body
    for body in ("b()\n  await a()", "for a in b:\n   a()", "async with a:\n   b()"):
        assert _found(f"async def f():\n try:\n  pass\n finally:\n  {body}\n") == [], body
