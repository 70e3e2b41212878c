"""Producers: numbers, duplicates, refusals, credit, delivery modes, uploads."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sterna._proto.sterna.v1 import message_pb2 as message_pb
from sterna._proto.sterna.v1 import messaging_pb2 as pb

from tests.core.driver import Client, Driver, queue, text, texts, topic


def is_confirmed(client: Client, number: int) -> bool:
    return number in client.confirmed()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path / "store", limits={"message_bytes": 300_000})
    yield driver
    driver.engine.stop()


def receive(client: Client, name: str, count: int) -> list[pb.Delivery]:
    """Consumes from a queue until `count` messages have come."""
    session = client.session()
    client.consumer(session, queue(name), 77)
    client.driver.wait(lambda: len(client.deliveries(77)) == count)
    return client.deliveries(77)


def shown(opened: pb.ProducerOpened) -> dict[str, Any]:
    """What a producer shows of itself when it comes back."""
    return {"incarnation": opened.incarnation, "token": opened.token}


def test_a_reopened_producer_sends_again_without_a_second_copy(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    before = client.producer(session, queue("q")).producer_opened
    client.publish(session, 1, [text("1"), text("2")])
    driver.wait(lambda: client.confirmed() == {1, 2})
    driver.restart()
    client = driver.client()
    session = client.session()
    opened = client.producer(session, queue("q"), first_unconfirmed=2, **shown(before)).producer_opened
    assert (opened.incarnation, opened.last_sequence) == (before.incarnation, 2)
    client.publish(session, 2, [text("2"), text("3")])
    driver.wait(lambda: client.confirmed() == {2, 3})
    assert texts(receive(client, "q", 3)) == ["1", "2", "3"]


def test_a_gap_in_the_numbers_closes_the_producer(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    client.producer(session, queue("q"))
    client.publish(session, 2, [text("too soon")])
    # It is told behind what is on its way to the disk, here the opening.
    driver.wait(lambda: bool(client.of("producer_closed")))
    closed = client.of("producer_closed")
    assert closed[0].producer == 1
    assert closed[0].reason.code == pb.PROTOCOL_VIOLATION
    client.publish(session, 1, [text("nobody")])
    assert client.of("rejected")[0].error.code == pb.CLOSED


def test_what_is_known_of_an_incarnation_is_told_and_an_unknown_one_refused(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    old = client.producer(session, queue("q")).producer_opened
    reply = client.producer(session, queue("q"), 2, first_unconfirmed=1, **shown(old))
    assert reply.producer_opened.last_sequence == 0
    assert client.of("welcome")[0].start_id != 0
    for claimed in ({"incarnation": old.incarnation}, {"incarnation": old.incarnation + 1, "token": old.token}):
        reply = client.producer(session, queue("q"), 3, first_unconfirmed=1, **claimed)
        assert reply.error.code == pb.UNKNOWN_PRODUCER


@pytest.mark.covers("EMS-DEST-A45", "EMS-DEST-A44")
def test_nothing_is_sent_to_patterns_or_to_the_brokers_own_destinations(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    client.producer(session, None)
    for number, destination in enumerate((queue("a.*"), topic("a.>"), queue("$sys.undelivered"), queue("a..b")), 1):
        client.publish(session, number, [text("x")], destination=destination)
    codes = [rejected.error.code for rejected in client.of("rejected")]
    assert codes == [pb.INVALID_NAME, pb.INVALID_NAME, pb.NOT_ALLOWED, pb.INVALID_NAME]


def test_an_anonymous_producer_names_a_destination_each_time(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    client.producer(session, None)
    client.publish(session, 1, [text("a")], destination=queue("a"))
    client.publish(session, 2, [text("b")], destination=queue("b"))
    client.publish(session, 3, [text("nowhere")])
    driver.wait(lambda: client.confirmed() == {1, 2})
    assert client.of("rejected")[0].error.code == pb.INVALID_ARGUMENT
    assert texts(receive(client, "b", 1)) == ["b"]


@pytest.mark.covers("EMS-DEST-A03")
def test_a_destination_that_may_not_be_made_refuses_what_waited_for_the_answer_in_order(driver: Driver) -> None:
    def refuse(ticket: dict[str, object]) -> dict[str, object] | None:
        if ticket.get("name") == "no":
            return {"code": "NO_SUCH_DESTINATION", "subject": "no", "message": "No.", "remedy": "Ask."}
        return None

    driver.refuse = refuse
    client = driver.client()
    session = client.session()
    client.producer(session, None)
    frames = [
        pb.ClientFrame(
            session=session,
            publish=pb.Publish(
                producer=1,
                first_sequence=number,
                messages=[text(str(number)).SerializeToString()],
                destination=queue(name),
            ),
        )
        for number, name in enumerate(("no", "yes", "no"), 1)
    ]
    client.send(*frames)
    driver.wait(lambda: client.confirmed() == {2} and len(client.of("rejected")) == 2)
    assert [(r.first, r.error.code, r.error.remedy) for r in client.of("rejected")] == [
        (1, pb.NO_SUCH_DESTINATION, "Ask."),
        (3, pb.NO_SUCH_DESTINATION, "Ask."),
    ]
    assert client.consumer(session, queue("no")).error.code == pb.NO_SUCH_DESTINATION


@pytest.mark.covers("EMS-MSG-A19")
def test_reliable_messages_are_neither_confirmed_nor_refused(driver: Driver) -> None:
    driver.engine.configure('{"queues": [{"name": "small", "maxMessages": 1, "prefetch": 5}]}')
    client = driver.client()
    session = client.session()
    client.producer(session, queue("small"))
    messages = [text("1"), text("2", delivery_mode=message_pb.RELIABLE), text("3")]
    client.publish(session, 1, messages)
    driver.wait(lambda: client.confirmed() == {1})
    assert [(r.first, r.last, r.error.code) for r in client.of("rejected")] == [(3, 3, pb.DESTINATION_FULL)]
    client.publish(session, 4, [text("x", delivery_mode=message_pb.RELIABLE)], 9)
    assert len(client.of("rejected")) == 1


@pytest.mark.covers("EMS-MSG-A16", "EMS-MSG-A18")
def test_a_non_persistent_message_is_confirmed_as_accepted_and_lost_with_the_process(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    client.producer(session, queue("q"))
    client.publish(session, 1, [text("1", delivery_mode=message_pb.NON_PERSISTENT), text("2")])
    driver.wait(lambda: client.confirmed() == {1, 2})
    levels = {range_.first: range_.durability for confirm in client.of("confirm") for range_ in confirm.confirmed}
    assert levels == {1: pb.ACCEPTED, 2: pb.DURABLE}
    driver.restart()
    assert texts(receive(driver.client(), "q", 1)) == ["2"]


def test_invalid_messages_are_refused_one_by_one(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    client.producer(session, queue("q"))
    client.publish(session, 1, [text("1"), text("2", priority=10), text("3")])
    driver.wait(lambda: client.confirmed() == {1, 3})
    rejected = client.of("rejected")
    assert (rejected[0].first, rejected[0].last, rejected[0].error.code) == (2, 2, pb.INVALID_MESSAGE)


def test_credit_moves_on_as_messages_are_settled_and_nothing_beyond_it_is_taken(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    credit = client.producer(session, queue("q")).producer_opened.credit
    body = message_pb.Message(bytes=bytes(200_000))
    number = 0
    while number * 200_000 < credit.bytes_limit:
        number += 1
        client.publish(session, number, [body])
        driver.wait(partial(is_confirmed, client, number))
    grants = client.of("producer_credit")
    assert grants[-1].bytes_limit > credit.bytes_limit
    assert grants[-1].sequence_limit > number
    assert client.of("rejected") == []


def test_an_uploaded_body_is_delivered_beside_its_message_in_pieces_that_fit(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    client.producer(session, queue("q"))
    body = bytes(range(256)) * 1000
    for offset in range(0, len(body), 100_000):
        upload = pb.Upload(producer=1, upload_id=5, offset=offset, data=body[offset : offset + 100_000])
        assert client.request(session, upload=upload).HasField("done")
    looked_up = client.request(session, lookup=pb.Lookup(upload=pb.UploadKey(producer=1, upload_id=5))).looked_up
    assert looked_up.upload_bytes == len(body)
    message = message_pb.Message(type="large", uploaded=message_pb.UploadedBody(upload_id=5))
    client.publish(session, 1, [message])
    driver.wait(lambda: client.confirmed() == {1})
    client.publish(session, 2, [message])
    assert client.of("rejected")[0].error.code == pb.INVALID_MESSAGE

    other = driver.client()
    driver.clients.pop(other.stream)
    opening = pb.OpenConsumer(consumer=1, destination=queue("q"), credit=pb.Credit(message_limit=9))
    frames = [
        pb.ClientFrame(session=1, open_session=pb.OpenSession()),
        pb.ClientFrame(session=1, open_consumer=opening),
    ]
    other.send(*frames)
    pieces: list[pb.Delivery] = []

    def all_there() -> bool:
        while (output := driver.engine.take_output(other.stream, 64_000)) is not None:
            assert len(output) <= 64_000
            other.take(output)
        pieces[:] = other.deliveries()
        return sum(len(piece.uploaded) for piece in pieces) == len(body)

    driver.wait(all_there)
    assert len(pieces) > 1
    assert {piece.sequence for piece in pieces} == {1}
    assert pieces[0].uploaded_bytes == len(body)
    assert message_pb.Message.FromString(pieces[0].message).type == "large"
    assert all(not piece.message for piece in pieces[1:])
    assert b"".join(piece.uploaded for piece in pieces) == body


def test_uploads_are_bounded_and_follow_on(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    client.producer(session, queue("q"))
    reply = client.request(session, upload=pb.Upload(producer=1, upload_id=1, offset=5, data=b"x"))
    assert reply.error.code == pb.INVALID_ARGUMENT
    reply = client.request(session, upload=pb.Upload(producer=1, upload_id=1, data=bytes(300_001)))
    assert (reply.error.code, reply.error.subject) == (pb.LIMIT_EXCEEDED, "message_bytes")


@pytest.mark.covers("EMS-DEST-A03", "EMS-CLI-A28")
def test_a_temporary_destination_is_its_connections_own_and_ends_with_it(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    created = client.request(create_temporary=pb.CreateTemporary(kind=message_pb.QUEUE)).temporary_created
    name = created.destination.name
    assert name.startswith("$TMP$.")
    client.consumer(session, queue(name))
    other = driver.client()
    other_session = other.session()
    assert other.consumer(other_session, queue(name)).error.code == pb.NOT_ALLOWED
    other.producer(other_session, None)
    other.publish(other_session, 1, [text("reply")], destination=queue(name))
    driver.wait(lambda: texts(client.deliveries()) == ["reply"])
    delete = pb.DeleteTemporary(destination=queue(name))
    assert client.request(delete_temporary=delete).error.code == pb.IN_USE
    assert other.request(delete_temporary=delete).error.code == pb.NOT_ALLOWED
    client.close()
    other.publish(other_session, 2, [text("too late")], destination=queue(name))
    driver.wait(lambda: other.of("rejected") != [])
    assert other.of("rejected")[0].error.code == pb.NO_SUCH_DESTINATION


@pytest.mark.parametrize("crash", [False, True], ids=["connection lost", "broker killed"])
def test_a_refused_number_that_is_sent_again_is_not_taken_for_one_that_arrived(driver: Driver, crash: bool) -> None:
    driver.engine.configure('{"queues": [{"name": "one", "maxMessages": 1, "prefetch": 5}]}')
    client = driver.client()
    session = client.session()
    before = client.producer(session, queue("one")).producer_opened
    client.publish(session, 1, [text("1"), text("2")])
    driver.wait(lambda: client.confirmed() == {1} and client.of("rejected") != [])
    source = client.consumer(session, queue("one")).consumer_opened.source
    driver.wait(lambda: len(client.deliveries()) == 1)
    client.acknowledge(session, source, 1)
    client.publish(session, 3, [text("3")])
    driver.wait(lambda: client.confirmed() == {1, 3} and len(client.deliveries()) == 2)
    client.acknowledge(session, source, 2)
    if crash:
        driver.restart(clean=False)
    else:
        client.close()
    client = driver.client()
    session = client.session()
    client.producer(session, queue("one"), first_unconfirmed=2, **shown(before))
    client.publish(session, 2, [text("2"), text("3")])
    driver.wait(lambda: client.confirmed() == {2, 3})
    assert texts(receive(client, "one", 1)) == ["2"]
