"""Brings clients' ledgers to where audits find them: `sterna ledger push`.

A closed file never changes, so it is brought once; what is open, or was left so by a process that was killed, is
brought again whenever it has grown. Nothing is changed on the client's side, unless closed files are to be removed:
each only when it is whole at the other end.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sterna import ledger
from sterna.errors import LedgerDamagedError, LedgerError

from sterna_audit.snapshots.stores import MissingFileError, Store, told

_CHUNK_BYTES = 1 << 20
_IDENTITY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of one file.

    Attributes:
        file: on this machine.
        path: below the root, in a folder of the ledger's own.
        state: `closed`, `open`, `torn`, `damaged` or `unreadable`; but for the last it is brought all the same.
        why: of a damaged or unreadable one.
        size: in bytes, as far as it was brought.
        was_there: it had been brought before, as long as it is.
        removed: it is gone from this machine.
    """

    file: Path
    path: str
    state: str
    why: str
    size: int
    was_there: bool
    removed: bool


def push(folder: Path, store: Store, *, removes: bool = False) -> Iterator[Pushed]:
    """Brings each ledger's file of a folder, and says what became of it.

    Args:
        folder: where clients write them.
        store: where to.
        removes: closed files go from here when they are there.

    Raises:
        StoreError: the store does not take one; those before it are there.
    """
    for file in sorted(folder.glob(f"*{ledger.SUFFIX}")):
        with suppress(FileNotFoundError):
            yield _push(file, store, removes=removes)


def _push(file: Path, store: Store, *, removes: bool) -> Pushed:
    identity, state, why = _look(file)
    if not identity:
        return Pushed(file, "", "unreadable", why, 0, was_there=False, removed=False)
    path = f"{identity}/{file.name}"
    size = file.stat().st_size
    was_there = _size_there(store, path) == size
    if not was_there:
        _copy(file, size, store, path)
    removed = removes and state == "closed" and _size_there(store, path) == size
    if removed:
        file.unlink()
    return Pushed(file, path, state, why, size, was_there, removed)


def _look(file: Path) -> tuple[str, str, str]:
    """Whose it is (empty: that cannot be read), its state, and what is wrong with it."""
    identity = ""
    try:
        reading = ledger.read(file)
        identity = str(reading.head.get("ledger", ""))
        if not _IDENTITY.fullmatch(identity):
            return "", "damaged", "its head names no ledger"
        for _ in reading:
            pass
    except LedgerDamagedError as error:
        return identity, "damaged", error.cause
    except LedgerError as error:
        return "", "unreadable", error.cause
    return identity, reading.state, ""


def _size_there(store: Store, path: str) -> int | None:
    try:
        return store.size(path)
    except MissingFileError:
        return None


def _copy(file: Path, size: int, store: Store, path: str) -> None:
    """Of a file that grows so much as there was."""
    with file.open("rb") as source, told(str(file)):
        output = store.create(path)
        try:
            left = size
            while left > 0 and (piece := source.read(min(left, _CHUNK_BYTES))):
                output.write(piece)
                left -= len(piece)
            output.finish()
        except BaseException:
            output.abandon()
            raise
