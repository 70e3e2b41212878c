"""What the broker's server promises to everybody else when one client vanishes, sends too much or sends nonsense."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from sterna._proto.sterna.v1 import message_pb2, messaging_pb2
from sterna.admin import connect as connect_admin

from tests.world.brokers import Broker
from tests.world.channels import Channel
from tests.world.stage import Stage, staged

# How many turns of the loop after the end of its connection a handler is cancelled: every one of its awaits is met.
_TURNS = 24


async def _stays(stage: Stage, broker: Broker, client_id: str) -> None:
    await stage.connect(broker, client_id=client_id)
    await asyncio.sleep(3600)


@staged
async def test_a_client_that_vanishes_is_gone_whenever_its_handler_is_cancelled(stage: Stage) -> None:
    broker = await stage.broker()
    for turns in range(_TURNS):
        process, _ = stage.process("client", _stays(stage, broker, f"client-{turns}"))
        await stage.until(broker.connections)
        link = stage.network.links[-1]
        handler = next(call.handler for call in link.calls if call.method.endswith("/Connect"))
        assert handler is not None
        process.kill()
        link._end(server=True)  # at this very moment, so that the turns can be counted
        for _ in range(turns):
            await asyncio.sleep(0)
        handler.cancel()
        await asyncio.sleep(0.1)
        assert broker.connections() == [], f"cancelled after {turns} turns"


async def _called(stage: Stage, broker: Broker, method: str, request: Any) -> Any:
    """One unary call, as by grpcurl."""
    channel = Channel(stage.network, broker.address)
    answer = getattr(messaging_pb2, f"{method}Response")
    call = channel.unary_unary(
        f"/sterna.v1.Messaging/{method}", lambda made: made.SerializeToString(), answer.FromString
    )
    try:
        return await call(request)
    finally:
        await channel.close()


def _send(name: str, size: int, body: Any = None) -> Any:
    message = body or message_pb2.Message(bytes=bytes(size))
    return messaging_pb2.SendRequest(
        destination=message_pb2.Destination(kind=message_pb2.QUEUE, name=name), message=message
    )


def _receive(name: str, count: int = 1) -> Any:
    place = message_pb2.Destination(kind=message_pb2.QUEUE, name=name)
    return messaging_pb2.ReceiveRequest(destination=place, max_messages=count, wait_ms=1_000)


@staged
async def test_a_call_that_sends_too_much_fails_alone(stage: Stage) -> None:
    broker = await stage.broker()
    innocent = [asyncio.create_task(_called(stage, broker, "Send", _send("q", 100))) for _ in range(50)]
    guilty = [asyncio.create_task(_called(stage, broker, "Send", _send("q", 1_100_000))) for _ in range(5)]
    large = [asyncio.create_task(_called(stage, broker, "Send", _send("q", 900_000))) for _ in range(40)]
    misnamed = asyncio.create_task(_called(stage, broker, "Send", _send("x" * 1_200_000, 1)))
    answers = await asyncio.gather(*innocent, *large)
    assert len({answer.message_id for answer in answers}) == 90
    for task in (*guilty, misnamed):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await task
        assert "frame_bytes" in (caught.value.details() or "")
    connection = await stage.connect(broker)
    consumer = await connection.consumer("q")
    assert len([one for one in [await consumer.receive(1) for _ in range(91)] if one is not None]) == 90
    await connection.close()


@staged
async def test_a_call_that_receives_a_large_body_gets_it_whole(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    bodies = [bytes([number]) * 1_000_000 for number in range(3)]
    for body in bodies:
        await connection.send("q", body)
    found = []
    for _ in range(3):
        answer = await _called(stage, broker, "Receive", _receive("q", 10))
        receipts = [one.receipt for one in answer.messages]
        assert len(receipts) == len(set(receipts))
        found += [one.delivery.uploaded for one in answer.messages]
        done = await _called(stage, broker, "Acknowledge", messaging_pb2.AcknowledgeRequest(receipts=receipts))
        assert not done.expired
    assert found == bodies
    await connection.close()


@staged
async def test_a_look_at_large_messages_shows_each_whole_and_ends(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    bodies = [bytes([number]) * 1_000_000 for number in range(6)]
    for body in bodies:
        await connection.send("q", body)
    async with asyncio.timeout(60), connect_admin(f"sterna://{broker.address}") as admin:
        assert [message.body async for message in admin.browse_queue("q")] == bodies
        short = [message.body async for message in admin.browse_queue("q", body_bytes=10)]
    assert short == [body[:10] for body in bodies]
    await connection.close()


@staged
async def test_what_no_receiver_could_read_is_refused_with_the_field_that_is_wrong(stage: Stage) -> None:
    broker = await stage.broker()
    reserved = message_pb2.Message(text="x")
    reserved.properties.add(name="JMSPriority").value.long_value = 1
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _called(stage, broker, "Send", _send("q", 0, reserved))
    assert "JMSPriority" in (caught.value.details() or "")
    answer = await _called(stage, broker, "Send", _send("q", 0, message_pb2.Message(text="good")))
    assert answer.message_id


@pytest.mark.covers("EMS-MSG-A04")
@pytest.mark.parametrize("step_ms", [-60_000, 60_000])
@pytest.mark.parametrize("whose", ["broker", "client"])
def test_a_clock_that_is_set_takes_no_message_from_a_connected_consumer(step_ms: int, whose: str) -> None:
    @staged
    async def play(stage: Stage) -> None:
        broker = await stage.broker()
        connection = await stage.connect(broker)
        consumer = await connection.consumer("q")
        process = broker.process if whose == "broker" else stage.here
        assert process is not None
        process.clock_ms += step_ms
        for number in range(20):
            await connection.send("q", str(number), time_to_live_ms=20_000)
        found = [await consumer.receive(5) for _ in range(20)]
        assert [one.body if one else None for one in found] == [str(number) for number in range(20)]
        await connection.close()

    play()


@pytest.mark.covers("EMS-MSG-A04")
@staged
async def test_what_expires_while_it_waits_for_its_application_is_not_handed_out(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    consumer = await connection.consumer("q", prefetch=10)
    await connection.send("q", "short", time_to_live_ms=2_000)
    await connection.send("q", "long", time_to_live_ms=200_000)
    await asyncio.sleep(3)
    message = await consumer.receive(5)
    assert message is not None
    assert message.body == "long"
    await connection.close()


@pytest.mark.covers("EMS-MSG-A04")
@pytest.mark.parametrize("step_ms", [3_600_000, 150_000, -3_600_000])
def test_a_clock_that_is_set_ends_no_message_that_its_broker_has_not_ended(step_ms: int) -> None:
    @staged
    async def play(stage: Stage) -> None:
        broker = await stage.broker()
        connection = await stage.connect(broker)
        await connection.send("q", "mortal", time_to_live_ms=200_000)
        await connection.send("q", "behind")
        assert broker.process is not None
        broker.process.clock_ms += step_ms
        consumer = await connection.consumer("q", prefetch=10)
        await asyncio.sleep(1)
        got = [await consumer.receive(5), await consumer.receive(5)]
        assert [one.body for one in got if one] == ["mortal", "behind"]
        await connection.send("q", "short", time_to_live_ms=2_000)
        await asyncio.sleep(3)
        assert await consumer.receive(1) is None
        [row] = [one for one in broker.listed("queue") if one["name"] == "q"]
        assert row["statistics"]["delivered_total"] == 3
        await connection.close()

    play()


@pytest.mark.covers("EMS-MSG-A04")
@staged
async def test_what_is_given_back_and_not_taken_for_expired_is_handed_out_at_its_next_delivery(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    await connection.send("q", "mortal", time_to_live_ms=200_000)
    assert broker.process is not None
    broker.process.clock_ms += 150_000
    consumer = await connection.consumer("q", prefetch=10)
    await asyncio.sleep(100)  # by the broker's clock it is over, and it goes back; the broker knows better
    message = await consumer.receive(5)
    assert message is not None
    assert message.body == "mortal"
    [row] = [one for one in broker.listed("queue") if one["name"] == "q"]
    assert row["statistics"]["delivered_total"] == 2
    await connection.close()
