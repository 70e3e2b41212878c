"""Deleting a topic of which durable subscriptions hold messages: refused, or they go with it; also over a kill."""

import asyncio
from typing import Any

import pytest
import sterna.admin
from sterna._proto.sterna.v1 import admin_pb2 as admin
from sterna._proto.sterna.v1 import messaging_pb2 as messaging
from sterna.errors import InUseError, NoSuchDestinationError, SternaError
from sterna_broker.server.listing import Listing

from tests.broker.calls import CallError, call
from tests.broker.wire import body_of, text, topic
from tests.running import manifest
from tests.waiting import eventually

# No entry lets a client make a topic: once it is gone, nobody reaches what subscriptions hold of it.
MANIFESTS = [
    manifest("Topic", "news", "name: news.a"),
    manifest("DurableSubscription", "own", "topic: news.a, clientId: c, name: own"),
    manifest("DurableSubscription", "shared", "topic: news.a, name: shared, shared: true"),
    manifest("DurableSubscription", "all", "topic: 'news.*', clientId: c, name: all"),
]
DURABLES = ("own", "shared", "all")
NEWS: dict[str, Any] = {"kind": "Topic", "name": "news.a"}


async def publish(wire: Any, running: Any, count: int) -> Any:
    client = await wire(running)
    session = await client.session()
    await client.producer(session, topic("news.a"))
    await client.publish(session, [text(f"m{number}") for number in range(count)])
    await client.confirmed(count)
    return client


async def held(channel: Any) -> list[int]:
    rows = [await call(channel, "Admin/Get", kind="DurableSubscription", name=name) for name in DURABLES]
    return [row.statistics.messages for row in rows]


async def topics(channel: Any) -> list[str]:
    return [found.name for found in (await call(channel, "Admin/List", kind="Topic")).resources]


@pytest.mark.covers("EMS-DEST-B12")
async def test_a_topic_whose_durables_hold_messages_is_deleted_only_when_told_so(
    node: Any, wire: Any, channel_to: Any
) -> None:
    running = await node(MANIFESTS)
    channel = channel_to(running)
    await publish(wire, running, 3)
    found = await call(channel, "Admin/Get", **NEWS)
    assert (found.statistics.durable_messages, found.statistics.messages) == (6, 9)
    with pytest.raises(CallError, match="still holds 6 messages") as caught:
        await call(channel, "Admin/Delete", **NEWS)
    assert caught.value.code == "IN_USE"
    assert await topics(channel) == ["news.a"]
    assert (await call(channel, "Admin/Delete", **NEWS, with_messages=True)).messages == 6
    assert (await topics(channel), await held(channel)) == ([], [0, 0, 3])
    durables = (await call(channel, "Admin/List", kind="DurableSubscription")).resources
    assert len(durables) == 3
    assert all(found.statistics.durable_messages == 0 for found in durables)
    # They get what comes once it is there again.
    await call(channel, "Admin/Apply", manifests=MANIFESTS[0])
    await publish(wire, running, 2)
    assert await held(channel) == [2, 2, 5]


async def test_what_only_patterns_hold_keeps_no_topic(node: Any, wire: Any, channel_to: Any) -> None:
    channel = channel_to(running := await node(MANIFESTS))
    await publish(wire, running, 3)
    for client_id, name in (("c", "own"), ("", "shared")):
        await call(channel, "Admin/Purge", durable=admin.DurableName(client_id=client_id, name=name))
    assert (await call(channel, "Admin/Get", **NEWS)).statistics.durable_messages == 0
    assert (await call(channel, "Admin/Delete", **NEWS)).messages == 0
    assert (await topics(channel), await held(channel)) == ([], [0, 0, 3])


async def test_a_topic_whose_manifest_goes_lives_on_until_its_durables_are_empty(
    broker_process: Any, wire: Any, channel_to: Any
) -> None:
    broker = await asyncio.to_thread(broker_process(MANIFESTS).start)
    await publish(wire, broker, 3)
    assert await asyncio.to_thread(broker.terminate) == 0
    (broker.config / "all.yaml").write_text("---\n".join(MANIFESTS[1:]))
    await asyncio.to_thread(broker.start)
    channel = channel_to(broker)
    found = await call(channel, "Admin/Get", **NEWS)
    assert (found.origin, found.statistics.durable_messages) == (admin.DYNAMIC, 6)
    assert await held(channel) == [3, 3, 3]


