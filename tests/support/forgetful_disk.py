"""A disk that forgets, at a loss of power, what was not synced: for brokers whose system calls are supervised.

It carries out what a broker asks of its log's folder, in the kernel's place: writes, syncs, reservations, names. So it
knows exactly what was there before each, what has returned, and what a sync that returned has covered. Nothing is
really synced. `forget` then makes the folder what a disk could hold after the power was cut: of each write that no sync
covers all sectors, none, or any of them, whole blocks of 4 KiB or sectors of 512 bytes; of names that were made,
changed or removed without a sync of the folder any; of lengths that were not synced any.

That is the model of the engine's simulation (`core/src/sim`), with the calls of a real process. It is harsher than ext4
and xfs, which keep the order of names. What it does not cover: calls that nobody supervises (memory that is mapped,
io_uring, write(2)), the folder's own name, a disk that loses what it said was synced, and reads that came while a write
was being done, since calls are carried out one after the other.
"""

import errno
import os
import random
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support.system_calls import Call, memory, text

WRITES = ("pwrite64", "pwritev")
NAMES = ("openat", "rename", "unlink")
CALLS = (*WRITES, "fsync", "fdatasync", "ftruncate", "fallocate", *NAMES)
_BLOCKS = (512, 4096)
_VECTOR = struct.Struct("=QQ")
_FALLOC_KEEP_SIZE = 1


@dataclass
class Change:
    """What one call did to a file, and what undoes it."""

    number: int
    offset: int
    before: bytes
    after: bytes
    """Empty for a change of length alone, as is `before` then unless something was cut off."""

    length_before: int
    length_after: int


