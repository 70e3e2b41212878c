"""`sterna bench`: what it measures, and that it leaves a broker as it was."""

import signal
from collections.abc import Callable

import pytest

from bench.broker import Broker
from tests.cli.conftest import Ran, rows
from tests.cli.processes import Command

Cli = Callable[..., Ran]


def _bodies(cli: Cli, queue: str) -> list[object]:
    return [row["body"] for row in rows(cli("browse", queue, "-o", "jsonl"))]


def _queues(cli: Cli) -> set[str]:
    return {row["status"]["name"] for row in rows(cli("get", "queues", "-o", "jsonl"))}


def test_by_itself_it_has_a_queue_of_its_own_and_deletes_it(cli: Cli) -> None:
    before = _queues(cli)
    for side in ("both", "pub"):
        ran = cli("bench", side, "--count", "300", "-o", "jsonl")
        assert ran.code == 0, ran.err
        assert {row["messages"] for row in rows(ran)} == {300}
        assert rows(ran)[0]["destination"].startswith("queue:sterna-bench-")
    assert _queues(cli) == before
    nothing = cli("bench", "sub")
    assert nothing.code == 2
    assert "use both" in nothing.err


def test_the_messages_of_others_stay(cli: Cli) -> None:
    cli("send", "t.shared", "precious", "-n", "20")
    for arguments in (("both",), ("pub",), ("pub", "--warm-up", "0.1")):
        ran = cli("bench", arguments[0], "t.shared", "--count", "50", *arguments[1:], "-o", "jsonl")
        assert ran.code == 0, ran.err
        assert _bodies(cli, "t.shared") == ["precious"] * 20, arguments
    took = cli("bench", "sub", "t.shared", "--duration", "0.3", "-o", "jsonl")
    assert rows(took)[0]["messages"] == 0
    assert _bodies(cli, "t.shared") == ["precious"] * 20


def test_what_is_kept_is_said_and_taken_by_a_sub(cli: Cli) -> None:
    cli("send", "t.kept", "precious")
    kept = cli("bench", "pub", "t.kept", "--count", "30", "--keep", "-o", "jsonl")
    assert "30 messages are left in queue:t.kept" in kept.err
    taken = cli("bench", "sub", "t.kept", "--count", "30", "-o", "jsonl")
    assert rows(taken)[0]["messages"] == 30
    assert _bodies(cli, "t.kept") == ["precious"]


def test_what_is_refused_is_no_measurement(cli: Cli) -> None:
    ran = cli("bench", "pub", "t.small", "--count", "30", "-o", "jsonl")
    assert ran.code == 3
    assert rows(ran)[0]["messages"] == 10
    assert "20 refused" in ran.err
    assert _bodies(cli, "t.small") == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("arguments", [("both",), ("pub",), ("pub", "t.broken.pub"), ("both", "t.broken.both")])
def test_an_interruption_cleans_up_too(
    cli: Cli, broker: Broker, arguments: tuple[str, ...], number: int, code: int
) -> None:
    queues = arguments[1:]
    for queue in queues:
        cli("send", queue, "precious", "-n", "5")
    before = _queues(cli)
    with Command("bench", *arguments, "--duration", "60", "--rate", "200", "-s", broker.url) as bench:
        first = _published(cli, queues[0] if queues else "sterna-bench-")
        bench.until(lambda: _published(cli, queues[0] if queues else "sterna-bench-") > first + 100)
        bench.signal(number)
        assert bench.wait() == code, "".join(bench.err)
    assert _queues(cli) == before
    assert all(_bodies(cli, queue) == ["precious"] * 5 for queue in queues)
    for queue in queues:
        cli("purge", "queue", queue, "--yes")


def test_an_interruption_says_how_many_are_kept(cli: Cli, broker: Broker) -> None:
    arguments = ("pub", "t.kept.partly", "--keep", "--duration", "60", "--rate", "200")
    with Command("bench", *arguments, "-s", broker.url) as bench:
        bench.until(lambda: _published(cli, "t.kept.partly") > 100)
        bench.signal(signal.SIGTERM)
        assert bench.wait() == 143, "".join(bench.err)
    left = _published(cli, "t.kept.partly")
    assert left > 100
    assert f"{left:,} messages are left in queue:t.kept.partly" in "".join(bench.err)


def _published(cli: Cli, prefix: str) -> int:
    found = rows(cli("get", "queues", "-o", "jsonl"))
    named = (row["status"] for row in found if row["status"]["name"].startswith(prefix))
    return max((status["statistics"]["publishedTotal"] for status in named), default=0)


def test_bench_measures_both_sides(cli: Cli) -> None:
    both = rows(cli("bench", "both", "t.bench", "--count", "2000", "-o", "jsonl"))
    assert [(row["side"], row["messages"]) for row in both] == [("pub", 2_000), ("sub", 2_000)]
    assert all(row["latencyUs"]["p50"] > 0 for row in both)
    paced = rows(cli("bench", "pub", "t.paced", "--rate", "500", "--count", "250", "--keep", "-o", "jsonl"))[0]
    assert paced["messages"] == 250
    # The last one is due 249 five-hundredths of a second after the first could be sent.
    assert paced["seconds"] >= 0.498
    assert paced["sendDelayUs"]
    drained = rows(cli("bench", "sub", "t.paced", "--count", "250", "-o", "jsonl"))[0]
    assert drained["messages"] == 250


def test_bench_ends_when_its_time_is_up(cli: Cli) -> None:
    sent: list[int] = []
    # A machine that is slow sends fewer in that time, and never more.
    while not sent or (max(sent) < 150 and len(sent) < 5):
        timed = rows(cli("bench", "pub", "t.timed", "--rate", "500", "--duration", "0.5", "-o", "jsonl"))[0]
        sent.append(timed["messages"])
    assert 150 <= max(sent) <= 300
