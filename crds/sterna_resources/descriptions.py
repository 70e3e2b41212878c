"""What the docstrings under fields say, read when a schema wants it.

Pydantic can collect them itself, but does so while each class is made: half of the time that a broker takes to start
would go into reading source code whose comments it never shows.
"""

import ast
import inspect
import sys
from functools import cache


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


@cache
def of_fields(model: type) -> dict[str, str]:
    """The text below each field of a model, its bases' included; line ends become part of the text as they stand."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        node = _classes(base.__module__).get(base.__name__) if base.__module__.startswith("sterna_") else None
        if node is None:
            continue
        for field, text in zip(node.body, node.body[1:], strict=False):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if (
                isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                found[field.target.id] = inspect.cleandoc(text.value.value)
    return found
