"""A run that ends at any point leaves a snapshot that is whole, or none; the next run makes it whole."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest
from sterna_audit.exporting import export
from sterna_audit.snapshots import chains, pruning
from sterna_audit.snapshots.pruning import Keep, Retention
from sterna_audit.snapshots.stores import Directory, Entry, Output, Store

from tests.audit.kept import PLAIN, SIGNER, VERIFIER, Kept
from tests.audit.story import PLACE, Story
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


def test_an_export_that_ends_at_any_change_leaves_no_half_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The machine goes on here: what was written is there without the disk's word, for which a hundred runs would wait.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    story = Story(5)
    story.live(30)
    store = Directory(tmp_path)
    first, second = story.cut(), None
    asyncio.run(export(first, store, PLAIN))
    story.live(30)
    second = story.cut()
    changes, done = 0, False
    while not done:
        changes += 1
        try:
            asyncio.run(export(second, Ending(store, changes), PLAIN))
            done = True
        except EndedError:
            chain = chains.verify(store, PLACE, VERIFIER, files=False)
            assert chain.findings == []
            whole = [one.number for one in chain.snapshots if not one.is_half_written]
            assert whole == [1], changes
    # Each table has a file that is begun, written in pieces, and ended; what was left is removed before.
    assert changes > 23 * 3
    chain = chains.verify(store, PLACE, VERIFIER)
    assert chain.findings == []
    assert [one.is_half_written for one in chain.snapshots] == [False, False]
    assert not any(entry.path.endswith(".part") for entry in store.files(""))


def test_pruning_that_ends_at_any_change_leaves_a_chain_that_verifies(tmp_path: Path) -> None:
    kept = Kept(Directory(tmp_path / "snapshots"))
    kept.cuts(4, steps=5)
    retention = Retention(Keep(cuts=2), {"events": Keep(cuts=3)})
    changes, done = 0, False
    while not done:
        # Each run goes a little further than the one before, on what that one left.
        changes += 1
        try:
            pruning.prune(Ending(kept.store, changes % 7 + 1), PLACE, retention, SIGNER, VERIFIER)
            done = True
        except EndedError:
            assert kept.faults() == []
        assert changes < 500
    assert kept.faults() == []
    assert [one.number for one in kept.chain().snapshots] == [2, 3, 4]


_RUN = """
import asyncio, os, signal, sys
from pathlib import Path
from sterna_audit.exporting import export
from sterna_audit.snapshots.stores import Directory
from tests.audit.kept import PLAIN
from tests.audit.story import Story
from tests.audit.test_kills import Ending

class Killed(Ending):
    def end(self):
        os.kill(os.getpid(), signal.SIGKILL)

story = Story(5)
story.live(30)
asyncio.run(export(story.cut(), Killed(Directory(Path(sys.argv[1])), int(sys.argv[2])), PLAIN))
"""


@pytest.mark.usefixtures("tier_broker")
@pytest.mark.parametrize("changes", [1, 2, 3, 40, 90, 200])
def test_a_process_that_is_killed_leaves_none_and_the_next_makes_it_whole(tmp_path: Path, changes: int) -> None:
    def run(most: int) -> int:
        command = [sys.executable, "-c", _RUN, str(tmp_path), str(most)]
        return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode

    code = run(changes)
    chain = chains.verify(Directory(tmp_path), PLACE, VERIFIER)
    assert chain.findings == []
    whole = [one.number for one in chain.snapshots if not one.is_half_written]
    assert (code, whole) in ((-signal.SIGKILL, []), (0, [1]))
    assert run(100_000) == 0
    chain = chains.verify(Directory(tmp_path), PLACE, VERIFIER)
    assert chain.findings == []
    assert [one.is_half_written for one in chain.snapshots] == [False]
