"""An API server that refuses, fails, or whose watches fall silent: through a proxy in front of the real one."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from sterna_etcd import Claim

from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.support.unreliable_proxy import UnreliableProxy
from tests.waiting import eventually

pytestmark = [
    pytest.mark.slow_callbacks(30_000),
]


@pytest.fixture
def proxy(world: World, tmp_path: Path) -> Iterator[UnreliableProxy]:
    with UnreliableProxy(world.server.url, world.server.kubeconfig, tmp_path) as made:
        yield made


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_every_third_write_refused_delays_and_changes_nothing(
    world: World, operator: MakeOperator, proxy: UnreliableProxy, status: int
) -> None:
    world.make_cluster()
    operator(kubeconfig=str(proxy.kubeconfig))
    counter = itertools.count()
    proxy.failing = lambda method, path: status if method != "GET" and next(counter) % 3 == 0 else None
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        for number in range(5):
            world.queue(f"q-{number}", deletionPolicy="delete")
        for number in range(5):
            await world.ready("Queue", f"q-{number}")
        for number in range(5):
            world.delete("Queue", f"q-{number}")
        for number in range(5):
            await world.gone("Queue", f"q-{number}")
        assert broker.applied == {}
    assert len(proxy.failed) > 5


async def test_the_servers_wish_to_wait_is_respected(
    world: World, operator: MakeOperator, proxy: UnreliableProxy
) -> None:
    world.make_cluster()
    operator(kubeconfig=str(proxy.kubeconfig))
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("first")
        await world.ready("Queue", "first")
        proxy.retry_after_s = 30
        proxy.failing = lambda method, path: 429 if "/queues/second/status" in path else None
        world.queue("second")
        await eventually(lambda: proxy.failed, what="a refused write")
        refused = len(proxy.failed)
        world.queue("third")
        await world.ready("Queue", "third")
        assert len(proxy.failed) <= refused + 1


async def test_a_watch_that_falls_silent_is_noticed(
    world: World, operator: MakeOperator, proxy: UnreliableProxy
) -> None:
    """Nothing comes, not even a bookmark, although the connection stands: another connection is opened."""
    world.make_cluster()
    operator(kubeconfig=str(proxy.kubeconfig), watch_inactivity_s=4.0)
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("before")
        await world.ready("Queue", "before")
        proxy.freeze()
        world.queue("meanwhile")
        seen = len(proxy.passed_watches)
        await eventually(lambda: len(proxy.passed_watches) > seen, timeout_s=30.0, what="another watch")
        proxy.thaw()
        await world.ready("Queue", "meanwhile")


async def test_an_api_server_that_is_away_ends_nothing_that_runs(
    world: World, operator: MakeOperator, proxy: UnreliableProxy
) -> None:
    """Drift is repaired in etcd while Kubernetes does not answer, for as long as the lead lasts."""
    world.make_cluster()
    operator(kubeconfig=str(proxy.kubeconfig), lease_duration_s=30.0)
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("orders")
        await world.ready("Queue", "orders")
        proxy.failing = lambda method, path: 503
        await world.client.delete(world.layout.config(Claim("Queue", "orders")))
        await world.configured("Queue", "orders")
        proxy.failing = lambda method, path: None
        world.queue("orders", maxMessages=3)
        await world.ready("Queue", "orders")


async def test_an_outage_longer_than_the_lease_does_not_end_the_process(
    world: World, operator: MakeOperator, proxy: UnreliableProxy
) -> None:
    """Nobody else has led meanwhile: a process that ended would only be started later and later."""
    world.make_cluster()
    running = operator(kubeconfig=str(proxy.kubeconfig), lease_duration_s=3.0)
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("orders")
        await world.ready("Queue", "orders")
        proxy.failing = lambda method, path: 503
        await eventually(lambda: '"is_leading": false' in running.log, timeout_s=60.0, what="the lead's end")
        world.queue("orders", maxMessages=3)
        assert (await world.configured("Queue", "orders")).generation == 1
        proxy.failing = lambda method, path: None
        await world.ready("Queue", "orders")
    assert not running.has_ended


async def test_a_lease_is_held_although_no_write_of_it_is_ever_answered(
    world: World, operator: MakeOperator, proxy: UnreliableProxy
) -> None:
    """Each is done, and the connection ends before the answer: sent again, it conflicts with itself."""
    world.make_cluster()
    proxy.losing = lambda method, path: method != "GET" and "/leases" in path
    running = operator(kubeconfig=str(proxy.kubeconfig), lease_duration_s=30.0)
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("one")
        await world.ready("Queue", "one", timeout_s=60.0)
        renewed = len(proxy.lost)
        await eventually(lambda: len(proxy.lost) > renewed, timeout_s=60.0, what="another renewal")
        world.queue("two")
        await world.ready("Queue", "two", timeout_s=60.0)
    assert "not renewed" not in running.log
    assert not running.has_ended
