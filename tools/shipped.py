"""Looks into wheels of the engine for what must not be shipped: simulated disks and engines on them (feature `sim`).

`python -m tools.shipped WHEEL …` is behind `make wheels`; it ends with 1 and the wheel's name if one has them, or is of
no use: what is in it is imported, in a process of its own, and opens a store. The engine that `make setup` builds for
tests has them, so `python -m tools.shipped FILE` of that one fails.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# Names of Python methods, which the module holds as text whatever the linker strips.
FORBIDDEN = (b"open_simulated", b"SimulatedDisk")


def modules(path: Path) -> list[bytes]:
    """The compiled modules of a wheel, or a compiled module by itself."""
    if path.suffix != ".whl":
        return [path.read_bytes()]
    with zipfile.ZipFile(path) as wheel:
        return [wheel.read(name) for name in wheel.namelist() if name.endswith((".so", ".pyd"))]


def problems(path: Path) -> list[str]:
    """What is wrong with a wheel, one line each."""
    found = modules(path)
    if not found:
        return [f"{path}: no compiled module"]
    return [f"{path}: has {name.decode()}" for name in FORBIDDEN if any(name in module for module in found)]


_TRIES = """\
import json, sys, tempfile
sys.path.insert(0, sys.argv[1])
import sterna_core
assert sterna_core.__file__.startswith(sys.argv[1]), sterna_core.__file__
from sterna_core import Engine, _core
for name in ("open_simulated", "SimulatedDisk"):
    assert not hasattr(Engine, name) and not hasattr(_core, name), f"it has {name}"
with tempfile.TemporaryDirectory() as folder:
    Engine.open(folder, json.dumps({"broker": "b"}), 1, 1).stop()
"""


def unusable(wheel: Path) -> list[str]:
    """Why what a wheel holds cannot be used, or can simulate, one line; none if all is well."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as found:
            found.extractall(folder)
        ran = subprocess.run(
            [sys.executable, "-I", "-c", _TRIES, folder], capture_output=True, text=True, check=False, timeout=60
        )
    return [f"{wheel}: {ran.stderr.strip().splitlines()[-1]}"] if ran.returncode else []


def main() -> int:
    """All that are named; 1 if something is wrong with one."""
    paths = [Path(path) for path in sys.argv[1:]]
    wrong = [line for path in paths for line in problems(path)]
    wrong += [line for path in paths if path.suffix == ".whl" and not wrong for line in unusable(path)]
    if wrong:
        print(*wrong, "It is for tests alone: build without the feature `sim`.", sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
