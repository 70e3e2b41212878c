"""Ledgers against snapshots: no false alarm, planted faults at the exact message, and the share vouched for."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sterna import _ledger_format as form
from sterna import ledger
from sterna_audit.audits import registry, running
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import open_history
from sterna_audit.audits.ledger_files import convert
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.stores import Directory

from tests.audit.kept import PLAIN, VERIFIER
from tests.audit.living import Living
from tests.audit.planted import Edit, Row, Table, altered, planted, rows_of, without

pytestmark = pytest.mark.timeout(600)

SEED = 31
PLACE = Place("bank", f"broker-{SEED}")
LAST = 4


@pytest.fixture(scope="module")
def root(tier_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real history whose clients keep ledgers: one after another, and some sends in none."""
    root = tmp_path_factory.mktemp("ledgers")
    living = Living(root / "store", SEED)
    snapshots = Directory(root / "snapshots")
    living.live(20)
    living.cut(snapshots, PLAIN)
    for number in (1, 2):
        book = living.write_down()
        living.cut(snapshots, PLAIN)
        living.live(50)
        living.book = None
        book.keep(root / "books" / f"{number}.ledger", number)
    living.live(10)
    living.cut(snapshots, PLAIN)
    book = living.write_down()
    # The last cut does not know of these.
    living.send("bills", 7)
    book.keep(root / "books" / "later" / "3.ledger", 3)
    living.stop()
    return root


def audited(spark: SparkSession, root: Path, books: Path | None, out: Path) -> dict[str, list[Finding]]:
    """What the audit says, by broker; of no broker alone under an empty name."""
    history = open_history(spark, Directory(root), VERIFIER)
    if books is not None:
        history.ledgers = convert(Directory(books), Directory(out), "tables")
    [result] = running.run(history, registry.audits(["ledgers"]), Directory(out)).results
    assert result.error == ""
    found: dict[str, list[Finding]] = {}
    for finding in result.findings:
        found.setdefault(finding.broker, []).append(finding)
    return found


def sent(books: Path) -> list[ledger.SentRecord]:
    """The messages in books that were confirmed as being on the disk."""
    found = []
    for path in sorted(books.glob("*.ledger")):
        records = list(ledger.read(path))
        confirmed = {
            (one.producer.incarnation, number)
            for one in records
            if isinstance(one, ledger.Confirmed) and one.durability
            for number in range(one.first, one.last + 1)
        }
        found += [
            one
            for one in records
            if isinstance(one, ledger.SentRecord) and (one.producer.incarnation, one.number) in confirmed
        ]
    return found


def kinds(found: list[Finding]) -> list[tuple[str, str]]:
    """Verdict and word of each."""
    return [(one.verdict, one.what) for one in found]


def stored_at(root: Path, message: ledger.SentRecord) -> tuple[int, Row]:
    """The row of a message among the stored ones, and the cut that has it."""
    for cut in range(1, LAST + 1):
        for row in rows_of(root, PLACE, (cut, "events", "stored")):
            if (row["producer"], row["sequence"]) == (message.producer.incarnation, message.number):
                return cut, row
    raise AssertionError(message.message_id)


