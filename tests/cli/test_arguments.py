"""How destinations, kinds and properties are written."""

import pytest
from sterna.cli.destinations import DestinationName, destination, resource_kind
from sterna.cli.exits import CommandError, Exit
from sterna.cli.properties import parse_properties
from sterna.values import Byte, Char, Double, Float, Long, Short


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", DestinationName("queue", "orders")),
        ("queue:orders", DestinationName("queue", "orders")),
        ("topic:flights.JFK.B6", DestinationName("topic", "flights.JFK.B6")),
        ("t:a", DestinationName("topic", "a")),
        ("odd:name", DestinationName("queue", "odd:name")),
        ("queue:topic:a", DestinationName("queue", "topic:a")),
    ],
)
def test_destinations(text: str, expected: DestinationName) -> None:
    assert destination(text) == expected


@pytest.mark.parametrize("text", ["", "queue:", "topic:"])
def test_an_empty_destination_is_a_usage_error(text: str) -> None:
    with pytest.raises(CommandError) as caught:
        destination(text)
    assert caught.value.exit_code is Exit.USAGE


@pytest.mark.parametrize(
    ("word", "kind"), [("queues", "Queue"), ("Q", "Queue"), ("durable", "DurableSubscription"), ("stats", "Statistics")]
)
def test_kinds_as_people_write_them(word: str, kind: str) -> None:
    assert resource_kind(word) == kind


def test_a_misspelt_kind_gets_a_suggestion() -> None:
    with pytest.raises(CommandError) as caught:
        resource_kind("qeueu")
    assert "did you mean queue?" in caught.value.remedy


def test_a_command_takes_its_own_kinds_only() -> None:
    with pytest.raises(CommandError):
        resource_kind("connection", among=("Queue", "Topic"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=red", "red"),
        ("a=5", 5),
        ("a=-7", -7),
        ("a=007", "007"),
        ("a=9223372036854775808", "9223372036854775808"),
        ("a=1.5", 1.5),
        ("a=1_000", "1_000"),
        ("a=nan", "nan"),
        ("a=true", True),
        ("a=True", "True"),
        ("a=", ""),
        ("a=x=y", "x=y"),
        ("a:string=5", "5"),
        ("a:byte=-128", Byte(-128)),
        ("a:short=9", Short(9)),
        ("a:long=9", Long(9)),
        ("a:float=0.5", Float(0.5)),
        ("a:double=2", Double(2.0)),
        ("a:char=x", Char("x")),
        ("a:boolean=FALSE", False),
    ],
)
def test_properties(text: str, expected: object) -> None:
    found = parse_properties([text])["a"]
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize("text", ["a", "=5", "a:int=five", "a:byte=128", "a:colour=red", "a:boolean=1", "a:char=xy"])
def test_a_wrong_property_is_a_usage_error(text: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_properties([text])
    assert caught.value.exit_code is Exit.USAGE


def test_properties_keep_their_order() -> None:
    assert list(parse_properties(["z=1", "a=2", "m=3"])) == ["z", "a", "m"]
