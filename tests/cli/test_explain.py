"""`sterna explain`: each error has its meaning, and is found however it is typed."""

import inspect
import json
from collections.abc import Callable

import pytest
from sterna import errors
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna.cli.explanations import CLASSES, CODES

from tests.cli.conftest import Ran

Sterna = Callable[..., Ran]

#: Nothing is ever raised as one of these: they are what others have in common.
_ROOTS = {
    "SternaError",
    "UsageError",
    "AccessError",
    "ExistenceError",
    "BrokerError",
    "ConnectionError",
    "ProtocolError",
}


def test_each_code_of_the_contract_and_each_class_of_the_sdk_is_explained() -> None:
    assert list(CODES) == [name for name, number in pb.ErrorCode.items() if number]
    kinds = {
        name
        for name, one in vars(errors).items()
        if inspect.isclass(one) and issubclass(one, errors.SternaError) and one.__module__ == errors.__name__
    }
    assert kinds - {one.__name__ for one in errors.BY_CODE.values()} - _ROOTS == set(CLASSES)
    for name, explanation in (CODES | CLASSES).items():
        assert explanation.comes, name
        for text in (explanation.means, *explanation.comes, *explanation.do):
            assert text[0].isupper() or text[0] in "`*", name
            assert text[-1] == ".", name


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("DESTINATION_FULL", "DESTINATION_FULL"),
        ("destination-full", "DESTINATION_FULL"),
        ("DestinationFullError", "DESTINATION_FULL"),
        ("sendtimeout", "SendTimeoutError"),
        ("TransactionInDoubtError", "TransactionInDoubtError"),
        ("UNREACHABLE", "UnreachableError"),
        ("protocol violation", "PROTOCOL_VIOLATION"),
    ],
)
def test_an_error_is_found_however_it_is_typed(sterna: Sterna, typed: str, code: str) -> None:
    ran = sterna("explain", typed)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{code}: {(CODES | CLASSES)[code].means}\n")
    assert "What to do:" in ran.out


def test_for_scripts_there_is_json(sterna: Sterna) -> None:
    ran = sterna("explain", "NO_SUCH_DESTINATION", "-o", "json")
    found = json.loads(ran.out)
    assert (found["name"], found["class"], found["exitCode"]) == ("NO_SUCH_DESTINATION", "NoSuchDestinationError", 4)
    assert found["do"] == list(CODES["NO_SUCH_DESTINATION"].do)
    assert json.loads(sterna("explain", "unreachable", "-o", "json").out)["exitCode"] == 6


def test_without_an_error_all_are_listed(sterna: Sterna) -> None:
    rows = json.loads(sterna("explain", "-o", "json").out)
    assert [row["name"] for row in rows] == [*CODES, *CLASSES]


def test_what_is_no_error_is_a_usage_error(sterna: Sterna) -> None:
    ran = sterna("explain", "NO_SUCH_DESTINATON")
    assert (ran.code, ran.out) == (2, "")
    assert "did you mean NO_SUCH_DESTINATION?" in ran.err
    assert "`sterna explain` lists all" in sterna("explain", "42").err