@pytest.mark.covers("EMS-DEST-B12")
async def test_a_deletion_that_was_answered_is_not_taken_back_by_a_kill(
    broker_process: Any, wire: Any, channel_to: Any
) -> None:
    broker = await asyncio.to_thread(broker_process(MANIFESTS).start)
    channel = channel_to(broker)
    await publish(wire, broker, 500)
    with pytest.raises(CallError, match="IN_USE"):
        await call(channel, "Admin/Delete", **NEWS)
    assert (await call(channel, "Admin/Delete", **NEWS, with_messages=True)).messages == 1_000
    await asyncio.to_thread(broker.kill)
    # The manifest in the folder has not gone, and what was said by hand of it comes before it.
    await asyncio.to_thread(broker.start)
    channel = channel_to(broker)
    assert (await topics(channel), await held(channel)) == ([], [0, 0, 500])
    await call(channel, "Admin/Apply", manifests=MANIFESTS[0])
    await publish(wire, broker, 1)
    assert (await held(channel))[:2] == [1, 1]


async def test_what_a_durables_consumer_has_in_hand_goes_and_the_consumer_goes_on(
    node: Any, wire: Any, channel_to: Any
) -> None:
    running = await node(MANIFESTS)
    channel = channel_to(running)
    await publish(wire, running, 10)
    client = await wire(running, client_id="c")
    session = await client.session()
    own = messaging.Subscription(name="own", durable=True)
    opened = await client.consumer(session, topic("news.a"), credit=5, subscription=own)
    seen = await client.deliveries(5)
    with pytest.raises(CallError, match="still holds 20 messages"):
        await call(channel, "Admin/Delete", **NEWS)
    assert (await call(channel, "Admin/Delete", **NEWS, with_messages=True)).messages == 20
    # As of what was purged, there is nothing left to acknowledge, and to try is no error.
    await client.acknowledge(session, opened.source, seen[0].sequence, seen[-1].sequence)
    assert (await call(channel, "Admin/Get", kind="DurableSubscription", name="own")).statistics.messages == 0
    await call(channel, "Admin/Apply", manifests=MANIFESTS[0])
    await publish(wire, running, 3)
    credit = messaging.Credit(consumer=opened.consumer, message_limit=100)
    await client.send(messaging.ClientFrame(session=session, credit=credit))
    assert [body_of(delivery) for delivery in await client.deliveries(3)] == ["m0", "m1", "m2"]


async def test_it_can_be_deleted_while_publishers_publish_and_durables_consume(node: Any) -> None:
    running = await node([*MANIFESTS, manifest("Topic", "any", "name: 'other.>'")])
    url, received = f"sterna://{running.messaging}", 0

    async def publishes() -> None:
        async with sterna.connect(url) as connection:
            while True:
                try:
                    await connection.send(sterna.Topic("news.a"), "x")
                except SternaError:
                    await asyncio.sleep(0)

    async def consumes() -> None:
        nonlocal received
        async with sterna.connect(url, client_id="c") as connection:
            consumer = await connection.consumer(sterna.Topic("news.a"), durable="own")
            async for message in consumer:
                received += 1
                await message.acknowledge()

    tasks = [asyncio.create_task(publishes()), asyncio.create_task(consumes())]
    async with sterna.admin.connect(url) as client:
        went = 0
        for _ in range(10):
            enough = received + 5
            await eventually(lambda: received > enough)  # noqa: B023 - it is done before the next round
            try:
                await client.delete("Topic", "news.a")
            except InUseError:
                went += await client.delete("Topic", "news.a", with_messages=True)
            # Whoever sends between the two steps of it makes the topic anew, as a queue: what came since is there.
            await client.apply(MANIFESTS[0])
        assert went > 0
        tasks[0].cancel()
        await asyncio.wait(tasks[:1])
        await client.delete("Topic", "news.a", with_messages=True)
        with pytest.raises(NoSuchDestinationError):
            await client.resource("Topic", "news.a")
        for name in ("own", "shared"):
            assert (await client.resource("DurableSubscription", name)).statistics.messages == 0
        # The consumer goes on where it was.
        await client.apply(MANIFESTS[0])
        enough = received
        async with sterna.connect(url) as connection:
            await connection.send(sterna.Topic("news.a"), "x")
        await eventually(lambda: received > enough)
    tasks[1].cancel()
    await asyncio.wait(tasks)


async def test_get_looks_for_a_durable_once(node: Any, channel_to: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = channel_to(await node(MANIFESTS))
    looked: list[str] = []
    row = Listing.row

    def counted(self: Listing, kind: str, name: str) -> Any:
        looked.append(name)
        return row(self, kind, name)

    monkeypatch.setattr(Listing, "row", counted)
    found = await call(channel, "Admin/Get", kind="DurableSubscription", name="own")
    assert (found.name, looked) == ("own", ["own"])
