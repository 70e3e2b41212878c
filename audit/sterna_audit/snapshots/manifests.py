"""A snapshot's manifest: what makes its files a snapshot, and links it to the one before.

Canonical JSON (`signed_json`), written last. What it says is checked when it is read, field by field: it may come from
anybody. docs/audits/schema.md describes it for users.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sterna_audit import schema
from sterna_audit.snapshots import signed_json
from sterna_audit.snapshots.keys import Signer
from sterna_audit.snapshots.layout import CUT_MAX, FILES_OF_A_TABLE_MAX, Place, is_name, parsed_file

MANIFEST_BYTES_MAX = 64 << 20
_FILES_MAX = 1_000_000
_RANGES_MAX = 1_000_000
_LONG_MAX = (1 << 63) - 1
_STORE = re.compile(r"[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,39}")
_TEXT_MAX = 1_000


class BadManifestError(ValueError):
    """A manifest does not say what one has to; the text names the field."""


class NewerSchemaError(BadManifestError):
    """A manifest of a later version than this code reads."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of the log that no event file covers, and why: from a position up to another."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a snapshot: its size in bytes, rows, and checksums (`checksums` says how rows are summed up)."""

    sha256: str
    bytes: int
    rows: int
    table: str
    row_checksum: int


@dataclass(frozen=True, slots=True)
class Cut:
    """What a broker says of a cut before its rows: which it is and what it continues.

    Attributes:
        place: cluster and broker.
        store: the store's identity, 32 hexadecimal digits.
        number: from 1 on, one more than the cut before.
        epoch: of the broker, at the cut; since it began the table `counters` counts.
        position: of the log, where the cut is.
        previous_position: where the cut before was; for the first, of which nothing before is told, its own or 0.
        time_ms: when it was taken, milliseconds since 1970. Only shown: audits judge by positions.
        events: the ranges of the log, from a position up to another, that the event files cover.
        gaps: those that they do not.
        previous: the sha256 of the manifest before, None for the first.
    """

    place: Place
    store: str
    number: int
    epoch: int
    position: int
    previous_position: int
    time_ms: int
    events: tuple[tuple[int, int], ...]
    gaps: tuple[Gap, ...] = ()
    previous: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest as it was read: its facts, and the sha256 of its bytes, which the next one names."""

    cut: Cut
    schema: int
    options: Mapping[str, Any]
    files: Mapping[str, FileEntry]
    key: str | None
    sha256: str
    values: Mapping[str, Any]

    def files_of(self, folder: str, table: str) -> list[str]:
        """The paths within the snapshot of a table's files, in the order of their rows."""
        return [path for path in sorted(self.files, key=_order) if path.startswith(f"{folder}/{table}-")]


def _order(path: str) -> tuple[str, str, int]:
    return parsed_file(path) or ("", path, 0)


def encoded(cut: Cut, files: Mapping[str, FileEntry], options: Mapping[str, Any], signer: Signer | None) -> bytes:
    """The manifest's bytes."""
    values = {
        "schema": schema.VERSION,
        "cluster": cut.place.cluster,
        "broker": cut.place.broker,
        "store": cut.store,
        "cut": cut.number,
        "epoch": cut.epoch,
        "position": cut.position,
        "previous_position": cut.previous_position,
        "time_ms": cut.time_ms,
        "events": [list(one) for one in cut.events],
        "gaps": [{"from": gap.start, "to": gap.end, "reason": gap.reason} for gap in cut.gaps],
        "previous": cut.previous,
        "options": dict(options),
        "files": {
            path: {
                "sha256": entry.sha256,
                "bytes": entry.bytes,
                "rows": entry.rows,
                "table": entry.table,
                "row_checksum": str(entry.row_checksum),
            }
            for path, entry in files.items()
        },
    }
    return signed_json.signed(values, signer)


def decoded(data: bytes) -> Manifest:
    """A manifest from its bytes. Whether it is signed is not looked at.

    Raises:
        NewerSchemaError: it is of a later version.
        BadManifestError: it is none.
    """
    try:
        values = signed_json.decoded(data)
    except signed_json.BadJsonError as error:
        raise BadManifestError(str(error)) from error
    version = number(values, "schema", 1)
    if version > schema.VERSION:
        raise NewerSchemaError(
            f"it has version {version} of the schema, and this program reads {schema.VERSION} at most"
        )
    key = values.get("key")
    if key is not None and not isinstance(key, str):
        raise BadManifestError("key is no text")
    options = values.get("options")
    if not isinstance(options, dict):
        raise BadManifestError("options is no object")
    sha256 = hashlib.sha256(data).hexdigest()
    return Manifest(_cut(values), version, options, _files(values), key, sha256, values)


