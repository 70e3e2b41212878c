"""Stores that end after so many changes, and exports killed at one: `python -m tests.audit.ending URI CHANGES`."""

import asyncio
import os
import signal
import subprocess
import sys
from typing import BinaryIO

from sterna_audit.exporting import export
from sterna_audit.snapshots.stores import Entry, Output, Store, open_store

from tests.audit.kept import PLAIN
from tests.audit.story import Story
from tools.fingerprints import ROOT


class EndedError(Exception):
    """The run is over: nothing is done any more."""


class Ending:
    """A store that does so many things that change it, and from then on none; the last may be half done."""

    def __init__(self, store: Store, changes: int) -> None:
        self.store = store
        self.left = changes

    @property
    def uri(self) -> str:
        return self.store.uri

    def change(self) -> bool:
        """Whether this one is done; the one after the last ends all."""
        self.left -= 1
        if self.left < 0:
            self.end()
        return self.left > 0

    def end(self) -> None:
        raise EndedError

    def folders(self, path: str = "") -> list[str]:
        return self.store.folders(path)

    def files(self, path: str) -> list[Entry]:
        return self.store.files(path)

    def size(self, path: str) -> int:
        return self.store.size(path)

    def reading(self, path: str) -> BinaryIO:
        return self.store.reading(path)

    def create(self, path: str) -> Output:
        self.change()
        return EndingOutput(self, self.store.create(path))

    def put(self, path: str, data: bytes) -> None:
        if self.change():
            self.store.put(path, data)
        else:
            # It was about to get its name.
            output = self.store.create(f"{path}.part")
            output.write(data[: len(data) // 2])
            output.finish()
            self.end()

    def remove(self, path: str) -> None:
        self.change()
        self.store.remove(path)

    def remove_folder(self, path: str) -> None:
        for entry in self.store.files(path):
            self.remove(entry.path)
        self.change()
        self.store.remove_folder(path)


class EndingOutput:
    def __init__(self, ending: Ending, output: Output) -> None:
        self.ending = ending
        self.output = output

    def write(self, data: bytes, /) -> int:
        is_whole = self.ending.change()
        return self.output.write(data if is_whole else data[: len(data) // 2])

    def finish(self) -> None:
        self.ending.change()
        self.output.finish()

    def abandon(self) -> None:
        self.output.abandon()


class Killed(Ending):
    """The whole process ends, and nothing of it gets a word in."""

    def end(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def run_killed(uri: str, changes: int) -> int:
    """Exports a cut in a process of its own that is killed at the change after so many; its exit status."""
    command = [sys.executable, "-m", "tests.audit.ending", uri, str(changes)]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode


if __name__ == "__main__":
    story = Story(5)
    story.live(30)
    asyncio.run(export(story.cut(), Killed(open_store(sys.argv[1]), int(sys.argv[2])), PLAIN))
