"""Consumers: credit, sharing a queue, giving back, browsing, subscriptions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sterna._proto.sterna.v1 import messaging_pb2 as pb

from tests.core.driver import Client, Driver, queue, text, texts, topic


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path / "store")
    yield driver
    driver.engine.stop()


def fill(client: Client, count: int, name: str = "q", **header: object) -> None:
    """Sends `count` messages to a queue and waits for their confirmation."""
    session = client.session()
    number = 900 + len(client.of("confirm"))
    client.producer(session, queue(name), number)
    client.publish(session, 1, [text(str(index), **header) for index in range(1, count + 1)], number)
    client.driver.wait(lambda: len(client.confirmed(number)) == count)


def seen(source: int, first: int, last: int) -> list[pb.SeenSet]:
    return [pb.SeenSet(source=source, ranges=[pb.SequenceRange(first=first, last=last)])]


@pytest.mark.covers("EMS-DEST-A01", "EMS-DEST-A13")
def test_receivers_with_credit_take_turns_one_message_each_a_round(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    for number in (1, 2, 3):
        client.consumer(session, queue("q"), number, credit=2 if number == 2 else 100)
    fill(client, 8)
    driver.wait(lambda: sum(len(client.deliveries(number)) for number in (1, 2, 3)) == 8)
    counts = [len(client.deliveries(number)) for number in (1, 2, 3)]
    assert counts == [3, 2, 3]
    handed = sorted(delivery.sequence for number in (1, 2, 3) for delivery in client.deliveries(number))
    assert handed == list(range(1, 9))


@pytest.mark.covers("EMS-DEST-A12")
def test_an_exclusive_queue_serves_its_first_consumer_and_then_the_next(driver: Driver) -> None:
    driver.engine.configure('{"queues": [{"name": "x", "exclusive": true, "prefetch": 5}]}')
    first, second = driver.client(), driver.client()
    for client in (first, second):
        client.consumer(client.session(), queue("x"))
    fill(first, 3, "x")
    driver.wait(lambda: len(first.deliveries()) == 3)
    assert second.deliveries() == []
    first.close()
    driver.wait(lambda: len(second.deliveries()) == 3)
    assert all(delivery.redelivered for delivery in second.deliveries())


def test_credit_bounds_what_is_sent_and_drain_says_when_there_is_no_more(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    fill(client, 5)
    client.consumer(session, queue("q"), credit=2)
    driver.wait(lambda: len(client.deliveries()) == 2)
    client.send(pb.ClientFrame(session=session, credit=pb.Credit(consumer=1, message_limit=10, drain=True)))
    driver.wait(lambda: client.of("drained") != [])
    assert len(client.deliveries()) == 5
    assert client.of("drained")[0].message_limit == 10
    fill(client, 1)
    driver.poll()
    assert len(client.deliveries()) == 5
    client.send(pb.ClientFrame(session=session, credit=pb.Credit(consumer=1, message_limit=11)))
    driver.wait(lambda: len(client.deliveries()) == 6)


@pytest.mark.covers("EMS-MSG-A15")
def test_a_backlog_is_delivered_by_priority_and_in_order_within_each(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    client.producer(session, queue("q"))
    messages = [text(f"{priority}.{index}", priority=priority) for index in range(3) for priority in (0, 9, 4)]
    client.publish(session, 1, messages)
    driver.wait(lambda: len(client.confirmed()) == 9)
    client.consumer(session, queue("q"))
    driver.wait(lambda: len(client.deliveries()) == 9)
    expected = [f"{priority}.{index}" for priority in (9, 4, 0) for index in range(3)]
    assert texts(client.deliveries()) == expected


@pytest.mark.covers("EMS-DEST-A23", "EMS-CLI-A05")
def test_a_clean_close_counts_what_was_seen_and_a_crash_counts_all_that_was_sent(driver: Driver) -> None:
    watcher = driver.client()
    fill(watcher, 4)
    client = driver.client()
    session = client.session(pb.CLIENT)
    source = client.consumer(session, queue("q")).consumer_opened.source
    driver.wait(lambda: len(client.deliveries()) == 4)
    client.request(session, close_session=pb.CloseSession(seen=seen(source, 1, 2)))

    crashing = driver.client()
    crashing.consumer(crashing.session(pb.CLIENT), queue("q"))
    driver.wait(lambda: len(crashing.deliveries()) == 4)
    assert [delivery.redelivered for delivery in crashing.deliveries()] == [True, True, False, False]
    assert [delivery.delivery_count or 1 for delivery in crashing.deliveries()] == [2, 2, 1, 1]
    crashing.close()

    watcher.consumer(watcher.session(), queue("q"))
    driver.wait(lambda: len(watcher.deliveries()) == 4)
    assert [delivery.delivery_count for delivery in watcher.deliveries()] == [3, 3, 2, 2]
    assert all(delivery.redelivered for delivery in watcher.deliveries())


def test_recover_delivers_everything_again_in_order_with_what_was_seen_flagged(driver: Driver) -> None:
    client = driver.client()
    fill(client, 4)
    session = client.session(pb.CLIENT)
    source = client.consumer(session, queue("q")).consumer_opened.source
    driver.wait(lambda: len(client.deliveries()) == 4)
    client.acknowledge(session, source, 2)
    before = len(client.deliveries())
    client.request(session, recover=pb.Recover(seen=seen(source, 1, 3)))
    driver.wait(lambda: len(client.deliveries()) == before + 3)
    again = client.deliveries()[before:]
    assert [delivery.sequence for delivery in again] == [1, 3, 4]
    assert [delivery.redelivered for delivery in again] == [True, True, False]


def test_released_messages_go_back_to_their_place(driver: Driver) -> None:
    client = driver.client()
    fill(client, 3)
    session = client.session(pb.EXPLICIT_CLIENT)
    source = client.consumer(session, queue("q"), credit=3).consumer_opened.source
    driver.wait(lambda: len(client.deliveries()) == 3)
    sets = [pb.AckSet(source=source, ranges=[pb.SequenceRange(first=1, last=2)])]
    client.request(session, release=pb.Release(sets=sets, seen=True))
    other = driver.client()
    other.consumer(other.session(), queue("q"))
    driver.wait(lambda: len(other.deliveries()) == 2)
    assert [(delivery.sequence, delivery.redelivered) for delivery in other.deliveries()] == [(1, True), (2, True)]


def test_a_session_cannot_acknowledge_what_another_holds(driver: Driver) -> None:
    client = driver.client()
    fill(client, 1)
    session = client.session(pb.CLIENT)
    source = client.consumer(session, queue("q")).consumer_opened.source
    driver.wait(lambda: len(client.deliveries()) == 1)
    other = driver.client()
    other.acknowledge(other.session(pb.CLIENT), source, 1)
    client.close()
    other.consumer(other.session(), queue("q"))
    driver.wait(lambda: len(other.deliveries()) == 1)


@pytest.mark.covers("EMS-CLI-A06")
def test_without_acknowledgement_the_broker_forgets_what_it_sent(driver: Driver) -> None:
    client = driver.client()
    fill(client, 3)
    session = client.session(pb.NONE)
    client.consumer(session, queue("q"))
    driver.wait(lambda: len(client.deliveries()) == 3)
    client.close()
    other = driver.client()
    other.consumer(other.session(), queue("q"))
    driver.poll()
    assert other.deliveries() == []
    named = driver.client(client_id="me")
    refused = named.consumer(named.session(pb.NONE), topic("t"), subscription=pb.Subscription(name="d", durable=True))
    assert refused.error.code == pb.NOT_ALLOWED


@pytest.mark.covers("EMS-CLI-A07")
def test_an_explicit_acknowledgement_covers_that_message_alone(driver: Driver) -> None:
    client = driver.client()
    fill(client, 3)
    session = client.session(pb.EXPLICIT_CLIENT)
    source = client.consumer(session, queue("q")).consumer_opened.source
    driver.wait(lambda: len(client.deliveries()) == 3)
    client.acknowledge(session, source, 2)
    client.close()
    other = driver.client()
    other.consumer(other.session(), queue("q"))
    driver.wait(lambda: len(other.deliveries()) == 2)
    assert [delivery.sequence for delivery in other.deliveries()] == [1, 3]


def test_closing_a_consumer_keeps_what_was_seen_with_the_session(driver: Driver) -> None:
    client = driver.client()
    fill(client, 4)
    session = client.session(pb.CLIENT)
    source = client.consumer(session, queue("q")).consumer_opened.source
    driver.wait(lambda: len(client.deliveries()) == 4)
    client.request(session, close_consumer=pb.CloseConsumer(consumer=1, seen=seen(source, 1, 2)))
    other = driver.client()
    other.consumer(other.session(), queue("q"))
    driver.wait(lambda: len(other.deliveries()) == 2)
    assert [(delivery.sequence, delivery.redelivered) for delivery in other.deliveries()] == [(3, False), (4, False)]
    client.acknowledge(session, source, 1)
    client.request(session, close_session=pb.CloseSession(seen=seen(source, 2, 2)))
    driver.wait(lambda: len(other.deliveries()) == 3)
    assert other.deliveries()[2].sequence == 2
    assert other.deliveries()[2].redelivered


def test_a_browser_sees_everything_once_takes_nothing_and_ends(driver: Driver) -> None:
    client = driver.client()
    fill(client, 3)
    session = client.session()
    client.consumer(session, queue("q"), 5, browse=True)
    driver.wait(lambda: client.of("drained") != [])
    assert texts(client.deliveries(5)) == ["1", "2", "3"]
    client.consumer(session, queue("q"), 6)
    driver.wait(lambda: len(client.deliveries(6)) == 3)
    assert not any(delivery.redelivered for delivery in client.deliveries(6))


def test_a_selector_chooses_on_queues(driver: Driver) -> None:
    client = driver.client()
    fill(client, 2, type="a")
    fill(client, 3, type="b")
    session = client.session()
    client.consumer(session, queue("q"), selector="JMSType = 'b'")
    driver.wait(lambda: len(client.deliveries()) == 3)
    assert [delivery.sequence for delivery in client.deliveries()] == [3, 4, 5]
    refused = client.consumer(session, queue("q"), 2, selector="JMSType = ")
    assert refused.error.code == pb.INVALID_SELECTOR
    assert refused.error.offset > 0
    refused = client.consumer(session, queue("q"), 2, selector="JMSDestination = 'Queue[x]'")
    assert refused.error.code == pb.INVALID_SELECTOR
    undelivered = client.consumer(session, queue("$sys.undelivered"), 2, selector="JMSDestination = 'Queue[x]'")
    assert undelivered.HasField("consumer_opened")


@pytest.mark.covers("EMS-DEST-A02", "EMS-DEST-A44")
def test_a_topic_reaches_all_who_listen_by_name_or_pattern(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    for number, name in ((1, "a.b"), (2, "a.*"), (3, "a.>"), (4, "c.>")):
        assert client.consumer(session, topic(name), number).HasField("consumer_opened")
    client.producer(session, topic("a.b"))
    client.publish(session, 1, [text("hello")])
    driver.wait(lambda: all(client.deliveries(number) for number in (1, 2, 3)))
    assert client.deliveries(4) == []
    assert not client.deliveries(1)[0].HasField("destination")
    assert client.deliveries(2)[0].destination.name == "a.b"
    assert client.producer(session, topic("a.*"), 2).error.code == pb.INVALID_NAME


@pytest.mark.covers("EMS-DEST-A45")
def test_queues_take_no_wildcards(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    assert client.consumer(session, queue("a.>")).error.code == pb.INVALID_NAME
    assert client.producer(session, queue("a.*")).error.code == pb.INVALID_NAME


@pytest.mark.covers("EMS-CLI-A01")
def test_a_durable_collects_while_offline_and_ends_with_unsubscribe(driver: Driver) -> None:
    durable = pb.Subscription(name="news", durable=True)
    client = driver.client(client_id="me")
    session = client.session()
    client.consumer(session, topic("t"), subscription=durable)
    assert client.consumer(session, topic("t"), 2, subscription=durable).error.code == pb.IN_USE
    assert client.request(session, unsubscribe=pb.Unsubscribe(name="news")).error.code == pb.IN_USE
    client.close()
    sender = driver.client()
    session = sender.session()
    sender.producer(session, topic("t"))
    sender.publish(session, 1, [text("kept")])
    driver.wait(lambda: sender.confirmed() == {1})
    assert sender.of("confirm")[0].confirmed[0].durability == pb.DURABLE

    driver.restart()
    client = driver.client(client_id="me")
    session = client.session()
    source = client.consumer(session, topic("t"), subscription=durable).consumer_opened.source
    driver.wait(lambda: texts(client.deliveries()) == ["kept"])
    client.acknowledge(session, source, 1)
    client.request(session, close_consumer=pb.CloseConsumer(consumer=1))
    assert client.request(session, unsubscribe=pb.Unsubscribe(name="news")).HasField("done")
    assert client.request(session, unsubscribe=pb.Unsubscribe(name="news")).error.code == pb.NO_SUCH_SUBSCRIPTION


def test_a_shared_durable_that_belongs_to_nobody_is_looked_at_by_anybody(driver: Driver) -> None:
    worker = driver.client()
    shared = pb.Subscription(name="workers", durable=True, shared=True)
    worker.consumer(worker.session(), topic("news"), subscription=shared)
    worker.close()
    client = driver.client()
    session = client.session()
    client.producer(session, topic("news"))
    client.publish(session, 1, [text("kept")])
    driver.wait(lambda: client.confirmed() == {1})
    looked = pb.Subscription(name="workers", durable=True)
    client.consumer(session, topic("news"), 5, subscription=looked, browse=True)
    driver.wait(lambda: texts(client.deliveries(5)) == ["kept"])
    unknown = pb.Subscription(name="nobody", durable=True)
    reply = client.consumer(session, topic("news"), 6, subscription=unknown, browse=True)
    assert reply.error.code == pb.NO_SUCH_SUBSCRIPTION
    reply = client.consumer(session, topic("news"), 7, subscription=looked)
    assert (reply.error.code, reply.error.subject) == (pb.INVALID_ARGUMENT, "client_id")


def test_a_durable_with_another_selector_is_a_new_one(driver: Driver) -> None:
    client = driver.client(client_id="me")
    session = client.session()
    durable = pb.Subscription(name="d", durable=True)
    client.consumer(session, topic("t"), subscription=durable)
    client.request(session, close_consumer=pb.CloseConsumer(consumer=1))
    client.producer(session, topic("t"))
    client.publish(session, 1, [text("lost")])
    driver.wait(lambda: client.confirmed() == {1})
    opened = client.consumer(session, topic("t"), subscription=durable, selector="x = 1").consumer_opened
    assert opened.replaced
    driver.poll()
    assert client.deliveries() == []


@pytest.mark.covers("EMS-CLI-A02", "EMS-CLI-A03")
def test_a_shared_subscription_gives_each_message_to_one_of_its_group(driver: Driver) -> None:
    shared = pb.Subscription(name="group", shared=True)
    client = driver.client()
    session = client.session()
    for number in (1, 2):
        assert client.consumer(session, topic("t"), number, subscription=shared).HasField("consumer_opened")
    client.consumer(session, topic("t"), 3)
    assert client.consumer(session, topic("u"), 4, subscription=shared).error.code == pb.CONFLICT
    client.producer(session, topic("t"))
    client.publish(session, 1, [text(str(index)) for index in range(6)])
    driver.wait(lambda: len(client.deliveries(3)) == 6 and len(client.deliveries(1) + client.deliveries(2)) == 6)
    assert len(client.deliveries(1)) == len(client.deliveries(2)) == 3


def test_no_local_leaves_out_what_the_own_connection_published(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    client.consumer(session, topic("t"), no_local=True)
    client.consumer(session, topic("t"), 2)
    client.producer(session, topic("t"))
    client.publish(session, 1, [text("own")])
    other = driver.client()
    session = other.session()
    other.producer(session, topic("t"))
    other.publish(session, 1, [text("other")])
    driver.wait(lambda: len(client.deliveries(2)) == 2)
    assert texts(client.deliveries(1)) == ["other"]
