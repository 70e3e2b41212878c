"""Faults that the engine itself makes, in a real history: each is found by an audit, at the exact message.

Nothing in the files is touched. `core/src/state/planted.rs` says what each does, and writes down what it hit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna_audit.audits import registry, running
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import open_history
from sterna_audit.audits.ledger_files import convert
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.stores import Directory

from tests.audit.kept import PLAIN, VERIFIER
from tests.audit.living import Living, manifests
from tests.core.driver import topic
from tests.support.seeds import is_complete

pytestmark = pytest.mark.timeout(600)


def send(living: Living) -> None:
    """Messages to a queue that nobody reads."""
    living.send("orders", 10)


def take(living: Living) -> None:
    """Messages of which a consumer takes as many as its window has."""
    living.send("bills", 1_100)
    living.take("bills", share=1.0)


def commit(living: Living) -> None:
    """Messages that are sent in transactions, and stay."""
    for _ in range(12):
        living.transact()
    while living.open:
        living.decide()


def take_plain(living: Living) -> None:
    """Messages that live for ever, all of which a consumer takes."""
    living.put("bills", commits=True)
    living.take("bills", share=1.0)


def roll_back(living: Living) -> None:
    """A transaction that is rolled back, of messages to a queue that nobody reads; another queue has some."""
    living.send("orders", 3)
    living.put("bills", commits=False)
    client, session = living.open.pop()
    client.request(session, transact=pb.Transact(transaction=1, verb=pb.Transact.ROLLBACK))
    client.close()


def publish(living: Living) -> None:
    """Messages to a topic that has a bridge and a durable without a selector."""
    client = living.driver.client(client_id="plain")
    client.consumer(client.session(), topic("news.>"), subscription=pb.Subscription(name="all", durable=True))
    client.close()
    living.send("news.sport", 10)


@dataclass(frozen=True)
class Planted:
    """A fault, when it strikes, what is done meanwhile, and what an audit says of it."""

    fault: str
    nth: int
    history: Callable[[Living], None]
    audit: str
    what: str
    #: From the numbers that the fault has written down to the evidence that names its victim; the others are of
    #: messages by their producer and its number, which make their ids.
    where: Callable[[list[int]], Mapping[str, int]] | None = None
    #: Whether as many are there as the engine counted.
    balances: bool = False


def deliverable(victim: list[int]) -> Mapping[str, int]:
    """The source and the sequence."""
    return {"source": victim[0], "sequence": victim[1]}


def behind(victim: list[int]) -> Mapping[str, int]:
    """The next sequence of that source."""
    return {"source": victim[0], "sequence": victim[1] + 1}


def sequence(victim: list[int]) -> Mapping[str, int]:
    """The sequence alone."""
    return {"sequence": victim[1]}


def numbered(victim: list[int]) -> Mapping[str, int]:
    """The producer and its number."""
    return {"producer": victim[0], "number": victim[1]}


def stored(victim: list[int]) -> Mapping[str, int]:
    """The producer and its number, as records have it."""
    return {"producer": victim[0], "sequence": victim[1]}


FAULTS = (
    Planted("lose-arrival", 3, send, "conservation", "lost", deliverable),
    Planted("double-arrival", 4, send, "conservation", "appeared", behind),
    Planted("end-too-much", 1, take, "conservation", "lost", deliverable),
    Planted("end-too-little", 1, take, "conservation", "ended-and-there", deliverable),
    Planted("lose-in-commit", 2, commit, "conservation", "lost", deliverable),
    Planted("keep-in-rollback", 2, roll_back, "conservation", "appeared", deliverable),
    Planted("end-neighbour", 1, take, "conservation", "ended-and-there", deliverable, balances=True),
    Planted("lose-message", 5, send, "ledgers", "not-stored", numbered),
    Planted("change-body", 6, send, "ledgers", "altered", numbered),
    Planted("double-message", 7, send, "order", "stored-twice", stored),
    Planted("miss-bridge", 5, publish, "bridges", "missing-copy"),
    Planted("miss-subscription", 4, publish, "fan-out", "not-fanned-out"),
    Planted("wrong-queue", 8, send, "fan-out", "not-arrived"),
    Planted("expire-early", 1, take_plain, "endings", "expired-without-life", sequence),
)
#: Each fault's broker is looked at by these together, so that none takes a fault for something that it is not.
TOGETHER = (
    ("conservation", "counters", "ledgers"),
    # What these find of faults in the files every run shows.
    pytest.param(
        ("order", "bridges", "fan-out", "endings"),
        marks=pytest.mark.skipif(not is_complete(), reason="takes a minute, for make test-all"),
    ),
)


@pytest.fixture(scope="module")
def victims(tier_spark: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[int]]]:
    """A broker for each fault, with two cuts and a ledger; and what each fault hit."""
    root = tmp_path_factory.mktemp("faults")
    return root, {planted.fault: happened(root, number, planted) for number, planted in enumerate(FAULTS, 1)}


def happened(root: Path, number: int, planted: Planted) -> list[int]:
    """Lives through a fault; what it hit."""
    told = root / f"{planted.fault}.victim"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STERNA_PLANTED_FAULT", f"{planted.fault}:{planted.nth}")
        patch.setenv("STERNA_PLANTED_TOLD", str(told))
        living = Living(root / planted.fault, number, broker=planted.fault)
        living.manifests = manifests()
        # What is in no record no fault of records can be shown by.
        living.volatile = 0
        snapshots = Directory(root / "snapshots")
        book = living.write_down()
        living.cut(snapshots, PLAIN)
        planted.history(living)
        living.cut(snapshots, PLAIN)
        living.stop()
    book.keep(root / "books" / f"{planted.fault}.ledger", number)
    return [int(part) for part in told.read_text().split()]


@pytest.mark.parametrize("audits", TOGETHER, ids="+".join)
def test_each_fault_of_the_engine_is_found_at_the_exact_message(
    spark: SparkSession, victims: tuple[Path, dict[str, list[int]]], tmp_path: Path, audits: tuple[str, ...]
) -> None:
    root, hit = victims
    faults = [one for one in FAULTS if one.audit in audits]
    places = sorted(Place("bank", one.fault) for one in faults)
    history = open_history(spark, Directory(root / "snapshots"), VERIFIER, places=places)
    history.ledgers = convert(Directory(root / "books"), Directory(tmp_path), "tables")
    results = running.run(history, registry.audits(audits), Directory(tmp_path / "out")).results
    assert [result.error for result in results] == [""] * len(audits)
    said = {result.name: result.findings for result in results}
    for planted in faults:
        wrong = violations(said, planted.fault)
        exact = [one for one in wrong[planted.audit] if one.what == planted.what]
        if planted.where is None:
            producer, number = hit[planted.fault]
            [one] = exact
            assert one.message.startswith(f"ID:{planted.fault}.{producer:X}."), (hit[planted.fault], exact)
            assert one.message.endswith(f":{number}"), (hit[planted.fault], exact)
        else:
            where = planted.where(hit[planted.fault])
            assert [one for one in exact if where.items() <= one.evidence.items()], (planted.fault, where, wrong)
            assert exact[0].message.startswith("ID:"), exact
        # What the engine counted tells as much as its records where its tables alone are wrong, and nothing otherwise.
        others = {name: [one.what for one in found] for name, found in wrong.items() if name != planted.audit}
        is_of_tables = planted.audit == "conservation" and not planted.balances
        expected = {name: ["count-differs"] if is_of_tables and name == "counters" else [] for name in others}
        assert others == expected, (planted.fault, wrong)


def violations(said: Mapping[str, Sequence[Finding]], broker: str) -> dict[str, list[Finding]]:
    """What is wrong with a broker, by audit."""
    return {
        name: [one for one in found if one.broker == broker and one.verdict == "violated"]
        for name, found in said.items()
    }
