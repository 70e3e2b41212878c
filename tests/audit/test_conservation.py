"""Conservation: no false alarm over real histories, and each planted fault found at the exact message."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna_audit.audits import reasons, registry, running
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import open_history
from sterna_audit.snapshots import reading
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.stores import Directory

from tests.audit.kept import PLAIN, VERIFIER
from tests.audit.living import Living
from tests.audit.planted import Edit, Row, Table, added, altered, doubled, planted, rows_of, without
from tests.core.driver import queue, text, topic
from tests.support.seeds import share

# The exporter's loop serves nobody else: it writes and syncs its files there, beside Spark.
pytestmark = [pytest.mark.timeout(600), pytest.mark.slow_callbacks(2_000)]

#: Histories without a fault; `test_clean_histories.py` has fifty more.
SEEDS = range(10, 16)
#: What may happen depends on the machine's threads, too: when none of these has all that faults need, these are tried.
MORE_SEEDS = range(100, 130)
#: Of one in which a prepared transaction takes messages.
PREPARED = 7
#: Of one whose topic is deleted with messages.
WITH_TOPIC = 8
CUTS = 4
STEPS = 60
#: In which cut faults are planted.
AT = 3


def audited(spark: SparkSession, root: Path, out: Path, places: list[Place] | None = None) -> list[Finding]:
    """What the audit says of what is there."""
    history = open_history(spark, Directory(root), VERIFIER, places=places or ())
    [result] = running.run(history, registry.audits(["conservation"]), Directory(out)).results
    assert result.error == ""
    return list(result.findings)


@pytest.fixture(scope="module")
def living(tier_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real histories, a broker for each seed."""
    root = tmp_path_factory.mktemp("living")
    for seed in SEEDS:
        told(root, seed)
    return root / "snapshots"


def told(root: Path, seed: int) -> None:
    """A history is lived through, and its cuts are kept."""
    one = Living(root / f"store-{seed}", seed)
    for _ in range(CUTS):
        one.live(STEPS)
        one.leave()
        one.cut(Directory(root / "snapshots"), PLAIN)
    one.stop()


@pytest.fixture(scope="module")
def prepared(living: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One more, with a transaction that is prepared and has taken messages when their queue is deleted."""
    one = Living(tmp_path_factory.mktemp("prepared"), PREPARED)
    one.send("orders", 3)
    client = one.driver.client()
    session = client.session(pb.TRANSACTED)
    opened = client.consumer(session, queue("orders")).consumer_opened
    one.driver.poll()
    for sequence in sorted(each.sequence for each in client.deliveries()):
        client.acknowledge(session, opened.source, sequence, transaction=1)
    one.prepare(client, session)
    one.send("bills", 3)
    one.driver.engine.delete("queue", "orders", True)
    root = Directory(living)
    one.cut(root, PLAIN)
    assert rows_of(living, one.place, (1, "state", "taken")) != []
    [xid] = one.prepared
    one.decide_prepared(xid, commits=True)
    one.cut(root, PLAIN)
    one.stop()
    return one.place


@pytest.fixture(scope="module")
def of_topic(living: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One more, whose topic is deleted with what a durable subscription holds, in hand and in a transaction, too."""
    one = Living(tmp_path_factory.mktemp("topic"), WITH_TOPIC)
    one.volatile = 0.0
    root = Directory(living)
    subscribed = one.driver.client(client_id="one")
    session = subscribed.session(pb.TRANSACTED)
    wanted = pb.Subscription(name="a", durable=True)
    opened = subscribed.consumer(session, topic("news.art"), subscription=wanted).consumer_opened
    one.send("news.art", 8)
    one.driver.poll()
    first = min(each.sequence for each in subscribed.deliveries())
    subscribed.acknowledge(session, opened.source, first, transaction=1)
    subscribed.producer(session, topic("news.art"), 2)
    subscribed.publish(session, 1, [text("sent")], producer=2, transaction=1)
    one.driver.poll()
    one.cut(root, PLAIN)
    assert one.driver.engine.delete("topic", "news.art", True) == 8
    answer = subscribed.request(session, transact=pb.Transact(transaction=1, verb=pb.Transact.COMMIT))
    assert answer.error.code == pb.TRANSACTION_ROLLED_BACK
    subscribed.close()
    one.restart(clean=False)
    one.cut(root, PLAIN)
    ends = rows_of(living, one.place, (2, "events", "ends"))
    assert {row["reason"] for row in ends} == {reasons.DELETED}
    one.send("news.art", 3)
    one.cut(root, PLAIN)
    one.stop()
    return one.place


@pytest.fixture(scope="module")
def of_clean(
    spark: SparkSession, living: Path, prepared: Place, of_topic: Place, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Finding]]:
    """What the audit says of each broker into whose history nothing was planted."""
    found: dict[str, list[Finding]] = {prepared.broker: [], of_topic.broker: []}
    for one in audited(spark, living, tmp_path_factory.mktemp("clean")):
        found.setdefault(one.broker, []).append(one)
    return found


