"""The files of one ledger: made, written, rotated, synced and closed; used by `_ledger` alone.

A file belongs to the process that made it. In a forked child it is closed at once and nothing more is written by it:
what the parent writes stays whole.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from sterna import _ledger_format as form
from sterna._surroundings import wall_ms

_NAME_CHARACTERS_MAX: Final = 100
_TRIES: Final = 1000
#: So many records are in one block, however long they are: none has more than an eighth of its room.
_FEW: Final = 4


class Files:
    """See the module. `head` is what the head of each says besides its number and time."""

    def __init__(self, folder: Path, client_id: str, rotate_bytes: int, head: Mapping[str, Any]) -> None:
        self._folder = folder
        self._client_id = re.sub(r"[^A-Za-z0-9._-]", "_", client_id)[:_NAME_CHARACTERS_MAX] or "client"
        self._rotate_bytes = rotate_bytes
        self._head = head
        self._fd = -1
        self._count = 0
        self._blocks = 0
        self._size = 0
        # What the disk need not have yet: files that were ended, and folders that have new names. Taken from at the
        # front alone, by whoever syncs.
        self._ended: list[int] = []
        self._folders: list[Path] = []
        #: The file in use, or the last one.
        self.path = folder

    def __del__(self) -> None:
        # Of a connection that nobody has closed. What it had gathered is gone: nobody could be told of a failure.
        for fd in (self._fd, *self._ended):
            if fd >= 0:
                os.close(fd)

    @property
    def is_open(self) -> bool:
        """Whether there is a file."""
        return self._fd >= 0

    @property
    def is_full(self) -> bool:
        """Whether the next records belong into another file."""
        return self._size >= self._rotate_bytes

    def open(self) -> None:
        """Makes the next file, which nobody else writes.

        Raises:
            OSError: it cannot be made, or its head not be written.
        """
        self._make_folder()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        started_ms = wall_ms()
        # Another connection of this process may have begun in the same millisecond.
        begin = f"{self._client_id}-{os.getpid()}-{started_ms}"
        for _ in range(_TRIES):
            self._count += 1
            path = self._folder / f"{begin}-{self._count}{form.SUFFIX}"
            with contextlib.suppress(FileExistsError):
                self._fd = os.open(path, flags, 0o600)
                break
        else:
            raise FileExistsError(f"files with the name {begin} are there already")
        _open[self] = None
        self._folders.append(self._folder)
        self.path, self._blocks, self._size = path, 0, 0
        self._put(form.head({**self._head, "file": self._count, "started_ms": started_ms}))

    def _make_folder(self) -> None:
        missing = []
        folder = self._folder.absolute()
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for one in reversed(missing):
            one.mkdir(exist_ok=True)
            self._folders.append(one.parent)

    def write(self, records: Sequence[bytes]) -> None:
        """Hands records to the operating system, all or none of them.

        Raises:
            OSError: it does not take them. What it took of them is cut off again, if it can be.
        """
        if len(records) <= _FEW:
            blocks = [form.block(self._blocks, records)]
        else:
            blocks = list(form.blocks(self._blocks, records))
        self._put(b"".join(blocks))
        self._blocks += len(blocks)

    def _put(self, data: bytes) -> None:
        if self._fd < 0:
            raise OSError("it belongs to the process that made it, before a fork")
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            with contextlib.suppress(OSError):  # readers cut it off, too
                os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)

    def close(self, records: Sequence[bytes], *, syncs: bool) -> None:
        """Ends the file with these records. `syncs`: the next `syncing` has the disk keep them.

        Raises:
            OSError: the disk does not take it; the file is closed all the same.
        """
        try:
            self.write(records)
            if syncs:
                self._ended.append(self._fd)
                self._fd = -1
        finally:
            self.leave()

    def syncing(self) -> Callable[[], None]:
        """What has the disk keep all that was written up to now, and raises OSError if it does not.

        To be called once, in a thread of its own, while others write on; several of these one after the other.

        Raises:
            OSError: there are too many open files.
        """
        # Another number for the same file: this one may be closed, or renamed by somebody, meanwhile.
        return partial(self._sync, os.dup(self._fd) if self._fd >= 0 else -1)

    def _sync(self, fd: int) -> None:
        try:
            while self._ended:
                os.fsync(self._ended[0])
                os.close(self._ended.pop(0))
            if fd >= 0:
                os.fsync(fd)
            while self._folders:
                _sync_folder(self._folders[0])
                self._folders.pop(0)
        finally:
            if fd >= 0:
                os.close(fd)

    def leave(self) -> None:
        """Closes the file as it is."""
        fd, self._fd = self._fd, -1
        _open.pop(self, None)
        if fd >= 0:
            os.close(fd)


#: All that are open in this process.
_open: WeakKeyDictionary[Files, None] = WeakKeyDictionary()


def _in_child() -> None:
    for files in list(_open):
        files.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
