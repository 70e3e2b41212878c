"""The Admin service against a running broker."""

import json
from typing import Any

import aiohttp
import grpc
import pytest
import sterna
from sterna._proto.sterna.v1 import admin_pb2 as admin
from sterna._proto.sterna.v1 import message_pb2 as messages
from sterna._proto.sterna.v1 import messaging_pb2 as messaging
from sterna_broker.server import listing

from tests.broker.calls import CallError, browse, call
from tests.broker.wire import FrameError, queue, text, topic
from tests.running import ANYTHING, manifest
from tests.waiting import eventually


async def fill(wire: Any, target: Any, name: str, count: int) -> Any:
    client = await wire(target)
    session = await client.session()
    await client.producer(session, queue(name))
    await client.publish(session, [text(f"m{number}") for number in range(count)])
    await client.confirmed(count)
    return client


async def names_of(channel: Any, **fields: Any) -> list[str]:
    return [resource.name for resource in (await call(channel, "Admin/List", **fields)).resources]


@pytest.mark.covers("EMS-DEST-A03", "EMS-DEST-A05")
async def test_static_dynamic_and_temporary_destinations_are_told_apart(node: Any, wire: Any, channel_to: Any) -> None:
    running = await node([manifest("Queue", "fixed", "maxMessages: 9"), manifest("Queue", "any", "name: 'd.>'")])
    channel = channel_to(running)
    client = await fill(wire, running, "d.made", 1)
    creating = messaging.ClientFrame(create_temporary=messaging.CreateTemporary(kind=messages.QUEUE))
    temporary = (await client.request(creating)).temporary_created.destination.name
    resources = (await call(channel, "Admin/List", kind="Queue", temporaries=True)).resources
    by_name = {resource.name: resource for resource in resources}
    origins = {name: (resource.origin, resource.owner) for name, resource in by_name.items()}
    assert origins == {
        "fixed": (admin.STATIC, "folder"),
        "d.>": (admin.STATIC, "folder"),
        "d.made": (admin.DYNAMIC, "client"),
        temporary: (admin.TEMPORARY, "client"),
    }
    assert by_name["d.made"].statistics.messages == 1
    assert json.loads(by_name["fixed"].manifest)["spec"] == {"maxMessages": 9}
    # A temporary one is its connection's alone, and goes with it; a static one stays whoever comes and goes.
    stranger = await wire(running)
    with pytest.raises(FrameError, match="NOT_ALLOWED"):
        await stranger.consumer(await stranger.session(), queue(temporary))
    await client.goodbye()
    await client.status()
    assert temporary not in await names_of(channel, kind="Queue", temporaries=True)
    assert "fixed" in await names_of(channel, kind="Queue")


@pytest.mark.covers("EMS-DEST-A04")
async def test_dynamic_destinations_that_nobody_uses_go_after_the_time_that_is_set(
    node: Any, wire: Any, channel_to: Any
) -> None:
    running = await node([*ANYTHING, manifest("Broker", "main", "dynamicIdleMs: 1000")])
    channel = channel_to(running)
    holding = await fill(wire, running, "d.holding", 1)
    leaving = await wire(running)
    await leaving.producer(await leaving.session(), queue("d.unused"))
    assert await names_of(channel, kind="Queue", pattern="d.*") == ["d.holding", "d.unused"]
    for client in (holding, leaving):
        await client.goodbye()
        await client.status()

    async def only_what_holds_something_is_left() -> bool:
        return await names_of(channel, kind="Queue", pattern="d.*") == ["d.holding"]

    await eventually(only_what_holds_something_is_left)


