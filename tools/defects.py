"""Puts back the defects of tests/defects, each behind a number, and sees whether they are found.

`python -m tools.defects replay` (part of `make test`) runs what is written down: the reduced runs of the simulator in
tests/defects/runs.tsv, and the unit tests that the table names. With its defect each has to fail, without it to pass.

`python -m tools.defects hunt` (part of `make test-all`) looks through fresh seeds of the simulator until each defect
shows, 20,000 of them at most, and writes the reduced runs to build/defects/runs.tsv; `--write` takes them over into
the tree.

All patches go into one copy of core/ in build/, which is built once: a process has the defect that the variable DEFECT
names. What is found by tests outside the engine is only looked for: that these tests exist.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time  # noqa: TID251 - measures real time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools.fingerprints import ROOT
from tools.seeds import chosen

HERE = ROOT / "tests" / "defects"
RUNS = HERE / "runs.tsv"
BUILD = ROOT / "build" / "defects"
COPY = BUILD / "core"
SEEDS = 20_000
STEPS = 700
HUNT = "sim::run::hunt::hunt"
# What hangs has failed.
REPLAY_TIMEOUT_S = 60.0
HUNT_TIMEOUT_S = 1200.0
# A few dozen runs need no fast code, and this is compiled in a third of the time.
QUICK = {"CARGO_PROFILE_TEST_OPT_LEVEL": "0", "CARGO_PROFILE_TEST_DEBUG": "0"}


class DefectsError(Exception):
    """What keeps this tool from saying anything."""


@dataclass(frozen=True)
class Defect:
    """A line of the table."""

    number: int
    what: str
    simulator: bool = False
    tests: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()

    @property
    def is_patched(self) -> bool:
        """Whether the engine finds it, so that there has to be a patch."""
        return self.simulator or bool(self.tests)


@dataclass(frozen=True)
class Run:
    """A reduced run of the simulator: these steps of this seed."""

    number: int
    seed: int
    kept: str
    wrong: str


def table(file: Path = HERE / "defects.toml") -> list[Defect]:
    """All defects."""
    rows = tomllib.loads(file.read_text())["defect"]
    return [
        Defect(
            row["number"],
            row["what"],
            row.get("simulator", False),
            tuple(row.get("tests", ())),
            tuple(row.get("outside", ())),
        )
        for row in rows
    ]


def runs(file: Path = RUNS) -> dict[int, Run]:
    """The reduced runs that are written down, by number."""
    rows = [line.split("\t", 3) for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return {int(number): Run(int(number), int(seed), kept, wrong) for number, seed, kept, wrong in rows}


def write_runs(found: Sequence[Run], file: Path) -> None:
    """Writes them down."""
    head = (
        "# Written by `python -m tools.defects hunt --write`: number, seed, steps that are kept, what is wrong then.\n"
    )
    lines = [
        f"{one.number}\t{one.seed}\t{one.kept}\t{one.wrong}\n" for one in sorted(found, key=lambda run: run.number)
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(head + "".join(lines))


def patch_of(number: int) -> Path:
    """The patch that puts a defect back."""
    found = sorted(HERE.glob(f"{number:04}-*.patch"))
    if len(found) != 1:
        raise DefectsError(f"defect {number}: {len(found)} patches named {number:04}-….patch in {HERE}")
    return found[0]


def complaints(defects: Sequence[Defect], written: dict[int, Run]) -> list[str]:
    """What is wrong with the table itself: a defect that nothing finds, a patch without a line, a test that is gone."""
    known = {one.number for one in defects if one.is_patched}
    unknown = [path for path in sorted(HERE.glob("*.patch")) if int(path.name[:4]) not in known]
    wrong = [f"{path.name} stands in no line of defects.toml" for path in unknown]
    for one in defects:
        if not one.is_patched and not one.outside:
            wrong.append(f"defect {one.number}: nothing finds it")
        if one.simulator != (one.number in written):
            wrong.append(f"defect {one.number}: the simulator finds it, or not, and runs.tsv says otherwise")
        for name in one.outside:
            file, _, test = name.partition("::")
            path = ROOT / file
            if not path.is_file() or not re.search(rf"def {re.escape(test)}\b", path.read_text()):
                wrong.append(f"defect {one.number}: there is no test {name}")
    return wrong


def make_copy(defects: Sequence[Defect]) -> None:
    """Brings the copy of core/ up to date; what did not change keeps its time, so that it is not compiled again."""
    fresh = BUILD / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    ignored = shutil.ignore_patterns("target", "protogen", "examples", "python", "pyproject.toml")
    shutil.copytree(ROOT / "core" / "src", fresh / "src")
    shutil.copytree(ROOT / "core", fresh, ignore=ignored, dirs_exist_ok=True)
    for number in (one.number for one in defects if one.is_patched):
        apply_patch(patch_of(number), fresh)
    shutil.copy(HERE / "switches.rs", fresh / "src" / "sim" / "switches.rs")
    shutil.copy(HERE / "hunt.rs", fresh / "src" / "sim" / "run" / "hunt.rs")
    append(fresh / "src" / "sim" / "mod.rs", "pub mod switches;\n")
    append(fresh / "src" / "sim" / "run" / "mod.rs", "#[cfg(test)]\nmod hunt;\n")
    wanted = {path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file()}
    for path in COPY.rglob("*"):
        if path.is_file() and path.relative_to(COPY) not in wanted:
            path.unlink()
    for name in wanted:
        to = COPY / name
        if not to.is_file() or to.read_bytes() != (fresh / name).read_bytes():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fresh / name, to)


def apply_patch(patch: Path, tree: Path) -> None:
    """Applies a patch, or says which one does not apply any more."""
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    command = ["git", "apply", "--whitespace=nowarn", str(patch)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DefectsError(
            f"{patch.name} does not apply any more: make it again for the code as it is\n{done.stderr.strip()}"
        )


def append(file: Path, text: str) -> None:
    """Adds to a file."""
    with file.open("a") as out:
        out.write(text)


def build(settings: dict[str, str], target: Path) -> Path:
    """Builds the tests of the copy; the program."""
    command = ["cargo", "test", "--locked", "--lib", "--no-run", "--message-format=short"]
    environment = {**os.environ, **settings, "CARGO_TARGET_DIR": str(target)}
    done = subprocess.run(command, cwd=COPY, env=environment, capture_output=True, text=True, check=False)
    program = re.search(r"Executable .*\((.*)\)", done.stderr)
    if done.returncode or not program:
        raise DefectsError(f"the copy with all defects cannot be built:\n{done.stderr[-4000:]}")
    return Path(program[1])


def ask(program: Path, arguments: Sequence[str], timeout_s: float, **variables: object) -> tuple[int | None, str]:
    """Runs the copy's tests with these variables: how they ended (None: not in time), and what `hunt` says."""
    inherited = {name: value for name, value in os.environ.items() if name not in {"SEED", "SEEDS", "STEPS", "TELL"}}
    environment = {**inherited, **{name: str(value) for name, value in variables.items()}}
    command = [str(program), *arguments, "--exact", "--nocapture"]
    try:
        done = subprocess.run(
            command,
            cwd=COPY,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, "fails it does not end"
    # With one core the test's name stands before it, on the same line.
    said = re.search(r"(?:^| )HUNT (.*)$", done.stdout, re.MULTILINE)
    return done.returncode, said[1] if said else ""


def replayed(program: Path, run: Run, defect: int) -> bool:
    """Whether a reduced run fails."""
    _, said = ask(program, [HUNT], REPLAY_TIMEOUT_S, HUNT="run", DEFECT=defect, SEED=run.seed, KEPT=run.kept)
    if not said.startswith(("fails", "passes")):
        raise DefectsError(f"the run of defect {run.number} said nothing: the program broke down")
    return said.startswith("fails")


def tested(program: Path, tests: Sequence[str], defect: int) -> bool:
    """Whether one of these unit tests fails. None may be missing."""
    status, _ = ask(program, tests, REPLAY_TIMEOUT_S, DEFECT=defect)
    return status != 0


def judged(program: Path, one: Defect, run: Run | None) -> list[str]:
    """What is wrong with how a defect is found now."""
    wrong = []
    if run is not None:
        if not replayed(program, run, one.number):
            wrong.append(f"defect {one.number} ({one.what}): its run does not show it any more; hunt again")
        if replayed(program, run, 0):
            wrong.append(f"defect {one.number} ({one.what}): its run fails without it")
    passed = [test for test in one.tests if not tested(program, [test], one.number)]
    wrong += [f"defect {one.number} ({one.what}): {test} passes with it" for test in passed]
    if one.tests and tested(program, one.tests, 0):
        wrong.append(f"defect {one.number} ({one.what}): {', '.join(one.tests)} fail without it")
    return wrong


def missing_tests(program: Path, defects: Sequence[Defect]) -> list[str]:
    """Unit tests that the table names and that are not there: asked for by name they would pass, as none."""
    listed = subprocess.run([str(program), "--list"], capture_output=True, text=True, check=True).stdout
    there = {line.removesuffix(": test") for line in listed.splitlines()}
    return [
        f"defect {one.number}: there is no test {name}" for one in defects for name in one.tests if name not in there
    ]


def replay() -> int:
    """What is written down, with and without each defect."""
    began = time.monotonic()
    defects, written = table(), runs()
    wrong = complaints(defects, written)
    make_copy(defects)
    program = build(QUICK, BUILD / "target")
    built = time.monotonic()
    wrong += missing_tests(program, defects)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        patched = [one for one in defects if one.is_patched]
        for found in pool.map(lambda one: judged(program, one, written.get(one.number)), patched):
            wrong += found
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(
        f"defects: {len(defects)}, {len(written)} by runs of the simulator, "
        f"{sum(bool(one.tests) for one in defects)} by unit tests, {sum(bool(one.outside) for one in defects)} "
        f"by tests with processes; built in {built - began:.0f} s, tried in {time.monotonic() - built:.0f} s: "
        f"{'FAILED' if wrong else 'ok'}"
    )
    return 1 if wrong else 0


def hunted(program: Path, one: Defect, seed: int) -> Run | None:
    """Looks for a seed on which a defect shows."""
    began = time.monotonic()
    variables = {"DEFECT": one.number, "SEED": seed, "SEEDS": SEEDS, "STEPS": STEPS}
    _, said = ask(program, [HUNT], HUNT_TIMEOUT_S, HUNT="find", **variables)
    found = re.match(r"found ran=(\d+) seed=(\d+) kept=(\S*) (.*)", said)
    took = f"{time.monotonic() - began:.0f} s"
    if not found:
        print(f"{one.number:>5} NOT FOUND {said} ({took}) {one.what}", flush=True)
        return None
    print(f"{one.number:>5} after {found[1]:>5} seeds ({took}) {one.what}", flush=True)
    return Run(one.number, int(found[2]), found[3], found[4][:160])


def hunt(seed: int, *, only: Sequence[int], is_kept: bool) -> int:
    """Fresh seeds for each defect that the simulator finds; without any they must pass."""
    defects = table()
    make_copy(defects)
    # Beside the tests' own build: what both depend on is compiled once.
    program = build({}, ROOT / "core" / "target")
    wanted = [one for one in defects if one.simulator and (not only or one.number in only)]
    print(f"defects: {len(wanted)} to be found from SEED={seed} on, {SEEDS} seeds of {STEPS} steps at most", flush=True)
    sound = hunted(program, Defect(0, "none: nothing may be found"), seed)
    found = [run for one in wanted if (run := hunted(program, one, seed))]
    write_runs(found, BUILD / "runs.tsv")
    if is_kept:
        kept = {**(runs() if RUNS.exists() else {}), **{run.number: run for run in found}}
        simulated = {one.number for one in defects if one.simulator}
        write_runs([run for number, run in kept.items() if number in simulated], RUNS)
    if sound:
        print(f"SEED={sound.seed} fails without any defect: {sound.wrong}; steps {sound.kept}")
    return 0 if len(found) == len(wanted) and not sound else 1


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tools.defects")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("replay", help="run what is written down, with and without each defect")
    hunting = commands.add_parser("hunt", help="look through fresh seeds for each defect")
    hunting.add_argument("--write", action="store_true", help="take the reduced runs over into the tree")
    hunting.add_argument("numbers", nargs="*", type=int, help="these defects alone")
    arguments = parser.parse_args()
    try:
        if arguments.command == "replay":
            return replay()
        return hunt(chosen(), only=arguments.numbers, is_kept=arguments.write)
    except DefectsError as error:
        print(f"defects: {error}", flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
