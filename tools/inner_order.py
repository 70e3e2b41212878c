"""How the SDK's modules stand to one another, in two counts that may only fall; part of the check of tidiness.

A **reach** is `x._name` where `x` is neither `self` nor `cls` (nor `super()`) and no class or function of the same
module defines `_name`: a module that uses what another keeps to itself. Names with two underscores at both ends are
Python's own. What one class of a module does with another of it, or with its own kind, is that module's business.

A module stands in a **circle** when following imports from it leads back to it. Imports in functions count, and so do
those for types alone (`if TYPE_CHECKING`): who can only be read together with another cannot be understood without it.
The generated stubs are left out, and so is the package itself, `sterna`, which hands out what the others define.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

#: What is looked at, and what of it is not.
ROOM = "client/sterna/"
_LEFT_OUT = ("client/sterna/_proto/", "client/sterna/__init__.py")


def room(sources: dict[str, str]) -> dict[str, ast.Module]:
    """The SDK's modules among these files, by file name."""
    return {
        name: ast.parse(source)
        for name, source in sources.items()
        if name.startswith(ROOM) and not name.startswith(_LEFT_OUT)
    }


def _is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def _defined(tree: ast.Module) -> set[str]:
    """The private names that a module's classes and functions define."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=ast.Tuple(elts=names)):
                found |= {one.value for one in names if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return {name for name in found if _is_private(name)}


def reaches(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each reach of a module, with its line."""
    own = _defined(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not _is_private(node.attr) or node.attr in own:
            continue
        match node.value:
            case ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super")):
                continue
        yield node.lineno, ast.unparse(node)


def _module(name: str) -> str:
    return name.removeprefix("client/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports(tree: ast.Module, modules: set[str]) -> set[str]:
    """The room's modules that one imports, wherever in it that stands."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inner & modules) or {node.module}
    return found & modules


def circles(trees: dict[str, ast.Module]) -> list[list[str]]:
    """Modules that lead to one another by imports, each circle sorted."""
    modules = {_module(name) for name in trees}
    edges = {_module(name): _imports(tree, modules) for name, tree in trees.items()}
    behind = {one: _reachable(one, edges) for one in edges}
    found: list[list[str]] = []
    for one in sorted(edges):
        if one in behind[one] and not any(one in circle for circle in found):
            found.append(sorted(other for other in behind[one] if one in behind[other]))
    return found


def _reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for other in edges[waiting.pop()] - found:
            found.add(other)
            waiting.append(other)
    return found


def counts(sources: dict[str, str]) -> tuple[Counter[str], list[list[str]]]:
    """The reaches by file, and the circles."""
    trees = room(sources)
    return Counter({name: count for name, tree in trees.items() if (count := len(list(reaches(tree))))}), circles(trees)
