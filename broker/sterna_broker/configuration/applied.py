"""What `sterna apply` and `sterna delete` changed, kept in the data folder so that a restart has it.

Each change is one file `applied/<kind>.<name>.json`: the manifest, or a note that the object was deleted, and a
digest of the folder's manifest of the same object at that time. The rule is that the latest change wins: a record
counts as long as the folder still says what it said when the record was made; once somebody edits the folder, the
folder counts again and the record is retired. Files are replaced atomically and synced before the change is answered.

What concerns several objects is first written as one file, `applied/change`, which holds all of it: with its name the
change has happened, whenever the process is killed. Then each object's file is brought up to date, and the one goes.
Until then it stands before them; whoever changes something next finishes it.

A change that the engine may yet refuse has its way back written before it, `applied/former`: what there was, in the
same form. To take the change back it gets the name of the one file that stands before the others, which needs no room.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from sterna_resources.kinds import KINDS
from sterna_resources.problems import ManifestError, Place, Problem
from sterna_resources.reading import Manifest, from_document
from sterna_resources.resource import Resource

from sterna_broker.configuration.objects import Entry, Key

OWNER = "admin"
_SUFFIX = ".json"
_CHANGE_FILE = "change"
_FORMER_FILE = "former"

_log = structlog.get_logger(part="configuration")

# Object names may be longer than file systems let a file's name be, with kind and suffix; then a digest tells them
# apart.
_FILE_NAME_CHARACTERS_MAX = 180


@dataclass(frozen=True)
class Record:
    """One kept change. `manifest` None: the object was deleted. `base` None: the folder had no such object."""

    key: Key
    manifest: Manifest | None
    base: str | None


@dataclass(frozen=True)
class Merged:
    """Folder and records put together; `retired` are the records that the folder has overtaken."""

    entries: list[Entry]
    retired: list[Record]


def digest(resource: Resource) -> str:
    """Changes when, and only when, what the manifest says changes."""
    text = json.dumps(resource.document(), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def merge(entries: Iterable[Entry], records: Iterable[Record]) -> Merged:
    """Lets the latest change of each object win, folder or record."""
    merged = {entry.key: entry for entry in entries}
    retired = []
    for record in records:
        below = merged.get(record.key)
        if (digest(below.resource) if below else None) != record.base:
            retired.append(record)
        elif record.manifest is None:
            merged.pop(record.key, None)
        else:
            merged[record.key] = Entry(record.manifest, OWNER)
    return Merged(list(merged.values()), retired)


class AppliedFolder:
    """The folder of records. All methods touch the disk: call them in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Whether there is a way back of the change that was kept last; such a file of another process is worth nothing.
        self._has_way_back = False

    def load(self) -> list[Record]:
        """All records.

        Raises:
            ManifestError: a record cannot be read; it names the file.
        """
        if not self.folder.is_dir():
            return []
        found: dict[Key, Record] = {}
        problems: list[Problem] = []
        for file in sorted(self.folder.glob(f"*{_SUFFIX}")):
            with _told(problems, file):
                record = _record(json.loads(file.read_text("utf-8")), file)
                found[record.key] = record
        with _told(problems, self._change):
            if (change := self._pending()) is not None:
                found = {key: record for key, record in found.items() if key not in change.removed}
                found |= {record.key: record for record in change.records}
        if problems:
            raise ManifestError(problems)
        return [found[key] for key in sorted(found)]

    def keep(self, records: Iterable[Record], former: dict[Key, Record]) -> None:
        """As `write`, for a change that is either `confirm`ed or undone; `former` is all that there is before it.

        Raises:
            OSError: nothing of it is kept.
        """
        records = list(records)
        self._has_way_back = False
        self._make_folder()
        # First: the way back takes the place of what stands in one file still.
        self._finish()
        keys = [record.key for record in records]
        content = {
            "records": [_content(former[key]) for key in keys if key in former],
            "removed": [list(key) for key in keys if key not in former],
        }
        self._replace(self._former, _json(content))
        self._has_way_back = True
        self.write(records)

    def confirm(self) -> None:
        """What was kept last holds: there is no way back."""
        self._has_way_back = False
        try:
            self._former.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("change_not_tidied", file=str(self._former), error=str(error))

    def write(self, records: Iterable[Record], removed: Iterable[Key] = ()) -> None:
        """Keeps these changes, each in the place of an older one of its object, and forgets others.

        All of it or, when that cannot be, or the process is killed, nothing.

        Raises:
            OSError: nothing of it is kept.
        """
        self._make_folder()
        self._finish()
        records, removed = list(records), [key for key in removed if self._file(key).exists()]
        changed = [record for record in records if not self._holds(record)]
        if len(changed) + len(removed) <= 1:
            # A name that is exchanged, or goes, is whole by itself.
            for record in changed:
                self._replace(self._file(record.key), _text(record))
            self.remove(removed)
            return
        content = {
            "records": [_content(record) for record in changed],
            "removed": [list(key) for key in removed],
        }
        self._replace(self._change, _json(content))
        try:
            self._finish()
        except OSError as error:
            # It has happened; only its place is another than it should be.
            _log.warning("change_not_tidied", file=str(self._change), error=str(error))

    def remove(self, keys: Iterable[Key]) -> None:
        """Forgets the changes of these objects, each by itself."""
        self._finish()
        for key in keys:
            self._file(key).unlink(missing_ok=True)
        if self.folder.is_dir():
            self._sync_folder()

    def undo(self, former: dict[Key, Record], keys: Iterable[Key]) -> None:
        """Makes the records of these objects what they were before the change that was kept last.

        Where that had a way back it needs no room. Otherwise what is new goes all the same, each object's by itself, on
        a disk that takes nothing any more. It may be called again.

        Raises:
            OSError: what had been there before could not be kept again.
        """
        if self._has_way_back and self._former.exists():
            self._go_back()
            return
        keys = list(keys)
        new = [key for key in keys if key not in former]
        try:
            self.write([former[key] for key in keys if key in former], new)
        except OSError:
            self._drop_new(former, keys, new)
            held = {record.key: _text(record) for record in self.load()}
            if any(held.get(key) != (_text(former[key]) if key in former else None) for key in keys):
                raise

    def _go_back(self) -> None:
        self._former.replace(self._change)
        self._sync_folder()
        self._has_way_back = False
        try:
            self._finish()
        except OSError as error:
            _log.warning("change_not_tidied", file=str(self._change), error=str(error))

    def _drop_new(self, former: dict[Key, Record], keys: list[Key], new: list[Key]) -> None:
        """Takes out what is new, without writing anything."""
        change = self._pending()
        if change is not None and change.keys <= {*keys} and not change.is_in(former):
            # It is what is undone. An earlier one, which finds no room either, holds.
            self._change.unlink()
        for key in new:
            self._file(key).unlink(missing_ok=True)
        self._sync_folder()

    def _finish(self) -> None:
        """Gives each object its file of a change that stands in one file still."""
        if not self._change.exists():
            return
        try:
            change = self._pending()
        except (ManifestError, ValueError, KeyError, TypeError) as error:
            raise OSError(f"{self._change} cannot be read: {error}") from error
        assert change is not None  # it was there just now, and nobody else writes here
        for record in change.records:
            if not self._holds(record):
                self._replace(self._file(record.key), _text(record))
        for key in change.removed:
            self._file(key).unlink(missing_ok=True)
        self._sync_folder()
        self._change.unlink()
        self._sync_folder()

    def _pending(self) -> "_Change | None":
        """A change that stands in one file still."""
        try:
            content = json.loads(self._change.read_text("utf-8"))
        except FileNotFoundError:
            return None
        records = [_record(one, self._change) for one in content["records"]]
        return _Change(records, [(kind, name) for kind, name in content["removed"]])

    def _holds(self, record: Record) -> bool:
        file = self._file(record.key)
        return file.exists() and file.read_text("utf-8") == _text(record)

    def _make_folder(self) -> None:
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync(self.folder.parent)

    def _replace(self, file: Path, text: str) -> None:
        """Exchanges a file as a whole, durably."""
        temporary = file.with_name(f".{file.name}.new")
        try:
            _write_synced(temporary, text)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        temporary.replace(file)
        self._sync_folder()

    def _file(self, key: Key) -> Path:
        kind, name = key
        if len(name) > _FILE_NAME_CHARACTERS_MAX:
            name = f"{name[:_FILE_NAME_CHARACTERS_MAX]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        return self.folder / f"{kind}.{name}{_SUFFIX}"

    @property
    def _change(self) -> Path:
        return self.folder / _CHANGE_FILE

    @property
    def _former(self) -> Path:
        return self.folder / _FORMER_FILE

    def _sync_folder(self) -> None:
        _sync(self.folder)


