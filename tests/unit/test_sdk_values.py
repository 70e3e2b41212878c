"""Typed values, and what each reads as: the whole matrix of EMS-MSG-A25, through maps, streams and properties."""

from __future__ import annotations

from typing import Any

import pytest
from sterna import Array, Byte, Char, Double, Float, Int, Long, MapBody, Properties, Short, StreamBody, values
from sterna.errors import ConversionError, EndOfStreamError, InvalidMessageError

# Written type -> a value of it, and for each type it reads as what comes out. Written down by hand, not computed from
# the table under test.
MATRIX: dict[str, tuple[Any, dict[str, Any]]] = {
    "bool": (True, {"bool": True, "string": "true"}),
    "byte": (Byte(-7), {"byte": -7, "short": -7, "int": -7, "long": -7, "string": "-7"}),
    "short": (Short(300), {"short": 300, "int": 300, "long": 300, "string": "300"}),
    "char": (Char("x"), {"char": "x", "string": "x"}),
    "int": (70_000, {"int": 70_000, "long": 70_000, "string": "70000"}),
    "long": (Long(5), {"long": 5, "string": "5"}),
    "float": (Float(1.5), {"float": 1.5, "double": 1.5, "string": "1.5"}),
    "double": (2.25, {"double": 2.25, "string": "2.25"}),
    "string": (
        "12",
        {"bool": False, "byte": 12, "short": 12, "int": 12, "long": 12, "float": 12.0, "double": 12.0, "string": "12"},
    ),
    "bytes": (b"ab", {"bytes": b"ab"}),
}
WANTED = ("bool", "byte", "short", "int", "long", "float", "double", "string", "char", "bytes")
PAIRS = [pytest.param(written, wanted, id=f"{written}-as-{wanted}") for written in MATRIX for wanted in WANTED]


@pytest.mark.covers("EMS-MSG-A25")
@pytest.mark.parametrize(("written", "wanted"), PAIRS)
def test_a_map_entry_reads_as_the_matrix_says(written: str, wanted: str) -> None:
    value, readable = MATRIX[written]
    read = getattr(MapBody(x=value), f"get_{wanted}")
    if wanted in readable:
        found = read("x")
        assert found == readable[wanted]
        assert type(found) is type(readable[wanted])
    else:
        with pytest.raises(ConversionError):
            read("x")


@pytest.mark.covers("EMS-MSG-A25")
@pytest.mark.parametrize(("written", "wanted"), PAIRS)
def test_a_stream_item_reads_as_the_matrix_says(written: str, wanted: str) -> None:
    value, readable = MATRIX[written]
    stream = StreamBody([value])
    read = getattr(stream, f"read_{wanted}")
    if wanted in readable:
        assert read() == readable[wanted]
        with pytest.raises(EndOfStreamError):
            read()
    else:
        with pytest.raises(ConversionError):
            read()
        assert stream.read() == value  # the position stayed


@pytest.mark.covers("EMS-MSG-A25")
@pytest.mark.parametrize(("written", "wanted"), [one for one in PAIRS if "bytes" not in one.values])
def test_a_property_reads_as_the_matrix_says(written: str, wanted: str) -> None:
    value, readable = MATRIX[written]
    read = getattr(Properties(x=value), f"get_{wanted}")
    if wanted in readable:
        assert read("x") == readable[wanted]
    else:
        with pytest.raises(ConversionError):
            read("x")


@pytest.mark.covers("EMS-MSG-A25")
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x", "int"),
        (" 1", "int"),
        ("1 ", "long"),
        ("1_0", "int"),
        ("1.0", "int"),
        ("", "double"),
        ("128", "byte"),
        ("40000", "short"),
        ("2147483648", "int"),
        ("9223372036854775808", "long"),
        ("٣", "int"),  # a digit to Python, not to the catalogue
        ("x", "char"),
        ("x", "bytes"),
    ],
)
def test_a_string_that_does_not_parse_is_refused(text: str, wanted: str) -> None:
    with pytest.raises(ConversionError) as caught:
        getattr(MapBody(x=text), f"get_{wanted}")("x")
    assert caught.value.subject == "x"


@pytest.mark.covers("EMS-MSG-A25")
@pytest.mark.parametrize(
    ("text", "expected"), [("true", True), ("TRUE", True), ("tRue", True), ("1", False), ("", False)]
)
def test_a_string_is_true_only_when_it_says_so(text: str, expected: bool) -> None:
    assert MapBody(x=text).get_bool("x") is expected


def test_null_reads_as_no_string_and_as_nothing_else() -> None:
    body = MapBody(x=None)
    assert body.get_string("x") is None
    with pytest.raises(ConversionError):
        body.get_int("x")


def test_an_absent_name_is_the_default_or_a_key_error() -> None:
    assert Properties().get_int("x", 3) == 3
    with pytest.raises(KeyError):
        Properties().get_int("x")


@pytest.mark.parametrize(
    ("of", "beyond"),
    [(Byte, 128), (Byte, -129), (Short, 32768), (Int, 2**31), (Long, 2**63), (Long, -(2**63) - 1)],
)
def test_a_number_that_does_not_fit_is_refused(of: type[Any], beyond: int) -> None:
    with pytest.raises(InvalidMessageError):
        of(beyond)


def test_what_is_no_single_utf16_unit_is_no_char() -> None:
    for wrong in ("", "ab", "\U0001f600"):
        with pytest.raises(InvalidMessageError):
            Char(wrong)


def test_plain_values_are_written_by_their_size() -> None:
    assert values.type_of(2**31 - 1) == "int"
    assert values.type_of(2**31) == "long"
    assert values.type_of(-(2**31) - 1) == "long"
    assert values.type_of(True) == "bool"
    assert values.type_of(1.0) == "double"
    with pytest.raises(InvalidMessageError):
        values.type_of(2**63)


def test_a_float_is_rounded_to_32_bits() -> None:
    assert Float(0.1) != 0.1
    assert Float(1e300) == float("inf")
    assert Double(0.1) == 0.1


def test_an_array_checks_its_items() -> None:
    assert list(Array(Short, [1, 2])) == [1, 2]
    with pytest.raises(InvalidMessageError):
        Array(Byte, [1000])
    with pytest.raises(InvalidMessageError):
        Array(bytes, [b"x"])
    with pytest.raises(InvalidMessageError):
        Array(bool, [1])
