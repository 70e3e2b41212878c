"""The process: what it says, how it ends, what a second start finds, what it refuses to start with."""

import asyncio
import json
import os
import re
import signal
import stat
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
from sterna._proto.sterna.v1 import messaging_pb2 as messaging

from tests.broker.calls import CallError, call
from tests.broker.wire import FrameError, body_of, queue, text
from tests.running import ANYTHING, RunningBroker, manifest
from tests.waiting import eventually, eventually_blocking


async def fill(wire: Any, broker: RunningBroker, count: int, name: str = "orders") -> Any:
    client = await wire(broker)
    session = await client.session()
    await client.producer(session, queue(name))
    await client.publish(session, [text(f"m{number}") for number in range(count)])
    await client.confirmed(count)
    return client


def test_start_says_in_one_line_where_it_listens_and_what_it_found(broker_process: Any) -> None:
    broker = broker_process().start()
    pattern = (
        r"sterna broker 'sterna' serves sterna://127\.0\.0\.1:\d+ "
        r"\(monitor http://127\.0\.0\.1:\d+\); empty store in \d+ ms\n"
    )
    assert re.fullmatch(pattern, broker.stdout)
    assert broker.ready["pid"] == broker.pid
    assert stat.S_IMODE(broker.data.stat().st_mode) == 0o700
    assert broker.terminate() == 0
    # Logs are lines of JSON on stderr, and nothing else is.
    events = [json.loads(line)["event"] for line in broker.stderr.splitlines()]
    assert events == ["draining", "stopped"]


@pytest.mark.covers("EMS-STORE-A02")
async def test_what_was_confirmed_survives_a_kill(broker_process: Any, wire: Any) -> None:
    broker = await asyncio.to_thread(broker_process().start)
    client = await fill(wire, broker, 50)
    opened = await client.consumer(1, queue("orders"), credit=10)
    seen = await client.deliveries(10)
    await client.acknowledge(1, opened.source, seen[0].sequence, seen[4].sequence)
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.start)
    assert re.search(r"recovered 45 messages from \d+ records in \d+ segments", broker.stdout)
    again = await wire(broker)
    assert again.welcome.epoch == client.welcome.epoch + 1
    assert again.welcome.store_id == client.welcome.store_id
    await again.consumer(await again.session(), queue("orders"))
    rest = await again.deliveries(45)
    assert [body_of(delivery) for delivery in rest] == [f"m{number}" for number in range(5, 50)]
    # Those that had been delivered come flagged.
    assert all(delivery.redelivered for delivery in rest[:5])


@pytest.mark.covers("EMS-ADMIN-A05")
async def test_sigterm_tells_clients_and_waits_for_them(broker_process: Any, wire: Any) -> None:
    broker = await asyncio.to_thread(broker_process(drain_ms=60_000).start)
    client = await fill(wire, broker, 3)
    os.kill(broker.pid, signal.SIGTERM)
    away = (await client.next("go_away")).go_away
    assert away.reason.code == messaging.SHUTTING_DOWN
    assert away.grace_ms == 60_000
    with pytest.raises((FrameError, AssertionError, grpc.aio.AioRpcError)):
        await wire(broker)
    status, ready = await asyncio.to_thread(probe, broker, "/readyz")
    assert (status, ready["reasons"]) == (503, ["the broker is draining"])
    assert (await asyncio.to_thread(probe, broker, "/livez"))[0] == 200
    # What is under way can be finished.
    await client.publish(1, [text("last")], first=4)
    await client.confirmed(4)
    await client.goodbye()
    assert await asyncio.to_thread(broker.wait) == 0


