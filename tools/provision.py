"""Sets up `.venv`: pinned packages, the engine built in release mode, our own packages editable. Behind `make setup`.

`python -m tools.provision PART …` installs what these parts need and leaves alone what is there besides: whoever runs
the demo gets no linter and no client of Kubernetes. Without a name it is everything. An environment of an older set-up
is added to. Runs under the system's Python with the standard library alone, since there is no environment yet;
`tools/find-python.sh` has chosen that Python and checked for cargo. Each step is skipped when what it is made from has
not changed (tools/fingerprints.py), so a second run takes well under a second.
"""

import fcntl
import shutil
import subprocess
import sys
import time  # noqa: TID251 - measures real time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools import uv
from tools.fingerprints import ROOT, STAMPS, fingerprint, remember, unchanged
from tools.uv import PYTHON, VENV

OTHER_PROTOBUFS = (5, 6)
UNFINISHED = "setup-unfinished"
PIP = (str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input")


@dataclass(frozen=True)
class Part:
    """What can be asked for by name: the parts it rests upon, its files of pins, and the steps it adds."""

    upon: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


# uv itself is always there. The files of pins agree with one another, since each is made with those before it as given
# (tools/pins.sh), so it does not matter which parts were installed in which order.
PARTS = {
    "uv": Part(),
    "build": Part(pins=("build",)),
    "run": Part(upon=("build",), pins=("runtime",), steps=("core", "packages")),
    "demo": Part(upon=("run",), steps=("flights",)),
    "operator": Part(upon=("run",), pins=("operator",)),
    "audit": Part(upon=("run",), steps=("spark",)),
    "test": Part(upon=("operator", "demo", "audit"), pins=("test",), steps=("protobufs", "moto")),
    "lint": Part(upon=("test",), pins=("lint",)),
}
EVERYTHING = ("lint",)


@dataclass(frozen=True)
class Step:
    """One step besides the pins: what it is made from, and how."""

    title: str
    inputs: tuple[str, ...]
    action: Callable[[], None]


def closure(names: Iterable[str]) -> list[str]:
    """The parts of `names` and all that they rest upon, each once and what is below first."""
    found: list[str] = []
    for name in names:
        found += (part for part in (*closure(PARTS[name].upon), name) if part not in found)
    return found


@cache
def pip_settings() -> dict[str, str]:
    """How pip is configured here, asked once, and only when something is to be installed."""
    return uv.ask_pip()


def run(*command: str | Path, environment: dict[str, str] | None = None) -> None:
    """Runs a command in the repository's root; its failure ends the set-up with the command's own words."""
    outcome = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False)
    if outcome.returncode != 0:
        sys.exit(f"setup: failed ({outcome.returncode}): {' '.join(map(str, command))}")


@contextmanager
def to_the_end() -> Iterator[None]:
    """Notes that an installation has begun, until it has ended well.

    One that was broken off leaves packages without some of their files, which look installed to every later one.
    """
    STAMPS.mkdir(parents=True, exist_ok=True)
    unfinished = STAMPS / UNFINISHED
    unfinished.touch()
    yield
    unfinished.unlink()


def install(*arguments: str | Path) -> None:
    """`uv pip install` into the environment. The pins name everything there is to install, so uv resolves nothing."""
    pip = pip_settings()
    with to_the_end():
        run(*uv.command(pip, "install", "--quiet", "--no-deps", *arguments), environment=uv.environment(pip))


def pins(*names: str) -> list[str]:
    """The arguments that install files of pins, and nothing whose hash is not in them."""
    files = [argument for name in names for argument in ("--requirement", f"requirements/{name}.txt")]
    return ["--require-hashes", *files]


def make_environment() -> None:
    """An empty `.venv`, made anew: whatever an older set-up left in it is gone."""
    run(sys.executable, "-m", "venv", "--clear", VENV)


def install_uv() -> None:
    """What installs everything else, by the pip that came with Python."""
    with to_the_end():
        run(*PIP, "install", "--no-deps", *pins("uv"))
    check_uv()


def check_uv() -> None:
    """Ends the set-up in one line where uv does not run: on a folder without programs, or with another C library."""
    try:
        outcome = subprocess.run((uv.UV, "--version"), capture_output=True, text=True, check=False)
    except OSError as error:
        sys.exit(f"setup: uv, which installs the packages, does not run on this machine: {error}")
    if outcome.returncode != 0:
        reason = outcome.stderr.strip() or f"it ended with {outcome.returncode}"
        sys.exit(f"setup: uv, which installs the packages, does not run on this machine: {reason}")


def install_pins(names: list[str]) -> None:
    """The packages of these files. Compiled now, once: make forbids to write bytecode, so every process would do it."""
    install("--compile-bytecode", *pins(*names))


def install_flights() -> None:
    """The demo's input. Its package declares needs (a data-frame library) that reading its files does not have."""
    install("--no-build-isolation", *pins("demo"))