@pytest.mark.covers("EMS-DEST-A47", "EMS-DEST-A05")
async def test_what_a_destination_inherits_is_shown_with_where_it_comes_from(
    node: Any, wire: Any, channel_to: Any
) -> None:
    running = await node(
        [
            manifest("Queue", "any", "name: 'd.>', maxMessages: 2"),
            manifest("Queue", "own", "name: d.own, maxRedelivery: 3"),
        ]
    )
    channel = channel_to(running)
    effective = json.loads((await call(channel, "Admin/Get", kind="Queue", name="d.own")).effective)
    assert effective["maxMessages"] == {"value": 2, "from": "d.>"}
    assert effective["maxRedelivery"] == {"value": 3, "from": "own"}
    assert effective["prefetch"] == {"value": 5, "from": "default"}
    # It holds, too: for the dynamic child from the moment it is made.
    client = await fill(wire, running, "d.new", 2)
    await client.publish(1, [text("too much")], first=3)
    rejected = (await client.next("rejected")).rejected
    assert (rejected.first, rejected.error.subject) == (3, "d.new")


async def paged(channel: Any, kind: str, size: int) -> list[list[str]]:
    """The names of all of a kind, page by page."""
    pages: list[list[str]] = []
    token = ""
    while True:
        page = await call(channel, "Admin/List", kind=kind, page_size=size, page_token=token)
        pages.append([resource.name for resource in page.resources])
        token = page.next_page_token
        if not token:
            return pages
        assert len(pages) < 100, "the pages do not end"


@pytest.mark.covers("EMS-MON-B07", "EMS-MON-B09")
@pytest.mark.parametrize("kind", ["Queue", "Topic"])
async def test_lists_are_paged_and_filtered(node: Any, wire: Any, channel_to: Any, kind: str) -> None:
    documents = [manifest(kind, f"q{number:02}", f"name: a.q{number:02}") for number in range(25)]
    running = await node([*documents, manifest(kind, "other"), manifest(kind, "any", "name: 'a.>'")])
    channel = channel_to(running)
    pages = await paged(channel, kind, 10)
    found = [name for page in pages for name in page]
    assert found == sorted(found)
    assert len(found) == len(set(found)) == 27
    assert [len(page) for page in pages] == [10, 10, 7]
    assert await names_of(channel, kind=kind, pattern="*") == ["other"]
    assert len(await names_of(channel, kind=kind, pattern="a.*")) == 26
    # Each with what it holds, and who receives from it: of a topic a copy for each subscription.
    client = await wire(running)
    session = await client.session()
    place, copies = (queue("a.q03"), 1) if kind == "Queue" else (topic("a.q03"), 2)
    for number in range(copies):
        await client.consumer(session, place, number + 1, credit=0)
    await client.producer(session, place)
    await client.publish(session, [text("m0"), text("m1")])
    await client.confirmed(2)
    [one] = (await call(channel, "Admin/List", kind=kind, pattern="a.q03")).resources
    assert (one.origin, one.statistics.messages, one.statistics.consumers) == (admin.STATIC, 2 * copies, copies)
    assert one.statistics.bytes > 0


@pytest.mark.covers("EMS-MON-B07")
async def test_queues_of_the_system_are_listed_when_they_are_asked_for(node: Any, channel_to: Any) -> None:
    channel = channel_to(await node([]))
    assert "$sys.undelivered" in await names_of(channel, kind="Queue", system=True)
    assert await names_of(channel, kind="Queue") == []


@pytest.mark.covers("EMS-ADMIN-B26", "EMS-ADMIN-A01")
async def test_apply_changes_a_running_broker(node: Any, wire: Any, channel_to: Any) -> None:
    running = await node([])
    channel = channel_to(running)
    client = await wire(running)
    session = await client.session()
    with pytest.raises(FrameError, match="NO_SUCH_DESTINATION"):
        await client.producer(session, queue("orders"))
    text_ = manifest("Queue", "orders", "maxMessages: 1")
    [dry] = (await call(channel, "Admin/Apply", manifests=text_, dry_run=True)).applied
    assert dry.change == admin.Applied.CREATED
    [applied] = (await call(channel, "Admin/Apply", manifests=text_)).applied
    assert (applied.kind, applied.name, applied.change) == ("Queue", "orders", admin.Applied.CREATED)
    await client.producer(session, queue("orders"))
    await client.publish(session, [text("1")])
    await client.confirmed(1)
    await client.publish(session, [text("2")], first=2)
    assert (await client.next("rejected")).rejected.error.subject == "orders"
    [changed] = (await call(channel, "Admin/Apply", manifests=text_.replace("1}", "2}"))).applied
    assert (changed.change, list(changed.changes)) == (admin.Applied.CONFIGURED, ["spec.maxMessages: 1 -> 2"])
    await client.publish(session, [text("3")], first=3)
    await client.confirmed(3)
    [same] = (await call(channel, "Admin/Apply", manifests=text_.replace("1}", "2}"))).applied
    assert same.change == admin.Applied.UNCHANGED


