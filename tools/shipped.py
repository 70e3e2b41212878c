"""Looks into wheels of the engine for what must not be shipped: simulated disks and engines on them (feature `sim`).

`python -m tools.shipped WHEEL …` is behind `make wheels`; it ends with 1 and the wheel's name if one has them. The
engine that `make setup` builds for tests has them, so `python -m tools.shipped FILE` of that one fails.
"""

import sys
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


def main() -> int:
    """All that are named; 1 if something is wrong with one."""
    wrong = [line for path in sys.argv[1:] for line in problems(Path(path))]
    if wrong:
        print(*wrong, "It is for tests alone: build without the feature `sim`.", sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
