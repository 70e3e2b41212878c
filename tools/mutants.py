"""Changes one thing at a time in log and state, and sees whether a test notices. Part of `make test-all`.

cargo-mutants lists what can be changed; it is installed into build/ when it is missing. All of it goes into one copy of
core/, each change behind a number (tools/schemata.py), which is built once: a process has the mutant that the variable
MUTANT names. What the compiler refuses is taken out again, by its errors, until the rest compiles.

Each test is run alone first, to see which mutants it comes by and how long it takes. A mutant then meets the tests that
come by it, the quick ones first, until one fails or does not end in three times its time and five seconds. So log and
the parts of state that decide what is kept are tried in the time that building some fifty of them would take. The order
is drawn by the commit's hash (SEED chooses another), and after 30 minutes (`--minutes`) no more are begun.
`python -m tools.mutants log/footer` tries what has these words in its name alone, survivors that are known, too.

What survives and is known stands with its reason in tests/defects/survivors.tsv, or in unjudged.txt beside it for as
long as nobody has looked into it: that list may only shrink. Anything else that survives is a failure: it needs a test,
or a line with its reason. The tests are the engine's own but for selectors, three that flip or cut each byte in turn,
and one that takes as long as a third of all others; each simulation runs five seeds.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time  # noqa: TID251 - measures real time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools.fingerprints import ROOT
from tools.schemata import SWITCHES, Mutant, at_fault, rewritten
from tools.seeds import chosen

VERSION = "27.1.0"
MINUTES = 30
BUILD = ROOT / "build" / "mutants"
COPY = BUILD / "core"
# What the engine's tests read of the rest of the tree: it lies beside the copy as it lies beside core/.
BESIDE = Path("tests") / "vectors"
RESULTS = BUILD / "results.tsv"
KNOWN = ROOT / "tests" / "defects" / "survivors.tsv"
UNJUDGED = KNOWN.with_name("unjudged.txt")
STATE = ("publishing", "refusals", "producers", "deciding", "apply", "checkpoint")
FILES = ("src/log/**/*.rs", *(f"src/state/{name}.rs" for name in STATE))
SKIPPED = (
    "selector::",
    "a_flip_of_any_byte_below",
    "a_chunk_that_was_changed",
    "truncation_at_every_byte",
    "what_expires_at_a_commit_takes_no_room",
)
SETTINGS = {"CARGO_PROFILE_TEST_DEBUG": "0", "SEEDS": "5", "SEED": "0", "RUSTFLAGS": "-Awarnings"}
# What loops with a mutant in it may also take all memory.
LIMITED = ("bash", "-c", 'ulimit -v 6000000 -c 0; exec "$@"', "limited")
# Tests are run together up to these seconds, then up to the next, since each batch costs a process.
BATCH_S = (0.05, 0.5, 3.0, 600.0)
PATIENCE_S = 5.0
PATIENCE = 3.0


class MutantsError(Exception):
    """What keeps this tool from saying anything."""


@dataclass(frozen=True)
class Measured:
    """A test, how long it takes and which mutants it comes by."""

    name: str
    seconds: float
    reached: frozenset[int]


def installed() -> Path:
    """cargo-mutants in this version."""
    program = BUILD / VERSION / "bin" / "cargo-mutants"
    if not program.is_file():
        root = ["--root", str(BUILD / VERSION), f"cargo-mutants@{VERSION}"]
        subprocess.run(["cargo", "install", "--quiet", "--locked", *root], check=True, stdin=subprocess.DEVNULL)
    return program


def listed(program: Path) -> list[Mutant]:
    """All that can be changed. The numbers are places in this list."""
    patterns = [word for pattern in FILES for word in ("-f", pattern)]
    command = [str(program), "mutants", "--list", "--json", *patterns]
    done = subprocess.run(command, cwd=ROOT / "core", stdout=subprocess.PIPE, text=True, check=True)
    return [Mutant.listed(number, row) for number, row in enumerate(json.loads(done.stdout), 1)]


def write_copy(mutants: Sequence[Mutant], constant: frozenset[str]) -> tuple[set[int], str]:
    """Brings the copy of core/ up to date, with these mutants; those that have a place there, and the sources' hash."""
    by_file = defaultdict(list)
    for one in mutants:
        by_file[one.file].append(one)
    fresh = {"src/switches.rs": SWITCHES.encode()}
    placed: set[int] = set()
    for path in sorted((ROOT / "core" / "src").rglob("*.*")):
        name = str(path.relative_to(ROOT / "core"))
        fresh[name] = path.read_bytes()
        if by_file[name]:
            fresh[name], put = rewritten(fresh[name], by_file[name], constant)
            placed |= put
    fresh["src/lib.rs"] += b"pub mod switches;\n"
    for name in ("Cargo.toml", "Cargo.lock"):
        fresh[name] = (ROOT / "core" / name).read_bytes()
    for path in COPY.rglob("*.*"):
        if path.is_file() and str(path.relative_to(COPY)) not in fresh:
            path.unlink()
    hashed = hashlib.sha256()
    for name, text in fresh.items():
        to = COPY / name
        if by_file[name]:
            hashed.update(text)
        # What did not change keeps its time, so that it is not compiled again.
        if not to.is_file() or to.read_bytes() != text:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(text)
    return placed, hashed.hexdigest()


