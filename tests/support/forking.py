"""Processes forked from one that has everything imported: brokers and operators of tests start in a tenth of a second.

A process of its own imports for a second before it does anything, and tests start some thousand. `Forked` has one
process for each of pytest import once and forks the others from it. That one, the fork server, has a single thread and
never begins to use what it has imported: gRPC, event loops and the engine start in the children. It is started when the
first child is wanted, and ends with the process that started it, however that ends; so do the children.

A child stands as `subprocess.Popen` would have started it: the environment of the moment, its own folder, files for
what it says, the usual signal handlers, the same process group. What differs is memory, which it shares, the order of
sets of texts, which all children of one server have in common, and that nothing was executed: tests of either start
their programs as users do.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn

from sterna._grpc_experiments import choose_experiments

_ROOT = Path(__file__).parent.parent.parent
_ROOMS = ("operator", "broker", "etcd", "crds", "client", ".")
_PROGRAM = "from tests.support.forking import serve; serve()"
_REQUEST_MAX = 1 << 20
_NUMBER = struct.Struct("i")
_PR_SET_PDEATHSIG = 1
_END_TIMEOUT_S = 5.0
_LIBC = ctypes.CDLL(None)

_modules: list[str] = []


def preload(modules: Sequence[str]) -> None:
    """Has the fork server import these before it forks again. Nothing is started for that."""
    _modules.extend(one for one in modules if one not in _modules)


class _Request(NamedTuple):
    """What the fork server is asked; `call` is pickled by itself, and only read in the child."""

    modules: tuple[str, ...]
    call: bytes


class _Call(NamedTuple):
    target: Callable[..., Any]
    arguments: tuple[Any, ...]
    name: str
    folder: str
    environment: dict[str, str]


class Forked:
    """A process that calls `target` with `arguments`, and ends as a program that ends with `sys.exit(target(…))`.

    `target` is found by its name, as pickle does it. As far as tests need it, this is a `subprocess.Popen`. `stdout`
    and `stderr` are files, which begin anew and may be one.
    """

    def __init__(
        self, target: Callable[..., Any], arguments: Sequence[Any], *, folder: Path, stdout: Path, stderr: Path
    ) -> None:
        self.name = f"{target.__module__}.{target.__qualname__}"
        call = _Call(target, tuple(arguments), self.name, str(folder), dict(os.environ))
        self._lock = threading.Lock()
        self._returncode: int | None = None
        self._status = -1
        # As subprocess tells of what it starts: tests/plugins/tiers.py looks on.
        sys.audit("sterna.tests.process", self.name)
        self._status, told = os.pipe()
        try:
            with stdout.open("wb") as out, contextlib.ExitStack() as stack:
                err = out if stderr == stdout else stack.enter_context(stderr.open("wb"))
                self.pid = _Server.of_this_process().fork(call, (out.fileno(), err.fileno(), told))
        finally:
            os.close(told)

    def __del__(self) -> None:
        if self._status >= 0:
            os.close(self._status)

    @property
    def returncode(self) -> int | None:
        """As `poll`."""
        return self.poll()

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None: it runs."""
        with self._lock:
            if self._returncode is None and _is_readable(self._status, 0):
                content = os.read(self._status, _NUMBER.size)
                # Without its fork server a child is killed.
                self._returncode = int(_NUMBER.unpack(content)[0]) if content else -signal.SIGKILL
            return self._returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status once it has ended.

        Raises:
            subprocess.TimeoutExpired: it runs still.
        """
        # Without the lock: another thread may send a signal meanwhile. What has ended can be read for ever.
        if not _is_readable(self._status, timeout):
            raise subprocess.TimeoutExpired(self.name, timeout or 0.0)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)


def _is_readable(file: int, timeout_s: float | None) -> bool:
    # Not select(): the numbers of files may be beyond what that takes.
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else timeout_s * 1_000))


class _Server:
    """The fork server as the process of the tests sees it."""

    _running: ClassVar["_Server | None"] = None
    _starting: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_MAX)
        path = os.pathsep.join(str(_ROOT / room) for room in _ROOMS)
        with contextlib.ExitStack() as stack:
            stack.enter_context(its)
            unless_done = stack.enter_context(contextlib.ExitStack())
            unless_done.enter_context(ours)
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM],
                cwd=_ROOT,
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
            )
            unless_done.pop_all()
        self._socket = ours
        self._owner = os.getpid()
        self._lock = threading.Lock()
        atexit.register(self._end)

    @classmethod
    def of_this_process(cls) -> "_Server":
        """The one of this process, which may have been forked itself; started with the first call."""
        with cls._starting:
            running = cls._running
            if running is None or running._owner != os.getpid() or running._process.poll() is not None:
                running = cls._running = cls()
            return running

    def fork(self, call: _Call, files: tuple[int, int, int]) -> int:
        """Has a child made; its number."""
        request = pickle.dumps(_Request(tuple(_modules), pickle.dumps(call)))
        with self._lock:
            socket.send_fds(self._socket, [request], files)
            answer = self._socket.recv(_NUMBER.size)
        assert answer, "the fork server has ended; why stands on stderr"
        return int(_NUMBER.unpack(answer)[0])

    def _end(self) -> None:
        if self._owner == os.getpid():
            self._socket.close()
            try:
                self._process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                # A child of pytest's own has the socket too.
                self._process.kill()
                self._process.wait()


def serve() -> None:
    """The fork server's program: forks until its socket, which is its stdin, is closed."""
    # An interrupt from the keyboard reaches the whole group: it is for pytest, which ends this process when it is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # As our programs do: grpc looks once, when it is imported.
    choose_experiments()
    woken, waker = os.pipe()
    for file in (woken, waker):
        os.set_blocking(file, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    requests = socket.socket(fileno=os.dup(0))
    statuses: dict[int, int] = {}
    while True:
        readable = select.select([requests.fileno(), woken], [], [])[0]
        if woken in readable:
            os.read(woken, 4096)
            _report_ends(statuses)
        if requests.fileno() in readable:
            content, files, _, _ = socket.recv_fds(requests, _REQUEST_MAX, 3)
            if not content:
                # With it the children are killed.
                os._exit(0)
            request: _Request = pickle.loads(content)
            pid = _fork(request.modules)
            if pid == 0:
                signal.set_wakeup_fd(-1)
                requests.close()
                _close(woken, waker, *statuses.values())
                _become_child(request.call, *files)
            requests.send(_NUMBER.pack(pid))
            _close(*files[:2])
            statuses[pid] = files[2]


def _fork(modules: Sequence[str]) -> int:
    """As `os.fork`, with these imported, for a child that does not outlive its parent."""
    server = os.getpid()
    _import(modules)
    pid = os.fork()
    if pid == 0:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:
            # It has ended in between.
            os._exit(1)
    return pid


def _import(modules: Sequence[str]) -> None:
    missing = [name for name in modules if name not in sys.modules]
    if not missing:
        return
    for name in missing:
        importlib.import_module(name)
    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, f"{threads} threads run after the import of {', '.join(missing)}: children would lack them"
    # What is there by now stays: children need not look through it, and share its memory.
    gc.collect()
    gc.freeze()


def _report_ends(statuses: dict[int, int]) -> None:
    """Every child that has ended is waited for, and its status told."""
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        told = statuses.pop(pid)
        # Nobody may be left to read it.
        with contextlib.suppress(BrokenPipeError):
            os.write(told, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
        os.close(told)


def _close(*files: int) -> None:
    for file in files:
        os.close(file)


def _become_child(content: bytes, out: int, err: int, told: int) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for file, place in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(file, place)
    _close(nothing, out, err, told)
    call: _Call = pickle.loads(content)
    os.environ.clear()
    os.environ.update(call.environment)
    os.chdir(call.folder)
    sys.argv = [call.name]
    sys.exit(call.target(*call.arguments))
