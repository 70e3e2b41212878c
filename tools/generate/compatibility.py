"""docs/compatibility/: what of other products holds here, from the marks of tests, the catalogue's titles and tables.

The marks are read from the source, so that no test has to be imported: `covers("…")` in Python, `// covers: …` in
Rust, with ids as literals. The tables are tests/conformance/differences*.toml and subtle.toml. That every row of the
areas in `COMPLETE` stands somewhere is seen to by tests/unit/test_compatibility.py.
"""

import ast
import tomllib
from pathlib import Path
from typing import Any

from tools import catalogue
from tools.coverage_report import rust_rows
from tools.fingerprints import ROOT, files_below

#: By product.
TABLES = {
    "EMS": "tests/conformance/differences.toml",
    "UM": "tests/conformance/differences_um.toml",
    "FMQ": "tests/conformance/differences_fiorano.toml",
}
SUBTLE = "tests/conformance/subtle.toml"
EMS_PAGE = "docs/compatibility/ems.md"
OTHERS_PAGE = "docs/compatibility/um-fiorano.md"
INPUTS = ("tools/generate/compatibility.py", "tools/coverage_report.py", "tools/catalogue.py", "tests", "core/src")
OUTPUTS = (EMS_PAGE, OTHERS_PAGE)

#: The areas that are listed: those that have rows that are shown, or are different.
AREAS = {
    "MSG": "Messages",
    "DEST": "Destinations",
    "CLI": "Clients, subscriptions and selectors",
    "TX": "Transactions",
    "STORE": "Stores",
    "SEC": "Security",
    "HA": "Availability",
    "ADMIN": "Administration and configuration",
    "MON": "Monitoring",
    "PERF": "Performance",
}
#: The areas of which every row is shown, different or missing.
COMPLETE = {"EMS": ("MSG", "DEST", "CLI", "TX", "STORE"), "UM": ("DEST", "CLI"), "FMQ": ("DEST", "CLI")}

_EMS_HEAD = """\
# Sterna and TIBCO EMS

What somebody relies on who has used EMS, row by row of our catalogue of its features. **Shown** means that a test
names the row, and fails when it does not hold; [the suite](../../tests/conformance/README.md) is written to be read.
**Differently** is on purpose, and says how. **Missing** is not there, or not yet. Rows that stand nowhere here have not
been looked at one by one. [Universal Messaging and FioranoMQ](um-fiorano.md) have a page of their own.
"""
_OTHERS_HEAD = """\
# Sterna, Universal Messaging and FioranoMQ

What somebody finds who has used one of these two, row by row of our catalogue of their features; the words are those
of [the page for EMS](ems.md), whose rows have the details. **Where products disagree, EMS wins**: so much here is
different. Of destinations and clients every row is listed. Of all else only what a test shows is, and the rest has not
been looked at one by one.
"""
_COLUMNS = "\n| | rows | shown | differently | missing |\n|---|---:|---:|---:|---:|"


def shown_in_python() -> set[str]:
    """The ids that stand as literals in calls of `covers`."""
    found: set[str] = set()
    for file in files_below(ROOT / "tests"):
        if file.suffix != ".py" or "covers(" not in (text := file.read_text(encoding="utf-8")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "covers":
                values = (argument.value for argument in node.args if isinstance(argument, ast.Constant))
                found.update(value for value in values if isinstance(value, str))
    return found


def shown() -> set[str]:
    """The rows that tests show, in either language."""
    return shown_in_python() | set(rust_rows()[0])


def table(product: str) -> dict[str, dict[str, str]]:
    """The differences and what is missing of a product, by row.

    Raises:
        ValueError: it names a row that the catalogue does not have, or another product has, or has another part.
    """
    name = TABLES[product]
    read: dict[str, dict[str, str]] = tomllib.loads((ROOT / name).read_text(encoding="utf-8"))
    if set(read) != {"different", "missing"}:
        raise ValueError(f"{name}: has the parts {sorted(read)}, and not different and missing")
    listed = [id for part in read.values() for id in part]
    if unknown := catalogue.unknown(listed):
        raise ValueError(f"{name}: not in the catalogue: {', '.join(unknown)}")
    if others := [id for id in listed if catalogue.rows()[id].product != product]:
        raise ValueError(f"{name}: not of {catalogue.PRODUCTS[product]}: {', '.join(others)}")
    return read


def subtle() -> dict[str, dict[str, Any]]:
    """What is easily got wrong, by its number in the catalogue: a title and tests, or why it is out."""
    read: dict[str, dict[str, Any]] = tomllib.loads((ROOT / SUBTLE).read_text(encoding="utf-8"))
    return read


def _counts(product: str, seen: set[str], told: dict[str, dict[str, str]]) -> list[str]:
    """A table with how many rows of each area are what."""
    lines = [_COLUMNS]
    for area, title in _areas(product, seen, told).items():
        ids = {row.id for row in catalogue.rows().values() if (row.product, row.area) == (product, area)}
        counts = (len(ids), *(len(ids & set(part)) for part in (seen, told["different"], told["missing"])))
        lines.append(f"| {title} | {' | '.join(str(count) for count in counts)} |")
    return lines


def _areas(product: str, seen: set[str], told: dict[str, dict[str, str]]) -> dict[str, str]:
    """The areas of which there is something to say, with their titles."""
    listed = {*seen, *told["different"], *told["missing"]}
    found = {row.area for row in catalogue.rows().values() if row.product == product and row.id in listed}
    return {area: title for area, title in AREAS.items() if area in found}


def _rows(product: str, seen: set[str], told: dict[str, dict[str, str]], heading: str) -> list[str]:
    """A table for each area, with what is to be said of its rows."""
    lines: list[str] = []
    for area, title in _areas(product, seen, told).items():
        lines += ["", f"{heading} {title}", "", "| row | | | what is different, or missing |", "|---|---|---|---|"]
        for row in catalogue.rows().values():
            words = [
                *(["shown"] if row.id in seen else []),
                *(["differently"] if row.id in told["different"] else []),
                *(["missing"] if row.id in told["missing"] else []),
            ]
            if words and (row.product, row.area) == (product, area):
                text = " ".join(told[part][row.id] for part in ("different", "missing") if row.id in told[part])
                lines.append(f"| {row.id} | {_cell(row.title)} | {', '.join(words)} | {_cell(text)} |")
    return lines


def ems_page() -> str:
    """The whole page for EMS."""
    seen, told = shown(), table("EMS")
    lines = [_EMS_HEAD.rstrip("\n"), *_counts("EMS", seen, told), *_rows("EMS", seen, told, "##")]
    lines += ["", "## What is easily got wrong", "", "| | | shown by |", "|---:|---|---|"]
    for number, item in subtle().items():
        tests = "<br>".join(f"`{name.rpartition('/')[2]}`" for name in item.get("tests", [])) or _cell(item["out"])
        lines.append(f"| {number} | {_cell(item['title'])} | {tests} |")
    return "\n".join(lines) + "\n"


def others_page() -> str:
    """The whole page for Universal Messaging and FioranoMQ."""
    seen = shown()
    lines = [_OTHERS_HEAD.rstrip("\n")]
    for product in ("UM", "FMQ"):
        told = table(product)
        lines += ["", f"## {catalogue.PRODUCTS[product]}", *_counts(product, seen, told)]
        lines += _rows(product, seen, told, f"### {catalogue.PRODUCTS[product]}:")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")


def make(root: Path) -> None:
    """Leaves the pages below `root`."""
    for name, page in ((EMS_PAGE, ems_page()), (OTHERS_PAGE, others_page())):
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page, encoding="utf-8")
