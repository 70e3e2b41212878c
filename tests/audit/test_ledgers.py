"""Ledgers against snapshots: no false alarm, planted faults at the exact message, and the share vouched for."""

from pathlib import Path

import pytest
from sterna_audit.snapshots.stores import Directory

from tests.audit.kept import PLAIN
from tests.audit.living import Living

SEED = 31
LAST = 3


@pytest.fixture(scope="module")
def root(tier_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real history whose clients keep ledgers: two books, one after the other, and some sends in neither."""
    root = tmp_path_factory.mktemp("ledgers")
    living = Living(root / "store", SEED)
    snapshots = Directory(root / "snapshots")
    living.live(20)
    living.cut(snapshots, PLAIN)
    for number in (1, 2):
        book = living.write_down()
        living.cut(snapshots, PLAIN)
        living.live(50)
        living.book = None
        book.keep(root / "books" / f"{number}.ledger", number)
    living.live(5)
    # This cut has all that was written down, but for what a third book says afterwards.
    living.cut(snapshots, PLAIN)
    book = living.write_down()
    living.send("orders", 7)
    book.keep(root / "books" / "later" / "3.ledger", 3)
    living.stop()
    return root
