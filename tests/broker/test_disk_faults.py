"""A broker in a process of its own whose disk fails, fills, or runs out of open files under it."""

import asyncio
import errno
import json
import socket
import ssl
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sterna
from sterna import errors

from tests.access.authorities import Authority
from tests.running import ANYTHING, RunningBroker, manifest
from tests.support.system_calls import Supervised, failing, is_possible
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(not is_possible(), reason="system calls are supervised on Linux on x86-64 alone")

# The smallest segments, so that a log goes on to its next file after few messages.
SMALL = manifest("Broker", "sterna", "log: {segmentBytes: 1048576}, limits: {messageBytes: 262144}")
BODY = b"x" * 20_000
_HASTY = sterna.Reconnect(give_up_after_s=0.5)


def events(broker: RunningBroker, name: str) -> list[dict[str, Any]]:
    """The lines of a broker's log with this event."""
    lines = [json.loads(line) for line in broker.stderr.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


async def drained(broker: RunningBroker) -> list[bytes]:
    """The bodies of everything in the queue."""
    found = []
    async with sterna.connect(f"sterna://{broker.address}") as connection:
        consumer = await connection.consumer("orders")
        while (message := await consumer.receive(timeout=1)) is not None:
            found.append(bytes(message.body))
            message.acknowledge()
    return found


def _connect_and_say_nothing(address: str, times: int, stack: ExitStack) -> None:
    host, _, port = address.rpartition(":")
    for _ in range(times):
        stack.enter_context(socket.create_connection((host, int(port)), timeout=10))


@pytest.mark.covers("EMS-STORE-E06", "EMS-STORE-B12")
@pytest.mark.parametrize("call", ["fdatasync", "pwritev"])
async def test_a_disk_that_fails_ends_the_broker_with_its_reason_and_takes_nothing_that_was_confirmed(
    broker_process: Any, supervised: Supervised, call: str
) -> None:
    broker = broker_process(supervised=(supervised.address, (call,)))
    await asyncio.to_thread(broker.start)
    connection = await sterna.connect(f"sterna://{broker.address}", reconnect=_HASTY)
    try:
        await connection.send("orders", b"confirmed")
        assert supervised.calls[call] > 0
        supervised.decide = failing(call, ".segment")
        with pytest.raises(errors.SternaError):
            await connection.send("orders", b"in doubt")
        assert await asyncio.to_thread(broker.wait) == 1
    finally:
        await connection.close(failed=True, timeout_s=5)
    [failed] = events(broker, "engine_failed")
    assert "Input/output error" in failed["error"]
    assert f"the broker cannot go on:\n{failed['error']}" in broker.stderr
    supervised.decide = lambda _: 0
    await asyncio.to_thread(broker.start)
    assert (await drained(broker))[:1] == [b"confirmed"]


async def test_a_file_that_cannot_be_filled_with_zeros_is_a_failed_disk_too(
    broker_process: Any, supervised: Supervised
) -> None:
    broker = broker_process(manifests=(*ANYTHING, SMALL), supervised=(supervised.address, ("pwrite64",)))
    await asyncio.to_thread(broker.start)
    connection = await sterna.connect(f"sterna://{broker.address}", reconnect=_HASTY)
    try:
        await connection.send("orders", BODY)
        # Direct writes are the filler's; a plain one, which comes after them, would go well.
        supervised.decide = failing("pwrite64", ".segment")
        with pytest.raises(errors.SternaError):
            for _ in range(1_000):
                await connection.send("orders", BODY)
        assert await asyncio.to_thread(broker.wait) == 1
    finally:
        await connection.close(failed=True, timeout_s=5)
    [failed] = events(broker, "engine_failed")
    assert "fill" in failed["error"]


def is_full(broker: Any) -> bool:
    """Whether a broker says on /readyz that it does not serve, as it does of a full disk."""
    try:
        urllib.request.urlopen(f"{broker.monitor}/readyz", timeout=5).close()
    except urllib.error.HTTPError:
        return True
    return False


def has_room(broker: Any) -> bool:
    """Whether it says that it serves."""
    return not is_full(broker)


async def test_a_full_disk_refuses_at_once_says_so_and_lets_clients_go(
    broker_process: Any, supervised: Supervised
) -> None:
    broker = broker_process(manifests=(*ANYTHING, SMALL), supervised=(supervised.address, ("fallocate",)))
    await asyncio.to_thread(broker.start)
    supervised.decide = failing("fallocate", ".segment", errno.ENOSPC)
    sent = 0
    async with asyncio.timeout(30), sterna.connect(f"sterna://{broker.address}") as connection:
        with pytest.raises(errors.StoreFullError):
            while sent < 1_000:
                await connection.send("orders", BODY)
                sent += 1
        assert sent > 0
        # What is in it can be taken out, and then there is room again.
        supervised.decide = lambda _: 0
        consumer = await connection.consumer("orders")
        for _ in range(sent):
            message = await consumer.receive(timeout=10)
            assert message is not None
            await message.acknowledge()

        async def is_taken() -> bool:
            try:
                await connection.send("orders", b"there is room again")
            except errors.StoreFullError:
                return False
            return True

        await eventually(lambda: asyncio.ensure_future(is_taken()), timeout_s=20, what="room")


async def test_room_that_comes_back_is_found_while_nobody_is_there(broker_process: Any, supervised: Supervised) -> None:
    broker = broker_process(manifests=(*ANYTHING, SMALL), supervised=(supervised.address, ("fallocate",)))
    await asyncio.to_thread(broker.start)
    supervised.decide = failing("fallocate", ".segment", errno.ENOSPC)
    async with sterna.connect(f"sterna://{broker.address}") as connection:
        with pytest.raises(errors.StoreFullError):
            for _ in range(1_000):
                await connection.send("orders", BODY)
    supervised.calls.clear()
    await eventually(lambda: supervised.calls["fallocate"] >= 2, timeout_s=20, what="another look for room")
    supervised.decide = lambda _: 0
    # No client, and no probe before it is done: Kubernetes sends nobody to a broker that is not ready.
    before = supervised.calls["fallocate"]
    await eventually(lambda: supervised.calls["fallocate"] > before, timeout_s=20, what="the next look")
    # It was let through; the file that it found room for has yet to be filled.
    await eventually(lambda: asyncio.to_thread(has_room, broker), timeout_s=20, what="room")
    async with sterna.connect(f"sterna://{broker.address}") as connection:
        await connection.send("orders", b"there is room again")


async def test_a_write_that_finds_no_room_refuses_what_comes_behind_it(
    broker_process: Any, supervised: Supervised
) -> None:
    """A thin volume, or one that copies on write: a file's room is set aside, and its blocks are not."""
    broker = broker_process(supervised=(supervised.address, ("pwritev",)))
    await asyncio.to_thread(broker.start)
    async with asyncio.timeout(60), sterna.connect(f"sterna://{broker.address}") as connection:
        await connection.send("orders", b"before")
        supervised.decide = failing("pwritev", ".segment", errno.ENOSPC)
        asked = supervised.calls["pwritev"]
        first = asyncio.create_task(connection.send("orders", b"waits for room"))
        await eventually(lambda: supervised.calls["pwritev"] > asked, timeout_s=20, what="a write")
        await eventually(lambda: asyncio.to_thread(is_full, broker), timeout_s=20, what="a full disk")
        with pytest.raises(errors.StoreFullError):
            await connection.send("orders", b"refused")
        assert not first.done()
        supervised.decide = lambda _: 0
        await first
    assert set(await drained(broker)) >= {b"before", b"waits for room"}


async def test_damage_that_was_met_is_logged_when_the_broker_stops_though_nobody_probed(
    broker_process: Any, supervised: Supervised
) -> None:
    cold = SMALL.replace("segmentBytes: 1048576", "segmentBytes: 1048576, cacheBytes: 1048576")
    broker = broker_process(manifests=(*ANYTHING, cold), supervised=(supervised.address, ("pread64",)))
    await asyncio.to_thread(broker.start)
    async with sterna.connect(f"sterna://{broker.address}") as connection:
        for _ in range(200):
            await connection.send("orders", BODY)
        supervised.decide = failing("pread64", ".segment")
        consumer = await connection.consumer("orders")
        while (message := await consumer.receive(timeout=1)) is not None:
            message.acknowledge()
    assert await asyncio.to_thread(broker.terminate) == 0
    found = events(broker, "damaged_place_found")
    others = events(broker, "more_damaged_places_found")
    assert len(found) == 16
    assert 0 < others[-1]["places"] <= 200 - len(found)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_clients_that_only_connect_do_not_take_the_store_its_files(
    broker_process: Any, tmp_path: Path, secure: bool
) -> None:
    authority = Authority()
    certificate, key = authority.issue(tmp_path / "server")
    ca = authority.write(tmp_path / "ca.pem")
    flags = {"tls_cert": certificate, "tls_key": key} if secure else {}
    url, tls = ("sternas://", sterna.Tls(ca=ca)) if secure else ("sterna://", None)
    broker = broker_process(manifests=(*ANYTHING, SMALL), descriptors=(256, 512), **flags)
    await asyncio.to_thread(broker.start)
    probe = f"http{'s' if secure else ''}://{broker.ready['monitor']}/livez"
    trusting = ssl.create_default_context(cafile=ca) if secure else None
    async with sterna.connect(f"{url}{broker.address}", tls=tls) as connection:
        await connection.send("orders", b"before")
        with ExitStack() as idle:
            for address in (broker.address, broker.ready["monitor"]):
                await asyncio.to_thread(_connect_and_say_nothing, str(address), 600, idle)
            # Several files further, and whoever asks whether it lives is answered.
            for _ in range(300):
                await connection.send("orders", BODY)
            answer = await asyncio.to_thread(urllib.request.urlopen, probe, timeout=10, context=trusting)
            assert answer.status == 200
            answer.close()
        consumer = await connection.consumer("orders")
        for _ in range(301):
            message = await consumer.receive(timeout=10)
            assert message is not None
            message.acknowledge()
    [few] = events(broker, "few_open_files")
    assert few["open_files"] == 512
    assert await asyncio.to_thread(broker.terminate) == 0


async def test_links_that_are_closed_leave_their_places_to_others(broker_process: Any) -> None:
    """192 connections at once are taken: more than that come and go, of those that say nothing and of clients."""
    broker = broker_process(manifests=ANYTHING, descriptors=(256, 512))
    await asyncio.to_thread(broker.start)

    async def send(number: int) -> None:
        async with sterna.connect(f"sterna://{broker.address}") as connection:
            await connection.send("orders", f"{number}".encode())

    for round_ in range(3):
        with ExitStack() as idle:
            await asyncio.to_thread(_connect_and_say_nothing, str(broker.address), 250, idle)
        for number in range(10):
            await asyncio.gather(*(send(round_ * 100 + number * 10 + link) for link in range(10)))
    assert len(await drained(broker)) == 300
    assert await asyncio.to_thread(broker.terminate) == 0
