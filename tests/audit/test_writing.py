"""What a writer makes of rows: the same files whatever the batches, within bounds, and only what the schema has."""

import asyncio
import dataclasses
import itertools
import threading
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sterna_audit import schema, surroundings
from sterna_audit.exporting import ExportError, export
from sterna_audit.privacy import Privacy, PrivacyError, read_key
from sterna_audit.snapshots import reading
from sterna_audit.snapshots.manifests import Cut, Gap, Manifest
from sterna_audit.snapshots.stores import Directory, StoreError
from sterna_audit.snapshots.writing import Progress, RowsError, SnapshotWriter, WriterOptions

from tests.audit.kept import PLAIN, SIGNER, Kept
from tests.audit.story import PLACE, STORE, Story, Told, batched

CUT = Cut(PLACE, STORE, 1, 1, 10, 0, 5, ((0, 10),))
WIDE = schema.table("events", "arrivals")


def numbers(count: int, start: int = 0) -> pa.RecordBatch:
    columns: list[pa.Array[Any]] = [
        pa.array(range(start, start + count), pa.int64()),
        pa.array([0] * count, pa.int16()),
    ]
    more = [pa.array([1] * count, pa.int64()), pa.array(range(start, start + count), pa.int64())]
    return pa.RecordBatch.from_arrays([*columns, *more], schema=WIDE.schema)


def written(root: Path, batches: list[tuple[str, str, pa.RecordBatch]], options: WriterOptions = PLAIN) -> Manifest:
    writer = SnapshotWriter(Directory(root), PLACE, 1, options)
    writer.begin()
    for one in batches:
        writer.add(*one)
    writer.finish(CUT)
    found = reading.find(Directory(root), PLACE, 1)
    assert found.manifest is not None
    assert reading.verify_files(Directory(root), found) == []
    return found.manifest


def test_how_rows_are_divided_and_mixed_makes_no_difference(tmp_path: Path) -> None:
    story = Story(3)
    story.live(200)
    rows = story.cut().rows
    together = written(tmp_path / "a", batched(rows, 1_000))
    by_ones = written(tmp_path / "b", batched(rows, 1))
    by_tables = written(tmp_path / "c", sorted(batched(rows, 7), key=lambda one: one[:2]))
    assert together.sha256 == by_ones.sha256 == by_tables.sha256


def test_a_name_that_several_files_of_events_tell_is_there_once(tmp_path: Path) -> None:
    def names(*keys: int) -> tuple[str, str, pa.RecordBatch]:
        rows = [{"key": key, "what": "actor", "text": f"who {key}"} for key in keys]
        return "events", "names", pa.RecordBatch.from_pylist(rows, schema=schema.table("events", "names").schema)

    manifest = written(tmp_path, [names(1, 2), names(2, 3, 3), names(1), names(4)])
    (file,) = manifest.files_of("events", "names")
    kept = pq.read_table(tmp_path / PLACE.cut(1) / file)
    assert kept["key"].to_pylist() == [1, 2, 3, 4]
    assert kept["text"].to_pylist() == ["who 1", "who 2", "who 3", "who 4"]


def test_a_writer_that_stood_still_does_not_touch_what_another_has_kept(tmp_path: Path) -> None:
    store = Directory(tmp_path)
    late = SnapshotWriter(store, PLACE, 1, dataclasses.replace(PLAIN, signer=None))
    late.begin()
    late.add("events", "arrivals", numbers(10))
    kept = written(tmp_path, [("events", "arrivals", numbers(20))])
    late.add("events", "arrivals", numbers(10, 10))
    with pytest.raises(StoreError, match="is a snapshot already"):
        late.finish(CUT)
    late.abandon()
    found = reading.find(store, PLACE, 1)
    assert found.manifest == kept
    assert reading.verify_files(store, found) == []


def test_no_manifest_names_what_somebody_has_removed_meanwhile(tmp_path: Path) -> None:
    writer = SnapshotWriter(Directory(tmp_path), PLACE, 1, dataclasses.replace(PLAIN, file_rows=65_536))
    writer.begin()
    writer.add("events", "arrivals", numbers(70_000))
    (tmp_path / PLACE.cut(1) / "events" / "arrivals-000.parquet").unlink()
    with pytest.raises(StoreError, match=r"arrivals-000\.parquet was written, and is not there any more"):
        writer.finish(CUT)
    assert not (tmp_path / PLACE.manifest(1)).exists()