def number(values: Mapping[str, Any], name: str, least: int = 0, most: int = _LONG_MAX) -> int:
    """A field that is a whole number between two others; BadManifestError if it is none."""
    found = values.get(name)
    if type(found) is not int or not least <= found <= most:
        raise BadManifestError(f"{name} is {str(found)[:40]!r}, not a whole number from {least} to {most}")
    return found


def text(values: Mapping[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    """A field that is a text of this form; BadManifestError if it is none."""
    found = values.get(name)
    if not isinstance(found, str) or pattern.fullmatch(found) is None:
        raise BadManifestError(f"{name} is {str(found)[:80]!r}, not of the form {pattern.pattern}")
    return found


def sha256_or_none(values: Mapping[str, Any], name: str) -> str | None:
    """A field that is a sha256 in hexadecimal digits, or null."""
    return None if values.get(name, "") is None else text(values, name, _SHA256)


def place(values: Mapping[str, Any]) -> Place:
    """Cluster and broker."""
    for name in ("cluster", "broker"):
        if not isinstance(values.get(name), str) or not is_name(values[name]):
            raise BadManifestError(f"{name} is {str(values.get(name))[:80]!r}, which cannot be a folder's name")
    return Place(values["cluster"], values["broker"])


def store(values: Mapping[str, Any]) -> str:
    """The store's identity."""
    return text(values, "store", _STORE)


def _cut(values: Mapping[str, Any]) -> Cut:
    return Cut(
        place=place(values),
        store=store(values),
        number=number(values, "cut", 1, CUT_MAX),
        epoch=number(values, "epoch"),
        position=number(values, "position"),
        previous_position=number(values, "previous_position"),
        time_ms=number(values, "time_ms"),
        events=tuple(_range(one) for one in _list(values, "events")),
        gaps=tuple(_gap(one) for one in _list(values, "gaps")),
        previous=sha256_or_none(values, "previous"),
    )


def _list(values: Mapping[str, Any], name: str) -> list[Any]:
    found = values.get(name)
    if not isinstance(found, list) or len(found) > _RANGES_MAX:
        raise BadManifestError(f"{name} is no list of at most {_RANGES_MAX}")
    return found


def _range(found: Any) -> tuple[int, int]:
    if not isinstance(found, list) or len(found) != 2 or any(type(one) is not int for one in found):
        raise BadManifestError("events has what is no pair of positions")
    if not 0 <= found[0] < found[1] <= _LONG_MAX:
        raise BadManifestError(f"events has the range {found}, which is none")
    return found[0], found[1]


def _gap(found: Any) -> Gap:
    if not isinstance(found, dict) or not isinstance(found.get("reason"), str) or len(found["reason"]) > _TEXT_MAX:
        raise BadManifestError("gaps has what is no object with from, to and reason")
    start, end = _range([found.get("from"), found.get("to")])
    return Gap(start, end, found["reason"])


def _files(values: Mapping[str, Any]) -> dict[str, FileEntry]:
    found = values.get("files")
    if not isinstance(found, dict) or len(found) > _FILES_MAX:
        raise BadManifestError(f"files is no object of at most {_FILES_MAX}")
    return {path: _file(path, entry) for path, entry in found.items()}


def _file(path: str, entry: Any) -> FileEntry:
    parsed = parsed_file(path)
    if parsed is None or parsed[2] >= FILES_OF_A_TABLE_MAX:
        raise BadManifestError(f"files names {path[:80]!r}, which is no file of a snapshot")
    if not isinstance(entry, dict):
        raise BadManifestError(f"files has no object for {path}")
    try:
        schema.table(parsed[0], parsed[1])
        found = FileEntry(
            sha256=text(entry, "sha256", _SHA256),
            bytes=number(entry, "bytes"),
            rows=number(entry, "rows"),
            table=text(entry, "table", re.compile(re.escape(parsed[1]))),
            row_checksum=int(text(entry, "row_checksum", _NUMBER)),
        )
    except KeyError as error:
        raise BadManifestError(f"files: {path}: {error.args[0]}") from error
    except BadManifestError as error:
        raise BadManifestError(f"files: {path}: {error}") from error
    return found