@dataclass
class Kept:
    """A file, by whatever names. It is held open, so that what is removed can come back."""

    descriptor: int
    pending: list[Change] = field(default_factory=list)

    def undo(self) -> None:
        """As it was when it was synced."""
        for change in reversed(self.pending):
            os.pwrite(self.descriptor, change.before, change.offset)
            os.ftruncate(self.descriptor, change.length_before)

    def forget(self, choices: random.Random) -> None:
        """As it could be after a loss of power."""
        self.undo()
        for change in self.pending:
            match choices.choice(("none", "all", "some")):
                case "none":
                    continue
                case "all":
                    if not change.after:
                        os.ftruncate(self.descriptor, change.length_after)
                    os.pwrite(self.descriptor, change.after, change.offset)
                case "some":
                    self._tear(change, choices)
        self.pending.clear()

    def _tear(self, change: Change, choices: random.Random) -> None:
        if not change.after:
            os.ftruncate(self.descriptor, change.length_after)
        block, at, end = choices.choice(_BLOCKS), change.offset, change.offset + len(change.after)
        while at < end:
            until = min(at // block * block + block, end)
            if choices.random() < 0.5:
                os.pwrite(self.descriptor, change.after[at - change.offset : until - change.offset], at)
            at = until


class NameChange(NamedTuple):
    """A name that is gone, a name that a file has now, or both: a rename is kept or forgotten as one."""

    number: int
    gone: str
    made: str
    inode: int

    def apply(self, names: dict[str, int]) -> None:
        """To what names there are."""
        names.pop(self.gone, None)
        if self.made:
            names[self.made] = self.inode


class Covered(NamedTuple):
    """What a sync covers: what was changed of a file, or of names, up to a number."""

    file: Kept | None
    number: int


class ForgetfulDisk:
    """One folder, from the moment at which everything in it counts as synced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._files: dict[int, Kept] = {}
        self._names: dict[str, int] = {}
        self._synced_names: dict[str, int] = {}
        self._pending_names: list[NameChange] = []

        self.operations = 0
        self.is_cut = False
        for path in sorted(self._folder.iterdir()) if folder.exists() else ():
            self._names[path.name] = self._hold(path)
        self._synced_names = dict(self._names)

    def close(self) -> None:
        """Lets go of all files."""
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()

    def concerns(self, call: Call) -> bool:
        """Whether it is about the folder or something in it."""
        path = Path(call.path.removesuffix(" (deleted)"))
        return call.name in CALLS and self._folder in (path, path.parent)

    def carry_out(self, call: Call) -> tuple[int, int, bool]:
        """The value, the error, and whether the kernel has something left to do."""
        if self.is_cut:
            return 0, errno.EIO, False
        self.operations += 1
        try:
            if call.name in NAMES:
                return self._rename(call)
            return self._change(call), 0, False
        except OSError as error:
            return 0, error.errno or errno.EIO, False

    def cut(self) -> None:
        """The power is gone: nothing that comes from now on has an effect, or an answer that promises one."""
        self.is_cut = True

    def forget(self, choices: random.Random) -> int:
        """Makes the folder what a disk could hold; the process is gone. How many changes were not synced."""
        unsynced = sum(len(file.pending) for file in self._files.values()) + len(self._pending_names)
        # Sorted, and names before contents: the same choices for the same seed.
        names = dict(self._synced_names)
        for change in self._pending_names:
            if choices.random() < 0.5:
                change.apply(names)
        for _, file in sorted(self._files.items()):
            file.forget(choices)
        contents = {name: _contents(self._files[inode].descriptor) for name, inode in names.items()}
        for path in self._folder.iterdir():
            path.unlink()
        for name, content in contents.items():
            (self._folder / name).write_bytes(content)
        self.close()
        return unsynced

    def synced(self, call: Call) -> Covered:
        """What a sync that begins now will have made durable when it returns."""
        is_of_names = Path(call.path) == self._folder
        return Covered(None if is_of_names else self._file(call), self.operations)

    def settle(self, covered: Covered) -> bool:
        """The sync returns; False: the power was cut before."""
        if self.is_cut:
            return False
        if covered.file is not None:
            covered.file.pending = [change for change in covered.file.pending if change.number > covered.number]
            return True
        for change in self._pending_names:
            if change.number <= covered.number:
                change.apply(self._synced_names)
        self._pending_names = [change for change in self._pending_names if change.number > covered.number]
        return True

    def _hold(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        inode = os.fstat(descriptor).st_ino
        if inode in self._files:
            os.close(descriptor)
        else:
            self._files[inode] = Kept(descriptor)
        return inode

    def _file(self, call: Call) -> Kept:
        return self._files[Path(f"/proc/{call.pid}/fd/{call.arguments[0]}").stat().st_ino]

    def _rename(self, call: Call) -> tuple[int, int, bool]:
        path = Path(call.path)
        if call.name == "openat":
            return self._open(path, call.arguments[2])
        if call.name == "unlink":
            path.unlink()
            self._pending_names.append(NameChange(self.operations, path.name, "", self._names.pop(path.name)))
            return 0, 0, False
        target = Path(text(call.pid, call.arguments[1]))
        path.rename(target)
        inode = self._names[target.name] = self._names.pop(path.name)
        self._pending_names.append(NameChange(self.operations, path.name, target.name, inode))
        return 0, 0, False

    def _open(self, path: Path, flags: int) -> tuple[int, int, bool]:
        """The kernel opens the file afterwards; it is made, and cut off, here."""
        if path == self._folder:
            return 0, 0, True
        if flags & os.O_CREAT and not path.exists():
            path.touch(0o644)
            self._names[path.name] = self._hold(path)
            self._pending_names.append(NameChange(self.operations, "", path.name, self._names[path.name]))
        elif flags & os.O_TRUNC:
            self._resize(self._files[self._names[path.name]], 0)
        return 0, 0, True

    def _change(self, call: Call) -> int:
        if call.name in ("fsync", "fdatasync"):
            self.settle(self.synced(call))
            return 0
        file, (_, first, second, third, *_) = self._file(call), call.arguments
        if call.name == "ftruncate":
            self._resize(file, first)
            return 0
        if call.name == "fallocate":
            length = second + third
            if length > os.fstat(file.descriptor).st_size and not first & _FALLOC_KEEP_SIZE:
                self._resize(file, length)
            return 0
        parts = [(first, second)] if call.name == "pwrite64" else _vectors(call.pid, first, second)
        content = b"".join(memory(call.pid, address, length) for address, length in parts)
        before = os.pread(file.descriptor, len(content), third)
        length = os.fstat(file.descriptor).st_size
        os.pwrite(file.descriptor, content, third)
        file.pending.append(Change(self.operations, third, before, content, length, max(length, third + len(content))))
        return len(content)

    def _resize(self, file: Kept, length: int) -> None:
        now = os.fstat(file.descriptor).st_size
        before = os.pread(file.descriptor, now - length, length) if length < now else b""
        os.ftruncate(file.descriptor, length)
        file.pending.append(Change(self.operations, length if before else 0, before, b"", now, length))


def _vectors(pid: int, address: int, count: int) -> list[tuple[int, int]]:
    return list(_VECTOR.iter_unpack(memory(pid, address, count * _VECTOR.size)))


def _contents(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
