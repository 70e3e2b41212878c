"""Lists the snapshots below a root, reads their manifests, and finds what is wrong with their files.

What is found is a value (`findings`), whatever somebody put there. An error is raised only where the store itself does
not answer.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from sterna_audit import checksums, schema
from sterna_audit.checksums import RowChecksum
from sterna_audit.schema import Table
from sterna_audit.snapshots import manifests, signed_json
from sterna_audit.snapshots.findings import Finding
from sterna_audit.snapshots.keys import Verifier
from sterna_audit.snapshots.layout import MANIFEST, Place, cut_number, file_name, is_name, parsed_file
from sterna_audit.snapshots.manifests import FileEntry, Manifest
from sterna_audit.snapshots.stores import MissingFileError, Store, StoreError, chunks, read, told

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One cut's folder, as it was found.

    Attributes:
        manifest: None where there is none, or none that can be read.
        findings: what is wrong with the manifest; the signature is among that where it was to be looked at.
        is_half_written: it has no manifest: a run is under way, or was broken off.
    """

    place: Place
    number: int
    manifest: Manifest | None = None
    findings: tuple[Finding, ...] = ()
    is_half_written: bool = False

    @property
    def path(self) -> str:
        """Of its folder."""
        return self.place.cut(self.number)


def places(store: Store) -> Iterator[Place]:
    """Clusters and brokers below the root, sorted; folders that cannot be theirs are passed over."""
    for cluster in filter(is_name, store.folders()):
        for broker in filter(is_name, store.folders(cluster)):
            if any(cut_number(name) for name in store.folders(f"{cluster}/{broker}")):
                yield Place(cluster, broker)


def numbers(store: Store, place: Place) -> list[int]:
    """The cuts of which there is a folder, half-written ones among them, in order."""
    found = (cut_number(name) for name in store.folders(str(place)))
    return sorted(number for number in found if number is not None)


def find(store: Store, place: Place, number: int, verifier: Verifier | None = None) -> Snapshot:
    """A cut's snapshot with its manifest; of its files nothing is looked at.

    Args:
        store: where.
        place: whose.
        number: which cut.
        verifier: whose signatures count; None: they are not looked at.
    """
    path = place.manifest(number)
    try:
        data = read(store, path, manifests.MANIFEST_BYTES_MAX)
    except MissingFileError:
        return Snapshot(place, number, is_half_written=True)
    except StoreError as error:
        return Snapshot(place, number, None, (Finding(path, "broken-manifest", str(error)),))
    try:
        manifest = manifests.decoded(data)
    except manifests.NewerSchemaError as error:
        return Snapshot(place, number, None, (Finding(path, "newer-schema", str(error)),))
    except manifests.BadManifestError as error:
        return Snapshot(place, number, None, (Finding(path, "broken-manifest", str(error)),))
    found = signed_json.signature_findings(path, dict(manifest.values), verifier)
    if manifest.cut.place != place or manifest.cut.number != number:
        why = f"it is of {manifest.cut.place} cut {manifest.cut.number}, and stands where another's should"
        found.append(Finding(path, "foreign-manifest", why))
    return Snapshot(place, number, manifest, tuple(found))


def verify_files(
    store: Store, snapshot: Snapshot, pruned: frozenset[str] = frozenset(), *, rows: bool = True
) -> list[Finding]:
    """What is wrong with the files that a snapshot's manifest names.

    Args:
        store: where.
        snapshot: which; without a manifest there is nothing to be said about files.
        pruned: tables, as `events/ends`, that were removed by those who may.
        rows: whether the rows are read, too, and their checksum compared: Arrow then decodes every page.
    """
    manifest = snapshot.manifest
    if manifest is None:
        return []
    found = _missing_tables(snapshot, manifest, pruned)
    sizes = {entry.path: entry.size for entry in store.files(snapshot.path)}
    for path, entry in sorted(manifest.files.items()):
        folder, name, _ = parsed_file(path) or ("", "", 0)
        whole = f"{snapshot.path}/{path}"
        if f"{folder}/{name}" in pruned:
            continue
        if whole not in sizes:
            found.append(Finding(whole, "missing-file", "the manifest names it, and it is not there"))
            continue
        found += _verify_file(store, whole, schema.table(folder, name), entry, sizes[whole], rows=rows)
    return found


def _missing_tables(snapshot: Snapshot, manifest: Manifest, pruned: frozenset[str]) -> list[Finding]:
    """Tables without a file, or with holes in the numbers of their files."""
    found = []
    path = f"{snapshot.path}/{MANIFEST}"
    for table in schema.tables_of(manifest.schema):
        if table.title in pruned:
            continue
        files = manifest.files_of(table.folder, table.name)
        if not files:
            found.append(Finding(path, "broken-manifest", f"it names no file of the table {table.title}"))
        elif files != [file_name(table.folder, table.name, number) for number in range(len(files))]:
            found.append(Finding(path, "broken-manifest", f"it leaves out a file of the table {table.title}"))
    return found


def _verify_file(store: Store, path: str, table: Table, entry: FileEntry, size: int, *, rows: bool) -> list[Finding]:
    if size != entry.bytes:
        return [Finding(path, "altered-file", f"it has {size} bytes, and {entry.bytes} when it was written")]
    try:
        with store.reading(path) as file, told(path):
            sha256 = hashlib.sha256()
            for piece in chunks(file):
                sha256.update(piece)
            if sha256.hexdigest() != entry.sha256:
                return [Finding(path, "altered-file", "its sha256 is not that of when it was written")]
            file.seek(0)
            return _verify_table(file, path, table, entry, rows=rows)
    except StoreError as error:
        return [Finding(path, "unreadable-file", str(error))]


def _verify_table(file: BinaryIO, path: str, table: Table, entry: FileEntry, *, rows: bool) -> list[Finding]:
    """What is wrong with a file that is as it was written: its columns, its rows."""
    try:
        parquet = pq.ParquetFile(file)
        if found := schema_findings(path, table, parquet.schema_arrow):
            return found
        if parquet.metadata.num_rows != entry.rows:
            why = f"it has {parquet.metadata.num_rows} rows, and the manifest says {entry.rows}"
            return [Finding(path, "wrong-rows", why)]
        if not rows:
            return []
        total = RowChecksum()
        for batch in parquet.iter_batches(_BATCH_ROWS):
            total += checksums.of_batch(batch)
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        return [Finding(path, "unreadable-file", f"it is no Parquet file: {' '.join(str(error).split())[:300]}")]
    if total != RowChecksum(entry.rows, entry.row_checksum):
        return [Finding(path, "wrong-rows", "the checksum of its rows is not the one in the manifest")]
    return []


def schema_findings(path: str, table: Table, found: pa.Schema) -> list[Finding]:
    """What is wrong with a file's columns."""
    names, wanted = found.names, table.names
    if names != list(wanted):
        missing = [name for name in wanted if name not in names]
        if missing:
            return [Finding(path, "missing-column", f"{table.title} has no column {', '.join(missing)}")]
        return [Finding(path, "foreign-schema", f"{table.title} has the columns {', '.join(names)[:300]}")]
    return [
        Finding(
            path, "foreign-schema", f"{table.title}.{field.name} is {found.field(field.name).type}, not {field.type}"
        )
        for field in table.schema
        if found.field(field.name).type != field.type
    ]
