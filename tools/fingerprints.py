"""Remembers what a step of the build was made from, so that doing it again costs nothing when nothing has changed.

A step is skipped when the fingerprint of its inputs equals the one written after it last succeeded. Contents count, not
times: a fresh clone, a branch switched there and back and a restored cache all give the right answer.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMPS = ROOT / "build" / "stamps"

_SKIPPED_FOLDERS = {"target", "__pycache__", ".venv", "build", "node_modules"}
_SKIPPED_SUFFIXES = {".pyc", ".so"}


def files_below(*paths: Path) -> list[Path]:
    """The source files among `paths` and below them, sorted; folders of build products are left out."""
    found: list[Path] = []
    for path in paths:
        if path.is_file():
            found.append(path)
        elif path.is_dir():
            found += (
                file
                for file in path.rglob("*")
                if file.is_file()
                and file.suffix not in _SKIPPED_SUFFIXES
                and not _SKIPPED_FOLDERS.intersection(file.relative_to(path).parts)
            )
    return sorted(set(found))


def fingerprint(paths: Iterable[Path], *, extra: str = "") -> str:
    """A hash over the names and contents of `paths` (files or folders) and over `extra`."""
    digest = hashlib.sha256(extra.encode())
    for file in files_below(*paths):
        name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
        digest.update(f"\0{name}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def unchanged(step: str, value: str) -> bool:
    """Whether `step` last succeeded with this very fingerprint."""
    stamp = STAMPS / step
    return stamp.is_file() and stamp.read_text() == value


def remember(step: str, value: str) -> None:
    """Notes that `step` has succeeded with this fingerprint."""
    STAMPS.mkdir(parents=True, exist_ok=True)
    (STAMPS / step).write_text(value)
