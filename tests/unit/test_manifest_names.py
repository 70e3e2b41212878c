"""The rules for names, as manifests apply them. tests/broker compares them with the engine's."""

import pytest
from sterna_resources import names


def name_of(elements: int, characters: int) -> str:
    """A name of so many elements of nearly equal length, so many characters with the dots."""
    letters = characters - (elements - 1)
    lengths = [letters // elements + (index < letters % elements) for index in range(elements)]
    return ".".join("x" * length for length in lengths)


@pytest.mark.covers("EMS-DEST-A07")
@pytest.mark.parametrize("name", ["finance", "A.B_C.D", "a b", "a\tb.c", "a\\.b", "\x01", "straße.日本"])
def test_elements_hold_any_characters(name: str) -> None:
    assert names.name_fault(name) is None


@pytest.mark.covers("EMS-DEST-A07")
@pytest.mark.parametrize(("name", "element"), [("A..B", 2), ("A.", 2), (".A", 1), (".A.B..", 1), (".", 1)])
def test_elements_are_never_empty(name: str, element: int) -> None:
    fault = names.name_fault(name)
    assert fault is not None
    assert fault.startswith(f"element {element} of '{name}' is empty")
    assert names.name_fault("") == "a destination name may not be empty"


@pytest.mark.covers("EMS-DEST-A08")
def test_lengths_are_limited_and_more_elements_leave_less_room() -> None:
    assert names.name_fault(name_of(2, 100)) is None
    assert names.name_fault(name_of(64, 196)) is None
    assert "at most 196" in (names.name_fault(name_of(64, 197)) or "")
    for elements in range(2, 65):
        assert names.name_fault(name_of(elements, 250)) is not None
    assert "65 elements" in (names.name_fault(name_of(65, 129)) or "")
    assert names.name_fault("é" * 127) is None
    assert "128 characters" in (names.name_fault("a." + "x" * 128) or "")


@pytest.mark.covers("EMS-DEST-A09")
@pytest.mark.parametrize("name", ["*", ">", "a.*.b", "a.b.>"])
def test_wildcards_are_patterns_and_no_names(name: str) -> None:
    assert names.pattern_fault(name) is None
    assert names.is_pattern(name)
    assert "the name of one destination is needed here" in (names.name_fault(name) or "")


@pytest.mark.covers("EMS-DEST-A09")
@pytest.mark.parametrize("name", ["a.>.b", "a.b*", ">>", "a>b"])
def test_wildcards_stand_alone_and_the_tail_stands_last(name: str) -> None:
    assert names.pattern_fault(name) is not None


def test_object_names_are_those_of_kubernetes() -> None:
    assert names.object_name_fault("a-b.c1") is None
    for name in ("A", "a_b", "-a", "a-", "a..b", "a" * 254):
        assert names.object_name_fault(name) is not None


def test_an_error_repeats_only_the_beginning_of_a_long_name() -> None:
    assert len(names.pattern_fault("x" * 1_000_000) or "") < 300