def test_the_broker_s_rows_are_held_against_its_clients_ledgers(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    snapshots, books = tmp_path / "snapshots", root / "books"
    shutil.copytree(root / "snapshots", snapshots)
    promised = sent(books)
    assert len(promised) > 100
    lost, changed, shrunk = promised[3], promised[40], promised[80]
    wanted = {"lost": (lost, "not-stored"), "changed": (changed, "altered"), "shrunk": (shrunk, "altered")}
    for name, (message, _) in wanted.items():
        cut, row = stored_at(snapshots, message)
        edit: Edit = without(row)
        if name == "changed":
            edit = altered(row, checksum_high=row["checksum_high"] ^ 1)
        if name == "shrunk":
            edit = altered(row, bytes=row["bytes"] - 1)
        edits: dict[Table, Edit] = {(cut, "events", "stored"): edit}
        if name == "lost":
            # It is not among those that wait, either.
            for later in range(cut, LAST + 1):
                waits = [
                    one
                    for one in rows_of(snapshots, PLACE, (later, "state", "messages"))
                    if one["position"] == row["position"]
                ]
                if waits:
                    edits[later, "state", "messages"] = without(waits[0])
        planted(snapshots, PLACE, name, edits, LAST)
    found = audited(spark, snapshots, books, tmp_path / "out")
    # As it was it is in order, but for what came later.
    clean = found.pop(PLACE.broker)
    assert kinds(clean) == [("in flight", "after-the-cut"), ("ok", "vouched")]
    assert clean[0].messages == len(sent(books / "later"))
    figures = clean[1].evidence
    assert figures["promised"] == figures["found"] == len(promised) == figures["vouched"]
    assert 0 < figures["share"] < 1
    assert figures["stored"] == sum(
        len(rows_of(snapshots, PLACE, (cut, "events", "stored"))) for cut in range(2, LAST + 1)
    )
    for name, (message, what) in wanted.items():
        said = found.pop(name)
        assert [(one.what, one.message, one.object) for one in said if one.verdict == "violated" and one.message] == [
            (what, message.message_id, message.destination)
        ]
        assert ("violated", "vouched") in kinds(said)
    assert found == {}


def test_faults_in_ledgers_are_found_and_without_one_nothing_is_proved(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    books = tmp_path / "books"
    shutil.copytree(root / "books", books)
    content = (books / "1.ledger").read_bytes()
    head, begin = form.head_of(content) or ({}, 0)
    raws = list(form.records_of(content[begin : begin + 12], content[begin + 12 :], 0, begin))
    # The checksum of the first message of a record of sent ones, which the broker has on its disk, is another.
    promised = {one.message_id: one for one in sent(root / "books")}
    told = [one for one in ledger.read(books / "1.ledger") if isinstance(one, ledger.SentRecord)]
    batches = [raw for raw in raws if raw.kind == form.SENT]
    counts = [raw.fields[5] for raw in batches]
    firsts = [told[sum(counts[:index])] for index in range(len(counts))]
    index = next(index for index, one in enumerate(firsts) if one.message_id in promised)
    message, altered_one = firsts[index], batches[index]
    tail = bytearray(altered_one.tail)
    tail[4 * counts[index]] ^= 1
    # What was acknowledged is received once more behind all, unflagged.
    sources = {raw.fields[0]: raw.fields[4] for raw in raws if raw.kind == form.CONSUMER}
    acknowledged = {
        (one.source, one.first) for one in ledger.read(books / "1.ledger") if isinstance(one, ledger.Acknowledging)
    }
    receipts = [(raw, form.RECEIVED_ROW.unpack(raw.tail)) for raw in raws if raw.kind == form.RECEIVED]
    receipt, key = next(
        (raw, (sources[raw.fields[0]], row[0]))
        for raw, row in receipts
        if not row[3] and (sources[raw.fields[0]], row[0]) in acknowledged
    )
    records = [form.record(raw.kind, *raw.fields, tail=bytes(tail) if raw is altered_one else raw.tail) for raw in raws]
    records.insert(-1, form.record(receipt.kind, *receipt.fields, tail=receipt.tail))
    (books / "1.ledger").write_bytes(form.head(head) + b"".join(form.blocks(0, records)))
    damaged = bytearray((books / "2.ledger").read_bytes())
    damaged[-30] ^= 1
    (books / "2.ledger").write_bytes(damaged)
    found = audited(spark, root / "snapshots", books, tmp_path / "out")
    assert [(one.what, one.object) for one in found[""]] == [("damaged-ledger", "2.ledger")]
    violated = {one.what: one for one in found[PLACE.broker] if one.verdict == "violated" and one.message}
    assert set(violated) == {"altered", "seen-again"}
    assert violated["altered"].message == message.message_id
    again = violated["seen-again"].evidence
    assert (again["source"], again["sequence"]) == key
    # No ledger is no proof, whatever the snapshots say.
    none = audited(spark, root / "snapshots", None, tmp_path / "none")
    assert kinds(none[PLACE.broker]) == [("not provable", "no-ledger")]
    (tmp_path / "empty").mkdir()
    empty = audited(spark, root / "snapshots", tmp_path / "empty", tmp_path / "none")
    assert kinds(empty[PLACE.broker]) == [("not provable", "no-ledger")]


def test_a_number_that_is_given_again_after_a_crash_is_another_message(spark: SparkSession, tmp_path: Path) -> None:
    living = Living(tmp_path / "store", SEED)
    snapshots = Directory(tmp_path / "snapshots")
    living.cut(snapshots, PLAIN)
    book = living.write_down()
    # None of them is on the disk: who is killed forgets them, and how many there were.
    living.volatile = 1.0
    for _ in range(2):
        living.send("orders", 30)
        living.take("orders", share=1.0)
        living.restart(clean=False)
    living.book = None
    book.keep(tmp_path / "books" / "1.ledger")
    living.cut(snapshots, PLAIN)
    living.stop()
    received = [one for one in ledger.read(tmp_path / "books" / "1.ledger") if isinstance(one, ledger.Received)]
    assert len({one.sequence for one in received}) < len({one.message_id for one in received})
    found = audited(spark, tmp_path / "snapshots", tmp_path / "books", tmp_path / "out")
    assert [one for one in found[PLACE.broker] if one.verdict == "violated"] == []


#: What no client writes, with all checksums right: of a file's head, or of one record's fields.
NONSENSE: dict[str, tuple[object, tuple[int, ...] | None]] = {
    "no-object": ([1], None),
    "no-number": ({"file": "first"}, None),
    "endless": ({"file": 1 << 70}, None),
    "backwards": ({"file": 1}, (form.CONFIRMED, 3, 9, 1, 1, 0)),
    "too-long": ({"file": 1}, (form.CONFIRMED, 3, 1, 1 << 40, 1, 0)),
    "too-large": ({"file": 1}, (form.CONFIRMED, 3, (1 << 64) - 9, (1 << 64) - 1, 1, 0)),
}


def test_a_ledger_that_makes_no_sense_is_damaged_and_costs_itself_alone(tmp_path: Path) -> None:
    name = form.record(form.NAME, 2, form.QUEUE_NAME, tail=form.text("orders"))
    link = form.record(form.LINK, 1, 0, 1, 0, tail=b"".join(map(form.text, ("b", "bank", "0" * 32, "", ""))))
    producer = form.record(form.PRODUCER, 3, 1, 1, 2, 77, 1, tail=form.text("ID:b.4D:") + form.text(""))
    books = tmp_path / "books"
    books.mkdir()
    for number, (title, (head, fields)) in enumerate(NONSENSE.items()):
        said = {"ledger": f"{number:032x}", **head} if isinstance(head, dict) else head
        records = [link, name, producer, *([form.record(*fields)] if fields is not None else [])]
        (books / f"{title}.ledger").write_bytes(form.head(said) + b"".join(form.blocks(0, records)))  # type: ignore[arg-type]
    found = convert(Directory(books), Directory(tmp_path), "tables")
    assert {Path(one.path).stem: one.state for one in found.files} == dict.fromkeys(NONSENSE, "damaged")
    assert all(one.why for one in found.files)
    assert set(found.rows.values()) == {0}
