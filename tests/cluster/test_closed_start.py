"""A broker that starts in a cluster that is to go is closed before anybody can send to it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from sterna import errors
from sterna_broker.cluster.member import Member
from sterna_broker.node import Node
from sterna_broker.options import BrokerOptions, cluster_options
from sterna_etcd.records import DrainRecord, HomeRecord

from tests.cluster.conftest import LAYOUT, NAME, Cluster, Connect, Operator, document, waited


async def closed(made: Cluster) -> None:
    """The queue `orders` lives on b0, and the cluster is to go."""
    async with made.client() as etcd:
        await Operator(etcd).put(document("Queue", "orders"))
        await etcd.put(LAYOUT.home("queue", "orders"), HomeRecord(broker="b0", static=True).encode())
        await etcd.put(LAYOUT.drain("b0"), DrainRecord(closes_only=True).encode())


@contextlib.asynccontextmanager
async def serving(made: Cluster, folder: Path) -> AsyncIterator[Node]:
    """The broker b0, while it is looked at."""
    member = cluster_options(name="b0", etcd=made.etcd.urls, cluster=NAME)
    node = Node(BrokerOptions(data=folder / "b0", listen="127.0.0.1:0", monitor="127.0.0.1:0", cluster=member))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def refuses(node: Node, connect: Connect) -> None:
    """It takes nothing."""
    connection = await connect(f"sterna://{node.messaging}")
    with pytest.raises(errors.UnavailableError, match="is being deleted"):
        await connection.send("orders", "refused")
    await connection.close()


async def never(_: Member) -> None:
    """Of a large configuration the first round takes its time; here it never comes."""
    await asyncio.Event().wait()


async def test_it_takes_nothing_before_its_first_round_nor_while_etcd_is_away(
    cluster: Callable[..., Cluster], connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await asyncio.to_thread(cluster, 0)
    await closed(made)
    monkeypatch.setattr(Member, "_run", never)
    async with serving(made, tmp_path) as node:
        await refuses(node, connect)
    await asyncio.to_thread(made.etcd.first.kill)
    async with serving(made, tmp_path) as node:
        await refuses(node, connect)


async def test_it_opens_when_the_order_was_taken_back_while_it_was_away(
    cluster: Callable[..., Cluster], connect: Connect, tmp_path: Path
) -> None:
    made = await asyncio.to_thread(cluster, 0)
    await closed(made)
    async with serving(made, tmp_path) as node:
        await refuses(node, connect)
    async with made.client() as etcd:
        await etcd.delete(LAYOUT.drain("b0"))
    await asyncio.to_thread(made.etcd.first.kill)
    async with serving(made, tmp_path) as node:
        await refuses(node, connect)
        await asyncio.to_thread(made.etcd.restart, made.etcd.first)
        connection = await connect(f"sterna://{node.messaging}")

        async def takes() -> bool:
            try:
                await connection.send("orders", "taken")
            except errors.UnavailableError:
                return False
            return True

        await waited(takes, 30, "the broker to take messages again")
        await connection.close()
