"""Clean histories of a real engine, into which tests plant faults, each under a broker's name of its own."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sterna_audit.snapshots.layout import Place

from tests.audit.lives import CUTS, lived
from tests.audit.planted import Edit, Row, Table, planted, rows_of

#: The manifests of `living.CONFIGURATION`, as a broker tells them: an engine alone has none.
BRIDGE = {"source": {"topic": "news.sport"}, "targets": [{"queue": "mirror"}, {"topic": "prices.gold"}]}
MANIFESTS: dict[tuple[str, str], Any] = {
    ("Queue", "small"): {"maxMessages": 20, "overflowPolicy": "discardOld", "prefetch": 5},
    ("Queue", "mirror"): {"overflowPolicy": "rejectIncoming"},
    ("Bridge", "sport"): BRIDGE,
}


def configured(manifests: dict[tuple[str, str], Any], revision: int = 1) -> Edit:
    """Manifests are in force."""
    return lambda rows: [
        *rows,
        *(
            {"kind": kind, "name": name, "revision": revision, "spec": json.dumps(spec)}
            for (kind, name), spec in manifests.items()
        ),
    ]


@dataclass
class Life:
    """Snapshots of one engine.

    Attributes:
        root: where they are, and where changed copies of them go.
        place: whose they are.
    """

    root: Path
    place: Place
    made: dict[str, Place] = field(default_factory=dict)

    def rows(self, table: str, cut: int = CUTS) -> list[Row]:
        """A table's rows."""
        folder, name = table.split("/")
        return rows_of(self.root, self.place, (cut, folder, name))

    def plant(
        self, broker: str, edits: dict[str, Edit] | None = None, manifests: dict[tuple[str, str], Any] | None = None
    ) -> None:
        """The same history under another name, with manifests, and with tables of the last cut changed.

        An edit of another cut's table has its number and a colon before the table.
        """
        objects = MANIFESTS if manifests is None else manifests
        in_force = configured(objects)
        cuts = range(1, CUTS + 1) if objects else ()
        whole: dict[Table, Edit] = {(cut, "state", "configuration"): in_force for cut in cuts}
        for name, edit in (edits or {}).items():
            cut, _, table = name.rpartition(":")
            folder, _, title = table.partition("/")
            whole[int(cut or CUTS), folder, title] = edit
        self.made[broker] = planted(self.root, self.place, broker, whole, CUTS)

    def id_of(self, row: Row, broker: str) -> str:
        """The id of a message, by a row that has its record's position and, if it is a bridge's copy, which."""
        position, copy = row["position"], row.get("copy", 0)
        for table in ("events/copies", "state/copies") if copy else ("events/stored", "state/messages"):
            for cut in range(1, CUTS + 1):
                for one in self.rows(table, cut):
                    if (one["position"], one.get("copy", 0)) == (position, copy):
                        return self._id(one["producer"], one["sequence"], broker)
        raise AssertionError(row)

    def _id(self, producer: int, number: int, broker: str) -> str:
        starts = {one["epoch"]: one["start"] for one in self.rows("state/starts")}
        start = starts[producer >> 32] & ((1 << 64) - 1)
        return f"ID:{broker}.{producer:X}.{start:016X}:{number}"


def live(folder: Path, seed: int) -> Life:
    """A history from a seed."""
    return Life(folder / "snapshots", lived(folder, seed))
