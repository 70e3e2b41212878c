"""The session stream over real gRPC: greeting, sending and taking, limits, bad bytes, clients that do not read."""

import asyncio
import time
from collections import Counter
from typing import Any

import aiohttp
import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sterna._proto.sterna.v1 import message_pb2 as messages
from sterna._proto.sterna.v1 import messaging_pb2 as messaging

from tests.broker.wire import BIG, FrameError, Wire, body_of, lazy_stream, queue, text, topic
from tests.running import ANYTHING, manifest
from tests.waiting import eventually


async def test_what_is_sent_is_confirmed_and_delivered_in_order(node: Any, wire: Any) -> None:
    client = await wire(await node())
    session = await client.session()
    await client.producer(session, queue("orders"))
    await client.publish(session, [text(f"m{number}") for number in range(100)])
    confirmed = await client.confirmed(100)
    assert confirmed.durability == messaging.DURABLE
    opened = await client.consumer(session, queue("orders"))
    deliveries = await client.deliveries(100)
    assert [body_of(delivery) for delivery in deliveries] == [f"m{number}" for number in range(100)]
    await client.acknowledge(session, opened.source, deliveries[0].sequence, deliveries[-1].sequence)
    await client.goodbye()
    assert await client.status() is grpc.StatusCode.OK


async def test_welcome_tells_the_limits_that_the_manifest_sets(node: Any, wire: Any) -> None:
    settings = manifest(
        "Broker", "main", "name: tern, limits: {sessions: 2, frameBytes: 70000, transactions: 7, transactionMs: 500}"
    )
    client = await wire(await node([*ANYTHING, settings]))
    assert client.welcome.broker == "tern"
    told = client.welcome.limits
    assert (told.sessions, told.frame_bytes, told.transactions, told.transaction_messages) == (2, 70_000, 7, 262_144)
    assert told.transaction_ms == 500
    await client.session()
    await client.session()
    with pytest.raises(FrameError, match=r"LIMIT_EXCEEDED \(sessions\)"):
        await client.session()


@pytest.mark.covers("EMS-CLI-B24")
async def test_too_many_connections_are_refused_naming_the_limit(node: Any, wire: Any) -> None:
    running = await node([*ANYTHING, manifest("Broker", "main", "limits: {connections: 2}")])
    await wire(running)
    second = await wire(running)
    third = await wire(running, greet=False)
    assert await third.status() is grpc.StatusCode.RESOURCE_EXHAUSTED
    error = messaging.Error.FromString(dict(await third.call.trailing_metadata())["sterna-error-bin"])
    assert (error.code, error.subject, error.retryable) == (messaging.LIMIT_EXCEEDED, "connections", True)
    await second.goodbye()
    assert await second.status() is grpc.StatusCode.OK
    await wire(running)


@pytest.mark.parametrize("batch", [b"\xff\xff\xff", b"\x0a\x7f", b"\x0a\x05hello", b"\x00" * 100])
async def test_bytes_that_are_no_frames_end_their_own_stream_alone(node: Any, wire: Any, batch: bytes) -> None:
    running = await node()
    good, bad = await wire(running), await wire(running)
    await bad.call.write(batch)
    error = (await bad.next("error")).error
    assert messaging.ErrorCode.Name(error.code) in {"MALFORMED_FRAME", "PROTOCOL_VIOLATION"}
    assert error.message
    assert error.remedy
    await asyncio.wait_for(bad.call.code(), 10)
    await good.session()


async def test_a_frame_before_hello_is_refused(node: Any, wire: Any) -> None:
    client = await wire(await node(), greet=False)
    client.read()
    await client.send(messaging.ClientFrame(open_session=messaging.OpenSession()))
    assert (await client.next("error")).error.code == messaging.PROTOCOL_VIOLATION


async def test_another_version_of_the_protocol_is_refused_naming_ours(node: Any, wire: Any) -> None:
    client = await wire(await node(), greet=False)
    client.read()
    await client.send(messaging.ClientFrame(hello=messaging.Hello(protocol_version=99)))
    error = (await client.next("error")).error
    assert error.code == messaging.UNSUPPORTED_VERSION
    assert "1" in error.message


async def test_a_batch_beyond_the_frame_limit_is_refused_naming_it(node: Any, wire: Any) -> None:
    running = await node([*ANYTHING, manifest("Broker", "main", "limits: {frameBytes: 65536}")])
    client = await wire(running)
    session = await client.session()
    await client.producer(session, queue("a"))
    await client.publish(session, [text("x" * 70_000)])
    error = (await client.next("error")).error
    assert (error.code, error.subject) == (messaging.LIMIT_EXCEEDED, "frame_bytes")


