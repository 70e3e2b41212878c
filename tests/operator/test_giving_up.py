"""What is removed of a broker that is gone for good, from a real etcd."""

from collections.abc import AsyncIterator

import pytest
from sterna_etcd import Etcd, EtcdSettings, Put
from sterna_etcd.records import BrokerRecord, BrokerStatus, HomeRecord
from sterna_operator.apply import Applier
from sterna_operator.kube import Kube, load_configuration
from sterna_operator.plans import RemoveBroker
from sterna_operator.store import ClusterStore, StaleError

from tests.etcds import RunningEtcd
from tests.operator.worlds import World
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(30_000)
_MANY = 230


@pytest.fixture
async def cluster(world: World, store: RunningEtcd) -> AsyncIterator[ClusterStore]:
    """A store that may be written to, with two brokers that both have destinations; b-1 does not live."""

    async def leads() -> None:
        """Nobody else wants to."""

    made = ClusterStore(world.etcd_name, EtcdSettings.of_urls(store.urls))
    layout, client = made.layout, world.client
    await client.put(layout.broker_status("b-1"), BrokerStatus(applied_revision=1, state="serving").encode())
    await client.put(layout.drain("b-1"), b'{"force":true}')
    for number in range(_MANY):
        await client.put(layout.home("queue", f"q-{number}"), HomeRecord(broker="b-1", static=True).encode())
    await client.put(layout.home("pattern", "a.>"), HomeRecord(broker="b-1").encode())
    await client.put(layout.home("topic", "kept"), HomeRecord(broker="b-0").encode())
    made.start()
    await eventually(lambda: made.is_usable, timeout_s=30.0)
    await made.claim(leads)
    yield made
    await made.close()


_FORGET = RemoveBroker("forget b-1", "b-1", gives_up_homes=True)


async def left(client: Etcd, cluster: ClusterStore) -> set[str]:
    listed = await client.list_all(cluster.layout.prefix)
    own = {cluster.layout.identity, cluster.layout.operator_epoch}
    return {pair.key for pair in listed.values} - own


async def test_homes_go_with_a_broker_that_was_given_up_and_nobody_elses(world: World, cluster: ClusterStore) -> None:
    kube = Kube(await load_configuration(world.server.kubeconfig))
    try:
        await Applier(kube, None, cluster, lambda: None).execute(
            [RemoveBroker("forget b-1", "b-1", gives_up_homes=True)]
        )
    finally:
        await kube.close()
    assert await left(world.client, cluster) == {cluster.layout.home("topic", "kept")}


async def test_a_broker_that_lives_after_all_keeps_everything(world: World, cluster: ClusterStore) -> None:
    record = BrokerRecord(addresses=["sterna://h:1"], version="1", incarnation="i", started_ms=1)
    await cluster.write([], [Put(cluster.layout.drain("b-1"), b'{"force":true}')])
    await world.client.put(cluster.layout.broker("b-1"), record.encode())
    kube = Kube(await load_configuration(world.server.kubeconfig))
    try:
        with pytest.raises(StaleError):
            await Applier(kube, None, cluster, lambda: None).execute(
                [RemoveBroker("forget b-1", "b-1", gives_up_homes=True)]
            )
    finally:
        await kube.close()
    assert len(await left(world.client, cluster)) == _MANY + 5
