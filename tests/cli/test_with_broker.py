"""The commands against a real broker, as people chain them."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.broker import Broker
from tests.cli.conftest import Ran, rows

Cli = Callable[..., Ran]


def test_a_message_goes_in_is_looked_at_and_comes_out(cli: Cli) -> None:
    sent = json.loads(cli("send", "t.one", "two teas", "-p", "table:short=7", "--type", "order", "-o", "json").out)
    assert sent["durability"] == "durable"
    assert json.loads(cli("get", "queue", "t.one", "-o", "json").out)["status"]["statistics"]["messages"] == 1
    (looked,) = rows(cli("browse", "t.one", "-o", "jsonl"))
    (received,) = rows(cli("receive", "t.one", "-o", "jsonl"))
    assert looked["messageId"] == received["messageId"] == sent["messageId"]
    assert (received["body"], received["properties"], received["type"]) == ("two teas", {"table": 7}, "order")
    assert not received["redelivered"]
    empty = cli("receive", "t.one", "--timeout", "0.1")
    assert (empty.code, empty.out) == (4, "")


def test_fewer_than_asked_for_ends_with_3(cli: Cli) -> None:
    cli("send", "t.few", "a", "b")
    ran = cli("receive", "t.few", "--count", "5", "--timeout", "0.2", "--raw")
    assert (ran.code, ran.out) == (3, "a\nb\n")


def test_output_that_has_no_room_is_an_error_that_takes_no_message(cli: Cli, broker: Broker) -> None:
    cli("send", "t.full", "kept")
    for command in (["get", "queues"], ["receive", "t.full"], ["receive", "t.full", "--raw"], ["browse", "t.full"]):
        with Path("/dev/full").open("wb") as full:
            ended = subprocess.run(
                [sys.executable, "-m", "sterna", *command, "-s", broker.url],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert ended.returncode == 1
        said, remedy = ended.stderr.splitlines()
        assert said == "error: No space left on device"
        assert "where the output goes" in remedy
    assert rows(cli("receive", "t.full", "-o", "jsonl"))[0]["body"] == "kept"


def test_what_is_left_comes_again_and_says_so(cli: Cli) -> None:
    cli("send", "t.left", "again")
    assert rows(cli("receive", "t.left", "--leave", "-o", "jsonl"))[0]["redelivered"] is False
    again = rows(cli("receive", "t.left", "-o", "jsonl"))[0]
    assert (again["redelivered"], again["deliveryCount"]) == (True, 2)


def test_what_was_received_can_be_sent_again(cli: Cli, tmp_path: Path) -> None:
    lines = [
        {"body": "text", "properties": {"colour": "red", "size": 5, "big": True, "weight": 1.5}, "priority": 7},
        {
            "body": {"a": 1, "b": [1, 2]},
            "correlationId": "c-1",
            "replyTo": "topic:news.replies",
            "encoding": "ISO8859-1",
        },
        {"body": ["x", 2, None]},
        {"body": "AAEC", "bodyType": "bytes"},
        {"body": None, "deliveryMode": "NON_PERSISTENT"},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(json.dumps(line) for line in lines))
    assert cli("send", "t.first", "--jsonl", str(source)).code == 0
    first = cli("receive", "t.first", "--count", "5", "-o", "jsonl")
    source.write_text(first.out)
    assert cli("send", "t.second", "--jsonl", str(source)).code == 0
    second = cli("receive", "t.second", "--count", "5", "-o", "jsonl")
    kept = ("body", "bodyType", "properties", "priority", "correlationId", "replyTo", "deliveryMode", "encoding")
    assert [{key: row.get(key) for key in kept} for row in rows(first)] == [
        {key: row.get(key) for key in kept} for row in rows(second)
    ]
    assert [row["bodyType"] for row in rows(second)] == ["text", "map", "stream", "bytes", "none"]
    assert [row.get("encoding") for row in rows(second)] == [None, "ISO8859-1", None, None, None]


def test_a_line_that_is_wrong_is_named(cli: Cli, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"body": "a"}\n\n{"bodi": "b"}\n')
    ran = cli("send", "t.wrong", "--jsonl", str(source))
    assert ran.code == 3
    assert "line 3 has the unknown field 'bodi'" in ran.err


def test_files_lines_and_counts(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\n\ntwo\r\n")
    (tmp_path / "whole").write_bytes(b"\xff\x00")
    summary = json.loads(cli("send", "t.files", "--lines", str(tmp_path / "lines"), "-n", "3", "-o", "json").out)
    assert summary["messages"] == 6
    assert cli("send", "t.files", "--file", str(tmp_path / "whole"), "--body-type", "bytes").code == 0
    assert cli("send", "t.files", "--file", str(tmp_path / "whole")).code == 2
    assert [row["body"] for row in rows(cli("browse", "t.files", "-o", "jsonl"))] == ["one", "two"] * 3 + ["/wA="]


def test_a_rate_is_kept(cli: Cli) -> None:
    summary = json.loads(cli("send", "t.rate", *"abcdefghijk", "--rate", "50", "-o", "json").out)
    # Ten intervals of 20 ms lie between the first and the last.
    assert summary["seconds"] >= 0.2
    assert summary["messages"] == 11


def test_a_durable_keeps_what_comes_meanwhile(cli: Cli) -> None:
    durable = ("--durable", "audit", "--client-id", "auditor")
    assert cli("receive", "topic:news.sport.>", *durable, "--timeout", "0.1").code == 4
    cli("send", "topic:news.sport.cup", "goal", "-p", "minute=90")
    (held,) = rows(cli("browse", *durable, "-o", "jsonl"))
    assert (held["destination"], held["properties"]) == ("topic:news.sport.cup", {"minute": 90})
    assert rows(cli("receive", "topic:news.sport.>", *durable, "-o", "jsonl"))[0]["body"] == "goal"
    cli("send", "topic:news.sport.cup", "again")
    purged = json.loads(cli("purge", "durable", "audit", "--client-id", "auditor", "--yes", "-o", "json").out)
    assert purged["messages"] == 1


def test_a_selector_takes_only_what_matches(cli: Cli) -> None:
    cli("send", "t.select", "small", "-p", "size=1")
    cli("send", "t.select", "large", "-p", "size=9")
    assert cli("receive", "t.select", "-w", "size > 5", "--raw").out == "large\n"
    wrong = cli("receive", "t.select", "-w", "size >", "--raw")
    assert wrong.code == 2
    assert "INVALID_SELECTOR" in wrong.err


def test_a_name_that_nobody_may_create_is_not_found(cli: Cli) -> None:
    for ran in (cli("send", "elsewhere", "x"), cli("get", "queue", "elsewhere")):
        assert (ran.code, ran.out) == (4, "")
        assert "NO_SUCH_DESTINATION" in ran.err


@pytest.mark.covers("EMS-ADMIN-A01", "EMS-ADMIN-B01")
def test_manifests_are_applied_and_taken_back(cli: Cli, tmp_path: Path) -> None:
    manifest = tmp_path / "queue.yaml"
    text = "apiVersion: sterna.dev/v1alpha1\nkind: Queue\nmetadata: {name: fresh}\nspec: {prefetch: 9}\n"
    manifest.write_text(text)
    planned = rows(cli("apply", "-f", str(manifest), "--dry-run", "-o", "jsonl"))
    assert planned[0]["change"] == "created"
    assert cli("get", "queue", "fresh").code == 4
    for change in ("created", "unchanged"):
        assert rows(cli("apply", "-f", str(manifest), "-o", "jsonl"))[0]["change"] == change
    manifest.write_text(text.replace("prefetch", "prefech"))
    refused = cli("apply", "-f", str(manifest))
    assert (refused.code, refused.out) == (1, "")
    assert "prefech" in refused.err
    assert "prefetch" in refused.err
    cli("send", "fresh", "hold")
    kept = cli("delete", "queue", "fresh", "--yes")
    assert kept.code == 1
    assert "IN_USE" in kept.err
    assert cli("delete", "queue", "fresh", "--yes", "--with-messages").code == 0
    assert cli("get", "queue", "fresh").code == 4


def test_what_yaml_shows_can_be_applied(cli: Cli, tmp_path: Path) -> None:
    shown = cli("get", "queue", "orders", "-o", "yaml").out
    manifest = tmp_path / "orders.yaml"
    manifest.write_text(shown)
    assert rows(cli("apply", "-f", str(manifest), "-o", "jsonl"))[0]["change"] == "unchanged"


def test_purging_says_how_many(cli: Cli) -> None:
    cli("send", "t.purge", "x", "-n", "12")
    assert json.loads(cli("purge", "queue", "t.purge", "--yes", "-o", "json").out)["messages"] == 12
    assert cli("receive", "t.purge", "--timeout", "0.1").code == 4


@pytest.mark.covers("EMS-DEST-B17")
@pytest.mark.parametrize("how", [("--client-id", "asked"), ("--shared", "asked")], ids=["own", "shared"])
def test_purging_a_durable_says_first_how_many_there_are(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, how: tuple[str, str]
) -> None:
    durable = ("--durable", "asked", *how)
    assert cli("receive", "topic:news.asked", *durable, "--timeout", "0.1").code == 4
    cli("send", "topic:news.asked", "x", "-n", "3")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    purge = ("purge", "durable", "asked", *(how if how[0] == "--client-id" else ()))
    asked = cli(*purge)
    assert (asked.code, "Drop 3 messages of durable asked?" in asked.err) == (2, True)
    assert json.loads(cli(*purge, "--yes", "-o", "json").out)["messages"] == 3


@pytest.mark.covers("EMS-DEST-B15")
def test_a_topic_is_purged_for_all_its_subscribers(cli: Cli) -> None:
    for client in "ab":
        durable = ("--durable", "purged", "--client-id", f"p{client}")
        assert cli("receive", "topic:news.purged", *durable, "--timeout", "0.1").code == 4
    cli("send", "topic:news.purged", "x", "-n", "2")
    assert json.loads(cli("purge", "topic", "news.purged", "--yes", "-o", "json").out)["messages"] == 4
    for client in "ab":
        assert rows(cli("browse", "--durable", "purged", "--client-id", f"p{client}", "-o", "jsonl")) == []


@pytest.mark.covers("EMS-DEST-B21", "EMS-DEST-B22")
def test_bridges_are_listed_with_source_targets_and_selectors(cli: Cli, tmp_path: Path) -> None:
    head = "apiVersion: sterna.dev/v1alpha1\nkind: Bridge\nmetadata: {name: %s}\nspec: "
    bridges = {
        "copies.1": "{source: {queue: t.from}, targets: [{queue: t.to, selector: 'n > 1'}, {topic: news.copied}]}",
        "copies.2": "{source: {topic: news.from}, targets: [{queue: t.to}]}",
        "other": "{source: {topic: news.other}, targets: [{queue: t.to}]}",
    }
    manifest = tmp_path / "bridges.yaml"
    manifest.write_text("\n---\n".join(head % name + spec for name, spec in bridges.items()))
    assert cli("apply", "-f", str(manifest)).code == 0
    lines = cli("get", "bridges", "copies.*").out.splitlines()
    assert [line.split() for line in lines if "copies." in line] == [
        ["copies.1", "queue:t.from", "queue:t.to", "where", "n", ">", "1,", "topic:news.copied"],
        ["copies.2", "topic:news.from", "queue:t.to"],
    ]
    one = json.loads(cli("get", "bridge", "copies.1", "-o", "json").out)["spec"]
    assert one["targets"] == [{"queue": "t.to", "selector": "n > 1"}, {"topic": "news.copied"}]
    assert cli("delete", "bridge", *bridges, "--yes").code == 0


def test_what_waits_for_the_next_start_of_a_broker_is_told(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    head = "apiVersion: sterna.dev/v1alpha1\nkind: Broker\nmetadata: {name: sterna}\n"
    path.write_text(f"{head}spec: {{flowControl: true, slowConsumerMs: 500}}\n")
    told = "warning: Broker sterna: spec.slowConsumerMs: 30000 -> 500 holds from the broker's next start on\n"
    applied = cli("apply", "-f", str(path), "--dry-run")
    assert applied.code == 0
    assert told in applied.err
    differs = cli("diff", "-f", str(path))
    assert differs.code == 7
    assert differs.err == told
    (row,) = rows(cli("apply", "-f", str(path), "--dry-run", "-o", "jsonl"))
    assert row["warnings"] == [told.removeprefix("warning: Broker sterna: ").rstrip()]


def test_a_store_is_shown_with_what_it_holds(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "store.yaml"
    store = "apiVersion: sterna.dev/v1alpha1\nkind: Store\nmetadata: {name: shelf}\n"
    queue = "apiVersion: sterna.dev/v1alpha1\nkind: Queue\nmetadata: {name: shelved}\nspec: {store: shelf}\n"
    path.write_text(f"{store}---\n{queue}")
    assert cli("apply", "-f", str(path)).code == 0
    assert cli("send", "shelved", "a", "--count", "3").code == 0
    shown = json.loads(cli("get", "store", "shelf", "-o", "json").out)["status"]["statistics"]
    assert shown["messages"] == 3
    assert shown["bytes"] > 0
    heading, line = cli("get", "stores").out.splitlines()
    assert heading.split() == ["NAME", "MODE", "MESSAGES", "BYTES", "QUOTA"]
    assert line.split() == ["shelf", "3", str(shown["bytes"])]


@pytest.mark.covers("EMS-DEST-A63")
def test_what_is_delayed_is_seen_and_purged_by_a_name_of_its_own(cli: Cli) -> None:
    cli("send", "t.delayed", "later", "--delay", "3600")
    cli("send", "t.delayed", "now")
    delayed = "$sys.delayed.q.t.delayed"
    assert [row["body"] for row in rows(cli("browse", delayed, "-o", "jsonl"))] == ["later"]
    assert json.loads(cli("purge", "queue", delayed, "--yes", "-o", "json").out)["messages"] == 1
    assert rows(cli("browse", delayed, "-o", "jsonl")) == []
    assert [row["body"] for row in rows(cli("browse", "t.delayed", "-o", "jsonl"))] == ["now"]
    assert cli("receive", "topic:news.delayed", "--durable", "late", "--client-id", "me", "--timeout", "0.1").code == 4
    cli("send", "topic:news.delayed", "later", "--delay", "3600")
    delayed = "$sys.delayed.t.news.delayed"
    assert [row["body"] for row in rows(cli("browse", delayed, "-o", "jsonl"))] == ["later"]
    assert json.loads(cli("purge", "topic", delayed, "--yes", "-o", "json").out)["messages"] == 1
    assert rows(cli("browse", delayed, "-o", "jsonl")) == []
    refused = cli("purge", "queue", "$sys.redelivery.delay", "--yes")
    assert refused.code != 0
    assert "cannot be purged" in refused.err


def test_listings(cli: Cli) -> None:
    cli("send", "t.listed", "x")
    names = [row["status"]["name"] for row in rows(cli("get", "queues", "t.*", "-o", "jsonl"))]
    assert "t.listed" in names
    assert all(name.startswith("t.") for name in names)
    assert "$sys.undelivered" not in cli("get", "queues").out
    assert "$sys.undelivered" in cli("get", "queues", "--system").out
    assert json.loads(cli("get", "statistics", "-o", "json").out)["state"] == "serving"
    assert "log.segments" in cli("get", "statistics").out
    assert cli("get", "connections").code == 0
