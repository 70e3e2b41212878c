"""The broker's own files, on a machine that can lose its power: what was not synced may be gone then.

They lie in real folders, since the broker reads and writes them as it does everywhere. Beside each this module
remembers what is durable: of a file what it held when it was synced, of a folder which names it had when that was
synced. When the power goes, each name and each content that is newer is there or not, as the seed chooses; a file that
was never synced may be empty. (The engine's files are on a disk of its own that forgets: `SimulatedDisk`.)
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Final

_fsync = os.fsync

#: By path of the folder: those that are watched.
_FOLDERS: Final[dict[Path, Folder]] = {}


class Folder:
    """A data folder with all below it. `path` need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path = path.resolve()
        # Another name for each file that was synced: as long as it has one, its number is not given to another file.
        self._shadow = path.with_name(f".{path.name}.synced")
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        _FOLDERS[path] = self

    def forget(self) -> None:
        """It is not watched any more."""
        _FOLDERS.pop(self.path, None)

    def synced(self, path: Path, descriptor: int) -> None:
        """A file or folder below this was synced."""
        if path.is_dir():
            self._names[path] = _files(path)
            return
        number = os.fstat(descriptor).st_ino
        self._contents[number] = path.read_bytes()
        self._shadow.mkdir(exist_ok=True)
        if not (held := self._shadow / str(number)).exists():
            os.link(path, held)

    def settled(self) -> None:
        """All that there is was written some time ago: who copies a folder lets the copy reach the disk."""
        for path in (self.path, *self.path.rglob("*")):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                self.synced(path, descriptor)
            finally:
                os.close(descriptor)

    def lose_power(self, random: Random) -> None:
        """What is not durable is there or not."""
        for path in sorted(one for one in (self.path, *self.path.rglob("*")) if one.is_dir()):
            self._lose(path, random)

    def _lose(self, path: Path, random: Random) -> None:
        now = _files(path)
        durable = self._names.get(path, {})
        for name in sorted({*now, *durable}):
            number = now.get(name)
            if number != durable.get(name) and random.random() < 0.5:
                number = durable.get(name)
            file = path / name
            if number is None:
                file.unlink(missing_ok=True)
                continue
            content = self._contents.get(number)
            if content is None:
                content = random.choice((b"", file.read_bytes()))
            file.unlink(missing_ok=True)
            file.write_bytes(content)
            # It has another number from now on, and is durable as it is.
            self._contents[file.stat().st_ino] = content
        self._names[path] = _files(path)
        for name in self._names[path]:
            held = self._shadow / str((path / name).stat().st_ino)
            self._shadow.mkdir(exist_ok=True)
            if not held.exists():
                os.link(path / name, held)


def _files(path: Path) -> dict[str, int]:
    return {one.name: one.stat().st_ino for one in sorted(path.iterdir()) if one.is_file()}


def fsync(descriptor: int) -> None:
    """In the place of os.fsync: nothing waits for a disk, and what was synced is remembered."""
    path = Path(f"/proc/self/fd/{descriptor}").readlink()
    for watched, folder in _FOLDERS.items():
        if path == watched or watched in path.parents:
            folder.synced(path, descriptor)
            return
    _fsync(descriptor)
