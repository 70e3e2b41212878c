"""docs/reference/errors.md: what each error means, when it comes and what to do, as `sterna explain` says it."""

import sys
from pathlib import Path
from typing import Any

from tools.generate.pages import write_printed

INPUTS = (
    "client/sterna/cli/explanations.py",
    "client/sterna/cli/commands/explain.py",
    "client/sterna/cli/exits.py",
    "client/sterna/errors.py",
    "tools/generate/errors_reference.py",
)
OUTPUTS = ("docs/reference/errors.md",)

_HEAD = """\
# Errors

Made by `make generate` from what `sterna explain CODE` says.

Each error has a code, which never changes its meaning, and says what it is about (`subject`), what is wrong (`cause`),
what to do (`remedy`) and whether the same request may succeed later without a change (`retryable`). An error means that
nothing took effect, except where it is said that nobody can tell.
"""

_OF_THE_SDK = """\
# Errors that the SDK finds by itself

They have no code of the contract, and go by their class in `sterna.errors`.
"""


def make(root: Path) -> None:
    """Writes the page below `root`. In a process of its own: the application is the environment's, not this tool's."""
    write_printed(root / OUTPUTS[0], "tools.generate.errors_reference")


def page() -> str:
    """The whole page."""
    from sterna.cli.commands.explain import row
    from sterna.cli.explanations import CLASSES, CODES

    parts = [_HEAD, *(_section(row(name)) for name in CODES), _OF_THE_SDK, *(_section(row(name)) for name in CLASSES)]
    return "\n".join(parts)


def _section(found: dict[str, Any]) -> str:
    known_as = "" if found["class"] == found["name"] else f"`{found['class']}`, "
    lines = [f"## {found['name']}", "", f"{known_as}exit code {found['exitCode']}", "", found["means"], ""]
    lines += ["It comes when:", "", *(f"- {one}" for one in found["comes"]), ""]
    return "\n".join([*lines, "What to do:", "", *(f"- {one}" for one in found["do"]), ""])


if __name__ == "__main__":
    sys.stdout.write(page())
