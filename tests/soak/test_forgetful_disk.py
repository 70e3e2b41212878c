"""The disk that forgets: what was synced stays, and of the rest everything that may happen does."""

import ctypes
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.forgetful_disk import ForgetfulDisk
from tests.support.system_calls import Call, is_possible

pytestmark = pytest.mark.skipif(not is_possible(), reason="system calls are supervised on Linux on x86-64 alone")
_SEEDS = 60
_BLOCK = 4096


class Process:
    """Calls of this process, as a supervisor hears of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = ForgetfulDisk(folder)
        self._open: list[int] = []
        self._kept: list[object] = []

    def open(self, name: str, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        """A file's descriptor."""
        value = self._name(str(self.folder / name))
        assert self.disk.carry_out(Call("openat", str(self.folder / name), os.getpid(), (0, value, flags)))[1:] == (
            0,
            True,
        )
        self._open.append(os.open(self.folder / name, flags))
        return self._open[-1]

    def write(self, file: int, content: bytes, at: int = 0) -> None:
        """As pwrite."""
        memory = ctypes.create_string_buffer(content, len(content))
        arguments = (file, ctypes.addressof(memory), len(content), at)
        assert self.disk.carry_out(self.call("pwrite64", file, arguments)) == (len(content), 0, False)

    def sync(self, file: int) -> None:
        """As fdatasync."""
        assert self.disk.carry_out(self.call("fdatasync", file, (file,))) == (0, 0, False)

    def sync_names(self) -> None:
        """As fsync of the folder."""
        assert self.disk.carry_out(Call("fsync", str(self.folder), os.getpid(), (0,))) == (0, 0, False)

    def rename(self, name: str, to: str) -> None:
        """As rename."""
        arguments = (0, self._name(str(self.folder / to)))
        assert self.disk.carry_out(Call("rename", str(self.folder / name), os.getpid(), arguments)) == (0, 0, False)

    def unlink(self, name: str) -> None:
        """As unlink."""
        assert self.disk.carry_out(Call("unlink", str(self.folder / name), os.getpid(), (0,))) == (0, 0, False)

    def call(self, name: str, file: int, arguments: tuple[int, ...]) -> Call:
        """One about an open file."""
        return Call(name, str(Path(f"/proc/self/fd/{file}").readlink()), os.getpid(), arguments)

    def close(self) -> None:
        """Ends it."""
        for file in self._open:
            os.close(file)

    def _name(self, text: str) -> int:
        self._kept.append(ctypes.create_string_buffer(text.encode()))
        return ctypes.addressof(self._kept[-1])  # type: ignore[arg-type]


def outcomes(tmp_path: Path, does: Callable[[Process], None]) -> Iterator[dict[str, bytes]]:
    """What the folder holds after a loss of power, seed by seed."""
    for seed in range(_SEEDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        process = Process(folder)
        does(process)
        process.disk.cut()
        process.close()
        process.disk.forget(random.Random(seed))
        yield {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_was_synced_stays(tmp_path: Path) -> None:
    def does(process: Process) -> None:
        file = process.open("a")
        process.write(file, b"1" * _BLOCK)
        process.sync(file)
        process.sync_names()

    assert list(outcomes(tmp_path, does)) == [{"a": b"1" * _BLOCK}] * _SEEDS


def test_what_was_not_synced_is_kept_lost_or_torn_at_sectors(tmp_path: Path) -> None:
    def does(process: Process) -> None:
        file = process.open("a")
        process.write(file, b"1" * 2 * _BLOCK)
        process.sync(file)
        process.sync_names()
        process.write(file, b"2" * _BLOCK, at=_BLOCK)

    found = {content["a"] for content in outcomes(tmp_path, does)}
    assert all(one[:_BLOCK] == b"1" * _BLOCK and len(one) == 2 * _BLOCK for one in found)
    ends = {one[_BLOCK:] for one in found}
    assert {b"1" * _BLOCK, b"2" * _BLOCK} < ends
    sectors = {one[at : at + 512] for one in ends for at in range(0, _BLOCK, 512)}
    assert sectors == {b"1" * 512, b"2" * 512}


def test_a_sync_covers_what_had_returned_before_it_began_and_nothing_later(tmp_path: Path) -> None:
    def does(process: Process) -> None:
        file = process.open("a")
        process.sync_names()
        process.write(file, b"1")
        first = process.disk.synced(process.call("fdatasync", file, (file,)))
        process.write(file, b"2", at=1)
        second = process.disk.synced(process.call("fdatasync", file, (file,)))
        process.write(file, b"3", at=2)
        assert process.disk.settle(first)
        assert process.disk.settle(second)

    assert {content["a"] for content in outcomes(tmp_path, does)} == {b"12", b"123"}


def test_names_without_a_sync_come_or_go_one_by_one(tmp_path: Path) -> None:
    def does(process: Process) -> None:
        for name in ("old", "removed"):
            file = process.open(name)
            process.write(file, name.encode())
            process.sync(file)
        process.sync_names()
        process.rename("old", "new")
        process.unlink("removed")
        process.sync(process.open("made"))

    found = list(outcomes(tmp_path, does))
    assert {frozenset(content) & {"old", "new"} for content in found} == {frozenset({"old"}), frozenset({"new"})}
    assert {frozenset(content) & {"removed", "made"} for content in found} == {
        frozenset(),
        frozenset({"removed"}),
        frozenset({"made"}),
        frozenset({"removed", "made"}),
    }
    assert all(content.get("removed", b"removed") == b"removed" for content in found)
    assert all(content.get("old", content.get("new")) == b"old" for content in found)


def test_a_file_that_was_cut_off_and_not_synced_may_be_as_it_was(tmp_path: Path) -> None:
    def does(process: Process) -> None:
        file = process.open("a")
        process.write(file, b"before")
        process.sync(file)
        process.sync_names()
        process.open("a", os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    assert {content["a"] for content in outcomes(tmp_path, does)} == {b"before", b""}


def test_nothing_is_done_or_promised_once_the_power_is_gone(tmp_path: Path) -> None:
    process = Process(tmp_path)
    file = process.open("a")
    covered = process.disk.synced(process.call("fdatasync", file, (file,)))
    process.disk.cut()
    memory = ctypes.create_string_buffer(b"late")
    call = process.call("pwrite64", file, (file, ctypes.addressof(memory), 4, 0))
    value, error, go_on = process.disk.carry_out(call)
    assert (value, bool(error), go_on) == (0, True, False)
    assert not process.disk.settle(covered)
    process.close()
    process.disk.forget(random.Random(0))
    assert all(path.read_bytes() == b"" for path in tmp_path.iterdir())