def test_what_a_prepared_transaction_took_may_go_with_its_queue(
    of_clean: dict[str, list[Finding]], prepared: Place
) -> None:
    assert {each.verdict for each in of_clean[prepared.broker]} == {"ok"}


def test_what_durables_held_may_go_with_their_topic(of_clean: dict[str, list[Finding]], of_topic: Place) -> None:
    assert {each.verdict for each in of_clean[of_topic.broker]} == {"ok"}


def test_real_histories_raise_no_alarm(of_clean: dict[str, list[Finding]], prepared: Place, of_topic: Place) -> None:
    apart = (prepared.broker, of_topic.broker)
    found = [one for broker, said in of_clean.items() if broker not in apart for one in said]
    assert [one for one in found if one.verdict not in ("ok", "in flight")] == []
    balanced = [one for one in found if one.what == "balanced"]
    assert len(balanced) == len(SEEDS) * (CUTS - 1)
    # They are not as empty as that would be easy.
    totals = {name: sum(one.evidence[name] for one in balanced) for name in ("came", "ended", "deleted", "remained")}
    assert min(totals.values()) > 100, totals
    assert any(one.what == "open-transactions" for one in found)


@dataclass
class Base:
    """A real history into which faults are planted, and what its interval up to the cut `AT` says."""

    root: Path
    place: Place

    def rows(self, folder: str, name: str, cut: int = AT) -> list[Row]:
        """A table's rows."""
        return rows_of(self.root, self.place, (cut, folder, name))

    def epoch(self, cut: int) -> int:
        """Of the broker at a cut."""
        manifest = reading.find(Directory(self.root), self.place, cut).manifest
        assert manifest is not None
        return manifest.cut.epoch

    def keys(self, folder: str, name: str, cut: int = AT) -> set[tuple[int, int]]:
        """Sources and sequences of a table's rows."""
        return {(row["source"], row["sequence"]) for row in self.rows(folder, name, cut)}

    def message_id(self, position: int, broker: str) -> str:
        """The id of the message whose record is at a position."""
        for folder, name in (("events", "stored"), ("state", "messages")):
            for row in self.rows(folder, name):
                if row["position"] == position:
                    starts = {one["epoch"]: one["start"] for one in self.rows("state", "starts")}
                    start = starts[row["producer"] >> 32] & ((1 << 64) - 1)
                    return f"ID:{broker}.{row['producer']:X}.{start:016X}:{row['sequence']}"
        raise AssertionError(position)


@dataclass
class Fault:
    """What is planted, and what has to be said of it: the word, and which sequence or position."""

    edits: dict[Table, Edit]
    what: str
    where: dict[str, int]
    position: int | None = None


@pytest.fixture(scope="module")
def base(living: Path, tmp_path_factory: pytest.TempPathFactory) -> Base:
    """The first history that has something of all that faults are planted into."""
    more = tmp_path_factory.mktemp("more")
    for seed in (*SEEDS, *MORE_SEEDS):
        if seed in MORE_SEEDS:
            told(more, seed)
        found = Base(living if seed in SEEDS else more / "snapshots", Place("bank", f"broker-{seed}"))
        # What is missing is the first row of something.
        with suppress(StopIteration, IndexError):
            faults(found)
            return found
    raise AssertionError("no history has all that is needed")


