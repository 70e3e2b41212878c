"""The audits of bridges, endings, dead letters and backlogs find planted faults, and raise no alarm without them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sterna_audit.audits import registry, running, selectors
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import open_history
from sterna_audit.snapshots.stores import Directory

from tests.audit.faulted import BRIDGE, MANIFESTS, Life, configured, live
from tests.audit.kept import VERIFIER
from tests.audit.lives import CUTS
from tests.audit.planted import Edit, Row, altered, doubled, without

SEEDS = (10, 11, 12)
#: A selector that one of two evaluators is made to read wrongly.
MISREAD = "JMSPriority >= 0"
AUDITS = ("bridges", "endings", "dead-letters", "backlog")


@dataclass
class Fault:
    """What has to be said of what was planted: by which audit, its word and verdict, and of which messages."""

    audit: str
    what: str
    messages: tuple[Row, ...] = ()
    verdict: str = "violated"


def _copies(life: Life) -> list[Row]:
    return [row for row in life.rows("events/copies") if row["copy"] > 0]


def _bridges(life: Life) -> dict[str, Fault]:
    copies = _copies(life)
    stored = {row["position"]: row for row in life.rows("events/stored")}
    first = copies[0]

    def selecting(selector: str) -> dict[tuple[str, str], object]:
        targets = [{"queue": "mirror"}, {"topic": "prices.gold", "selector": selector}]
        return {**MANIFESTS, ("Bridge", "sport"): {**BRIDGE, "targets": targets}}

    # Before the first cut nobody kept what happened.
    cuts = range(2, CUTS + 1)
    whole = {row["position"]: row for cut in cuts for row in life.rows("events/stored", cut)}
    led = (row["position"] for cut in cuts for row in life.rows("events/copies", cut) if row["copy"] > 0)
    crossed = tuple(whole[position] for position in dict.fromkeys(led))
    refused = tuple(row for row in crossed if row["priority"] <= 4)
    life.plant("copy-dropped", {"events/copies": without(first)})
    life.plant("copy-doubled", {"events/copies": doubled(first)})
    life.plant("refused", manifests=selecting("JMSPriority > 4 AND JMSDeliveryMode = 'PERSISTENT'"))
    life.plant("differing", manifests=selecting(MISREAD))
    life.plant("misspelt", manifests=selecting("JMSPriority IN (1, 2)"))
    life.plant("unknown", manifests=selecting("colour = 'red'"))
    life.plant("unexplained", manifests={("Queue", "orders"): {}})
    revised: Edit = lambda rows: [{**row, "revision": 2} for row in rows]  # noqa: E731
    life.plant("revised", {"state/configuration": lambda rows: revised(configured(MANIFESTS)(rows))})
    # A broker of no cluster counts no revisions: there it counts whether anything was handed to the engine.
    uncounted: dict[str, Edit] = {f"{cut}:state/configuration": configured(MANIFESTS, 0) for cut in range(1, CUTS + 1)}
    handed = {"position": first["position"], "objects": 0, "time_ms": 0}
    told = [cut for cut in cuts if life.rows("events/configured", cut)]
    quiet: dict[str, Edit] = {f"{cut}:events/configured": lambda _: [] for cut in told}
    life.plant("handed", {**uncounted, "events/configured": lambda rows: [*rows, handed]})
    life.plant("quiet", {**uncounted, **quiet, "events/copies": without(first)})
    return {
        "handed": Fault("bridges", "changed-bridge", (), "not provable"),
        "quiet": Fault("bridges", "missing-copy", (stored[first["position"]],)),
        "copy-dropped": Fault("bridges", "missing-copy", (stored[first["position"]],)),
        "copy-doubled": Fault("bridges", "surplus-copy", (stored[first["position"]],)),
        "refused": Fault("bridges", "surplus-copy", refused),
        "differing": Fault("bridges", "evaluators-differ"),
        "misspelt": Fault("bridges", "unread-selector", (), "not provable"),
        "unknown": Fault("bridges", "unknown-selector", (), "not provable"),
        "unexplained": Fault("bridges", "unexplained-copy", crossed, "not provable"),
        "revised": Fault("bridges", "changed-bridge", (), "not provable"),
    }


def _acknowledged(life: Life) -> tuple[Row, Row] | None:
    """The end of one message alone that nobody had given an end of life, and how it came."""
    cuts = range(1, CUTS + 1)
    mortal = {
        row["position"]
        for cut in cuts
        for table in ("events/lives", "events/copies", "state/messages", "state/copies")
        for row in life.rows(table, cut)
        if row.get("time_to_live_ms") or row.get("expiration_ms")
    }
    came = {
        (row["source"], row["sequence"]): row
        for row in (*life.rows("events/arrivals"), *life.rows("state/deliverables", CUTS - 1))
    }
    for row in life.rows("events/ends"):
        arrived = came.get((row["source"], row["first"]))
        if row["reason"] == 1 and row["first"] == row["last"] and arrived and arrived["position"] not in mortal:
            return row, arrived
    return None


def _endings(life: Life) -> dict[str, Fault]:
    names = {row["name"]: row["id"] for row in life.rows("state/destinations")}
    found = _acknowledged(life)
    assert found is not None
    end, arrived = found
    life.plant("expired", {"events/ends": altered(end, reason=2)})
    life.plant("damaged", {"events/ends": altered(end, reason=8)})
    mirrored = {**end, "source": names["mirror"], "reason": 3, "first": 1, "last": 1}
    life.plant("discarded", {"events/ends": lambda rows: [*rows, mirrored]})
    life.plant("purged", {"events/ends": altered(end, reason=4)})
    return {
        "expired": Fault("endings", "expired-without-life", (arrived,)),
        "damaged": Fault("endings", "damaged", (arrived,)),
        "discarded": Fault("endings", "discarded-against-policy"),
        "purged": Fault("endings", "purged", (), "ok"),
    }


def _in_both(life: Life) -> tuple[Row, Row] | None:
    """A message that waits at both of the last cuts, at the last and at the one before."""
    before = {
        (row["source"], row["sequence"]): row for row in life.rows("state/deliverables", CUTS - 1) if row["state"] == 0
    }
    for row in life.rows("state/deliverables"):
        then = before.get((row["source"], row["sequence"]))
        if then is not None and row["state"] == 0 and row["move"] is None:
            return row, then
    return None


def _waiting(life: Life) -> dict[str, Fault]:
    names = {row["name"]: row["id"] for row in life.rows("state/destinations")}
    found = _in_both(life)
    assert found is not None
    both, then = found
    source = both["source"]
    marks = {row["source"]: row for row in life.rows("state/sources")}
    old = {row["source"]: row for row in life.rows("state/sources", CUTS - 1)}
    silent: Edit = lambda rows: [row for row in rows if row["source"] != source]  # noqa: E731
    unread: dict[str, Edit] = (
        {"events/ends": silent} if any(row["source"] == source for row in life.rows("events/ends")) else {}
    )
    if marks[source]["watermark"] > old[source]["watermark"]:
        unread["state/sources"] = altered(marks[source], watermark=old[source]["watermark"])
    life.plant("unread", unread)
    life.plant(
        "held", {"state/deliverables": altered(both, state=2), f"{CUTS - 1}:state/deliverables": altered(then, state=2)}
    )
    life.plant("comes-back", {"state/deliverables": altered(both, attempts=99)})
    life.plant("dead", {"state/deliverables": altered(both, reason=5, origin=names["small"])})
    held = [row for row in life.rows("state/deliverables") if row["source"] == source]
    oldest = min(held, key=lambda row: (row["position"], row["copy"]))
    is_durable = source not in names.values()
    return {
        "unread": Fault("backlog", "durable-unread" if is_durable else "unread", (oldest,), "ok"),
        "held": Fault("backlog", "held-long", (both,), "ok"),
        "comes-back": Fault("backlog", "comes-back", (both,), "ok"),
        "dead": Fault("dead-letters", "put-aside", (both,), "ok"),
    }


@dataclass
class Planted:
    """All faults in one store, beside histories into which nothing was planted."""

    life: Life
    clean: set[str]
    faults: dict[str, Fault]


@pytest.fixture(scope="module")
def planted_faults(tier_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Real histories, and one of them again and again with a fault."""
    folder = tmp_path_factory.mktemp("planted")
    lives = [live(folder, seed) for seed in SEEDS]
    # What a seed makes of an engine differs a little from run to run.
    life = next(one for one in lives if _copies(one) and _acknowledged(one) and _in_both(one))
    life.plant("clean")
    faults = {**_bridges(life), **_endings(life), **_waiting(life)}
    return Planted(life, {"clean", *(one.place.broker for one in lives)}, faults)