def test_a_large_table_goes_on_in_further_files_in_groups_of_one_size(tmp_path: Path) -> None:
    told: list[Progress] = []
    options = dataclasses.replace(PLAIN, file_rows=65_536, progress=told.append)
    batches = [("events", "arrivals", numbers(10_000, at)) for at in range(0, 150_000, 10_000)]
    manifest = written(tmp_path, batches, options)
    files = manifest.files_of("events", "arrivals")
    assert [manifest.files[one].rows for one in files] == [65_536, 65_536, 18_928]
    assert files == [f"events/arrivals-{number:03}.parquet" for number in range(3)]
    read = [pq.read_table(tmp_path / PLACE.cut(1) / one)["sequence"].to_pylist() for one in files]
    assert list(itertools.chain(*read)) == list(range(150_000))
    assert [one.rows for one in told][-1] == 150_000
    assert told == sorted(told, key=lambda one: one.bytes)
    assert told[-1].bytes == sum(entry.bytes for entry in manifest.files.values())


def test_memory_is_bounded_by_row_groups(tmp_path: Path) -> None:
    before = pa.total_allocated_bytes()
    writer = SnapshotWriter(Directory(tmp_path), PLACE, 1, PLAIN)
    for at in range(0, 600_000, 20_000):
        writer.add("events", "arrivals", numbers(20_000, at))
        assert pa.total_allocated_bytes() - before < 24 << 20
    writer.abandon()


@pytest.mark.parametrize(
    ("table", "batch", "why"),
    [
        ("nothing", numbers(1), "schema 1 has no table events/nothing"),
        ("arrivals", numbers(1).select(["position", "copy", "source"]), "events/arrivals has the columns"),
        ("arrivals", numbers(1).set_column(1, "copy", pa.array([1], pa.int32())), "arrivals.copy is int16, not int32"),
        ("arrivals", numbers(1).set_column(2, "source", pa.array([None], pa.int64())), "source has 1 rows without"),
        ("../state/x", numbers(1), "no table"),
    ],
)
def test_rows_that_the_schema_lacks_are_refused_by_name(
    tmp_path: Path, table: str, batch: pa.RecordBatch, why: str
) -> None:
    writer = SnapshotWriter(Directory(tmp_path), PLACE, 1, PLAIN)
    with pytest.raises(RowsError, match=why):
        writer.add("events", table, batch)


def test_the_writer_keeps_to_its_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(surroundings.Surroundings):
        now = 0.0

        def monotonic_s(self) -> float:
            return self.now

        def wait(self, seconds: float) -> None:
            self.now += seconds

    clock = Clock()
    monkeypatch.setattr(surroundings, "here", clock)
    manifest = written(
        tmp_path, [("events", "arrivals", numbers(50_000))], dataclasses.replace(PLAIN, bytes_per_second=1_000.0)
    )
    total = sum(entry.bytes for entry in manifest.files.values())
    assert clock.now == pytest.approx(total / 1_000)
    with pytest.raises(ValueError, match="above 0"):
        WriterOptions(Privacy("plain"), None, bytes_per_second=0)
    with pytest.raises(ValueError, match="multiple"):
        WriterOptions(Privacy("plain"), None, file_rows=7)


def column(root: Path, folder: str, table: str, name: str) -> list[Any]:
    return pq.read_table(root / PLACE.cut(1) / folder / f"{table}-000.parquet")[name].to_pylist()


def test_who_is_kept_as_keyed_hashes_as_is_or_not_at_all(tmp_path: Path) -> None:
    rows = Story().cut().rows
    with pytest.raises(PrivacyError, match="no key"):
        Privacy()
    key = tmp_path / "principals.key"
    key.write_bytes(b"0123456789abcdef\n")
    hashed = Privacy(key=read_key(key))
    options = written(tmp_path / "hashed", batched(rows, 50), WriterOptions(hashed, SIGNER)).options
    assert options == {
        "bodies": "none",
        "principals": "hashed",
        "properties": "none",
        "principals_key": hashed.options["principals_key"],
    }
    assert "0123" not in str(options)
    # The key alone decides, so that audits join across snapshots.
    alice = Privacy(key=b"0123456789abcdef").hashed("alice")
    assert alice is not None
    assert len(alice) == 32
    assert Privacy(key=b"another key, also long").hashed("alice") != alice
    assert column(tmp_path / "hashed", "state", "producers", "user") == [alice, alice]
    assert column(tmp_path / "hashed", "state", "producers", "name") == [hashed.hashed("pay-1"), None]
    names = dict(zip(*(column(tmp_path / "hashed", "events", "names", one) for one in ("key", "text")), strict=True))
    assert names[1] == "orders"
    assert names[11] == alice
    written(tmp_path / "none", batched(rows, 50), WriterOptions(Privacy("none"), SIGNER))
    assert column(tmp_path / "none", "state", "producers", "user") == [None, None]
    assert column(tmp_path / "none", "state", "subscriptions", "client_id") == [""]
    assert column(tmp_path / "none", "events", "names", "text")[:3] == ["orders", "dead", "news"]
    written(tmp_path / "plain", batched(rows, 50))
    assert column(tmp_path / "plain", "state", "producers", "user") == ["alice", "alice"]
    for text in ("alice", "pay-1", "client-7"):
        files = [file.read_bytes() for file in (tmp_path / "hashed").rglob("*.parquet")]
        assert not any(text.encode() in data for data in files), text


