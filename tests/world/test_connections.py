"""What a connection does when it is closed, given up or told to leave, and with what broke in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sterna
from sterna import AcknowledgeMode, errors
from sterna._link import Link
from sterna._proto.sterna.v1 import messaging_pb2 as pb

from tests.support.held_answers import HeldAnswers
from tests.world.brokers import Broker
from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged


def _cut(stage: Stage, *brokers: Broker) -> None:
    """Nobody gets to these brokers, and it is known."""
    for broker in brokers:
        assert broker.process is not None
        stage.network.part(stage.here, broker.process)
        for link in stage.network.links:
            if link.client is stage.here and link.server.process is broker.process:
                link.break_()


async def _three(stage: Stage) -> tuple[Cluster, sterna.Connection]:
    """Three brokers with a queue each, and a connection to the first one."""
    cluster = await stage.cluster("b0", "b1", "b2")
    await cluster.allow_all()
    for number in range(3):
        await cluster.placed(f"q{number}", f"b{number}")
    return cluster, await stage.connect(cluster.brokers["b0"], client_id="me")


def _others(connection: sterna.Connection) -> list[Any]:
    """The lifelines to other brokers."""
    homes: Any = connection._lifeline.homes
    return [one for one in homes.lifelines if one is not connection._lifeline]


@staged
async def test_brokers_that_are_away_share_the_time_that_a_close_may_take(stage: Stage) -> None:
    cluster, connection = await _three(stage)
    producers = [await connection.producer(name) for name in ("q1", "q2")]
    _cut(stage, cluster.brokers["b1"], cluster.brokers["b2"])
    await stage.until(lambda: not any(one.connected for one in _others(connection)))
    for producer in producers:
        await producer.send_soon("x")
    began_s = stage.loop.time()
    with pytest.raises(errors.SternaError):
        await connection.close(timeout_s=5)
    assert 5 <= stage.loop.time() - began_s < 6
    assert isinstance(connection.closed, errors.ClosedError)
    stage.network.heal()


@staged
async def test_the_time_that_a_close_may_take_is_that_of_the_own_broker_too(stage: Stage) -> None:
    cluster, connection = await _three(stage)
    producers = [await connection.producer(name) for name in ("q0", "q1")]
    _cut(stage, cluster.brokers["b0"], cluster.brokers["b1"])
    await stage.until(lambda: not connection.connected)
    for producer in producers:
        await producer.send_soon("x")
    began_s = stage.loop.time()
    with pytest.raises(errors.SternaError):
        await connection.close(timeout_s=5)
    assert 5 <= stage.loop.time() - began_s < 7
    stage.network.heal()


@staged
async def test_one_that_was_closed_before_it_was_open_follows_destinations_once_it_is(stage: Stage) -> None:
    """As of whoever closes what could not be opened, and tries again."""
    cluster = await stage.two("orders")
    broker = cluster.brokers["b0"]
    _cut(stage, broker)
    connection = sterna.connect(f"sterna://{broker.address}", connect_attempts=1)
    with pytest.raises(errors.UnreachableError):
        await connection
    await connection.close()
    stage.network.heal()
    async with connection:
        await connection.send("orders", "x", timeout=10)


@pytest.mark.parametrize("how", ["cancelled", "refused"])
def test_a_session_of_its_own_whose_consumer_is_not_opened_is_left_at_no_broker(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster, connection = await _three(stage)
        gate = HeldAnswers(monkeypatch, cluster.brokers["b1"].address, "open_consumer")
        durable = "taken" if how == "refused" else ""
        if durable:
            await cluster.apply("Topic", "news", broker="b1")
            await cluster.until_home("topic", "news", "b1")
            gate.opened.set()
            await connection.consumer(sterna.Topic("news"), durable=durable)
        where = sterna.Topic("news") if durable else sterna.Queue("q1")
        making = asyncio.create_task(
            connection.consumer(where, durable=durable, acknowledge_mode=AcknowledgeMode.CLIENT)
        )
        await gate.arrived.wait()
        if not durable:
            making.cancel()
        await asyncio.wait((making,), timeout=20)
        assert making.cancelled() or isinstance(making.exception(), errors.InUseError)
        monkeypatch.undo()
        await stage.until(lambda: [row["sessions"] for row in cluster.brokers["b1"].connections()] == [bool(durable)])
        assert [len(one.parts) for one in _others(connection)] == [bool(durable)]
        await connection.close()

    shown()


def test_a_send_after_a_break_does_not_fail_for_ever_with_what_was_said_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection's own producer was refused when it was to be opened anew; another one is opened."""

    @staged
    async def shown(stage: Stage) -> None:
        connection = await stage.connect(await stage.broker())
        await connection.send("q", "0")
        asked = Link.request

        async def request(link: Link, number: int, name: str, *content: Any, **how: Any) -> Any:
            if name == "open_producer":
                raise errors.LimitExceededError("there are too many", subject="producers")
            return await asked(link, number, name, *content, **how)

        monkeypatch.setattr(Link, "request", request)
        await stage.broken(connection)
        monkeypatch.undo()
        await connection.send("q", "1")
        await connection.close()

    shown()


@staged
async def test_a_broker_that_stops_is_left_although_the_one_before_is_not_done_with(stage: Stage) -> None:
    """What that one has not confirmed is waited for where it can be; the next one waits for nobody."""
    cluster, _ = await _three(stage)
    first, second = cluster.brokers["b0"], cluster.brokers["b2"]
    connection = await sterna.connect(cluster.url("b0", "b2"))
    producer = await connection.producer("q0")
    lifeline = connection._lifeline
    for link in stage.network.links:
        if link.client is stage.here and link.server.process is first.process:
            link.stall(0.2)
    await producer.send_soon("x")
    going = pb.GoAway(addresses=[second.address], grace_ms=60_000)
    lifeline._on_frame(pb.ServerFrame(go_away=going))
    await asyncio.sleep(0.01)
    _cut(stage, first)
    await stage.until(lambda: connection.connected and connection.broker == "b2")
    assert producer.unconfirmed == 1
    used = lifeline._link
    assert used is not None
    await second.stop()
    assert used.has_left
    await connection.close(failed=True, timeout_s=1)
    stage.network.heal()


@staged
async def test_one_that_is_closed_while_it_is_opened_is_not_open_afterwards(stage: Stage) -> None:
    """Nobody would close it any more."""
    broker = await stage.broker()
    for later_s in (0.0, 0.0005, 0.001, 0.002, 0.005):
        connection = sterna.connect(f"sterna://{broker.address}")
        opening = asyncio.ensure_future(connection)
        await asyncio.sleep(later_s)
        was_open = connection.connected
        await connection.close()
        if was_open:
            await opening
        else:
            with pytest.raises(errors.ClosedError, match="while it was opened"):
                await opening
        assert isinstance(connection.closed, errors.ClosedError)
        assert not connection.connected
    await stage.until(lambda: broker.connections() == [])


@staged
async def test_one_that_is_closed_between_two_attempts_to_open_it_is_given_up(stage: Stage) -> None:
    broker = await stage.broker()
    _cut(stage, broker)
    connection = sterna.connect(f"sterna://{broker.address}", connect_attempts=1000, connect_delay_ms=100)
    opening = asyncio.ensure_future(connection)
    await asyncio.sleep(3)
    assert not opening.done()
    await connection.close()
    with pytest.raises(errors.ClosedError, match="while it was opened"):
        await asyncio.wait_for(opening, 10)
    stage.network.heal()
