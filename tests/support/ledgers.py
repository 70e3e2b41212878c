"""What the ledgers in a folder say, put together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from sterna import ledger

R = TypeVar("R", bound=ledger.Record)


def files(folder: Path) -> list[Path]:
    """The files of one ledger, in the order in which they were written."""
    return sorted(folder.glob("*.ledger"), key=lambda file: int(file.stem.rpartition("-")[2]))


def records(folder: Path) -> list[ledger.Record]:
    """All records in them."""
    return [one for file in files(folder) for one in ledger.read(file)]


def of(folder: Path, kind: type[R]) -> list[R]:
    """Those of this kind."""
    return [one for one in records(folder) if isinstance(one, kind)]


def sent(folder: Path) -> dict[str, ledger.SentRecord]:
    """What is said to have been sent, by message id: each once."""
    found: dict[str, ledger.SentRecord] = {}
    for one in of(folder, ledger.SentRecord):
        assert one.message_id not in found, f"{one.message_id} was written down twice"
        found[one.message_id] = one
    return found


def ids(one: ledger.Confirmed | ledger.Refused | ledger.InDoubt | ledger.GivenUp | ledger.Again) -> Iterator[str]:
    """The message ids of a range."""
    return (f"{one.producer.prefix}{number}" for number in range(one.first, one.last + 1))


def confirmed(folder: Path) -> set[str]:
    """The ids of what is said to have been confirmed."""
    return {id_ for one in of(folder, ledger.Confirmed) for id_ in ids(one)}