def _committed(base: Base) -> list[Row]:
    """What was sent in transactions that were committed in the interval, and is where it was sent; no copies."""
    committed = {row["transaction"] for row in base.rows("events", "decisions") if row["decision"] == 2}
    positions = {row["position"] for row in base.rows("events", "transacted") if row["transaction"] in committed}
    there = [row for row in base.rows("state", "deliverables") if row["position"] in positions]
    return [row for row in there if row["state"] != 3 and not row["copy"] and row["move"] is None]


def _pending(base: Base) -> list[Row]:
    return [row for row in base.rows("state", "deliverables") if row["state"] == 3 and not row["copy"]]


def _at(row: Row) -> dict[str, int]:
    return {"source": row["source"], "sequence": row["sequence"]}


@dataclass
class Chosen:
    """The first rows that faults can be planted into."""

    base: Base

    def __post_init__(self) -> None:
        rows = self.base.rows
        self.arrivals, there = rows("events", "arrivals"), rows("state", "deliverables")
        self.waiting = {(row["source"], row["sequence"]): row for row in there if row["state"] != 3}
        gone = {row["id"] for row in rows("events", "catalogue") if row["what"] in (2, 4)}
        self.before = self.base.keys("state", "deliverables", AT - 1)
        # Copies that bridges made have ids of their own.
        own = [row for row in self.arrivals if not row["copy"]]
        self.new = next(row for row in own if (row["source"], row["sequence"]) in self.waiting)
        old = [row for key, row in self.waiting.items() if key in self.before and row["move"] is None]
        self.old = next(row for row in old if not row["copy"])
        ends = [row for row in rows("events", "ends") if row["transaction"] == 0 and row["reason"] != 6]
        self.end = next(row for row in ends if row["source"] not in gone)
        self.ended = {"source": self.end["source"], "sequence": self.end["first"]}


def faults(base: Base) -> dict[str, Fault]:
    """Each fault by a name."""
    chosen = Chosen(base)
    return {**_of_state(chosen), **_of_ends(chosen), **_of_records(chosen)}


def _of_state(chosen: Chosen) -> dict[str, Fault]:
    state, events = (AT, "state", "deliverables"), (AT, "events", "arrivals")
    new, old, pending = chosen.new, chosen.old, _pending(chosen.base)[0]
    return {
        "arrival-dropped": Fault({events: without(new)}, "appeared", _at(new), new["position"]),
        "arrival-doubled": Fault({events: doubled(new)}, "doubled", _at(new), new["position"]),
        "state-dropped": Fault({state: without(chosen.waiting[new["source"], new["sequence"]])}, "lost", _at(new)),
        "old-state-dropped": Fault({state: without(old)}, "lost", _at(old), old["position"]),
        "state-doubled": Fault({state: doubled(old)}, "doubled", _at(old), old["position"]),
        "state-invented": Fault(
            {state: added(source=old["source"], sequence=0, state=0, transaction=None)},
            "appeared",
            {"source": old["source"], "sequence": 0},
        ),
        "state-altered": Fault({state: altered(old, position=new["position"])}, "altered", _at(old), old["position"]),
        "pending-dropped": Fault({state: without(pending)}, "pending-lost", _at(pending), pending["position"]),
        "sequences-again": Fault(
            {(AT, "state", "sources"): lambda rows: [{**row, "next_sequence": 1} for row in rows]},
            "sequence-not-given",
            {"source": new["source"]},
        ),
        **_of_marks(chosen),
    }


def _of_marks(chosen: Chosen) -> dict[str, Fault]:
    rows = chosen.base.rows
    marks, before = ({row["source"]: row for row in rows("state", "sources", cut)} for cut in (AT, AT - 1))
    # The last one of a source: a clean stop gives back what was reserved and not used.
    last = {row["source"]: row for row in sorted(rows("events", "watermarks"), key=lambda row: row["position"])}
    raised = next(row for row in last.values() if row["source"] in marks and row["below"] > 1)
    old = next(row for source, row in before.items() if source in marks)
    return {
        "watermark-lags": Fault(
            {(AT, "state", "sources"): altered(marks[raised["source"]], watermark=raised["below"] - 1)},
            "watermark-behind",
            {"source": raised["source"]},
        ),
        # As if the broker had given more numbers than it knows of later, while nothing has them any more.
        "numbers-forgotten": Fault(
            {(AT - 1, "state", "sources"): altered(old, next_sequence=old["next_sequence"] + 100_000)},
            "sequences-again",
            {"source": old["source"]},
        ),
    }


