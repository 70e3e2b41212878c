"""The installed operator, and clusters for tests. Not collected unless `make test-cluster` runs them."""

import fcntl
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc.aio  # noqa: F401 - loaded before any loop runs, since the tests bound how long a callback may take
import pytest
import sterna

from tests.kubernetes.kubectl import ROOT, CommandError, Namespace, helm, run
from tests.support.leaving_out import leave_out
from tests.support.seeds import share
from tests.waiting import eventually_blocking

if os.environ.get("STERNA_TEST_CLUSTER") != "1":
    # Needs a Kubernetes that runs pods.
    collect_ignore_glob = ["test_*.py"]
elif "STERNA_TEST_EARLIER" not in os.environ:
    # Needs images of an earlier version: tools/upgrade-from.sh.
    collect_ignore = ["test_from_earlier.py"]

# Of the tests of minutes a run has one in so many, by its seed; `make test-all` has all, and so has who names them.
_LONG_ONE_IN = 4


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known."""
    config.addinivalue_line("markers", "long: takes minutes; a run has a share of these, make test-all has all of them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes the share of the long ones."""
    if any("test_" in argument for argument in config.args):
        return
    long = {item.nodeid: item for item in items if item.get_closest_marker("long")}
    left = [item for name, item in long.items() if name not in share(long, _LONG_ONE_IN, "long tests with pods")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


_SCRIPT = ROOT / "tools" / "cluster" / "cluster"
_LOAD = "tests.kubernetes.load"
VERSION = sterna.__version__
BROKER_IMAGE = os.environ.get("STERNA_TEST_BROKER_IMAGE", f"localhost/sterna-broker:{VERSION}")
OPERATOR_IMAGE = os.environ.get("STERNA_TEST_OPERATOR_IMAGE", f"localhost/sterna-operator:{VERSION}")
AUDIT_IMAGE = os.environ.get("STERNA_TEST_AUDIT_IMAGE", f"localhost/sterna-audit:{VERSION}")
# The same images under other names, which the local cluster gives them by itself: for tests that change them.
OTHER_BROKER_IMAGE = os.environ.get("STERNA_TEST_OTHER_BROKER_IMAGE", "localhost/sterna-broker:another")
OTHER_OPERATOR_IMAGE = os.environ.get("STERNA_TEST_OTHER_OPERATOR_IMAGE", "localhost/sterna-operator:another")
ETCD_IMAGE = os.environ.get("STERNA_TEST_ETCD_IMAGE", "quay.io/coreos/etcd:v3.6.16")
OPERATOR = "sterna-operator"


def _image(name: str) -> list[str]:
    repository, _, tag = name.rpartition(":")
    return [repository, tag]


def operator_values(
    namespace: str, operator_image: str = OPERATOR_IMAGE, broker_image: str = BROKER_IMAGE
) -> list[str]:
    """What `helm install` of the operator is told: to look after one namespace, with the images that were built."""
    operator, broker = _image(operator_image), _image(broker_image)
    values = {
        "image.repository": operator[0],
        "image.tag": operator[1],
        "brokerImage.repository": broker[0],
        "brokerImage.tag": broker[1],
        "etcdImage": ETCD_IMAGE,
        "watchNamespaces": f"{{{namespace}}}",
    }
    return [part for name, value in values.items() for part in ("--set", f"{name}={value}")]


@contextmanager
def _locked(file: Path, *, shared: bool = False) -> Iterator[None]:
    """While it is entered, no other worker of this run has the file, or all that have it share it."""
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def locks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for locks between the workers of one run: they share one cluster."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@contextmanager
def _in_cluster(locks: Path, *, alone: bool = False) -> Iterator[None]:
    """While it is entered, no other worker acts on every namespace; `alone`: no other one does anything.

    One lock is the way to the other: who waits to be alone holds it, so that nobody else begins.
    """
    with ExitStack() as turn:
        with _locked(locks / "next"):
            turn.enter_context(_locked(locks / "cluster", shared=not alone))
        yield


@pytest.fixture(autouse=True)
def beside_others(request: pytest.FixtureRequest, tier_pods: None, locks: Path) -> Iterator[None]:
    """Tests of several workers run beside each other, except those that ask for `whole_cluster`."""
    with _in_cluster(locks, alone="whole_cluster" in request.fixturenames):
        yield


@pytest.fixture
def whole_cluster() -> None:
    """Asked for by what acts on every namespace: no other worker's test runs meanwhile."""


@pytest.fixture(scope="session")
def definitions(tier_pods: None, locks: Path) -> None:
    """The kinds, as the chart installs them. They stay: other namespaces may have objects of them."""
    # Helm does not change a release while another of its processes does.
    with _in_cluster(locks), _locked(locks / "definitions"):
        helm("upgrade", "--install", "sterna-crds", "charts/sterna-crds", "--namespace", "default", "--take-ownership")


@pytest.fixture(scope="session")
def namespace(definitions: None) -> Iterator[Namespace]:
    """A namespace of its own, where only restricted pods may run."""
    name = f"sterna-e2e-{secrets.token_hex(3)}"
    run("kubectl", "create", "namespace", name)
    level = "pod-security.kubernetes.io/enforce=restricted"
    run("kubectl", "label", "namespace", name, level)
    yield Namespace(name)
    if os.environ.get("STERNA_TEST_KEEP") != "1":
        run("kubectl", "delete", "namespace", name, "--wait=true", timeout_s=180)


@pytest.fixture(scope="session")
def operator(namespace: Namespace) -> Iterator[Namespace]:
    """The operator, installed by its chart for the namespace alone."""
    helm(
        *("upgrade", "--install", OPERATOR, "charts/sterna-operator", "--namespace", namespace.name),
        *(*operator_values(namespace.name), "--wait", "--timeout", "180s"),
    )
    yield namespace
    if os.environ.get("STERNA_TEST_KEEP") != "1":
        helm("uninstall", OPERATOR, "--namespace", namespace.name, "--no-hooks", "--wait")


MakeCluster = Callable[..., str]


@pytest.fixture
def make_cluster(operator: Namespace) -> Iterator[MakeCluster]:
    """Makes a cluster that is Ready, insecure and with a managed etcd unless the spec says otherwise; its name."""
    made: list[str] = []

    def make(spec: Mapping[str, Any] | None = None, *, wait: bool = True) -> str:
        name = f"c{secrets.token_hex(2)}"
        whole = {
            "etcd": {"managed": {"storage": {"size": "1Gi"}}},
            "insecure": True,
            "authentication": {"enabled": False},
            "storage": {"size": "1Gi"},
            "deletionPolicy": "delete",
            "pod": {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}},
            **(spec or {}),
        }
        made.append(name)
        operator.apply("MessagingCluster", name, whole)
        if wait:
            operator.ready("messagingcluster", name, 180)
        return name

    yield make
    if os.environ.get("STERNA_TEST_KEEP") == "1":
        return
    # What a failed test left behind would be in the way of the next one.
    operator.kubectl("delete", "queues.sterna.dev,users.sterna.dev", "--all", "--wait=false")
    for name in made:
        operator.delete("messagingcluster", name, "--ignore-not-found", "--wait=false")
    operator.wait(lambda: not any(map(operator.broker_pods, made)), 120, "the clusters' pods gone")
    recycle()


