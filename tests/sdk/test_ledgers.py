"""Ledgers of clients against a real broker: what becomes of them when a process is killed, forks, or has no disk."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sterna
import sterna.blocking
import xxhash
from sterna import Ledger, errors, ledger

from tests.running import RunningBroker
from tests.sdk.conftest import Connect
from tests.support import ledger_clients, ledgers


def _started(mode: str, broker: RunningBroker, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.ledger_clients", mode, f"sterna://{broker.address}", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _ran(mode: str, broker: RunningBroker, folder: Path) -> dict[str, Any]:
    process = _started(mode, broker, folder)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return dict(json.loads(out))


def _stored(broker: RunningBroker) -> Iterator[tuple[str, bytes]]:
    """What the broker has of a client, by message id."""
    with (
        sterna.blocking.connect(f"sterna://{broker.address}") as connection,
        connection.browser(ledger_clients.QUEUE) as browser,
    ):
        for message in browser:
            yield message.message_id, str(message.body).encode()


def test_whatever_the_broker_has_of_a_process_that_was_killed_is_in_its_ledger(
    own_broker: RunningBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "ledger"
    process = _started("on", own_broker, folder)
    assert process.stdout is not None
    assert "going" in process.stdout.readline()
    process.kill()
    process.communicate(timeout=60)
    found = ledgers.sent(folder)
    assert len(ledgers.files(folder)) > 1
    assert not ledger.read(ledgers.files(folder)[-1]).is_closed
    stored = dict(_stored(own_broker))
    assert len(stored) > 1_000
    for id_, body in stored.items():
        assert found[id_].checksum == xxhash.xxh3_128_digest(body)
    assert ledgers.confirmed(folder) <= stored.keys()


def test_a_disk_without_room_ends_the_connection_and_nothing_leaves_that_is_not_written_down(
    own_broker: RunningBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "ledger"
    said = _ran("full", own_broker, folder)
    assert "the ledger cannot be written: File too large" in said["error"]
    assert str(folder) in said["error"]
    assert said["later"] == "LedgerError"
    assert said["ends"] == ["LedgerError"]
    found = ledgers.sent(folder)
    (file,) = ledgers.files(folder)
    reading = ledger.read(file)
    assert list(reading)
    assert reading.torn_bytes == 0  # what the disk took of a block was cut off again
    stored = dict(_stored(own_broker))
    assert 10 < len(stored) <= len(found)
    assert stored.keys() <= found.keys()
    assert set(said["confirmed"]) <= stored.keys()


def test_a_ledger_that_is_not_required_ends_alone_and_is_reported_once(
    own_broker: RunningBroker, tmp_path: Path
) -> None:
    said = _ran("without", own_broker, tmp_path / "ledger")
    assert said == {"reported": ["LedgerError"]}
    assert len(list(_stored(own_broker))) == 2_000
    assert 0 < len(ledgers.sent(tmp_path / "ledger")) < 2_000


def test_a_forked_child_writes_nothing_into_its_parents_ledger(own_broker: RunningBroker, tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    said = _ran("fork", own_broker, folder)
    assert said["child"] == 0
    found = ledgers.sent(folder)
    assert len(found) == 3
    assert set(said["sent"]) <= found.keys()
    assert ledgers.confirmed(folder) == found.keys()
    (file,) = ledgers.files(folder)
    reading = ledger.read(file)
    assert list(reading)
    assert reading.is_closed


def test_the_blocking_face_keeps_one_too(url: str, name: str, tmp_path: Path) -> None:
    with sterna.blocking.connect(url, ledger=Ledger(tmp_path)) as connection:
        producer = connection.producer(name)
        for number in range(500):
            producer.send_soon(b"%d" % number)
        producer.flush()
        assert connection.consumer(name).receive(10) is not None
    found = ledgers.sent(tmp_path)
    wanted = [xxhash.xxh3_128_digest(b"%d" % number) for number in range(500)]
    assert [one.checksum for one in found.values()] == wanted
    assert ledgers.confirmed(tmp_path) == found.keys()
    assert len(ledgers.of(tmp_path, ledger.Received)) == 1


async def test_a_synced_ledger_says_the_same(connect: Connect, name: str, tmp_path: Path) -> None:
    connection = await connect(ledger=Ledger(tmp_path, sync=True, rotate_bytes=4096))
    producer = await connection.producer(name)
    for number in range(500):
        await producer.send_soon(str(number))
    await producer.flush()
    await connection.close()
    assert len(ledgers.sent(tmp_path)) == 500
    assert len(ledgers.files(tmp_path)) > 1
    assert ledgers.confirmed(tmp_path) == ledgers.sent(tmp_path).keys()


async def test_a_synced_ledger_has_its_folders_on_the_disk_too_and_holds_up_nobody_else(
    connect: Connect, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: dict[int, set[int]] = {}
    fsync = os.fsync

    def watched(fd: int) -> None:
        synced.setdefault(os.fstat(fd).st_ino, set()).add(threading.get_ident())
        fsync(fd)

    monkeypatch.setattr(os, "fsync", watched)
    # All threads that the application shares wait for what is about to be sent.
    stuck = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    waits = loop.run_in_executor(None, stuck.wait)
    folder = tmp_path / "made" / "here"
    try:
        connection = await connect(ledger=Ledger(folder, sync=True, rotate_bytes=4096))
        producer = await connection.producer(name)
        async with asyncio.timeout(30):
            for number in range(400):
                await producer.send_soon(str(number))
            await producer.flush()
        folder.rename(tmp_path / "elsewhere")
        await producer.send("whoever collects ledgers may move them")
        await connection.close()
    finally:
        stuck.set()
        await waits
    files = ledgers.files(tmp_path / "elsewhere")
    assert len(files) > 1
    folders = [tmp_path / "elsewhere", tmp_path / "made", tmp_path]
    assert {one.stat().st_ino for one in (*files, *folders)} <= synced.keys()
    assert threading.get_ident() not in set().union(*synced.values())


async def test_connections_of_one_process_have_a_file_each(connect: Connect, name: str, tmp_path: Path) -> None:
    connections = [await connect(ledger=tmp_path) for _ in range(3)]
    for connection in connections:
        await connection.send(name, "one")
        await connection.close()
    files = ledgers.files(tmp_path)
    assert len(files) == 3
    assert all(len([one for one in ledger.read(file) if one.kind == "sent"]) == 1 for file in files)
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)


@pytest.mark.parametrize(
    "body", [None, "text", b"bytes", {"a": [1, {"b": 2}]}, [1, "two"], sterna.Object(b"data", "x/y"), "x" * 600_000]
)
async def test_each_kind_of_body_has_the_checksum_that_a_receiver_can_make(
    connect: Connect, name: str, tmp_path: Path, body: Any
) -> None:
    connection = await connect(ledger=tmp_path)
    await connection.send(name, body)
    await connection.send(name, body, properties={"JMS_STERNA_COMPRESS": True})
    consumer = await connection.consumer(name)
    messages = [await consumer.receive(10), await consumer.receive(10)]
    await connection.close()
    plain, deflated = ledgers.sent(tmp_path).values()
    if isinstance(body, str | bytes | None):
        raw = body.encode() if isinstance(body, str) else body or b""
        assert plain.checksum == xxhash.xxh3_128_digest(raw)
    assert deflated.checksum != plain.checksum
    assert {one.message_id for one in messages if one is not None} == {plain.message_id, deflated.message_id}


def test_a_ledger_without_its_package_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with pytest.raises(errors.LedgerError, match=r"sterna\[ledger\]"):
        sterna.connect("sterna://127.0.0.1:1", ledger=tmp_path)
    with pytest.raises(errors.InvalidArgumentError, match="4096"):
        Ledger(tmp_path, rotate_bytes=10)
