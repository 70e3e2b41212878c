"""Greetings, limits, silence, hostile bytes, going away."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sterna._proto.sterna.v1 import message_pb2 as message_pb
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna_core import Engine, EngineError, Selector, SelectorError, StoreError, selector_check

from tests.core.driver import Client, Driver, queue, text, texts


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path / "store", limits={"sessions": 2, "consumers": 1, "producers": 1, "temporaries": 1})
    yield driver
    driver.engine.stop()


def last_error(client: Client) -> pb.Error:
    error: pb.Error = client.of("error")[-1]
    return error


def stranger(driver: Driver) -> Client:
    """A stream that has not greeted."""
    driver.last_stream += 1
    client = Client(driver, driver.last_stream)
    driver.clients[client.stream] = client
    driver.engine.open_stream(client.stream, "test")
    return client


def test_welcome_tells_who_the_broker_is_and_what_holds(driver: Driver) -> None:
    welcome = driver.client(client_id="me", heartbeat_ms=5_000).of("welcome")[0]
    assert (welcome.broker, welcome.client_id, welcome.heartbeat_ms) == ("test", "me", 5_000)
    assert welcome.limits.sessions == 2
    assert welcome.epoch > 0
    assert len(welcome.store_id) == 32


def test_a_client_id_belongs_to_one_connection_at_a_time(driver: Driver) -> None:
    first = driver.client(client_id="me")
    assert last_error(driver.client(client_id="me")).code == pb.CLIENT_ID_IN_USE
    first.close()
    assert driver.client(client_id="me").of("welcome")


def test_a_stream_begins_with_a_greeting_in_a_version_that_is_spoken(driver: Driver) -> None:
    client = stranger(driver)
    client.send(pb.ClientFrame(open_session=pb.OpenSession()))
    assert last_error(client).code == pb.PROTOCOL_VIOLATION
    assert driver.engine.is_closing(client.stream)
    client = stranger(driver)
    client.send(pb.ClientFrame(hello=pb.Hello(protocol_version=2)))
    assert last_error(client).code == pb.UNSUPPORTED_VERSION


def test_each_limit_is_named_by_its_refusal(driver: Driver) -> None:
    client = driver.client()
    session = client.session()
    client.session()
    assert client.request(open_session=pb.OpenSession()).error.subject == "sessions"
    client.consumer(session, queue("q"))
    assert client.consumer(session, queue("q"), 2).error.subject == "consumers"
    client.producer(session, queue("q"))
    assert client.producer(session, queue("q"), 2).error.subject == "producers"
    client.request(create_temporary=pb.CreateTemporary(kind=message_pb.QUEUE))
    assert client.request(create_temporary=pb.CreateTemporary(kind=message_pb.QUEUE)).error.subject == "temporaries"
    client.raw(bytes(1 << 20) + b"x")
    assert (last_error(client).code, last_error(client).subject) == (pb.LIMIT_EXCEEDED, "frame_bytes")


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_hostile_bytes_end_their_own_stream_at_worst(driver: Driver, data: st.DataObject) -> None:
    client = driver.client()
    batch = pb.ClientBatch(
        frames=[
            pb.ClientFrame(session=1, open_session=pb.OpenSession()),
            pb.ClientFrame(session=1, open_producer=pb.OpenProducer(producer=1, destination=queue("q"))),
            pb.ClientFrame(session=1, publish=pb.Publish(producer=1, first_sequence=1, messages=[b"\x4a\x01x"])),
            pb.ClientFrame(
                session=1, acknowledge=pb.Ack(sets=[pb.AckSet(source=16, ranges=[pb.SequenceRange(first=1)])])
            ),
        ]
    ).SerializeToString()
    mangled = bytearray(batch)
    for _ in range(data.draw(st.integers(0, 4))):
        mangled[data.draw(st.integers(0, len(mangled) - 1))] = data.draw(st.integers(0, 255))
    client.raw(bytes(mangled) + data.draw(st.binary(max_size=60)))
    client.close()
    witness = driver.client()
    assert witness.session() > 0
    witness.close()


@pytest.mark.covers("EMS-CLI-B27", "EMS-CLI-B28")
def test_who_is_silent_too_long_is_given_up_and_heartbeats_go_out(driver: Driver) -> None:
    client = driver.client(heartbeat_ms=3_000)
    driver.advance(1_100)
    driver.poll()
    assert client.of("heartbeat")
    driver.advance(1_950)
    driver.poll()
    assert last_error(client).code == pb.IDLE
    assert driver.engine.is_closing(client.stream)


def test_who_was_heard_during_a_stall_of_the_broker_is_not_taken_for_silent(driver: Driver) -> None:
    talker, silent = driver.client(heartbeat_ms=3_000), driver.client(heartbeat_ms=3_000)
    driver.advance(40_000)  # nobody came in between: a suspended machine, or one frame that was worked on for so long
    driver.poll()
    assert [driver.engine.is_closing(one.stream) for one in (talker, silent)] == [False, False]
    talker.send(pb.ClientFrame(heartbeat=pb.Heartbeat()))
    driver.poll()
    driver.advance(2_000)
    driver.poll()
    assert not driver.engine.is_closing(talker.stream)
    assert last_error(silent).code == pb.IDLE


def test_who_does_not_read_is_cut_off_and_gives_back_what_it_had(driver: Driver) -> None:
    slow = driver.client(heartbeat_ms=600_000)
    slow.consumer(slow.session(), queue("q"))
    driver.clients.pop(slow.stream)
    sender = driver.client(heartbeat_ms=600_000)
    session = sender.session()
    sender.producer(session, queue("q"))
    sender.publish(session, 1, [text("1")])
    driver.wait(lambda: sender.confirmed() == {1})
    for _ in range(78):
        driver.advance(400)
        driver.poll()
    # The host is told before anybody takes the last output.
    told = driver.engine.ended_for(slow.stream)
    assert told is not None
    assert not driver.engine.is_closing(slow.stream)
    output = driver.engine.take_output(slow.stream, 1 << 20)
    assert output is not None
    slow.take(output)
    assert pb.Error.FromString(told) == last_error(slow)
    assert last_error(slow).code == pb.SLOW_CONSUMER
    assert driver.engine.ended_for(sender.stream) is None
    other = driver.client()
    other.consumer(other.session(), queue("q"))
    driver.wait(lambda: texts(other.deliveries()) == ["1"])
    assert not other.deliveries()[0].redelivered


def test_fields_of_older_clients_that_are_no_more_are_overlooked(driver: Driver) -> None:
    # As one asked to be kept without a stream: `detach_ms` was field 7 of Hello.
    asked = pb.Hello.FromString(pb.Hello(client_id="me").SerializeToString() + b"\x38\x90\x4e")
    client = driver.client(hello=asked)
    assert client.of("welcome")[0].client_id == "me"
    session = client.session(pb.CLIENT)
    client.producer(session, queue("q"))
    client.publish(session, 1, [text("1")])
    client.consumer(session, queue("q"))
    driver.wait(lambda: len(client.deliveries()) == 1)
    client.close()
    assert json.loads(driver.engine.connections()) == []
    other = driver.client(client_id="me")
    other.consumer(other.session(), queue("q"))
    driver.wait(lambda: [one.redelivered for one in other.deliveries()] == [True])


def test_frames_of_several_streams_of_one_connection_have_their_own_sessions(driver: Driver) -> None:
    first = driver.client()
    token = first.of("welcome")[0].connection_token
    session = first.session()
    second = driver.client(connection_token=token)
    assert second.of("welcome")[0].connection_token == token
    assert second.session() != session
    reply = second.producer(session, queue("q"))
    assert reply.error.code == pb.PROTOCOL_VIOLATION
    first.close()
    assert len(json.loads(driver.engine.connections())) == 1


def test_everybody_is_told_when_the_broker_goes_away(driver: Driver) -> None:
    client = driver.client()
    driver.engine.go_away("SHUTTING_DOWN", ["other:7222"], 500)
    driver.poll()
    go_away = client.of("go_away")[0]
    assert (go_away.reason.code, list(go_away.addresses), go_away.grace_ms) == (pb.SHUTTING_DOWN, ["other:7222"], 500)


def test_an_administrator_sees_and_closes_connections(driver: Driver) -> None:
    client = driver.client(client_id="me", product="test/1")
    row = json.loads(driver.engine.connections())[0]
    assert (row["client_id"], row["product"], row["peer"]) == ("me", "test/1", "test")
    assert driver.engine.close_connection(row["id"], "Enough.")
    driver.poll()
    assert last_error(client).message == "Enough."
    assert not driver.engine.close_connection(row["id"], "Again.")


def test_administration_lists_purges_and_deletes(driver: Driver) -> None:
    driver.engine.configure('{"queues": [{"name": "kept", "prefetch": 5}]}')
    client = driver.client()
    session = client.session()
    client.producer(session, queue("kept"))
    client.publish(session, 1, [text("1"), text("2")])
    driver.wait(lambda: client.confirmed() == {1, 2})
    rows = {row["name"]: row for row in json.loads(driver.engine.list("queue"))}
    assert rows["kept"]["statistics"]["messages"] == 2
    assert rows["kept"]["static"]
    assert "$sys.undelivered" in rows
    with pytest.raises(EngineError) as refused:
        driver.engine.delete("queue", "kept", False)
    assert refused.value.code == "IN_USE"
    outcome = json.loads(driver.engine.configure("{}"))
    assert outcome["refused"][0]["error"]["code"] == "IN_USE"
    assert driver.engine.purge("queue", "kept") == 2
    assert driver.engine.delete("queue", "kept", False) == 0
    with pytest.raises(EngineError) as refused:
        driver.engine.delete("queue", "kept", False)
    assert refused.value.code == "NO_SUCH_DESTINATION"
    assert json.loads(driver.engine.statistics())["broker"] == "test"


@pytest.mark.covers("EMS-STORE-A12")
def test_a_store_is_used_by_one_engine_at_a_time(driver: Driver) -> None:
    with pytest.raises(StoreError) as refused:
        Engine.open(str(driver.folder), "{}", 1, 1)
    assert refused.value.code == "LOCKED"


def test_selectors_are_checked_and_evaluated() -> None:
    assert Selector("carrier = 'UA' AND delay > 60").matches({"carrier": "UA", "delay": 61})
    assert not Selector("delay > 60").matches({"delay": None})
    with pytest.raises(SelectorError) as wrong:
        selector_check("a = = 1")
    assert wrong.value.offset == 4
    selector_check("JMSDestination LIKE 'Queue[%]'", undelivered=True)
