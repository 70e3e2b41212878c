"""Verifies a broker's snapshots as a chain: each names the one before, and their ranges of the log adjoin.

A chain begins with cut 1, or goes on from what was pruned (`anchors`). What was removed at its end nobody can see from
the files alone: whoever asks for that names the last cut that there has to be.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sterna_audit.snapshots import anchors, reading
from sterna_audit.snapshots.anchors import Anchor
from sterna_audit.snapshots.findings import Finding
from sterna_audit.snapshots.keys import Verifier
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.manifests import Cut, Manifest
from sterna_audit.snapshots.reading import Snapshot
from sterna_audit.snapshots.stores import Store


@dataclass(frozen=True)
class Chain:
    """What was found of a broker's snapshots.

    Attributes:
        place: cluster and broker.
        anchor: what was pruned; None: nothing was.
        snapshots: those of the range, in order, half-written ones among them.
        findings: all faults; none: the chain is as it was written.
    """

    place: Place
    anchor: Anchor | None
    snapshots: list[Snapshot] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_signed(self) -> bool:
        """Whether all manifests have a signature; whether it is right is among the findings, if it was looked at."""
        return all(one.manifest is None or one.manifest.key is not None for one in self.snapshots)


@dataclass(frozen=True, slots=True)
class Link:
    """What a cut has to go on from."""

    number: int
    sha256: str | None
    position: int
    store: str | None
    epoch: int = 0


def verify(
    store: Store,
    place: Place,
    verifier: Verifier | None,
    *,
    first: int | None = None,
    last: int | None = None,
    files: bool = True,
    rows: bool = True,
) -> Chain:
    """Verifies the cuts of one broker.

    Args:
        store: where they are.
        place: whose.
        verifier: whose signatures count; None: the caller said that there need be none.
        first: from which cut on; None: from the first that was not pruned.
        last: up to which; it has to be there. None: up to the last that is there.
        files: whether the files of each are read, too.
        rows: whether their rows are decoded and compared with their checksums.

    Raises:
        StoreError: the store does not answer.
    """
    anchor, found = anchors.find(store, place, verifier)
    chain = Chain(place, anchor, findings=found)
    pruned = anchor.through if anchor is not None else 0
    there = [number for number in reading.numbers(store, place) if number > pruned]
    begins = max(first or 1, pruned + 1)
    wanted = [number for number in there if number >= begins and (last is None or number <= last)]
    if last is not None and last not in wanted and last > pruned:
        chain.findings.append(Finding(place.cut(last), "missing-cut", f"cut {last} is not there"))
    link = _beginning(store, place, anchor, begins, there)
    for number in wanted:
        snapshot = reading.find(store, place, number, verifier)
        chain.snapshots.append(snapshot)
        chain.findings.extend(snapshot.findings)
        if snapshot.is_half_written:
            if number != wanted[-1] or (last is not None and number == last):
                why = "it has no manifest, and there are later cuts" if number != wanted[-1] else "it has no manifest"
                chain.findings.append(Finding(snapshot.path, "no-manifest", why))
            continue
        chain.findings.extend(missing(place, link.number, number))
        manifest = snapshot.manifest
        if manifest is None:
            link = _unknown(number)
            continue
        chain.findings.extend(link_findings(snapshot.path, link, manifest.cut))
        link = link_to(manifest)
        if files:
            gone = anchor.pruned_tables(number) if anchor is not None else frozenset()
            chain.findings.extend(reading.verify_files(store, snapshot, gone, rows=rows))
    return chain


def _beginning(store: Store, place: Place, anchor: Anchor | None, begins: int, there: list[int]) -> Link:
    """What the first cut of a range goes on from."""
    if begins == 1:
        return _unknown(0)
    if anchor is not None and begins == anchor.through + 1:
        return Link(anchor.through, anchor.sha256, anchor.position, anchor.store)
    if begins - 1 in there:
        before = reading.find(store, place, begins - 1).manifest
        return link_to(before) if before is not None else _unknown(begins - 1)
    return _unknown(begins - 1)


def _unknown(number: int) -> Link:
    """A cut of which nothing is known but its number."""
    return Link(number, None, -1, None)


def link_to(manifest: Manifest) -> Link:
    """What the cut after this one has to go on from."""
    cut = manifest.cut
    return Link(cut.number, manifest.sha256, cut.position, cut.store, cut.epoch)


def missing(place: Place, before: int, number: int) -> Iterator[Finding]:
    """The cuts that are not there between two that are."""
    if number > before + 1:
        lost = f"cut {before + 1}" if number == before + 2 else f"cuts {before + 1} to {number - 1}"
        are = "is" if number == before + 2 else "are"
        yield Finding(
            place.cut(before + 1), "missing-cut", f"{lost} {are} not there, and nothing says that they were pruned"
        )


def link_findings(path: str, before: Link, cut: Cut) -> Iterator[Finding]:
    """What is wrong with a cut's link to the one before, and with its ranges of the log."""
    path = f"{path}/manifest.json"
    yield from _range_findings(path, cut)
    if cut.number == 1 and cut.previous_position not in (0, cut.position):
        why = f"it is the first cut, and goes on from position {cut.previous_position}"
        yield Finding(path, "wrong-range", why)
    if cut.number == 1 and cut.previous is not None:
        yield Finding(path, "broken-chain", "it is the first cut, and names one before")
    if cut.number > 1 and cut.previous is None:
        yield Finding(path, "broken-chain", "it is not the first cut, and names none before")
    # What is not known of the one before cannot be compared: that it is missing or broken was said of itself.
    if before.number != cut.number - 1 or before.position < 0:
        return
    if cut.previous != before.sha256 and cut.number > 1 and cut.previous is not None:
        yield Finding(path, "broken-chain", f"it goes on from another manifest than that of cut {before.number}")
    if cut.previous_position != before.position:
        why = f"it goes on from position {cut.previous_position}, and cut {before.number} was at {before.position}"
        yield Finding(path, "wrong-range", why)
    if before.store is not None and cut.store != before.store:
        yield Finding(
            path, "broken-chain", f"it is of the store {cut.store}, and cut {before.number} of {before.store}"
        )
    if cut.epoch < before.epoch:
        yield Finding(
            path, "broken-chain", f"its epoch {cut.epoch} is before that of cut {before.number}, {before.epoch}"
        )


def _range_findings(path: str, cut: Cut) -> Iterator[Finding]:
    """Events and gaps have to cover what is between the two cuts, each position once."""
    at = cut.previous_position
    ranges = sorted([*cut.events, *((gap.start, gap.end) for gap in cut.gaps)])
    for start, end in ranges:
        if start != at:
            what = "twice" if start < at else "neither by events nor by a gap"
            yield Finding(path, "wrong-range", f"positions {min(start, at)} to {max(start, at)} are covered {what}")
        at = max(at, end)
    if at != cut.position:
        yield Finding(path, "wrong-range", f"events and gaps end at {at}, and the cut is at {cut.position}")
