"""Breaks of the stream: everything is re-created, nothing confirmed is lost, what comes again says so."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import sterna
import sterna.admin
from sterna import AcknowledgeMode, DeliveryMode, Interrupted, Reconnect, Restored, TemporaryReplaced, Topic, errors

from tests.running import RunningBroker
from tests.sdk.conftest import Connect, drain
from tests.support.system_calls import Supervised
from tests.waiting import eventually

QUICKLY = Reconnect(initial_ms=10, maximum_ms=100)


async def restart(broker: RunningBroker, *, kill: bool = True) -> None:
    await asyncio.to_thread(broker.kill if kill else broker.terminate)
    await asyncio.to_thread(broker.start)


async def cut(connection: sterna.Connection) -> None:
    """Breaks the stream between a client and a broker that both live on."""
    link = connection._lifeline._link
    assert link is not None
    if link._call is not None:  # otherwise it is broken already
        link._call.cancel()
    await eventually(lambda: link.lost is not None)


def gathering(connection: sterna.Connection) -> list[Any]:
    events: list[Any] = []
    for hook in (connection.on_interrupted, connection.on_restored, connection.on_closed):
        listen: Callable[..., Any] = hook
        listen(events.append)
    connection.on_temporary_replaced(events.append)
    return events


async def test_a_store_that_was_lost_puts_what_was_under_way_in_doubt_and_takes_what_was_not(
    own_broker: RunningBroker, connect: Connect, name: str
) -> None:
    connection = await connect(f"sterna://{own_broker.address}", reconnect=QUICKLY)
    events = gathering(connection)
    producer = await connection.producer(name)
    await producer.send("confirmed, and lost with the store")
    os.kill(own_broker.pid, signal.SIGSTOP)
    for number in range(5):
        await producer.send_soon(f"under way {number}")
    link = connection._lifeline._link
    assert link is not None
    await eventually(lambda: link.outbox.bytes == 0)
    await asyncio.to_thread(own_broker.kill)
    await eventually(lambda: any(isinstance(event, Interrupted) for event in events))
    for number in range(3):
        await producer.send_soon(f"not begun {number}")
    await asyncio.to_thread(shutil.rmtree, own_broker.data)
    await asyncio.to_thread(own_broker.start)
    with pytest.raises(errors.FlushError) as flushed:
        await asyncio.wait_for(producer.flush(), 30)
    assert [type(error) for _, error in flushed.value.failures] == [errors.UnknownProducerError] * 5
    [restored] = [event for event in events if isinstance(event, Restored)]
    assert restored.in_doubt == 5
    found = await drain(await connection.consumer(name), 3)
    assert [message.text for message in found] == [f"not begun {number}" for number in range(3)]
    sent = await producer.send("goes on")
    assert sent.message_id.endswith(":4")


@pytest.mark.covers("FMQ-CLI-29", "EMS-CLI-A25", "EMS-HA-A07")
@pytest.mark.slow_callbacks(1000)
async def test_sends_go_on_over_a_killed_broker(own_broker: RunningBroker, connect: Connect, name: str) -> None:
    url = f"sterna://{own_broker.address}"
    connection = await connect(url, reconnect=QUICKLY)
    events = gathering(connection)
    producer = await connection.producer(name)
    await producer.send("first")

    async def send_all() -> None:
        for number in range(4000):
            await producer.send_soon(number.to_bytes(4, "big"))
        await producer.flush()

    sending = asyncio.create_task(send_all())
    await eventually(lambda: producer._lane.machine.next > 1000)
    await restart(own_broker)
    await asyncio.wait_for(sending, 60)
    assert [type(one) for one in events] == [Interrupted, Restored]
    assert events[1].epoch > 0
    assert (await producer.send("last")).message_id.endswith(":4002")

    consumer = await connection.consumer(name, prefetch=1000)
    found = [one.body for one in await drain(consumer, 4002, timeout=1.0)]
    assert found == ["first", *(number.to_bytes(4, "big") for number in range(4000)), "last"]


@pytest.mark.slow_callbacks(1000)
async def test_a_cut_stream_doubles_nothing(connect: Connect, name: str) -> None:
    connection = await connect(reconnect=QUICKLY)
    producer = await connection.producer(name)
    for round_ in range(5):
        for number in range(300):
            await producer.send_soon(f"{round_}.{number}")
        await cut(connection)
    await producer.flush()
    found = [one.body for one in await drain(await connection.consumer(name, prefetch=500), 1500, timeout=0.5)]
    assert found == [f"{round_}.{number}" for round_ in range(5) for number in range(300)]


@pytest.mark.slow_callbacks(1000)
@pytest.mark.covers("EMS-MSG-A20", "FMQ-CLI-19")
async def test_consumers_go_on_and_what_comes_again_is_flagged(
    own_broker: RunningBroker, connect: Connect, name: str
) -> None:
    connection = await connect(f"sterna://{own_broker.address}", client_id="c", reconnect=QUICKLY)
    durable = await connection.consumer(
        Topic(name), durable="d", acknowledge_mode=AcknowledgeMode.INDIVIDUAL, prefetch=10
    )
    queue = await connection.consumer(name, prefetch=10)
    for number in range(6):
        await connection.send(Topic(name), str(number))
    held = [await anext(durable) for _ in range(3)]
    assert await held[1].acknowledge() is True
    receiving = asyncio.create_task(queue.receive(30))
    await restart(own_broker)
    await connection.send(name, "for the queue")
    message = await receiving
    assert message is not None
    assert message.body == "for the queue"
    # What the application still holds is void: acknowledging it does no harm and says so.
    assert await held[0].acknowledge() is False
    held[2].release()
    again = await drain(durable, 5, timeout=0.5)
    assert [one.body for one in again] == ["0", "2", "3", "4", "5"]
    assert [one.redelivered for one in again[:2]] == [True, True]
    for one in again:
        one.acknowledge()
    await durable.session.flush()
    await restart(own_broker)
    assert await drain(durable, timeout=0.5) == []


@pytest.mark.slow_callbacks(1000)
async def test_every_kind_of_subscription_is_there_again(
    own_broker: RunningBroker, connect: Connect, name: str
) -> None:
    topic = Topic(name)
    connection = await connect(f"sterna://{own_broker.address}", client_id="c", reconnect=QUICKLY)
    consumers = [
        await connection.consumer(topic),
        await connection.consumer(topic, durable="d"),
        await connection.consumer(topic, shared="s"),
        await connection.consumer(topic, durable="sd", shared=True),
        await connection.consumer(topic, selector="x = 1"),
    ]
    await restart(own_broker)
    await connection.send(topic, "after", properties={"x": 1})
    for consumer in consumers:
        message = await consumer.receive(10)
        assert message is not None
        assert message.body == "after"


@pytest.mark.slow_callbacks(1000)
@pytest.mark.covers("EMS-TX-A03")
async def test_a_transaction_does_not_survive_a_break(connect: Connect, name: str) -> None:
    connection = await connect(reconnect=QUICKLY)
    await connection.send(name, "in")
    session = await connection.session(transacted=True)
    consumer = await session.consumer(name)
    producer = await session.producer(f"{name}.out")
    assert await consumer.receive(5) is not None
    await producer.send("lost")
    await cut(connection)
    with pytest.raises(errors.TransactionRolledBackError):
        await producer.send("still lost")
    with pytest.raises(errors.TransactionRolledBackError):
        await session.commit()
    async with session.transaction():
        message = await consumer.receive(10)
        assert message is not None
        assert (message.body, message.redelivered) == ("in", True)
        await producer.send("out")
    assert [one.body for one in await drain(await connection.consumer(f"{name}.out"), 1)] == ["out"]


@pytest.mark.slow_callbacks(1000)
async def test_a_commit_under_way_is_in_doubt(own_broker: RunningBroker, connect: Connect, name: str) -> None:
    connection = await connect(f"sterna://{own_broker.address}", reconnect=QUICKLY)
    session = await connection.session(transacted=True)
    producer = await session.producer(name)
    await producer.send("x")
    link = connection._lifeline._link
    assert link is not None
    os.kill(own_broker.pid, signal.SIGSTOP)
    committing = asyncio.create_task(session.commit())
    await eventually(lambda: bool(link._requests))
    link._call.cancel()
    with pytest.raises(errors.TransactionInDoubtError):
        await committing
    os.kill(own_broker.pid, signal.SIGCONT)
    async with session.transaction():
        await producer.send("y")
    bodies = [one.body for one in await drain(await connection.consumer(name), 1)]
    assert bodies in (["y"], ["x", "y"])


@pytest.mark.slow_callbacks(1000)
async def test_temporary_destinations_are_replaced(connect: Connect, name: str) -> None:
    connection = await connect(reconnect=QUICKLY)
    events = gathering(connection)
    queue = await connection.temporary_queue()
    consumer = await connection.consumer(queue)
    await cut(connection)
    await eventually(lambda: any(isinstance(one, Restored) for one in events))
    (replaced,) = [one for one in events if isinstance(one, TemporaryReplaced)]
    assert replaced.old == queue
    assert replaced.new != queue
    await connection.send(queue, "under its old name")  # the connection knows what took its place
    message = await consumer.receive(5)
    assert message is not None
    assert message.body == "under its old name"


@pytest.mark.slow_callbacks(1000)
async def test_requests_under_way_fail_and_later_ones_work(connect: Connect, name: str) -> None:
    client, server = await connect(reconnect=QUICKLY), await connect()
    asking = asyncio.create_task(client.request(name, "x", timeout=30))
    consumer = await server.consumer(name)
    first = await consumer.receive(10)
    assert first is not None
    await cut(client)
    with pytest.raises(errors.ConnectionLostError):
        await asking
    asking = asyncio.create_task(client.request(name, "y", timeout=30))
    second = await consumer.receive(10)
    assert second is not None
    await server.reply(second, "answer")
    assert (await asking).body == "answer"


@pytest.mark.slow_callbacks(1000)
async def test_giving_up_fails_what_waits(own_broker: RunningBroker, connect: Connect, name: str) -> None:
    patience = Reconnect(initial_ms=10, maximum_ms=50, give_up_after_s=0.3)
    connection = await connect(f"sterna://{own_broker.address}", reconnect=patience, connect_timeout_s=0.5)
    events = gathering(connection)
    producer = await connection.producer(name)
    consumer = await connection.consumer(name)
    receiving = asyncio.create_task(consumer.receive())
    await asyncio.to_thread(own_broker.kill)
    with pytest.raises(errors.ConnectionLostError):
        await producer.send("x")
    with pytest.raises(errors.ConnectionLostError):
        await receiving
    with pytest.raises(errors.ConnectionLostError):
        await connection.send(name, "x")
    assert isinstance(connection.closed, errors.ConnectionLostError)
    assert isinstance(events[-1], sterna.Closed)
    assert events[-1].error is connection.closed
    await asyncio.to_thread(own_broker.start)  # which changes nothing any more
    with pytest.raises(errors.ConnectionLostError):
        await producer.send("x")


@pytest.mark.slow_callbacks(1000)
async def test_a_broker_that_stops_cleanly_is_left_and_found_again(
    own_broker: RunningBroker, connect: Connect, name: str
) -> None:
    connection = await connect(f"sterna://{own_broker.address}", reconnect=QUICKLY)
    events = gathering(connection)
    producer = await connection.producer(name)
    await producer.send("before")
    await restart(own_broker, kill=False)
    await producer.send("after")
    assert isinstance(events[0], Interrupted)
    assert isinstance(events[0].error, errors.ShuttingDownError)
    assert [one.body for one in await drain(await connection.consumer(name), 2)] == ["before", "after"]


@pytest.mark.covers("EMS-HA-D01", "EMS-HA-E29")
async def test_the_first_address_that_answers_is_taken(connect: Connect, url: str) -> None:
    address = url.removeprefix("sterna://")
    connection = await connect(f"sterna://127.0.0.1:1,{address}+127.0.0.1:2")
    assert connection.address == address
    assert connection.connected


async def test_nobody_there_is_said_at_once() -> None:
    with pytest.raises(errors.UnreachableError) as caught:
        await sterna.connect("sterna://127.0.0.1:1", connect_attempts=1)
    assert "127.0.0.1:1" in str(caught.value)
    with pytest.raises(ConnectionError):  # the builtin one
        await sterna.connect("sterna://127.0.0.1:1", connect_attempts=1)


class Refusing(grpc.GenericRpcHandler):
    """A server that refuses each stream for now, and notes when, beside its number."""

    def __init__(self, number: int, calls: list[tuple[int, float]]) -> None:
        self._number = number
        self._calls = calls

    def service(self, _: grpc.HandlerCallDetails) -> Any:
        """One handler for whatever is called."""

        async def refuse(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            self._calls.append((self._number, time.monotonic()))
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")

        return grpc.stream_stream_rpc_method_handler(refuse)


class Foreign(grpc.GenericRpcHandler):
    """A server of something else, which greets with bytes that are no message of ours."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    def service(self, _: grpc.HandlerCallDetails) -> Any:
        """One handler for whatever is called."""

        async def greet(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            try:
                await context.write(b"\xff\xff")
                await asyncio.Event().wait()
            finally:
                self.left.set()

        return grpc.stream_stream_rpc_method_handler(greet)


async def test_a_server_of_something_else_is_a_clear_error_and_is_left() -> None:
    server = grpc.aio.server(handlers=[foreign := Foreign()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        with pytest.raises(errors.ProtocolError, match="no ServerBatch"):
            await sterna.connect(f"sterna://127.0.0.1:{port}", connect_attempts=1)
        await asyncio.wait_for(foreign.left.wait(), 10)
    finally:
        await server.stop(None)


@pytest.mark.covers("EMS-CLI-D06", "EMS-CLI-B06")
@pytest.mark.parametrize(("attempts", "rounds"), [(None, 2), (1, 1), (3, 3)])
async def test_the_first_connect_is_tried_so_often_at_every_address(attempts: int | None, rounds: int) -> None:
    calls: list[tuple[int, float]] = []
    servers = [grpc.aio.server(handlers=[Refusing(number, calls)]) for number in range(2)]
    addresses = ",".join(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}" for server in servers)
    for server in servers:
        await server.start()
    try:
        with pytest.raises(errors.UnreachableError):
            if attempts is None:
                await sterna.connect(f"sterna://{addresses}")
            else:
                await sterna.connect(f"sterna://{addresses}", connect_attempts=attempts)
    finally:
        for server in servers:
            await server.stop(None)
    assert [number for number, _ in calls] == [0, 1] * rounds
    # Between rounds there is a pause; that there is none within one, the machine's own tests show.
    assert all(after - before >= 0.24 for (_, before), (_, after) in itertools.pairwise(calls[1::2]))


@pytest.mark.covers("EMS-CLI-D06", "EMS-CLI-B06")
async def test_an_attempt_to_connect_that_hangs_is_given_up_after_its_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it listens, and never says a word
        before = time.monotonic()
        with pytest.raises(errors.UnreachableError):
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            await sterna.connect(f"sterna://{address}", connect_timeout_s=0.2, connect_attempts=1)
        assert 0.2 <= time.monotonic() - before < 3


async def test_a_client_id_belongs_to_one_connection(connect: Connect, name: str) -> None:
    await connect(client_id=name)
    with pytest.raises(errors.ClientIdInUseError):
        await connect(client_id=name, connect_attempts=1)


async def test_secrets_are_not_repeated(connect: Connect) -> None:
    connection = await connect(user="me", password="secret-word")
    assert "secret" not in repr(connection) + repr(connection._lifeline.options)


@pytest.mark.parametrize("doing", ["nothing", "receiving"])
async def test_who_is_cancelled_with_the_connections_own_tasks_does_not_wait(url: str, name: str, doing: str) -> None:
    """As `asyncio.run` cancels all tasks at its end: whoever holds a connection must not wait for a reply then."""
    held = asyncio.Event()
    before = asyncio.all_tasks()

    async def hold() -> None:
        async with sterna.connect(url) as connection:
            consumer = await connection.consumer(name)
            held.set()
            await (consumer.receive() if doing == "receiving" else asyncio.Event().wait())

    holder = asyncio.create_task(hold())
    await held.wait()
    for task in asyncio.all_tasks() - before:
        task.cancel()
    done, _ = await asyncio.wait((holder,), timeout=15)
    assert done, "it waits for a reply that nobody reads"


@pytest.fixture
def supervised_broker(tier_broker: None, supervised: Supervised, tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker whose syncs `supervised` decides. Not started by the test itself, whose loop would wait for it."""
    with RunningBroker(tmp_path / "broker", supervised=(supervised.address, ("fdatasync",))) as running:
        yield running


async def test_what_was_confirmed_between_others_leaves_a_gap_that_nothing_else_falls_into(
    supervised: Supervised, supervised_broker: RunningBroker, connect: Connect, name: str
) -> None:
    """A confirmation overtakes another's, the stream breaks, and what comes next has numbers of its own."""
    connection = await connect(f"sterna://{supervised_broker.address}", reconnect=QUICKLY)
    producer = await connection.producer(name)
    await producer.send("before")
    supervised.delay_s = 1.0
    slow = asyncio.create_task(producer.send("waits for the disk"))
    await eventually(lambda: producer._lane.machine.next == 3)
    await producer.send("quick", delivery_mode=DeliveryMode.NON_PERSISTENT)
    await cut(connection)
    supervised.delay_s = 0.0
    later = [asyncio.create_task(producer.send(f"later {number}")) for number in range(3)]
    await asyncio.wait_for(asyncio.gather(slow, *later), 30)
    found = await drain(await connection.consumer(name), 6)
    assert sorted(message.text for message in found) == sorted(
        ["before", "waits for the disk", "quick", *(f"later {number}" for number in range(3))]
    )


@pytest.mark.covers("EMS-CLI-B05")
async def test_a_client_id_of_the_url_is_the_connections(connect: Connect, url: str, name: str) -> None:
    connection = await connect(f"{url}?client_id={name}%20id")
    assert connection.client_id == f"{name} id"
    await (await connection.consumer(Topic(name), durable="d")).close()
    async with sterna.admin.connect(url) as admin:
        assert f"{name} id" in {one.client_id for one in await admin.connections()}
        found = await admin.resource("DurableSubscription", f"{name} id/d")
    assert found.manifest["spec"]["clientId"] == f"{name} id"


class Door:
    """A way to a broker, which can be shut under those who came by it."""

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._writers: list[asyncio.StreamWriter] = []
        self._passing: set[asyncio.Task[None] | None] = set()

    async def open(self) -> str:
        """The address."""
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def shut(self) -> None:
        """Nobody comes in any more, and who is in is cut off."""
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(task for task in self._passing if task is not None))
        await self._server.wait_closed()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._passing.add(asyncio.current_task())
        there, back = await asyncio.open_connection(self._host, int(self._port))
        self._writers += [writer, back]
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    @staticmethod
    async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while part := await source.read(65_536):
                target.write(part)
                await target.drain()
        target.transport.abort()


@pytest.mark.covers("UM-CLI-B03")
@pytest.mark.slow_callbacks(1000)
async def test_who_loses_one_address_goes_on_by_the_next_publishing_and_where_it_was(
    own_broker: RunningBroker, connect: Connect, name: str
) -> None:
    doors = [Door(own_broker.address), Door(own_broker.address)]
    addresses = [await door.open() for door in doors]
    connection = await connect(f"sterna://{','.join(addresses)}", client_id="c", reconnect=QUICKLY)
    events = gathering(connection)
    consumer = await connection.consumer(Topic(name), durable="d", acknowledge_mode=AcknowledgeMode.CLIENT, prefetch=10)
    producer = await connection.producer(Topic(name))
    for number in range(4):
        await producer.send(str(number))
    found = [await consumer.receive(10) for _ in range(2)]
    assert found[1] is not None
    await found[1].acknowledge()
    await doors[0].shut()
    # It is told to nobody who publishes, and the subscriber goes on behind what it had acknowledged.
    for number in range(4, 8):
        await producer.send_soon(str(number))
    await producer.flush()
    await eventually(lambda: [type(one) for one in events] == [Interrupted, Restored])
    assert connection.address == addresses[1]
    rest = [one.body for one in await drain(consumer, 6)]
    assert rest == ["2", "3", "4", "5", "6", "7"]
    await connection.close(failed=True, timeout_s=5)
    await doors[1].shut()