def build() -> tuple[Path | None, set[int], set[str]]:
    """Builds the tests of the copy: the program, or which mutants do not compile, and what has to stay constant."""
    command = ["cargo", "test", "--no-run", "--locked", "--lib", "--message-format=json"]
    environment = {**os.environ, **SETTINGS, "CARGO_TARGET_DIR": str(BUILD / "target")}
    done = subprocess.run(command, cwd=COPY, env=environment, capture_output=True, text=True, check=False)
    wrong: set[int] = set()
    constant: set[str] = set()
    others = [done.stderr[-2000:]]
    for row in (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")):
        if row.get("executable"):
            return Path(row["executable"]), set(), set()
        message = row.get("message", {})
        if message.get("level") != "error":
            continue
        found: set[int] = set()
        for span in message["spans"]:
            while span["expansion"]:
                span = span["expansion"]["span"]
            if (COPY / span["file_name"]).is_file():
                found |= at_fault((COPY / span["file_name"]).read_bytes(), span["byte_start"])
        called = re.search(r"cannot call non-const .*`(?:\w+::)*(?:<.*>::)?(\w+)` in", message["message"])
        if called and not found:
            constant.add(called[1])
        elif not found:
            others.append(message["rendered"])
        wrong |= found
    if not wrong and not constant:
        raise MutantsError("\n".join(others[:5]))
    return None, wrong, constant


def built(mutants: Sequence[Mutant]) -> tuple[Path, set[int]]:
    """A program with all of these that compile, and their numbers. Those are kept for as long as the sources stay."""
    constant: frozenset[str] = frozenset()
    placed, hashed = write_copy(mutants, constant)
    kept = BUILD / f"viable-{hashed[:16]}.json"
    if kept.is_file():
        found = json.loads(kept.read_text())
        placed, constant = set(found["numbers"]), frozenset(found["constant"])
    while True:
        placed, _ = write_copy([one for one in mutants if one.number in placed], constant)
        kept.write_text(json.dumps({"numbers": sorted(placed), "constant": sorted(constant)}))
        program, wrong, called = build()
        print(f"mutants: {len(placed)} have a place, {len(wrong)} do not compile", flush=True)
        if program:
            return program, placed
        placed, constant = placed - wrong, constant | called


def end_late(process: "subprocess.Popen[str]", late: threading.Event) -> None:
    """Ends what takes too long."""
    late.set()
    process.kill()


def run(program: Path, names: Sequence[str], timeout_s: float, **variables: object) -> str:
    """Runs these tests, until one fails: "passed", the name of the one that failed, or "timed out"."""
    room = BUILD / "tmp" / str(threading.get_ident())
    room.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        **SETTINGS,
        "TMPDIR": str(room),
        **{key: str(value) for key, value in variables.items()},
    }
    command = [*LIMITED, str(program), "--exact", "--test-threads=1", *names]
    late = threading.Event()
    failed = ""
    with subprocess.Popen(
        command, env=environment, cwd=COPY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        timer = threading.Timer(timeout_s, end_late, (process, late))
        timer.start()
        for line in process.stdout:
            if line.startswith("test ") and line.endswith("FAILED\n"):
                failed = line.split()[1]
                process.kill()
        timer.cancel()
    shutil.rmtree(room, ignore_errors=True)
    if failed:
        return failed
    if late.is_set():
        return "timed out"
    return "passed" if process.returncode == 0 else f"ended with {process.returncode}"


def measured(program: Path, name: str) -> Measured:
    """Runs a test without any mutant."""
    reached = BUILD / "reached" / name.replace("::", ".")
    reached.unlink(missing_ok=True)
    began = time.monotonic()
    said = run(program, [name], 300.0, REACHED=reached)
    if said != "passed":
        raise MutantsError(f"{name} fails without any mutant: {said}")
    numbers = reached.read_text().split() if reached.is_file() else []
    return Measured(name, time.monotonic() - began, frozenset(map(int, numbers)))


def measured_all(program: Path) -> list[Measured]:
    """All tests, the quick ones first."""
    (BUILD / "reached").mkdir(exist_ok=True)
    listing = subprocess.run([str(program), "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    names = [line.removesuffix(": test") for line in listing.splitlines() if line.endswith(": test")]
    wanted = [name for name in names if not any(word in name for word in SKIPPED)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return sorted(pool.map(lambda name: measured(program, name), wanted), key=lambda test: test.seconds)


def batches(tests: Sequence[Measured]) -> Iterator[list[Measured]]:
    """Tests that are run by one process: few that are quick, then more."""
    batch: list[Measured] = []
    limits = iter(BATCH_S)
    limit = next(limits)
    for test in tests:
        if batch and sum(one.seconds for one in batch) + test.seconds > limit:
            yield batch
            batch, limit = [], next(limits, limit)
        batch.append(test)
    if batch:
        yield batch


def tried(program: Path, number: int, tests: Sequence[Measured]) -> tuple[str, str]:
    """What became of a mutant, and by which test."""
    reaching = [test for test in tests if number in test.reached]
    for batch in batches(reaching):
        limit = PATIENCE * sum(test.seconds for test in batch) + PATIENCE_S
        said = run(program, [test.name for test in batch], limit, MUTANT=number)
        if said != "passed":
            return ("timed out", batch[-1].name) if said == "timed out" else ("caught", said)
    return "survived", f"of {len(reaching)} tests"


def known(file: Path = KNOWN) -> dict[str, str]:
    """Survivors with a reason, without their line numbers, which change."""
    rows = [line.split("\t", 1) for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return {row[0]: row[-1] for row in rows}


def unjudged(file: Path = UNJUDGED) -> set[str]:
    """Survivors that nobody has looked into."""
    return {line for line in file.read_text().splitlines() if line and not line.startswith("#")}


def without_line(name: str) -> str:
    """`src/a.rs:3:4: replace x` as `src/a.rs: replace x`."""
    file, _, rest = name.partition(":")
    return f"{file}: {rest.split(': ', 1)[-1]}"


def try_all(program: Path, mutants: Sequence[Mutant], end: float) -> dict[str, tuple[str, str]]:
    """Tries them in this order until the time is over; what became of each. Written down as it goes."""
    tests = measured_all(program)
    print(
        f"mutants: {len(tests)} tests, {sum(test.seconds for test in tests):.0f} s; {len(mutants)} to try", flush=True
    )
    outcomes = {}
    with RESULTS.open("w") as out, ThreadPoolExecutor(os.cpu_count()) as pool:

        def one(mutant: Mutant) -> None:
            if time.monotonic() < end:
                outcome = outcomes[mutant.name] = tried(program, mutant.number, tests)
                out.write(f"{mutant.name}\t{outcome[0]}\t{outcome[1]}\n")
                out.flush()

        list(pool.map(one, mutants))
    return outcomes


def main() -> int:
    """Tries what there is, as far as the time goes; 1 when something survived that is not known."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="no mutant is begun after these")
    parser.add_argument("words", nargs="*", help="only mutants with one of these in their names, in this order")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.minutes * 60
    seed = chosen()
    COPY.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / BESIDE, BUILD / BESIDE, dirs_exist_ok=True)
    try:
        everything = listed(installed())
        program, compiling = built(everything)
        wanted = [one for one in everything if one.number in compiling]
        wanted.sort(key=lambda one: hashlib.sha256(f"{seed} {one.name}".encode()).digest())
        passed_over = {*known(), *unjudged()}
        if arguments.words:
            wanted = [one for word in arguments.words for one in wanted if word in one.name]
        else:
            wanted = [one for one in wanted if without_line(one.name) not in passed_over]
        outcomes = try_all(program, list(dict.fromkeys(wanted)), end)
    except MutantsError as error:
        print(f"mutants: {error}", flush=True)
        return 1
    survived = (name for name, (said, _) in outcomes.items() if said == "survived")
    unknown = sorted(name for name in survived if without_line(name) not in passed_over)
    files: dict[str, Counter[str]] = defaultdict(Counter)
    for name, (said, _) in outcomes.items():
        files[name.partition(":")[0]][said] += 1
    for file, found in sorted(files.items()):
        print(file, *(f"{count} {said}" for said, count in sorted(found.items())), sep="\t")
    total = Counter(said for said, _ in outcomes.values())
    counts = ", ".join(f"{count} {said}" for said, count in sorted(total.items()))
    print(
        f"mutants: {len(everything)}, {len(compiling)} compile, {len(outcomes)} of {len(wanted)} tried: {counts}; "
        f"{len(unknown)} survivors are not known"
    )
    print(*unknown, sep="\n", end="\n" if unknown else "")
    # With nothing caught nothing was tried.
    return 1 if unknown or not total["caught"] else 0


if __name__ == "__main__":
    sys.exit(main())
