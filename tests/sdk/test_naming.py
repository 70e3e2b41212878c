"""Connection factories and destinations that are looked up by name, at real brokers."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import sterna
from sterna import Queue, Topic, admin, blocking, errors
from sterna._proto.sterna.v1 import naming_pb2_grpc as _naming_stubs  # noqa: F401 - loaded before any loop runs

from tests.running import ANYTHING, RunningBroker, manifest
from tests.waiting import eventually

# Nobody listens there.
DEAD = "127.0.0.1:1"

Brokers = Callable[..., RunningBroker]


@pytest.fixture(scope="module")
def house(tier_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with static destinations, on which others may be created, too."""
    documents = (
        *ANYTHING,
        manifest("Queue", "orders", "name: orders.in, aliases: [OrdersIn]"),
        manifest("Topic", "prices", "aliases: [PricesOut]"),
        *(manifest(kind, "both") for kind in ("Queue", "Topic")),
    )
    with RunningBroker(tmp_path_factory.mktemp("house"), documents) as running:
        yield running


@pytest.fixture
def at(house: RunningBroker) -> str:
    """Where that is."""
    return f"sterna://{house.address}"


async def apply(at: str, name: str, spec: str) -> None:
    """Makes a factory so, as `sterna apply` does."""
    async with admin.connect(at) as client:
        (applied,) = await client.apply(manifest("ConnectionFactory", name, spec))
    if applied.error is not None:
        raise applied.error


@pytest.mark.covers("EMS-CLI-A31", "EMS-CLI-D24", "FMQ-CLI-06", "FMQ-CLI-09", "UM-CLI-A21")
async def test_a_factory_that_was_looked_up_connects(house: RunningBroker, at: str) -> None:
    await apply(
        at, "billing", f"name: Billing, url: 'sterna://{DEAD},{house.address}', clientId: billing, aliases: [Old]"
    )
    for name in ("Billing", "Old"):
        factory = await sterna.lookup(name, at)
        assert isinstance(factory, sterna.ConnectionFactory)
        assert (factory.name, factory.client_id) == ("Billing", "billing")
        async with factory.connect() as connection:
            assert (connection.client_id, connection.address) == ("billing", house.address)
            await connection.send("t.billing", "one")
            message = await (await connection.consumer("t.billing")).receive(10)
            assert message is not None
            assert message.body == "one"


@pytest.mark.covers("FMQ-CLI-06", "FMQ-CLI-10")
async def test_a_factory_that_a_program_makes_itself_or_has_kept_connects_like_one_that_was_looked_up(
    house: RunningBroker, at: str
) -> None:
    await apply(at, "kept", f"url: 'sterna://{DEAD},{house.address}', clientId: kept, heartbeatMs: 4000")
    found = await sterna.lookup("kept", at)
    made = sterna.ConnectionFactory(
        name="kept", url=f"sterna://{DEAD},{house.address}", client_id="kept", heartbeat_ms=4_000
    )
    # A program may keep one wherever it likes, and change what it has made.
    kept = pickle.loads(pickle.dumps(found))
    assert found == made == kept
    for factory, client_id in ((made, "kept"), (kept, "kept"), (dataclasses.replace(made, client_id="own"), "own")):
        async with factory.connect() as connection:
            assert (connection.client_id, connection.address) == (client_id, house.address)
            await connection.send("t.kept", client_id)
            message = await (await connection.consumer("t.kept")).receive(10)
            assert message is not None
            assert message.body == client_id


@pytest.mark.covers("EMS-CLI-A31", "EMS-CLI-B15", "FMQ-CLI-06")
async def test_static_destinations_are_found_by_name_and_by_alias(at: str) -> None:
    async with sterna.Naming(at) as naming:
        assert await naming.lookup("orders.in") == await naming.queue("OrdersIn") == Queue("orders.in")
        assert await naming.lookup("prices") == await naming.topic("PricesOut") == Topic("prices")
        for ask, name in ((naming.topic, "OrdersIn"), (naming.factory, "prices")):
            with pytest.raises(errors.NoSuchDestinationError, match=r"There is no (static topic|connection factory)"):
                await ask(name)


