"""Transactions of sends and acknowledgements."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sterna._proto.sterna.v1 import messaging_pb2 as pb

from tests.core.driver import Client, Driver, queue, text, texts


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path / "store")
    driver.engine.configure('{"queues": [{"name": "small", "maxMessages": 1, "prefetch": 5}]}')
    yield driver
    driver.engine.stop()


def transact(client: Client, session: int, number: int, verb: pb.Transact.Verb, **rest: Any) -> pb.Reply:
    return client.request(session, transact=pb.Transact(transaction=number, verb=verb, **rest))


@pytest.mark.covers("EMS-TX-A03")
def test_sends_take_effect_at_commit_with_one_answer_for_all(driver: Driver) -> None:
    client = driver.client()
    session = client.session(pb.TRANSACTED)
    client.producer(session, queue("q"))
    reader = driver.client()
    reader.consumer(reader.session(), queue("q"))
    client.publish(session, 1, [text("1"), text("2")], transaction=7)
    driver.poll()
    assert reader.deliveries() == []
    transacted = transact(client, session, 7, pb.Transact.COMMIT).transacted
    assert (transacted.transaction, transacted.durability, transacted.rolled_back) == (7, pb.DURABLE, False)
    driver.wait(lambda: texts(reader.deliveries()) == ["1", "2"])
    assert client.confirmed() == set()


def test_rolled_back_sends_never_arrive(driver: Driver) -> None:
    client = driver.client()
    session = client.session(pb.TRANSACTED)
    client.producer(session, queue("q"))
    client.publish(session, 1, [text("gone")], transaction=1)
    assert transact(client, session, 1, pb.Transact.ROLLBACK).transacted.rolled_back
    client.publish(session, 2, [text("kept")], transaction=2)
    transact(client, session, 2, pb.Transact.COMMIT)
    reader = driver.client()
    reader.consumer(reader.session(), queue("q"))
    driver.wait(lambda: texts(reader.deliveries()) == ["kept"])


@pytest.mark.covers("EMS-TX-A05")
def test_acknowledgements_take_effect_at_commit_and_come_back_flagged_at_rollback(driver: Driver) -> None:
    client = driver.client()
    filling = client.session()
    client.producer(filling, queue("q"))
    client.publish(filling, 1, [text("1"), text("2")])
    session = client.session(pb.TRANSACTED)
    source = client.consumer(session, queue("q")).consumer_opened.source
    driver.wait(lambda: len(client.deliveries()) == 2)
    client.acknowledge(session, source, 1, transaction=5)
    transact(client, session, 5, pb.Transact.ROLLBACK)
    driver.wait(lambda: len(client.deliveries()) == 4)
    again = client.deliveries()[2:]
    assert [(delivery.sequence, delivery.redelivered) for delivery in again] == [(1, True), (2, False)]
    client.acknowledge(session, source, 1, 2, transaction=6)
    transact(client, session, 6, pb.Transact.COMMIT)
    driver.restart()
    reader = driver.client()
    reader.consumer(reader.session(), queue("q"))
    driver.poll()
    assert reader.deliveries() == []


@pytest.mark.covers("EMS-TX-A02")
def test_a_refused_message_dooms_its_transaction(driver: Driver) -> None:
    client = driver.client()
    session = client.session(pb.TRANSACTED)
    client.producer(session, queue("q"), 1)
    client.producer(session, queue("small"), 2)
    client.publish(session, 1, [text("a")], 1, transaction=3)
    client.publish(session, 1, [text("b"), text("c")], 2, transaction=3)
    reply = transact(client, session, 3, pb.Transact.COMMIT)
    assert reply.error.code == pb.TRANSACTION_ROLLED_BACK
    reader = driver.client()
    reader.consumer(reader.session(), queue("q"), 1)
    reader.consumer(reader.session(), queue("small"), 2)
    driver.poll()
    assert reader.deliveries(1) == []
    assert reader.deliveries(2) == []


def test_what_a_session_began_is_rolled_back_when_it_ends(driver: Driver) -> None:
    client = driver.client()
    filling = client.session()
    client.producer(filling, queue("q"))
    client.publish(filling, 1, [text("1")])
    session = client.session(pb.TRANSACTED)
    source = client.consumer(session, queue("q")).consumer_opened.source
    driver.wait(lambda: len(client.deliveries()) == 1)
    client.acknowledge(session, source, 1, transaction=1)
    client.close()
    reader = driver.client()
    reader.consumer(reader.session(), queue("q"))
    driver.wait(lambda: len(reader.deliveries()) == 1)
    assert reader.deliveries()[0].redelivered


def test_a_prepared_transaction_outlives_its_session_and_the_process(driver: Driver) -> None:
    xid = pb.Xid(format=1, **{"global": b"g"}, branch=b"b")
    client = driver.client()
    session = client.session(pb.TRANSACTED)
    client.producer(session, queue("q"))
    client.publish(session, 1, [text("prepared")], transaction=1)
    assert transact(client, session, 1, pb.Transact.PREPARE).error.code == pb.INVALID_ARGUMENT
    assert transact(client, session, 1, pb.Transact.PREPARE, xid=xid).HasField("transacted")
    driver.restart()
    client = driver.client()
    session = client.session(pb.TRANSACTED)
    client.consumer(session, queue("q"))
    driver.poll()
    assert client.deliveries() == []
    assert transact(client, session, 0, pb.Transact.COMMIT_PREPARED, xid=xid).HasField("transacted")
    driver.wait(lambda: texts(client.deliveries()) == ["prepared"])
    again = transact(client, session, 0, pb.Transact.ROLLBACK_PREPARED, xid=xid)
    assert again.error.code == pb.NO_SUCH_TRANSACTION


def test_transactions_belong_to_transacted_sessions(driver: Driver) -> None:
    client = driver.client()
    plain, transacted = client.session(), client.session(pb.TRANSACTED)
    client.producer(plain, queue("q"), 1)
    client.producer(transacted, queue("q"), 2)
    client.publish(plain, 1, [text("x")], 1, transaction=1)
    client.publish(transacted, 1, [text("x")], 2)
    assert [rejected.error.code for rejected in client.of("rejected")] == [pb.NOT_ALLOWED, pb.NOT_ALLOWED]
    assert transact(client, plain, 1, pb.Transact.COMMIT).error.code == pb.NOT_ALLOWED
