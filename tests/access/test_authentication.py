"""Who gets in at a live broker: by stream, by single call, by HTTP; and who has to leave."""

import asyncio
import base64
import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import sterna.admin
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from sterna._proto.sterna.v1 import messaging_pb2 as messaging
from sterna.cuts import HeldCut
from sterna.errors import UnauthenticatedError
from sterna_broker.access import verification
from sterna_resources.passwords import Cost

from tests.access.conftest import hashed
from tests.broker.calls import CallError, call
from tests.broker.wire import CONNECT, FrameError, Wire, queue, text
from tests.waiting import eventually

Node = Callable[..., Any]


def password(user: str, secret: str) -> dict[str, Any]:
    return {"credentials": {"password": {"user": user, "password": secret}}}


def basic(user: str, secret: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Basic {base64.b64encode(f'{user}:{secret}'.encode()).decode()}"),)


async def refusal(wire: Any, target: Any, **hello: Any) -> FrameError:
    with pytest.raises(FrameError) as caught:
        await wire(target, **hello)
    return caught.value


@pytest.mark.covers("EMS-SEC-B01", "EMS-SEC-A08", "EMS-SEC-C03")
async def test_users_get_in_with_their_password_and_nobody_else_does(
    node: Node, wire: Any, users_file: Callable[..., Path]
) -> None:
    running = await node(users=await asyncio.to_thread(users_file, alice="right", bob="other"))
    await wire(running, **password("alice", "right"))
    wrong = await refusal(wire, running, **password("alice", "other"))
    unknown = await refusal(wire, running, **password("carol", "other"))
    assert wrong.code == unknown.code == "UNAUTHENTICATED"
    assert str(wrong) == str(unknown)
    assert not wrong.error.retryable
    assert "no user and password were given" in str(await refusal(wire, running))
    assert "token" in str(await refusal(wire, running, credentials={"token": "t"}))


async def test_without_users_a_name_is_a_claim_and_a_token_is_refused(node: Node, wire: Any) -> None:
    running = await node()
    await wire(running, **password("alice", "whatever"))
    assert (await refusal(wire, running, credentials={"token": "t"})).code == "UNAUTHENTICATED"


async def test_the_list_of_connections_says_who_it_is(
    node: Node, wire: Any, channel_to: Any, users_file: Callable[..., Path]
) -> None:
    running = await node(users=await asyncio.to_thread(users_file, alice="1", bob="2"))
    await wire(running, **password("alice", "1"))
    await wire(running, **password("bob", "2"))
    listed = await call(channel_to(running), "Admin/ListConnections", metadata=basic("bob", "2"))
    assert sorted(one.user for one in listed.connections) == ["alice", "bob"]


async def test_single_calls_say_who_they_are_in_a_header(
    node: Node, channel_to: Any, users_file: Callable[..., Path]
) -> None:
    running = await node(users=await asyncio.to_thread(users_file, alice="räuber"))
    channel = channel_to(running)
    sending = {"destination": queue("q"), "message": {"text": "m"}}
    for method, fields in (
        ("Admin/GetStatistics", {}),
        ("Messaging/Send", sending),
        ("Admin/List", {"kind": "Queue"}),
        ("Admin/BeginCut", {}),
    ):
        await call(channel, method, metadata=basic("alice", "räuber"), **fields)
        for metadata in ((), basic("alice", "wrong"), basic("carol", "räuber"), (("authorization", "Bearer x"),)):
            with pytest.raises(CallError) as caught:
                await call(channel, method, metadata=metadata, **fields)
            assert caught.value.status is grpc.StatusCode.UNAUTHENTICATED


async def test_nobody_who_is_not_admitted_begins_reads_or_confirms_a_cut(
    node: Node, users_file: Callable[..., Path]
) -> None:
    running = await node(users=await asyncio.to_thread(users_file, alice="1"))
    url = f"sterna://{running.messaging}"
    async with (
        sterna.admin.connect(url, user="alice", password="1") as alice,
        sterna.admin.connect(url, user="mallory", password="1") as mallory,
    ):
        with pytest.raises(UnauthenticatedError):
            await mallory.begin_cut()
        cut = await alice.begin_cut()
        assert cut is not None
        with pytest.raises(UnauthenticatedError):
            await mallory.hold_cut(cut).__aenter__()
        async with alice.hold_cut(cut) as held:
            stolen = HeldCut(cut, mallory._stream, mallory._call, mallory._error)
            stolen._hold = held._hold
            with pytest.raises(UnauthenticatedError):
                await stolen.confirm(bytes(32))
            await held.confirm(bytes(range(32)))
        again = await alice.begin_cut()
        assert again is not None
        assert again.previous_manifest == bytes(range(32))


@pytest.mark.parametrize("header", ["Basic", "Basic !", "Basic " + base64.b64encode(b"no colon").decode(), "Digest x"])
async def test_a_header_that_cannot_be_read_is_refused_saying_how_it_is_written(
    node: Node, channel_to: Any, users_file: Callable[..., Path], header: str
) -> None:
    running = await node(users=await asyncio.to_thread(users_file, alice="1"))
    with pytest.raises(CallError, match="authorization: Basic") as caught:
        await call(channel_to(running), "Admin/GetStatistics", metadata=(("authorization", header),))
    assert caught.value.code == "UNAUTHENTICATED"


async def test_health_and_reflection_ask_nobody_and_reflection_can_be_off(
    node: Node, channel_to: Any, users_file: Callable[..., Path]
) -> None:
    async def services(channel: Any) -> list[str]:
        # The one question in one step with the call's end: writing to a server that has refused already may fail before
        # its refusal is read.
        ask = channel.unary_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        found = ask(reflection_pb2.ServerReflectionRequest(list_services=""))
        return [one.name async for answer in found for one in answer.list_services_response.service]

    running = await node(users=await asyncio.to_thread(users_file, alice="1"))
    channel = channel_to(running)
    health: Any = health_pb2_grpc.HealthStub(channel)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
    assert "sterna.v1.Messaging" in await services(channel)
    silent = await node(users=await asyncio.to_thread(users_file, alice="1"), reflection=False, folder="silent")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await services(channel_to(silent))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_probes_ask_nobody_and_metrics_do(node: Node, users_file: Callable[..., Path]) -> None:
    import aiohttp

    running = await node(users=await asyncio.to_thread(users_file, alice="1"))
    opened = await node(users=await asyncio.to_thread(users_file, alice="1"), open_metrics=True, folder="opened")
    async with aiohttp.ClientSession() as session:

        async def status(target: Any, path: str, **headers: str) -> int:
            async with session.get(f"http://{target.monitor}{path}", headers=headers) as response:
                return response.status

        assert [await status(running, path) for path in ("/livez", "/readyz", "/metrics")] == [200, 200, 401]
        (name, right), (_, wrong) = basic("alice", "1")[0], basic("alice", "2")[0]
        assert await status(running, "/metrics", **{name: right}) == 200
        assert await status(running, "/metrics", **{name: wrong}) == 401
        assert await status(opened, "/metrics") == 200


# --- Change


@pytest.mark.covers("EMS-SEC-B07", "EMS-SEC-C05")
async def test_a_changed_file_counts_within_a_second_or_two(
    node: Node, wire: Any, users_file: Callable[..., Path]
) -> None:
    running = await node(users=await asyncio.to_thread(users_file, alice="old"))
    await wire(running, **password("alice", "old"))
    await asyncio.to_thread(users_file, alice=["new"], bob="2")
    await eventually(lambda: running.users.knows("bob"), timeout_s=5, what="the changed file")
    await wire(running, **password("alice", "new"))
    await wire(running, **password("bob", "2"))
    assert (await refusal(wire, running, **password("alice", "old"))).code == "UNAUTHENTICATED"
    await asyncio.to_thread(users_file, bob="2")
    await eventually(lambda: not running.users.knows("alice"), timeout_s=5, what="the end of alice")
    assert (await refusal(wire, running, **password("alice", "new"))).code == "UNAUTHENTICATED"


async def test_a_spoilt_file_leaves_the_users_there_were(
    node: Node, wire: Any, users_file: Callable[..., Path], logged: list[dict[str, Any]]
) -> None:
    path = await asyncio.to_thread(users_file, alice="1")
    running = await node(users=path)
    path.write_text("alice: s3cret")
    await running.reload()
    assert logged[-1]["event"] == "users_not_reloaded"
    assert f"{path}:1:1: alice: hash 1" in logged[-1]["error"]
    assert "s3cret" not in str(logged)
    await wire(running, **password("alice", "1"))


async def test_a_credential_that_is_taken_back_ends_its_connections_and_no_others(
    node: Node, wire: Any, users_file: Callable[..., Path]
) -> None:
    running = await node(users=await asyncio.to_thread(users_file, alice=["old", "new"], bob="2"))
    old = await wire(running, client_id="old", **password("alice", "old"))
    new = await wire(running, **password("alice", "new"))
    other = await wire(running, **password("bob", "2"))
    session = await old.session()
    await old.producer(session, queue("q"))
    await old.publish(session, [text("m")])
    await old.confirmed(1)
    await old.consumer(session, queue("q"))
    await old.deliveries(1)
    await asyncio.to_thread(users_file, alice="new", bob="2")
    await running.reload()
    ended = (await old.next("error")).error
    assert "not valid any more" in ended.message
    assert await new.session() == 1
    assert await other.session() == 1
    # What it held is others' at once, its client id too.
    again = await wire(running, client_id="old", **password("alice", "new"))
    await again.consumer(await again.session(), queue("q"))
    assert (await again.deliveries(1))[0].redelivered


async def test_a_stream_that_joined_a_connection_ends_with_its_credential(
    node: Node, wire: Any, users_file: Callable[..., Path]
) -> None:
    running = await node(users=await asyncio.to_thread(users_file, alice=["old", "new"]))
    first = await wire(running, client_id="c", **password("alice", "new"))
    token = first.welcome.connection_token
    # Another socket: of one user and peer all go together.
    async with grpc.aio.insecure_channel(
        str(running.messaging), options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        second = Wire(channel)
        assert (await second.hello(connection_token=token, **password("alice", "old"))).connection_token == token
        assert await second.session() > 0
        await asyncio.to_thread(users_file, alice="new")
        await running.reload()
        await second.status()
        second.close()
    # Its session is gone with it, and the connection goes on.
    assert await first.session() > 0
    async with sterna.admin.connect(f"sterna://{running.messaging}", user="alice", password="new") as admin:
        [row] = await admin.connections()
    assert (row.client_id, row.sessions) == ("c", 1)


@pytest.mark.covers("EMS-SEC-B08")
async def test_a_user_who_is_taken_out_is_gone_though_a_certificate_let_them_in(
    node: Node,
    tmp_path: Path,
    pki: dict[str, Path],
    authority: Any,
    secure_channel: Any,
    users_file: Callable[..., Path],
) -> None:
    ca = authority.write(tmp_path / "ca.pem")
    running = await node(
        **pki, client_ca=ca, certificate_user="cn", users=await asyncio.to_thread(users_file, alice=[], bob=[])
    )
    async with secure_channel(running.messaging, authority.issue(tmp_path / "alice", "alice")) as channel:
        stream = Wire(channel)
        await stream.hello()
        await asyncio.to_thread(users_file, bob=[])
        await running.reload()
        await stream.next("error")
        stream.close()


async def test_when_an_overlap_ends_whoever_still_used_the_old_password_has_to_leave(
    node: Node, wire: Any, users_file: Callable[..., Path]
) -> None:
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2)
    running = await node(users=await asyncio.to_thread(users_file, alice=[f"old@{until.isoformat()}", "new"]))
    old = await wire(running, **password("alice", "old"))
    new = await wire(running, **password("alice", "new"))
    assert "not valid any more" in (await old.next("error", 8)).error.message
    assert time.time() >= until.timestamp()
    assert (await refusal(wire, running, **password("alice", "old"))).code == "UNAUTHENTICATED"
    assert await new.session() == 1


async def test_a_client_that_says_all_at_once_and_closes_its_side_is_answered(
    node: Node, channel_to: Any, users_file: Callable[..., Path]
) -> None:
    path = await asyncio.to_thread(users_file, alice="1")
    await asyncio.to_thread(path.write_text, f"alice: {await asyncio.to_thread(hashed, '1', Cost())}\n")
    running = await node(users=path)
    for secret, kind in (("1", "welcome"), ("2", "error")):
        call_ = channel_to(running).stream_stream(CONNECT)()
        hello = messaging.Hello(protocol_version=1, **password("alice", secret))
        await call_.write(messaging.ClientBatch(frames=[messaging.ClientFrame(hello=hello)]).SerializeToString())
        await call_.done_writing()
        batches = [messaging.ServerBatch.FromString(one) async for one in call_]
        assert [frame.WhichOneof("frame") for batch in batches for frame in batch.frames] == [kind]


async def test_who_is_not_known_yet_cannot_fill_the_brokers_memory(
    node: Node, wire: Any, users_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await node(users=await asyncio.to_thread(users_file, alice="1"))
    handled: list[int] = []
    original = running._parts.pump.handle

    def handle(stream: int, batch: bytes) -> None:
        handled.append(len(batch))
        original(stream, batch)

    monkeypatch.setattr(running._parts.pump, "handle", handle)
    let_in = asyncio.Event()

    async def slowly(*_: Any) -> Any:
        await let_in.wait()
        return running.users.live("alice")[0]

    monkeypatch.setattr(running.gate._verifier, "verify", slowly)
    stream = await wire(running, greet=False)
    greeting = asyncio.create_task(stream.hello(**password("alice", "1")))
    await eventually(lambda: handled, what="the greeting")
    heartbeats = [messaging.ClientFrame(heartbeat=messaging.Heartbeat())] * 1_000
    writing = asyncio.create_task(asyncio.wait_for(_write_often(stream, heartbeats, 10), 10))
    # What waits for the decision is what was on its way, not more.
    await asyncio.wait((writing,), timeout=0.3)
    assert len(handled) == 1
    let_in.set()
    await greeting
    await writing
    await eventually(lambda: len(handled) == 11, what="the rest")


async def _write_often(stream: Wire, frames: list[messaging.ClientFrame], times: int) -> None:
    for _ in range(times):
        await stream.send(*frames)


async def test_a_defect_while_it_is_found_out_refuses_and_tells_no_secret(
    node: Node,
    wire: Any,
    users_file: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    running = await node(users=await asyncio.to_thread(users_file, alice="s3cret"))

    async def fails(*_: Any) -> Any:
        raise RuntimeError("out of order")

    monkeypatch.setattr(running.gate._verifier, "verify", fails)
    refused = await refusal(wire, running, **password("alice", "s3cret"))
    assert refused.code == "INTERNAL"
    assert "s3cret" not in str(refused) + "".join(capsys.readouterr())


async def test_users_of_the_cluster_are_handed_over_and_nobody_gets_in_before(node: Node, wire: Any) -> None:
    running = await node(users_from_cluster=True)
    assert (await refusal(wire, running, **password("alice", "1"))).code == "UNAUTHENTICATED"
    assert running.users.replace({"alice": {"credentials": [{"argon2": hashed("1"), "not_after_ms": None}]}}) == {}
    alice = await wire(running, **password("alice", "1"))
    running.users.replace({})
    await alice.next("error")


async def test_an_insecure_cluster_lets_in_everybody_until_there_is_a_user(node: Node, wire: Any) -> None:
    running = await node(users_from_cluster=True, insecure=True)
    anonymous = await wire(running)
    running.users.replace({"alice": {"credentials": [{"argon2": hashed("1"), "not_after_ms": None}]}})
    await anonymous.next("error")
    assert (await refusal(wire, running)).code == "UNAUTHENTICATED"
    await wire(running, **password("alice", "1"))


# Calls of administrators, each with arguments that would do something.
ADMINISTERING: list[tuple[str, dict[str, Any]]] = [
    ("GetStatistics", {}),
    ("List", {"kind": "Queue"}),
    ("ListConnections", {}),
    ("Purge", {"queue": "a"}),
]


@pytest.mark.covers("EMS-SEC-A07")
async def test_an_administrators_password_is_asked_for_though_the_broker_may_be_used_without_protection(
    node: Node, channel_to: Any, users_file: Callable[..., Path]
) -> None:
    running = await node(insecure=True, users=await asyncio.to_thread(users_file, admin="right"))
    channel = channel_to(running)
    for method, arguments in ADMINISTERING:
        for wrong in ((), basic("admin", ""), basic("admin", "wrong"), basic("nobody", "right")):
            with pytest.raises(CallError) as caught:
                await call(channel, f"Admin/{method}", metadata=wrong, **arguments)
            assert caught.value.status is grpc.StatusCode.UNAUTHENTICATED
    await call(channel, "Admin/GetStatistics", metadata=basic("admin", "right"))


# --- Floods


async def test_a_flood_of_wrong_passwords_holds_up_nobodys_messages(
    node: Node, wire: Any, users_file: Callable[..., Path]
) -> None:
    path = await asyncio.to_thread(users_file, alice="1")
    path.write_text(f"alice: {await asyncio.to_thread(hashed, '1', Cost())}\n")
    running = await node(users=path)
    alice = await wire(running, **password("alice", "1"))
    session = await alice.session()
    await alice.producer(session, queue("q"))

    async def guess(number: int) -> str:
        return (await refusal(wire, running, **password(f"u{number}", "wrong"))).code

    # The plugin that watches the loop fails this test if a callback takes 200 ms.
    flood = [asyncio.create_task(guess(number)) for number in range(120)]
    took_s = []
    for number in range(1, 31):
        began = time.perf_counter()
        await alice.publish(session, [text("m")], first=number)
        await alice.confirmed(number)
        took_s.append(time.perf_counter() - began)
    codes = await asyncio.gather(*flood)
    assert codes.count("UNAVAILABLE") > 0
    assert codes.count("UNAUTHENTICATED") >= verification.WAITING_MIN // 2
    # Behind the flood each would wait for some seconds.
    assert sorted(took_s)[15] < 1
    # And whoever was let in before comes back at once.
    await wire(running, **password("alice", "1"))
