"""Send, Receive and Acknowledge: the calls for people with grpcurl."""

import asyncio
from typing import Any

import grpc
import pytest
from sterna._proto.sterna.v1 import message_pb2 as messages
from sterna._proto.sterna.v1 import messaging_pb2 as messaging

from tests.broker.calls import CallError, call
from tests.broker.wire import queue, topic
from tests.running import ANYTHING, manifest


async def send(channel: Any, name: str, body: str, **fields: Any) -> Any:
    message = messages.Message(text=body, **fields)
    return await call(channel, "Messaging/Send", destination=queue(name), message=message)


async def receive(channel: Any, name: str, **fields: Any) -> Any:
    return (await call(channel, "Messaging/Receive", destination=queue(name), **fields)).messages


async def test_a_message_goes_through_send_receive_and_acknowledge(node: Any, channel_to: Any) -> None:
    channel = channel_to(await node())
    sent = await send(channel, "a", "hello", delivery_delay_ms=0)
    assert sent.durability == messaging.DURABLE
    assert sent.timestamp_ms == sent.delivery_time_ms > 0
    [received] = await receive(channel, "a")
    assert received.message.text == "hello"
    assert received.delivery.message_id == sent.message_id
    assert sent.message_id.startswith("ID:sterna.")
    # It is leased: nobody else gets it.
    assert list(await receive(channel, "a")) == []
    assert list((await call(channel, "Messaging/Acknowledge", receipts=[received.receipt])).expired) == []
    again = await call(channel, "Messaging/Acknowledge", receipts=[received.receipt])
    assert list(again.expired) == [received.receipt]


async def test_ids_of_one_sender_differ_in_the_last_part_alone(node: Any, channel_to: Any) -> None:
    channel = channel_to(await node())
    sent = await asyncio.gather(*(send(channel, "a", str(number)) for number in range(20)))
    heads, numbers = zip(*(response.message_id.rsplit(":", 1) for response in sent), strict=True)
    assert len(set(heads)) == 1
    assert sorted(int(number) for number in numbers) == list(range(1, 21))


async def test_what_is_not_acknowledged_in_time_comes_again_flagged(node: Any, channel_to: Any) -> None:
    channel = channel_to(await node())
    await send(channel, "a", "x")
    [first] = await receive(channel, "a", lease_ms=50)
    [second] = await receive(channel, "a", wait_ms=10_000)
    assert (first.delivery.redelivered, second.delivery.redelivered) == (False, True)
    assert second.delivery.delivery_count == 2
    late = await call(channel, "Messaging/Acknowledge", receipts=[first.receipt, second.receipt])
    assert list(late.expired) == [first.receipt]


async def test_receive_waits_for_the_first_message(node: Any, channel_to: Any) -> None:
    channel = channel_to(await node())
    waiting = asyncio.create_task(receive(channel, "a", wait_ms=10_000, max_messages=5))
    await send(channel, "b", "elsewhere")
    await send(channel, "a", "now")
    [received] = await waiting
    assert received.message.text == "now"


async def test_receive_takes_several_and_no_more_than_asked_for(node: Any, channel_to: Any) -> None:
    channel = channel_to(await node())
    for number in range(5):
        await send(channel, "a", str(number))
    taken = await receive(channel, "a", max_messages=3, no_acknowledge=True)
    assert [received.message.text for received in taken] == ["0", "1", "2"]
    rest = await receive(channel, "a", max_messages=10)
    assert [received.message.text for received in rest] == ["3", "4"]
    selected = [received.receipt for received in rest]
    assert list((await call(channel, "Messaging/Acknowledge", receipts=selected)).expired) == []
    assert list(await receive(channel, "a")) == []


async def test_a_selector_and_a_durable_subscription_can_be_received_from(node: Any, channel_to: Any) -> None:
    durable = manifest("DurableSubscription", "d", "topic: news, clientId: c, name: sub")
    channel = channel_to(await node([*ANYTHING, durable]))
    for number in (1, 2):
        value = messages.Property(name="n", value=messages.Value(int_value=number))
        message = messages.Message(text=str(number), properties=[value])
        await call(channel, "Messaging/Send", destination=topic("news"), message=message)
    response = await call(
        channel,
        "Messaging/Receive",
        destination=topic("news"),
        client_id="c",
        subscription=messaging.Subscription(name="sub", durable=True),
        max_messages=10,
    )
    assert [received.message.text for received in response.messages] == ["1", "2"]
    await call(channel, "Messaging/Acknowledge", receipts=[received.receipt for received in response.messages])


