"""What the distribution promises: a light SDK, stubs for three protobuf runtimes, typed packages, one version."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from sterna_core import _core

from tools import shipped
from tools.fingerprints import ROOT
from tools.provision import OTHER_PROTOBUFS

ROUND_TRIP = """
import google.protobuf, sterna
from sterna._proto.sterna.v1 import admin_pb2, admin_pb2_grpc, message_pb2, messaging_pb2, messaging_pb2_grpc
message = message_pb2.Message(type="order", priority=7)
assert message_pb2.Message.FromString(message.SerializeToString()) == message
assert message_pb2.DESCRIPTOR.name == "sterna/v1/message.proto"
print(google.protobuf.__version__)
"""

# Everything that only the broker, the command line or the tools may need.
HEAVY = (
    "aiohttp", "click", "prometheus_client", "pydantic", "rich", "ruamel", "structlog", "typer",
    "sterna_broker", "sterna_core", "sterna_etcd", "sterna_resources", "grpc_health", "grpc_reflection",
    "sterna_audit", "pyarrow", "pyspark", "numpy",
)  # fmt: skip

WITHOUT = """
import importlib.abc, pkgutil, sys
class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ImportError(f"the SDK imported {{name}}")
sys.meta_path.insert(0, Refused())
import importlib, sterna
for info in pkgutil.walk_packages(sterna.__path__, "sterna."):
    if not info.name.startswith("sterna.cli"):
        importlib.import_module(info.name)
"""


def python(source: str, *path: Path) -> str:
    """Runs `source` in a fresh interpreter, warnings as errors, with `path` ahead of everything else."""
    search = ":".join(str(folder) for folder in (*path, ROOT / "client"))
    outcome = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        env={"PYTHONPATH": search, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout.strip()


@pytest.mark.parametrize("major", OTHER_PROTOBUFS)
@pytest.mark.usefixtures("tier_broker")
def test_the_stubs_run_on_an_older_protobuf(major: int) -> None:
    version = python(ROUND_TRIP, ROOT / "build" / f"protobuf{major}")
    assert version.startswith(f"{major}.")


@pytest.mark.usefixtures("tier_broker")
def test_the_stubs_run_on_the_protobuf_of_today() -> None:
    assert python(ROUND_TRIP) == metadata.version("protobuf")


@pytest.mark.usefixtures("tier_broker")
def test_the_sdk_needs_neither_the_broker_nor_the_command_line() -> None:
    python(WITHOUT.format(names=HEAVY))


#: The folders that run in the image of an extra; all have what the SDK needs.
ROOMS = {"broker": ("broker", "crds", "etcd", "client"), "operator": ("operator", "crds", "etcd"), "audit": ("audit",)}
OURS = {"sterna", "sterna_audit", "sterna_broker", "sterna_core", "sterna_etcd", "sterna_operator", "sterna_resources"}


@pytest.mark.parametrize("extra", ROOMS)
def test_each_extra_names_every_distribution_that_its_rooms_import(extra: str) -> None:
    owners = metadata.packages_distributions()
    used = {name for room in ROOMS[extra] for file in (ROOT / room).rglob("*.py") for name in imported(file)}
    needed = {owners[name][0].lower().replace("_", "-") for name in used - OURS if name in owners}
    lines = (ROOT / "requirements" / f"{'runtime' if extra == 'broker' else extra}.in").read_text().splitlines()
    named = {re.split(r"[<>=;\[ ]", line)[0].lower() for line in lines if line[:1].isalpha()}
    assert ("pyarrow" if extra == "audit" else "grpcio") in needed
    # It comes with pydantic, in the one version that fits.
    assert sorted(needed - named - {"pydantic-core"}) == []


def imported(file: Path) -> set[str]:
    """The top-level packages that a module imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_plain_requirements_are_grpcio_and_protobuf() -> None:
    plain = [line for line in metadata.requires("sterna") or () if "extra ==" not in line]
    assert sorted(re.split(r"[<>]", line)[0] for line in plain) == ["grpcio", "protobuf"]


@pytest.mark.usefixtures("tier_broker")
def test_the_wheel_holds_every_typed_package_and_nothing_else(tmp_path: Path) -> None:
    command = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), "."]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    packages = {"sterna", "sterna_audit", "sterna_broker", "sterna_etcd", "sterna_operator", "sterna_resources"}
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == packages
    assert {f"{package}/py.typed" for package in packages} <= set(names)
    assert "sterna/_proto/sterna/v1/messaging_pb2.py" in names


def test_engine_and_packages_have_one_version() -> None:
    assert metadata.version("sterna") == metadata.version("sterna-core")


def test_the_wheel_of_the_engine_is_built_without_simulated_disks() -> None:
    project = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())
    assert project["tool"]["maturin"]["features"] == ["python"]
    cargo = tomllib.loads((ROOT / "core" / "Cargo.toml").read_text())
    assert "default" not in cargo["features"]
    builds = [line for line in (ROOT / "tools" / "wheels.sh").read_text().splitlines() if "maturin build" in line]
    assert builds
    assert not any("--features" in line for line in builds)


def test_a_wheel_with_simulated_disks_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "sterna_core-1-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        # The engine of the tests, which has them.
        made.write(_core.__file__, "sterna_core/_core.abi3.so")
    assert [line.rsplit(" ", 1)[1] for line in shipped.problems(wheel)] == ["open_simulated", "SimulatedDisk"]
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("sterna_core/_core.abi3.so", b"an engine")
    assert shipped.problems(wheel) == []


@pytest.mark.usefixtures("tier_broker")
def test_a_wheel_of_the_engine_is_tried_before_it_is_shipped(tmp_path: Path) -> None:
    wheel = tmp_path / "sterna_core-1-any.whl"
    package = Path(_core.__file__).parent
    with zipfile.ZipFile(wheel, "w") as made:
        for file in package.iterdir():
            if file.suffix in (".py", ".so"):
                made.write(file, f"sterna_core/{file.name}")
    # The engine of the tests can be used, and simulates.
    assert shipped.unusable(wheel) == [f"{wheel}: AssertionError: it has open_simulated"]
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("sterna_core/__init__.py", "from sterna_core import _core")
        made.writestr("sterna_core/_core.abi3.so", b"an engine")
    (why,) = shipped.unusable(wheel)
    assert "ImportError" in why
