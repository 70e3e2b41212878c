"""System calls of a child process, answered in the kernel's place: errors of a disk, its slowness, and their number.

The child asks the kernel to have some of its calls decided elsewhere (seccomp's user notification), and hands over the
descriptor by which that is done; `Supervised` decides them in the test's process. A call that is let through is carried
out by the kernel, so that everything else is as it is. Neither rights nor a library that is loaded before others are
needed, and it makes no difference whether a call is made by libc or not.

What was written and not synced is forgotten, as at a loss of power, by a `disk` that carries calls out in the kernel's
place: `tests/support/forgetful_disk.py`.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

NUMBERS = {
    "pread64": 17,
    "pwrite64": 18,
    "fsync": 74,
    "fdatasync": 75,
    "ftruncate": 77,
    "rename": 82,
    "unlink": 87,
    "openat": 257,
    "fallocate": 285,
    "preadv": 295,
    "pwritev": 296,
}
"""The calls that can be decided, as x86-64 numbers them."""

_NAMED = {"rename": 0, "unlink": 0, "openat": 1}
"""Which argument of a call is the name that it is about, where that is no descriptor."""

_NAMES = {number: name for name, number in NUMBERS.items()}
_SYS_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER = 317, 1, 1 << 3
_PR_SET_NO_NEW_PRIVS = 38
_ALLOW, _USER_NOTIF = 0x7FFF0000, 0x7FC00000
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
# id, pid, flags; then number, architecture, instruction pointer, six arguments.
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
_FLAG_CONTINUE = 1
_PAGE, _TEXT_MAX = 4096, 16_384
_RECEIVE, _SEND = 0xC0502100, 0xC0182101


class Call(NamedTuple):
    """A call that waits for its answer. `path`: of the open file, or the name that was given; `pid`: the thread's."""

    name: str
    path: str
    pid: int = 0
    arguments: tuple[int, ...] = ()


class Disk(Protocol):
    """Carries out calls in the kernel's place."""

    def concerns(self, call: Call) -> bool:
        """Whether it is the one to carry it out."""

    def carry_out(self, call: Call) -> tuple[int, int, bool]:
        """The value, the error, and whether the kernel has something left to do."""

    def synced(self, call: Call) -> Any:
        """What a sync that begins now will have covered."""

    def settle(self, covered: Any) -> bool:
        """That sync returns; False: it is never answered."""


Decision = Callable[[Call], int]
"""0: the kernel does it. An errno: it fails so, and nothing is done."""


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("jt", ctypes.c_ubyte),
        ("jf", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def is_possible() -> bool:
    """Whether this machine's kernel can be asked for it by this program."""
    return platform.system() == "Linux" and platform.machine() == "x86_64"


def be_supervised(address: str, names: tuple[str, ...]) -> None:
    """In the child, before it starts threads: has these calls decided by who listens at `address`."""
    numbers = [NUMBERS[name] for name in names]
    steps = [(_LOAD, 0, 0, 0)]
    steps += [(_JUMP_IF_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _USER_NOTIF)]
    instructions = (_Instruction * len(steps))(*(_Instruction(*step) for step in steps))
    program = _Program(len(steps), instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    listener = libc.syscall(_SYS_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(program))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    with socket.socket(socket.AF_UNIX) as parent:
        parent.connect(address)
        socket.send_fds(parent, [b"listener"], [listener])
    os.close(listener)


class Supervised:
    """Decides the calls of processes that `be_supervised` at `address`; `decide` may be exchanged at any time.

    `calls` counts what was asked, `delay_s` is waited before each fsync and fdatasync that is let through. `disk`
    carries out what concerns it and was not refused.
    """

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "calls.socket")
        self.decide: Decision = lambda _: 0
        self.delay_s = 0.0
        self.disk: Disk | None = None
        self.calls: Counter[str] = Counter()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.address)
        self._socket.listen()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._accept, name="supervises", daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Decides no more; supervised processes are to be gone."""
        self._ended.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                child, _ = self._socket.accept()
            except OSError:
                return
            with child:
                _, descriptors, _, _ = socket.recv_fds(child, 64, 1)
            for descriptor in descriptors:
                thread = threading.Thread(target=self._serve, args=(descriptor,), name="decides", daemon=True)
                thread.start()
                self._threads.append(thread)

    def _serve(self, listener: int) -> None:
        """Until the last of the supervised processes has ended."""
        while not self._ended.is_set():
            asked = bytearray(_NOTIFICATION.size)
            try:
                fcntl.ioctl(listener, _RECEIVE, asked, True)
            except InterruptedError:
                continue
            except OSError:
                # ENOENT: whoever asked is gone before it was heard; it may have been the last.
                if _has_hung_up(listener):
                    break
                continue
            number, pid, _, asked_for, _, _, *arguments = _NOTIFICATION.unpack(asked)
            name = _NAMES[asked_for]
            # What is asked about a process that was killed meanwhile needs no answer.
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                self._answer(listener, number, Call(name, _path(pid, name, arguments), pid, tuple(arguments)))
        os.close(listener)

    def _answer(self, listener: int, number: int, call: Call) -> None:
        self.calls[call.name] += 1
        disk, refused = self.disk, self.decide(call)
        is_slow = self.delay_s and call.name in ("fsync", "fdatasync")
        if refused:
            _send(listener, number, error=refused)
        elif disk is None or not disk.concerns(call):
            if is_slow:
                threading.Timer(self.delay_s, _send, (listener, number), {"go_on": True}).start()
            else:
                _send(listener, number, go_on=True)
        elif is_slow:
            covered = disk.synced(call)

            def settle() -> None:
                if disk.settle(covered):
                    _send(listener, number)

            threading.Timer(self.delay_s, settle).start()
        else:
            value, error, go_on = disk.carry_out(call)
            _send(listener, number, value=value, error=error, go_on=go_on)


def _send(listener: int, number: int, *, value: int = 0, error: int = 0, go_on: bool = False) -> None:
    flags = _FLAG_CONTINUE if go_on else 0
    # ENOENT: the process was killed meanwhile.
    with contextlib.suppress(OSError):
        fcntl.ioctl(listener, _SEND, _RESPONSE.pack(number, value, -error, flags))


def _has_hung_up(listener: int) -> bool:
    poll = select.poll()
    poll.register(listener, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def memory(pid: int, address: int, length: int) -> bytes:
    """What a process that waits for its answer has in memory there."""
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, length, address)
    finally:
        os.close(descriptor)


def text(pid: int, address: int) -> str:
    """The text, up to its zero, that lies there."""
    found = b""
    while b"\0" not in found and len(found) < _TEXT_MAX:
        # Not over the end of a page: the next one may not be there.
        found += memory(pid, address + len(found), _PAGE - (address + len(found)) % _PAGE)
    return os.fsdecode(found.partition(b"\0")[0])


def _path(pid: int, name: str, arguments: list[int]) -> str:
    try:
        if (place := _NAMED.get(name)) is not None:
            return text(pid, arguments[place])
        return str(Path(f"/proc/{pid}/fd/{arguments[0]}").readlink())
    except OSError:
        return ""


def failing(name: str, ending: str, error: int = errno.EIO) -> Decision:
    """Every such call on a file whose name ends so fails."""
    return lambda call: error if call.name == name and call.path.endswith(ending) else 0


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    """Decides the calls of processes that the test starts."""
    made = Supervised(tmp_path)
    yield made
    made.close()
