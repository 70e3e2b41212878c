"""`sterna send` of many: how far it came, whatever stopped it; `receive` into `send` keeps what there was."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.broker import Broker
from tests.cli.conftest import Ran, rows
from tests.cli.processes import Command

Cli = Callable[..., Ran]


def _bodies(cli: Cli, queue: str) -> list[object]:
    return [row["body"] for row in rows(cli("browse", queue, "-o", "jsonl"))]


def test_a_line_that_is_wrong_says_how_far_it_came(cli: Cli, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"body": "a"}\n{"body": "b"}\n{"bodi": "c"}\n{"body": "d"}\n')
    ran = cli("send", "t.partly", "--jsonl", str(source))
    assert (ran.code, ran.out) == (3, "")
    assert "2 confirmed, go on from line 3" in ran.err
    assert _bodies(cli, "t.partly") == ["a", "b"]
    source.write_text('{"bodi": "c"}\n')
    first = cli("send", "t.partly", "--jsonl", str(source))
    assert first.code == 2
    assert "line 1 has the unknown field" in first.err


def test_a_refusal_says_how_far_it_came(cli: Cli, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_text("".join(f"{number}\n" for number in range(1, 31)))
    ran = cli("send", "t.small", "--lines", str(source))
    assert (ran.code, ran.out) == (3, "")
    assert "10 confirmed, go on from line 11" in ran.err
    assert "LIMIT_EXCEEDED" in ran.err or "DESTINATION_FULL" in ran.err, ran.err
    assert _bodies(cli, "t.small") == [str(number) for number in range(1, 11)]
    assert cli("receive", "t.small", "-n", "10", "--raw").code == 0
    nobody = cli("send", "nowhere", "--lines", str(source))
    assert nobody.code == 4
    assert "0 confirmed, go on from line 1" in nobody.err


def test_what_is_refused_in_between_is_told_from_what_is_confirmed(cli: Cli, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    large = "x" * 3_000_000
    lines = [{"body": "a"}, {"body": "b", "type": "\ud800"}, {"body": large}]
    source.write_text("\n".join(json.dumps(line) for line in lines))
    ran = cli("send", "t.between", "--jsonl", str(source))
    assert ran.code == 3
    assert "1 confirmed, go on from line 2" in ran.err


#: How a command may be ended from outside, and the exit code when nothing was done by then.
ENDINGS = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)


@ENDINGS
def test_an_interruption_says_how_far_it_came(cli: Cli, broker: Broker, number: int, code: int) -> None:
    queue = f"t.interrupted.{code}"
    with Command("send", queue, "--lines", "-", "-s", broker.url) as sending:
        sending.write("one\n\ntwo\n")
        # What has come is sent, though more may come.
        sending.until(lambda: len(_bodies(cli, queue)) == 2)
        sending.write("three\n")
        sending.until(lambda: len(_bodies(cli, queue)) == 3)
        sending.signal(number)
        assert sending.wait() == 3
    assert "3 confirmed, go on from line 5" in "".join(sending.err)
    assert _bodies(cli, queue) == ["one", "two", "three"]


@ENDINGS
def test_a_receive_that_got_nothing_says_so_too(cli: Cli, broker: Broker, number: int, code: int) -> None:
    with Command("receive", "t.idle", "--timeout", "60", "-s", broker.url) as receiving:
        receiving.until(lambda: _consumers(cli, "t.idle") == 1)
        receiving.signal(number)
        assert receiving.wait() == code
    assert "0 received" in "".join(receiving.err)


@ENDINGS
def test_an_interruption_of_receive_says_how_many_it_took(cli: Cli, broker: Broker, number: int, code: int) -> None:
    queue = f"t.taking.{code}"
    for more, ends, left in (["-n", "5"], 3, []), (["--follow"], 0, []), (["-n", "5", "--leave"], 3, ["a", "b"]):
        cli("send", queue, "a", "b")
        with Command("receive", queue, *more, "--timeout", "60", "--raw", "-s", broker.url) as receiving:
            receiving.until(lambda said=receiving.out: said == ["a\n", "b\n"])  # type: ignore[misc]
            receiving.signal(number)
            assert receiving.wait() == ends, more
        assert "2 received" in "".join(receiving.err), more
        assert _bodies(cli, queue) == left, more


def test_what_tail_gives_ends_with_it(cli: Cli, broker: Broker) -> None:
    with Command("send", "t.tailed", "--jsonl", "-", "-o", "json", "-s", broker.url) as sending:
        sending.write('{"body": "one"}\n{"bo')
        sending.until(lambda: _bodies(cli, "t.tailed") == ["one"])
        sending.write('dy": "two"}\n{"body": "three"}')
        sending.end_input()
        assert sending.wait() == 0
    assert json.loads("".join(sending.out))["messages"] == 3
    assert _bodies(cli, "t.tailed") == ["one", "two", "three"]


@pytest.mark.usefixtures("tier_broker")
def test_a_broker_that_has_gone_leaves_a_count(sterna: Cli, tmp_path: Path) -> None:
    broker = Broker(tmp_path, "apiVersion: sterna.dev/v1alpha1\nkind: Queue\nmetadata: {name: q}\n")
    broker.start()
    try:
        with Command("send", "q", "--lines", "-", "-s", broker.url) as sending:
            sending.write("one\n")
            sending.until(lambda: _held(sterna, broker) == ["one"])
            broker.stop(signal.SIGKILL)
            sending.write("two\n")
            # Whether or not it has read the line by now, it says the truth about it.
            sending.signal(signal.SIGINT)
            if sending.until_or_over(lambda: "interrupt again" in "".join(sending.err)):
                sending.signal(signal.SIGINT)
            assert sending.wait() == 3
    finally:
        broker.stop()
    said = "".join(sending.err)
    assert "1 confirmed, go on from line 2" in said
    assert ("1 were sent and not answered" in said) is ("interrupt again" in said)


#: One of it, and flow control holds back what comes behind.
_MUCH = "x" * 1_200


def _holding(cli: Cli, queue: str) -> str:
    """A queue that is as full as flow control lets it become."""
    assert cli("send", queue, _MUCH).code == 0
    return queue


def _held_back(cli: Cli, queue: str) -> int:
    (found,) = rows(cli("get", "queue", queue, "-o", "jsonl"))
    return int(found["status"]["statistics"]["flowControlledSessions"])


@pytest.mark.parametrize("texts", [["late"], ["late", "later"]], ids=["one", "several"])
def test_what_flow_control_holds_back_ends_with_the_time(cli: Cli, broker: Broker, texts: list[str]) -> None:
    queue = _holding(cli, f"t.held.timed.{len(texts)}")
    begin = time.monotonic()
    with Command("send", queue, *texts, "--timeout", "0.5", "-s", broker.url) as sending:
        assert sending.wait() == 1
    # Not as long again as leaving may take.
    assert time.monotonic() - begin < 20
    said = "".join(sending.err)
    assert f"error SendTimeoutError: queue:{queue}: not confirmed within 0.5 s" in said
    assert _bodies(cli, queue) == [_MUCH]
    assert _held_back(cli, queue) == 0


@pytest.mark.parametrize("form", ["--lines", "--jsonl"])
def test_lines_that_are_out_of_time_say_from_where_to_go_on(cli: Cli, broker: Broker, form: str) -> None:
    queue = f"t.held.lined{form}"
    first, second = (_MUCH, "late") if form == "--lines" else (json.dumps({"body": _MUCH}), '{"body": "late"}')
    with Command("send", queue, form, "-", "--timeout", "1", "-s", broker.url) as sending:
        sending.write(f"{first}\n")
        sending.until(lambda: _bodies(cli, queue) == [_MUCH])
        # Its input stays open: it is the time that ends it.
        sending.write(f"{second}\n{second}\n")
        assert sending.wait() == 3
    said = "".join(sending.err)
    assert "not confirmed within 1 s" in said
    assert "1 confirmed, go on from line 2" in said
    assert "2 were sent and not answered: they may have arrived" in said
    assert _bodies(cli, queue) == [_MUCH]


def test_without_a_time_what_flow_control_holds_back_is_waited_for(cli: Cli, broker: Broker) -> None:
    queue = _holding(cli, "t.held.patient")
    with Command("send", queue, "late", "-s", broker.url) as sending:
        sending.until(lambda: _held_back(cli, queue) == 1)
        assert cli("purge", "queue", queue, "--yes").code == 0
        assert sending.wait() == 0
    assert _bodies(cli, queue) == ["late"]


def _interrupt(cli: Cli, queue: str, sending: Command, *, is_let_in: bool) -> None:
    """Once, and then either makes room for what is held back, or interrupts again."""
    sending.signal(signal.SIGINT)
    sending.until(lambda: "interrupt again" in "".join(sending.err))
    if is_let_in:
        cli("purge", "queue", queue, "--yes")
    else:
        sending.signal(signal.SIGINT)


def test_an_interruption_waits_for_what_is_held_back_and_a_second_one_does_not(cli: Cli, broker: Broker) -> None:
    queue = "t.held.interrupted"
    for is_let_in, code, said in ((True, 3, "1 confirmed, go on from line 2"), (False, 130, "0 confirmed")):
        _holding(cli, queue)
        with Command("send", queue, "--lines", "-", "-s", broker.url) as sending:
            sending.write("late\n")
            sending.end_input()
            sending.until(lambda: _held_back(cli, queue) == 1)
            _interrupt(cli, queue, sending, is_let_in=is_let_in)
            assert sending.wait() == code
        assert said in "".join(sending.err)
        cli("purge", "queue", queue, "--yes")


def _held_reliably(cli: Cli, queue: str, sending: Command) -> None:
    """Waits until flow control holds back a reliable message."""
    _holding(cli, queue)
    sending.write("late\nlater\n")
    sending.end_input()
    sending.until(lambda: _held_back(cli, queue) == 1)


def test_reliable_messages_are_waited_for_until_the_broker_has_taken_them(cli: Cli, broker: Broker) -> None:
    queue = "t.held.reliable"
    with Command("send", queue, "--lines", "-", "--delivery-mode", "reliable", "-s", broker.url) as sending:
        _held_reliably(cli, queue, sending)
        assert cli("purge", "queue", queue, "--yes").code == 0
        assert sending.wait() == 0
    assert _bodies(cli, queue) == ["late", "later"]
    # Where nothing holds them back they are as quick as ever.
    quick = cli("send", "t.quick", "a", "b", "--delivery-mode", "reliable", "--timeout", "5", "-o", "json")
    assert (quick.code, json.loads(quick.out)["messages"]) == (0, 2)
    assert _bodies(cli, "t.quick") == ["a", "b"]


def test_reliable_messages_that_flow_control_holds_back_for_too_long_are_said_to_be_lost(
    cli: Cli, broker: Broker
) -> None:
    queue = "t.held.unreliable"
    arguments = ("send", queue, "--lines", "-", "--delivery-mode", "reliable", "--timeout", "3", "-s", broker.url)
    with Command(*arguments) as sending:
        _held_reliably(cli, queue, sending)
        assert sending.wait() == 1
    said = "".join(sending.err)
    assert "the broker has not taken all within 3 s" in said
    assert "0 confirmed" in said
    assert "2 before that were sent as reliable, which nobody confirms" in said
    assert _bodies(cli, queue) == [_MUCH]
    assert _held_back(cli, queue) == 0


def test_an_interruption_waits_for_reliable_messages_and_a_second_one_does_not(cli: Cli, broker: Broker) -> None:
    queue = "t.held.unreliably"
    for is_let_in, code, told in ((True, 3, "2 confirmed, go on from line 3"), (False, 130, "2 before that were sent")):
        with Command("send", queue, "--lines", "-", "--delivery-mode", "reliable", "-s", broker.url) as sending:
            _held_reliably(cli, queue, sending)
            _interrupt(cli, queue, sending, is_let_in=is_let_in)
            assert sending.wait() == code
        assert told in "".join(sending.err)
        cli("purge", "queue", queue, "--yes")


def _consumers(cli: Cli, queue: str) -> int:
    found = [row["status"] for row in rows(cli("get", "queues", "-o", "jsonl")) if row["status"]["name"] == queue]
    return int(found[0]["statistics"].get("consumers", 0)) if found else 0


def _held(sterna: Cli, broker: Broker) -> list[object]:
    return [row["body"] for row in rows(sterna("browse", "q", "-o", "jsonl", "-s", broker.url))]


def test_a_number_bounds_all_and_follow(cli: Cli, broker: Broker) -> None:
    cli("send", "t.bounded", *"abcdefg")
    assert cli("receive", "t.bounded", "--all", "-n", "2", "--raw").out == "a\nb\n"
    with Command("receive", "t.bounded", "--follow", "-n", "3", "--raw", "-s", broker.url) as following:
        assert following.wait() == 0
    assert "".join(following.out) == "c\nd\ne\n"
    assert cli("receive", "t.bounded", "--all", "-n", "9", "--timeout", "0.2", "--raw").out == "f\ng\n"
    assert cli("receive", "t.bounded", "--all", "-n", "9", "--timeout", "0.1").code == 0


_TYPED: list[dict[str, Any]] = [
    {
        "body": "t",
        "properties": {"a/b": 1, "c": 2, "d": 3, "e": 1.5, "f": "x", "g": 4, "h": 2.0, "i": True},
        "propertyTypes": {"a/b": "byte", "c": "short", "d": "long", "e": "float", "f": "char"},
    },
    {
        "body": {"s": 1, "in": {"data": "AAE=", "l": [1, 2]}, "n": None, "of": [1, 2]},
        "bodyType": "map",
        "bodyTypes": {"/s": "short", "/in/data": "bytes", "/in/l/1": "long", "/of": "array of byte"},
    },
    {"body": ["x", 7], "bodyType": "stream", "bodyTypes": {"/1": "long"}},
    {"body": "AAEC", "bodyType": "object", "contentType": "application/x-java"},
    {"body": "AAEC", "bodyType": "object", "protocol": "smartsockets"},
]


def test_types_come_through_receive_and_send(cli: Cli, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(json.dumps(line) for line in _TYPED))
    ran = cli("send", "t.typed", "--jsonl", str(source))
    assert ran.code == 0, ran.err
    kept = ("body", "bodyType", "bodyTypes", "contentType", "protocol", "properties", "propertyTypes")
    for queue in ("t.typed", "t.typed.again"):
        received = cli("receive", queue, "-n", "5", "-o", "jsonl")
        found = [{key: row[key] for key in kept if key in row} for row in rows(received)]
        # The SDK's own mark of a map that nests (EMS-MSG-A13).
        assert [row["properties"].pop("JMS_STERNA_MSG_EXT", False) for row in found] == [False, True, *[False] * 3]
        assert found == [{"properties": {}, "bodyType": "text", **line} for line in _TYPED], queue
        source.write_text(received.out)
        assert cli("send", "t.typed.again", "--jsonl", str(source)).code == 0


def test_the_expiration_comes_through(cli: Cli, tmp_path: Path) -> None:
    cli("send", "t.lives", "x", "--ttl", "3600")
    (first,) = rows(received := cli("receive", "t.lives", "-o", "jsonl"))
    source = tmp_path / "in.jsonl"
    source.write_text(received.out)
    cli("send", "t.lives", "--jsonl", str(source))
    (second,) = rows(cli("receive", "t.lives", "-o", "jsonl"))
    assert abs(second["expirationMs"] - first["expirationMs"]) < 2_000
    # What is over stays over.
    source.write_text(json.dumps({"body": "x", "expirationMs": 1}))
    cli("send", "t.lives", "--jsonl", str(source))
    assert cli("receive", "t.lives", "--timeout", "0.3").code == 4


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"properties": {"a": 300}, "propertyTypes": {"a": "byte"}}, "/a"),
        ({"properties": {"a": "x"}, "propertyTypes": {"a": "int"}}, "no whole number"),
        ({"properties": {"a": 1}, "propertyTypes": {"a": "integer"}}, "no type 'integer'"),
        ({"body": [1], "bodyTypes": {"/0": 5}}, "no type 5"),
        ({"body": "x", "expirationMs": "soon"}, "expirationMs is no time"),
        ({"body": "x", "bodyTypes": []}, ""),
    ],
)
def test_a_type_that_is_wrong_is_named(cli: Cli, tmp_path: Path, line: dict[str, Any], said: str) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps(line))
    ran = cli("send", "t.mistyped", "--jsonl", str(source))
    assert ran.code == (2 if said else 0)
    assert said in ran.err