def test_a_key_of_hashes_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"123")
    with pytest.raises(PrivacyError, match="3 bytes"):
        read_key(tmp_path / "short")
    with pytest.raises(PrivacyError, match="cannot be read"):
        read_key(tmp_path / "missing")
    with pytest.raises(PrivacyError, match="hashed, plain or none"):
        Privacy("some")  # type: ignore[arg-type]


def test_a_run_that_is_repeated_finds_its_snapshot_and_tells_the_broker_again(kept: Kept) -> None:
    (first,) = kept.cuts(1)
    story = kept.story
    again = Told(story, first.manifest.cut, {})
    story.previous = None
    found = asyncio.run(export(again, kept.store, PLAIN))
    assert not found.is_new
    assert found.manifest.sha256 == first.manifest.sha256 == story.previous


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda cut: dataclasses.replace(cut, store="0" * 32), "is another cut of that number: store differ"),
        (lambda cut: dataclasses.replace(cut, number=3, previous="0" * 64), "does not go on from cut 2 that is there"),
        (lambda cut: dataclasses.replace(cut, position=cut.position + 9), "position differ.*move its folder away"),
        # It cannot have found again what it had given up.
        (lambda cut: dataclasses.replace(cut, gaps=()), "gaps differ.*move its folder away"),
    ],
)
def test_a_cut_of_another_chain_is_refused(kept: Kept, change: Callable[[Cut], Cut], why: str) -> None:
    last = kept.cuts(2)[-1].manifest
    with pytest.raises(ExportError, match=why):
        asyncio.run(export(Told(kept.story, change(last.cut), {}), kept.store, PLAIN))
    assert kept.faults() == []
    assert reading.numbers(kept.store, PLACE) == [1, 2]


def test_what_the_broker_has_given_up_since_is_there_all_the_same(kept: Kept) -> None:
    (first,) = kept.cuts(1)
    cut = first.manifest.cut
    fewer = dataclasses.replace(cut, events=(), gaps=(Gap(0, cut.position, "they were too old"),))
    found = asyncio.run(export(Told(kept.story, fewer, {}), kept.store, PLAIN))
    assert (found.is_new, found.manifest.cut) == (False, cut)
    assert kept.faults() == []


def test_a_run_that_is_ended_writes_no_manifest_and_has_ended_with_its_thread(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held up by its rate, with all rows told: whoever repeats it must not find the thread of before still at work."""
    waits: list[float] = []
    held_up = threading.Event()

    class Slow(surroundings.Surroundings):
        def wait(self, seconds: float) -> None:
            waits.append(seconds)
            held_up.set()
            super().wait(seconds)

    monkeypatch.setattr(surroundings, "here", Slow())
    kept.story.live(80)
    told = kept.story.cut()

    async def ended() -> None:
        slow = dataclasses.replace(PLAIN, bytes_per_second=100.0)
        running = asyncio.create_task(export(told, kept.store, slow))
        await asyncio.to_thread(held_up.wait)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(ended())
    (half,) = kept.chain().snapshots
    assert half.is_half_written
    assert max(waits) <= 0.2
    assert asyncio.run(export(told, kept.store, PLAIN)).is_new
    assert kept.faults() == []


def test_a_stream_that_breaks_leaves_no_snapshot_and_the_next_run_begins_anew(kept: Kept) -> None:
    class Broken(Told):
        async def batches(self) -> AsyncGenerator[tuple[str, str, pa.RecordBatch], None]:
            for folder, table, batch in batched(self.rows, 5):
                yield folder, table, batch
            # A row group goes to the disk.
            yield "events", "arrivals", numbers(70_000)
            raise ConnectionError("the broker is gone")

    kept.story.live(80)
    told = kept.story.cut()
    with pytest.raises(ConnectionError):
        asyncio.run(export(Broken(kept.story, told.facts, told.rows), kept.store, PLAIN))
    (half,) = kept.chain().snapshots
    assert half.is_half_written
    (Path(kept.store.uri) / half.path / "events" / "stray-000.parquet").write_bytes(b"of the run before")
    assert asyncio.run(export(told, kept.store, PLAIN)).is_new
    assert kept.faults() == []
    assert not any("stray" in entry.path for entry in kept.store.files(""))
    with pytest.raises(StoreError, match="is a snapshot already"):
        SnapshotWriter(kept.store, PLACE, 1, PLAIN).begin()
