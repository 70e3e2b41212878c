"""A cluster's place in etcd is one MessagingCluster's: brokers of another neither read nor write there."""

from __future__ import annotations

import asyncio
import contextlib

import sterna
from sterna_etcd import StoreReplacedError

from tests.world.clusters import LAYOUT
from tests.world.stage import Stage, staged


@staged
async def test_brokers_of_another_cluster_do_not_join_whatever_they_were_given(stage: Stage) -> None:
    cluster = await stage.cluster()
    await cluster.claim("uid-1")
    own = await stage.start(cluster.add("b0", owner="uid-1"))
    await cluster.allow_all()
    connection = await stage.connect(own)
    await connection.send("orders", "one")
    starting = asyncio.create_task(stage.start(cluster.add("b1", owner="uid-2")))
    await asyncio.sleep(60)
    assert not starting.done(), "it waits, as for an etcd that is not there"
    keys = [pair.key for pair in (await cluster.client.list_all(LAYOUT.prefix)).values]
    assert not [key for key in keys if key.endswith("/b1")], "nothing of it stands there"
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    await connection.close()


@staged
async def test_brokers_write_no_more_where_the_place_was_taken_and_go_on_when_it_is_theirs_again(stage: Stage) -> None:
    cluster = await stage.cluster()
    await cluster.claim("uid-1")
    broker = await stage.start(cluster.add("b0", owner="uid-1"))
    await cluster.allow_all()
    connection = await stage.connect(broker)
    await connection.send("orders", "one")
    await cluster.claim("uid-2")
    revision = (await cluster.client.get(LAYOUT.home("queue", "new"))).revision
    # At once, before anybody has looked: etcd itself refuses.
    with contextlib.suppress(TimeoutError, sterna.SternaError):
        async with asyncio.timeout(20):
            await connection.send("new", "two")
    link = cluster.member("b0").link
    assert isinstance(link.fault, StoreReplacedError)
    assert "belongs to MessagingCluster shop/orders (uid uid-2" in str(link.fault)
    got = await cluster.client.get(LAYOUT.home("queue", "new"))
    assert (got.found, got.revision) == (None, revision), "no broker has written anything since"
    # What is settled is served on.
    await connection.send("orders", "three")
    await cluster.claim("uid-1")
    await cluster.until(lambda: link.fault is None)
    await connection.send("new", "four")
    assert await cluster.home("queue", "new") == "b0"
    await connection.close()


@staged
async def test_a_broker_waits_until_the_place_is_claimed(stage: Stage) -> None:
    cluster = await stage.cluster()
    broker = cluster.add("b0", owner="uid-1")
    starting = asyncio.create_task(stage.start(broker))
    await asyncio.sleep(20)
    assert not starting.done()
    assert not (await cluster.client.list_all(LAYOUT.prefix)).values
    await cluster.claim("uid-1")
    await starting
    link = cluster.member("b0").link
    await cluster.until(lambda: link.fault is None)
