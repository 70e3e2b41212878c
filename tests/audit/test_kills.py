"""A run that ends at any point leaves a snapshot that is whole, or none; the next run makes it whole."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from sterna_audit.exporting import export
from sterna_audit.snapshots import chains, pruning
from sterna_audit.snapshots.pruning import Keep, Retention
from sterna_audit.snapshots.stores import Directory

from tests.audit.ending import EndedError, Ending, run_killed
from tests.audit.kept import PLAIN, SIGNER, VERIFIER, Kept
from tests.audit.story import PLACE, Story
from tests.support.seeds import is_complete, seed

# The exporter's loop serves nobody else: it writes its files there.
pytestmark = pytest.mark.slow_callbacks(2_000)

#: Of a hundred changes each fourth is one to end at; `make test-all` has all.
STEP = 1 if is_complete() else 4

# The exporter's loop serves nobody else: it compresses and writes its files there.
pytestmark = pytest.mark.slow_callbacks(2_000)


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
    changes, done = seed() % STEP + 1 - STEP, False
    while not done:
        changes += STEP
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


@pytest.mark.usefixtures("tier_broker")
@pytest.mark.parametrize("changes", [1, 2, 3, 40, 90, 200])
def test_a_process_that_is_killed_leaves_none_and_the_next_makes_it_whole(tmp_path: Path, changes: int) -> None:
    code = run_killed(str(tmp_path), changes)
    chain = chains.verify(Directory(tmp_path), PLACE, VERIFIER)
    assert chain.findings == []
    whole = [one.number for one in chain.snapshots if not one.is_half_written]
    assert (code, whole) in ((-signal.SIGKILL, []), (0, [1]))
    assert run_killed(str(tmp_path), 100_000) == 0
    chain = chains.verify(Directory(tmp_path), PLACE, VERIFIER)
    assert chain.findings == []
    assert [one.is_half_written for one in chain.snapshots] == [False]