def _of_ends(chosen: Chosen) -> dict[str, Fault]:
    ends, old, end = (AT, "events", "ends"), chosen.old, chosen.end
    source = old["source"]
    found = {
        "end-dropped": Fault({ends: without(end)}, "lost", chosen.ended),
        "end-doubled": Fault({ends: doubled(end)}, "ended-twice", chosen.ended),
        "end-invented": Fault(
            {ends: added(source=source, first=old["sequence"], last=old["sequence"], transaction=0)},
            "ended-and-there",
            _at(old),
            old["position"],
        ),
        "end-of-nothing": Fault(
            {ends: added(source=source, first=0, last=0, transaction=0)},
            "ended-unknown",
            {"source": source, "sequence": 0},
        ),
        "end-backwards": Fault(
            {ends: added(source=source, first=old["sequence"], last=old["sequence"] - 1, transaction=0)},
            *("broken-run", {"source": source}),
        ),
    }
    key = end["source"], end["first"]
    if key not in chosen.before:
        came = next(row for row in chosen.arrivals if (row["source"], row["sequence"]) == key)
        edits: dict[Table, Edit] = {(AT, "events", "arrivals"): without(came)}
        found["ended-arrival-dropped"] = Fault(edits, "ended-unknown", chosen.ended)
    return found


def _of_copies(chosen: Chosen) -> dict[str, Fault]:
    rows, copies = chosen.base.rows, (AT, "state", "copies")
    told = {row["position"]: row for row in rows("state", "messages")}
    copy = next(row for row in rows("state", "copies") if row["copy"] > 0 and row["position"] in told)
    position = copy["position"]
    of = ("copies-altered", {"position": position}, position)
    return {
        "copy-forgotten": Fault({copies: without(copy)}, *of),
        "copy-altered": Fault({copies: altered(copy, sequence=copy["sequence"] + 1)}, *of),
        "copy-twice": Fault({copies: doubled(copy)}, *of),
    }


def _of_records(chosen: Chosen) -> dict[str, Fault]:
    rows, messages = chosen.base.rows, (AT, "state", "messages")
    moves = [row for row in rows("events", "moves") if not row["copy"]]
    move = next(row for row in moves if (row["to_source"], row["to_sequence"]) in chosen.waiting)
    sent = _committed(chosen.base)[0]
    of_sent = {one["transaction"] for one in rows("events", "transacted") if one["position"] == sent["position"]}
    # One that was prepared has a decision before, of which nobody would miss anything.
    decided = [row for row in rows("events", "decisions") if row["decision"] == 2]
    decision = next(row for row in decided if row["transaction"] in of_sent)
    record = next(row for row in rows("state", "messages") if row["position"] == chosen.new["position"])
    at = {"position": record["position"]}
    return {
        "move-dropped": Fault(
            {(AT, "events", "moves"): without(move)},
            "appeared",
            {"source": move["to_source"], "sequence": move["to_sequence"]},
            move["message"],
        ),
        "commit-dropped": Fault(
            {(AT, "events", "decisions"): without(decision)}, "appeared", _at(sent), sent["position"]
        ),
        "record-dropped": Fault({messages: without(record)}, "record-missing", at, record["position"]),
        "record-altered": Fault(
            {messages: altered(record, checksum_low=record["checksum_low"] ^ 1)},
            *("record-altered", at, record["position"]),
        ),
        "life-altered": Fault(
            {messages: altered(record, time_to_live_ms=record["time_to_live_ms"] + 1)},
            *("record-altered", at, record["position"]),
        ),
        "delay-altered": Fault(
            {messages: altered(record, delay_ms=record["delay_ms"] + 1)}, "record-altered", at, record["position"]
        ),
        "record-doubled": Fault({messages: doubled(record)}, "record-doubled", at, record["position"]),
        **_of_copies(chosen),
    }


