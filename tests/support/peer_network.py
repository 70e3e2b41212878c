"""The network between the members of an etcd, for tests that cut members off from each other.

Before each member's peer port stands a proxy, and the proxies' addresses are the ones that the members know of each
other. Who is cut off runs on, and clients reach it as before; only between it and the other members nothing passes any
more, in either direction. Nothing is refused and nothing closed, just as when packets are dropped: connections stand
and are silent, new ones come about and stay silent. Once the network is whole again, what was sent and has not been
given up meanwhile arrives.

All members dial from the same address. Which of them has dialled is told by whose process the other end of the
connection belongs to (/proc), so this is for Linux.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

# Data at once; what is under way in a proxy is as if it were in a socket's buffer.
_CHUNK = 2**16


class PeerNetwork:
    """Proxies in front of peer ports. `before` for each member, `start`, and `close` at the end."""

    def __init__(self) -> None:
        self._listening: list[socket.socket] = []
        self._real: list[tuple[str, int]] = []
        self._cut: frozenset[int] = frozenset()
        self._pids: Callable[[], Sequence[int]] = list
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="peer-network")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._ended = asyncio.Event()
        self._changed = asyncio.Event()
        self._passing: set[asyncio.Task[None]] = set()
        self._open: set[socket.socket] = set()

    def before(self, host: str, port: int) -> int:
        """The port at which the next member is known to the others; what comes there goes to `host` and `port`."""
        self._real.append((host, port))
        self._listening.append(socket.create_server(("127.0.0.1", 0)))
        self._listening[-1].setblocking(False)
        return int(self._listening[-1].getsockname()[1])

    def start(self, pids: Callable[[], Sequence[int]]) -> None:
        """`pids` says the members' processes, in the order of `before`."""
        self._pids = pids
        self._thread.start()
        assert self._started.wait(30), "the network between the members did not start"

    def close(self) -> None:
        """Ends all connections and proxies."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(30)
        for one in self._listening:
            one.close()

    def cut_off(self, *members: int) -> None:
        """From now on nothing passes between these members and the others."""
        self._divide(frozenset(members))

    def heal(self) -> None:
        """Everything passes again."""
        self._divide(frozenset())

    def _divide(self, members: frozenset[int]) -> None:
        assert self._loop is not None, "the network was not started"

        async def divide() -> None:
            """On the loop that passes things on: when it is done, nothing passes that should not."""
            self._cut = members
            self._changed.set()
            self._changed = asyncio.Event()

        asyncio.run_coroutine_threadsafe(divide(), self._loop).result(30)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        for number, listening in enumerate(self._listening):
            self._loop.add_reader(listening, self._accept, number)
        self._started.set()
        await self._ended.wait()
        for listening in self._listening:
            self._loop.remove_reader(listening)
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)
        for one in self._open:
            one.close()

    def _accept(self, to: int) -> None:
        try:
            near, _ = self._listening[to].accept()
        except OSError:
            # It has hung up already.
            return
        task = asyncio.get_running_loop().create_task(self._connect(to, self._kept(near)))
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)

    def _kept(self, one: socket.socket) -> socket.socket:
        """The socket, which is closed at the end if not before."""
        one.setblocking(False)
        self._open.add(one)
        return one

    def _close(self, one: socket.socket) -> None:
        self._open.discard(one)
        one.close()

    async def _connect(self, to: int, near: socket.socket) -> None:
        with contextlib.ExitStack() as open_ends, contextlib.suppress(OSError):
            open_ends.callback(self._close, near)
            dialler = self._owner(near.getpeername()[1], near.getsockname()[1])
            if dialler is None:
                # It has hung up already.
                return
            await self._until_whole(dialler, to)
            far = self._kept(socket.socket())
            open_ends.callback(self._close, far)
            await asyncio.get_running_loop().sock_connect(far, self._real[to])
            there = asyncio.create_task(self._pass_on(near, far, dialler, to))
            back = asyncio.create_task(self._pass_on(far, near, dialler, to))
            try:
                await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
            finally:
                there.cancel()
                back.cancel()
                await asyncio.gather(there, back, return_exceptions=True)

    async def _pass_on(self, source: socket.socket, target: socket.socket, one: int, other: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            chunk = await loop.sock_recv(source, _CHUNK)
            await self._until_whole(one, other)
            if not chunk:
                return
            await loop.sock_sendall(target, chunk)

    async def _until_whole(self, one: int, other: int) -> None:
        while (one in self._cut) != (other in self._cut):
            await self._changed.wait()

    def _owner(self, port: int, to_port: int) -> int | None:
        """The member whose process has the connection from `port` to `to_port`."""
        inode = _inode(port, to_port)
        for number, pid in enumerate(self._pids()):
            if inode is not None and _has_open(pid, f"socket:[{inode}]"):
                return number
        return None


def _inode(port: int, to_port: int) -> str | None:
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(f":{port:04X}") and fields[2].endswith(f":{to_port:04X}"):
            return fields[9]
    return None


def _has_open(pid: int, name: str) -> bool:
    try:
        numbers = list(Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        # The process has ended.
        return False
    for number in numbers:
        with contextlib.suppress(FileNotFoundError):
            if str(number.readlink()) == name:
                return True
    return False
