"""What `tools/cluster/cluster` says where it cannot do anything: tests are left out by its word."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("tier_broker")

_SCRIPT = Path(__file__).parents[2] / "tools" / "cluster" / "cluster"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine on which nothing is built; `go` is what the test makes it."""
    (tmp_path / "bin").mkdir()
    return tmp_path


def make_program(folder: Path, name: str, text: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def go(machine: Path, version: str, toolchain: str) -> None:
    make_program(
        machine / "bin", "go", f"case $2 in GOVERSION) echo go{version};; GOTOOLCHAIN) echo {toolchain};; esac"
    )


def run(machine: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{machine / 'bin'}:/usr/bin:/bin",
        "STERNA_CLUSTER_HOME": str(machine / "home"),
    }
    return subprocess.run(
        [_SCRIPT, *arguments], capture_output=True, text=True, check=False, env=environment, timeout=30
    )


@pytest.mark.parametrize(
    ("version", "toolchain", "said"),
    [
        ("1.25.1", "local", "Go 1.26 or later is not installed, to build etcd kube-apiserver kubectl helm"),
        ("1.20", "auto", "Go 1.26 or later is not installed, to build etcd kube-apiserver kubectl helm"),
        ("1.25.1", "auto", "not built yet: etcd kube-apiserver kubectl helm (tools/cluster/cluster build api)"),
        ("1.26.0", "local", "not built yet: etcd kube-apiserver kubectl helm (tools/cluster/cluster build api)"),
    ],
)
def test_what_is_missing_is_said_in_one_line(machine: Path, version: str, toolchain: str, said: str) -> None:
    go(machine, version, toolchain)
    outcome = run(machine, "lacks", "api")
    assert (outcome.returncode, outcome.stdout.strip()) == (1, said)


def test_nothing_is_said_when_all_is_there(machine: Path) -> None:
    folder = Path(run(machine, "bin").stdout.strip())
    for name in ("etcd", "kube-apiserver", "kubectl", "helm"):
        make_program(folder, name)
    outcome = run(machine, "lacks", "api")
    assert (outcome.returncode, outcome.stdout) == (0, "")
    assert run(machine, "lacks").returncode == 1


def test_the_environment_leads_to_the_programs(machine: Path) -> None:
    home = machine / "home"
    assert run(machine, "env").stdout == f"export KUBECONFIG={home}/run/kubeconfig PATH={home}/bin-1.36.3:$PATH\n"


def test_a_word_that_it_does_not_know_is_refused(machine: Path) -> None:
    for arguments in ((), ("start",), ("up", "some"), ("lacks", "some")):
        outcome = run(machine, *arguments)
        assert outcome.returncode == 2
        assert outcome.stderr.startswith("usage: cluster up")


def test_without_a_node_there_is_none(machine: Path) -> None:
    assert run(machine, "has-node").returncode == 1
