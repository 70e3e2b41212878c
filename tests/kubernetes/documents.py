"""What a document tells its reader to type, read out of the document itself and typed.

Shell commands stand in blocks that are indented by four spaces; a line that is continued, or a document that a command
reads (`<<EOF`), is part of its block. Other languages stand between fences with their name.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.kubectl import ROOT, CommandError

_FENCE = "```"
_INDENT = "    "
_TYPED = "== all of it was typed =="


@dataclass(frozen=True)
class Block:
    """Lines of one language, below a heading."""

    heading: str
    language: str
    text: str


def blocks(document: Path) -> list[Block]:
    """All blocks of a document, in order; the language of those without a fence is "shell"."""
    found: list[Block] = []
    heading, language, lines = "", "", list[str]()

    def end() -> None:
        nonlocal lines
        if text := "\n".join(lines).strip("\n"):
            found.append(Block(heading, language, text + "\n"))
        lines = []

    fenced = False
    for line in document.read_text("utf-8").splitlines():
        if line.startswith(_FENCE):
            end()
            fenced = not fenced
            language = line.removeprefix(_FENCE) if fenced else ""
        elif fenced:
            lines.append(line)
        elif line.startswith(_INDENT) or (lines and not line):
            language = "shell"
            lines.append(line.removeprefix(_INDENT))
        else:
            end()
            if line.startswith("#"):
                heading = line.lstrip("#").strip()
    end()
    return found


class Shell:
    """A shell in the checkout, where one block is typed after the other. A command that fails ends it."""

    def __init__(self, folder: Path) -> None:
        self._typed = folder / "typed"
        # Whoever runs the tests may have said where a broker is; the reader of a document has not.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STERNA_")}
        self._process = subprocess.Popen(
            ["bash", "-eo", "pipefail"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def type(self, block: Block) -> str:
        """Types a block; what was printed.

        Raises:
            CommandError: a command failed.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._typed.write_text(block.text)
        self._process.stdin.write(f"source '{self._typed}' </dev/null\necho\necho {_TYPED}\n")
        self._process.stdin.flush()
        printed: list[str] = []
        for line in self._process.stdout:
            if line.rstrip("\n") == _TYPED:
                return "".join(printed)
            printed.append(line)
        raise CommandError(f"{block.text}\nended with {self._process.wait()}\n{''.join(printed)}")

    def end(self) -> None:
        """Ends the shell, whatever it does."""
        self._process.kill()
        self._process.communicate()
