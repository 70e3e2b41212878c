"""Tiers: what a test needs around it, told by the fixtures it asks for, and never by an entry in a list.

| tier | its tests |
|---|---|
| `pure` | need nothing: no process, no server |
| `loop` | have a broker on their own event loop: sockets, but no process |
| `broker` | start processes: brokers, commands, tools |
| `spark` | have a real Spark on this machine, which a process's tests share |
| `etcd` | have a real etcd |
| `api` | have a real Kubernetes API server |
| `pods` | run on a Kubernetes with nodes |

A fixture that starts something asks for the tier's fixture (`tier_broker` and so on), and a test belongs to the highest
tier among all its fixtures; a test that starts a process by itself names it with `usefixtures`. Each tier is a mark, so
that `-m "pure or loop"` selects. A test that starts a process of a tier that it has not asked for fails, even when it
survives the refusal: what is called pure can be run by anybody, in parallel, after each edit.

The end of each run says how many tests of each tier there were, the sum of their times, and the seed of the run. With
STERNA_TIMES=FILE the time of each test is added to that file, in seconds, which is how the stages of CI name the slow.
"""

import _posixsubprocess
import asyncio
import asyncio.subprocess
import functools
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path, PurePath
from typing import Any

import pytest

from tests.support.seeds import seed

TIERS = ("pure", "loop", "broker", "spark", "etcd", "api", "pods")
MEANING = {
    "pure": "needs no process and no server",
    "loop": "has a broker on its own event loop",
    "broker": "starts processes",
    "spark": "has a real Spark",
    "etcd": "has a real etcd",
    "api": "has a real Kubernetes API server",
    "pods": "runs on a Kubernetes with nodes",
}
# What only a higher tier may start; all other programs are of the tier `broker`.
_PROGRAMS = {
    "java": "spark",
    "spark-submit": "spark",
    "etcd": "etcd",
    "kube-apiserver": "api",
    "kubectl": "api",
    "helm": "api",
}
_STARTERS = {"nsenter", "nice", "env", "sh", "bash", "ip", "timeout", "setpriv", "unshare", "taskset"}
_PREFIX = "tier_"

# What our own ways of starting a process without `subprocess` announce: sys.audit(STARTED, program).
STARTED = "sterna.tests.process"
_EVENTS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec", "subprocess.Popen", STARTED}


class NotAskedForError(Exception):
    """A test starts something that its fixtures do not say."""


def tier_of(fixtures: Iterable[str]) -> str:
    """The tier of a test with these fixtures."""
    asked = {name.removeprefix(_PREFIX) for name in fixtures if name.startswith(_PREFIX)}
    return max(asked & set(TIERS), key=TIERS.index, default="pure")


def tier_of_test(item: pytest.Item) -> str:
    """The tier of a test; what has no fixtures, such as a doc test, is pure."""
    return tier_of(getattr(item, "fixturenames", ()))


def needed(event: str, arguments: tuple[Any, ...]) -> str:
    """The tier that may do what an audit event of starting a process tells of."""
    words = [os.fsdecode(word) for word in _words(event, arguments) if isinstance(word, (str, bytes, os.PathLike))]
    names = [PurePath(word).name for word in words if not word.startswith("-")]
    # The program may stand behind another that starts it; else what follows are only its arguments.
    counted = names if names[:1] and names[0] in _STARTERS else names[:1]
    return max((_PROGRAMS.get(name, "broker") for name in counted), key=TIERS.index, default="broker")


def _words(event: str, arguments: tuple[Any, ...]) -> list[Any]:
    """The command as a list."""
    command = arguments[1] if event == "subprocess.Popen" else arguments[0] if arguments else ""
    if isinstance(command, (list, tuple)):
        words = list(command)
        # `subprocess` hands a shell's command on as one word.
        return [*words[:2], *words[2].split()] if len(words) == 3 and words[1] == "-c" else words
    return command.split() if event in ("os.system", STARTED) and isinstance(command, (str, bytes)) else [command]


