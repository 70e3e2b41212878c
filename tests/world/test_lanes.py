"""A producer's two lanes, whose destination moves: what one of them hears is not yet said to the other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sterna
from sterna import DeliveryMode, errors

from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged


async def _with_a_queue(stage: Stage) -> Cluster:
    cluster = await stage.two()
    await _lives(cluster, "b1")
    return cluster


async def _lives(cluster: Cluster, broker: str) -> None:
    await cluster.give("queue", "orders", broker)
    await cluster.until_home("queue", "orders", broker)


def _figures(cluster: Cluster, broker: str) -> dict[str, Any]:
    rows = [row for row in cluster.brokers[broker].listed("queue") if row["name"] == "orders"]
    return dict(rows[0]["statistics"]) if rows else {}


def _torn(connection: sterna.Connection) -> None:
    """The end of one producer comes at once, all else when the other's has come: as when a batch ends there."""
    link: Any = connection._lifeline._link
    handle, loop = link._on_frame, asyncio.get_running_loop()
    held: list[Any] = []
    ends = 0

    def go_on() -> None:
        for frame in held:
            handle(frame)

    def late(frame: Any) -> None:
        nonlocal ends
        ends += frame.WhichOneof("frame") == "producer_closed"
        if ends == 1 and frame.WhichOneof("frame") == "producer_closed":
            handle(frame)
            return
        held.append(frame)
        if ends == 2:
            link._on_frame = handle
            loop.call_later(0.5, go_on)

    link._on_frame = late


@staged
async def test_what_is_confirmed_behind_the_end_of_the_other_lane_is_not_sent_again_elsewhere(stage: Stage) -> None:
    cluster = await _with_a_queue(stage)
    there = await stage.connect(cluster.brokers["b0"])
    connection = await stage.connect(cluster.brokers["b1"])
    await connection.send("there", "so that it is connected to both")
    producer = await connection.producer("orders", delivery_mode=DeliveryMode.RELIABLE)
    await producer.send("first", delivery_mode=DeliveryMode.PERSISTENT)
    _torn(connection)
    sending = [asyncio.create_task(producer.send("x", delivery_mode=DeliveryMode.PERSISTENT)) for _ in range(10)]
    await stage.until(lambda: _figures(cluster, "b1").get("messages") == 11)
    await asyncio.sleep(0.5)
    await cluster.give("queue", "orders", "b0")
    async with asyncio.timeout(20):
        await asyncio.gather(*sending)
    await producer.send("last", delivery_mode=DeliveryMode.PERSISTENT)
    assert _figures(cluster, "b1")["messages"] == 11
    assert _figures(cluster, "b0")["messages"] == 1
    await connection.close()
    await there.close()


@staged
async def test_a_lane_that_nobody_tells_that_it_is_left_goes_along_after_a_while(stage: Stage) -> None:
    cluster = await _with_a_queue(stage)
    connection = await stage.connect(cluster.brokers["b1"])
    producer = await connection.producer("orders", delivery_mode=DeliveryMode.RELIABLE)
    await producer.send("first", delivery_mode=DeliveryMode.PERSISTENT)
    link: Any = connection._lifeline._link
    handle, ends = link._on_frame, []

    def one_end_alone(frame: Any) -> None:
        if frame.WhichOneof("frame") == "producer_closed":
            ends.append(frame)
        if len(ends) < 2:
            handle(frame)

    link._on_frame = one_end_alone
    await cluster.give("queue", "orders", "b0")
    await stage.until(lambda: len(ends) == 2)
    async with asyncio.timeout(20):
        with pytest.raises(errors.UnknownProducerError):
            await producer.send("in doubt", delivery_mode=DeliveryMode.PERSISTENT)
        await producer.send("last", delivery_mode=DeliveryMode.PERSISTENT)
    assert _figures(cluster, "b0")["messages"] == 1
    await connection.close()


@staged
async def test_a_second_lane_that_is_opened_while_the_first_sets_out_goes_along(stage: Stage) -> None:
    cluster = await _with_a_queue(stage)
    connection = await stage.connect(cluster.brokers["b1"])
    await (await stage.connect(cluster.brokers["b0"])).close()
    for step in range(60):
        producer = await connection.producer("orders")
        moving = asyncio.create_task(cluster.give("queue", "orders", "b0"))
        await asyncio.sleep(0.0002 * step)
        await producer.send("reliable", delivery_mode=DeliveryMode.RELIABLE, timeout=20)
        await moving
        await asyncio.sleep(1)
        await producer.send("reliable", delivery_mode=DeliveryMode.RELIABLE, timeout=20)
        await producer.send("confirmed", timeout=20)
        assert not _figures(cluster, "b1").get("producers"), step
        assert _figures(cluster, "b0")["producers"] == 2, step
        await producer.close()
        assert not _figures(cluster, "b0").get("producers"), step
        await _lives(cluster, "b1")
        await asyncio.sleep(1)
    await connection.close()


@staged
async def test_a_producer_that_is_closed_while_its_second_lane_is_opened_leaves_none(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    for step in range(40):
        producer = await connection.producer("q")
        sending = asyncio.create_task(producer.send("x", delivery_mode=DeliveryMode.RELIABLE))
        await asyncio.sleep(0.0001 * step)
        await producer.close()
        await asyncio.gather(sending, return_exceptions=True)
        await asyncio.sleep(0.5)
        [row] = [one for one in broker.connections() if not one["peer"].startswith("internal:")]
        assert row["producers"] == 0, step
        assert not connection._lifeline.lanes
    await connection.close()


@staged
async def test_a_lane_that_is_ended_while_the_other_one_is_opened_anew_is_opened_too(stage: Stage) -> None:
    """The broker ends both, since their queue is to be had nowhere for a while; that of the first comes late."""
    cluster = await stage.two("orders")
    connection = await stage.connect(cluster.brokers["b1"])
    producer = await connection.producer("orders")
    await producer.send("confirmed")
    await producer.send_soon("not", delivery_mode=DeliveryMode.RELIABLE)
    first, second = producer._sending._lanes.values()
    ends: list[errors.SternaError] = []
    told, opened = first.on_closed, second._opened

    def in_the_middle(*arguments: Any, **options: Any) -> None:
        opened(*arguments, **options)
        told(ends.pop())

    # mypy takes no other method.
    setattr(first, "on_closed", ends.append)  # noqa: B010
    setattr(second, "_opened", in_the_middle)  # noqa: B010
    await cluster.give("queue", "orders", "b9")
    await stage.until(lambda: ends)
    await cluster.give("queue", "orders", "b1")
    await stage.until(lambda: not ends)
    await stage.until(lambda: not producer._sending.is_following)
    assert (first.is_open, second.is_open) == (True, True)
    await connection.close()


@staged
async def test_large_bodies_under_way_to_where_the_destination_was_are_nobody_s_error(stage: Stage) -> None:
    cluster = await _with_a_queue(stage)
    connection = await stage.connect(cluster.brokers["b1"])
    reported: list[BaseException] = []
    connection.on_error(reported.append)
    producer = await connection.producer("orders")
    stage.network.slow = 0.05

    async def sends() -> None:
        for _ in range(60):
            await producer.send_soon(bytes(700_000))
            await asyncio.sleep(0.005)

    sending = asyncio.create_task(sends())
    await asyncio.sleep(0.1)
    await cluster.give("queue", "orders", "b0")
    async with asyncio.timeout(60):
        await sending
        await producer.flush()
    there, here = (_figures(cluster, broker).get("messages", 0) for broker in ("b0", "b1"))
    assert (there > 0, there + here) == (True, 60)
    assert reported == []
    await connection.close()
