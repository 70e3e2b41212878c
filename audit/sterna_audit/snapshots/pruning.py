"""Removes old snapshots, or old tables of them, and what runs that were broken off left.

The newest snapshot is never removed, nor is what cannot be read: that is for people to look at. The anchor that says
what is gone is written first (`anchors`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sterna_audit import schema, surroundings
from sterna_audit.snapshots import anchors, reading
from sterna_audit.snapshots.anchors import Anchor
from sterna_audit.snapshots.findings import Finding
from sterna_audit.snapshots.keys import Signer, Verifier
from sterna_audit.snapshots.layout import Place, parsed_file
from sterna_audit.snapshots.manifests import Manifest
from sterna_audit.snapshots.stores import Store

_DAY_MS = 86_400_000
_UNITS = {"h": 3_600_000, "d": _DAY_MS, "w": 7 * _DAY_MS}
_KEEP = re.compile(r"(?:(\d{1,9})([hdw])|(\d{1,9}))")


class PruningError(ValueError):
    """Nothing was pruned: the chain is broken, or its keys are not at hand."""


@dataclass(frozen=True, slots=True)
class Keep:
    """What is kept: the newest so many, and whatever is younger than so long. With neither, everything is.

    Attributes:
        cuts: so many of the newest.
        age_ms: what was taken less than so long ago, in milliseconds.
    """

    cuts: int | None = None
    age_ms: int | None = None

    def keeps(self, newer: int, age_ms: int) -> bool:
        """Whether a cut is kept, of which so many are newer, and which is so old."""
        if self.cuts is None and self.age_ms is None:
            return True
        return (self.cuts is not None and newer < self.cuts) or (self.age_ms is not None and age_ms < self.age_ms)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long what is kept.

    Attributes:
        snapshots: for all that `tables` does not name.
        tables: by `state`, `events`, or one table as `events/ends`.
    """

    snapshots: Keep = Keep()
    tables: Mapping[str, Keep] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = {*schema.FOLDERS, *(table.title for table in schema.tables())}
        if unknown := self.tables.keys() - known:
            raise ValueError(f"there is no table {', '.join(sorted(unknown))}")

    def of(self, table: schema.Table) -> Keep:
        """What holds for a table."""
        return self.tables.get(table.title, self.tables.get(table.folder, self.snapshots))


@dataclass(frozen=True)
class Pruned:
    """What a run removed, or would.

    Attributes:
        place: whose.
        cuts: whole snapshots.
        tables: by their title, how many snapshots lost them.
        half_written: folders without a manifest.
        findings: what is in the way of removing more.
    """

    place: Place
    cuts: list[int] = field(default_factory=list)
    tables: dict[str, int] = field(default_factory=dict)
    half_written: list[int] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def parse_keep(text: str) -> Keep:
    """What is kept, as people write it: `30` cuts, `48h`, `90d`, `12w`, or two of them as `30,90d`.

    Raises:
        ValueError: it is none of these.
    """
    keep = Keep()
    for part in text.split(","):
        found = _KEEP.fullmatch(part.strip())
        if found is None:
            raise ValueError(f"{text!r} is neither a number of cuts nor an age as 48h, 90d or 12w")
        keep = replace(keep, cuts=int(found[3])) if found[3] else replace(keep, age_ms=int(found[1]) * _UNITS[found[2]])
    return keep


def prune(
    store: Store,
    place: Place,
    retention: Retention,
    signer: Signer | None,
    verifier: Verifier | None,
    *,
    dry_run: bool = False,
) -> Pruned:
    """Removes what is older than it has to be kept, and half-written snapshots below the newest whole one.

    Args:
        store: where.
        place: whose snapshots.
        retention: what is kept.
        signer: who signs what says so; None: nobody, which verifying then has to allow.
        verifier: whose signatures count on what is there; None: it need have none.
        dry_run: say what would be removed, remove nothing.

    Raises:
        PruningError: what was pruned before cannot be trusted.
        StoreError: the store does not answer; running it again goes on.
    """
    anchor, found = anchors.find(store, place, verifier)
    if found:
        raise PruningError(f"nothing was pruned: {found[0]}")
    anchor = anchor or Anchor(place)
    pruned = Pruned(place)
    snapshots = [reading.find(store, place, number, verifier) for number in reading.numbers(store, place)]
    left = [one for one in snapshots if one.number > anchor.through]
    whole = [one.manifest for one in left if one.manifest is not None and not one.findings]
    newest = whole[-1].cut.number if whole else 0
    pruned.findings.extend(fault for one in left for fault in one.findings)
    half = [one.number for one in left if one.is_half_written and one.number < newest]
    pruned.half_written.extend(half)
    # Removing goes from the first on without a hole: what cannot be read ends it.
    good = _unbroken(left, half)
    after = _planned(anchor, good, newest, retention)
    removals = [one.number for one in snapshots if one.number <= after.through and one.number not in half]
    pruned.cuts.extend(removals)
    for title, through in after.tables.items():
        begun = max(anchor.tables.get(title, 0), after.through)
        if count := sum(1 for one in good if begun < one.cut.number <= through):
            pruned.tables[title] = count
    if dry_run:
        return pruned
    if (after.through, after.tables) != (anchor.through, anchor.tables):
        store.put(place.anchor, anchors.encoded(replace(after, pruned_ms=surroundings.wall_ms()), signer))
    for number in sorted([*half, *removals]):
        # The manifest first: from there on it is none, also to those who know nothing of anchors.
        store.remove(place.manifest(number))
        store.remove_folder(place.cut(number))
    _remove_tables(store, after, good)
    return pruned


def _unbroken(left: list[reading.Snapshot], half: list[int]) -> list[Manifest]:
    """The snapshots from the first on that are whole, each the next of the one before."""
    good: list[Manifest] = []
    for one in left:
        if one.number in half:
            continue
        if one.manifest is None or one.findings or (good and one.number != good[-1].cut.number + 1):
            break
        good.append(one.manifest)
    return good


def _planned(anchor: Anchor, good: list[Manifest], newest: int, retention: Retention) -> Anchor:
    """The anchor that is to be: up to which cut each table goes, and so the snapshots of which none is left."""
    now = surroundings.wall_ms()
    through: dict[str, int] = {}
    for table in schema.tables():
        keep = retention.of(table)
        gone = max(anchor.tables.get(table.title, 0), anchor.through)
        for manifest in good:
            cut = manifest.cut
            if cut.number >= newest or keep.keeps(newest - cut.number, now - cut.time_ms):
                break
            gone = max(gone, cut.number)
        through[table.title] = gone
    lowest = min(through.values())
    tables = {title: cut for title, cut in through.items() if cut > lowest}
    ended = next((one for one in reversed(good) if one.cut.number == lowest), None)
    if ended is None:
        return replace(anchor, tables=tables)
    return Anchor(
        place=anchor.place,
        through=lowest,
        first=anchor.first or good[0].cut.number,
        sha256=ended.sha256,
        position=ended.cut.position,
        store=ended.cut.store,
        tables=tables,
    )


def _remove_tables(store: Store, anchor: Anchor, good: list[Manifest]) -> None:
    """Removes the tables that are gone from snapshots that stay."""
    for manifest in good:
        number = manifest.cut.number
        titles = anchor.pruned_tables(number)
        if number <= anchor.through or not titles:
            continue
        folder = manifest.cut.place.cut(number)
        for entry in store.files(folder):
            parsed = parsed_file(entry.path.removeprefix(f"{folder}/"))
            if parsed is not None and f"{parsed[0]}/{parsed[1]}" in titles:
                store.remove(entry.path)