async def test_a_batch_beyond_all_bounds_never_reaches_the_engine(node: Any, wire: Any) -> None:
    client = await wire(await node())
    await client.call.write(b"x" * (17 * 1024 * 1024))
    assert await client.status() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.covers("EMS-DEST-A46")
async def test_a_destination_that_no_entry_allows_is_refused_saying_which_would(node: Any, wire: Any) -> None:
    client = await wire(await node([manifest("Queue", "a", "name: 'a.*'"), manifest("Topic", "t", "name: news")]))
    session = await client.session()
    await client.producer(session, queue("a.b"), number=1)
    await client.producer(session, topic("news"), number=2)
    for number, (destination, entry) in enumerate(
        [(queue("a.b.c"), "'a.b.>'"), (queue("x"), "'>'"), (topic("a.b"), "'a.>'")], start=3
    ):
        with pytest.raises(FrameError) as caught:
            await client.producer(session, destination, number=number)
        assert caught.value.code == "NO_SUCH_DESTINATION"
        assert caught.value.error.subject == destination.name
        assert entry in caught.value.error.remedy


@pytest.mark.covers("EMS-DEST-A45", "EMS-CLI-C03")
async def test_queues_are_neither_sent_to_nor_received_from_by_wildcard(node: Any, wire: Any) -> None:
    client = await wire(await node())
    session = await client.session()
    for name in ("a.*", "a.>", ">"):
        with pytest.raises(FrameError, match="INVALID_NAME"):
            await client.producer(session, queue(name))
        with pytest.raises(FrameError, match="INVALID_NAME"):
            await client.consumer(session, queue(name))


@pytest.mark.covers("EMS-DEST-A44")
async def test_topics_are_subscribed_by_wildcard_and_published_by_name_alone(node: Any, wire: Any) -> None:
    running = await node([manifest("Topic", "foo", "name: 'foo.*'")])
    client = await wire(running)
    session = await client.session()
    await client.consumer(session, topic("foo.>"), number=1)
    # Nothing matching is configured: the subscription is taken, and gets nothing.
    await client.consumer(session, topic("other.*"), number=2)
    with pytest.raises(FrameError, match="INVALID_NAME"):
        await client.producer(session, topic("foo.*"))
    await client.producer(session, topic("foo.bar"))
    await client.publish(session, [text("hello")])
    [delivery] = await client.deliveries(1)
    assert (body_of(delivery), delivery.destination.name) == ("hello", "foo.bar")
    with pytest.raises(FrameError, match="NO_SUCH_DESTINATION"):
        await client.producer(session, topic("other.x"), number=2)


async def test_a_half_closed_stream_gets_what_the_broker_has_to_say(node: Any, wire: Any) -> None:
    client = await wire(await node(), greet=False)
    client.read()
    await client.send(messaging.ClientFrame(hello=messaging.Hello(protocol_version=1)))
    await client.next("welcome")
    await client.call.done_writing()
    assert await client.status() is grpc.StatusCode.OK


async def test_a_client_that_vanishes_gives_back_what_it_held(node: Any, wire: Any) -> None:
    running = await node()
    first, second = await wire(running), await wire(running)
    session = await first.session()
    await first.producer(session, queue("a"))
    await first.publish(session, [text("m")])
    await first.confirmed(1)
    await first.consumer(session, queue("a"))
    await first.deliveries(1)
    first.close()
    await second.consumer(await second.session(), queue("a"))
    [delivery] = await second.deliveries(1)
    assert (body_of(delivery), delivery.redelivered, delivery.delivery_count) == ("m", True, 2)


async def test_a_client_that_does_not_read_is_cut_off_and_slows_nobody(node: Any, wire: Any, channel_to: Any) -> None:
    running = await node([*ANYTHING, manifest("Broker", "main", "slowConsumerMs: 2000")])
    lazy = await lazy_stream(channel_to(running))
    client = await wire(running)
    session = await client.session()
    await client.fill(session)
    # Everybody else goes on meanwhile, and after the cut gets what the lazy one held.
    await client.consumer(session, queue("big"), credit=BIG)
    received = await client.deliveries(BIG)
    assert len(received) == BIG
    assert await reason_of_the_end(lazy) == messaging.SLOW_CONSUMER


@pytest.mark.parametrize(
    ("slow_ms", "heartbeat_ms", "code"),
    [(500, 0, "SLOW_CONSUMER"), (2_000, 0, "SLOW_CONSUMER"), (60_000, 1_000, "IDLE")],
)
async def test_a_stuck_stream_ends_soon_and_counts_once_under_what_it_was_ended_for(
    node: Any, wire: Any, channel_to: Any, slow_ms: int, heartbeat_ms: int, code: str
) -> None:
    running = await node([*ANYTHING, manifest("Broker", "main", f"slowConsumerMs: {slow_ms}")], open_metrics=True)
    client = await wire(running)
    await client.fill(await client.session())
    before = await cut_streams(running)
    lazy = await lazy_stream(channel_to(running), heartbeat_ms=heartbeat_ms)
    calls = running._parts.connect
    await eventually(lambda: calls.calls == 2, what="the stream")
    await eventually(lambda: calls.calls == 1, timeout_s=20, what="its end")
    assert await cut_streams(running) == before + Counter({code: 1})
    assert messaging.ErrorCode.Name(await reason_of_the_end(lazy)) == code


