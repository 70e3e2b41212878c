"""Kept changes are whole: wherever the broker is killed, or loses its power, a change has happened or it has not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sterna_broker.configuration import applied as sterna_applied
from sterna_broker.configuration.applied import AppliedFolder, Record
from sterna_resources import ManifestError
from sterna_resources.reading import examine_text

from tests.unit.test_live_configuration import manifest
from tests.world import folders

_OPERATIONS_MAX = 60


class _Killed(BaseException):
    """The process ends here."""


class _Killing:
    """Ends the process before the operation of this number; `at` None: never."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: int | None = None
        self.count = 0
        self._is_dead = False
        for place, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "mkdir"), (Path, "open")):
            monkeypatch.setattr(place, name, self._wrap(folders.fsync if name == "fsync" else getattr(place, name)))

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            self._check()
            return function(*arguments, **options)

        return wrapped

    def _check(self) -> None:
        # Of a process that is dead nothing is done, what cleans up neither.
        if self._is_dead or self.count == self.at:
            self._is_dead = True
            raise _Killed
        self.count += 1

    def run(self, at: int | None, function: Callable[[], None]) -> bool:
        """Whether it came to its end."""
        self.at, self.count = at, 0
        try:
            function()
        except _Killed:
            return False
        finally:
            self.at, self._is_dead = None, False
        return True


def _record(name: str, limit: int | None, base: str | None = None) -> Record:
    if limit is None:
        return Record(("Queue", name), None, base)
    [one] = examine_text(manifest("Queue", name, f"maxMessages: {limit}"), "x")
    assert one.manifest is not None
    return Record(("Queue", name), one.manifest, base)


def _held(folder: Path) -> dict[str, Any]:
    """What a start would read."""
    found = {}
    for record in AppliedFolder(folder).load():
        resource: Any = record.manifest and record.manifest.resource
        found[record.key[1]] = resource.spec.max_messages if resource else None
    return found


_BEFORE = {"a": 1, "b": 2, "gone": 3}
_AFTER = {"a": 10, "b": None, "new": 5, "more": 6}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[folders.Folder]:
    data = tmp_path / "data"
    data.mkdir()
    made = folders.Folder(data)
    yield made
    made.forget()


def _prepare(path: Path) -> AppliedFolder:
    applied = AppliedFolder(path / "applied")
    for name, limit in _BEFORE.items():
        applied.write([_record(name, limit)])
    return applied


def _change(applied: AppliedFolder) -> None:
    applied.write([_record(name, limit) for name, limit in _AFTER.items()], [("Queue", "gone")])


@pytest.mark.parametrize("power", [False, True])
def test_a_change_of_several_objects_is_whole_wherever_it_ends(
    folder: folders.Folder, monkeypatch: pytest.MonkeyPatch, *, power: bool
) -> None:
    killing = _Killing(monkeypatch)
    seen = []
    ended = False
    for at in range(_OPERATIONS_MAX):
        for seed in range(2 if power else 1):
            applied = _prepare(folder.path)
            ended = killing.run(at, lambda applied=applied: _change(applied))  # type: ignore[misc]
            if power:
                folder.lose_power(Random(2 * at + seed))
            held = _held(folder.path / "applied")
            assert held in (_BEFORE, _AFTER), f"ended before operation {at}: a part of it holds"
            if ended:
                assert held == _AFTER
            seen.append(held)
            # Whoever goes on from there does so with all of it.
            AppliedFolder(folder.path / "applied").write([_record("next", 9)])
            assert _held(folder.path / "applied") == {**held, "next": 9}
            for file in (folder.path / "applied").iterdir():
                file.unlink()
        if ended:
            break
    else:
        pytest.fail("it has more operations")
    assert seen.count(_BEFORE) > 2
    assert seen.count(_AFTER) > 2


def test_what_is_undone_is_undone_whole(folder: folders.Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    killing = _Killing(monkeypatch)
    for at in range(_OPERATIONS_MAX):
        applied = _prepare(folder.path)
        former = {record.key: record for record in applied.load()}
        applied.write([_record(name, limit) for name, limit in _AFTER.items()])
        kept = _held(folder.path / "applied")
        ended = killing.run(at, lambda: applied.undo(former, [("Queue", name) for name in _AFTER]))  # noqa: B023
        held = _held(folder.path / "applied")
        assert held in (_BEFORE, kept), f"ended before operation {at}"
        for file in (folder.path / "applied").iterdir():
            file.unlink()
        if ended:
            assert held == _BEFORE
            return
    pytest.fail("it has more operations")


def test_on_a_full_disk_what_is_new_goes_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    applied = AppliedFolder(tmp_path / "applied")
    applied.write([_record("a", 1), _record("b", 2)])

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sterna_broker.configuration.applied._write_synced", full)
    with pytest.raises(OSError, match="No space"):
        applied.write([_record("a", 2), _record("c", 3)])
    assert _held(applied.folder) == {"a": 1, "b": 2}
    applied.undo({}, [("Queue", "a"), ("Queue", "b")])
    assert _held(applied.folder) == {}


@pytest.mark.covers("EMS-ADMIN-E22")
def test_on_a_full_disk_the_change_before_holds_whatever_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was answered, and stands in its one file still: what comes next of the same objects is not kept."""
    applied = AppliedFolder(tmp_path / "applied")
    applied.write([_record("a", 1), _record("gone", 1)])
    write, room = sterna_applied._write_synced, 1

    def filling(file: Path, text: str) -> None:
        nonlocal room
        room -= 1
        if room < 0:
            raise OSError(28, "No space left on device")
        write(file, text)

    monkeypatch.setattr(sterna_applied, "_write_synced", filling)
    applied.write([_record("a", 2), _record("b", 2)], [("Queue", "gone")])
    kept = {"a": 2, "b": 2}
    assert _held(applied.folder) == kept
    for next_one in ([_record("a", 3), _record("b", 3), _record("gone", 3)], [_record("a", 3), _record("b", None)]):
        former = {record.key: record for record in applied.load()}
        with pytest.raises(OSError, match="No space"):
            applied.write(next_one)
        applied.undo(former, [record.key for record in next_one])
        assert _held(applied.folder) == kept
    monkeypatch.setattr(sterna_applied, "_write_synced", write)
    applied.write([_record("c", 1)])
    assert _held(applied.folder) == {**kept, "c": 1}


def test_files_that_older_brokers_wrote_are_read_and_a_damaged_change_is_told(tmp_path: Path) -> None:
    applied = AppliedFolder(tmp_path / "applied")
    assert applied.load() == []
    _prepare(tmp_path)
    text = (applied.folder / "Queue.a.json").read_text()
    assert set(json.loads(text)) == {"kind", "name", "base", "manifest"}
    (applied.folder / "change").write_text("{}")
    with pytest.raises(ManifestError, match=r"change.*mend or remove"):
        applied.load()
    with pytest.raises(OSError, match="cannot be read"):
        applied.write([_record("a", 2)])
    (applied.folder / "change").unlink()
    assert _held(applied.folder) == _BEFORE
