"""The page by the reasons of `kubectl get`: it has a row for each that the operator can give, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sterna_operator.reasons import Reason
from sterna_resources.status import PENDING

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/kubernetes/troubleshooting.md").read_text()

# Who takes a reason as its first argument, and Condition, which has it as the third.
_FIRST = {"ready", "reconciling", "stalled", "UnusableError", "PasswordFaultError"}
_WORD = re.compile(r"([A-Z][a-z]+)+")


def rows(heading: str) -> set[str]:
    """What the table below a heading has in its first column."""
    part = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE))


def _words(node: ast.AST | None) -> Iterator[str]:
    """Reasons that an expression may come to."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _WORD.fullmatch(node.value):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from (*_words(node.body), *_words(node.orelse))


def reasons_of(source: str) -> set[str]:
    """The reasons of conditions that a module writes out."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            at = 0 if name in _FIRST else 2 if name == "Condition" else None
            if at is not None and len(node.args) > at:
                found.update(_words(node.args[at]))
        elif isinstance(node, ast.Assign) and [getattr(one, "id", "") for one in node.targets] == ["reason"]:
            found.update(_words(node.value))
        elif isinstance(node, ast.Assign) and [getattr(one, "id", "") for one in node.targets] == ["_REASONS"]:
            assert isinstance(node.value, ast.Dict)
            found.update(word for one in node.value.values for word in _words(one))
        elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
            # A fault: its reason, and its words.
            said = node.elts[1].values if isinstance(node.elts[1], ast.JoinedStr) else [node.elts[1]]
            is_text = any(isinstance(one, ast.Constant) and " " in str(one.value) for one in said)
            found.update(_words(node.elts[0]) if is_text else ())
        elif isinstance(node, ast.FunctionDef):
            defaults = zip(reversed(node.args.args), reversed(node.args.defaults), strict=False)
            found.update(word for one, value in defaults if one.arg == "reason" for word in _words(value))
    return found


def of_conditions() -> set[str]:
    """All that the operator's modules write out, and what the server fills in before an operator has looked."""
    modules = sorted((ROOT / "operator/sterna_operator").rglob("*.py"))
    return {PENDING.reason, *(reason for module in modules for reason in reasons_of(module.read_text()))}


def test_reasons_are_found_wherever_they_are_written() -> None:
    assert reasons_of('conditions.stalled("Big", text)') == {"Big"}
    assert reasons_of('x = UnusableError("Big" if y else "Small", "z")') == {"Big", "Small"}
    assert reasons_of('Condition(READY, "True", "Fine", "")') == {"Fine"}
    assert reasons_of('reason = "One" if a else "Two"') == {"One", "Two"}
    assert reasons_of('_REASONS = {"fine": "Ok", "bad": "Bad"}') == {"Ok", "Bad"}
    assert reasons_of('fault = ("Lost", f"it {x}"), ("Pod", f"{x}-0")') == {"Lost"}
    assert reasons_of('def ready(reason: str = "Applied", message: str = ""): ...') == {"Applied"}
    assert reasons_of('Ref("v1", "Secret")') == set()


def test_each_reason_of_a_condition_has_a_row_and_each_row_a_reason() -> None:
    found = of_conditions()
    events = set(Reason.__members__)
    told = rows("Reasons of conditions")
    assert found - told == set(), "docs/kubernetes/troubleshooting.md does not say what to do about these"
    # Some are handed over by the names of their events.
    assert told - found - events == set(), "no condition can have these"


def test_each_reason_of_an_event_stands_in_one_of_the_tables() -> None:
    conditions, events = rows("Reasons of conditions"), rows("Reasons of events")
    assert set(Reason.__members__) == (conditions | events) & set(Reason.__members__)
    assert events <= set(Reason.__members__)
    assert not conditions & events