@pytest.mark.covers("EMS-ADMIN-E11")
async def test_a_refused_manifest_is_told_by_source_line_and_field(node: Any, channel_to: Any) -> None:
    channel = channel_to(await node([]))
    manifests = manifest("Queue", "a") + "---\n" + manifest("Queue", "b", "maxMesages: 1")
    first, second = (await call(channel, "Admin/Apply", manifests=manifests, source="my.yaml")).applied
    assert first.change == admin.Applied.UNCHANGED
    assert second.change == admin.Applied.REFUSED
    assert second.error.subject == "spec.maxMesages"
    assert second.error.message == "my.yaml:9:8: spec.maxMesages: unknown field; did you mean maxMessages?"
    assert await names_of(channel, kind="Queue") == []


async def test_selectors_in_manifests_are_the_engines(node: Any, channel_to: Any) -> None:
    channel = channel_to(await node([*ANYTHING]))
    bad = manifest("Bridge", "b", 'source: {topic: a}, targets: [{queue: q, selector: "n BETWEEN 1"}]')
    [applied] = (await call(channel, "Admin/Apply", manifests=bad)).applied
    assert applied.change == admin.Applied.REFUSED
    assert "spec.targets[0].selector" in applied.error.message
    assert "character" in applied.error.message


@pytest.mark.parametrize("selector", ["km >", "größe = 1 AND x ! 2"])
async def test_a_selectors_error_is_told_alike_in_a_manifest_and_to_a_client(
    node: Any, channel_to: Any, selector: str
) -> None:
    channel = channel_to(await node([*ANYTHING]))
    await call(channel, "Admin/Apply", manifests=manifest("Queue", "q"))
    with pytest.raises(CallError) as told:
        await browse(channel, queue="q", selector=selector)
    bad = manifest("DurableSubscription", "d", f'topic: a, clientId: c, selector: "{selector}"')
    [applied] = (await call(channel, "Admin/Apply", manifests=bad, dry_run=True)).applied
    said = applied.error.message.partition("spec.selector: ")[2]
    assert "(at character " in said
    assert said in str(told.value)


@pytest.mark.covers("EMS-DEST-A48", "EMS-DEST-A49", "EMS-DEST-A50", "EMS-DEST-A52")
async def test_bridges_copy_with_new_ids_by_selector_from_patterns_without_chaining(
    node: Any, wire: Any, channel_to: Any
) -> None:
    running = await node(
        [
            *ANYTHING,
            manifest("Bridge", "exact", "source: {topic: in.a}, targets: [{queue: copy}]"),
            manifest(
                "Bridge", "wild", "source: {topic: 'in.*'}, targets: [{queue: copy}, {queue: some, selector: n > 1}]"
            ),
            manifest("Bridge", "chain", "source: {queue: copy}, targets: [{queue: never}]"),
        ]
    )
    client = await wire(running)
    session = await client.session()
    await client.producer(session, topic("in.a"), number=1)
    await client.producer(session, topic("in.b"), number=2)
    number = messages.Property(name="n", value=messages.Value(int_value=2))
    await client.publish(session, [text("from a")], producer=1)
    await client.publish(session, [text("from b", properties=[number])], producer=2)
    await client.confirmed(1, producer=2)
    channel = channel_to(running)
    copies = await browse(channel, queue="copy")
    bodies = [messages.Message.FromString(copy.message).text for copy in copies]
    # The exact and the matching wildcard source both copy: two of one, one of the other.
    assert bodies == ["from a", "from a", "from b"]
    assert len({copy.message_id for copy in copies}) == 3
    [some] = await browse(channel, queue="some")
    assert messages.Message.FromString(some.message).text == "from b"
    assert await browse(channel, queue="never") == []
    # A target exists because a bridge leads to it, and belongs to whoever owns the bridge.
    target = await call(channel, "Admin/Get", kind="Queue", name="some")
    assert (target.origin, target.owner) == (admin.STATIC, "folder")
    # Source and target are independent: taking the copies of one leaves the other's.
    await call(channel, "Admin/Purge", queue="copy")
    assert len(await browse(channel, queue="some")) == 1


