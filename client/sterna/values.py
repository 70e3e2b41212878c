"""Typed values of properties, maps and streams, and what each reads as (EMS-MSG-A25).

A value on the wire keeps the type it was written with. Python's own types cover most of it; the wrappers name the
others. Written without a wrapper: bool, str, bytes and float (a double) are themselves, an int is an int when it fits
in 32 bits and a long when it fits in 64, None is null. What is read comes back so that writing it again gives the same
type: a long that would fit in 32 bits is a `Long`, a short a `Short`, and so on; all of them behave as the Python
number or string they hold.

Reading as another type follows one table, `READABLE`; every other pair is a ConversionError. Strings read as numbers
when all of them parses (no blanks); as a bool, "true" in any case is true and all else false. A null reads as a string
(None) and as nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final, TypeAlias

from sterna.errors import ConversionError, InvalidMessageError

BYTE_RANGE: Final = (-(2**7), 2**7 - 1)
SHORT_RANGE: Final = (-(2**15), 2**15 - 1)
INT_RANGE: Final = (-(2**31), 2**31 - 1)
LONG_RANGE: Final = (-(2**63), 2**63 - 1)


class _Whole(int):
    """A whole number of a stated width; out of range is an InvalidMessageError."""

    __slots__ = ()
    bounds: ClassVar[tuple[int, int]] = LONG_RANGE

    def __new__(cls, value: int | str = 0) -> _Whole:
        made = super().__new__(cls, value)
        low, high = cls.bounds
        if not low <= made <= high:
            raise InvalidMessageError(f"{int(made)} does not fit a {cls.__name__} ({low} to {high})", subject="value")
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    __str__ = int.__repr__


class Byte(_Whole):
    """A whole number of 8 bits."""

    __slots__ = ()
    bounds = BYTE_RANGE


class Short(_Whole):
    """A whole number of 16 bits."""

    __slots__ = ()
    bounds = SHORT_RANGE


class Int(_Whole):
    """A whole number of 32 bits."""

    __slots__ = ()
    bounds = INT_RANGE


class Long(_Whole):
    """A whole number of 64 bits."""

    __slots__ = ()
    bounds = LONG_RANGE


class Float(float):
    """A floating-point number of 32 bits; the value is rounded to what they hold."""

    __slots__ = ()

    def __new__(cls, value: float | str = 0.0) -> Float:
        """Rounds to 32 bits."""
        return super().__new__(cls, to_single(float(value)))

    def __repr__(self) -> str:
        return f"Float({float(self)!r})"

    __str__ = float.__repr__


class Double(float):
    """A floating-point number of 64 bits: the same as a plain Python float."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Double({float(self)!r})"

    __str__ = float.__repr__


class Char(str):
    """One UTF-16 code unit."""

    __slots__ = ()

    def __new__(cls, value: str) -> Char:
        """Checks that it is one code unit."""
        if len(value) != 1 or ord(value) > 0xFFFF:
            raise InvalidMessageError(f"{value!r} is not one UTF-16 code unit", subject="value")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"Char({str(self)!r})"


class Array:
    """Values of one scalar type, for maps and streams (EMS-MSG-A13): `Array(Short, [1, 2, 3])`, `Array(str, names)`."""

    __slots__ = ("items", "of")

    def __init__(self, of: type[Any], items: Iterable[Any]) -> None:
        if of not in _ARRAY_TYPES:
            raise InvalidMessageError(f"arrays hold scalar values, not {of.__name__}", subject="array")
        self.of = of
        self.items: tuple[Any, ...] = tuple(_ARRAY_TYPES[of](one) for one in items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Array) and (self.of, self.items) == (other.of, other.items)

    def __hash__(self) -> int:
        return hash((self.of, self.items))

    def __repr__(self) -> str:
        return f"Array({self.of.__name__}, {list(self.items)!r})"


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidMessageError(f"{value!r} is no bool", subject="array")
    return value


#: What an array may hold, and what makes an item of it. int means Int and float means Double, as everywhere.
_ARRAY_TYPES: dict[type[Any], Any] = {
    bool: _boolean,
    Byte: Byte,
    Short: Short,
    int: Int,
    Int: Int,
    Long: Long,
    Float: Float,
    float: Double,
    Double: Double,
    Char: Char,
    str: str,
}

Scalar: TypeAlias = bool | int | float | str | None
#: What a property may hold.
PropertyValue: TypeAlias = Scalar

# The names of types in the conversion table; each is also the name of a wire field without `_value`.
BOOL, BYTE, SHORT, INT, LONG, FLOAT, DOUBLE, STRING, CHAR, BYTES, NULL = (
    "bool",
    "byte",
    "short",
    "int",
    "long",
    "float",
    "double",
    "string",
    "char",
    "bytes",
    "null",
)
MAP, STREAM, ARRAY = "map", "stream", "array"

