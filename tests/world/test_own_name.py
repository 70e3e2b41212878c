"""A broker that starts while etcd is away is not registered: what it finds there afterwards is its own, of before."""

from __future__ import annotations

import asyncio

from tests.world.stage import Stage, staged


@staged
async def test_a_broker_that_was_started_twice_while_nobody_led_etcd_is_nobody_s_rival(stage: Stage) -> None:
    cluster = await stage.cluster("b0", "b1")
    again = cluster.brokers["b1"]
    cluster.etcd.has_leader = False
    cluster.etcd.written()
    for _ in range(2):
        again.kill()
        await again.start()
    cluster.etcd.has_leader = True
    await asyncio.sleep(30)
    assert again.failures == []
    assert again.is_running
    status = await cluster.status("b1")
    assert status is not None
    member = cluster.member("b1")
    assert status.incarnation == member.link.view.brokers["b1"].record.incarnation, "it is registered as it is now"
