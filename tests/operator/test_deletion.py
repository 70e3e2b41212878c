"""What deletion does: by policy, with the cluster gone first, with the namespace going."""

from pathlib import Path

import pytest
from sterna_etcd import Claim
from sterna_etcd.records import ConfigRecord, Owner
from sterna_operator.kube import path

from tests.etcds import RunningEtcd
from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(30_000)

FINALIZER = "sterna.dev/operator"


async def test_retain_lets_the_object_go_at_once_and_the_queue_stay(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        broker.messages["orders"] = 3
        world.queue("orders")
        made = await world.ready("Queue", "orders")
        assert "finalizers" not in made["metadata"]
        world.delete("Queue", "orders")
        await world.gone("Queue", "orders")
        await world.unconfigured("Queue", "orders")
        assert broker.messages["orders"] == 3
        found = await world.client.get(world.layout.home("queue", "orders"))
        assert found.found is not None


async def test_a_queue_that_is_deleted_and_applied_again_is_taken_back(world: World, operator: MakeOperator) -> None:
    """With the defaults: what it leaves in the brokers is its own when it comes back, and nobody else's."""
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        broker.messages["orders"] = 3
        for kind in ("Queue", "Topic"):
            world.apply(kind, "orders", {})
            await world.ready(kind, "orders")
            world.delete(kind, "orders")
            await world.unconfigured(kind, "orders")
            world.apply(kind, "stranger", {"name": "orders"})
            assert "nobody manages it" in await world.reason(kind, "stranger", "Exists")
            world.delete(kind, "stranger")
            world.apply(kind, "orders", {})
            await world.ready(kind, "orders")
        assert "Adopted" in world.events("orders")
        notes = await world.client.list_all(world.layout.lefts)
        assert notes.values == [], "whoever has it again has not left it"


async def test_what_was_left_behind_and_is_gone_is_forgotten(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator(only_etcd=False, broker_image="localhost/broker:0")
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        broker.messages |= {"gone": 1, "managed": 1}
        for name in ("gone", "managed"):
            world.queue(name)
            await world.ready("Queue", name)
            world.delete("Queue", name)
            await world.unconfigured("Queue", name)
        note = world.layout.left(Claim("Queue", "gone"))
        assert (await world.client.get(note)).found is not None
        await world.client.delete(world.layout.home("queue", "gone"))
        owner = Owner(by="admin")
        record = ConfigRecord(manifest={}, owner=owner)
        await world.client.put(world.layout.config(Claim("Queue", "managed")), record.encode())

        async def is_forgotten() -> bool:
            return not (await world.client.list_all(world.layout.lefts)).values

        await eventually(is_forgotten, timeout_s=30.0)


async def test_delete_takes_the_messages_and_then_the_object(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        broker.messages["orders"] = 3
        world.queue("orders", deletionPolicy="delete")
        made = await world.ready("Queue", "orders")
        assert made["metadata"]["finalizers"] == [FINALIZER]
        broker.is_late = True
        world.delete("Queue", "orders")
        await world.reason("Queue", "orders", "Deleting")
        record = await world.configured("Queue", "orders")
        assert record.deleting is not None
        assert record.deleting.policy == "delete"
        assert world.get("Queue", "orders") is not None
        broker.is_late = False
        await broker.report()
        await world.gone("Queue", "orders")
        assert await world.config("Queue", "orders") is None
        assert "orders" not in broker.messages
        left = await world.client.list_all(world.layout.object_statuses_of(Claim("Queue", "orders")))
        assert left.values == []


async def test_only_if_empty_waits_says_how_many_and_goes_when_it_is(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        broker.messages["orders"] = 7
        world.queue("orders", deletionPolicy="onlyIfEmpty")
        await world.ready("Queue", "orders")
        world.delete("Queue", "orders")
        text = await world.reason("Queue", "orders", "DeletionBlocked")
        assert "7 messages" in text
        blocked = world.get("Queue", "orders")
        assert blocked is not None
        assert blocked["status"]["messages"] == 7
        await eventually(lambda: "DeletionBlocked" in world.events("orders"))
        broker.messages.clear()
        await broker.report()
        await world.gone("Queue", "orders")


async def test_the_cluster_deleted_first_holds_nothing_up(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        broker.is_late = True
        world.queue("orders", deletionPolicy="delete")
        world.secret("her-password", "secret")
        world.apply("User", "ann", {"passwordSecret": {"name": "her-password"}})
        await world.configured("Queue", "orders")
        await eventually(lambda: FINALIZER in (world.get("User", "ann") or {})["metadata"].get("finalizers", ()))
        world.delete("MessagingCluster", "mq")
        await world.gone("MessagingCluster", "mq")
        world.delete("Queue", "orders")
        world.delete("User", "ann")
        await world.gone("Queue", "orders")
        await world.gone("User", "ann")


async def test_a_cluster_that_goes_while_its_etcd_is_asked_ends_nobody(
    world: World, operator: MakeOperator, tmp_path: Path
) -> None:
    """The etcd's connections are closed under whoever waits for an answer; the operator goes on with everything."""
    with RunningEtcd(tmp_path / "etcd") as own:
        world.make_cluster(etcd={"endpoints": own.urls.split(",")})
        running = operator()
        world.queue("before", deletionPolicy="delete")
        names = [f"orders.{number}" for number in range(3)]

        def are_kept(*queues: str) -> bool:
            return all("finalizers" in (world.get("Queue", name) or {})["metadata"] for name in queues)

        await eventually(lambda: are_kept("before"), timeout_s=30.0)
        own.first.freeze()
        for name in names:
            world.queue(name, deletionPolicy="delete")
        # The finalizer comes first, and the record, which hangs, after it.
        await eventually(lambda: are_kept(*names), timeout_s=30.0)
        world.delete("MessagingCluster", "mq")
        await world.gone("MessagingCluster", "mq")
        for name in ("before", *names):
            world.delete("Queue", name)
        for name in ("before", *names):
            await world.gone("Queue", name)
        assert not running.has_ended
        own.first.thaw()


async def test_a_namespace_that_goes_takes_everything_with_it(world: World, operator: MakeOperator) -> None:
    guest = world.server.namespace(f"{world.namespace}-guest")
    world.make_cluster(allowedNamespaces={"policy": "all"})
    operator(namespaces=[world.namespace, guest])
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        broker.messages["blocked"] = 1
        world.apply("Queue", "plain", {}, namespace=guest, ref=world.namespace)
        world.apply("Queue", "deleted", {"deletionPolicy": "delete"}, namespace=guest, ref=world.namespace)
        world.apply("Queue", "blocked", {"deletionPolicy": "onlyIfEmpty"}, namespace=guest, ref=world.namespace)
        for name in ("plain", "deleted", "blocked"):
            await world.ready("Queue", name, namespace=guest)
        assert world.server.request("DELETE", path("v1", "Namespace", None, guest)).ok
        # Nobody collects here; what the namespace's controller does is asked for by hand.
        for name in ("plain", "deleted", "blocked"):
            world.delete("Queue", name, namespace=guest)
        for name in ("plain", "deleted", "blocked"):
            await world.gone("Queue", name, namespace=guest)
            await world.unconfigured("Queue", name)
        assert broker.messages == {"blocked": 1}


async def test_etcd_away_keeps_the_object_until_the_work_can_be_done(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    running = operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        world.queue("orders", deletionPolicy="delete")
        await world.ready("Queue", "orders")
        running.kill()
        world.end_lead()
        world.make_cluster(etcd={"endpoints": ["http://127.0.0.1:9"]})
        running.start()
        world.delete("Queue", "orders")
        await world.reason("Queue", "orders", "EtcdUnavailable")
        assert Claim("Queue", "orders") in broker.applied
        world.make_cluster()
        await world.gone("Queue", "orders")
        assert Claim("Queue", "orders") not in broker.applied


async def test_a_policy_that_becomes_retain_takes_the_finalizer_away(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("orders", deletionPolicy="delete")
        await world.ready("Queue", "orders")
        world.queue("orders", deletionPolicy="retain")
        await eventually(lambda: "finalizers" not in (world.get("Queue", "orders") or {})["metadata"])
        await world.ready("Queue", "orders")


async def test_what_was_deleted_while_no_operator_ran_is_noticed_afterwards(
    world: World, operator: MakeOperator
) -> None:
    world.make_cluster()
    running = operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        for name in ("kept", "gone"):
            world.queue(name)
            await world.ready("Queue", name)
        running.kill()
        world.end_lead()
        world.delete("Queue", "gone")
        await world.gone("Queue", "gone")
        running.start()
        await world.unconfigured("Queue", "gone")
        assert await world.config("Queue", "kept") is not None
