"""The selector table of the core, through the compiled module: what it finds there has to come out here as well.

Python has one whole number and one floating-point number, a long and a double to the engine. The entries whose outcome
needs a narrower type are left to the table's other reader, `core/src/selector/tests/table.rs`; `_needs_width` says
which.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sterna_core import Selector, SelectorError, selector_check

Entry = dict[str, Any]
Field = bool | int | float | str | None

TABLE = Path(__file__).parents[2] / "core" / "src" / "selector" / "tests" / "selectors.json"
ENTRIES: list[Entry] = json.loads(TABLE.read_text(encoding="utf-8"))
ROWS = [
    pytest.param("EMS-CLI-A10", marks=pytest.mark.covers("EMS-CLI-A10")),
    pytest.param("EMS-CLI-A11", marks=pytest.mark.covers("EMS-CLI-A11")),
    pytest.param("EMS-CLI-A12", marks=pytest.mark.covers("EMS-CLI-A12")),
    pytest.param("EMS-CLI-A13", marks=pytest.mark.covers("EMS-CLI-A13")),
    pytest.param("EMS-CLI-A14", marks=pytest.mark.covers("EMS-CLI-A14")),
    pytest.param("EMS-CLI-A15", marks=pytest.mark.covers("EMS-CLI-A15")),
    pytest.param("EMS-CLI-A16", marks=pytest.mark.covers("EMS-CLI-A16")),
    pytest.param("EMS-CLI-A17", marks=pytest.mark.covers("EMS-CLI-A17")),
    pytest.param("EMS-CLI-A18", marks=pytest.mark.covers("EMS-CLI-A18")),
    pytest.param("EMS-CLI-A19", marks=pytest.mark.covers("EMS-CLI-A19")),
    pytest.param("EMS-MSG-A10", marks=pytest.mark.covers("EMS-MSG-A10")),
]

# Twice this is the first whole number that an int cannot hold: from here on a sum of two of them tells int from long.
HALF_OF_INT = 1 << 30


def given(entry: Entry) -> dict[str, Any]:
    """Header fields and properties, which are one name space to a selector."""
    headers = entry.get("headers", {})
    assert not headers.keys() & entry["properties"].keys(), entry
    return {**headers, **entry["properties"]}


def _needs_width(value: object) -> bool:
    """Whether an outcome may depend on a type that Python lacks: any float, and an int that can overflow."""
    if not isinstance(value, dict):
        return False
    [(kind, number)] = value.items()
    return kind == "float" or (kind in ("byte", "short", "int") and abs(number) >= HALF_OF_INT)


def is_left_out(entry: Entry) -> bool:
    """Whether only the other reader of the table can run an entry."""
    return any(_needs_width(value) for value in given(entry).values())


def plain(value: Any) -> Field:
    """A value of the table as Python has it."""
    if not isinstance(value, dict):
        assert value is None or isinstance(value, bool | int | float | str)
        return value
    [(kind, typed)] = value.items()
    if kind == "double":
        return float(typed)
    assert isinstance(typed, str if kind == "char" else int), f"no such type: {kind}"
    return typed


def problem(entry: Entry) -> str:
    """What is wrong with what comes of an entry; empty if nothing is."""
    text, expect, undelivered = entry["selector"], entry["expect"], entry.get("scope") == "undelivered"
    try:
        selector = Selector(text, undelivered)
        selector_check(text, undelivered)
    except SelectorError as error:
        if expect != "error":
            return f"is refused: {error}"
        wrong_place = error.offset != entry.get("offset", error.offset)
        return f"points at {error.offset}: {error.rendered}" if wrong_place else ""
    if expect == "error":
        return "is accepted"
    fields = {name: plain(value) for name, value in given(entry).items()}
    found = (selector.evaluate(fields), selector.matches(fields))
    return "" if found == (str(expect).lower(), expect is True) else f"gives {found}"


@pytest.mark.parametrize("row", ROWS)
def test_the_table_holds_in_python(row: str) -> None:
    run = [entry for entry in ENTRIES if entry["row"] == row and not is_left_out(entry)]
    assert len(run) >= 5
    failures = [f"{entry}\n  {wrong}" for entry in run if (wrong := problem(entry))]
    assert not failures, "\n".join(failures)


def test_a_refusal_is_the_same_from_both_faces() -> None:
    refused = [entry for entry in ENTRIES if entry["expect"] == "error"]
    assert len(refused) > 50
    for entry in refused:
        undelivered = entry.get("scope") == "undelivered"
        with pytest.raises(SelectorError) as checked:
            selector_check(entry["selector"], undelivered)
        with pytest.raises(SelectorError) as made:
            Selector(entry["selector"], undelivered)
        assert vars(checked.value) == vars(made.value)


def test_few_entries_are_left_out_and_every_row_is_run() -> None:
    left_out = Counter(entry["row"] for entry in ENTRIES if is_left_out(entry))
    assert set(left_out) <= {"EMS-CLI-A12", "EMS-CLI-A13"}
    assert 0 < left_out.total() <= 8
    assert {entry["row"] for entry in ENTRIES} == {param.values[0] for param in ROWS}
