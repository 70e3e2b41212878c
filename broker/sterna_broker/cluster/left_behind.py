"""What is about to be left behind, in the data folder: a start must not forget it.

Of what belongs together some may have gone to another broker when this one dies. The rest is to follow, and takes
nothing before, also when nobody wants this broker emptied any more by the time it starts again. That cannot be seen by
the homes: the ends of a bridge may be apart because people want them so, or had them so before there was a bridge. So
the names are written down, in `behind.json`, before the first of them leaves, and taken out again once they are
together. Topics that a pattern matches are looked for anew (`Drain.look`), and need no note.
"""

import asyncio
import json
import threading
from collections.abc import Collection
from pathlib import Path

import structlog
from sterna_etcd import HomeKey

from sterna_broker.cluster.kept import KeptError, replace

_log = structlog.get_logger(part="drain")

FILE = "behind.json"
_FORMAT = 1


class LeftBehind:
    """See the module. `names` is what the file has for certain."""

    def __init__(self, folder: Path | None = None) -> None:
        """Without a folder nothing outlives the process."""
        self.names: frozenset[HomeKey] = frozenset()
        self._path = folder / FILE if folder is not None else None
        self._saving = threading.Lock()

    def load(self) -> None:
        """What was left when the last process ended: a few names, read at once, before anybody is connected.

        Raises:
            KeptError: it cannot be read.
        """
        if self._path is not None:
            self.names = _read(self._path)

    async def note(self, names: Collection[HomeKey]) -> bool:
        """Has all of these in the file, and nothing that was there before; whether they are there, durably."""
        return self.names.issuperset(names) or await self._write(frozenset(names))

    async def forget_all_but(self, names: Collection[HomeKey]) -> None:
        """Takes the others out. Where that fails they are looked at once more after a start."""
        if not self.names.issubset(names):
            await self._write(self.names.intersection(names))

    async def _write(self, names: frozenset[HomeKey]) -> bool:
        rows = sorted([key.kind, key.name] for key in names)
        before = self.names
        # Whoever waits here may be cancelled, and the disk may fail behind the change: then the file may have either.
        self.names = before.intersection(names)
        try:
            if self._path is not None:
                await asyncio.to_thread(self._save, self._path, json.dumps({"format": _FORMAT, "names": rows}))
        except OSError as error:
            _log.warning("left_behind_not_kept", error=str(error))
            if self._path is not None and await asyncio.to_thread(_has, self._path, before):
                self.names = before
            return False
        self.names = names
        return True

    def _save(self, path: Path, text: str) -> None:
        # A thread whose task has been cancelled may still be at it.
        with self._saving:
            replace(path, text)


def _has(path: Path, names: frozenset[HomeKey]) -> bool:
    """Whether the file is still the one with these."""
    try:
        return _read(path) == names
    except KeptError:
        return False


def _read(path: Path) -> frozenset[HomeKey]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError) as error:
        raise KeptError(f"{path}: {error}: remove it to start as if nothing had been left behind") from error
    try:
        if content["format"] != _FORMAT:
            raise KeptError(f"{path}: its format {content['format']} is not known to this version")
        return frozenset(HomeKey(str(kind), str(name)) for kind, name in content["names"])
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, KeptError):
            raise
        raise KeptError(f"{path}: {error!r}: remove it to start as if nothing had been left behind") from error