@pytest.mark.covers("EMS-DEST-A53")
async def test_the_source_of_a_bridge_is_not_deleted_its_target_is(node: Any, channel_to: Any) -> None:
    bridge = manifest("Bridge", "b", "source: {queue: s}, targets: [{queue: t}]")
    channel = channel_to(await node([manifest("Queue", "s"), manifest("Queue", "t"), bridge]))
    with pytest.raises(CallError, match="is the source of the bridge 'b'") as caught:
        await call(channel, "Admin/Delete", kind="Queue", name="s")
    assert caught.value.code == "IN_USE"
    await call(channel, "Admin/Delete", kind="Queue", name="t")
    # Its manifest is gone, and the bridge leads there as before: it is empty, and the bridge's.
    target = await call(channel, "Admin/Get", kind="Queue", name="t")
    assert (target.origin, target.owner, target.statistics.messages) == (admin.STATIC, "folder", 0)
    await call(channel, "Admin/Delete", kind="Bridge", name="b")
    await call(channel, "Admin/Delete", kind="Queue", name="s")
    assert await names_of(channel, kind="Queue") == []


async def test_what_holds_messages_is_deleted_only_when_told_so(node: Any, wire: Any, channel_to: Any) -> None:
    running = await node([manifest("Queue", "a")])
    channel = channel_to(running)
    client = await fill(wire, running, "a", 3)
    with pytest.raises(CallError) as caught:
        await call(channel, "Admin/Delete", kind="Queue", name="a")
    assert caught.value.code == "IN_USE"
    assert "3" in caught.value.error.message
    assert await names_of(channel, kind="Queue") == ["a"]
    deleted = await call(channel, "Admin/Delete", kind="Queue", name="a", with_messages=True)
    assert deleted.messages == 3
    assert await names_of(channel, kind="Queue") == []
    with pytest.raises(CallError) as caught:
        await call(channel, "Admin/Delete", kind="Queue", name="a")
    assert caught.value.status is grpc.StatusCode.NOT_FOUND
    await client.goodbye()


async def test_purge_drops_all_messages_of_a_queue_or_durable(node: Any, wire: Any, channel_to: Any) -> None:
    durable = manifest("DurableSubscription", "d", "topic: t, clientId: c, name: sub")
    running = await node([*ANYTHING, durable])
    channel = channel_to(running)
    client = await fill(wire, running, "a", 4)
    await client.producer(1, topic("t"), number=2)
    await client.publish(1, [text("x"), text("y")], producer=2)
    await client.confirmed(2, producer=2)
    assert (await call(channel, "Admin/Purge", queue="a")).messages == 4
    assert (await call(channel, "Admin/Purge", durable=admin.DurableName(client_id="c", name="sub"))).messages == 2
    with pytest.raises(CallError, match="NO_SUCH"):
        await call(channel, "Admin/Purge", queue="none")
    with pytest.raises(CallError, match="INVALID_ARGUMENT"):
        await call(channel, "Admin/Purge")


