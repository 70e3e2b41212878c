"""Queues and the like against a real API server and a real etcd, with a double in the place of brokers."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from sterna_etcd import Claim
from sterna_etcd.records import ConfigRecord, HomeRecord, Owner

from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.waiting import eventually, within

pytestmark = pytest.mark.slow_callbacks(30_000)


def _by_admin(name: str) -> ConfigRecord:
    manifest = {"apiVersion": "sterna.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": {}}
    return ConfigRecord(manifest=manifest, owner=Owner(by="admin"))


async def test_a_queue_becomes_ready_when_brokers_have_applied_it(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        broker.is_late = True
        made = world.queue("orders", maxMessages=10)
        record = await world.configured("Queue", "orders")
        assert record.manifest["spec"] == {"maxMessages": 10}
        assert record.owner.uid == made["metadata"]["uid"]
        await world.reason("Queue", "orders", "Applying")
        assert world.condition("Queue", "orders")["status"] == "False"
        broker.is_late = False
        await broker.report()
        ready = await world.ready("Queue", "orders")
        assert ready["status"]["observedGeneration"] == 1
        # The home is told by a key of its own, which may come a moment later.
        await eventually(lambda: (world.get("Queue", "orders") or {})["status"].get("home") == "b-0")
        assert "finalizers" not in ready["metadata"]
        assert broker.applied[Claim("Queue", "orders")].generation == 1
        # Its status says all that there is to say of what is new.
        assert world.events("orders") == []


async def test_every_kind_becomes_ready_and_a_change_reaches_brokers(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        world.apply("Store", "ledger", {"mode": "sync"})
        world.queue("orders", store="ledger")
        world.apply("Topic", "prices", {})
        world.apply("Queue", "any", {"name": "dynamic.>"})
        world.apply("Bridge", "copy", {"source": {"topic": "prices"}, "targets": [{"queue": "orders"}]})
        world.apply("DurableSubscription", "audit", {"topic": "prices", "clientId": "c"})
        world.apply("ConnectionFactory", "billing", {"name": "Billing", "url": "sterna://mq", "aliases": ["Old"]})
        for kind, name in (
            ("Store", "ledger"),
            ("Queue", "orders"),
            ("Queue", "any"),
            ("Topic", "prices"),
            ("Bridge", "copy"),
            ("DurableSubscription", "audit"),
            ("ConnectionFactory", "billing"),
        ):
            await world.ready(kind, name)
        assert Claim("DurableSubscription", "c/audit") in broker.applied
        factory = broker.applied[Claim("ConnectionFactory", "Billing")].manifest["spec"]
        assert factory == {"name": "Billing", "url": "sterna://mq", "aliases": ["Old"]}
        world.queue("orders", store="ledger", maxBytes=1_000)
        changed = await world.ready("Queue", "orders")
        assert changed["metadata"]["generation"] == 2
        assert broker.applied[Claim("Queue", "orders")].manifest["spec"]["maxBytes"] == 1_000
        await eventually(lambda: "Updated" in world.events("orders"))


async def test_what_a_broker_refuses_is_stalled_with_its_words(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        broker.refuses["orders"] = "its selector makes no sense"
        world.queue("orders")
        text = await world.reason("Queue", "orders", "Refused")
        assert text == "broker b-0: its selector makes no sense"
        assert world.condition("Queue", "orders", "Stalled")["status"] == "True"
        broker.refuses.clear()
        world.queue("orders", maxMessages=1)
        await world.ready("Queue", "orders")


async def test_what_waits_for_a_reference_is_ready_within_2_s_of_its_arrival(
    world: World, operator: MakeOperator
) -> None:
    # The log is to tell of nothing that came of a lead that ran out.
    running = operator(lease_duration_s=30.0)
    world.queue("orders", store="ledger")
    text = await world.reason("Queue", "orders", "ReferenceMissing")
    assert "MessagingCluster" in text
    assert world.condition("Queue", "orders", "Stalled")["status"] == "False"
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.make_cluster()
        await eventually(lambda: "Store ledger" in world.condition("Queue", "orders")["message"], timeout_s=30.0)
        world.apply("Bridge", "copy", {"source": {"queue": "orders"}, "targets": [{"queue": "copies"}]})
        text = await world.reason("Bridge", "copy", "ReferenceMissing")
        assert text == "waits for Queue orders, Queue copies"
        world.apply("Store", "ledger", {})
        await world.ready("Queue", "orders")
        world.queue("copies")
        await world.ready("Bridge", "copy")

        async def store_comes(number: int) -> float:
            world.queue(f"orders-{number}", store=f"ledger-{number}")
            await world.reason("Queue", f"orders-{number}", "ReferenceMissing")
            began = time.monotonic()
            world.apply("Store", f"ledger-{number}", {})
            await world.ready("Queue", f"orders-{number}")
            return time.monotonic() - began

        async def target_comes(number: int) -> float:
            ends = {"source": {"queue": f"orders-{number}"}, "targets": [{"queue": f"copies-{number}"}]}
            world.queue(f"orders-{number}")
            world.apply("Bridge", f"copy-{number}", ends)
            await world.reason("Bridge", f"copy-{number}", "ReferenceMissing")
            began = time.monotonic()
            world.queue(f"copies-{number}")
            await world.ready("Bridge", f"copy-{number}")
            return time.monotonic() - began

        await within(2.0, store_comes)
        await within(2.0, target_comes)
    assert "object put back" not in running.log


async def test_what_waits_for_its_cluster_is_ready_within_2_s_of_its_arrival(
    world: World, operator: MakeOperator
) -> None:
    """Its brokers are there already, as they are where somebody has deleted a cluster and applies it again."""
    # The log is to tell of nothing that came of a lead that ran out.
    running = operator(lease_duration_s=30.0)

    async def cluster_comes(number: int) -> float:
        cluster, queue = f"mq-{number}", f"orders-{number}"
        world.queue(queue, clusterRef={"name": cluster})
        await world.reason("Queue", queue, "ReferenceMissing")
        async with BrokerDouble(world.etcd_urls, f"{world.namespace}.{cluster}"):
            began = time.monotonic()
            world.make_cluster(cluster)
            await world.ready("Queue", queue)
            return time.monotonic() - began

    await within(2.0, cluster_comes)
    assert "object put back" not in running.log


async def test_a_key_deleted_or_changed_behind_the_operators_back_is_back_within_5_s(
    world: World, operator: MakeOperator
) -> None:
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name):

        async def repaired(number: int) -> float:
            name = f"orders-{number}"
            world.queue(name, maxMessages=10)
            await world.ready("Queue", name)
            record = await world.configured("Queue", name)
            key = world.layout.config(Claim("Queue", name))
            began = time.monotonic()
            await world.client.delete(key)
            assert await world.configured("Queue", name) == record
            after_deletion_s = time.monotonic() - began
            other = record.model_copy(update={"manifest": {**record.manifest, "spec": {"maxMessages": 99}}})
            began = time.monotonic()
            await world.client.put(key, other.encode())
            await world.ready("Queue", name)

            async def restored() -> bool:
                return await world.config("Queue", name) == record

            await eventually(restored, timeout_s=30.0)
            after_change_s = time.monotonic() - began
            await eventually(lambda: world.events(name).count("DriftRepaired") == 2)
            return max(after_deletion_s, after_change_s)

        await within(5.0, repaired)


async def test_an_administrators_queue_is_left_adopted_or_observed(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    for name in ("left", "taken", "seen"):
        await world.client.put(world.layout.config(Claim("Queue", name)), _by_admin(name).encode())
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("left", maxMessages=1)
        world.queue("taken", maxMessages=2, adoption="adopt")
        world.queue("seen", maxMessages=3, adoption="observe")
        assert "belongs to an administrator" in await world.reason("Queue", "left", "NameClaimed")
        await world.ready("Queue", "taken")
        await world.reason("Queue", "seen", "Observed")
        assert (await world.configured("Queue", "taken")).owner.by == "operator"
        for name in ("left", "seen"):
            assert await world.config("Queue", name) == _by_admin(name)
        # Once the administrator gives the name up, the one that waited has it.
        await world.client.delete(world.layout.config(Claim("Queue", "left")))
        await world.client.delete(world.layout.home("queue", "left"))
        await world.ready("Queue", "left")


async def test_a_queue_that_nobody_manages_is_taken_only_when_that_is_meant(
    world: World, operator: MakeOperator
) -> None:
    world.make_cluster()
    await world.client.put(world.layout.home("queue", "dynamic"), HomeRecord(broker="b-0").encode())
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("dynamic")
        assert "exists already on broker b-0" in await world.reason("Queue", "dynamic", "Exists")
        assert await world.config("Queue", "dynamic") is None
        world.queue("dynamic", adoption="adopt")
        await world.ready("Queue", "dynamic")


async def test_the_second_object_with_a_name_is_told_whose_it_is_and_gets_it_afterwards(
    world: World, operator: MakeOperator
) -> None:
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.apply("Queue", "first", {"name": "orders"})
        await world.ready("Queue", "first")
        world.apply("Queue", "second", {"name": "orders"})
        text = await world.reason("Queue", "second", "NameClaimed")
        assert f"belongs to {world.namespace}/first" in text
        assert (await world.configured("Queue", "orders")).owner.name == "first"
        world.delete("Queue", "first")
        await world.ready("Queue", "second")


async def test_a_paused_object_is_left_alone_until_the_pause_ends(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("orders", maxMessages=1)
        await world.ready("Queue", "orders")
        until = datetime.now(UTC) + timedelta(seconds=12)
        world.queue("orders", maxMessages=2, paused={"until": until.strftime("%Y-%m-%dT%H:%M:%SZ")})
        await world.reason("Queue", "orders", "Paused")
        assert (await world.configured("Queue", "orders")).manifest["spec"]["maxMessages"] == 1
        world.queue("other", paused={})
        await world.reason("Queue", "other", "Paused")
        # A pause is no error: what brokers do is still what was asked for before, and that is what Ready speaks of.
        paused = world.get("Queue", "orders")
        assert paused is not None
        ready = world.condition("Queue", "orders")
        assert (ready["status"], ready["observedGeneration"], paused["metadata"]["generation"]) == ("True", 1, 2)
        assert "generation 1 is applied" in ready["message"]
        assert world.condition("Queue", "orders", "Stalled")["observedGeneration"] == 2

        async def applied() -> bool:
            return bool((await world.configured("Queue", "orders")).manifest["spec"]["maxMessages"] == 2)

        await eventually(applied, timeout_s=30.0)
        assert datetime.now(UTC) >= until.replace(microsecond=0)
        assert await world.config("Queue", "other") is None


async def test_a_plan_is_shown_in_the_status_and_nothing_is_done(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("orders", maxMessages=1)
        await world.ready("Queue", "orders")
        world.annotate("Queue", "orders", {"sterna.dev/plan": "true"})
        world.queue("orders", maxMessages=2, deletionPolicy="delete")

        def plan() -> list[str]:
            found = world.get("Queue", "orders") or {}
            shown = found["status"].get("plan", {})
            return list(shown["steps"]) if shown.get("generation") == 2 else []

        steps = await eventually(plan)
        assert steps[-1] == "update Queue 'orders': spec.maxMessages: 1 -> 2"
        assert "sterna.dev/operator" in steps[0]
        # What is ready is still what was applied before; nothing more will happen by itself.
        ready, stalled = (world.condition("Queue", "orders", name) for name in ("Ready", "Stalled"))
        assert (ready["status"], ready["reason"], ready["observedGeneration"]) == ("True", "Planned", 1)
        assert (stalled["status"], stalled["observedGeneration"]) == ("True", 2)
        # What is only planned has not happened, and is no event. Another object's are there first.
        world.queue("afterwards")
        await world.ready("Queue", "afterwards")
        world.queue("afterwards", maxMessages=2)
        await eventually(lambda: world.events("afterwards"))
        assert world.events("orders") == []
        assert (await world.configured("Queue", "orders")).manifest["spec"]["maxMessages"] == 1
        world.annotate("Queue", "orders", {"sterna.dev/plan": None})
        done = await world.ready("Queue", "orders")
        await eventually(lambda: "plan" not in (world.get("Queue", "orders") or {})["status"])
        assert done["metadata"]["finalizers"] == ["sterna.dev/operator"]
        # A deletion is carried out all the same: everything around the object would wait for it.
        world.annotate("Queue", "orders", {"sterna.dev/plan": "true"})
        world.delete("Queue", "orders")
        await world.gone("Queue", "orders")


async def test_another_namespace_needs_the_clusters_leave(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    guest = world.server.namespace(f"{world.namespace}-guest")
    operator(namespaces=[world.namespace, guest])
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.apply("Queue", "orders", {}, namespace=guest, ref=world.namespace)
        text = await world.reason("Queue", "orders", "NotAllowed", namespace=guest)
        assert guest in text
        world.make_cluster(allowedNamespaces={"policy": "named", "names": [guest]})
        await world.ready("Queue", "orders", namespace=guest)


async def test_without_a_broker_the_status_says_so_and_one_that_comes_helps(
    world: World, operator: MakeOperator
) -> None:
    world.make_cluster()
    operator()
    world.apply("Store", "ledger", {})
    await world.reason("Store", "ledger", "NoBrokers")
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        await world.ready("Store", "ledger")