class Guard:
    """Refuses processes to the test that runs, unless its tier has them."""

    def __init__(self) -> None:
        self.tier: str | None = None
        """That of the test which runs, or `pure` while tests are collected; None: neither."""
        self.highest = "pure"
        """Among the tests so far: fixtures that tests share may end with any of them."""
        self.found: list[str] = []
        sys.addaudithook(self._hook)
        # Neither tells of itself: the one way by which multiprocessing starts what it does not fork, and what asyncio
        # leaves to a loop that may be written in C.
        _posixsubprocess.fork_exec = self._told(_posixsubprocess.fork_exec)
        for name in ("create_subprocess_exec", "create_subprocess_shell"):
            told = self._told(getattr(asyncio, name))
            setattr(asyncio, name, told)
            setattr(asyncio.subprocess, name, told)

    def _told(self, starts: Any) -> Any:
        @functools.wraps(starts)
        def start(*arguments: Any, **more: Any) -> Any:
            # All of a command where it is given as a list, its first word where that begins the arguments.
            sys.audit(STARTED, arguments[0])
            return starts(*arguments, **more)

        return start

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.tier is None or event not in _EVENTS:
            return
        tier = needed(event, arguments)
        if TIERS.index(tier) > TIERS.index(self.tier):
            text = f"a test of the tier '{self.tier}' starts {arguments[:2]}: it has to ask for the fixture tier_{tier}"
            self.found.append(text)
            raise NotAskedForError(text)


class Tally:
    """How many tests of each tier ran, and how long, by their reports."""

    def __init__(self) -> None:
        self.tests: defaultdict[str, float] = defaultdict(float)
        self.counts: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hook of pytest; with xdist it is called where the results come together."""
        tier = str(dict(report.user_properties).get("tier", "pure"))
        self.seconds[tier] += report.duration
        self.tests[report.nodeid] += report.duration
        if report.when == "call" or (report.when == "setup" and not report.passed):
            self.counts[tier] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Hook of pytest."""
        parts = [f"{tier} {self.counts[tier]} in {self.seconds[tier]:.0f} s" for tier in TIERS if self.counts[tier]]
        if parts:
            terminalreporter.write_line(f"tiers: {', '.join(parts)}; SEED={seed()}")
        if file := os.environ.get("STERNA_TIMES"):
            with Path(file).open("a") as times:
                times.writelines(f"{seconds:.3f}\t{name}\n" for name, seconds in self.tests.items())


_GUARD = pytest.StashKey[Guard]()
# An audit hook stays for the life of the process: one for all sessions in it.
_guards: list[Guard] = []


def pytest_configure(config: pytest.Config) -> None:
    for tier in TIERS:
        config.addinivalue_line("markers", f"{tier}: {MEANING[tier]} (set by the fixtures that a test asks for)")
    if not _guards:
        _guards.append(Guard())
    config.stash[_GUARD] = _guards[0]
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Tally(), "tiers-tally")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Modules are imported meanwhile: nothing may be started for that."""
    guard = session.config.stash[_GUARD]
    outer, guard.tier = guard.tier, "pure"
    try:
        result = yield
        if guard.found and not session.testsfailed:
            raise pytest.UsageError("\n".join(guard.found))
    finally:
        guard.tier = outer
        guard.found.clear()
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        tier = tier_of_test(item)
        item.add_marker(tier)
        item.user_properties.append(("tier", tier))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    guard = item.config.stash[_GUARD]
    # A test of plugins may run others inside itself.
    outer, guard.tier = guard.tier, tier_of_test(item)
    guard.highest = max(guard.highest, guard.tier, key=TIERS.index)
    try:
        return (yield)
    finally:
        guard.tier = outer


def _refused(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fails what survived a refusal: the test itself, or what its fixtures do at the end."""
    found = item.config.stash[_GUARD].found
    try:
        return (yield)
    finally:
        # Also when it was skipped, or is expected to fail: it was refused what it did not ask for.
        text = "\n".join(found)
        found.clear()
        if text:
            pytest.fail(text, pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    guard = item.config.stash[_GUARD]
    guard.tier = guard.highest
    yield from _refused(item)


pytest_runtest_setup = pytest.hookimpl(wrapper=True, tryfirst=True)(_refused)
pytest_runtest_call = pytest.hookimpl(wrapper=True, tryfirst=True)(_refused)


@pytest.fixture(scope="session")
def tier_loop() -> None:
    """Asked for by what has a broker on the test's own loop."""


@pytest.fixture(scope="session")
def tier_broker() -> None:
    """Asked for by what starts processes."""


@pytest.fixture(scope="session")
def tier_spark() -> None:
    """Asked for by what starts a Spark."""


@pytest.fixture(scope="session")
def tier_etcd() -> None:
    """Asked for by what starts an etcd."""


@pytest.fixture(scope="session")
def tier_api() -> None:
    """Asked for by what has an API server."""


@pytest.fixture(scope="session")
def tier_pods() -> None:
    """Asked for by what runs on a Kubernetes with nodes."""
