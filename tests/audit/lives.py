"""Clean histories of a real engine that tests share: made once, and copied by whoever changes something."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from sterna_audit.audits import running
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import Bound, History, open_history
from sterna_audit.audits.registry import Audit
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.stores import Directory

from tests.audit.kept import PLAIN
from tests.audit.living import Living

CUTS = 3


@dataclass(frozen=True)
class Life:
    """Snapshots of one engine.

    Attributes:
        root: where they are.
        place: whose they are.
    """

    root: Path
    place: Place

    def copied(self, to: Path) -> "Life":
        """The same snapshots elsewhere, to be changed."""
        shutil.copytree(self.root, to)
        return Life(to, self.place)

    def history(self, spark: SparkSession, first: int | None = None) -> History:
        """To be audited."""
        return open_history(spark, Directory(self.root), None, start=Bound(cut=first) if first else None)


def live(folder: Path, seed: int, steps: int = 60) -> Life:
    """A history from a seed."""
    return Life(folder / "snapshots", lived(folder, seed, steps))


def lived(folder: Path, seed: int, steps: int = 60) -> Place:
    """Lives through a history, whose snapshots are in the folder's own `snapshots` then; whose they are.

    When a message moves to the dead letters depends on when the engine's thread was run, too, and without one there is
    nothing for a fault of a move to be planted in: some are left there before each cut.
    """
    living = Living(folder / f"engine-{seed}", seed)
    store = Directory(folder / "snapshots")
    for _ in range(CUTS):
        living.live(steps)
        living.leave()
        living.cut(store, PLAIN)
    living.stop()
    return living.place


def found(history: History, audit: Audit, out: Path) -> list[Finding]:
    """What an audit says."""
    [result] = running.run(history, [audit], Directory(out)).results
    assert result.error == "", result.error
    for one in result.findings:
        assert one.verdict != "violated" or one.what in audit.meanings, one.what
    return list(result.findings)
