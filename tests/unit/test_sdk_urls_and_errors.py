"""Connection URLs, and the tree of errors."""

from __future__ import annotations

import inspect

import pytest
import sterna
from sterna import errors
from sterna._channels import told_by
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna.options import Options, Reconnect
from sterna.urls import named_address, parse_url


@pytest.mark.covers("EMS-CLI-D05", "EMS-CLI-B03", "EMS-HA-E38")
@pytest.mark.parametrize(
    ("url", "groups"),
    [
        ("sterna://a", (("a:7222",),)),
        ("sterna://a:1,b:2", (("a:1", "b:2"),)),
        ("sterna://a,b+c:9/", (("a:7222", "b:7222"), ("c:9",))),
        ("sterna://[::1]:5,[fe80::2]", (("[::1]:5", "[fe80::2]:7222"),)),
        ("localhost:7222", (("localhost:7222",),)),
        ("sternas://a:7243", (("a:7243",),)),
    ],
)
def test_a_url_names_its_addresses(url: str, groups: tuple[tuple[str, ...], ...]) -> None:
    parsed = parse_url(url)
    assert (parsed.groups, parsed.secure) == (groups, url.startswith("sternas:"))
    assert parsed.addresses == tuple(one for group in groups for one in group)


def test_a_url_carries_options() -> None:
    assert parse_url("sterna://a?client_id=x%20y&heartbeat_ms=500").options == {
        "client_id": "x y",
        "heartbeat_ms": "500",
    }


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("http://a", "scheme"),
        ("sterna://", "host"),
        ("sterna://a,,b", "host"),
        ("sterna://a:99999", "port"),
        ("sterna://a:x", "port"),
        ("sterna://::1", "address"),
        ("sterna://[::1", "address"),
        ("sterna://a?colour=red", "colour"),
        ("sterna://a?heartbeat_ms=soon", "heartbeat_ms"),
        ("sterna://a?x", "options"),
        ("sterna://" + "a" * 1000, "1000"),
    ],
)
def test_a_wrong_url_says_what_is_wrong(url: str, part: str) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        parse_url(url)
    assert part in str(caught.value)


def test_sternas_is_tls() -> None:
    assert parse_url("sternas://a").secure
    assert str(parse_url("sternas://a?password=secret")) == "sternas://a:7222"
    assert not parse_url("a").secure


@pytest.mark.parametrize("query", ["password=secret&colour=red", "password=secret&x", "password=secret&heartbeat_ms=x"])
def test_what_is_wrong_with_a_url_repeats_no_option(query: str) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        parse_url(f"sternas://a?{query}")
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(parse_url("sternas://a?password=secret"))


@pytest.mark.parametrize(
    ("named", "secure", "expected"),
    [("a:1", True, "a:1"), ("a", False, "a:7222"), ("sternas://a:1", True, "a:1"), ("sterna://a:1", False, "a:1")],
)
def test_addresses_that_a_broker_names_are_taken(named: str, secure: bool, expected: str) -> None:
    assert named_address(named, secure=secure) == expected


@pytest.mark.parametrize(("named", "secure"), [("sterna://a:1", True), ("sternas://a:1", False), ("http://a", True)])
def test_a_broker_cannot_talk_a_client_out_of_tls(named: str, secure: bool) -> None:
    with pytest.raises(errors.UnreachableError, match="TLS"):
        named_address(named, secure=secure)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        parse_url("sterna://me:secret@a")
    assert "secret" not in str(caught.value)


def test_what_a_broker_says_about_the_end_of_a_call_is_told_where_it_can_be_read() -> None:
    error = pb.Error(code=pb.SLOW_CONSUMER, subject="stream", message="too slow", retryable=True)
    told = told_by((("other", "x"), ("sterna-error-bin", error.SerializeToString())))
    assert isinstance(told, errors.SlowConsumerError)
    assert (told.subject, told.cause, told.retryable) == ("stream", "too slow", True)
    assert told_by(None) is None
    assert told_by((("sterna-error-bin", b"\xff\xff"),)) is None, "somebody else's: the status counts"


def test_secrets_do_not_show() -> None:
    options = Options("c", "me", "secret-password", "secret-token", "p", 0, 1.0, 1, Reconnect())
    assert "secret" not in repr(options)


def test_every_code_of_the_contract_has_its_error() -> None:
    contract = {name.removeprefix("ERROR_CODE_"): number for name, number in pb.ErrorCode.items()}
    assert {code.name: int(code) for code in errors.ErrorCode} == contract
    assert set(errors.BY_CODE) == set(errors.ErrorCode)
    for code, kind in errors.BY_CODE.items():
        made = errors.from_proto(pb.Error(code=int(code), subject="s", message="m", remedy="r", retryable=True))  # type: ignore[arg-type]
        assert type(made) is kind
        assert (made.code, made.subject, made.cause, made.remedy, made.retryable) == (code, "s", "m", "r", True)


def test_a_code_of_tomorrow_is_still_an_error() -> None:
    error = pb.Error(message="new", subject="s")
    error.MergeFromString(b"\x08\xe8\x07")  # code 1000
    assert "1000" in str(errors.from_proto(error))
    for retryable in (True, False):
        assert errors.from_proto(pb.Error(code=1000, retryable=retryable)).retryable is retryable  # type: ignore[arg-type]


def test_errors_carry_what_goes_with_their_code() -> None:
    moved = errors.from_proto(pb.Error(code=pb.MOVED, addresses=["a:1", "b:2"]))
    assert isinstance(moved, errors.MovedError)
    assert moved.addresses == ("a:1", "b:2")
    selector = errors.from_proto(pb.Error(code=pb.INVALID_SELECTOR, offset=7))
    assert isinstance(selector, errors.InvalidSelectorError)
    assert selector.offset == 7


def test_the_drawing_of_the_tree_is_true() -> None:
    drawn = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if "Error" not in line or ("├" not in line and "└" not in line):
            continue
        depth = max(line.find("├"), line.find("└")) // 5 - 1
        name = line.split("── ")[1].split()[0]
        path = [*path[:depth], name]
        drawn[name] = path[-2] if len(path) > 1 else "SternaError"
    real = {
        name: kind.__bases__[0].__name__
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.SternaError) and kind is not errors.SternaError
    }
    assert drawn == real


def test_an_error_says_code_cause_and_remedy() -> None:
    text = str(errors.DestinationFullError("holds 10 messages", subject="orders", remedy="consume some"))
    assert text == "orders: holds 10 messages [DESTINATION_FULL] (consume some)"


def test_all_that_is_promised_is_there() -> None:
    for name in sterna.__all__:
        assert getattr(sterna, name) is not None
    with pytest.raises(AttributeError):
        _ = sterna.nothing
