"""An operator that starts anew in front of an old copy of its etcd: the cluster's status remembers how far etcd was."""

import asyncio
from pathlib import Path

import pytest
from sterna_etcd import Etcd, EtcdSettings

from tests.etcds import RunningEtcd
from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(30_000)


def _noted(world: World) -> int:
    """The revision of etcd that the cluster's status has."""
    found = world.get("MessagingCluster", "mq") or {}
    return int((found.get("status") or {}).get("etcdRevision") or 0)


async def test_an_operator_that_starts_in_front_of_an_old_copy_notices_it(
    world: World, operator: MakeOperator, tmp_path: Path
) -> None:
    with RunningEtcd(tmp_path / "own") as own:
        member = own.first
        world.make_cluster(etcd={"endpoints": own.urls.split(",")})
        running = operator(only_etcd=False, broker_image="broker:1")
        async with BrokerDouble(own.urls, world.etcd_name), Etcd(EtcdSettings.of_urls(own.urls)) as etcd:
            world.queue("before")
            await world.ready("Queue", "before", timeout_s=60)
            await asyncio.to_thread(member.kill)
            await asyncio.to_thread(member.copy_to, tmp_path / "copy")
            await asyncio.to_thread(own.restart, member)
            copied = (await etcd.get("/elsewhere")).revision
            while await etcd.put("/elsewhere", b"") < copied + 150:
                pass
            world.queue("later")
            await world.ready("Queue", "later", timeout_s=60)
            await eventually(lambda: _noted(world) > copied, timeout_s=60, what="the revision in the status")
        running.kill()
        world.end_lead()
        await asyncio.to_thread(member.kill)
        await asyncio.to_thread(member.restore_from, tmp_path / "copy")
        await asyncio.to_thread(own.restart, member)
        await asyncio.to_thread(running.start)
        world.queue("other")
        await world.reason("Queue", "other", "EtcdReplaced", timeout_s=60)
        # When somebody says that the copy is the right one, it is taken, and its revision noted.
        world.annotate("MessagingCluster", "mq", {"sterna.dev/accept-store": "true"})
        async with BrokerDouble(own.urls, world.etcd_name):
            await world.ready("Queue", "other", timeout_s=60)
        await eventually(lambda: 0 < _noted(world) <= copied + 100, timeout_s=60, what="the copy's revision")
