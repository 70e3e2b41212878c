"""Bodies and properties as the receiver reads them, and the two kinds of body that Python has no type for.

A body is None, a str, bytes, a dict (map), a list (stream), an `Object` or, passed through from another protocol, a
`Foreign` (EMS-MSG-A12). Received maps and streams are a `MapBody` and a `StreamBody`: a dict and a list, with readers
that convert as JMS does (values.READABLE).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from sterna import values
from sterna.errors import ConversionError, EndOfStreamError

_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Object:
    """A serialised object: opaque to the broker; `content_type` says how to read it."""

    data: bytes
    content_type: str = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A body of another protocol, untouched; `protocol` says who can read it."""

    protocol: str
    data: bytes


class TypedReaders:
    """Typed access to named values. A name that is absent gives `default`, or a KeyError without one.

    Every reader raises ConversionError for a pair of types that is not in the table of EMS-MSG-A25.
    """

    def _value(self, name: str, default: Any) -> Any:
        raise NotImplementedError

    def _read(self, name: str, wanted: str, default: Any) -> Any:
        value = self._value(name, _MISSING)
        if value is _MISSING:
            if default is _MISSING:
                raise KeyError(name)
            return default
        return values.read_as(value, wanted, name)

    def get_bool(self, name: str, default: bool = _MISSING) -> bool:
        """As a bool."""
        return cast("bool", self._read(name, values.BOOL, default))

    def get_byte(self, name: str, default: int = _MISSING) -> int:
        """As a number of 8 bits."""
        return cast("int", self._read(name, values.BYTE, default))

    def get_short(self, name: str, default: int = _MISSING) -> int:
        """As a number of 16 bits."""
        return cast("int", self._read(name, values.SHORT, default))

    def get_int(self, name: str, default: int = _MISSING) -> int:
        """As a number of 32 bits."""
        return cast("int", self._read(name, values.INT, default))

    def get_long(self, name: str, default: int = _MISSING) -> int:
        """As a number of 64 bits."""
        return cast("int", self._read(name, values.LONG, default))

    def get_float(self, name: str, default: float = _MISSING) -> float:
        """As a floating-point number of 32 bits."""
        return cast("float", self._read(name, values.FLOAT, default))

    def get_double(self, name: str, default: float = _MISSING) -> float:
        """As a floating-point number of 64 bits."""
        return cast("float", self._read(name, values.DOUBLE, default))

    def get_string(self, name: str, default: str | None = _MISSING) -> str | None:
        """As a string; null is None."""
        return cast("str | None", self._read(name, values.STRING, default))

    def get_char(self, name: str, default: str = _MISSING) -> str:
        """As one UTF-16 code unit."""
        return cast("str", self._read(name, values.CHAR, default))


class Properties(TypedReaders, dict[str, Any]):
    """A message's properties: a dict with typed readers. Where a name was repeated, the last one counts."""

    def _value(self, name: str, default: Any) -> Any:
        return self.get(name, default)


class MapBody(TypedReaders, dict[str, Any]):
    """A map body: a dict, in the order in which it was written, with typed readers (EMS-MSG-A12, A25)."""

    def _value(self, name: str, default: Any) -> Any:
        return self.get(name, default)

    def get_bytes(self, name: str, default: bytes = _MISSING) -> bytes:
        """As bytes; only bytes read so."""
        return cast("bytes", self._read(name, values.BYTES, default))


class StreamBody(list[Any]):
    """A stream body: a list that is also read item by item, each as the type asked for (EMS-MSG-A12, A25).

    A conversion that fails leaves the position where it was, so the item can be read as another type.
    """

    position: int = 0

    def _next(self, wanted: str | None) -> Any:
        if self.position >= len(self):
            raise EndOfStreamError(f"the stream has {len(self)} item(s), and all were read", subject="stream")
        value = self[self.position]
        if wanted is not None:
            value = values.read_as(value, wanted, f"item {self.position}")
        self.position += 1
        return value

    def reset(self) -> None:
        """Begins again with the first item."""
        self.position = 0

    def read(self) -> Any:
        """The next item as it was written."""
        return self._next(None)

    def read_bool(self) -> bool:
        """The next item as a bool."""
        return cast("bool", self._next(values.BOOL))

    def read_byte(self) -> int:
        """The next item as a number of 8 bits."""
        return cast("int", self._next(values.BYTE))

    def read_short(self) -> int:
        """The next item as a number of 16 bits."""
        return cast("int", self._next(values.SHORT))

    def read_int(self) -> int:
        """The next item as a number of 32 bits."""
        return cast("int", self._next(values.INT))

    def read_long(self) -> int:
        """The next item as a number of 64 bits."""
        return cast("int", self._next(values.LONG))

    def read_float(self) -> float:
        """The next item as a floating-point number of 32 bits."""
        return cast("float", self._next(values.FLOAT))

    def read_double(self) -> float:
        """The next item as a floating-point number of 64 bits."""
        return cast("float", self._next(values.DOUBLE))

    def read_string(self) -> str | None:
        """The next item as a string; null is None."""
        return cast("str | None", self._next(values.STRING))

    def read_char(self) -> str:
        """The next item as one UTF-16 code unit."""
        return cast("str", self._next(values.CHAR))

    def read_bytes(self) -> bytes:
        """The next item as bytes; only bytes read so."""
        return cast("bytes", self._next(values.BYTES))


#: What may be sent as a body.
Body: TypeAlias = "str | bytes | bytearray | memoryview | Mapping[str, Any] | list[Any] | Object | Foreign | None"


def expect(body: Any, kind: type[Any]) -> Any:
    """`body` when it is a `kind`.

    Raises:
        ConversionError: saying what it is instead.
    """
    if not isinstance(body, kind):
        raise ConversionError(f"the body is {type(body).__name__}, not {kind.__name__}", subject="body")
    return body
