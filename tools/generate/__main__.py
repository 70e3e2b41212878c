"""`python -m tools.generate` makes all generated code; with `--check` it fails when what is committed is stale."""

import argparse
import difflib
import shutil
import sys
import tempfile
from pathlib import Path

from tools.fingerprints import ROOT, fingerprint, remember, unchanged
from tools.generate.generators import Generator, generators


def make(generator: Generator) -> dict[str, bytes]:
    """Runs one generator in an empty folder; its outputs by name."""
    scratch = ROOT / "build" / "generate"
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch, prefix=generator.name) as folder:
        generator.make(Path(folder))
        made = generator.output_files(Path(folder))
    if not made:
        sys.exit(f"generate: {generator.name} made nothing")
    return made


def write(generator: Generator) -> None:
    """Replaces the generator's outputs in the repository; unchanged files keep their times."""
    made = make(generator)
    present = generator.output_files(ROOT)
    for name in present.keys() - made.keys():
        (ROOT / name).unlink()
    for name, content in made.items():
        if present.get(name) != content:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_bytes(content)
    print(f"generate: {generator.name}: {len(made)} files")


def differences(name: str, committed: bytes | None, made: bytes | None) -> str:
    """What is wrong with one file, with the first lines of the difference."""
    if committed is None:
        return f"{name}: missing"
    if made is None:
        return f"{name}: nothing generates this file any more"
    old, new = (content.decode(errors="replace").splitlines() for content in (committed, made))
    lines = difflib.unified_diff(old, new, "committed", "generated", lineterm="", n=1)
    return "\n".join([f"{name}: stale", *(line[:200] for line in list(lines)[:12])])


def check(generator: Generator) -> list[str]:
    """The files of one generator that are stale."""

    def value() -> str:
        return fingerprint([*generator.input_files(), *(ROOT / path for path in generator.outputs)])

    step = f"fresh-{generator.name}"
    if unchanged(step, value()):
        return []
    made, present = make(generator), generator.output_files(ROOT)
    stale = [
        differences(name, present.get(name), made.get(name))
        for name in sorted(made.keys() | present.keys())
        if made.get(name) != present.get(name)
    ]
    if not stale:
        remember(step, value())
    return stale


def main() -> int:
    """Writes, or with `--check` compares; names of generators narrow either."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with what is committed instead of writing")
    parser.add_argument("names", nargs="*", help="only these generators")
    options = parser.parse_args()
    chosen = [generator for generator in generators() if not options.names or generator.name in options.names]
    if unknown := set(options.names) - {generator.name for generator in chosen}:
        parser.error(f"no such generator: {', '.join(sorted(unknown))}")
    if not options.check:
        for generator in chosen:
            write(generator)
        shutil.rmtree(ROOT / "build" / "generate", ignore_errors=True)
        return 0
    stale = [line for generator in chosen for line in check(generator)]
    if stale:
        print("\n".join(stale))
        print("generated code is stale: run `make generate` and commit what it writes")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