async def cut_streams(running: Any) -> Counter[str]:
    """How many streams were cut, by code, as the broker's metrics say."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{running.monitor}/metrics") as response:
        families = list(text_string_to_metric_families(await response.text()))
    samples = [sample for family in families for sample in family.samples if sample.name == "sterna_streams_cut_total"]
    return Counter({sample.labels["code"]: int(sample.value) for sample in samples})


async def reason_of_the_end(call: Any) -> int:
    """Why a stream ended: by a last error frame, or, where none could get through, by the status of the call."""
    reason = 0
    try:
        while (data := await asyncio.wait_for(call.read(), 10)) is not grpc.aio.EOF:
            for frame in messaging.ServerBatch.FromString(data).frames:
                reason = frame.error.code or reason
    except grpc.aio.AioRpcError as error:
        return messaging.Error.FromString(dict(error.trailing_metadata())["sterna-error-bin"]).code
    return reason


async def test_a_flood_of_small_batches_leaves_others_their_share(node: Any, wire: Any) -> None:
    running = await node()
    flood, other = await wire(running), await wire(running)
    session = await flood.session()
    await flood.producer(session, queue("flood"))
    published = 0

    async def send_without_end() -> None:
        nonlocal published
        while True:
            await flood.publish(session, [text("x")] * 10, first=published + 1)
            published += 10

    task = asyncio.create_task(send_without_end())
    try:
        await eventually(lambda: published > 200, what="the flood")
        took = []
        for _ in range(5):
            began = time.monotonic()
            await asyncio.wait_for(other.session(), 20)
            took.append(time.monotonic() - began)
        # A flood that others wait for holds up every one of them, a busy machine any one.
        assert min(took) < 2
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_streams_of_one_connection_share_it(node: Any, wire: Any) -> None:
    running = await node()
    first = await wire(running, client_id="c")
    second: Wire = await wire(running, connection_token=first.welcome.connection_token)
    assert second.welcome is not None
    assert second.welcome.connection_token == first.welcome.connection_token
    assert second.welcome.client_id == "c"
    with pytest.raises(FrameError, match="CLIENT_ID_IN_USE"):
        await wire(running, client_id="c")


async def test_a_token_that_nobody_can_check_is_refused(node: Any, wire: Any) -> None:
    with pytest.raises(FrameError, match=r"UNAUTHENTICATED \(credentials\)"):
        await wire(await node(), credentials=messaging.Credentials(token="secret"))


@pytest.mark.covers("EMS-MSG-A25")
@pytest.mark.parametrize("field", ["bytes_value", "array_value", "map_value", "stream_value"])
async def test_no_client_sends_a_property_of_bytes_or_what_nests(node: Any, wire: Any, field: str) -> None:
    client = await wire(await node())
    session = await client.session()
    await client.producer(session, queue("q"))
    nested: dict[str, Any] = {
        "bytes_value": b"b",
        "array_value": messages.Array(),
        "map_value": messages.MapBody(),
        "stream_value": messages.StreamBody(),
    }
    value = messages.Value(**{field: nested[field]})
    refused = messages.Message(text="m", properties=[messages.Property(name="p", value=value)])
    fine = messages.Message(text="m", properties=[messages.Property(name="p", value=messages.Value(string_value="b"))])
    await client.publish(session, [refused.SerializeToString(), fine.SerializeToString()])
    error = (await client.next("rejected")).rejected.error
    assert (error.code, error.subject) == (messaging.INVALID_MESSAGE, "properties")
    assert (await client.confirmed(2)).first == 2


@pytest.mark.covers("EMS-MSG-B01", "UM-MSG-A02")
async def test_a_message_beyond_the_limit_that_is_set_is_refused_and_one_at_it_is_not(node: Any, wire: Any) -> None:
    client = await wire(await node([*ANYTHING, manifest("Broker", "main", "limits: {messageBytes: 65536}")]))
    session = await client.session()
    await client.producer(session, queue("q"))
    await client.publish(session, [text("x" * 65_000)])
    await client.confirmed(1)
    await client.publish(session, [text("x" * 66_000)], first=2)
    error = (await client.next("rejected")).rejected.error
    assert (error.code, error.subject) == (messaging.LIMIT_EXCEEDED, "message_bytes")