@pytest.mark.covers("EMS-CLI-A31", "EMS-DEST-D03")
async def test_what_clients_create_by_using_it_is_not_found(at: str) -> None:
    async with sterna.connect(at) as connection, sterna.Naming(at) as naming:
        await connection.send("t.dynamic", "one")
        temporary = await connection.temporary_queue()
        for name in ("t.dynamic", temporary.name, "any-queue", ">", "$sys.undelivered", "nothing"):
            with pytest.raises(errors.NoSuchDestinationError, match="There is no connection factory, static queue"):
                await naming.lookup(name)
        with pytest.raises(errors.InvalidNameError, match="1 to 255 characters"):
            await naming.lookup("x" * 256)


async def test_a_name_of_several_things_needs_its_kind(at: str) -> None:
    async with sterna.Naming(at) as naming:
        with pytest.raises(errors.InvalidArgumentError, match="'both' is the name of a static queue, a static topic"):
            await naming.lookup("both")
        assert (await naming.queue("both"), await naming.topic("both")) == (Queue("both"), Topic("both"))


@pytest.mark.covers("EMS-CLI-B11", "EMS-CLI-B12", "EMS-CLI-B13", "UM-CLI-A21")
async def test_a_factory_is_made_changed_and_deleted_while_programs_look_it_up(at: str) -> None:
    async with sterna.Naming(at) as naming, admin.connect(at) as client:
        await apply(at, "changing", "url: 'sterna://a', connectAttempts: 5, aliases: [Changing]")
        first = await naming.factory("Changing")
        await apply(at, "changing", "url: 'sterna://b:1', heartbeatMs: 4000")
        second = await naming.factory("changing")
        assert (first.url, first.connect_attempts, first.heartbeat_ms) == ("sterna://a", 5, None)
        assert (second.url, second.connect_attempts, second.heartbeat_ms) == ("sterna://b:1", None, 4_000)
        with pytest.raises(errors.NoSuchDestinationError):
            await naming.lookup("Changing")
        await client.delete("ConnectionFactory", "changing")
        with pytest.raises(errors.NoSuchDestinationError):
            await naming.lookup("changing")
        with pytest.raises(errors.NoSuchDestinationError, match="There is no ConnectionFactory 'changing'"):
            await client.delete("ConnectionFactory", "changing")


async def test_an_alias_that_is_taken_is_refused_and_leads_where_it_did(at: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="'OrdersIn' is an alias of the Queue"):
        await apply(at, "thief", "url: 'sterna://a', aliases: [OrdersIn]")
    assert await sterna.lookup("OrdersIn", at) == Queue("orders.in")


@pytest.mark.covers("EMS-CLI-D28")
async def test_a_name_with_an_address_is_looked_up_there(house: RunningBroker) -> None:
    async with sterna.Naming(f"sterna://{DEAD}") as naming:
        assert await naming.lookup(f"sterna://{house.address}/OrdersIn") == Queue("orders.in")
        with pytest.raises(errors.UnreachableError):
            await naming.lookup("OrdersIn")
        for wrong in (f"sterna://{house.address}", f"sterna://{DEAD},{house.address}/OrdersIn"):
            with pytest.raises(errors.InvalidArgumentError, match="write sterna://host:port/NAME"):
                await naming.lookup(wrong)


@pytest.fixture
def brokers(tier_broker: None, tmp_path: Path) -> Iterator[list[RunningBroker]]:
    """Two brokers that keep their ports, each with a queue of its own under the same name."""
    with ExitStack() as stack:
        running = []
        for number in range(2):
            broker = RunningBroker(tmp_path / f"b{number}", (manifest("Queue", f"of-{number}", "aliases: [here]"),))
            running.append(stack.enter_context(broker))
        yield running


