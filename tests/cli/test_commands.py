"""The command line as a whole: help, exit codes, errors with a remedy, data alone on stdout."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from sterna._proto.sterna.v1 import admin_pb2, messaging_pb2
from sterna._version import __version__

from tests.cli.conftest import Ran
from tests.cli.scripted_admin import Refusal, queue, serving

Sterna = Callable[..., Ran]
RunSterna = Callable[..., Coroutine[Any, Any, Ran]]

COMMANDS = ("broker", "send", "receive", "browse", "bench", "get", "apply", "delete", "purge", "explain")


@pytest.mark.covers("EMS-ADMIN-B13")
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_two_examples(sterna: Sterna, command: str) -> None:
    ran = sterna(command, "--help")
    assert ran.code == 0
    assert ran.out.count(f"$ sterna {command}") >= 2
    assert f" {command} " in sterna("--help").out


@pytest.mark.usefixtures("tier_broker")
def test_version_needs_neither_grpc_nor_typer() -> None:
    script = "import sys; sys.argv[1:] = ['--version']; from sterna.cli.main import main; main(); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    version, modules = ran.stdout.splitlines()
    assert version == f"sterna {__version__}"
    assert not {"grpc", "typer", "google.protobuf"} & set(modules.split())


def test_the_long_way_to_the_version(sterna: Sterna) -> None:
    assert sterna("--version", "--help").out == f"sterna {__version__}\n"


@pytest.mark.covers("EMS-ADMIN-E09")
@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("get",),
        ("get", "queue", "--frob"),
        ("send",),
        # Of the broker and of others: an option without its value, one that is no number, one that is too small.
        ("broker", "--frob"),
        ("broker", "--data"),
        ("broker", "--data", "d", "--listen"),
        ("receive", "a", "--count", "many"),
        ("receive", "a", "--count", "-1"),
        ("receive", "a", "--timeout", "soon"),
    ],
)
def test_a_wrong_call_is_a_usage_error(sterna: Sterna, arguments: tuple[str, ...]) -> None:
    ran = sterna(*arguments)
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("get", "qeueu"), "did you mean queue?"),
        (("send", "a", "x", "-p", "colour"), "NAME=VALUE"),
        (("send", "a", "x", "--delivery-mode", "fast"), "persistent, non-persistent, reliable"),
        (("send", "a", "x", "--lines", "f"), "from one source"),
        (("receive", "a", "--ack-mode", "transacted"), "individual"),
        (("receive", "a", "--leave", "--ack-mode", "none"), "--leave"),
        (("browse",), "--durable"),
        (("browse", "topic:a"), "--durable NAME"),
        (("bench", "sub", "a", "--rate", "5"), "senders"),
        (("apply", "-f", "/nowhere.yaml"), "cannot read"),
        (("get", "queues", "-s", "http://x"), "sterna://"),
    ],
)
def test_a_usage_error_says_what_to_do(sterna: Sterna, arguments: tuple[str, ...], said: str) -> None:
    ran = sterna(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "remedy:" in ran.err


@pytest.mark.parametrize(
    "arguments", [("get", "queues"), ("send", "a", "x"), ("receive", "a"), ("browse", "a"), ("purge", "q", "a", "-y")]
)
def test_nobody_there_ends_with_6(sterna: Sterna, arguments: tuple[str, ...]) -> None:
    ran = sterna(*arguments, "-s", "sterna://127.0.0.1:1")
    assert (ran.code, ran.out) == (6, "")
    assert "UNREACHABLE" in ran.err
    assert "127.0.0.1:1" in ran.err


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("PERMISSION_DENIED", 5),
        ("UNAUTHENTICATED", 5),
        ("NO_SUCH_DESTINATION", 4),
        ("INVALID_NAME", 2),
        ("STORE_FAILED", 1),
        ("UNAVAILABLE", 6),
    ],
)
async def test_what_the_broker_refuses_decides_the_exit_code(run_sterna: RunSterna, code: str, exit_code: int) -> None:
    def refuse(_: object) -> None:
        raise Refusal(code, "not for you")

    async with serving(Get=refuse) as url:
        ran = await run_sterna("get", "queue", "orders", "-s", url)
    assert (ran.code, ran.out) == (exit_code, "")
    assert ran.err.splitlines() == [f"error {code}: orders: not for you", "  remedy: ask somebody"]


async def test_a_list_has_all_its_pages(run_sterna: RunSterna) -> None:
    def page(request: admin_pb2.ListRequest) -> admin_pb2.ListResponse:
        number = int(request.page_token or 0)
        token = str(number + 1) if number < 2 else ""
        return admin_pb2.ListResponse(resources=[queue(f"q{number}", messages=1_000 * number)], next_page_token=token)

    async with serving(List=page) as url:
        table = await run_sterna("get", "queues", "-s", url)
        lines = await run_sterna("get", "queues", "-s", url, "-o", "jsonl")
    assert [line.split()[:4] for line in table.out.splitlines()] == [
        ["NAME", "ORIGIN", "MESSAGES", "BYTES"],
        ["q0", "static", "0", "0"],
        ["q1", "static", "1,000", "100,000"],
        ["q2", "static", "2,000", "200,000"],
    ]
    rows = [json.loads(line) for line in lines.out.splitlines()]
    assert [(row["metadata"]["name"], row["status"]["statistics"]["messages"]) for row in rows] == [
        ("q0", 0),
        ("q1", 1_000),
        ("q2", 2_000),
    ]
    assert rows[0]["status"]["effective"] == {"prefetch": 5}


async def test_one_resource_is_an_object_not_a_list(run_sterna: RunSterna) -> None:
    async with serving(Get=lambda request: queue(request.name)) as url:
        ran = await run_sterna("get", "queue", "orders", "-s", url, "-o", "json")
    assert json.loads(ran.out)["metadata"] == {"name": "orders"}


async def test_deleting_only_some_ends_with_3(run_sterna: RunSterna) -> None:
    def delete(request: admin_pb2.DeleteRequest) -> admin_pb2.DeleteResponse:
        if request.name == "b":
            raise Refusal("IN_USE", "b holds 3 messages", "purge it")
        return admin_pb2.DeleteResponse(messages=7)

    async with serving(Delete=delete) as url:
        some = await run_sterna("delete", "queue", "a", "b", "--yes", "-s", url, "-o", "json")
        none = await run_sterna("delete", "queue", "b", "--yes", "-s", url)
    assert (some.code, json.loads(some.out)) == (3, [{"kind": "Queue", "name": "a", "messages": 7}])
    assert "IN_USE" in some.err
    assert (none.code, none.out) == (1, "")


async def test_deleting_what_is_not_there(run_sterna: RunSterna) -> None:
    def delete(_: admin_pb2.DeleteRequest) -> admin_pb2.DeleteResponse:
        raise Refusal("NO_SUCH_DESTINATION")

    async with serving(Delete=delete) as url:
        assert (await run_sterna("delete", "queue", "a", "--yes", "-s", url)).code == 4
        assert (await run_sterna("delete", "queue", "a", "--yes", "--idempotent", "-s", url)).code == 0


async def test_nothing_is_destroyed_unasked(run_sterna: RunSterna, monkeypatch: pytest.MonkeyPatch) -> None:
    destroyed: list[object] = []
    monkeypatch.setattr("sys.stdin", io.StringIO())
    async with serving(
        Get=lambda request: queue(request.name, 3), Purge=destroyed.append, Delete=destroyed.append
    ) as url:
        purge = await run_sterna("purge", "queue", "orders", "-s", url)
        delete = await run_sterna("delete", "queue", "orders", "-s", url, "--with-messages")
    assert (purge.code, delete.code, destroyed) == (2, 2, [])
    assert "3 messages" in purge.err
    assert "--yes" in delete.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a",), "queue a holds 3 messages"),
        (("a", "b"), "Delete queue a, b? What holds messages stays (3 in all) without --with-messages."),
        (("a", "b", "--with-messages"), "Delete queue a, b, with 3 messages?"),
        (("b",), "Delete queue b?"),
    ],
)
async def test_deleting_asks_only_for_what_the_broker_would_do(
    run_sterna: RunSterna, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    destroyed: list[object] = []
    monkeypatch.setattr("sys.stdin", io.StringIO())
    held = {"a": 3, "b": 0}
    async with serving(Get=lambda request: queue(request.name, held[request.name]), Delete=destroyed.append) as url:
        ran = await run_sterna("delete", "queue", *arguments, "-s", url)
    assert (ran.code, destroyed) == (2, [])
    assert said in ran.err


def test_an_empty_stdin_is_no_message(sterna: Sterna, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    ran = sterna("send", "orders", "-s", "sterna://127.0.0.1:1")
    assert (ran.code, ran.out) == (2, "")
    assert "stdin is empty" in ran.err


async def test_applying_says_what_changed_and_what_was_refused(run_sterna: RunSterna, tmp_path: Path) -> None:
    error = messaging_pb2.Error(code=messaging_pb2.INVALID_ARGUMENT, subject="spec.prefech", message="line 4: unknown")
    applied = admin_pb2.Applied
    seen: list[admin_pb2.ApplyRequest] = []

    def apply(request: admin_pb2.ApplyRequest) -> admin_pb2.ApplyResponse:
        seen.append(request)
        good = applied(kind="Queue", name="a", change=applied.CONFIGURED, changes=["prefetch: 5 -> 9"])
        bad = applied(kind="Queue", name="b", change=applied.REFUSED, error=error)
        return admin_pb2.ApplyResponse(applied=[good, bad] if "both" in request.manifests else [bad])

    (tmp_path / "one.yaml").write_text("both")
    (tmp_path / "two.txt").write_text("not a manifest")
    async with serving(Apply=apply) as url:
        partly = await run_sterna("apply", "-f", str(tmp_path), "--dry-run", "-s", url, "-o", "json")
        (tmp_path / "one.yaml").write_text("bad")
        wholly = await run_sterna("apply", "-f", str(tmp_path / "one.yaml"), "-s", url)
    assert partly.code == 3
    row = {"kind": "Queue", "name": "a", "change": "configured", "changes": ["prefetch: 5 -> 9"]}
    assert json.loads(partly.out) == [{**row, "warnings": [], "dryRun": True}]
    assert "INVALID_ARGUMENT: Queue b: spec.prefech: line 4: unknown" in partly.err
    assert (wholly.code, wholly.out) == (1, ""), "no empty table"
    assert [(one.source, one.dry_run) for one in seen] == [
        (str(tmp_path / "one.yaml"), True),
        (str(tmp_path / "one.yaml"), False),
    ]
