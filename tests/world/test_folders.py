"""The folder that forgets: what was not synced may be gone after a loss of power, and what was is there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.world.folders import Folder, fsync


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path / "data")
    made.path.mkdir()
    yield made
    made.forget()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str, *, file: bool = True, names: bool = True) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    if file:
        _sync(temporary)
    temporary.replace(path)
    if names:
        _sync(path.parent)


def _after(folder: Folder, draws: int = 40) -> set[str | None]:
    """What the file may say after a loss of power: each loss makes durable what it leaves."""
    folder.lose_power(Random(draws))
    path = folder.path / "f"
    return {path.read_text() if path.exists() else None}


def test_what_was_synced_with_its_name_is_there(folder: Folder) -> None:
    for number in range(20):
        _replace(folder.path / "f", f"{number}")
        assert _after(folder, number) == {f"{number}"}


@pytest.mark.parametrize(
    ("file", "names", "others"), [(True, False, {"old"}), (False, True, {""}), (False, False, {"old", ""})]
)
def test_what_was_not_may_be_as_it_was_before_or_empty(
    folder: Folder, *, file: bool, names: bool, others: set[str]
) -> None:
    seen = set()
    for number in range(40):
        _replace(folder.path / "f", "old")
        _replace(folder.path / "f", "new", file=file, names=names)
        seen |= _after(folder, number)
    assert seen == {"new", *others}


def test_the_number_of_a_file_that_is_gone_is_nobody_else_s(folder: Folder) -> None:
    """File systems give numbers again: what another file held then is no content of this one."""
    for number in range(20):
        _replace(folder.path / "other", "other's")
        (folder.path / "other").unlink()
        (folder.path / "f").write_text("mine")
        assert _after(folder, number) <= {"mine", "", None}
        (folder.path / "f").unlink(missing_ok=True)
