"""docs/compatibility/ems.md: what of EMS holds here, made from the marks of tests, the catalogue's titles and a table.

The marks are read from the source, so that no test has to be imported: `covers("…")` in Python, `// covers: …` in
Rust, with ids as literals. The tables are tests/conformance/differences.toml and subtle.toml.
"""

import ast
import tomllib
from pathlib import Path
from typing import Any

from tools import catalogue
from tools.coverage_report import rust_rows
from tools.fingerprints import ROOT, files_below

TABLE = "tests/conformance/differences.toml"
SUBTLE = "tests/conformance/subtle.toml"
PAGE = "docs/compatibility/ems.md"
INPUTS = ("tools/generate/compatibility.py", "tools/coverage_report.py", "tools/catalogue.py", "tests", "core/src")
OUTPUTS = (PAGE,)

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

_HEAD = """\
# Sterna and TIBCO EMS

What somebody relies on who has used EMS, row by row of our catalogue of its features. **Shown** means that a test
names the row, and fails when it does not hold; [the suite](../../tests/conformance/README.md) is written to be read.
**Differently** is on purpose, and says how. **Missing** is not there, or not yet. Rows that stand nowhere here have not
been looked at one by one.

| | rows | shown | differently | missing |
|---|---:|---:|---:|---:|
"""


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


def table() -> dict[str, dict[str, str]]:
    """The differences and what is missing, by row.

    Raises:
        ValueError: it names a row that the catalogue does not have, or has another part.
    """
    read: dict[str, dict[str, str]] = tomllib.loads((ROOT / TABLE).read_text(encoding="utf-8"))
    if set(read) != {"different", "missing"}:
        raise ValueError(f"{TABLE}: has the parts {sorted(read)}, and not different and missing")
    if unknown := catalogue.unknown([id for part in read.values() for id in part]):
        raise ValueError(f"{TABLE}: not in the catalogue: {', '.join(unknown)}")
    return read


def subtle() -> dict[str, dict[str, Any]]:
    """What is easily got wrong, by its number in the catalogue: a title and tests, or why it is out."""
    read: dict[str, dict[str, Any]] = tomllib.loads((ROOT / SUBTLE).read_text(encoding="utf-8"))
    return read


def page() -> str:
    """The whole page."""
    shown = shown_in_python() | set(rust_rows()[0])
    told = table()
    rows = [row for row in catalogue.rows().values() if row.product == "EMS" and row.area in AREAS]
    lines = [_HEAD.rstrip("\n")]
    for area, title in AREAS.items():
        ids = {row.id for row in rows if row.area == area}
        counts = (len(ids), *(len(ids & set(part)) for part in (shown, told["different"], told["missing"])))
        lines.append(f"| {title} | {' | '.join(str(count) for count in counts)} |")
    for area, title in AREAS.items():
        of_area = [row for row in rows if row.area == area]
        lines += ["", f"## {title}", "", "| row | | | what is different, or missing |", "|---|---|---|---|"]
        for row in of_area:
            words = [
                *(["shown"] if row.id in shown else []),
                *(["differently"] if row.id in told["different"] else []),
                *(["missing"] if row.id in told["missing"] else []),
            ]
            if words:
                text = " ".join(told[part][row.id] for part in ("different", "missing") if row.id in told[part])
                lines.append(f"| {row.id} | {_cell(row.title)} | {', '.join(words)} | {_cell(text)} |")
    lines += ["", "## What is easily got wrong", "", "| | | shown by |", "|---:|---|---|"]
    for number, item in subtle().items():
        tests = "<br>".join(f"`{name.rpartition('/')[2]}`" for name in item.get("tests", [])) or _cell(item["out"])
        lines.append(f"| {number} | {_cell(item['title'])} | {tests} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")


def make(root: Path) -> None:
    """Leaves the page below `root`."""
    target = root / PAGE
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(), encoding="utf-8")