#: Written type → types it reads as (EMS-MSG-A25).
READABLE: Final[dict[str, frozenset[str]]] = {
    BOOL: frozenset({BOOL, STRING}),
    BYTE: frozenset({BYTE, SHORT, INT, LONG, STRING}),
    SHORT: frozenset({SHORT, INT, LONG, STRING}),
    CHAR: frozenset({CHAR, STRING}),
    INT: frozenset({INT, LONG, STRING}),
    LONG: frozenset({LONG, STRING}),
    FLOAT: frozenset({FLOAT, DOUBLE, STRING}),
    DOUBLE: frozenset({DOUBLE, STRING}),
    STRING: frozenset({BOOL, BYTE, SHORT, INT, LONG, FLOAT, DOUBLE, STRING}),
    BYTES: frozenset({BYTES}),
    NULL: frozenset({STRING}),
    MAP: frozenset({MAP}),
    STREAM: frozenset({STREAM}),
    ARRAY: frozenset({ARRAY}),
}

_TYPES: dict[type[Any], str] = {
    bool: BOOL,
    Byte: BYTE,
    Short: SHORT,
    Int: INT,
    Long: LONG,
    Float: FLOAT,
    float: DOUBLE,
    Double: DOUBLE,
    str: STRING,
    Char: CHAR,
    bytes: BYTES,
    bytearray: BYTES,
    memoryview: BYTES,
    type(None): NULL,
    Array: ARRAY,
}

_RANGES = {BYTE: BYTE_RANGE, SHORT: SHORT_RANGE, INT: INT_RANGE, LONG: LONG_RANGE}


def to_single(value: float) -> float:
    """`value` rounded to 32 bits; beyond their range it is an infinity, as in Java."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return rounded


def type_of(value: Any) -> str | None:
    """The name of the type that `value` is written as; None when it is no value (a map and a list are decided above).

    Raises:
        InvalidMessageError: for an int beyond 64 bits.
    """
    if type(value) is int:
        if INT_RANGE[0] <= value <= INT_RANGE[1]:
            return INT
        if LONG_RANGE[0] <= value <= LONG_RANGE[1]:
            return LONG
        raise InvalidMessageError(f"{value} does not fit 64 bits", subject="value", remedy="send it as a string")
    found = _TYPES.get(type(value))
    if found is None:
        for base in (int, float, str, bytes):
            if isinstance(value, base):  # an IntEnum, a StrEnum, a subclass of the caller's
                return type_of(int(value)) if isinstance(value, int) else _TYPES[base]
    return found


def plain(value: Any) -> Any:
    """`value` without the wrappers that only state its type."""
    if isinstance(value, _Whole):
        return int(value)
    if isinstance(value, Float | Double):
        return float(value)
    if isinstance(value, Char):
        return str(value)
    return value


def _text_of(kind: str, value: Any) -> str | None:
    if kind == BOOL:
        return "true" if value else "false"
    return None if value is None else str(value)


def _parsed(text: str, wanted: str, name: str) -> Any:
    """A string as a type, when all of it parses."""
    if wanted == BOOL:
        return text.lower() == "true"
    try:
        if any(one.isspace() or one == "_" or not one.isascii() for one in text):
            raise ValueError(text)
        if wanted in (FLOAT, DOUBLE):
            number = float(text)
            return to_single(number) if wanted == FLOAT else number
        whole = int(text, 10)
    except ValueError as error:
        raise ConversionError(f"{text[:80]!r} does not parse as {wanted}", subject=name) from error
    low, high = _RANGES[wanted]
    if not low <= whole <= high:
        raise ConversionError(f"{text[:80]!r} does not fit {wanted}", subject=name)
    return whole


def read_as(value: Any, wanted: str, name: str) -> Any:
    """`value` as the type `wanted` (EMS-MSG-A25), in plain Python; `name` says in errors what it was.

    Raises:
        ConversionError: when the pair is not in the table, or a string does not parse.
    """
    kind = type_of(value) or (MAP if hasattr(value, "keys") else STREAM)
    if wanted not in READABLE[kind]:
        raise ConversionError(
            f"a {kind} does not read as {wanted}",
            subject=name,
            remedy=f"read it as one of: {', '.join(sorted(READABLE[kind]))}",
        )
    if kind == STRING:
        return value if wanted == STRING else _parsed(value, wanted, name)
    if wanted == STRING:
        return _text_of(kind, value)
    return plain(value)
