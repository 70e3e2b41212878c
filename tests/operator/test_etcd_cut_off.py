"""Operator and broker while the network cuts the etcd member that both use, the leader, off from the other two."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import sterna
from sterna_etcd import Etcd, EtcdSettings, UnavailableError

from tests.etcds import RunningEtcd
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.running import RunningBroker
from tests.support.api_server import ApiServer
from tests.support.peer_network import PeerNetwork
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(30_000)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[RunningEtcd]:
    """Three members that a network connects."""
    with RunningEtcd(tmp_path / "etcd", 3, network=PeerNetwork()) as running:
        yield running


async def _leader(running: RunningEtcd) -> int:
    """The number of the member that leads."""
    numbers: dict[int, int] = {}
    leader = 0
    for number, member in enumerate(running.members):
        async with Etcd(EtcdSettings.of_urls(member.url)) as etcd:
            await etcd.put("/first", b"")
            status = await etcd.status()
            numbers[status.header.member_id] = number
            leader = status.leader
    return numbers[leader]


@pytest.fixture
async def leader(three: RunningEtcd) -> int:
    """The number of the member that leads."""
    return await _leader(three)


@pytest.fixture
async def world(kinds: ApiServer, three: RunningEtcd, leader: int) -> AsyncIterator[World]:
    """A namespace whose cluster uses the leader as long as it answers."""
    urls = [member.url for member in three.members]
    made = World(kinds, ",".join([urls[leader], *urls[:leader], *urls[leader + 1 :]]))
    yield made
    await made.close()


async def _passes(broker: RunningBroker, queue: str) -> None:
    async with sterna.connect(f"sterna://{broker.address}") as connection:
        await connection.send(queue, "through")
        message = await (await connection.consumer(queue)).receive(timeout=30)
        assert message is not None
        assert message.text == "through"


async def test_everything_goes_on_while_the_member_in_use_is_cut_off(
    world: World, operator: MakeOperator, three: RunningEtcd, leader: int, tmp_path: Path
) -> None:
    assert three.network is not None
    cluster = {"etcd": world.etcd_urls, "cluster": world.etcd_name}
    broker = RunningBroker(tmp_path / "b-0", None, name="b-0", cluster=cluster)
    try:
        await asyncio.to_thread(broker.start)
        world.make_cluster()
        running = operator(lease_duration_s=15.0)
        world.queue("before")
        await world.ready("Queue", "before", timeout_s=60)
        await _passes(broker, "before")

        await asyncio.to_thread(three.network.cut_off, leader)
        world.queue("before", maxMessages=5)
        world.queue("meanwhile", deletionPolicy="delete")
        await world.ready("Queue", "before", timeout_s=60)
        await world.ready("Queue", "meanwhile", timeout_s=60)
        await _passes(broker, "before")
        await _passes(broker, "meanwhile")
        world.delete("Queue", "meanwhile")
        await world.gone("Queue", "meanwhile", timeout_s=60)
        async with Etcd(EtcdSettings.of_urls(three.members[leader].url, timeout_ms=2_000)) as alone:
            # It is cut off indeed: what was just written is not to be had there, nor anything older.
            with pytest.raises(UnavailableError):
                await alone.get(world.layout.identity)

        await asyncio.to_thread(three.network.heal)
        world.queue("after")
        await world.ready("Queue", "after", timeout_s=60)
        await _passes(broker, "after")
        # The broker is there under its lease, and the operator that led leads.
        await eventually(lambda: asyncio.ensure_future(_is_registered(world)), timeout_s=60, what="the broker")
        epoch = (await world.client.get(world.layout.operator_epoch)).found
        assert epoch is not None
        assert epoch.value == b"1"
        assert not running.has_ended
    finally:
        await asyncio.to_thread(broker.stop)


async def _is_registered(world: World) -> bool:
    return (await world.client.get(world.layout.broker("b-0"))).found is not None
