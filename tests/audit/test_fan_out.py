"""From topics to their subscriptions: no false alarm over real histories, and each planted fault at the message."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna_audit.audits import fanout, patterns, registry, running
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import open_history
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.stores import Directory

from tests.audit.kept import PLAIN
from tests.audit.living import Living
from tests.audit.planted import Edit, Row, Table, altered, planted, rows_of, without
from tests.core.driver import topic

pytestmark = pytest.mark.timeout(600)

SEEDS = (41, 42)
CUTS = 3
#: In which cut faults are planted.
AT = 2


@pytest.fixture(scope="module")
def root(tier_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real histories; each has a durable without a selector all along, and one that begins with the second interval."""
    folder = tmp_path_factory.mktemp("fan-out")
    for seed in SEEDS:
        living = Living(folder / f"store-{seed}", seed)
        for cut in range(CUTS):
            if cut < AT:
                subscribe(living, f"plain-{cut}")
            living.send("news.art", 30)
            living.send("orders", 30)
            living.live(40)
            living.cut(Directory(folder / "snapshots"), PLAIN)
        living.stop()
    return folder / "snapshots"


def subscribe(living: Living, name: str) -> None:
    """A durable that has all news, of a client that nothing else is done with."""
    client = living.driver.client(client_id="plain")
    client.consumer(client.session(), topic("news.>"), subscription=pb.Subscription(name=name, durable=True))
    client.close()


def audited(spark: SparkSession, root: Path, places: list[Place], out: Path) -> list[Finding]:
    """What the audit says."""
    history = open_history(spark, Directory(root), None, places=places)
    [audit] = registry.audits(["fan-out"])
    [result] = running.run(history, [audit], Directory(out)).results
    assert result.error == ""
    assert {one.what for one in result.findings} <= set(audit.meanings)
    return list(result.findings)


def configured(rows: list[Row]) -> list[Row]:
    """The snapshot has a configuration, and no topic has limits."""
    return [*rows, {"kind": "Topic", "name": "prices.>", "revision": 1, "spec": '{"maxMessages": 5}'}]


def limited(rows: list[Row]) -> list[Row]:
    """A broker by itself has limits for all news, under the name of the manifest: no object's name is a pattern."""
    return [*rows, {"kind": "Topic", "name": "all", "revision": 0, "spec": '{"maxMessages":5,"name":"news.>"}'}]


def test_each_planted_fault_is_found_and_what_is_in_order_raises_no_alarm(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    place = Place("bank", f"broker-{SEEDS[0]}")

    def rows(folder: str, name: str, cut: int = AT) -> list[Row]:
        return rows_of(root, place, (cut, folder, name))

    plain = {row["name"]: row["id"] for row in rows("state", "subscriptions") if row["client_id"] == "plain"}
    topics = {row["id"] for row in rows("state", "destinations") if row["kind"] == 2 and row["name"] == "news.art"}
    queues = {row["id"] for row in rows("state", "destinations") if row["kind"] == 1}
    stored = {row["position"]: row for row in rows("events", "stored") if row["destination"] in topics}
    arrivals, there = rows("events", "arrivals"), rows("state", "deliverables")
    waiting = {(row["source"], row["sequence"]): row for row in there if row["state"] != 3 and row["move"] is None}
    # What a bridge made goes by an id of its own, which `stored` does not tell.
    copies = {(row["position"], row["copy"]) for row in rows("events", "copies")}
    came = [row for row in arrivals if (row["position"], row["copy"]) not in copies]
    new = [row for row in came if (row["source"], row["sequence"]) in waiting]
    fanned = next(row for row in new if row["source"] == plain["plain-1"] and row["position"] in stored)
    queued = next(row for row in new if row["source"] in queues)
    events, state = (AT, "events", "arrivals"), (AT, "state", "deliverables")

    def lost(row: Row) -> dict[Table, Edit]:
        # As if the engine had never made the reference: nothing else tells of it.
        return {events: without(row), state: without(waiting[row["source"], row["sequence"]])}

    known: dict[Table, Edit] = {(cut, "state", "configuration"): configured for cut in (AT - 1, AT)}
    bounded: dict[Table, Edit] = {(cut, "state", "configuration"): limited for cut in (AT - 1, AT)}
    strayed: dict[Table, Edit] = {events: altered(fanned, source=plain["plain-0"] + 1_000)}
    plants = {
        "queue": (lost(queued), queued, ("violated", "not-arrived")),
        "topic": ({**lost(fanned), **known}, fanned, ("violated", "not-fanned-out")),
        "limited": ({**lost(fanned), **bounded}, fanned, ("not provable", "not-fanned-out")),
        "unknown": (lost(fanned), fanned, ("not provable", "not-fanned-out")),
        "moved": (strayed, fanned, ("not provable", "not-fanned-out")),
        "stray": ({events: altered(queued, source=plain["plain-0"])}, queued, ("violated", "stray")),
    }
    places = [planted(root, place, name, edits, AT) for name, (edits, _, _) in plants.items()]
    clean = [Place("bank", f"broker-{seed}") for seed in SEEDS]
    found = audited(spark, root, [*clean, *places], tmp_path)
    for one in clean:
        said = {(finding.verdict, finding.what) for finding in found if finding.broker == one.broker}
        assert said <= {("ok", "came"), ("not provable", "choosy"), ("not provable", "events-missing")}, said
        # Histories begin with a cut before which nobody asked for events.
        assert [finding.cut for finding in found if finding.broker == one.broker and finding.what == "came"] == [2, 3]
    assert min(finding.messages for finding in found if finding.what == "came") > 60
    for name, (_, row, (verdict, what)) in plants.items():
        said_of = [one for one in found if one.broker == name and one.what in fanout.WRONG]
        [exact] = [one for one in said_of if (one.verdict, one.what) == (verdict, what)]
        assert (exact.evidence["position"], exact.evidence["copy"], exact.cut) == (row["position"], row["copy"], AT)
        message = next(one for one in rows("events", "stored") if one["position"] == row["position"])
        assert exact.message.startswith(f"ID:{name}.{message['producer']:X}.")
        assert exact.message.endswith(f":{message['sequence']}")
        assert len(said_of) == (2 if name == "stray" else 1), said_of


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("news.>", ["news.art", "news.art.old"], ["news", "newss.art", "prices"]),
        ("news.*", ["news.art"], ["news", "news.art.old"]),
        ("*.art", ["news.art"], ["art", "news.sport"]),
        (">", ["news", "news.art"], []),
        ("a.b", ["a.b"], ["axb", "a.b.c", "a"]),
        ("a.*.c.>", ["a.b.c.d"], ["a.b.c", "a.c.d"]),
        ("w(1.$", ["w(1.$"], ["w1.$"]),
    ],
)
def test_patterns_match_as_brokers_match_them(
    spark: SparkSession, pattern: str, matching: list[str], others: list[str]
) -> None:
    names = spark.createDataFrame([(one, pattern) for one in (*matching, *others)], "name string, pattern string")
    by_regex = names.filter(F.rlike(F.col("name"), patterns.regex(F.col("pattern"))))
    assert {row["name"] for row in by_regex.collect()} == set(matching)
    # What a pattern begins with is among the beginnings of each name that it matches.
    among = names.filter(F.array_contains(patterns.prefixes(F.col("name")), patterns.literal(F.col("pattern"))))
    assert {row["name"] for row in among.collect()} >= set(matching)