def probe(broker: RunningBroker, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(broker.monitor + path, timeout=5) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


async def test_a_drain_ends_when_its_time_is_up(broker_process: Any, wire: Any) -> None:
    broker = await asyncio.to_thread(broker_process(drain_ms=100).start)
    client = await fill(wire, broker, 1)
    os.kill(broker.pid, signal.SIGTERM)
    assert await asyncio.to_thread(broker.wait) == 0
    assert await client.status() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_hurries(broker_process: Any, wire: Any, number: signal.Signals) -> None:
    broker = await asyncio.to_thread(broker_process(drain_ms=600_000).start)
    client = await fill(wire, broker, 1)
    os.kill(broker.pid, number)
    await client.next("go_away")
    os.kill(broker.pid, number)
    assert await asyncio.to_thread(broker.wait) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_that_waits_for_etcd_at_its_start_stops_when_told(broker_process: Any, number: signal.Signals) -> None:
    """It may wait for ever: it has never seen what the cluster's configuration is."""
    nobody = {"etcd": "http://127.0.0.1:1", "cluster": "c1"}
    broker = broker_process(None)
    broker.flags |= {"name": "b0", "cluster": nobody}
    broker.launch()
    waits = "waiting_for_etcd"
    eventually_blocking(lambda: waits in broker.stderr or None, timeout_s=60, what="its waiting")
    os.kill(broker.pid, number)
    assert broker.wait() == 0
    assert "stopped_before_it_served" in broker.stderr


async def test_a_clean_stop_leaves_nothing_to_recover_from_the_tail(broker_process: Any, wire: Any) -> None:
    broker = await asyncio.to_thread(broker_process().start)
    client = await fill(wire, broker, 5)
    await client.goodbye()
    await client.status()
    assert await asyncio.to_thread(broker.terminate) == 0
    await asyncio.to_thread(broker.start)
    assert broker.ready["recovery"]["clean"] is True
    assert broker.ready["recovery"]["messages"] == 5


@pytest.mark.covers("EMS-STORE-A12", "UM-STORE-B14", "EMS-STORE-E07")
async def test_a_second_broker_on_the_same_data_is_refused(broker_process: Any, wire: Any) -> None:
    first = await asyncio.to_thread(broker_process().start)
    client = await fill(wire, first, 1)
    second = RunningBroker(first.folder, None, ready_file=str(first.folder / "second"))
    second._starts = 100
    await asyncio.to_thread(second.launch)
    assert await asyncio.to_thread(second.wait) == 1
    assert "the store cannot be opened" in second.stderr
    assert "Stop the other broker" in second.stderr
    # The first one did not notice, and once it is gone the lock is, too.
    await client.publish(1, [text("x")], first=2)
    await client.confirmed(2)
    await asyncio.to_thread(first.kill)
    await asyncio.to_thread(first.start)


@pytest.mark.covers("EMS-STORE-A14", "EMS-STORE-E01", "EMS-STORE-E09", "EMS-STORE-E04", "EMS-STORE-B01")
async def test_a_damaged_store_is_refused_and_force_start_reports_what_it_drops(broker_process: Any, wire: Any) -> None:
    broker = await asyncio.to_thread(broker_process().start)
    client = await fill(wire, broker, 20)
    await client.publish(1, [text("FINDME" * 20)], first=21)
    await client.confirmed(21)
    await client.publish(1, [text("after")] * 20, first=22)
    await client.confirmed(41)
    await client.goodbye()
    await client.status()
    await asyncio.to_thread(broker.terminate)
    await asyncio.to_thread(damage, broker.data, b"FINDMEFINDME")
    await asyncio.to_thread(broker.launch)
    assert await asyncio.to_thread(broker.wait) == 1
    assert "--force-start" in broker.stderr
    assert re.search(r"offset \d+|at \d+", broker.stderr)
    broker.flags["force_start"] = True
    await asyncio.to_thread(broker.start)
    assert "dropped 1 damaged records" in broker.stdout
    [report] = [json.loads(line) for line in broker.stderr.splitlines() if "damaged_record_dropped" in line]
    assert report["offset"] > 0
    again = await wire(broker)
    await again.consumer(await again.session(), queue("orders"))
    bodies = [body_of(delivery) for delivery in await again.deliveries(40)]
    assert bodies == [*(f"m{number}" for number in range(20)), *["after"] * 20]


@pytest.mark.covers("EMS-STORE-A14", "EMS-STORE-E10")
async def test_messages_of_a_queue_whose_name_is_lost_are_kept_and_had_by_whoever_asks(
    broker_process: Any, wire: Any
) -> None:
    small = manifest("Broker", "sterna", "log: {segmentBytes: 1048576}, limits: {messageBytes: 262144}")
    broker = await asyncio.to_thread(broker_process([*ANYTHING, small]).start)
    client = await fill(wire, broker, 1)
    for number in range(2, 32):
        await client.publish(1, [text(f"{number} " + "x" * 100_000)], first=number)
    await client.confirmed(31)
    await client.goodbye()
    await client.status()
    await asyncio.to_thread(broker.terminate)
    for kind in ("segment", "footer"):
        (broker.data / "log" / f"0000000000000001.{kind}").unlink()
    await asyncio.to_thread(broker.launch)
    assert await asyncio.to_thread(broker.wait) == 1
    broker.flags["force_start"] = True
    await asyncio.to_thread(broker.start)
    told = re.search(r"kept (\d+) messages whose queues' names are lost in (\$sys\.recovered\.\d+)", broker.stdout)
    assert told is not None, broker.stdout
    count, name = int(told[1]), told[2]
    assert 10 < count < 31
    [line] = [line for line in broker.stderr.splitlines() if "queue_recovered_without_its_name" in line]
    assert json.loads(line)["messages"] == count
    # From now on it starts as ever.
    broker.flags.pop("force_start")
    await asyncio.to_thread(broker.terminate)
    await asyncio.to_thread(broker.start)
    again = await wire(broker)
    await again.consumer(await again.session(), queue(name))
    bodies = [body_of(delivery) for delivery in await again.deliveries(count)]
    assert [body.split()[0] for body in bodies] == [f"{number}" for number in range(32 - count, 32)]


async def test_damage_is_logged_when_it_is_found_although_nobody_asks(broker_process: Any, wire: Any) -> None:
    small = manifest("Broker", "sterna", "log: {segmentBytes: 1048576}, limits: {messageBytes: 262144}")
    broker = await asyncio.to_thread(broker_process([*ANYTHING, small]).start)
    client = await fill(wire, broker, 1)
    await client.publish(1, [text("FINDME" * 20)], first=2)
    for number in range(3, 23):
        await client.publish(1, [text("x" * 100_000)], first=number)
    await client.confirmed(22)
    await client.goodbye()
    await client.status()
    await asyncio.to_thread(broker.terminate)
    # Its segment is sealed: a start does not read it.
    await asyncio.to_thread(broker.start)
    await asyncio.to_thread(damage, broker.data, b"FINDMEFINDME")
    again = await wire(broker)
    await again.consumer(await again.session(), queue("orders"))
    await eventually(lambda: "damaged_place_found" in broker.stderr, what="a line of the damaged place")
    [place] = [json.loads(line) for line in broker.stderr.splitlines() if "damaged_place_found" in line]
    assert place["position"] > 0


def damage(data: Path, what: bytes) -> None:
    for file in (data / "log").rglob("*"):
        if file.is_file() and (at := file.read_bytes().find(what)) >= 0:
            with file.open("r+b") as stream:
                stream.seek(at)
                stream.write(b"DAMAGE")
            return
    raise AssertionError("the message is in no file")


@pytest.mark.covers("EMS-ADMIN-B22", "EMS-ADMIN-E11", "EMS-ADMIN-E12", "EMS-ADMIN-E14")
@pytest.mark.parametrize(
    ("manifests", "expected"),
    [
        (
            [manifest("Queue", "a", "maxMesages: 1")],
            r"all\.yaml:4:8: spec\.maxMesages: unknown field; did you mean maxMessages\?",
        ),
        (
            [manifest("Queue", "a"), manifest("Queue", "a")],
            r"all\.yaml:8:12: metadata\.name: a Queue of this name stands at",
        ),
        (["a: [", "b: 1"], r"not valid YAML"),
        ([manifest("Broker", "b", "listeners: {messaging: '0.0.0.0:7222'}")], "has no TLS .* and no users"),
        ([manifest("Broker", "b", "limits: {connections: 0}")], r"all\.yaml:4:\d+: spec\.limits\.connections: "),
        ([manifest("Broker", "b", "log: {volatileBytes: -1}")], r"all\.yaml:4:\d+: spec\.log\.volatileBytes: "),
        ([manifest("Topic", "a", "store: other")], r"spec\.store: no store 'other'"),
    ],
)
def test_a_bad_configuration_ends_the_start_with_status_2(
    broker_process: Any, manifests: list[str], expected: str
) -> None:
    flags = {} if "Broker" not in manifests[0] else {"listen": None}
    broker = broker_process(manifests, **flags)
    broker.launch()
    assert broker.wait() == 2
    assert re.search(expected, broker.stderr)
    assert broker.stdout == ""


@pytest.mark.covers("EMS-ADMIN-E23")
@pytest.mark.parametrize(
    ("flag", "value"), [("listen", "0.0.0.0:0"), ("monitor", "10.1.2.3:80"), ("listen", "nonsense")]
)
def test_an_address_beyond_this_machine_ends_the_start_with_status_2(
    broker_process: Any, flag: str, value: str
) -> None:
    broker = broker_process(**{flag: value})
    broker.launch()
    assert broker.wait() == 2
    assert value in broker.stderr


@pytest.mark.covers("EMS-ADMIN-E23")
def test_a_port_that_is_taken_ends_the_start_with_status_1(broker_process: Any) -> None:
    first = broker_process().start()
    for flag, address in (("listen", first.address), ("monitor", first.ready["monitor"])):
        second = broker_process(name=f"second-{flag}", **{flag: address})
        second.launch()
        assert second.wait() == 1
        assert f"cannot listen on {address}" in second.stderr


@pytest.mark.covers("EMS-ADMIN-B22", "EMS-STORE-E07")
def test_a_missing_folder_of_manifests_is_an_error(broker_process: Any) -> None:
    broker = broker_process(config="/nowhere/at/all")
    broker.launch()
    assert broker.wait() == 2
    assert "/nowhere/at/all" in broker.stderr


async def test_without_a_folder_anything_may_be_created(broker_process: Any, wire: Any) -> None:
    broker = await asyncio.to_thread(broker_process(None).start)
    await fill(wire, broker, 1, "any.name.at.all")


async def test_sighup_reads_the_folder_again(broker_process: Any, wire: Any, channel_to: Any) -> None:
    broker = await asyncio.to_thread(broker_process([manifest("Queue", "a")]).start)
    channel = channel_to(broker)
    (broker.config / "more.yaml").write_text(manifest("Queue", "b"))
    os.kill(broker.pid, signal.SIGHUP)

    async def queues() -> list[str]:
        return [one.name for one in (await call(channel, "Admin/List", kind="Queue")).resources]

    async with asyncio.timeout(10):
        while await queues() != ["a", "b"]:
            pass
    (broker.config / "more.yaml").write_text(manifest("Queue", "c", "wrong: 1"))
    os.kill(broker.pid, signal.SIGHUP)
    await eventually(lambda: "configuration_not_reloaded" in broker.stderr, what="the refusal")
    assert await queues() == ["a", "b"]


@pytest.mark.covers("EMS-ADMIN-B26", "EMS-ADMIN-B09")
async def test_what_was_applied_is_there_after_a_restart(broker_process: Any, channel_to: Any) -> None:
    broker = await asyncio.to_thread(broker_process([manifest("Queue", "a", "maxMessages: 1")]).start)
    manifests = manifest("Queue", "a", "maxMessages: 2") + "---\n" + manifest("Queue", "b")
    await call(channel_to(broker), "Admin/Apply", manifests=manifests)
    await call(channel_to(broker), "Admin/Delete", kind="Queue", name="b")
    await call(channel_to(broker), "Admin/Apply", manifests=manifest("Queue", "c"))
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.start)
    resources = (await call(channel_to(broker), "Admin/List", kind="Queue")).resources
    assert [(one.name, one.owner) for one in resources] == [("a", "admin"), ("c", "admin")]
    assert json.loads(resources[0].manifest)["spec"] == {"maxMessages": 2}


async def test_unary_calls_are_refused_while_draining(broker_process: Any, wire: Any, channel_to: Any) -> None:
    broker = await asyncio.to_thread(broker_process(ANYTHING, drain_ms=60_000).start)
    client = await fill(wire, broker, 1)
    channel = channel_to(broker)
    await call(channel, "Admin/GetStatistics")
    os.kill(broker.pid, signal.SIGTERM)
    await client.next("go_away")
    with pytest.raises(CallError) as caught:
        await call(channel, "Admin/GetStatistics")
    assert (caught.value.code, caught.value.error.retryable) == ("SHUTTING_DOWN", True)
    await client.goodbye()
    assert await asyncio.to_thread(broker.wait) == 0


def test_nothing_is_left_running_after_a_kill(broker_process: Any) -> None:
    broker = broker_process().start()
    broker.kill()
    assert eventually_blocking(lambda: not Path(f"/proc/{broker.pid}/task").exists())
