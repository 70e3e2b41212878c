"""What `tools/cluster/cluster` says of what is missing, by which tests are left out, and how its builds get along."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import eventually_blocking

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


def environment(machine: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{machine / 'bin'}:/usr/bin:/bin",
        "STERNA_CLUSTER_HOME": str(machine / "home"),
    }


def run(machine: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [_SCRIPT, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment(machine),
        timeout=30,
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
    programs = run(machine, "bin").stdout.strip()
    # Kubernetes' version, and what all the programs are made from.
    assert re.fullmatch(rf"{home}/bin-1\.36\.3-[0-9a-f]{{8}}", programs)
    assert run(machine, "env").stdout == f"export KUBECONFIG={home}/run/kubeconfig PATH={programs}:$PATH\n"


def test_a_word_that_it_does_not_know_is_refused(machine: Path) -> None:
    for arguments in ((), ("start",), ("up", "some"), ("lacks", "some")):
        outcome = run(machine, *arguments)
        assert outcome.returncode == 2
        assert outcome.stderr.startswith("usage: cluster up")


def test_without_a_node_there_is_none(machine: Path) -> None:
    assert run(machine, "has-node").returncode == 1


# A Go that builds an empty program, and notes which. With the file `stuck`, a build of low priority never ends.
BUILDING = """
case $1 in env) case $2 in GOVERSION) echo go1.26.0;; *) echo local;; esac; exit;; esac
while [ "$1" != -o ]; do shift; done
echo "$(nice) $3" >>"$STERNA_CLUSTER_HOME/../built"
[ "$(nice)" = 0 ] || [ ! -e "$STERNA_CLUSTER_HOME/../stuck" ] || exec tail -f /dev/null
: >"$2"; chmod 755 "$2"
"""


@pytest.fixture
def background(machine: Path) -> Iterator["subprocess.Popen[str]"]:
    """A build of everything at a low priority, which is stuck at its first program."""
    make_program(machine / "bin", "go", BUILDING)
    (machine / "stuck").touch()
    with subprocess.Popen(
        ["nice", "-n", "5", _SCRIPT, "build"], env=environment(machine), stderr=subprocess.PIPE, text=True
    ) as process:
        eventually_blocking(lambda: built(machine) == ["5 etcd"], timeout_s=20, what="the build at its first program")
        yield process
        process.terminate()


def built(machine: Path) -> list[str]:
    """The priorities and programs of the compilers that were started, in order."""
    try:
        lines = (machine / "built").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [f"{line.split()[0]} {NAMES.get(line.split()[1], line.rpartition('/')[2])}" for line in lines]


NAMES = {"go.etcd.io/etcd/server/v3": "etcd"}
API = ["etcd", "kube-apiserver", "kubectl", "helm"]


def test_a_build_makes_way_for_a_more_urgent_one_and_goes_on_after_it(
    machine: Path, background: "subprocess.Popen[str]"
) -> None:
    outcome = run(machine, "build", "api")
    assert outcome.returncode == 0, outcome.stderr
    assert run(machine, "lacks", "api").returncode == 0
    # What the other has to build besides was not waited for, nor did it take turns.
    assert built(machine)[: len(API) + 1] == ["5 etcd", *(f"0 {name}" for name in API)]
    (machine / "stuck").unlink()
    # It may have begun its next program before the file went: then that one is stuck, until somebody needs it.
    assert run(machine, "build").returncode == 0
    _, said = background.communicate(timeout=30)
    assert background.returncode == 0, said
    assert "making way for a more urgent call" in said
    assert run(machine, "lacks").returncode == 0


def test_a_build_that_is_ended_leaves_no_compiler_behind(machine: Path, background: "subprocess.Popen[str]") -> None:
    compiler = int((machine / "home" / "builder").read_text().split()[0])
    background.terminate()
    assert background.wait(timeout=30) != 0

    def gone() -> bool:
        return not Path(f"/proc/{compiler}").exists()

    eventually_blocking(gone, timeout_s=20, what="the compiler gone")
    (machine / "stuck").unlink()
    assert run(machine, "build", "api").returncode == 0


def test_a_build_that_fails_says_which_program_it_was(machine: Path) -> None:
    make_program(machine / "bin", "go", BUILDING + "case $3 in *kubectl) exit 1;; esac")
    outcome = run(machine, "build", "api")
    assert outcome.returncode == 1
    assert outcome.stderr.endswith("cluster: go build failed for kubectl\n")
    missing = "not built yet: kubectl helm (tools/cluster/cluster build api)"
    assert run(machine, "lacks", "api").stdout.strip() == missing


def test_a_wiped_cluster_leaves_no_network_namespace_of_its_pods_and_touches_no_others(machine: Path) -> None:
    notes, deleted = machine / "cni", machine / "deleted"
    for folder in ("results", "networks/sterna", "networks/bridge"):
        (notes / folder).mkdir(parents=True)
    for network, sandbox in (("sterna", "a1"), ("sterna", "b2"), ("docker", "c3")):
        told = f'{{"interfaces":[{{"name":"eth0","sandbox":"/var/run/netns/cni-{sandbox}"}}],"ips":[]}}'
        (notes / "results" / f"{network}-{sandbox}-eth0").write_text(told)
        (notes / "results" / f"cni-loopback-{sandbox}-lo").write_text("{}")
    (notes / "networks/bridge/10.1.0.2").write_text("c3")
    # Whoever deletes others than it should is found by this; nothing of this machine is touched.
    make_program(machine / "bin", "ip", f'echo "$*" >> {deleted}')
    make_program(machine / "bin", "id", "echo 0")
    outcome = subprocess.run(
        [_SCRIPT, "down", "--wipe"],
        capture_output=True,
        text=True,
        check=False,
        env={**environment(machine), "STERNA_CNI_NOTES": str(notes)},
        timeout=30,
    )
    assert outcome.returncode == 0, outcome.stderr
    asked = [line for line in deleted.read_text().splitlines() if "cni-" in line]
    assert asked == ["netns del cni-a1", "netns del cni-b2"]
    assert sorted(file.name for file in (notes / "results").iterdir()) == ["cni-loopback-c3-lo", "docker-c3-eth0"]
    assert [file.name for file in (notes / "networks").iterdir()] == ["bridge"]
    assert (notes / "networks/bridge/10.1.0.2").exists()
