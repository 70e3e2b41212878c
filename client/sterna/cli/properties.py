"""Message properties on the command line: `-p name=value` and `-p name:type=value`.

Without a type the value is what it looks like: a whole number, a number, true or false, else text. With one it is
exactly that, or a usage error. The types are those of JMS.
"""

from collections.abc import Callable, Iterable
from typing import Any

from sterna.cli.exits import usage


def parse_properties(texts: Iterable[str]) -> dict[str, Any]:
    """The properties that repeated `-p` options name, in their order."""
    properties: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise usage(
                f"'{text}' is no property", "write NAME=VALUE or NAME:TYPE=VALUE, as -p colour=red -p size:int=5"
            )
        name, colon, kind = name.partition(":")
        properties[name] = _typed(name, kind, value) if colon else _guessed(value)
    return properties


def _guessed(text: str) -> bool | int | float | str:
    if text in ("true", "false"):
        return text == "true"
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and (digits == "0" or not digits.startswith("0")):
        number = int(text)
        return number if -(2**63) <= number < 2**63 else text
    try:
        # Python reads more as a number than people mean by one ("nan", "1_000", "infinity").
        return float(text) if any(digit.isdigit() for digit in text) and "_" not in text and "." in text else text
    except ValueError:
        return text


def _typed(name: str, kind: str, text: str) -> Any:
    readers = _readers()
    if kind not in readers:
        raise usage(f"property {name} has the unknown type '{kind}'", f"one of: {', '.join(readers)}")
    try:
        return readers[kind](text)
    except (ValueError, OverflowError, TypeError) as error:
        raise usage(f"property {name}: '{text}' is no {kind}", str(error)) from error


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("write true or false")
    return text.lower() == "true"


def _readers() -> dict[str, Callable[[str], Any]]:
    from sterna.values import Byte, Char, Double, Float, Int, Long, Short

    return {
        "string": str,
        "boolean": _boolean,
        "byte": lambda text: Byte(int(text)),
        "short": lambda text: Short(int(text)),
        "int": lambda text: Int(int(text)),
        "long": lambda text: Long(int(text)),
        "float": lambda text: Float(float(text)),
        "double": lambda text: Double(float(text)),
        "char": lambda text: Char(text),
    }
