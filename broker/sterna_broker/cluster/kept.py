"""The last configuration and homes that this broker had from etcd, kept in its data folder.

With it a broker starts while etcd is away, and knows its etcd again when that is back. One file, `cluster.json`,
replaced atomically and synced. It is written after the broker has taken something over, so that it may be older than
what the broker had, and never newer than etcd.
"""

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterna_etcd import Claim, HomeKey, Layout, Remembered
from sterna_etcd.records import ConfigRecord, DrainRecord, HomeRecord, RecordError, UserRecord

from sterna_broker.cluster.view import Stored, View

FILE = "cluster.json"
_FORMAT = 1


class KeptError(ValueError):
    """The file cannot be used; the text names it."""


@dataclass(frozen=True)
class Kept:
    """What was read."""

    identity: Remembered
    view: View


class KeptFile:
    """The file. All methods touch the disk: call them in a thread."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.path = folder / FILE
        self._layout = layout
        self._saving = threading.Lock()

    def load(self) -> Kept | None:
        """What is kept; None: nothing.

        Raises:
            KeptError: it cannot be read, or is of another cluster.
        """
        try:
            content = json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise KeptError(f"{self.path}: {error}: remove it to start with what etcd has") from error
        try:
            if content["format"] != _FORMAT:
                raise KeptError(f"{self.path}: its format {content['format']} is not known to this version")
            if content["cluster"] != self._layout.cluster:
                message = f"the data folder belongs to the cluster '{content['cluster']}', not '{self._layout.cluster}'"
                raise KeptError(f"{self.path}: {message}")
            return self._kept(content)
        except (KeyError, TypeError, RecordError) as error:
            raise KeptError(f"{self.path}: {error}: remove it to start with what etcd has") from error

    def _kept(self, content: dict[str, Any]) -> Kept:
        view = View(self._layout, revision=content["revision"])
        for kind, name, created, revision, record in content["configs"]:
            text = json.dumps(record).encode()
            view.configs[Claim(kind, name)] = Stored(ConfigRecord.decode(str(self.path), text), revision, created)
        for kind, name, created, revision, record in content["homes"]:
            text = json.dumps(record).encode()
            view.homes[HomeKey(kind, name)] = Stored(HomeRecord.decode(str(self.path), text), revision, created)
        for name, created, revision, record in content["users"]:
            text = json.dumps(record).encode()
            view.users[name] = Stored(UserRecord.decode(str(self.path), text), revision, created)
        for name, created, revision, record in content.get("drains", ()):
            text = json.dumps(record).encode()
            view.drains[name] = Stored(DrainRecord.decode(str(self.path), text), revision, created)
        view.addresses = {str(name): list(map(str, urls)) for name, urls in content["addresses"].items()}
        known = Remembered(str(content["id"]), int(content["revision"]), str(content.get("witness", "")))
        return Kept(known, view)

    def save(self, text: str) -> None:
        """Replaces the file. A thread whose task has been cancelled may still be at it: the next one waits."""
        with self._saving:
            replace(self.path, text)


def replace(path: Path, text: str) -> None:
    """Puts a file in the place of another: atomically, and so that it outlives a loss of power."""
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def content_of(view: View, identity: Remembered) -> dict[str, Any]:
    """What the file says, for `json.dumps`. May take long: call it in a thread, with a copy of the view."""
    return {
        "format": _FORMAT,
        "cluster": view.layout.cluster,
        "id": identity.id,
        "witness": identity.witness,
        "revision": max(view.revision, identity.revision),
        "configs": [
            [claim.kind, claim.name, one.created, one.revision, one.record.model_dump(mode="json")]
            for claim, one in view.configs.items()
        ],
        "homes": [
            [key.kind, key.name, one.created, one.revision, one.record.model_dump(mode="json")]
            for key, one in view.homes.items()
        ],
        "users": _rows(view.users),
        "drains": _rows(view.drains),
        "addresses": view.addresses,
    }


def _rows(records: dict[str, Stored]) -> list[list[Any]]:
    return [[name, one.created, one.revision, one.record.model_dump(mode="json")] for name, one in records.items()]