@pytest.mark.covers("EMS-CLI-D29", "EMS-HA-D03")
async def test_when_a_broker_fails_the_next_one_is_asked_and_it_comes_back_as_standby(
    brokers: list[RunningBroker],
) -> None:
    first, second = brokers
    async with sterna.Naming(f"sterna://{DEAD},{first.address},{second.address}") as naming:
        assert await naming.lookup("here") == Queue("of-0")
        await asyncio.to_thread(first.kill)
        assert await naming.lookup("here") == Queue("of-1")
        await asyncio.to_thread(first.start)
        assert await naming.lookup("here") == Queue("of-1")
        await asyncio.to_thread(second.kill)
        assert await naming.lookup("here") == Queue("of-0")
        await asyncio.to_thread(first.kill)
        with pytest.raises(errors.UnreachableError, match="no broker answered"):
            await naming.lookup("here")
        # The same process of a program goes on when there is a broker again.
        await asyncio.to_thread(second.start)
        assert await naming.lookup("here") == Queue("of-1")


async def test_a_single_broker_that_was_started_again_is_dialled_anew(brokers: list[RunningBroker]) -> None:
    async with sterna.Naming(f"sterna://{brokers[0].address}") as naming:
        assert await naming.lookup("here") == Queue("of-0")
        await asyncio.to_thread(brokers[0].kill)
        await asyncio.to_thread(brokers[0].start)
        assert await naming.lookup("here") == Queue("of-0")


async def test_what_was_closed_is_not_asked_any_more(at: str) -> None:
    async with sterna.Naming(at) as naming:
        assert await naming.queue("OrdersIn") == Queue("orders.in")
    with pytest.raises(errors.ClosedError):
        await naming.lookup("OrdersIn")


class Slow(grpc.GenericRpcHandler):
    """A server that takes questions and answers none."""

    def __init__(self) -> None:
        self.asked, self.left = asyncio.Event(), asyncio.Event()

    def service(self, _: grpc.HandlerCallDetails) -> Any:
        """One handler for whatever is called."""

        async def wait(*_: Any) -> bytes:
            self.asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()
            return b""

        return grpc.unary_unary_rpc_method_handler(wait)