@pytest.mark.parametrize(
    ("method", "fields", "status", "code", "subject"),
    [
        ("Send", {"message": messages.Message()}, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "destination"),
        ("Send", {"destination": queue("a..b")}, "INVALID_ARGUMENT", "INVALID_NAME", "a..b"),
        ("Send", {"destination": queue("a.*")}, "INVALID_ARGUMENT", "INVALID_NAME", "a.*"),
        ("Send", {"destination": queue("$sys.undelivered")}, "FAILED_PRECONDITION", "NOT_ALLOWED", "$sys.undelivered"),
        ("Send", {"destination": topic("x")}, "NOT_FOUND", "NO_SUCH_DESTINATION", "x"),
        (
            "Send",
            {"destination": queue("a"), "message": messages.Message(priority=10)},
            "INVALID_ARGUMENT",
            "INVALID_MESSAGE",
            "priority",
        ),
        (
            "Receive",
            {"destination": queue("a"), "max_messages": 1001},
            "INVALID_ARGUMENT",
            "INVALID_ARGUMENT",
            "max_messages",
        ),
        ("Receive", {"destination": queue("a.*")}, "INVALID_ARGUMENT", "INVALID_NAME", "a.*"),
        ("Receive", {"destination": queue("a"), "wait_ms": 60_001}, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "wait_ms"),
        ("Receive", {"destination": topic("t")}, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "subscription"),
        ("Receive", {"destination": queue("a"), "selector": "a ="}, "INVALID_ARGUMENT", "INVALID_SELECTOR", None),
        ("Acknowledge", {"receipts": ["nonsense"]}, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "receipts"),
        ("Acknowledge", {"receipts": ["ab-" + "9" * 5000]}, "INVALID_ARGUMENT", "INVALID_ARGUMENT", "receipts"),
    ],
)
async def test_refusals_carry_code_subject_and_remedy(
    node: Any, channel_to: Any, method: str, fields: dict[str, Any], status: str, code: str, subject: str | None
) -> None:
    channel = channel_to(await node([ANYTHING[0]]))
    with pytest.raises(CallError) as caught:
        await call(channel, f"Messaging/{method}", **fields)
    assert (caught.value.status.name, caught.value.code) == (status, code)
    assert subject is None or caught.value.error.subject == subject
    assert caught.value.error.message
    assert caught.value.error.remedy


async def test_after_a_refusal_the_next_message_goes_through(node: Any, channel_to: Any) -> None:
    channel = channel_to(await node([manifest("Queue", "a", "maxMessages: 1")]))
    await send(channel, "a", "fits")
    with pytest.raises(CallError, match="DESTINATION_FULL"):
        await send(channel, "a", "does not")
    with pytest.raises(CallError, match="NO_SUCH_DESTINATION"):
        await send(channel, "b", "nowhere")
    await receive(channel, "a", no_acknowledge=True)
    await send(channel, "a", "fits again")


@pytest.mark.covers("EMS-DEST-A56", "EMS-DEST-B23")
@pytest.mark.parametrize("is_on", [False, True])
async def test_flow_control_holds_where_the_broker_has_it_on_and_refuses_single_calls(
    node: Any, channel_to: Any, is_on: bool
) -> None:
    """All single calls share a stream, and would wait for one another."""
    switch = [manifest("Broker", "b", "flowControl: true")] if is_on else []
    channel = channel_to(await node([manifest("Queue", "a", "flowControlBytes: 10"), *ANYTHING, *switch]))
    await send(channel, "a", "more than ten bytes")
    if is_on:
        with pytest.raises(CallError, match="a is full: flowControlBytes"):
            await send(channel, "a", "one more")
    else:
        await send(channel, "a", "one more")
    await send(channel, "b", "elsewhere")
    await receive(channel, "a", no_acknowledge=True, max_messages=2)
    await send(channel, "a", "again")


async def test_a_reliable_message_is_not_waited_for(node: Any, channel_to: Any) -> None:
    channel = channel_to(await node())
    sent = await send(channel, "a", "x", delivery_mode=messages.RELIABLE)
    assert sent.message_id.startswith("ID:")
    [received] = await receive(channel, "a", wait_ms=5_000)
    assert received.delivery.message_id == sent.message_id


