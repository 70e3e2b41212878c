"""The monitor port: probes and metrics. And the same questions asked over gRPC: health and reflection."""

import asyncio
import errno
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import grpc
import pytest
import sterna
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from prometheus_client.parser import text_string_to_metric_families
from sterna import AcknowledgeMode
from sterna._proto.sterna.v1 import message_pb2 as messages
from sterna.admin import connect as connect_admin
from sterna_broker import node as node_module
from sterna_broker.addresses import Address
from sterna_broker.monitor import application, metrics
from sterna_broker.monitor.readiness import judge
from sterna_broker.node import Node
from sterna_broker.options import BrokerOptions

from tests.broker.calls import CallError, call
from tests.broker.wire import FrameError, queue, text
from tests.running import ANYTHING, manifest
from tests.waiting import eventually


async def get(node: Any, path: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{node.monitor}{path}") as response:
        content = await response.text() if path == "/metrics" else await response.json()
        return response.status, content


@pytest.mark.covers("EMS-MON-E04", "EMS-MON-E05", "EMS-MON-C05", "EMS-MON-B18", "EMS-MON-E01")
async def test_a_serving_broker_is_live_and_ready(node: Any) -> None:
    running = await node()
    assert await get(running, "/livez") == (200, {"live": True, "state": "serving"})
    assert await get(running, "/readyz") == (200, {"ready": True, "state": "serving", "reasons": [], "warnings": []})
    # Metrics are at the same port, and nothing there is to be changed.
    status, page = await get(running, "/metrics")
    assert (status, "sterna_ready 1" in page) == (200, True)
    async with aiohttp.ClientSession() as session:
        for path in ("/livez", "/readyz", "/metrics"):
            async with session.post(f"http://{running.monitor}{path}") as response:
                assert response.status == 405


@pytest.mark.parametrize(
    "sent",
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x24\x04", b"\x16\x03\x01nonsense\r\n\r\n", b"GET / HTTP/9\r\n\r\n"],
)
async def test_what_is_no_request_is_refused_and_no_log_is_filled_with_it(
    node: Any, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    running = await node()
    reader, writer = await asyncio.open_connection(running.monitor.host, running.monitor.port)
    writer.write(sent)
    assert b" 400 " in await reader.readline()
    writer.close()
    assert await get(running, "/livez") == (200, {"live": True, "state": "serving"})
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


async def test_the_monitor_listens_on_every_address_of_its_name(node: Any) -> None:
    running = await node(monitor="localhost:0")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo("localhost", running.monitor.port, type=socket.SOCK_STREAM)
    # Where this machine's own files give the name one address, the other kind is put beside it.
    assert len(found) >= 1
    for family, _, _, _, where in found:
        with socket.socket(family, socket.SOCK_STREAM) as asking:
            asking.setblocking(False)
            await loop.sock_connect(asking, where)
            await loop.sock_sendall(asking, b"GET /livez HTTP/1.0\r\n\r\n")
            assert (await loop.sock_recv(asking, 100)).startswith(b"HTTP/1.0 200")


@pytest.mark.parametrize("port", [0, 7])
async def test_a_name_of_two_addresses_has_one_port_or_none(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Whatever the machine's files say: a free port is looked for again where one address has it taken already."""
    tried: list[tuple[Any, ...]] = []
    free = [4001, 4002]

    def bind(where: tuple[str, int], **_: Any) -> Any:
        tried.append(where)
        if where[0] == "2" and where[1] in (7, 4001):
            raise OSError(errno.EADDRINUSE, "taken")
        if where[0] == "3":
            raise OSError(errno.EADDRNOTAVAIL, "no such kind here")
        chosen = where[1] or free.pop(0)
        return SimpleNamespace(getsockname=lambda: (where[0], chosen), close=lambda: tried.append(("closed", chosen)))

    async def resolve(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, 0, 0, "", (host, port)) for host in ("1", "2", "2", "3")]

    monkeypatch.setattr(socket, "create_server", bind)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    if port:
        with pytest.raises(OSError, match="taken"):
            await application._bind(Address("name", port))
        assert tried == [("1", 7), ("2", 7), ("closed", 7)]
    else:
        bound = await application._bind(Address("name", port))
        assert [one.getsockname() for one in bound] == [("1", 4002), ("2", 4002)]
        assert ("closed", 4001) in tried


@pytest.mark.covers("EMS-MON-E05")
def test_readiness_names_every_reason() -> None:
    assert judge("serving", {"failed": None, "out_of_space": False}).ready
    assert judge("draining", None).reasons == ["the broker is draining"]
    failed = judge("serving", {"failed": "fdatasync of 3.log: EIO", "out_of_space": True})
    assert not failed.ready
    assert failed.reasons == [
        "the engine has failed: fdatasync of 3.log: EIO",
        "the disk is full: messages can be consumed, not sent",
    ]


def test_readiness_tells_of_a_disk_that_has_too_little_room_for_a_store_that_is_small_yet() -> None:
    def of(free: int, *, out_of_space: bool = False) -> Any:
        log = {"needed_bytes": 200, "wanted_bytes": 300, "free_bytes": free}
        return judge("serving", {"failed": None, "out_of_space": out_of_space, "log": log})

    short = of(199)
    assert not short.ready
    assert short.reasons == ["the disk is full after a few messages: the log needs 200 more bytes of it"]
    scarce = of(200)
    assert scarce.ready
    assert scarce.warnings == [
        "the disk has no room for all that is set aside for a full one: the log needs 300 more bytes of it"
    ]
    assert of(300).ready
    assert of(300).warnings == []
    assert of(199, out_of_space=True).reasons == ["the disk is full: messages can be consumed, not sent"]


def test_readiness_warns_of_damage_in_the_log_and_of_what_the_disk_lacks() -> None:
    place = {"file": "0001.segment", "offset": 8192, "position": 4096, "why": "checksum does not match"}
    log = {"damaged_places": 3, "damage": [place], "shortage": "write 0002.segment: No space left on device"}
    warned = judge("serving", {"failed": None, "out_of_space": False, "log": log}, ["of the cluster"])
    assert warned.ready
    assert warned.warnings == [
        "of the cluster",
        "0001.segment is damaged at offset 8192 (position 4096): checksum does not match",
        "2 more places of the log are damaged",
        "the disk is asked again each second: write 0002.segment: No space left on device",
    ]


def test_each_damaged_place_is_logged_once_and_of_too_many_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[str, int | None, int | None]] = []

    class Log:
        def error(self, event: str, **line: Any) -> None:
            lines.append((event, line.get("offset"), line.get("places")))

    monkeypatch.setattr(node_module, "_log", Log())
    node = Node(BrokerOptions(data=Path("d")))
    places = [{"file": "0001.segment", "offset": at, "position": at, "why": "no"} for at in range(2)]
    tellings = [(places[:1], 1), (places[:1], 1), (places, 2), (places, 7), (places, 7), (places, 9)]
    for damage, total in tellings:
        node._tell_damage({"log": {"damage": damage, "damaged_places": total}})
    assert lines == [
        ("damaged_place_found", 0, None),
        ("damaged_place_found", 1, None),
        ("more_damaged_places_found", None, 5),
        ("more_damaged_places_found", None, 7),
    ]


@pytest.mark.covers("EMS-MON-E06", "EMS-ADMIN-A12")
async def test_metrics_say_what_the_broker_holds_by_destination(node: Any, wire: Any) -> None:
    running = await node([*ANYTHING, manifest("Broker", "m", "metricsDestinations: 2")])
    client = await wire(running)
    session = await client.session()
    for number, count in enumerate((1, 5, 3), start=1):
        await client.producer(session, queue(f"q{count}"), number=number)
        await client.publish(session, [text("x")] * count, producer=number)
        await client.confirmed(count, producer=number)
    status, page = await get(running, "/metrics")
    assert status == 200
    families = {family.name: family for family in text_string_to_metric_families(page)}
    values = {
        (sample.name, sample.labels.get("name", "")): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert values["sterna_messages", ""] == 9
    assert values["sterna_published_total", ""] == 9
    assert values["sterna_ready", ""] == 1
    assert values["sterna_connections", ""] == 1
    assert values["sterna_log_commits_total", ""] > 0
    # The two fullest of three queues, one by one.
    listed = {name for sample, name in values if sample == "sterna_destination_messages"}
    assert {"q5", "q3"} <= listed
    assert "q1" not in listed
    assert values["sterna_destination_messages", "q5"] == 5
    assert families["sterna_resident_memory_bytes"].type == "gauge"
    assert families["sterna_published"].type == "counter"


async def _samples(running: Any) -> dict[tuple[str, ...], float]:
    """By the name and all values of labels."""
    _, page = await get(running, "/metrics")
    families = text_string_to_metric_families(page)
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


async def test_metrics_say_what_becomes_of_the_messages_of_each_place(node: Any) -> None:
    running = await node([*ANYTHING, manifest("Queue", "small", "maxMessages: 2, overflowPolicy: discardOld")])
    async with sterna.connect(f"sterna://{running.messaging}", client_id="me") as connection:
        session = await connection.session(AcknowledgeMode.INDIVIDUAL)
        durable = await session.consumer(sterna.Topic("news"), durable="mine")
        for body in ("one", "two", "three"):
            await connection.send(sterna.Topic("news"), body)
            await connection.send("small", body)
        await connection.send("late", "x", delivery_delay_ms=600_000)
        first = await durable.receive()
        assert first is not None
        await durable.receive()
        await first.acknowledge()
        await connection.flush()
        samples = await _samples(running)
    assert samples["sterna_destination_messages", "Queue", "small"] == 2
    assert samples["sterna_destination_discarded_total", "Queue", "small"] == 1
    assert samples["sterna_destination_delayed_messages", "Queue", "late"] == 1
    assert samples["sterna_destination_acknowledged_total", "Topic", "news"] == 1
    assert samples["sterna_durable_messages", "me", "mine"] == 2
    assert samples["sterna_durable_consumers", "me", "mine"] == 1
    assert samples["sterna_destinations_listed", "DurableSubscription"] == 1

    async def have_waited() -> bool:
        found = await _samples(running)
        waited = found["sterna_durable_oldest_seconds", "me", "mine"]
        return 0 < waited < 60 and 0 < found["sterna_destination_oldest_seconds", "Queue", "small"] < 60

    assert await eventually(have_waited, what="some time")


async def test_metrics_count_what_consumers_were_given_until_it_is_acknowledged_or_comes_back(node: Any) -> None:
    """At each place and of each connection: what an application has in hand, and what was sent ahead of it."""
    running = await node()
    url = f"sterna://{running.messaging}"
    news = sterna.Topic("news")

    async def counted(queue: int, topic: int, durable: int, connection: int) -> None:
        async def are() -> bool:
            samples = await _samples(running)
            held = [samples[key] for key in keys]
            of_connection = [one.unacknowledged_messages for one in await admin.connections() if one.client_id == "me"]
            return (held, of_connection) == ([queue, topic, durable], [connection])

        await eventually(are, what=f"{queue}, {topic}, {durable} and {connection} that are not acknowledged")

    name = "unacknowledged_messages"
    keys = [
        (f"sterna_destination_{name}", "Queue", "held"),
        (f"sterna_destination_{name}", "Topic", "news"),
        (f"sterna_durable_{name}", "me", "mine"),
    ]
    async with (
        sterna.connect(url, client_id="me") as holding,
        sterna.connect(url) as other,
        connect_admin(url) as admin,
    ):
        session = await holding.session(AcknowledgeMode.INDIVIDUAL)
        durable = await session.consumer(news, durable="mine", prefetch=0)
        for number in range(5):
            await other.send("held", str(number))
            await other.send(news, str(number))
        await counted(0, 0, 0, 0)
        # Two are sent ahead, and nobody has asked for them.
        ahead = await session.consumer("held", prefetch=2)
        await counted(2, 0, 0, 2)
        in_hand = [await durable.receive(5) for _ in range(3)]
        await counted(2, 3, 3, 5)
        # A topic has those of all its subscriptions.
        second = await (await other.session(AcknowledgeMode.CLIENT)).consumer(news, prefetch=0)
        await other.send(news, "for both")
        assert await second.receive(5) is not None
        await counted(2, 4, 3, 5)
        await second.close()
        assert in_hand[1] is not None
        await in_hand[1].acknowledge()
        await ahead.close()
        await counted(0, 2, 2, 2)
        await session.recover()
        await counted(0, 0, 0, 0)
        samples = await _samples(running)
    # All but the one are there still.
    assert samples["sterna_destination_messages", "Queue", "held"] == 5
    assert samples["sterna_durable_messages", "me", "mine"] == 5


async def test_metrics_say_how_long_confirmations_and_commits_take(node: Any) -> None:
    running = await node()
    async with sterna.connect(f"sterna://{running.messaging}") as connection:
        for _ in range(5):
            await connection.send("a", "x")
        samples = await _samples(running)
    assert samples["sterna_confirm_seconds_count",] == 5
    assert samples["sterna_confirm_seconds_bucket", "+Inf"] == 5
    assert samples["sterna_log_commit_seconds_count",] == samples["sterna_log_commits_total",] >= 5
    for name in ("sterna_confirm_seconds", "sterna_log_commit_seconds"):
        bounds = [(float(key[1]), value) for key, value in samples.items() if key[0] == f"{name}_bucket"]
        counted = [value for _, value in sorted(bounds)]
        assert counted == sorted(counted), "each bound counts those below"
        assert 0 < samples[f"{name}_sum",] < 60


async def test_metrics_count_refusals_and_streams_that_were_cut_once_each_by_code(
    node: Any, wire: Any, channel_to: Any
) -> None:
    running = await node([manifest("Queue", "one", "maxMessages: 1")])
    client = await wire(running)
    session = await client.session()
    await client.producer(session, queue("one"))
    await client.publish(session, [text("fits"), text("does not"), text("neither")])
    assert (await client.next("rejected")).rejected.error.subject == "one"
    with pytest.raises(FrameError):
        await client.producer(session, queue("nowhere"), number=2)
    # A single call goes by a stream of the broker's own: it is counted once.
    with pytest.raises(CallError, match="DESTINATION_FULL"):
        await call(
            channel_to(running), "Messaging/Send", destination=queue("one"), message=messages.Message(text="nor")
        )
    cut = await wire(running)
    await cut.call.write(b"no frame")
    await eventually(cut.call.done, what="the end of the stream")
    samples = await _samples(running)
    assert samples["sterna_refused_total", "DESTINATION_FULL"] == 3
    assert samples["sterna_refused_total", "NO_SUCH_DESTINATION"] == 1
    assert samples["sterna_refused_total", "STORE_FULL"] == 0, "it is there before the first"
    assert samples["sterna_streams_cut_total", "MALFORMED_FRAME"] == 1


async def test_every_documented_metric_is_there(node: Any) -> None:
    _, page = await get(await node(), "/metrics")
    documented = {word.strip("`,") for line in (metrics.__doc__ or "").splitlines() for word in line.split()}
    given = {sample.name for family in text_string_to_metric_families(page) for sample in family.samples}
    assert given <= documented
    # Those of single destinations appear with the first destination.
    missing = {name for name in documented if name.startswith("sterna_")} - given
    # Some are there with TLS alone (tests/access), or in a cluster (tests/cluster).
    elsewhere = (
        "sterna_destination_",
        "sterna_durable_",
        "sterna_certificate_",
        "sterna_etcd_",
        "sterna_cluster_",
        "sterna_stray_",
    )
    assert all(name.startswith(elsewhere) for name in missing)


async def test_health_is_serving_while_the_broker_serves(node: Any, channel_to: Any) -> None:
    stub: Any = health_pb2_grpc.HealthStub(channel_to(await node()))
    for service in ("", "sterna.v1.Messaging", "sterna.v1.Admin"):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_describes_the_services(broker_process: Any) -> None:
    running = broker_process().start()
    with grpc.insecure_channel(running.address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        services = set(database.get_services())
        assert {"sterna.v1.Messaging", "sterna.v1.Admin", "grpc.health.v1.Health"} <= services
        file = database.FindFileContainingSymbol("sterna.v1.Messaging")
        assert file.name == "sterna/v1/messaging.proto"
