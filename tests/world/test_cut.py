"""Starts, stops and reloads of a broker that end in their middle: told to stop, told again, or killed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sterna

from tests.running import ANYTHING, manifest
from tests.world.brokers import Broker
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained

#: Moments of a start that takes some milliseconds, and of a stop.
_MOMENTS_S = (0.0, *(0.0002 * 1.25**step for step in range(24)))


@pytest.mark.parametrize("etcd", ["none", "there", "away"])
def test_a_start_that_is_told_to_stop_leaves_nothing_and_the_next_one_serves(etcd: str) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = None if etcd == "none" else await stage.cluster("one")
        if cluster is not None:
            await cluster.allow_all()
        broker = await stage.broker() if cluster is None else cluster.brokers["one"]
        connection = await stage.connect(broker)
        await connection.send("orders", "kept")
        await connection.close()
        await broker.stop()
        if cluster is not None and etcd == "away":
            cluster.etcd.kill()
        cut = 0
        for moment_s in (*_MOMENTS_S, 30.0):
            starting = broker.begin()
            await asyncio.sleep(moment_s)
            cut += starting.cancel()
            await stage.until(starting.done)
            if starting.cancelled():
                await asyncio.sleep(1)
                assert broker.left() == [], moment_s
                assert not broker.listens, moment_s
            broker.kill()
        assert cut > 5
        if cluster is not None and etcd == "away":
            cluster.etcd.start()
        await broker.start()
        connection = await stage.connect(broker)
        assert await drained(connection, "orders") == ["kept"]
        await connection.close()

    shown()


@pytest.mark.parametrize("how", ["killed", "without power", "hurried"])
def test_what_was_confirmed_is_there_whenever_a_stop_is_cut_short(how: str) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        broker = await stage.broker()
        connection = await stage.connect(broker)
        producer = await connection.producer("orders", window=20)
        confirmed: list[int] = []
        number = 0

        async def send(number: int) -> None:
            await producer.send(f"{number}")
            confirmed.append(number)

        sending: list[asyncio.Task[None]] = []
        for moment_s in (*_MOMENTS_S, 0.5, 1.5):
            for _ in range(5):
                sending.append(asyncio.create_task(send(number)))
                number += 1
            assert broker.node is not None
            node = broker.node
            stopping = broker.at_work(node.stop())
            await asyncio.sleep(moment_s)
            if how == "hurried":
                node.hurry()
                await stage.until(stopping.done)
                assert stopping.exception() is None
                assert broker.left() == [], moment_s
            broker.kill(power=how == "without power")
            await broker.start()
            await asyncio.wait(sending, timeout=60)
        await producer.flush()
        assert sorted(confirmed) == list(range(number))
        found = [int(body) for body in await drained(connection, "orders")]
        assert set(found) == set(confirmed)
        assert how == "without power" or len(found) == number, "each once"
        await connection.close()

    shown()


def _limit(broker: Broker) -> Any:
    rows = {row["name"]: row for row in broker.listed("queue")}
    return rows.get("orders", {}).get("properties", {}).get("maxMessages")


@pytest.mark.parametrize("how", ["cancelled", "killed"])
def test_a_reload_that_is_cut_short_has_happened_or_not(how: str) -> None:
    """What is described is what the engine has, and the next reload, or start, has what the folder says."""

    @staged
    async def shown(stage: Stage) -> None:
        folder = stage.manifests(*ANYTHING, manifest("Queue", "orders", "maxMessages: 1000"))
        broker = await stage.broker(config=folder)
        for number, moment_s in enumerate(_MOMENTS_S):
            limit = 2000 + number
            text = manifest("Queue", "orders", f"maxMessages: {limit}")
            (folder / "all.yaml").write_text("---\n".join([*ANYTHING, text]))
            assert broker.node is not None
            reloading = broker.at_work(broker.node.reload())
            await asyncio.sleep(moment_s)
            if how == "killed":
                broker.kill()
                await broker.start()
            else:
                reloading.cancel()
                await stage.until(reloading.done)
                described: Any = broker.node.live.objects.destination("queue", "orders")
                assert described.spec.max_messages == _limit(broker), moment_s
                again = broker.at_work(broker.node.reload())
                await stage.until(again.done)
                assert again.exception() is None
            assert _limit(broker) == limit, moment_s

    shown()


@staged
async def test_a_transacted_session_that_goes_elsewhere_while_a_commit_is_awaited_is_whole(stage: Stage) -> None:
    """It has nothing open any more where it is, so that it may go to where the next one lives."""
    cluster = await stage.two("here")
    await cluster.placed("there", "b0")
    connection = await stage.connect(cluster.brokers["b1"])
    left: list[str] = []
    sent: list[str] = []
    for step, moment_s in enumerate(_MOMENTS_S):
        await connection.send("here", f"{step}")
        session = await connection.session(sterna.AcknowledgeMode.TRANSACTED)
        consumer = await session.consumer("here")
        taken = await consumer.receive(5)
        assert taken is not None
        assert taken.body == f"{step}"
        await consumer.close()
        committing = asyncio.create_task(session.commit())
        await asyncio.sleep(moment_s)
        going = asyncio.create_task(session.producer("there"))
        await asyncio.wait((committing, going), timeout=20)
        if committing.exception() is not None:
            left.append(f"{step}")
        if going.exception() is None:
            await going.result().send(f"{step}")
            await session.commit()
            sent.append(f"{step}")
        else:
            assert isinstance(going.exception(), sterna.errors.SpansHomesError), moment_s
        await session.close()
    assert sent
    assert (await drained(connection, "here"), await drained(connection, "there")) == (left, sent)
    await connection.close()