def said(spark: SparkSession, planted: Planted, audit: str, out: Path) -> dict[str, list[Finding]]:
    """What an audit says of each history that concerns it, in one run."""
    brokers = {name for name, fault in planted.faults.items() if fault.audit == audit}
    of = [planted.life.made[name] for name in brokers | {"clean"}]
    others = [type(planted.life.place)("bank", name) for name in planted.clean - {"clean"}]
    history = open_history(spark, Directory(planted.life.root), VERIFIER, places=[*of, *others])
    [result] = running.run(history, registry.audits([audit]), Directory(out)).results
    assert result.error == "", result.error
    found: dict[str, list[Finding]] = {}
    for one in result.findings:
        found.setdefault(one.broker, []).append(one)
    return found


@pytest.mark.timeout(400)
@pytest.mark.parametrize("audit", AUDITS)
def test_planted_faults_are_found_and_clean_histories_raise_no_alarm(
    audit: str, spark: SparkSession, planted_faults: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [one] = registry.audits([audit])
    read = selectors.in_sql
    monkeypatch.setattr(selectors, "in_sql", lambda text: "priority < 0" if text == MISREAD else read(text))
    found = said(spark, planted_faults, audit, tmp_path)
    for name in planted_faults.clean:
        assert [finding for finding in found[name] if finding.verdict == "violated"] == [], name
        doubts = {finding.what for finding in found[name] if finding.verdict == "not provable"}
        # An engine alone has no configuration.
        assert doubts <= ({"no-configuration", "unexplained-copy"} if name != "clean" else set()), (name, doubts)
    for name, fault in planted_faults.faults.items():
        if fault.audit != audit:
            continue
        exact = [finding for finding in found[name] if (finding.what, finding.verdict) == (fault.what, fault.verdict)]
        assert exact, (name, [(finding.verdict, finding.what) for finding in found[name]])
        if fault.messages:
            wanted = {planted_faults.life.id_of(row, name) for row in fault.messages}
            blamed = {finding.message for finding in exact}
            assert wanted <= blamed, (name, wanted, blamed)
            assert blamed == wanted or fault.verdict == "ok", (name, wanted, blamed)
        others = {finding.what for finding in found[name] if finding.verdict == "violated"}
        assert others <= {fault.what}, (name, others)
        assert all(finding.what in one.meanings for finding in found[name]), {finding.what for finding in found[name]}


def test_a_selector_is_read_by_two_evaluators_in_the_same_way(spark: SparkSession) -> None:
    alike = (
        "JMSPriority > 4",
        "JMSPriority BETWEEN 2 AND 5 OR JMSPriority = 9",
        "NOT (JMSPriority BETWEEN 1 AND 3)",
        "JMSDeliveryMode = 'PERSISTENT' AND JMSPriority <> 4",
        "JMSDeliveryMode LIKE 'PER%' AND JMSTimestamp >= 1005",
        "JMSTimestamp IS NULL OR JMSPriority IS NOT NULL",
        "jmspriority = 4",
    )
    known = [text for text in alike if selectors.is_known(text)]
    assert known == list(alike[:-1])
    assert [text for text in known if selectors.in_sql(text) is None] == [alike[3], alike[4]]
    evaluate: Any = selectors.by_engine()
    rows = spark.range(10).selectExpr("cast(id as int) priority", "1000 + id time_ms", "'PERSISTENT' mode")
    rows = rows.crossJoin(spark.createDataFrame([(text,) for text in known], "selector string"))
    rows = rows.select(
        "selector", evaluate("selector", "priority", "time_ms", "mode"), selectors.by_spark(known, "selector")
    )
    answers = [tuple(row) for row in rows.collect()]
    assert [answer for answer in answers if answer[2] is not None and answer[1] != answer[2]] == []
    assert {answer[1] for answer in answers} == {True, False}


def test_no_text_of_a_selector_reaches_spark_but_what_is_known() -> None:
    for text in (
        "reflect('java.lang.System', 'exit', '1') = 'x'",
        "JMSPriority = (SELECT 1)",
        "JMSPriority + 1 = 5",
        "JMSDeliveryMode LIKE 'a!_%' ESCAPE '!'",
        "JMSDeliveryMode = 'it''s'",
        r"JMSDeliveryMode = 'a\\b'",
        "JMSPriority = 'x'",
        "JMSPriority = 1 -- rest",
        "`position` = 1",
        "colour = 'red'",
    ):
        assert selectors.in_sql(text) is None, text
    for text in ("colour = 'red'", "JMSType = 'x'", "JMSPriority > 4 AND NOT flag", "JMSXDeliveryCount > 1"):
        assert not selectors.is_known(text), text
    assert selectors.is_known("JMSDeliveryMode = 'JMSType'")