async def test_leases_are_bounded_and_the_refusal_names_the_limit(node: Any, channel_to: Any) -> None:
    channel = channel_to(await node([*ANYTHING, manifest("Broker", "m", "limits: {leases: 1}")]))
    await send(channel, "a", "1")
    await send(channel, "a", "2")
    [held] = await receive(channel, "a")
    with pytest.raises(CallError, match=r"LIMIT_EXCEEDED \(leases\)"):
        await receive(channel, "a")
    await call(channel, "Messaging/Acknowledge", receipts=[held.receipt])
    assert len(await receive(channel, "a")) == 1


async def test_a_receive_that_is_given_up_leaves_nothing_leased(node: Any, channel_to: Any) -> None:
    channel = channel_to(await node())
    with pytest.raises(CallError) as caught:
        await call(channel, "Messaging/Receive", 0.2, destination=queue("a"), wait_ms=60_000)
    assert caught.value.status is grpc.StatusCode.DEADLINE_EXCEEDED
    await send(channel, "a", "x")
    [received] = await receive(channel, "a", wait_ms=5_000)
    assert received.message.text == "x"


async def test_receipts_of_one_lease_can_be_acknowledged_at_the_same_time(node: Any, channel_to: Any) -> None:
    """The last one ends the lease, and not the answers of the others."""
    channel = channel_to(await node())
    for number in range(10):
        await send(channel, "a", str(number))
    receipts = [received.receipt for received in await receive(channel, "a", max_messages=10)]
    answers = await asyncio.gather(*(call(channel, "Messaging/Acknowledge", receipts=[one]) for one in receipts))
    assert [list(answer.expired) for answer in answers] == [[]] * 10
    assert list(await receive(channel, "a")) == []


async def test_a_lease_that_ends_while_it_is_acknowledged_takes_no_answer_away(node: Any) -> None:
    parts = (await node())._parts
    request = messaging.SendRequest(destination=queue("a"), message=messages.Message(text="x"))
    for _ in range(2):
        await parts.sending.send(request)
    leased = await parts.receiving.receive(messaging.ReceiveRequest(destination=queue("a"), max_messages=2))
    first, second = (received.receipt for received in leased.messages)
    acknowledging = asyncio.create_task(parts.receiving.acknowledge(messaging.AcknowledgeRequest(receipts=[first])))
    await asyncio.sleep(0)
    parts.receiving._expire(first.partition("-")[0])
    assert list((await acknowledging).expired) == []
    late = await parts.receiving.acknowledge(messaging.AcknowledgeRequest(receipts=[second]))
    assert list(late.expired) == [second]
    again = await parts.receiving.receive(messaging.ReceiveRequest(destination=queue("a"), max_messages=2))
    assert [received.delivery.redelivered for received in again.messages] == [True]


async def test_an_acknowledgement_that_is_given_up_ends_the_lease(node: Any) -> None:
    parts = (await node([*ANYTHING, manifest("Broker", "m", "limits: {leases: 1}")]))._parts
    request = messaging.SendRequest(destination=queue("a"), message=messages.Message(text="x"))
    for _ in range(2):
        await parts.sending.send(request)
    wanted = messaging.ReceiveRequest(destination=queue("a"))
    [received] = (await parts.receiving.receive(wanted)).messages
    acknowledge = messaging.AcknowledgeRequest(receipts=[received.receipt])
    acknowledging = asyncio.create_task(parts.receiving.acknowledge(acknowledge))
    await asyncio.sleep(0)
    acknowledging.cancel()
    await asyncio.gather(acknowledging, return_exceptions=True)
    [other] = (await parts.receiving.receive(wanted)).messages
    assert not other.delivery.redelivered


@pytest.mark.parametrize(("size", "count"), [(40_000, 70), (900_000, 3)])
async def test_an_answer_is_no_larger_than_callers_take_by_default(
    node: Any, channel_to: Any, size: int, count: int
) -> None:
    """Each message stands in it twice."""
    channel = channel_to(await node())
    for _ in range(count):
        await send(channel, "a", "x" * size)
    received = 0
    while taken := len(await receive(channel, "a", max_messages=1_000, no_acknowledge=True)):
        received += taken
    assert received == count


async def test_a_delay_without_end_is_no_error(node: Any, channel_to: Any) -> None:
    channel = channel_to(await node())
    sent = await send(channel, "a", "x", delivery_delay_ms=2**64 - 1)
    assert sent.delivery_time_ms == 2**64 - 1
