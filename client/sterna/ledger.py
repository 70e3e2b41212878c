"""Ledgers: what a client writes down of what it sends, receives and acknowledges, and reading that again.

    connection = await sterna.connect(url, ledger="/var/lib/billing/ledger")

    for record in sterna.ledger.read(path):
        ...

A ledger is the one witness of what became of messages that is not the broker itself. Its files are read here without
the package that writing one needs, and without grpc.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sterna import _ledger_format as form
from sterna._ledger_records import Acknowledged as Acknowledged
from sterna._ledger_records import Acknowledging as Acknowledging
from sterna._ledger_records import Again as Again
from sterna._ledger_records import Confirmed as Confirmed
from sterna._ledger_records import Consumer as Consumer
from sterna._ledger_records import GivenUp as GivenUp
from sterna._ledger_records import InDoubt as InDoubt
from sterna._ledger_records import Link as Link
from sterna._ledger_records import Producer as Producer
from sterna._ledger_records import Reader
from sterna._ledger_records import Received as Received
from sterna._ledger_records import Record as Record
from sterna._ledger_records import Refused as Refused
from sterna._ledger_records import SentRecord as SentRecord
from sterna._ledger_records import TransactionRecord as TransactionRecord
from sterna.errors import InvalidArgumentError, LedgerDamagedError, LedgerError

if TYPE_CHECKING:
    from sterna._ledger import Book

#: What the names of ledgers' files end in.
SUFFIX: Final = form.SUFFIX
_ROTATE_BYTES: Final = 64 << 20
_ROTATE_BYTES_MIN: Final = 4096


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where and how a connection keeps its ledger.

    `folder` is made where it does not exist; each connection, with the hidden ones that it has to other brokers of a
    cluster, writes files of its own in it, `<client id>-<process>-<start>-<number>.ledger`. `rotate_bytes`: about as
    long as a file gets before the next one is begun (64 MiB). `sync`: whether the disk must have kept what is about to
    be sent before it leaves (no: the operating system must, which survives the end of the process but not that of the
    machine). `required`: whether the connection is over when its ledger cannot be written, with `LedgerError` (yes); or
    the ledger ends, and `on_error` tells.

    Raises:
        InvalidArgumentError: `rotate_bytes` is below 4096.
    """

    folder: str | os.PathLike[str]
    sync: bool = False
    rotate_bytes: int = _ROTATE_BYTES
    required: bool = True

    def __post_init__(self) -> None:
        if self.rotate_bytes < _ROTATE_BYTES_MIN:
            cause = f"{self.rotate_bytes} bytes are too few for a file: {_ROTATE_BYTES_MIN} is the least"
            raise InvalidArgumentError(cause, subject="rotate_bytes")


#: What `connect` takes: a folder, or how a ledger is to be kept there.
LedgerLike: TypeAlias = "Ledger | str | os.PathLike[str]"


def book_of(ledger: LedgerLike, client_id: str, product: str) -> Book:
    """What a connection writes into.

    Raises:
        LedgerError: the package that it needs is missing.
    """
    from sterna._ledger import Book, digest
    from sterna._ledger_file import Files
    from sterna._surroundings import random_bits

    kept = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    head = {
        "what": "sterna client ledger",
        "ledger": f"{random_bits(128):032x}",
        "checksum": form.CHECKSUM,
        "client_id": client_id,
        "product": product,
        "process": os.getpid(),
    }
    files = Files(Path(kept.folder), client_id, kept.rotate_bytes, head)
    return Book(files, syncs=kept.sync, is_required=kept.required, digest=digest())


class Reading:
    """The records of one file, in the order in which they were written. Iterate over it, once or again.

    `head` says whose it is. After an iteration `torn_bytes` is how much of a block that was being written when its
    process ended was cut off (0: nothing), and `is_closed` whether the file was ended as it should be.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.torn_bytes = 0
        self.is_closed = False
        #: What the file's head says: ledger, client_id, product, process, started_ms, file, checksum. Empty: torn.
        self.head: dict[str, Any] = {}
        try:
            with self.path.open("rb") as file:
                found = form.head_of(file.read(form.HEAD_BYTES_MAX + 64))
        except OSError as error:
            raise LedgerError(f"the ledger cannot be read: {error.strerror}", subject=str(path)) from error
        except form.FormatError as error:
            raise self._damaged(error) from None
        self._begin = 0
        if found is not None:
            self.head, self._begin = found

    @property
    def state(self) -> str:
        """After an iteration: `closed`, `torn`, or `open`, which a process that was killed leaves behind as well."""
        return "torn" if self.torn_bytes else "closed" if self.is_closed else "open"

    def __iter__(self) -> Iterator[Record]:
        self.torn_bytes, self.is_closed = 0, False
        reader = Reader(self.head)
        try:
            for raw in self._raw():
                self.is_closed = raw.kind == form.END
                yield from reader.records(raw)
        except form.FormatError as error:
            raise self._damaged(error) from None
        except OSError as error:
            raise LedgerError(f"the ledger cannot be read: {error.strerror}", subject=str(self.path)) from error

    def _raw(self) -> Iterator[form.Raw]:
        with self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not self._begin:
                self.torn_bytes = size
                return
            offset, number = self._begin, 0
            while offset < size:
                file.seek(offset)
                begin = file.read(form.BLOCK_BEGIN_BYTES)
                if len(begin) < form.BLOCK_BEGIN_BYTES:
                    break
                if not any(begin) and _is_zero(file):
                    break
                length = form.block_size(begin, number, offset)
                content = file.read(length)
                if len(content) < length:
                    break
                yield from form.records_of(begin, content, number, offset)
                offset += form.BLOCK_BEGIN_BYTES + length
                number += 1
            self.torn_bytes = size - offset

    def _damaged(self, error: form.FormatError) -> LedgerDamagedError:
        damaged = LedgerDamagedError(f"{error.cause}, at offset {error.offset}", subject=str(self.path))
        damaged.offset = error.offset
        return damaged


def _is_zero(file: Any) -> bool:
    """Whether there are but zeros from here on."""
    while piece := file.read(1 << 16):
        if any(piece):
            return False
    return True


def read(path: str | os.PathLike[str]) -> Reading:
    """The records of a ledger's file; iterate over what this returns.

    Raises:
        LedgerDamagedError: it is damaged, now or while it is iterated over, behind the records before that.
        LedgerError: it cannot be read.
    """
    return Reading(path)
