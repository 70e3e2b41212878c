"""`sterna create`: what it makes, and that it changes nothing that is there."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.broker import Broker
from tests.cli.conftest import Ran, rows

Cli = Callable[..., Ran]


def test_a_queue_is_created_with_its_properties(cli: Cli) -> None:
    asked = ("create", "queue", "c.made", "--max-messages", "7", "--overflow-policy", "discardOld", "--exclusive")
    (made,) = rows(cli(*asked, "--set", "prefetch=none", "-o", "jsonl"))
    assert made == {"kind": "Queue", "name": "c.made", "change": "created", "dryRun": False}
    spec = json.loads(cli("get", "queue", "c.made", "-o", "json").out)["spec"]
    assert spec == {"maxMessages": 7, "overflowPolicy": "discardOld", "exclusive": True, "prefetch": "none"}


def test_what_is_there_is_never_changed(cli: Cli) -> None:
    assert cli("create", "queue", "c.kept", "--max-messages", "7").code == 0
    (again,) = rows(cli("create", "queue", "c.kept", "--max-messages", "7", "-o", "jsonl"))
    assert again["change"] == "unchanged"
    for other in (("--max-messages", "8"), ()):
        refused = cli("create", "queue", "c.kept", *other)
        assert (refused.code, refused.out) == (1, "")
        assert "queue 'c.kept' exists, with other properties: spec.maxMessages: 7" in refused.err
    assert json.loads(cli("get", "queue", "c.kept", "-o", "json").out)["spec"] == {"maxMessages": 7}


def test_a_dry_run_says_that_it_was_one(cli: Cli) -> None:
    assert "created (dry run)" in cli("create", "topic", "c.dry", "--dry-run").out
    assert rows(cli("create", "topic", "c.dry", "--dry-run", "-o", "jsonl"))[0]["dryRun"] is True
    assert cli("get", "topic", "c.dry").code == 4


def test_names_that_objects_cannot_have_make_objects_of_their_own(cli: Cli) -> None:
    for name in ("c_d", "c-d", "C.d", "c.wild.>"):
        assert rows(cli("create", "queue", name, "-o", "jsonl"))[0]["change"] == "created"
    for name in ("c_d", "c-d", "C.d"):
        assert json.loads(cli("get", "queue", name, "-o", "json").out)["status"]["origin"] == "static"
        assert rows(cli("create", "queue", name, "-o", "jsonl"))[0]["change"] == "unchanged"


def test_what_another_object_describes_is_found_by_the_destinations_name(cli: Cli) -> None:
    assert rows(cli("create", "queue", "t.small", "--max-messages", "10", "-o", "jsonl"))[0]["change"] == "unchanged"
    assert cli("create", "queue", "t.small").code == 1


@pytest.mark.parametrize(
    "wrong",
    [
        ("bridge", "c.wrong"),
        ("queue", "c..wrong"),
        ("topic", "c.wrong", "--exclusive"),
        ("queue", "c.wrong", "--set", "prefech=3"),
        ("queue", "c.wrong", "--set", "prefetch"),
        ("queue", "c.wrong", "--set", "name=other"),
        ("queue", "c.wrong", "--max-bytes", "5", "--set", "maxBytes=6"),
    ],
)
def test_what_makes_no_sense_is_a_mistake_of_usage(cli: Cli, wrong: tuple[str, ...]) -> None:
    ran = cli("create", *wrong)
    assert (ran.code, ran.out) == (2, "")


def test_keys_are_spelled_in_one_way(cli: Cli) -> None:
    for asked in (("get", "queue", "orders"), ("get", "statistics"), ("get", "connections")):
        shown = cli(*asked, "-o", "json").out
        assert "_" not in "".join(_keys(json.loads(shown)))


def _keys(found: object) -> list[str]:
    if isinstance(found, dict):
        return [*found, *(key for value in found.values() for key in _keys(value))]
    return [key for one in found for key in _keys(one)] if isinstance(found, list) else []


def test_a_durable_is_administered_by_the_name_that_is_shown(cli: Cli) -> None:
    assert cli("receive", "topic:news.>", "--durable", "shown", "--client-id", "me", "--timeout", "0.1").code == 4
    cli("send", "topic:news.x", "one")
    assert [one["status"]["name"] for one in rows(cli("get", "durables", "-o", "jsonl"))].count("me/shown") == 1
    assert len(rows(cli("browse", "--durable", "me/shown", "-o", "jsonl"))) == 1
    assert rows(cli("purge", "durable", "me/shown", "--yes", "-o", "jsonl"))[0]["messages"] == 1
    assert cli("delete", "durable", "me/shown", "--yes").code == 0


def test_a_shared_durable_is_administered_by_the_name_that_is_shown(cli: Cli, tmp_path: Path) -> None:
    manifest = tmp_path / "durable.yaml"
    manifest.write_text(
        "apiVersion: sterna.dev/v1alpha1\nkind: DurableSubscription\nmetadata: {name: grp}\n"
        "spec: {topic: news.shared, shared: true}\n"
    )
    assert cli("apply", "-f", str(manifest)).code == 0
    cli("send", "topic:news.shared", "one")
    (name,) = (one["status"]["name"] for one in rows(cli("get", "durables", "-o", "jsonl")) if "grp" in str(one))
    assert json.loads(cli("get", "durable", name, "-o", "json").out)["status"]["statistics"]["messages"] == 1
    assert len(rows(cli("browse", "--durable", name, "-o", "jsonl"))) == 1
    assert rows(cli("purge", "durable", name, "--yes", "-o", "jsonl"))[0]["messages"] == 1
    assert cli("delete", "durable", name, "--yes").code == 0


def test_a_configured_durable_is_administered_by_its_objects_name(cli: Cli, tmp_path: Path) -> None:
    manifest = tmp_path / "durable.yaml"
    manifest.write_text(
        "apiVersion: sterna.dev/v1alpha1\nkind: DurableSubscription\nmetadata: {name: all-news}\n"
        "spec: {topic: news.own, name: audit, clientId: auditor}\n"
    )
    assert cli("apply", "-f", str(manifest)).code == 0
    cli("send", "topic:news.own", "one")
    assert len(rows(cli("browse", "--durable", "all-news", "-o", "jsonl"))) == 1
    assert rows(cli("purge", "durable", "all-news", "--yes", "-o", "jsonl"))[0]["messages"] == 1
    assert cli("purge", "durable", "audit", "--client-id", "auditor", "--yes").code == 0
    missing = cli("purge", "durable", "old-news", "--yes")
    assert missing.code == 4
    assert "'old-news'" in missing.err
    assert cli("delete", "durable", "all-news", "--yes").code == 0


def test_a_shared_durable_is_got_and_deleted_without_its_slash(cli: Cli) -> None:
    assert cli("receive", "topic:news.bare", "--durable", "bare", "--shared", "bare", "--timeout", "0.1").code == 4
    cli("send", "topic:news.bare", "one")
    shown = json.loads(cli("get", "durable", "bare", "-o", "json").out)["status"]
    assert (shown["name"], shown["statistics"]["messages"]) == ("/bare", 1)
    refused = cli("delete", "durable", "bare", "--yes")
    assert refused.code != 0
    assert "--with-messages" in refused.err
    assert cli("delete", "durable", "bare", "--with-messages", "--yes").code == 0
    # What is said of one that is not there has the name that was given.
    assert "'bare'" in cli("get", "durable", "bare").err


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 128 + signal.SIGINT), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_one_signal_ends_a_question(broker: Broker, number: signal.Signals, code: int) -> None:
    ours, theirs = pty.openpty()
    asked = [sys.executable, "-m", "sterna", "purge", "queue", "orders", "-s", broker.url]
    with subprocess.Popen(asked, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        try:
            assert command.stderr is not None
            told = b""
            while b"[y/N]" not in told:
                some = os.read(command.stderr.fileno(), 1_024)
                assert some, told
                told += some
            command.send_signal(number)
            assert command.wait(20) == code
        finally:
            command.kill()
            os.close(ours)
            os.close(theirs)


def test_a_topic_is_deleted_with_what_durables_hold_of_it(cli: Cli) -> None:
    for durable, place in (("held", "news.held"), ("wild", "news.*")):
        assert cli("receive", f"topic:{place}", "--durable", durable, "--shared", durable, "--timeout", "0.1").code == 4
    cli("send", "topic:news.held", "one", "-n", "2")
    found = json.loads(cli("get", "topic", "news.held", "-o", "json").out)["status"]["statistics"]
    assert (found["durableMessages"], found["messages"]) == (2, 4)
    assert "IN DURABLES" in cli("get", "topic", "news.held").out
    unasked = cli("delete", "topic", "news.held")
    assert "topic news.held holds 2 messages" in unasked.err
    refused = cli("delete", "topic", "news.held", "--yes")
    assert (refused.code, "IN_USE" in refused.err, "--with-messages" in refused.err) == (1, True, True)
    deleted = cli("delete", "topic", "news.held", "--yes", "--with-messages", "-o", "json")
    assert json.loads(deleted.out)[0]["messages"] == 2
    held = [json.loads(cli("get", "durable", name, "-o", "json").out)["status"] for name in ("held", "wild")]
    assert [one["statistics"]["messages"] for one in held] == [0, 2]
    for name in ("held", "wild"):
        assert cli("delete", "durable", name, "--with-messages", "--yes").code == 0
