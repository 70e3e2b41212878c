"""Changes one thing at a time in log and state, and sees whether a test notices. Part of `make test-all`.

A tenth of all mutants, by the commit's hash (SEED chooses another), for 30 minutes at most: so each run looks
elsewhere, and says how far it came. The work is cargo-mutants', in a copy of core/; it is installed into build/ when
it is missing.

What survives and is known stands with its reason in tests/defects/survivors.tsv; anything else that survives is a
failure: it needs a test, or a line there. The tests are the engine's own but for selectors and three that flip or cut
each byte in turn; each simulation runs five seeds.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tools.fingerprints import ROOT
from tools.seeds import chosen
from tools.stages import end_group

VERSION = "27.1.0"
TENTHS = 10
SECONDS = 30 * 60
MUTANT_TIMEOUT_S = 120
BUILD = ROOT / "build" / "mutants"
KNOWN = ROOT / "tests" / "defects" / "survivors.tsv"
FILES = ("src/log/**/*.rs", "src/state/**/*.rs")
SKIPPED = (
    "selector",
    "a_flip_of_any_byte_below",
    "a_chunk_that_was_changed",
    "truncation_at_every_byte",
)
# Small changes are compiled in seconds without optimisation, and that is most of the time.
SETTINGS = {"CARGO_PROFILE_TEST_OPT_LEVEL": "0", "CARGO_PROFILE_TEST_DEBUG": "0", "SEEDS": "5", "SEED": "0"}


def installed() -> Path:
    """cargo-mutants in this version."""
    program = BUILD / VERSION / "bin" / "cargo-mutants"
    if not program.is_file():
        command = [
            "cargo",
            "install",
            "--quiet",
            "--locked",
            "--root",
            str(BUILD / VERSION),
            f"cargo-mutants@{VERSION}",
        ]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return program


def command(program: Path, part: int, out: Path) -> list[str]:
    """How a tenth is run."""
    chosen_files = [word for pattern in FILES for word in ("-f", pattern)]
    skipped = [word for name in SKIPPED for word in ("--skip", name)]
    shard = ["--shard", f"{part}/{TENTHS}", "--sharding", "round-robin", "--shuffle"]
    limits = ["--timeout", str(MUTANT_TIMEOUT_S), "--no-times", "--cargo-arg=--locked", "-o", str(out)]
    return [str(program), "mutants", *chosen_files, *shard, *limits, "--", "--lib", "--", *skipped]


def known(file: Path = KNOWN) -> dict[str, str]:
    """Survivors with a reason, without their line numbers, which change."""
    rows = [line.split("\t", 1) for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return {row[0]: row[-1] for row in rows}


def without_line(name: str) -> str:
    """`src/a.rs:3:4: replace x` as `src/a.rs: replace x`."""
    file, _, rest = name.partition(":")
    return f"{file}: {rest.split(': ', 1)[-1]}"


def main() -> int:
    """Runs a tenth, as far as the time goes; 1 when something survived that is not known."""
    part = chosen() % TENTHS
    out = BUILD / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    arguments = command(installed(), part, out)
    environment = {**os.environ, **SETTINGS}
    print(f"mutants: part {part} of {TENTHS}, {SECONDS // 60} minutes at most", flush=True)
    with subprocess.Popen(
        arguments, cwd=ROOT / "core", env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            end_group(process)
        except BaseException:
            end_group(process)
            raise
    found = out / "mutants.out"
    if not (found / "mutants.json").is_file():
        print("mutants: the tests do not pass without any mutant, or nothing could be built")
        return 1
    listed = len(json.loads((found / "mutants.json").read_text()))
    kinds = ("caught", "missed", "timeout", "unviable")
    lists = {kind: (found / f"{kind}.txt").read_text().splitlines() for kind in kinds}
    explained = known()
    unknown = [name for name in lists["missed"] if without_line(name) not in explained]
    tried = sum(len(names) for names in lists.values())
    counts = ", ".join(f"{len(names)} {kind}" for kind, names in lists.items())
    print(f"mutants: {tried} of {listed} tried: {counts}; {len(unknown)} of the survivors are not known")
    print(*unknown, sep="\n", end="\n" if unknown else "")
    # With nothing caught nothing was tried.
    return 1 if unknown or not lists["caught"] else 0


if __name__ == "__main__":
    sys.exit(main())
