"""What happens to a broker's disk and process in a cycle, at a call that the seed chooses."""

import errno
import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tests.support.system_calls import Call

WRITES = ("pwrite64", "pwritev")
SYNCS = ("fdatasync", "fsync")
CALLS = (*WRITES, *SYNCS, "fallocate")

KINDS = (
    "clean stop",
    "kill",
    "kill, slow disk",
    "write error once",
    "write error for ever",
    "sync error once",
    "sync error for ever",
    "full disk for a while",
    "full disk, then killed",
)
SLOW_S = 0.03


@dataclass
class Plan:
    """One cycle's fault. `decide` is asked for each call; `happened` says whether it came to it."""

    kind: str
    at: int
    lasts: int
    pid: Callable[[], int]
    calls: int = 0
    happened: bool = False

    @staticmethod
    def drawn(kind: str, choices: random.Random, pid: Callable[[], int]) -> "Plan":
        """A plan of this kind, at a place that the seed chooses."""
        at = choices.randint(1, 60 if "slow" in kind else 400)
        return Plan(kind, at, choices.randint(20, 400), pid)

    @property
    def delay_s(self) -> float:
        """How long each sync takes longer."""
        return SLOW_S if "slow" in self.kind else 0.0

    @property
    def is_final(self) -> bool:
        """Whether the broker cannot go on after it."""
        return "error" in self.kind

    def decide(self, call: Call) -> int:
        """See system_calls.Decision."""
        matches = {
            "write": call.name in WRITES and call.path.endswith(".segment"),
            "sync": call.name in SYNCS and call.path.endswith(".segment"),
            "full": call.name in (*WRITES, "fallocate") and call.path.endswith(".segment"),
        }
        word = self.kind.split()[0]
        if not matches.get(word, True):
            return 0
        self.calls += 1
        if self.calls < self.at or word == "clean":
            return 0
        if word == "kill":
            self._kill()
            return 0
        if word == "full":
            return self._full(call)
        if self.happened and "once" in self.kind:
            return 0
        self.happened = True
        return errno.EIO

    def _full(self, call: Call) -> int:
        if self.calls > self.at + self.lasts:
            if "killed" in self.kind:
                self._kill()
            return 0
        if call.name != "fallocate":
            # What is set aside already has its room.
            return 0
        self.happened = True
        return errno.ENOSPC

    def _kill(self) -> None:
        self.happened = True
        with suppress(ProcessLookupError):
            os.kill(self.pid(), signal.SIGKILL)
