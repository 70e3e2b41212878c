"""Real etcd members in processes of their own, for tests that kill, freeze, empty and restore them.

The binary is looked for in STERNA_ETCD, among what the local cluster has built (~/.cache/sterna-cluster) and on the
PATH. Where there is none the tests that need it are left out, saying so; with STERNA_COMPLETE=1 or CI=true they
fail instead.
"""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.api_server import free_port
from tests.support.peer_network import PeerNetwork
from tests.waiting import eventually_blocking

START_TIMEOUT_S = 30.0
_BUILT = Path.home() / ".cache" / "sterna-cluster"


def binary() -> str:
    """The etcd to run; skips the test, or fails it where nothing may be left out."""
    named = os.environ.get("STERNA_ETCD")
    # Each version of the programs, and of how they are built, has a folder of its own.
    built = max(_BUILT.glob("bin-*/etcd"), key=lambda file: file.stat().st_mtime, default=None)
    found = named or (str(built) if built else None) or shutil.which("etcd")
    if found is None:
        text = "left out: no etcd (tools/cluster/cluster builds it; or set STERNA_ETCD)"
        if os.environ.get("STERNA_COMPLETE") == "1" or os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    return found


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody has, and that the system gives to nobody's connection meanwhile."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)


class Member:
    """One etcd. `start` again after `kill` finds the same data at the same port."""

    def __init__(
        self,
        folder: Path,
        name: str,
        client: str,
        peer: str,
        flags: Sequence[str],
        prefix: Sequence[str] = (),
        known_as: str = "",
    ) -> None:
        self.folder = folder
        self.name = name
        self.url = client
        self.peer = peer
        self.known_as = known_as or peer
        """Where the other members find it."""
        self._flags = list(flags)
        self._prefix = list(prefix)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        """Where it keeps everything."""
        return self.folder / f"{self.name}.etcd"

    @property
    def pid(self) -> int:
        """The process's number."""
        assert self._process is not None, "this member was not started"
        return self._process.pid

    def launch(self) -> None:
        """Starts the process and returns at once."""
        command = [
            *self._prefix,
            binary(),
            f"--name={self.name}",
            f"--data-dir={self.data}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={self.peer}",
            f"--initial-advertise-peer-urls={self.known_as}",
            "--log-level=warn",
            # Tests have no power failures, and disks of their machines are slow.
            "--unsafe-no-fsync",
            *self._flags,
        ]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL, also when it is frozen."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        if self._process is not None:
            self._process.wait(20)

    def freeze(self) -> None:
        """SIGSTOP: its connections stay, and nothing answers."""
        assert self._process is not None, "this member was not started"
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None, "this member was not started"
        self._process.send_signal(signal.SIGCONT)

    def wipe(self) -> None:
        """Empties it; not while it runs."""
        shutil.rmtree(self.data)

    def copy_to(self, folder: Path) -> None:
        """A copy of its data; not while it runs."""
        shutil.copytree(self.data, folder)

    def restore_from(self, folder: Path) -> None:
        """Puts a copy in the place of its data; not while it runs."""
        self.wipe()
        shutil.copytree(folder, self.data)

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process is not None and self._process.poll() is not None

    @property
    def log(self) -> str:
        """What it has said."""
        return (self.folder / f"{self.name}.log").read_text(errors="replace")


class RunningEtcd:
    """One or more members of one etcd."""

    def __init__(
        self,
        folder: Path,
        members: int = 1,
        *,
        scheme: str = "http",
        flags: Sequence[str] = (),
        place: Callable[[int], tuple[str, list[str]]] | None = None,
        network: PeerNetwork | None = None,
    ) -> None:
        """`place` says for each member's number its address and what its command begins with (a namespace).

        `network`: what members say to each other goes through it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        ports = free_ports(2 * members)
        places = [place(number) if place else ("127.0.0.1", []) for number in range(members)]
        peers = [f"http://{host}:{ports[2 * number + 1]}" for number, (host, _) in enumerate(places)]
        self.network = network
        known_as = list(peers)
        if network is not None:
            ends = [(host, ports[2 * number + 1]) for number, (host, _) in enumerate(places)]
            known_as = [f"http://127.0.0.1:{network.before(host, port)}" for host, port in ends]
        cluster = ",".join(f"m{number}={peer}" for number, peer in enumerate(known_as))
        every = [f"--initial-cluster={cluster}", f"--initial-cluster-token={folder.name}", *flags]
        self.members = [
            Member(
                folder,
                f"m{number}",
                f"{scheme}://{host}:{ports[2 * number]}",
                peers[number],
                every,
                prefix,
                known_as[number],
            )
            for number, (host, prefix) in enumerate(places)
        ]

    @property
    def urls(self) -> str:
        """All endpoints, commas between."""
        return ",".join(member.url for member in self.members)

    @property
    def first(self) -> Member:
        """The only member, of an etcd that has one."""
        return self.members[0]

    def start(self) -> "RunningEtcd":
        """Starts all members; waits until each can be connected to."""
        for member in self.members:
            member.launch()
        if self.network is not None:
            self.network.start(lambda: [member.pid for member in self.members])
        for member in self.members:
            self.wait_for(member)
        return self

    def restart(self, member: Member) -> None:
        """Starts a member that was killed."""
        member.launch()
        self.wait_for(member)

    def wait_for(self, member: Member) -> None:
        """Until it takes connections, which it does once it has found its place."""
        host, _, port = member.url.rpartition("/")[2].rpartition(":")

        def connects() -> bool:
            assert not member.has_ended, f"etcd ended:\n{member.log[-3000:]}"
            with socket.socket() as probe:
                probe.settimeout(1)
                return probe.connect_ex((host, int(port))) == 0

        eventually_blocking(connects, timeout_s=START_TIMEOUT_S, what=f"{member.name} of etcd")

    def stop(self) -> None:
        """Ends all."""
        for member in self.members:
            member.kill()
        if self.network is not None:
            self.network.close()

    def __enter__(self) -> "RunningEtcd":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
