"""Bodies that go ahead of their messages: what is told when one is too large, and links that break on the way."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
import sterna
import sterna.admin
from sterna import AcknowledgeMode, Connection, Reconnect, errors

from tests.running import RunningBroker, manifest
from tests.sdk.conftest import Connect, drain
from tests.waiting import eventually

_MIB = 1 << 20
_SMALL_UPLOADS = manifest("Broker", "broker", "limits: {uploadBytes: 2097152}"), manifest("Queue", "large")
_LARGE_MESSAGES = (
    manifest("Broker", "broker", "limits: {messageBytes: 33554432, uploadBytes: 67108864}"),
    manifest("Queue", "large"),
)
_QUICKLY = Reconnect(initial_ms=10, maximum_ms=100)


@pytest.mark.parametrize("own_broker", [_SMALL_UPLOADS], indirect=True, ids=["2 MiB of uploads"])
async def test_whoever_sends_a_body_that_no_upload_holds_is_told_the_limit_and_what_to_do(
    own_broker: RunningBroker, connect: Connect
) -> None:
    connection = await connect(f"sterna://{own_broker.address}")
    producer = await connection.producer("large")
    with pytest.raises(errors.LimitExceededError) as refused:
        await producer.send(b"x" * (3 * _MIB))
    assert refused.value.subject == "upload_bytes"
    assert "upload_bytes is 2097152" in str(refused.value)
    assert "limits.uploadBytes" in refused.value.remedy
    await producer.send_soon(b"x" * (3 * _MIB))
    with pytest.raises(errors.FlushError) as failed:
        await producer.flush()
    assert "upload_bytes is 2097152" in str(failed.value)
    await producer.send(b"x" * _MIB)  # and goes on


@pytest.mark.covers("EMS-TX-A02")
@pytest.mark.parametrize("own_broker", [_SMALL_UPLOADS], indirect=True, ids=["2 MiB of uploads"])
async def test_a_transaction_with_a_body_that_no_upload_holds_fails_with_the_limit(
    own_broker: RunningBroker, connect: Connect
) -> None:
    connection = await connect(f"sterna://{own_broker.address}")
    session = await connection.session(AcknowledgeMode.TRANSACTED)
    producer = await session.producer("large")
    await producer.send("small")
    await producer.send(b"x" * (3 * _MIB))
    with pytest.raises(errors.TransactionRolledBackError) as refused:
        await session.commit()
    assert "upload_bytes is 2097152" in str(refused.value)
    async with sterna.admin.connect(f"sterna://{own_broker.address}") as admin:
        assert (await admin.resource("Queue", "large")).statistics.messages == 0


class Cutter:
    """Stands before a broker, and cuts whoever has sent it so many bytes; the next is let through until the next cut.

    With `shuts` nobody is let in after a cut, until `is_shut` is taken back.
    """

    def __init__(self, address: str, cuts: list[int], *, shuts: bool = False) -> None:
        self._host, self._port = address.rsplit(":", 1)
        self.cuts = cuts
        self.is_shut = False
        self._shuts = shuts
        self._server: asyncio.Server
        self._passing: set[asyncio.Future[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"sterna://{host}:{port}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._passing)
        await self._server.wait_closed()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_shut:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(self._host, int(self._port))
        ways = self._copy(reader, back, is_cut=True), self._copy(there, writer)
        self._writers += [writer, back]
        self._passing |= {asyncio.ensure_future(way) for way in ways}

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, is_cut: bool = False) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while part := await source.read(65_536):
                passed += len(part)
                target.write(part)
                await target.drain()
                if is_cut and self.cuts and passed >= self.cuts[0]:
                    self.cuts.pop(0)
                    self.is_shut = self._shuts
                    break
        target.transport.abort()


async def _uploaded(broker: RunningBroker) -> tuple[int, int, int]:
    async with sterna.admin.connect(f"sterna://{broker.address}") as admin:
        found = await admin.statistics()
    return found.uploaded_bytes_total, found.uploads_resumed_total, found.uploads_kept_bytes


def _body(bytes_: int) -> bytes:
    return random.Random(7).randbytes(bytes_)


@pytest.mark.covers("EMS-MSG-A14")
@pytest.mark.slow_callbacks(1000)
@pytest.mark.parametrize("own_broker", [_LARGE_MESSAGES], indirect=True, ids=["32 MiB"])
async def test_a_large_body_goes_on_where_its_link_broke_and_arrives_as_it_was(
    own_broker: RunningBroker, connect: Connect
) -> None:
    body = _body(24 * _MIB)
    cutter = Cutter(own_broker.address, [9 * _MIB, 9 * _MIB])
    async with cutter as address:
        connection: Connection = await connect(address, reconnect=_QUICKLY)
        producer = await connection.producer("large")
        await producer.send(body)
        await producer.send("behind it")
        assert cutter.cuts == []
    total, resumed, kept = await _uploaded(own_broker)
    # What was on the way when a link broke had not come, and is not counted; nothing was taken twice.
    assert (total, resumed, kept) == (len(body), 2, 0)
    consumer = await (await connect(f"sterna://{own_broker.address}")).consumer("large")
    found = await drain(consumer, 2)
    assert [one.body for one in found] == [body, "behind it"]


@pytest.mark.slow_callbacks(1000)
@pytest.mark.parametrize("own_broker", [_LARGE_MESSAGES], indirect=True, ids=["32 MiB"])
async def test_a_broker_that_was_started_again_gets_all_of_a_large_body(
    own_broker: RunningBroker, connect: Connect
) -> None:
    body = _body(24 * _MIB)
    cutter = Cutter(own_broker.address, [9 * _MIB], shuts=True)
    async with cutter as address:
        connection: Connection = await connect(address, reconnect=_QUICKLY)
        interrupted = asyncio.Event()
        connection.on_interrupted(lambda _: interrupted.set())
        producer = await connection.producer("large")
        sending = asyncio.create_task(producer.send(body))
        await interrupted.wait()
        await asyncio.to_thread(own_broker.kill)
        await asyncio.to_thread(own_broker.start)
        cutter.is_shut = False
        await sending
    assert (await _uploaded(own_broker))[1:] == (0, 0)
    consumer = await (await connect(f"sterna://{own_broker.address}")).consumer("large")
    assert [one.body for one in await drain(consumer, 1)] == [body]


@pytest.mark.slow_callbacks(1000)
@pytest.mark.parametrize("own_broker", [_LARGE_MESSAGES], indirect=True, ids=["32 MiB"])
async def test_whoever_begins_large_bodies_and_leaves_has_no_more_kept_than_a_connection_may_upload(
    own_broker: RunningBroker, connect: Connect
) -> None:
    body = _body(24 * _MIB)

    async def begins() -> None:
        async with Cutter(own_broker.address, [20 * _MIB], shuts=True) as address:
            connection: Connection = await connect(address, reconnect=_QUICKLY)
            interrupted = asyncio.Event()
            connection.on_interrupted(lambda _: interrupted.set())
            producer = await connection.producer("large")
            sending = asyncio.create_task(producer.send(body))
            await interrupted.wait()
            await connection.close(failed=True, timeout_s=5)
            with pytest.raises(errors.SternaError):
                await sending

    for _ in range(6):
        await begins()

    async def is_kept() -> bool:
        return (await _uploaded(own_broker))[2] > 32 * _MIB

    await eventually(is_kept, what="the beginnings of bodies")
    assert (await _uploaded(own_broker))[2] <= 64 * _MIB
