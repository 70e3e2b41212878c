"""Which rows of the catalogue tests show. Behind `make coverage-report`; writes build/rows.json (row id to tests).

Python tests carry `@pytest.mark.covers("EMS-DEST-A14")` and are found by collecting them. Rust tests carry a comment
line `// covers: EMS-DEST-A14, EMS-CLI-A10` directly above their attributes and are found by reading the source. An id
that the catalogue does not have, or a comment that stands above no test, is an error.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tools import catalogue
from tools.fingerprints import ROOT, files_below

Shown = dict[str, list[str]]

_COMMENT = re.compile(r"^\s*// covers:(.*)$")
_PASSED_OVER = re.compile(r"^\s*(//|#\[)")
_FUNCTION = re.compile(r"^\s*(?:pub\s+)?(?:async\s+)?fn\s+(\w+)")


def _test_below(lines: list[str], start: int) -> tuple[str | None, str | None]:
    """The name of the test function whose attributes begin at `start`, or why there is none."""
    attributes: list[str] = []
    for line in lines[start:]:
        if _PASSED_OVER.match(line):
            attributes.append(line.strip())
            continue
        function = _FUNCTION.match(line)
        if function is None or "#[test]" not in attributes:
            return None, "not above a #[test]"
        if any(attribute.startswith("#[ignore") for attribute in attributes):
            return None, "above an ignored test, which shows nothing"
        return function[1], None
    return None, "not above a #[test]"


def rust_rows(files: Iterable[Path] | None = None, root: Path = ROOT) -> tuple[Shown, list[str]]:
    """The rows that Rust tests show (by default those of the engine), and what is wrong with the comments."""
    if files is None:
        files = (file for file in files_below(ROOT / "core" / "src") if file.suffix == ".rs")
    shown: Shown = {}
    problems: list[str] = []
    for file in files:
        name = file.relative_to(root).as_posix()
        lines = file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            comment = _COMMENT.match(line)
            if comment is None:
                continue
            ids = [id.strip() for id in comment[1].split(",") if id.strip()]
            test, problem = _test_below(lines, number)
            if not ids:
                problem = "names no row"
            elif unknown := catalogue.unknown(ids):
                problem = f"not in the catalogue: {', '.join(unknown)}"
            if problem is not None:
                problems.append(f"{name}:{number}: {problem}")
                continue
            for id in ids:
                shown.setdefault(id, []).append(f"{name}::{test}")
    return shown, problems


def python_rows() -> Shown:
    """The rows that Python tests show; collecting fails when a mark is wrong."""
    target = ROOT / "build" / "covers.json"
    target.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "--no-header", "--covers-out", str(target)]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if outcome.returncode != 0 or not target.is_file():
        sys.exit(f"{outcome.stdout}\n{outcome.stderr}\ncoverage-report: the tests cannot be collected")
    shown: Shown = json.loads(target.read_text(encoding="utf-8"))
    return shown


def table(shown: Iterable[str]) -> str:
    """Rows shown of rows known, a line for each product and a column for each area."""
    marked, known = set(shown), catalogue.rows().values()
    lines = [f"{'rows shown':<24}" + "".join(f"{area:>9}" for area in (*catalogue.AREAS, "all"))]
    for product, title in catalogue.PRODUCTS.items():
        cells = []
        for area in (*catalogue.AREAS, None):
            rows = [row.id for row in known if row.product == product and area in (row.area, None)]
            cells.append(f"{len(marked.intersection(rows))}/{len(rows)}" if rows else "-")
        lines.append(f"{title:<24}" + "".join(f"{cell:>9}" for cell in cells))
    lines.append(f"{len(marked)} of {len(known)} rows shown")
    return "\n".join(lines)


def main() -> int:
    """Prints the table, writes build/rows.json, and fails on wrong marks."""
    shown, problems = rust_rows()
    for id, tests in python_rows().items():
        shown.setdefault(id, []).extend(tests)
    target = ROOT / "build" / "rows.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({id: sorted(shown[id]) for id in sorted(shown)}, indent=1) + "\n", encoding="utf-8")
    print(table(shown))
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
