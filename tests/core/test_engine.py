"""The compiled engine from end to end: frames in, frames out, a real folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sterna._proto.sterna.v1 import messaging_pb2 as pb

from tests.core.driver import Driver, queue, text, texts


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path / "store")
    yield driver
    driver.engine.stop()


@pytest.mark.covers("EMS-CLI-A04", "EMS-MSG-A17")
def test_a_message_is_sent_confirmed_delivered_acknowledged_and_gone(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    assert client.producer(session, queue("orders")).producer_opened.credit.bytes_limit > 0
    client.publish(session, 1, [text("one"), text("two"), text("three")])
    driver.wait(lambda: client.confirmed() == {1, 2, 3})
    assert {range_.durability for confirm in client.of("confirm") for range_ in confirm.confirmed} == {pb.DURABLE}

    source = client.consumer(session, queue("orders")).consumer_opened.source
    driver.wait(lambda: len(client.deliveries()) == 3)
    assert texts(client.deliveries()) == ["one", "two", "three"]
    assert [delivery.sequence for delivery in client.deliveries()] == [1, 2, 3]
    assert not any(delivery.redelivered for delivery in client.deliveries())
    assert client.deliveries()[0].message_id.startswith("ID:test.")
    client.acknowledge(session, source, 1, 3)

    driver.restart()
    other = driver.client()
    session = other.session()
    other.consumer(session, queue("orders"))
    driver.poll()
    assert other.deliveries() == []
