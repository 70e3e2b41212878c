"""A kube-apiserver with an etcd of its own: real validation, real CEL, real watches, in a folder and on free ports.

The programs are those that `tools/cluster/cluster build api` leaves behind. There is no controller manager: nothing is
collected as garbage, namespaces stay terminating, no pod starts. Requests are made with the standard library alone, so
that what a test sees is what the server says.
"""

import contextlib
import http.client
import itertools
import json
import os
import random
import secrets
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.leaving_out import leave_out
from tests.waiting import eventually_blocking

_ROOT = Path(__file__).parent.parent.parent
_CLUSTER = _ROOT / "tools" / "cluster" / "cluster"
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
# Below the range from which an API server gives node ports (30,000 to 32,767), and that from which Linux takes the
# ports of connections: a port of a test that a Service has too reads like that of the Service.
_PORTS = range(20_000, 30_000)
_WORKERS_MAX = 8
_STARTS_MAX = 3


def programs() -> Path:
    """The folder with etcd, kube-apiserver, kubectl and helm; leaves the tests out where they are not built."""
    if shutil.which("openssl") is None:
        leave_out("tests against a Kubernetes API server", "openssl is not installed")
    lacks = subprocess.run([_CLUSTER, "lacks", "api"], capture_output=True, text=True, check=False)
    if lacks.returncode != 0:
        leave_out("tests against a Kubernetes API server", lacks.stdout.strip() or lacks.stderr.strip())
    return Path(subprocess.run([_CLUSTER, "bin"], capture_output=True, text=True, check=True).stdout.strip())


@cache
def _own_ports() -> Iterator[int]:
    """The ports of this process, again and again: a worker of a parallel run shares none with the others.

    All come once before one comes again, so that what is down for a moment has its own when it is back.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    ports = list(_PORTS[int(worker) % _WORKERS_MAX :: _WORKERS_MAX])
    random.SystemRandom().shuffle(ports)
    return itertools.cycle(ports)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has, and that the system gives to nobody's connection meanwhile."""
    for port in itertools.islice(_own_ports(), len(_PORTS)):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError("every port is taken")


@dataclass(frozen=True)
class Answer:
    """What the server said: status code and decoded body."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        """Whether it was done."""
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        """The reason of a refusal."""
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else str(self.body)


class Reach(NamedTuple):
    """How a server that runs is reached."""

    port: int
    token: str


class ApiServer:
    """One etcd and one kube-apiserver below `folder`; `with` starts and ends them.

    `shared`: one that runs already. Then `folder` holds just what its clients need, and nothing is started or ended.
    """

    def __init__(self, folder: Path, binaries: Path, shared: Reach | None = None) -> None:
        self.folder = folder
        self.binaries = binaries
        self.is_shared = shared is not None
        self.port, self.token = shared or Reach(free_port(), secrets.token_hex(24))
        self.etcd_url = ""
        """Where its etcd is reached; empty: it was not started here."""
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._connection: http.client.HTTPSConnection | None = None

    @property
    def url(self) -> str:
        """The server's address."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        """A configuration file for kubectl and client libraries, with every right."""
        return self.folder / "kubeconfig"

    @property
    def reach(self) -> Reach:
        """What another process needs to share it."""
        return Reach(self.port, self.token)

    def __enter__(self) -> "ApiServer":
        if self.is_shared:
            self._write_kubeconfig()
            return self
        for remaining in reversed(range(_STARTS_MAX)):
            try:
                self._start()
            except BaseException as error:
                self.stop()
                if remaining and "address already in use" in str(error):
                    self.port = free_port()
                    continue
                raise
            break
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends both processes, the API server first."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for _, process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_STOP_TIMEOUT_S)
        self._processes.clear()

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Answer:
        """One request. `body` is sent as JSON."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type, "Accept": "application/json"}
        text = None if body is None else json.dumps(body)
        try:
            return self._ask(method, path, text, headers)
        except (http.client.HTTPException, ConnectionError, ssl.SSLEOFError):
            # The server closes idle connections, which writing on one finds out; a new one is asked once.
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            return self._ask(method, path, text, headers)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs kubectl against this server; a failure is in the result."""
        command: list[str | Path] = [self.binaries / "kubectl", "--kubeconfig", self.kubeconfig, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)

    def helm(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs Helm against this server, with folders of its own; a failure is in the result."""
        folders = {
            f"HELM_{kind}_HOME": str(self.folder / f"helm-{kind.lower()}") for kind in ("CACHE", "CONFIG", "DATA")
        }
        command: list[str | Path] = [self.binaries / "helm", "--kubeconfig", self.kubeconfig, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **folders}
        )

    def namespace(self, name: str) -> str:
        """Makes a namespace, if it is not there."""
        answer = self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        assert answer.ok or answer.status == 409, answer.message
        return name

    def _ask(self, method: str, path: str, text: str | None, headers: dict[str, str]) -> Answer:
        if self._connection is None:
            # The server has made its certificate itself, and it is on the same machine.
            context = ssl._create_unverified_context()
            self._connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=30)
        self._connection.request(method, path, text, headers)
        response = self._connection.getresponse()
        content = response.read().decode()
        try:
            return Answer(response.status, json.loads(content))
        except ValueError:
            return Answer(response.status, content)

    def _start(self) -> None:
        etcd, peer = free_port(), free_port()
        self.etcd_url = f"http://127.0.0.1:{etcd}"
        self._launch(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
        )
        key, users = self.folder / "accounts.key", self.folder / "tokens.csv"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        users.write_text(f"{self.token},admin,admin,system:masters\n")
        self._write_kubeconfig()
        self._launch(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.folder / 'pki'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
            f"--token-auth-file={users}",
            "--profiling=false",
        )
        eventually_blocking(self._is_ready, timeout_s=_START_TIMEOUT_S, what="the API server's readiness")

    def _launch(self, name: str, *flags: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [self.binaries / name, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                # Memory is there, and collecting it would be a fifth of the server's processor time.
                env={**os.environ, "GOGC": "400"},
            )
        self._processes.append((name, process))

    def _is_ready(self) -> bool:
        for name, process in self._processes:
            if process.poll() is not None:
                end = (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]
                raise AssertionError(f"{name} ended with {process.returncode}:\n{end}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.request("GET", "/readyz").ok and self.request("GET", "/api/v1/namespaces/default").ok
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        return False

    def _write_kubeconfig(self) -> None:
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
        self.kubeconfig.write_text(json.dumps(config))
        self.kubeconfig.chmod(0o600)
