"""Values of properties, maps and streams as JSON, with the types that JSON has no word for beside them.

`{"table": Short(7)}` is `{"table": 7}` with the types `{"/table": "short"}`: by JSON Pointer (RFC 6901), and only where
reading the JSON again would give another type. So what `receive` prints stays easy to read, and `send --jsonl` sends
what was received.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

from sterna import values
from sterna.values import Array, Byte, Char, Double, Float, Int, Long, Short

_ARRAY = "array of "


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is no boolean")
    return value


def _whole(make: Callable[[int], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{value!r} is no whole number")
        return make(value)

    return read


def _fraction(make: Callable[[float], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{value!r} is no number")
        return make(float(value))

    return read


def _text(make: Callable[[str], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is no text")
        return make(value)

    return read


_READERS: dict[str, Callable[[Any], Any]] = {
    values.BOOL: _boolean,
    values.BYTE: _whole(Byte),
    values.SHORT: _whole(Short),
    values.INT: _whole(Int),
    values.LONG: _whole(Long),
    values.FLOAT: _fraction(Float),
    values.DOUBLE: _fraction(float),
    values.STRING: _text(str),
    values.CHAR: _text(Char),
    values.BYTES: _text(lambda text: base64.b64decode(text, validate=True)),
}
_ITEMS: dict[str, type[Any]] = {
    values.BOOL: bool,
    values.BYTE: Byte,
    values.SHORT: Short,
    values.INT: Int,
    values.LONG: Long,
    values.FLOAT: Float,
    values.DOUBLE: Double,
    values.STRING: str,
    values.CHAR: Char,
}


def to_json(value: Any) -> tuple[Any, dict[str, str]]:
    """A value as JSON, and the types that it would lose, by JSON Pointer."""
    types: dict[str, str] = {}
    return _written(value, "", types), types


def _written(value: Any, path: str, types: dict[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _written(item, f"{path}/{escaped(str(name))}", types) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item, f"{path}/{index}", types) for index, item in enumerate(value)]
    if isinstance(value, Array):
        types[path] = _ARRAY + (values.type_of(value.items[0]) or "" if value.items else _name_of(value.of))
        return [values.plain(item) for item in value.items]
    kind = values.type_of(value)
    if kind == values.BYTES:
        types[path] = values.BYTES
        return base64.b64encode(bytes(value)).decode()
    made = values.plain(value)
    if kind is not None and values.type_of(made) != kind:
        types[path] = kind
    return made


def _name_of(of: type[Any]) -> str:
    if of is int:
        return values.INT
    if of is float:
        return values.DOUBLE
    return next((name for name, item in _ITEMS.items() if item is of), values.STRING)


def from_json(value: Any, types: Mapping[str, Any]) -> Any:
    """What `to_json` was given.

    Raises:
        ValueError: a type is unknown, or its value is none of that type; it names the place.
    """
    for path, kind in types.items():
        if not (isinstance(kind, str) and (kind in _READERS or kind.removeprefix(_ARRAY) in _ITEMS)):
            raise ValueError(f"{path}: there is no type {kind!r}; one of {', '.join(_READERS)}, or '{_ARRAY}' and one")
    return _read(value, "", types) if types else value


def _read(value: Any, path: str, types: Mapping[str, str]) -> Any:
    kind = types.get(path)
    try:
        if kind is not None and kind.startswith(_ARRAY):
            if not isinstance(value, list):
                raise ValueError(f"{value!r} is no list")
            reader = _READERS[kind.removeprefix(_ARRAY)]
            return Array(_ITEMS[kind.removeprefix(_ARRAY)], [reader(item) for item in value])
        if kind is not None:
            return _READERS[kind](value)
    except (ValueError, binascii.Error) as error:
        raise ValueError(f"{path}: {error}") from error
    if isinstance(value, Mapping):
        return {name: _read(item, f"{path}/{escaped(name)}", types) for name, item in value.items()}
    if isinstance(value, list):
        return [_read(item, f"{path}/{index}", types) for index, item in enumerate(value)]
    return value


def escaped(name: str) -> str:
    """A name as a step of a JSON Pointer."""
    return name.replace("~", "~0").replace("/", "~1")