@pytest.fixture
async def slow() -> AsyncIterator[tuple[Slow, str]]:
    """Such a server, and where it is."""
    server = grpc.aio.server(handlers=[made := Slow()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield made, f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["there", "at-an-address-in-the-name"])
async def test_closing_ends_a_question_that_is_under_way_and_its_asker_is_told(
    slow: tuple[Slow, str], is_elsewhere: bool
) -> None:
    server, address = slow
    naming = sterna.Naming(f"sterna://{DEAD if is_elsewhere else address}")
    asking = asyncio.create_task(naming.lookup(f"sterna://{address}/one" if is_elsewhere else "one"))
    waiting = asyncio.create_task(naming.lookup("two")) if not is_elsewhere else None
    await asyncio.wait_for(server.asked.wait(), 10)
    await naming.close()
    for task in (asking, waiting):
        if task is not None:
            assert task.done()
            with pytest.raises(errors.ClosedError):
                await task
    await asyncio.wait_for(server.left.wait(), 10)


async def test_who_is_cancelled_while_it_is_closed_is_cancelled(slow: tuple[Slow, str]) -> None:
    server, address = slow
    naming = sterna.Naming(f"sterna://{address}")
    asking = asyncio.create_task(naming.lookup("one"))
    await asyncio.wait_for(server.asked.wait(), 10)
    closing = asyncio.create_task(naming.close())
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await closing


async def test_what_is_closed_while_it_dials_tells_its_asker_at_once_and_keeps_no_connection(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    has_dialled = asyncio.Event()

    async def never_ready(channel: Any, _: float) -> bool:
        made.append(channel)
        has_dialled.set()
        await asyncio.Event().wait()
        return True

    monkeypatch.setattr("sterna._channels._becomes_ready", never_ready)
    naming = sterna.Naming(at)
    asking = asyncio.create_task(naming.lookup("OrdersIn"))
    await has_dialled.wait()
    await naming.close()
    assert asking.done()
    with pytest.raises(errors.ClosedError):
        await asking
    await eventually(lambda: made[0].get_state() is grpc.ChannelConnectivity.SHUTDOWN)


@pytest.mark.parametrize(
    "name", ["sterna://me:hidden@h/x", "sterna://me:hidden@h", "sternas://me:hid/den@h/x", "sternas://me:hidden@h,b/x"]
)
@pytest.mark.parametrize("url", ["sterna://a", "sternas://a"])
async def test_a_password_in_a_name_is_refused_and_not_repeated(url: str, name: str) -> None:
    async with sterna.Naming(url) as naming:
        with pytest.raises(errors.InvalidArgumentError, match="holds no user or password") as caught:
            await naming.lookup(name)
    assert "hid" not in f"{caught.value} {caught.value.subject} {caught.value.remedy}"


async def test_a_factory_with_very_many_addresses_connects(house: RunningBroker, at: str) -> None:
    url = f"sterna://{house.address}" + "+a" * 480
    await apply(at, "many", f"url: '{url}', loadBalancing: none")
    found = await sterna.lookup("many", at)
    assert isinstance(found, sterna.ConnectionFactory)
    async with found.connect() as connection:
        assert connection.address == house.address
    # In any order it is one, too.
    assert len(dataclasses.replace(found, load_balancing="random").connect()._lifeline.addresses) == 481


async def test_an_alias_is_not_the_name_of_what_a_bridge_leads_to(at: str) -> None:
    async with admin.connect(at) as client:
        bridge = manifest("Bridge", "b", "source: {topic: prices}, targets: [{queue: l.led}]")
        assert (await client.apply(bridge))[0].error is None
        with pytest.raises(errors.InvalidArgumentError, match=r"'l\.led' is a target of the Bridge b at"):
            await apply(at, "thief", "url: 'sterna://a', aliases: [l.led]")
        assert await sterna.lookup("l.led", at) == Queue("l.led")
        await client.delete("Bridge", "b")


async def test_a_factory_keeps_its_name(at: str) -> None:
    await apply(at, "named", "url: 'sterna://a', name: One")
    with pytest.raises(errors.InvalidArgumentError, match="a connection factory cannot be renamed"):
        await apply(at, "named", "url: 'sterna://a', name: Two")


def test_without_asyncio_another_thread_may_close_what_is_asked(house: RunningBroker, at: str) -> None:
    def ask(naming: blocking.Naming) -> None:
        while True:
            naming.lookup("OrdersIn")

    with ThreadPoolExecutor(5) as threads:
        for number in range(20):
            naming = blocking.Naming(at)
            asking = [threads.submit(ask, naming) for _ in range(3)]
            if number % 2:
                naming.lookup("OrdersIn")
            for closing in [threads.submit(naming.close) for _ in range(2)]:
                closing.result(30)
            for one in asking:
                assert isinstance(one.exception(30), errors.ClosedError)


@pytest.mark.parametrize("variable", ["http_proxy", "https_proxy", "grpc_proxy"])
async def test_no_proxy_of_the_environment_is_told_a_password(
    at: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.append(await reader.read(1))
        writer.close()

    proxy = await asyncio.start_server(hear, "127.0.0.1")
    monkeypatch.setenv(variable, "http://{}:{}".format(*proxy.sockets[0].getsockname()))
    monkeypatch.delenv("no_proxy", raising=False)
    async with proxy:
        await apply(at, "not-by-proxy", f"url: '{at}'")
        found = await sterna.lookup("not-by-proxy", at, user="me", password="secret")
        assert isinstance(found, sterna.ConnectionFactory)
        async with found.connect(user="me", password="secret"):
            pass
    assert not told


def test_looking_up_without_asyncio(house: RunningBroker, at: str) -> None:
    asyncio.run(apply(at, "plain", f"url: 'sterna://{house.address}', clientId: plain"))
    factory = blocking.lookup("plain", at)
    assert isinstance(factory, blocking.ConnectionFactory)
    with factory.connect() as connection:
        assert connection.client_id == "plain"
        connection.send("t.plain", "one")
    with blocking.Naming(f"sterna://{DEAD},{house.address}") as naming:
        assert (naming.queue("OrdersIn"), naming.topic("prices")) == (Queue("orders.in"), Topic("prices"))
        assert naming.lookup("plain") == naming.factory("plain") == factory
        with pytest.raises(errors.NoSuchDestinationError):
            naming.lookup("t.plain")
