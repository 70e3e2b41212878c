"""Columns of a snapshot's tables: kind, whether a value may be missing, and what it means."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["int64", "int32", "int16", "int8", "bool", "string"]

Packing = Literal["delta", "dictionary", "plain"]
"""How values are encoded in Parquet: `delta` for numbers that grow from row to row, `dictionary` for few different
values, `plain` for what has no pattern."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: in the file.
        about: what it means, and its unit where it has one.
        kind: all numbers are signed, so that Spark reads them as they are.
        is_nullable: whether a row may be without a value.
        packing: how it is encoded.
        person: whether it may name a person or an application: an exporter keeps such values by choice, as they are,
            as keyed hashes or not at all. A text is the name of another column whose value decides it: see
            `privacy.PERSONAL`.
    """

    name: str
    about: str
    kind: Kind = "int64"
    is_nullable: bool = False
    packing: Packing = "dictionary"
    person: bool | str = False


def growing(name: str, about: str, *, is_nullable: bool = False) -> Column:
    """A number that mostly grows from row to row: positions, sequences, times."""
    return Column(name, about, packing="delta", is_nullable=is_nullable)


def few(name: str, about: str, kind: Kind = "int64", *, is_nullable: bool = False) -> Column:
    """A number with few different values."""
    return Column(name, about, kind, is_nullable)


def text(name: str, about: str, *, is_nullable: bool = False, person: bool | str = False) -> Column:
    """A text in UTF-8."""
    return Column(name, about, "string", is_nullable, person=person)


def yes(name: str, about: str) -> Column:
    """Yes or no."""
    return Column(name, about, "bool", packing="plain")


def checksum(half: str) -> Column:
    """Half of a body's checksum."""
    about = f"the {half} 64 bits of the XXH3-128 of the body, as a signed number; missing for messages from before it"
    return Column(f"checksum_{'high' if half == 'upper' else 'low'}", about, is_nullable=True, packing="plain")


COPY = few("copy", "which copy of the message: 0 where it was sent, others by bridges", "int16")
"""Of a message that may have several."""

COPIES: tuple[Column, ...] = (
    growing("position", "of the message's record"),
    COPY,
    few("destination", "where the copy went"),
    few("producer", "the copy's own incarnation, or the message's"),
    growing("sequence", "the copy's own number, or the message's"),
    growing("expiration_ms", "when it expires, milliseconds since 1970; missing: as the message", is_nullable=True),
)
"""What copies have, in the state and among events."""