async def test_browse_looks_without_taking(node: Any, wire: Any, channel_to: Any) -> None:
    durable = manifest("DurableSubscription", "d", "topic: t, clientId: c, name: sub")
    running = await node([*ANYTHING, durable])
    channel = channel_to(running)
    client = await fill(wire, running, "a", 300)
    seen = await browse(channel, queue="a", max_messages=200)
    assert [messages.Message.FromString(delivery.message).text for delivery in seen] == [f"m{n}" for n in range(200)]
    rest = await browse(channel, queue="a", max_messages=1000, after_sequence=seen[-1].sequence, body_bytes=2)
    assert {messages.Message.FromString(delivery.message).text for delivery in rest} == {"m2"}
    assert len(rest) == 100
    assert (await call(channel, "Admin/Get", kind="Queue", name="a")).statistics.messages == 300
    await client.producer(1, topic("t"), number=2)
    await client.publish(1, [text("x")], producer=2)
    await client.confirmed(1, producer=2)
    assert len(await browse(channel, durable=admin.DurableName(client_id="c", name="sub"))) == 1
    with pytest.raises(CallError, match="INVALID_SELECTOR"):
        await browse(channel, queue="a", selector="n >")
    with pytest.raises(CallError, match=r"INVALID_ARGUMENT \(max_messages\)"):
        await browse(channel, queue="a", max_messages=100_001)


@pytest.mark.covers("EMS-MON-B04", "EMS-ADMIN-A09")
async def test_durables_are_listed_static_and_of_clients(node: Any, wire: Any, channel_to: Any) -> None:
    running = await node([*ANYTHING, manifest("DurableSubscription", "fixed", "topic: t, clientId: c")])
    channel = channel_to(running)
    client = await wire(running, client_id="me")
    session = await client.session()
    await client.consumer(session, topic("t.*"), subscription=messaging.Subscription(name="mine", durable=True))
    resources = (await call(channel, "Admin/List", kind="DurableSubscription")).resources
    assert {resource.name: resource.origin for resource in resources} == {
        "fixed": admin.STATIC,
        "me/mine": admin.DYNAMIC,
    }
    one = await call(channel, "Admin/Get", kind="DurableSubscription", name="me/mine")
    spec = json.loads(one.manifest)["spec"]
    assert spec == {"topic": "t.*", "name": "mine", "clientId": "me"}
    await client.producer(session, topic("t"))
    await client.publish(session, [text("x")] * 3)
    await client.confirmed(3)
    held = (await call(channel, "Admin/List", kind="DurableSubscription")).resources
    assert {one.name: one.statistics.messages for one in held} == {"fixed": 3, "me/mine": 0}
    assert sum(one.statistics.bytes for one in held) > 0
    await call(channel, "Admin/Purge", durable=admin.DurableName(client_id="c", name="fixed"))
    # An administrator looks at it while its client is there, and takes no client id away by that.
    assert await browse(channel, durable=admin.DurableName(client_id="me", name="mine")) == []
    with pytest.raises(FrameError, match="CLIENT_ID_IN_USE"):
        await wire(running, client_id="me")
    with pytest.raises(CallError, match="IN_USE"):
        await call(channel, "Admin/Delete", kind="DurableSubscription", name="me/mine")
    await client.goodbye()
    await client.status()
    await call(channel, "Admin/Delete", kind="DurableSubscription", name="me/mine")
    await call(channel, "Admin/Delete", kind="DurableSubscription", name="fixed")
    assert await names_of(channel, kind="DurableSubscription") == []


@pytest.mark.covers("EMS-MON-B02", "EMS-MON-B11", "EMS-MON-E32")
async def test_statistics_and_connections_say_what_is_going_on(node: Any, wire: Any, channel_to: Any) -> None:
    running = await node()
    channel = channel_to(running)
    client = await wire(running, client_id="me", product="tests")
    session = await client.session()
    await client.producer(session, queue("a"))
    await client.publish(session, [text("x")] * 5)
    await client.confirmed(5)
    statistics = await call(channel, "Admin/GetStatistics")
    assert (statistics.broker, statistics.state, statistics.epoch) == ("sterna", "serving", 1)
    assert (statistics.messages, statistics.published_total, statistics.delivered_total) == (5, 5, 0)
    assert (statistics.connections, statistics.queues, statistics.topics, statistics.subscriptions) == (1, 2, 0, 0)
    assert statistics.bytes > 0
    assert statistics.log.disk_bytes > 0
    assert statistics.log.durable_position >= statistics.log.end_position > 0
    assert statistics.log.free_bytes > 0
    assert statistics.resident_bytes > 10_000_000
    [connection] = (await call(channel, "Admin/ListConnections")).connections
    assert (connection.client_id, connection.product, connection.sessions) == ("me", "tests", 1)
    assert (connection.producers, connection.consumers, connection.unacknowledged_messages) == (1, 0, 0)
    assert connection.peer.startswith("ipv4:127.0.0.1")
    await call(channel, "Admin/CloseConnection", id=connection.id, reason="be gone")
    assert "be gone" in (await client.next("error")).error.message
    assert await eventually(client.call.done, what="the end of the stream")
    with pytest.raises(CallError, match="There is no connection"):
        await call(channel, "Admin/CloseConnection", id=connection.id)


