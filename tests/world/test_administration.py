"""What an administrator's client leaves behind who is interrupted: nothing."""

from __future__ import annotations

import asyncio

import pytest
import sterna.admin
from sterna import errors

from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged


def _sockets(stage: Stage) -> int:
    return sum(link.client is stage.here and not link.client_knows for link in stage.network.links)


@staged
async def test_an_admin_client_that_is_cancelled_at_any_moment_leaves_no_channel(stage: Stage) -> None:
    broker = await stage.broker()

    async def looks() -> None:
        async with sterna.admin.connect(f"sterna://{broker.address}") as admin:
            await admin.statistics()

    had = before = 0
    for step in range(60):
        task = asyncio.create_task(looks())
        await asyncio.sleep(0.0001 * step)
        had += _sockets(stage)
        task.cancel()
        await asyncio.wait((task,))
        await asyncio.sleep(0.1)
        assert _sockets(stage) == before, step
    assert had


async def _elsewhere(stage: Stage) -> Cluster:
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    await cluster.apply("Queue", "orders", broker="b0")
    await cluster.until_home("queue", "orders", "b0")
    return cluster


@staged
async def test_an_admin_client_that_follows_twice_at_once_leaves_no_channel(stage: Stage) -> None:
    cluster = await _elsewhere(stage)
    before = _sockets(stage)  # the test's own, to etcd
    async with sterna.admin.connect(f"sterna://{cluster.brokers['b1'].address}") as admin:
        await asyncio.gather(*(admin.purge_queue("orders") for _ in range(5)))
        await asyncio.sleep(0.1)
        assert _sockets(stage) == before + 2
    await asyncio.sleep(0.1)
    assert _sockets(stage) == before


@staged
async def test_an_admin_client_that_is_closed_while_it_follows_leaves_no_channel(stage: Stage) -> None:
    cluster = await _elsewhere(stage)
    before = _sockets(stage)
    for step in range(40):
        admin = await sterna.admin.connect(f"sterna://{cluster.brokers['b1'].address}").__aenter__()
        purging = asyncio.create_task(admin.purge_queue("orders"))
        await asyncio.sleep(0.0001 * step)
        await admin.__aexit__(None, None, None)
        await asyncio.wait((purging,), timeout=40)
        purging.cancel()
        await asyncio.gather(purging, return_exceptions=True)
        await asyncio.sleep(0.1)
        assert _sockets(stage) == before, step


@staged
async def test_an_administrator_follows_a_queue_that_moves_to_and_fro(stage: Stage) -> None:
    """Brokers hear of a move one after the other: for a moment each says that the other has it."""
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    async with sterna.admin.connect(cluster.url("b0")) as admin:
        for number in range(40):
            name = f"q{number}"
            await cluster.apply("Queue", name, broker="b1")
            await cluster.until_home("queue", name, "b1")
            await asyncio.sleep(0.1)
            await cluster.give("queue", name, "b0")
            purging = asyncio.create_task(admin.purge_queue(name))
            await asyncio.sleep(stage.random.random() * 0.002)
            await cluster.give("queue", name, "b1")
            assert await purging == 0, number


@pytest.mark.parametrize("call", ["statistics", "browse", "begin_cut"])
def test_who_asks_of_an_admin_client_that_is_closed_meanwhile_or_before_is_told_so(call: str) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        broker = await stage.broker()
        connection = await stage.connect(broker)
        await connection.send("q", "x")
        admin = await sterna.admin.connect(f"sterna://{broker.address}").__aenter__()

        async def asks() -> None:
            if call == "browse":
                async for _ in admin.browse_queue("q"):
                    pass
            else:
                await getattr(admin, call)()

        for _ in range(2):
            asking = asyncio.create_task(asks())
            await asyncio.sleep(0.0001)
            await admin.__aexit__(None, None, None)
            # A task that is cancelled, though nobody has cancelled it, would end whoever waits for it, too.
            await asyncio.wait((asking,))
            assert not asking.cancelled()
            assert type(asking.exception()) is errors.ClosedError
        asking = asyncio.create_task(asks())
        asking.cancel()
        await asyncio.wait((asking,))
        assert asking.cancelled()
        async with admin:
            await admin.statistics()
        await connection.close()

    shown()