def queues_on_both(operator: Namespace, cluster: str) -> None:
    """Queues `here` and `there`, one on each of a cluster's two brokers, so that both have something that is used."""
    for name in ("here", "there"):
        operator.apply("Queue", name, {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    homes = {operator.ready("queue", name, 90)["status"]["home"] for name in ("here", "there")}
    assert len(homes) == 2


def is_local() -> bool:
    """Whether this is the cluster that tools/cluster/cluster starts."""
    return "sterna-cluster" in os.environ.get("KUBECONFIG", "")


def recycle() -> None:
    """On the local cluster: hands the volumes that were used out again, for there are only so many."""
    if is_local():
        run(str(_SCRIPT), "recycle")


@pytest.fixture(scope="session")
def other_images() -> None:
    """Sees to it that the images' other names can be used; not on the local cluster, they have to be given."""
    if is_local():
        run(str(_SCRIPT), "tag", BROKER_IMAGE, OTHER_BROKER_IMAGE)
        run(str(_SCRIPT), "tag", OPERATOR_IMAGE, OTHER_OPERATOR_IMAGE)
    elif not {"STERNA_TEST_OTHER_BROKER_IMAGE", "STERNA_TEST_OTHER_OPERATOR_IMAGE"} <= os.environ.keys():
        leave_out("other images", "STERNA_TEST_OTHER_BROKER_IMAGE and STERNA_TEST_OTHER_OPERATOR_IMAGE name none")


class Load:
    """A load that runs until `stop`, which answers what it counted."""

    def __init__(self, url: str, queue: str, **environment: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._stop = Path(self._folder.name) / "stop"
        self._errors = Path(self._folder.name) / "stderr"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _LOAD, queue, str(self._stop)],
                cwd=ROOT,
                env={**os.environ, "STERNA_URL": url, **environment},
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._waited(lambda: "begun" in self._errors.read_text(), 60, "the load to begin")

    def confirmed(self) -> int:
        """How many sends have been confirmed so far."""
        try:
            return int(self._stop.with_name("confirmed").read_text() or 0)
        except FileNotFoundError:
            return 0

    def goes_on(self, more: int = 20, timeout_s: float = 120.0) -> None:
        """Waits until it has sent some more: whatever was in the way is over.

        Raises:
            AssertionError: it has ended, or sends nothing.
        """
        wanted = self.confirmed() + more
        self._waited(lambda: self.confirmed() >= wanted, timeout_s, f"{more} more messages sent")

    def _waited(self, check: Callable[[], bool], timeout_s: float, what: str) -> None:
        def alive() -> bool:
            assert self._process.poll() is None, f"the load has ended: {self._errors.read_text()}"
            return check()

        try:
            eventually_blocking(alive, timeout_s=timeout_s, what=what)
        except AssertionError:
            self.end()
            raise

    def said(self) -> str:
        """What it has written to stderr so far, such as that a connection was interrupted."""
        return self._errors.read_text()

    def stop(self) -> dict[str, Any]:
        """Ends it.

        Raises:
            CommandError: it failed before.
        """
        self._stop.touch()
        output, _ = self._process.communicate(timeout=180)
        if self._process.returncode != 0:
            raise CommandError(f"the load failed: {self._errors.read_text()}")
        return dict(json.loads(output))

    def end(self) -> None:
        """Ends the process, whatever it does, and takes its files away."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.cleanup()


Loads = Callable[..., Load]


@pytest.fixture
def load() -> Iterator[Loads]:
    """Starts loads: where to, to which queue, and what else their environment says, such as who they are."""
    started: list[Load] = []

    def start(url: str, queue: str, **environment: str) -> Load:
        started.append(Load(url, queue, **environment))
        return started[-1]

    yield start
    for one in started:
        one.end()


def outside_url(namespace: Namespace, cluster: str) -> str:
    """How clients outside reach a cluster with a node-port listener."""
    found = namespace.get("messagingcluster", cluster)
    assert found is not None
    return str(found["status"]["externalUrls"][0])
