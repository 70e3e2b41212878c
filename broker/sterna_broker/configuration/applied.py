"""What `sterna apply` and `sterna delete` changed, kept in the data folder so that a restart has it.

Each change is one file `applied/<kind>.<name>.json`: the manifest, or a note that the object was deleted, and a
digest of the folder's manifest of the same object at that time. The rule is that the latest change wins: a record
counts as long as the folder still says what it said when the record was made; once somebody edits the folder, the
folder counts again and the record is retired. Files are replaced atomically and synced before the change is answered.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterna_resources.kinds import KINDS
from sterna_resources.problems import ManifestError, Place, Problem
from sterna_resources.reading import Manifest, from_document
from sterna_resources.resource import Resource

from sterna_broker.configuration.objects import Entry, Key

OWNER = "admin"
_SUFFIX = ".json"

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

    def load(self) -> list[Record]:
        """All records.

        Raises:
            ManifestError: a record cannot be read; it names the file.
        """
        if not self.folder.is_dir():
            return []
        records: list[Record] = []
        problems: list[Problem] = []
        for file in sorted(self.folder.glob(f"*{_SUFFIX}")):
            try:
                records.append(_record(json.loads(file.read_text("utf-8")), file))
            except ManifestError as error:
                problems += error.problems
            except (OSError, ValueError, KeyError, TypeError) as error:
                fault = f"cannot be read as a kept change ({error}): mend or remove the file"
                problems.append(Problem(Place(str(file), 1), "", fault))
        if problems:
            raise ManifestError(problems)
        return records

    def write(self, records: Iterable[Record]) -> None:
        """Keeps these changes, each in the place of an older one of its object; all, or none when one cannot be."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        written: list[tuple[Path, Path]] = []
        try:
            for record in records:
                file, text = self._file(record.key), _text(record)
                if not file.exists() or file.read_text("utf-8") != text:
                    temporary = file.with_name(f".{file.name}.new")
                    written.append((temporary, file))
                    _write_synced(temporary, text)
        except BaseException:
            for temporary, _ in written:
                temporary.unlink(missing_ok=True)
            raise
        for temporary, file in written:
            temporary.replace(file)
        self._sync_folder()

    def remove(self, keys: Iterable[Key]) -> None:
        """Forgets the changes of these objects."""
        for key in keys:
            self._file(key).unlink(missing_ok=True)
        if self.folder.is_dir():
            self._sync_folder()

    def _file(self, key: Key) -> Path:
        kind, name = key
        if len(name) > _FILE_NAME_CHARACTERS_MAX:
            name = f"{name[:_FILE_NAME_CHARACTERS_MAX]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        return self.folder / f"{kind}.{name}{_SUFFIX}"

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _text(record: Record) -> str:
    kind, name = record.key
    content = {
        "kind": kind,
        "name": name,
        "base": record.base,
        "manifest": record.manifest.resource.document() if record.manifest else None,
    }
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
