"""What is old is removed, by count, by age and by table; what is left verifies from there on."""

import shutil
from pathlib import Path

import pytest
from sterna_audit import surroundings
from sterna_audit.exporting import ExportError
from sterna_audit.snapshots import anchors, pruning, reading
from sterna_audit.snapshots.pruning import Keep, Pruned, PruningError, Retention, parse_keep

from tests.audit.kept import SIGNER, VERIFIER, Kept
from tests.audit.story import PLACE

_DAY_MS = 86_400_000


def pruned(kept: Kept, retention: Retention, *, dry_run: bool = False) -> Pruned:
    return pruning.prune(kept.store, PLACE, retention, SIGNER, VERIFIER, dry_run=dry_run)


def left(kept: Kept) -> list[int]:
    return [one.number for one in kept.chain().snapshots]


def test_the_newest_by_count_stay_and_verify_from_the_anchor_on(kept: Kept) -> None:
    kept.cuts(4)
    keep = Retention(Keep(cuts=2))
    before = kept.store.files("")
    assert pruned(kept, keep, dry_run=True).cuts == [1, 2]
    assert kept.store.files("") == before
    assert pruned(kept, keep).cuts == [1, 2]
    assert left(kept) == [3, 4]
    assert kept.faults() == []
    anchor = kept.chain().anchor
    assert anchor is not None
    assert (anchor.first, anchor.through) == (1, 2)
    # Again changes nothing, and the chain goes on.
    data = (Path(kept.store.uri) / PLACE.anchor).read_bytes()
    assert pruned(kept, keep).cuts == []
    assert (Path(kept.store.uri) / PLACE.anchor).read_bytes() == data
    kept.cuts(2)
    assert pruned(kept, keep).cuts == [3, 4]
    anchor = kept.chain().anchor
    assert anchor is not None
    assert (anchor.first, anchor.through) == (1, 4)
    assert kept.faults() == []


def test_by_age_and_the_newest_always_stays(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(4):
        kept.story.time_ms += _DAY_MS * (day > 0)
        kept.cuts(1)
    now = kept.story.time_ms

    class Clock(surroundings.Surroundings):
        def wall_ms(self) -> int:
            return now

    monkeypatch.setattr(surroundings, "here", Clock())
    assert pruned(kept, Retention(parse_keep("36h"))).cuts == [1, 2]
    assert pruned(kept, Retention(parse_keep("0"))).cuts == [3]
    assert pruned(kept, Retention(parse_keep("0"))).cuts == []
    assert left(kept) == [4]
    assert kept.faults() == []


def test_events_may_stay_longer_than_state(kept: Kept) -> None:
    kept.cuts(5)
    keep = Retention(Keep(cuts=4), {"state": Keep(cuts=1), "events/ends": Keep(cuts=2)})
    found = pruned(kept, keep)
    assert found.cuts == [1]
    assert found.tables["state/messages"] == 3
    assert found.tables["events/ends"] == 2
    assert "events/stored" not in found.tables
    assert kept.faults() == []
    tables = {number: {path.split("/")[-1] for path in paths(kept, number)} for number in (2, 4, 5)}
    assert "messages-000.parquet" not in tables[2] | tables[4]
    assert "stored-000.parquet" in tables[2]
    assert "ends-000.parquet" in tables[4]
    assert "ends-000.parquet" not in tables[2]
    assert "messages-000.parquet" in tables[5]
    # What goes on missing besides is found.
    (Path(kept.store.uri) / PLACE.cut(4) / "events" / "ends-000.parquet").unlink()
    assert kept.faults() == [("000000000004/events/ends-000.parquet", "missing-file")]
    # What is asked for later cannot bring back what is gone.
    assert pruned(kept, Retention(Keep(cuts=3))).cuts == [2]
    anchor, _ = anchors.find(kept.store, PLACE, VERIFIER)
    assert anchor is not None
    assert anchor.tables["state/messages"] == 4


def paths(kept: Kept, number: int) -> list[str]:
    return [entry.path for entry in kept.store.files(PLACE.cut(number))]


def test_half_written_ones_go_but_not_the_one_under_way(kept: Kept) -> None:
    kept.cuts(3)
    root = Path(kept.store.uri)
    (root / PLACE.manifest(2)).unlink()
    (root / PLACE.cut(4) / "state").mkdir(parents=True)
    (root / PLACE.cut(4) / "state" / "messages-000.parquet").write_bytes(b"PAR1")
    found = pruned(kept, Retention())
    assert (found.half_written, found.cuts) == ([2], [])
    assert reading.numbers(kept.store, PLACE) == [1, 3, 4]
    assert kept.faults() == [("000000000002", "missing-cut")]
    # Behind a hole nothing is removed: there is no link over it that could be signed.
    assert pruned(kept, Retention(Keep(cuts=1))).cuts == [1]
    assert reading.numbers(kept.store, PLACE) == [3, 4]


def test_what_is_broken_stops_it_and_is_named(kept: Kept) -> None:
    kept.cuts(4)
    (Path(kept.store.uri) / PLACE.manifest(2)).write_text("{}")
    found = pruned(kept, Retention(Keep(cuts=1)))
    assert found.cuts == [1]
    assert [one.what for one in found.findings] == ["broken-manifest"]
    assert reading.numbers(kept.store, PLACE) == [2, 3, 4]
    (Path(kept.store.uri) / PLACE.anchor).write_text("{}")
    with pytest.raises(PruningError, match="broken-anchor"):
        pruned(kept, Retention(Keep(cuts=1)))


def test_a_cut_that_was_pruned_is_not_written_again(kept: Kept) -> None:
    kept.cuts(2)
    story = kept.story
    pruned(kept, Retention(Keep(cuts=1)))
    story.number = 0
    with pytest.raises(ExportError, match="cut 1 of bank/broker-0 was pruned there"):
        kept.cuts(1)


def test_the_next_cut_goes_on_from_the_anchor_where_the_one_before_is_gone(kept: Kept) -> None:
    kept.cuts(2)
    pruned(kept, Retention(Keep(cuts=1)))
    shutil.rmtree(Path(kept.store.uri) / PLACE.cut(2))
    kept.story.number, kept.story.previous = 1, "0" * 64
    with pytest.raises(ExportError, match="does not go on from cut 1"):
        kept.cuts(1)


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("30", Keep(cuts=30)),
        ("90d", Keep(age_ms=90 * _DAY_MS)),
        ("48h", Keep(age_ms=2 * _DAY_MS)),
        ("12w, 5", Keep(cuts=5, age_ms=84 * _DAY_MS)),
    ],
)
def test_what_is_kept_as_people_write_it(text: str, keep: Keep) -> None:
    assert parse_keep(text) == keep


@pytest.mark.parametrize("text", ["", "x", "-1", "30 days", "1.5d", "9" * 12])
def test_what_is_kept_is_refused_when_it_says_nothing(text: str) -> None:
    with pytest.raises(ValueError, match="neither a number of cuts nor an age"):
        parse_keep(text)
    with pytest.raises(ValueError, match="there is no table events/other"):
        Retention(tables={"events/other": Keep()})
