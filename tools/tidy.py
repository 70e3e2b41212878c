"""Style as a check: sizes, notes to self, waits in tests, and what must never be in the tree. Part of `make lint`.

Functions that are too long already stand in tools/tidy_ratchet.txt with their length: they may shrink, not grow, and a
line that is no longer needed there is an error too. So do the two counts of the SDK's inner order
(tools/inner_order.py). Rust functions are measured by clippy (core/clippy.toml).
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools import inner_order
from tools.fingerprints import ROOT

LINES_PER_FILE_MAX = 600
LINES_PER_FUNCTION_MAX = 70
RATCHET = ROOT / "tools" / "tidy_ratchet.txt"
#: The keys of the two counts there.
REACHES = f"{inner_order.ROOM}::reaches"
CIRCLES = f"{inner_order.ROOM}::circles"

GENERATED = (
    "client/sterna/_proto/",
    "etcd/sterna_etcd/proto/",
    "core/src/proto/",
    "docs/reference/",
    "docs/kubernetes/reference/",
)
NO_SIZE = (*GENERATED, "requirements/", "tests/catalogue/", "tests/baselines/", "LICENSE", "core/Cargo.lock")
CODE = {".py", ".pyi", ".rs", ".sh"}
TEXT = {*CODE, ".proto", ".md", ".toml", ".yaml", ".yml", ".json", ".txt", ".in", ".tsv", ".html", ".css", ".js", ""}

# Each forbidden thing with its reason. The patterns are written so that they do not find themselves.
_NOTE = re.compile(r"\b(TO[D]O|FIX[M]E|X[X]X)\b")
_MACHINE = re.compile(r"(?<![\w.])/(?:wor[k]|roo[t]|home/\w+|tmp/(?:w[t]|brie[f]))/|\.\./share[d]\b")
_INDEX = re.compile(
    r"https?://[\w.-]*(?:py[p]i|pythonhoste[d]|index\.crate[s]|registry\.npmj[s]|proxy\.golan[g])[\w.-]*"
)
_PAUSE = re.compile(r"\b(?:time\.slee[p]\(|asyncio\.slee[p]\((?!0\))|thread::slee[p]\()")
# In the world time is simulated: a pause there costs nothing, and is as long as it says.
_PAUSE_ALLOWED = ("tests/waiting.py", "tests/world/")


def tracked() -> list[str]:
    """The text files of the tree that git knows or would take, by name."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return sorted(name for name in set(names) if name and Path(name).suffix in TEXT and (ROOT / name).is_file())


def is_test(name: str) -> bool:
    """Whether a file is a test: fixed pauses are forbidden there."""
    in_core = name.startswith("core/src/") and ("/tests/" in name or name.endswith("/tests.rs"))
    return name.startswith("tests/") or in_core


def line_problems(name: str, lines: list[str]) -> Iterator[str]:
    """What single lines have that they must not."""
    for number, line in enumerate(lines, 1):
        where = f"{name}:{number}"
        if _NOTE.search(line):
            yield f"{where}: a note to self; do it, or say what is missing where users read it"
        if _MACHINE.search(line):
            yield f"{where}: a path of one machine"
        if _INDEX.search(line):
            yield f"{where}: the address of a package index"
        if is_test(name) and not name.startswith(_PAUSE_ALLOWED) and _PAUSE.search(line):
            yield f"{where}: a fixed pause; wait for the condition (tests/waiting.py)"


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Every function with its length in lines, its docstring not counted."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{node.name}"
            if not isinstance(node, ast.ClassDef):
                doc = node.body[0] if ast.get_docstring(node, clean=False) is not None else None
                doc_lines = (doc.end_lineno or 0) - doc.lineno + 1 if doc is not None else 0
                yield name, (node.end_lineno or 0) - node.lineno + 1 - doc_lines
            yield from functions(node, f"{name}.")
        else:
            yield from functions(node, prefix)