#: Of histories whose second cut lacks its events.
GAPS = ("by-count", "miscounted")


@dataclass
class Told:
    """What was planted, and what was said of it.

    Attributes:
        faults: by broker.
        miscounted: the row of a counter that was made too small by one, in the history of that name.
        exact: what conservation said.
        counted: what the counters said.
    """

    faults: dict[str, Fault]
    miscounted: Row
    exact: list[Finding]
    counted: list[Finding]


@pytest.fixture(scope="module")
def told_of_faults(spark: SparkSession, base: Base, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A share of all faults in one store, each with its broker, and one run over them; `make test-all` has all."""
    every = faults(base)
    wanted = {name: every[name] for name in share(every, 3, "planted faults of conservation")}
    root = tmp_path_factory.mktemp("planted")
    (root / str(base.place)).parent.mkdir(parents=True)
    (root / str(base.place)).symlink_to(base.root / str(base.place))
    counters = base.rows("state", "counters", 2)
    arrived = next(row for row in counters if row["counter"] == "arrived" and row["value"] > 1)
    edits: dict[str, dict[Table, Edit]] = {name: {} for name in GAPS}
    edits["miscounted"] = {(2, "state", "counters"): altered(arrived, value=arrived["value"] - 1)}
    places = [planted(root, base.place, name, fault.edits, AT) for name, fault in wanted.items()]
    places += [planted(root, base.place, name, edit, AT, gap_in=2) for name, edit in edits.items()]
    history = open_history(spark, Directory(root), VERIFIER, places=places)
    out = Directory(tmp_path_factory.mktemp("out"))
    results = running.run(history, registry.audits(["conservation", "counters"]), out).results
    assert [result.error for result in results] == ["", ""]
    exact, counted = (list(result.findings) for result in results)
    return Told(wanted, arrived, exact, counted)


def test_each_planted_fault_is_found_at_the_exact_message(told_of_faults: Told, base: Base) -> None:
    wanted, found = told_of_faults.faults, told_of_faults.exact
    for name, fault in wanted.items():
        said = [one for one in found if one.broker == name and one.verdict == "violated"]
        exact = [one for one in said if one.what == fault.what and fault.where.items() <= one.evidence.items()]
        assert exact, (name, fault.what, fault.where, said)
        if fault.position is not None:
            assert exact[0].message == base.message_id(fault.position, name), name
        # Nothing else is blamed but what hangs together with it, and nobody says that it balances.
        assert not [one for one in found if one.broker == name and (one.verdict, one.cut) == ("ok", AT)], name
        assert len(said) <= 1 or name in (
            "state-altered",
            "commit-dropped",
            "sequences-again",
            "end-dropped",
            "end-doubled",
        ), (name, said)


def test_over_a_gap_there_are_only_the_counters(told_of_faults: Told, base: Base) -> None:
    """The second of three cuts lacks its events, and says so; in one history it counted one message too few."""
    exact = [one for one in told_of_faults.exact if one.broker in GAPS]
    counted = [one for one in told_of_faults.counted if one.broker in GAPS]
    assert [(one.broker, one.cut) for one in exact if one.what == "gap"] == [(name, 2) for name in GAPS]
    assert {one.cut for one in exact if one.verdict == "ok"} == {3}
    assert not [one for one in (*exact, *counted) if one.verdict == "violated" and one.broker == "by-count"]
    reach = {one.what for one in counted if one.cut == 2 and one.broker == "by-count"} - {"balanced-by-count"}
    same_start = base.epoch(1) == base.epoch(2)
    assert reach == {"gap-by-count" if same_start else "gap-over-a-start"}
    [wrong] = [one for one in counted if one.verdict == "violated"]
    assert (wrong.broker, wrong.cut, wrong.what, wrong.messages) == ("miscounted", 2, "count-differs", 1)
    assert wrong.evidence["source"] == told_of_faults.miscounted["source"]
