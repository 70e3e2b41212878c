"""Checks that links in Markdown lead somewhere: files that are there, and headings that they have. Part of `make lint`.

Links out of the repository are not followed: a check must not depend on somebody else's server.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tools.fingerprints import ROOT
from tools.tidy import tracked

_FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[[^\]\n]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]\n]+\]:\s+(\S+)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)
_ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")


def slug(heading: str) -> str:
    """The anchor that a heading gets: lower case, words joined by hyphens, without other punctuation."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", ""))
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


@cache
def anchors(file: Path) -> frozenset[str]:
    """What a link into a Markdown file may name. Equal headings are told apart by a number."""
    text = _FENCE.sub("", file.read_text(encoding="utf-8"))
    found: set[str] = set(_ANCHOR.findall(text))
    for heading in _HEADING.findall(text):
        name, number = slug(heading), 0
        while (name if number == 0 else f"{name}-{number}") in found:
            number += 1
        found.add(name if number == 0 else f"{name}-{number}")
    return frozenset(found)


def problems_of(file: Path, text: str) -> Iterator[str]:
    """The links of one page that lead nowhere."""
    shown = _CODE.sub("", _FENCE.sub("", text))
    for match in _LINK.finditer(shown):
        link = match[1] or match[2]
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        if not target.exists():
            yield f"{file.relative_to(ROOT)}: the link to {link} leads to no file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{file.relative_to(ROOT)}: {link} has no such heading"


def main() -> int:
    """Prints what leads nowhere; 1 when anything does."""
    found: list[str] = []
    for name in tracked():
        if name.endswith(".md"):
            found += problems_of(ROOT / name, (ROOT / name).read_text(encoding="utf-8"))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