async def test_a_store_says_what_its_destinations_hold(node: Any, wire: Any, channel_to: Any) -> None:
    owned = [manifest("Queue", "own", "name: 's.>', store: fast"), manifest("Topic", "t", "store: fast")]
    durable = manifest("DurableSubscription", "d", "topic: t, clientId: c")
    stores = [manifest("Store", "quick", "name: fast, mode: async"), manifest("Store", "empty")]
    running = await node([*stores, *owned, durable, manifest("Queue", "other")])
    channel = channel_to(running)
    client = await wire(running)
    session = await client.session()
    sent = ((queue("s.a"), 3), (queue("s.b"), 2), (topic("t"), 1), (queue("other"), 4))
    for number, (place, count) in enumerate(sent, 1):
        await client.producer(session, place, number)
        await client.publish(session, [text("x")] * count, producer=number)
    await client.confirmed(4, producer=4)
    counted = {one.name: one for one in (await call(channel, "Admin/GetStatistics")).stores}
    assert counted["fast"].messages == 6
    one = await call(channel, "Admin/Get", kind="Store", name="fast")
    assert (one.statistics.messages, one.statistics.bytes) == (6, counted["fast"].bytes)
    listed = (await call(channel, "Admin/List", kind="Store")).resources
    assert {found.name: found.statistics.messages for found in listed} == {"fast": 6, "empty": 0}
    await call(channel, "Admin/Purge", queue="s.a")
    assert (await call(channel, "Admin/Get", kind="Store", name="fast")).statistics.messages == 3
    with pytest.raises(CallError, match="NO_SUCH_DESTINATION"):
        await call(channel, "Admin/Get", kind="Store", name="nobody")


@pytest.mark.covers("EMS-TX-B07")
async def test_a_connection_says_what_waits_in_its_transactions(node: Any, channel_to: Any) -> None:
    """What is sent, of all its sessions, until it is committed or rolled back; large bodies as large as they are."""
    running = await node()
    channel = channel_to(running)

    async def uncommitted() -> tuple[int, int]:
        [connection] = (await call(channel, "Admin/ListConnections")).connections
        return connection.uncommitted_messages, connection.uncommitted_bytes

    async with sterna.connect(f"sterna://{running.messaging}") as connection:
        one = await connection.session(transacted=True)
        two = await connection.session(transacted=True)
        await connection.send("plain", "x")
        assert await uncommitted() == (0, 0)
        for session, body in ((one, "x"), (one, "y"), (two, b"z" * 3_000_000)):
            producer = await session.producer(sterna.Queue("orders"))
            await producer.send(body)

        # What is sent in a transaction has no answer of its own.
        async def is_there() -> bool:
            messages, size = await uncommitted()
            return messages == 3 and 3_000_000 < size < 3_001_000

        assert await eventually(is_there, what="all three")
        await two.rollback()
        messages, size = await uncommitted()
        assert messages == 2
        assert 0 < size < 1_000
        await one.commit()
        assert await uncommitted() == (0, 0)


async def test_an_unknown_kind_is_refused_with_a_suggestion(node: Any, channel_to: Any) -> None:
    channel = channel_to(await node())
    for method in ("Admin/List", "Admin/Get", "Admin/Delete"):
        with pytest.raises(CallError, match="did you mean Queue"):
            await call(channel, method, kind="Queu")


