"""A broker that starts in a cluster that is to go is closed before anybody can send to it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from sterna import errors
from sterna_broker.cluster.member import Member
from sterna_broker.node import Node
from sterna_broker.options import BrokerOptions, cluster_options
from sterna_etcd.records import DrainRecord, HomeRecord

from tests.cluster.conftest import LAYOUT, NAME, Cluster, Connect, Operator, document


async def test_it_takes_nothing_before_its_first_round(
    cluster: Callable[..., Cluster], connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await asyncio.to_thread(cluster, 0)
    async with made.client() as etcd:
        await Operator(etcd).put(document("Queue", "orders"))
        await etcd.put(LAYOUT.home("queue", "orders"), HomeRecord(broker="b0", static=True).encode())
        await etcd.put(LAYOUT.drain("b0"), DrainRecord(closes_only=True).encode())

    async def never(_: Member) -> None:
        await asyncio.Event().wait()

    # Of a large configuration the first round takes its time; here it never comes.
    monkeypatch.setattr(Member, "_run", never)
    member = cluster_options(name="b0", etcd=made.etcd.urls, cluster=NAME)
    node = Node(BrokerOptions(data=tmp_path / "b0", listen="127.0.0.1:0", monitor="127.0.0.1:0", cluster=member))
    await node.start()
    try:
        connection = await connect(f"sterna://{node.messaging}")
        with pytest.raises(errors.UnavailableError, match="is being deleted"):
            await connection.send("orders", "refused")
        await connection.close()
    finally:
        await node.stop()