def install_spark() -> None:
    """Spark, Arrow and what goes with them. Spark comes as sources that setuptools packs, which the pins have."""
    install("--compile-bytecode", "--no-build-isolation", *pins("audit"))


def install_moto() -> None:
    """The server of S3's interface for tests, in a folder of its own: its needs are at odds with ours."""
    target = ROOT / "build" / "moto"
    shutil.rmtree(target, ignore_errors=True)
    install("--target", target, *pins("moto"))


def install_other_protobufs() -> None:
    """Older protobuf runtimes, each in a folder of its own, for the tests that the stubs run on all of them."""
    for major in OTHER_PROTOBUFS:
        target = ROOT / "build" / f"protobuf{major}"
        shutil.rmtree(target, ignore_errors=True)
        install("--target", target, *pins(f"protobuf{major}"))


def build_core() -> None:
    """The engine, in release mode; its Python files stay where they are, the compiled module goes beside them.

    It has what simulations need (the feature `sim`), and the wheels that are shipped have not (tools/wheels.sh).
    """
    features = ("--features", "python,sim")
    command = ("develop", "--uv", "--release", "--locked", *features, "--manifest-path", "core/Cargo.toml")
    run(VENV / "bin" / "maturin", *command, environment=uv.environment(pip_settings()))


def install_packages() -> None:
    """Our own packages, editable. Their needs are in the pins already."""
    install("--no-build-isolation", "--reinstall-package", "sterna", "--editable", ".")


CORE = tuple(f"core/{name}" for name in ("Cargo.toml", "Cargo.lock", "pyproject.toml", "build.rs", "src", "python"))
STEPS = {
    "core": Step("building the engine in release mode (about a minute when new)", CORE, build_core),
    "packages": Step("installing our packages", ("pyproject.toml", "client/sterna/_version.py"), install_packages),
    "flights": Step("installing the demo's flights", ("requirements/demo.txt",), install_flights),
    "spark": Step("installing Spark and Arrow (half a gigabyte)", ("requirements/audit.txt",), install_spark),
    "moto": Step("installing a server of S3's interface for tests", ("requirements/moto.txt",), install_moto),
    "protobufs": Step(
        "installing older protobuf runtimes for tests",
        tuple(f"requirements/protobuf{major}.txt" for major in OTHER_PROTOBUFS),
        install_other_protobufs,
    ),
}


def step(title: str, values: dict[str, str], action: Callable[[], None]) -> None:
    """Does what `values` (names of stamps with fingerprints) stand for, unless it was; says how long it took."""
    if all(unchanged(name, value) for name, value in values.items()):
        return
    print(f"setup: {title} ...", flush=True)
    began = time.monotonic()
    action()
    for name, value in values.items():
        remember(name, value)
    print(f"setup: {title}: {time.monotonic() - began:.0f} s", flush=True)


def provision(names: Iterable[str]) -> None:
    """All steps of these parts, in order. A new environment makes the steps after it necessary again."""
    # The same inside an environment as outside: that of a shell in which `.venv` is active is no other Python.
    environment = fingerprint([], extra=f"{sys.version} {sys.base_prefix} {VENV}")
    is_broken_off = (STAMPS / UNFINISHED).exists()
    if is_broken_off:
        print("setup: the last installation was broken off: .venv is made anew", flush=True)
    if is_broken_off or not PYTHON.exists() or not unchanged("setup-environment", environment):
        for stamp in STAMPS.glob("setup-*"):
            stamp.unlink()
    step("making .venv", {"setup-environment": environment}, make_environment)
    step("installing uv", {"setup-uv": fingerprint([ROOT / "requirements" / "uv.txt"])}, install_uv)
    parts = [PARTS[name] for name in closure(names)]
    stamps = {
        name: (f"setup-pins-{name}", fingerprint([ROOT / "requirements" / f"{name}.txt"]))
        for part in parts
        for name in part.pins
    }
    new = [name for name, (stamp, value) in stamps.items() if not unchanged(stamp, value)]
    title = f"installing the pinned packages ({', '.join(new)})"
    step(title, dict(stamps[name] for name in new), lambda: install_pins(new))
    for name in (name for part in parts for name in part.steps):
        one = STEPS[name]
        step(one.title, {f"setup-{name}": fingerprint(ROOT / file for file in one.inputs)}, one.action)


@contextmanager
def alone() -> Iterator[None]:
    """Waits for another set-up of this folder: two at once would each find the other's half-made things."""
    STAMPS.mkdir(parents=True, exist_ok=True)
    with (STAMPS.parent / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("setup: waiting for another set-up of this folder ...", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    """The parts named, or everything."""
    names = sys.argv[1:] or EVERYTHING
    if unknown := [name for name in names if name not in PARTS]:
        sys.exit(f"setup: no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    with alone():
        provision(names)


if __name__ == "__main__":
    main()
