"""Two operators: one leads, the other takes over; whoever was paused meanwhile writes no more."""

import asyncio
import signal
import time

import pytest
from sterna_etcd import Etcd, EtcdSettings, Put
from sterna_operator.apply import Applier
from sterna_operator.kube import Kube, Ref, load_configuration, path
from sterna_operator.plans import ApplyObject
from sterna_operator.store import ClusterStore, FencedError, StaleError

from tests.etcds import RunningEtcd
from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.waiting import eventually, within

pytestmark = pytest.mark.slow_callbacks(30_000)


async def _epoch(world: World) -> int:
    found = (await world.client.get(world.layout.operator_epoch)).found
    return int(found.value) if found else 0


async def test_a_killed_leader_is_followed_within_15_s(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    first = operator("first", lease_duration_s=10.0)
    second = operator("second", lease_duration_s=10.0)
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("one")
        await world.ready("Queue", "one")
        assert first.writes
        assert second.writes == []
        assert await _epoch(world) == 1

        async def follows(number: int) -> float:
            leader, standby = (first, second) if number % 2 == 0 else (second, first)
            if number:
                await asyncio.to_thread(standby.start)
            began = time.monotonic()
            await asyncio.to_thread(leader.kill)
            world.queue(f"two-{number}")
            await world.ready("Queue", f"two-{number}", timeout_s=30.0)
            took_s = time.monotonic() - began
            assert await _epoch(world) == 2 + number
            return took_s

        await within(15.0, follows, tries=3)


async def test_a_leader_that_ends_orderly_is_followed_at_once(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    first = operator("first", lease_duration_s=60.0)
    operator("second", lease_duration_s=10.0)
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("one")
        await world.ready("Queue", "one")
        assert first.terminate() == 0
        world.queue("two")
        await world.ready("Queue", "two")


async def test_a_leader_that_is_told_to_end_has_ended_within_2_s(world: World, operator: MakeOperator) -> None:
    """With all that it follows: what is left for later is waited for, while nobody else may lead."""
    world.make_cluster()
    running = operator(only_etcd=False, broker_image="broker:1")
    async with BrokerDouble(world.etcd_urls, world.etcd_name):

        async def ends(number: int) -> float:
            if number:
                await asyncio.to_thread(running.start)
            world.queue(f"q-{number}")
            await world.ready("Queue", f"q-{number}")
            began = time.monotonic()
            assert await asyncio.to_thread(running.terminate) == 0
            return time.monotonic() - began

        await within(2.0, ends)


async def test_a_lease_that_somebody_deletes_is_made_anew(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    running = operator()
    lease = path("coordination.k8s.io/v1", "Lease", world.namespace, "sterna-operator")
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("one")
        await world.ready("Queue", "one")
        assert world.server.request("DELETE", lease).ok
        await eventually(lambda: world.server.request("GET", lease).ok)
        world.queue("two")
        await world.ready("Queue", "two")
    assert not running.has_ended


async def test_a_leader_that_was_frozen_writes_no_more(world: World, operator: MakeOperator) -> None:
    """SIGSTOP is the worst pause: the process wakes up in the middle of whatever it did, and believes that it leads."""
    world.make_cluster()
    first = operator("first", lease_duration_s=10.0)
    second = operator("second", lease_duration_s=10.0)
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("one")
        await world.ready("Queue", "one")
        first.signal(signal.SIGSTOP)
        for number in range(10):
            world.queue(f"q-{number}", maxMessages=1)
        for number in range(10):
            await world.ready("Queue", f"q-{number}")
        assert await _epoch(world) == 2
        before = len(first.writes)
        for number in range(10):
            world.queue(f"q-{number}", maxMessages=2)
        first.signal(signal.SIGCONT)
        # Another operator leads: that is an end of its own kind, and another process would begin as a standby.
        assert await asyncio.to_thread(first.wait) == 3
        for number in range(10):
            await world.ready("Queue", f"q-{number}")
            record = await world.configured("Queue", f"q-{number}")
            assert record.manifest["spec"]["maxMessages"] == 2
        assert [line for line in first.writes[before:] if line.startswith("/sterna/")] == []
        assert not second.has_ended


async def test_the_epoch_refuses_whoever_was_the_leader_before(store: RunningEtcd) -> None:
    """What the process above relies on, without any Lease: of two that claimed, the later alone can write."""

    async def leads() -> None:
        """Both believe that they lead."""

    settings = EtcdSettings.of_urls(store.urls)
    stores = [ClusterStore("epochs", settings) for _ in range(2)]
    try:
        for one in stores:
            one.start()
            await eventually(lambda one=one: one.is_usable)  # type: ignore[misc]
            await one.claim(leads)
        old, new = stores
        assert (old.epoch, new.epoch) == (1, 2)
        key = new.layout.drain("b")
        await new.write([], [Put(key, b'{"force":false}')])
        with pytest.raises(FencedError):
            await old.write([], [Put(key, b'{"force":true}')])
        async with Etcd(settings) as client:
            found = (await client.get(key)).found
            assert found is not None
            assert found.value == b'{"force":false}'
    finally:
        for one in stores:
            await one.close()


async def test_an_emptied_etcd_is_not_written_to(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    running = operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("orders")
        await world.ready("Queue", "orders")
        await world.client.delete(world.layout.identity)
        world.queue("other")
        await world.reason("Queue", "other", "EtcdReplaced")
        assert await world.config("Queue", "other") is None
        # What is ready stays so: brokers keep what they have.
        await world.ready("Queue", "orders")
    assert not running.has_ended


async def test_the_next_operator_notices_an_emptied_etcd_too(world: World, operator: MakeOperator) -> None:
    """It remembers nothing by itself: the cluster's status does."""
    world.make_cluster()
    running = operator(only_etcd=False, broker_image="broker:1")
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("orders")
        await world.ready("Queue", "orders")
        await eventually(lambda: ((world.get("MessagingCluster", "mq") or {}).get("status") or {}).get("etcdId"))
        running.kill()
        world.end_lead()
        await world.client.delete(world.layout.prefix, is_prefix=True)
        running.start()
        world.queue("other")
        await world.reason("Queue", "other", "EtcdReplaced")
        assert (await world.client.list_all(world.layout.configs)).values == []


async def test_a_plan_is_left_where_the_lead_runs_out(world: World) -> None:
    """A process that was paused between two steps: the second is not done, whatever it was decided from."""
    leads = iter([True, False])

    def check_lead() -> None:
        if not next(leads):
            raise StaleError("the lead has run out")

    names = ("first", "second")
    steps = [
        ApplyObject(
            f"create ConfigMap {name}",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": world.namespace}},
        )
        for name in names
    ]
    kube = Kube(await load_configuration(world.server.kubeconfig))
    try:
        with pytest.raises(StaleError):
            await Applier(kube, None, None, check_lead).execute(steps)
        found = [await kube.get(Ref("v1", "ConfigMap", world.namespace, name)) for name in names]
    finally:
        await kube.close()
    assert [one is not None for one in found] == [True, False]
