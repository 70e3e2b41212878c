"""The command in a process of its own: where signals, pipes and exit codes are what is shown."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from types import TracebackType

from tests.waiting import eventually_blocking

_PATIENCE_S = 60.0


class Command:
    """`sterna …` as a child process; leaving it kills what still runs. Its output is collected as it comes."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sterna", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"},
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._readers = [
            threading.Thread(target=kept.extend, args=(pipe,), daemon=True)
            for kept, pipe in ((self.out, self._process.stdout), (self.err, self._process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> "Command":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def write(self, text: str) -> None:
        """Gives it something on stdin, which stays open."""
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def end_input(self) -> None:
        """Closes its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def signal(self, number: int) -> None:
        """Sends it a signal."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Waits for its end; the exit code. All that it printed is in `out` and `err` then."""
        code = self._process.wait(_PATIENCE_S)
        for reader in self._readers:
            reader.join(_PATIENCE_S)
        return code

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits until something holds while it runs."""
        assert self.until_or_over(condition), f"it ended with {self._process.returncode}: {''.join(self.err)}"

    def until_or_over(self, condition: Callable[[], bool]) -> bool:
        """Waits until something holds, or it has ended before: whether it runs."""
        eventually_blocking(lambda: condition() or self._process.poll() is not None, timeout_s=_PATIENCE_S)
        return self._process.poll() is None