def ratchet() -> dict[str, int]:
    """The functions that may be longer, with the length that each must not exceed."""
    entries = (line.split() for line in RATCHET.read_text().splitlines() if line and not line.startswith("#"))
    return {name: int(length) for name, length in entries}


def function_problems(sources: dict[str, str]) -> Iterator[str]:
    """Functions that are too long or longer than the ratchet allows, and entries that it needs no more."""
    allowed = ratchet()
    needed: set[str] = set()
    for name, source in sources.items():
        for function, length in functions(ast.parse(source)):
            if length <= LINES_PER_FUNCTION_MAX:
                continue
            key = f"{name}::{function}"
            needed.add(key)
            if length > allowed.get(key, LINES_PER_FUNCTION_MAX):
                yield f"{key}: {length} lines, at most {allowed.get(key, LINES_PER_FUNCTION_MAX)}: split it"
    for key in sorted(allowed.keys() - needed - {REACHES, CIRCLES}):
        yield f"{RATCHET.name}: {key} is short enough now: remove its line"


def order_problems(sources: dict[str, str]) -> Iterator[str]:
    """Reaches and circles of the SDK beyond what the ratchet allows, and where it allows more than there are."""
    allowed = ratchet()
    found, circles = inner_order.counts(sources)
    most, count = allowed.get(REACHES, 0), found.total()
    if count > most:
        listed = ", ".join(f"{name} {one}" for name, one in sorted(found.items()))
        yield f"{REACHES}: {count}, at most {most}: what a module needs of another has no underscore ({listed})"
    elif count < most:
        yield f"{RATCHET.name}: {REACHES} is {count} now: say so"
    most = allowed.get(CIRCLES, 0)
    if len(circles) > most:
        listed = "; ".join(", ".join(one) for one in circles)
        yield f"{CIRCLES}: {len(circles)}, at most {most}: a protocol can say what one needs of the other ({listed})"
    elif len(circles) < most:
        yield f"{RATCHET.name}: {CIRCLES} is {len(circles)} now: say so"


def version_problems() -> Iterator[str]:
    """One version for each distribution; a third place pins one to the other, and charts have it, too."""
    here = re.search(r'__version__ = "(.+?)"', (ROOT / "client" / "sterna" / "_version.py").read_text())
    core = re.search(r'^version = "(.+?)"', (ROOT / "core" / "Cargo.toml").read_text(), re.MULTILINE)
    pinned = re.search(r'"sterna-core==(.+?)"', (ROOT / "pyproject.toml").read_text())
    found = [match[1] if match else "none" for match in (here, core, pinned)]
    if len(set(found)) != 1:
        yield "versions differ: client/sterna/_version.py {}, core/Cargo.toml {}, pyproject.toml {}".format(*found)
    for chart in sorted(ROOT.glob("charts/*/Chart.yaml")):
        in_chart = re.findall(r"^(?:version|appVersion): \"?([^\"\n]+)", chart.read_text(), re.MULTILINE)
        if in_chart != [found[0], found[0]]:
            yield f"{chart.relative_to(ROOT)}: version and appVersion are {in_chart}, the project's is {found[0]}"


def problems() -> Iterator[str]:
    """Everything that is wrong, file by file."""
    sources: dict[str, str] = {}
    for name in tracked():
        text = (ROOT / name).read_text(encoding="utf-8")
        lines = text.splitlines()
        if not name.startswith(GENERATED) and name != "LICENSE":
            yield from line_problems(name, lines)
        if not name.startswith(NO_SIZE) and Path(name).suffix in CODE and len(lines) > LINES_PER_FILE_MAX:
            yield f"{name}: {len(lines)} lines, at most {LINES_PER_FILE_MAX}: split it by its nouns"
        if name.endswith(".py") and not name.startswith(GENERATED):
            sources[name] = text
    yield from function_problems(sources)
    yield from order_problems(sources)
    yield from version_problems()


def main() -> int:
    """Prints what is wrong; 1 when anything is."""
    found = list(problems())
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