async def test_a_static_durable_is_deleted_by_either_of_its_names(node: Any, wire: Any, channel_to: Any) -> None:
    durable = manifest("DurableSubscription", "d", "topic: t, clientId: c, name: sub")
    for name in ("c/sub", "d"):
        running = await node([*ANYTHING], folder=name.replace("/", "-"))
        channel = channel_to(running)
        client = await wire(running)
        session = await client.session()
        await client.producer(session, topic("t"))
        await call(channel, "Admin/Apply", manifests=durable)
        assert await names_of(channel, kind="DurableSubscription") == ["d"]
        await client.publish(session, [text("x")])
        await client.confirmed(1)
        with pytest.raises(CallError, match="IN_USE"):
            await call(channel, "Admin/Delete", kind="DurableSubscription", name=name)
        found = await call(channel, "Admin/Get", kind="DurableSubscription", name=name)
        assert (found.name, found.statistics.messages) == ("d", 1)
        deleted = await call(channel, "Admin/Delete", kind="DurableSubscription", name=name, with_messages=True)
        assert deleted.messages == 1
        # Neither the object nor what it describes is there any more, also not after the next change.
        assert await names_of(channel, kind="DurableSubscription") == []
        with pytest.raises(CallError, match="NO_SUCH_SUBSCRIPTION"):
            await call(channel, "Admin/Get", kind="DurableSubscription", name=name)
        await call(channel, "Admin/Apply", manifests=manifest("Queue", "another"))
        assert await names_of(channel, kind="DurableSubscription") == []


@pytest.mark.covers("EMS-DEST-A53", "EMS-DEST-E01")
async def test_a_bridges_target_is_there_whoever_described_it_and_whoever_deletes_it(
    node: Any, wire: Any, channel_to: Any
) -> None:
    bridge = manifest("Bridge", "b", "source: {queue: s}, targets: [{queue: t}]")
    running = await node([manifest("Queue", "s"), bridge])
    channel = channel_to(running)
    client = await fill(wire, running, "s", 1)
    # Its copies can be consumed, although no entry lets anybody make it.
    await client.consumer(await client.session(), queue("t"))
    await client.goodbye()
    for held in (1, 1):
        assert len(await browse(channel, queue="t")) == held
        assert (await call(channel, "Admin/Delete", kind="Queue", name="t", with_messages=True)).messages == held
        # Whoever sends to the source is not refused.
        await fill(wire, running, "s", 1)
    warning = "bridge 'b': no manifest describes the queue 't': it exists because the bridge leads there"
    assert running.readiness().warnings == [warning]
    assert running.readiness().ready
    found = await call(channel, "Admin/Get", kind="Bridge", name="b")
    assert json.loads(found.effective) == {"dangling": [warning.removeprefix("bridge 'b': ")]}
    async with aiohttp.ClientSession() as http, http.get(f"http://{running.monitor}/metrics") as response:
        assert "sterna_dangling_bridges 1.0" in await response.text()
    await call(channel, "Admin/Apply", manifests=manifest("Queue", "t"))
    assert running.readiness().warnings == []
    assert (await call(channel, "Admin/Get", kind="Bridge", name="b")).effective == ""
    assert len(await browse(channel, queue="t")) == 1


async def test_a_durable_is_found_however_many_come_before_it(
    node: Any, channel_to: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PAGE_SIZE_MAX", 2)
    channel = channel_to(await node())
    subscription = messaging.Subscription(name="sub", durable=True)
    for number in range(5):
        opening: dict[str, Any] = {"destination": topic("t"), "client_id": f"c{number}", "subscription": subscription}
        await call(channel, "Messaging/Receive", **opening)
    await call(channel, "Admin/Get", kind="DurableSubscription", name="c4/sub")
    await call(channel, "Admin/Delete", kind="DurableSubscription", name="c4/sub")
    with pytest.raises(CallError, match="NO_SUCH_SUBSCRIPTION"):
        await call(channel, "Admin/Get", kind="DurableSubscription", name="c4/sub")
