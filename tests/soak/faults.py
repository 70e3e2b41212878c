"""What happens to a broker's disk and process in a cycle, at a call that the seed chooses."""

import errno
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support import forgetful_disk
from tests.support.forgetful_disk import ForgetfulDisk
from tests.support.system_calls import Call

WRITES = forgetful_disk.WRITES
SYNCS = ("fdatasync", "fsync")
READS = ("pread64", "preadv")
CHANGES = (*WRITES, *SYNCS, "fallocate", "openat", "rename", "unlink")
CALLS = tuple(dict.fromkeys((*forgetful_disk.CALLS, *READS)))
SLOW_S = 0.03
# A shortage ends by itself after so long, however few calls came meanwhile.
_LASTS_MAX_S = 2.0


@dataclass(frozen=True)
class Kind:
    """A fault. It meets `calls` on what is named so in the log's folder, from the nth on, n up to `at_max`."""

    name: str
    calls: tuple[str, ...] = ()
    named: str = ""
    """What a file's name contains; `/` is the folder itself."""

    at_max: int = 400
    errors: tuple[int, ...] = ()
    """One of them is what the call fails with; none: the process is killed there."""

    lasts: str = "once"
    """`once`, `ever`, or `while`: for a number of calls."""

    power: bool = False
    slow: bool = False
    must_end: bool = False
    """Whether the broker cannot go on after it, and has to end with 1."""

    then_killed: bool = False
    at_rest: str = ""
    """What is done to the files of a copy when the broker has ended; see damage.py."""

    @property
    def is_load_alone(self) -> bool:
        """Whether nothing happens while clients are at work."""
        return not self.calls


_EIO, _SEGMENT = (errno.EIO,), ".segment"
KINDS = (
    Kind("clean stop"),
    Kind("kill", CHANGES),
    Kind("kill, slow disk", CHANGES, at_max=60, slow=True),
    Kind("power cut", CHANGES, power=True),
    Kind("power cut, slow disk", CHANGES, at_max=60, power=True, slow=True),
    Kind("write error once", WRITES, _SEGMENT, errors=_EIO, must_end=True),
    Kind("write error for ever", WRITES, _SEGMENT, errors=_EIO, lasts="ever", must_end=True),
    Kind("sync error once", SYNCS, _SEGMENT, errors=_EIO, must_end=True),
    Kind("sync error for ever", SYNCS, _SEGMENT, errors=_EIO, lasts="ever", must_end=True),
    Kind("read error once", READS, _SEGMENT, at_max=40, errors=_EIO),
    Kind("read error for ever", READS, _SEGMENT, at_max=40, errors=_EIO, lasts="ever"),
    Kind("open error once", ("openat",), _SEGMENT, at_max=8, errors=_EIO),
    Kind("open error for ever", ("openat",), _SEGMENT, at_max=8, errors=_EIO, lasts="ever"),
    Kind("no descriptors for a while", ("openat",), at_max=8, errors=(errno.EMFILE, errno.ENFILE), lasts="while"),
    Kind("full disk for a while", ("fallocate",), _SEGMENT, at_max=6, errors=(errno.ENOSPC,), lasts="while"),
    Kind("full disk, then killed", ("fallocate",), _SEGMENT, 6, (errno.ENOSPC,), lasts="while", then_killed=True),
    Kind("no room for one write", WRITES, at_max=400, errors=(errno.ENOSPC, errno.EDQUOT)),
    Kind("no room for writes for a while", ("pwritev",), _SEGMENT, errors=(errno.ENOSPC,), lasts="while"),
    Kind("manifest error", (*WRITES, *SYNCS), "manifest", at_max=6, errors=_EIO, must_end=True),
    Kind("watermark error", (*WRITES, *SYNCS), "watermark", at_max=200, errors=_EIO, must_end=True),
    Kind("footer error", (*WRITES, *SYNCS), ".footer", at_max=6, errors=_EIO, must_end=True),
    Kind("names error", SYNCS, "/", at_max=6, errors=_EIO, must_end=True),
    Kind("flipped bits", at_rest="flip"),
    Kind("cut file", at_rest="cut"),
    Kind("swapped files", at_rest="swap"),
    Kind("zeroed blocks", at_rest="zero"),
    Kind("missing file", at_rest="remove"),
    Kind("older file", at_rest="older"),
)


@dataclass
class Plan:
    """One cycle's fault. `decide` is asked for each call; `happened` says whether it came to it."""

    kind: Kind
    at: int
    lasts: int
    error: int
    in_flight: bool
    """Whether what is under way when the power is cut may have got somewhere."""

    pid: Callable[[], int]
    folder: Path
    disk: ForgetfulDisk | None = None
    calls: int = 0
    happened: bool = False
    is_over: bool = False
    began: float = 0.0

    @staticmethod
    def drawn(kind: Kind, choices: random.Random, pid: Callable[[], int], folder: Path) -> "Plan":
        """A plan of this kind, at a place that the seed chooses. `folder` is the log's."""
        at, lasts = choices.randint(1, kind.at_max), choices.randint(20, 400)
        error = choices.choice(kind.errors) if kind.errors else 0
        return Plan(kind, at, lasts, error, choices.random() < 0.5, pid, folder)

    @property
    def delay_s(self) -> float:
        """How long each sync takes longer."""
        return SLOW_S if self.kind.slow else 0.0

    def happened_for(self) -> float:
        """For how many seconds; 0: not yet."""
        return time.monotonic() - self.began if self.began else 0.0

    def decide(self, call: Call) -> int:
        """See system_calls.Decision."""
        if self.is_over or call.name not in self.kind.calls or not self._is_named(call.path):
            return 0
        self.calls += 1
        if self.calls < self.at:
            return 0
        if not self.kind.errors:
            self._end(call)
            return 0
        self.began = self.began or time.monotonic()
        is_past = {
            "once": self.happened,
            "ever": False,
            "while": self.calls > self.at + self.lasts or time.monotonic() > self.began + _LASTS_MAX_S,
        }
        if not is_past[self.kind.lasts]:
            self.happened = True
            return self.error
        self.is_over = True
        if self.kind.then_killed:
            self._kill()
        return 0

    def _is_named(self, path: str) -> bool:
        if self.kind.named == "/":
            return path == str(self.folder)
        return path.startswith(f"{self.folder}/") and self.kind.named in path.rpartition("/")[2]

    def _end(self, call: Call) -> None:
        if self.disk is not None:
            if self.in_flight and call.name not in SYNCS:
                self.disk.carry_out(call)
            self.disk.cut()
        self._kill()

    def _kill(self) -> None:
        self.happened = self.is_over = True
        with suppress(ProcessLookupError):
            os.kill(self.pid(), signal.SIGKILL)
