"""A cluster that is to go once it is empty: from when its brokers say that they take no more, they take no more."""

from __future__ import annotations

import asyncio

import pytest
import sterna
import sterna.admin
from sterna import errors
from sterna_etcd.records import DrainRecord

from tests.world.clusters import LAYOUT, Cluster
from tests.world.stage import Stage, staged
from tests.world.test_homes import held


async def going(stage: Stage) -> tuple[Cluster, sterna.Connection]:
    """One broker, which has a bridge from `orders` to `copies`, and says that it is closed and holds nothing."""
    cluster = await stage.cluster("b0")
    await cluster.allow_all()
    await cluster.apply("Queue", "orders", broker="b0")
    await cluster.apply("Bridge", "copied", source={"queue": "orders"}, targets=[{"queue": "copies"}])
    await cluster.until(lambda: held(cluster, "b0").keys() >= {"orders", "copies"})
    # A home in which nothing lives, as it is for a minute after a queue has gone.
    await cluster.give("queue", "spare", "b0")
    connection = await stage.connect(cluster.brokers["b0"])
    await cluster.client.put(LAYOUT.drain("b0"), DrainRecord(closes_only=True).encode())

    async def is_closed() -> bool:
        said = await cluster.status("b0")
        return said is not None and said.draining is not None and said.draining.is_closed

    await cluster.until(is_closed)
    return cluster, connection


@staged
async def test_what_has_a_home_and_is_not_there_is_not_made_in_a_cluster_that_is_to_go(stage: Stage) -> None:
    cluster, connection = await going(stage)
    with pytest.raises(errors.UnavailableError, match="is being deleted"):
        await connection.send("spare", "nobody would have it")
    assert "spare" not in held(cluster, "b0")
    await connection.close()


@staged
async def test_what_a_bridge_has_made_again_is_closed_at_once_without_etcd_too(stage: Stage) -> None:
    cluster, connection = await going(stage)
    cluster.cut_off("b0")
    await cluster.until(lambda: cluster.member("b0").link.fault is not None)
    async with sterna.admin.connect(cluster.url("b0")) as admin:
        await admin.delete("Queue", "copies")
    assert "copies" in held(cluster, "b0")
    with pytest.raises(errors.UnavailableError, match="is being deleted"):
        await connection.send("copies", "nobody would have it")
    await asyncio.sleep(3)
    assert held(cluster, "b0")["copies"] == 0
    await connection.close()
