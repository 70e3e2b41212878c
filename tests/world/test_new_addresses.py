"""A broker comes back at another address than the one that whoever goes there was told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import sterna
from sterna import errors

from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained

#: How long a client may take to find it, once it is there.
_FOUND_S = 15.0


async def _elsewhere(stage: Stage, cluster: Cluster, name: str) -> None:
    """A broker that was killed starts at another address; returns when all know where."""
    broker = cluster.brokers[name]
    broker.moves_house()
    await stage.start(broker)
    await stage.until(lambda: broker.address in str(cluster.member("b0").link.view.addresses[name]))


async def _consumed(connection: sterna.Connection) -> Any:
    return await connection.consumer("orders")


async def _transacted(connection: sterna.Connection) -> Any:
    session = await connection.session(sterna.AcknowledgeMode.TRANSACTED)
    return await session.producer("orders")


_OPENINGS: dict[str, Callable[[sterna.Connection], Awaitable[Any]]] = {
    "producer": lambda connection: connection.producer("orders"),
    "consumer": _consumed,
    "transacted": _transacted,
    "send": lambda connection: connection.send("orders", "x"),
}


@pytest.mark.parametrize("opening", _OPENINGS)
@pytest.mark.parametrize("silent", [False, True])
def test_who_opens_something_there_asks_again_where_it_is(opening: str, silent: bool) -> None:
    """Whether nobody answers at the old address, or what is sent there gets nowhere."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two("orders")
        connection = await stage.connect(cluster.brokers["b0"])
        gone = cluster.brokers["b1"]
        assert gone.process is not None
        if silent:
            stage.network.part(stage.here, gone.process)
        else:
            gone.kill()
        calling = asyncio.ensure_future(_OPENINGS[opening](connection))
        await asyncio.sleep(20)
        assert not calling.done()
        gone.kill()
        await _elsewhere(stage, cluster, "b1")
        await asyncio.wait_for(calling, _FOUND_S)
        await connection.close()

    shown()


@staged
async def test_what_is_on_its_way_there_asks_again_where_it_is(stage: Stage) -> None:
    """Producers and consumers that were told that their destination has moved: nothing is lost or doubled."""
    cluster = await stage.two("orders", at="b0")
    connection = await stage.connect(cluster.brokers["b0"])
    producer, consumer = await connection.producer("orders"), await connection.consumer("orders")
    named = await connection.producer("orders", name="import")
    cluster.brokers["b1"].kill()
    await cluster.give("queue", "orders", "b1")
    await asyncio.sleep(2)
    sending = [asyncio.create_task(one.send(f"{number}")) for number, one in enumerate((producer, named))]
    receiving = asyncio.create_task(_received(consumer, 2))
    await asyncio.sleep(20)
    assert not any(one.done() for one in (*sending, receiving))
    await _elsewhere(stage, cluster, "b1")
    await asyncio.wait_for(asyncio.gather(*sending), _FOUND_S)
    assert sorted(await asyncio.wait_for(receiving, _FOUND_S)) == ["0", "1"]
    await connection.close()


async def _received(consumer: sterna.Consumer, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        message = await consumer.receive()
        assert message is not None
        found.append(message.body)
    return found


@staged
async def test_what_was_open_there_is_open_again_as_soon_as_anybody_is_told_where_it_is(stage: Stage) -> None:
    """A connection of which the application does not know is restored: what has no answer arrives once."""
    cluster = await stage.two("orders")
    await cluster.placed("other", "b1")
    connection = await stage.connect(cluster.brokers["b0"])
    producer = await connection.producer("orders")
    await producer.send("before")
    cluster.brokers["b1"].kill()
    sending = [asyncio.create_task(producer.send(f"{number}")) for number in range(5)]
    await asyncio.sleep(20)
    await _elsewhere(stage, cluster, "b1")
    await asyncio.wait_for(connection.send("other", "x"), _FOUND_S)
    await asyncio.wait_for(asyncio.gather(*sending), _FOUND_S)
    assert sorted(await drained(connection, "orders")) == ["0", "1", "2", "3", "4", "before"]
    await connection.close()


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("opening", ["producer", "consumer"])
def test_what_was_open_there_asks_where_it_is(opening: str, silent: bool) -> None:
    """Nobody opens anything else there: a connection that searches asks by the one that is there."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two("orders")
        connection = await stage.connect(cluster.brokers["b0"])
        opened = await _OPENINGS[opening](connection)
        restored: list[sterna.Restored] = []
        connection.on_restored(restored.append)
        gone = cluster.brokers["b1"]
        assert gone.process is not None
        if silent:
            stage.network.part(stage.here, gone.process)
        else:
            gone.kill()
        await asyncio.sleep(20)
        gone.kill()
        for _ in range(3):
            await _elsewhere(stage, cluster, "b1")
            if opening == "producer":
                await asyncio.wait_for(opened.send("x"), _FOUND_S)
            else:
                await stage.until(lambda: restored, timeout_s=_FOUND_S)
            restored.clear()
            gone.kill()
            await asyncio.sleep(20)
        await connection.close(timeout_s=1)

    shown()


@pytest.mark.parametrize("to", ["b0", "b2", "b3"])
def test_what_was_open_there_goes_where_it_lives_when_its_broker_is_lost_for_good(to: str) -> None:
    """To the broker that is asked, to one with a connection, and to one that has none yet."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.cluster("b0", "b1", "b2", "b3")
        await cluster.allow_all()
        for name, home in (("orders", "b1"), ("prices", "b1"), ("other", "b2")):
            await cluster.placed(name, home)
        connection = await stage.connect(cluster.brokers["b0"], client_id="shop")
        await connection.send("other", "x")
        producer, consumer = await connection.producer("orders"), await connection.consumer("prices")
        cluster.brokers["b1"].kill()
        await asyncio.sleep(20)
        await cluster.give_up("b1", to)
        await asyncio.wait_for(producer.send("later"), 30)
        await connection.send("prices", "42")
        assert (await asyncio.wait_for(_received(consumer, 1), 30)) == ["42"]
        assert await drained(connection, "orders") == ["later"]
        await asyncio.sleep(150)
        assert connection.closed is None
        await producer.send("last")
        await connection.close()

    shown()


@staged
async def test_who_asks_again_gives_up_when_a_connection_that_broke_would(stage: Stage) -> None:
    cluster = await stage.two("orders")
    connection = await stage.connect(cluster.brokers["b0"], reconnect=sterna.Reconnect(give_up_after_s=30))
    cluster.brokers["b1"].kill()
    began_s = stage.loop.time()
    with pytest.raises(errors.UnreachableError):
        await connection.producer("orders")
    assert 30 <= stage.loop.time() - began_s < 45
    await connection.close()