@dataclass(frozen=True)
class _Change:
    """What concerns several objects."""

    records: list[Record]
    removed: list[Key]

    @property
    def keys(self) -> set[Key]:
        """Whom it concerns."""
        return {*(record.key for record in self.records), *self.removed}

    def is_in(self, records: dict[Key, Record]) -> bool:
        """Whether these say what it says."""
        said = {key: _text(record) for key, record in records.items()}
        kept = all(said.get(record.key) == _text(record) for record in self.records)
        return kept and not any(key in records for key in self.removed)


@contextmanager
def _told(problems: list[Problem], file: Path) -> Iterator[None]:
    """Whatever is wrong with a file is a problem that names it."""
    try:
        yield
    except ManifestError as error:
        problems += error.problems
    except (OSError, ValueError, KeyError, TypeError) as error:
        fault = f"cannot be read as a kept change ({error}): mend or remove the file"
        problems.append(Problem(Place(str(file), 1), "", fault))


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text(record: Record) -> str:
    return _json(_content(record))


def _content(record: Record) -> dict[str, Any]:
    kind, name = record.key
    return {
        "kind": kind,
        "name": name,
        "base": record.base,
        "manifest": record.manifest.resource.document() if record.manifest else None,
    }


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _write_synced(file: Path, text: str) -> None:
    with file.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def _record(content: dict[str, Any], file: Path) -> Record:
    kind, name, base, document = content["kind"], content["name"], content["base"], content["manifest"]
    if kind not in KINDS:
        raise ValueError(f"unknown kind '{kind}'")
    manifest = None
    if document is not None:
        manifest = Manifest(from_document(document, str(file)), Place(str(file), 1))
    return Record((kind, name), manifest, base)
