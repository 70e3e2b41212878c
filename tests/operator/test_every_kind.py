"""What is promised for every kind of a topology, with each of them: adoption, pauses, deletion when it is empty."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sterna_etcd.records import ConfigRecord, HomeRecord, UserRecord
from sterna_operator.kube import path

from tests.operator.audit_objects import AUDIT
from tests.operator.audit_stage import Stage
from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.samples import SAMPLES, SECRET, Sample, stage
from tests.operator.worlds import World
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(30_000)

each_kind = pytest.mark.parametrize("one", [pytest.param(one, id=kind) for kind, one in SAMPLES.items()])


def _owner(record: Any) -> tuple[str, str]:
    assert record is not None
    return record.owner.by, record.owner.name


@each_kind
async def test_what_an_administrator_has_is_left_observed_or_adopted(
    world: World, operator: MakeOperator, one: Sample
) -> None:
    world.make_cluster()
    for name in ("left", "seen", "taken"):
        await world.client.put(one.key(world, name), one.record(name).encode())
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        await stage(world)
        for name, adoption in (("left", "fail"), ("seen", "observe"), ("taken", "adopt")):
            world.apply(one.kind, name, {**one.spec, "adoption": adoption})
        text = await world.reason(one.kind, "left", "NameClaimed")
        assert "belongs to an administrator; spec.adoption: adopt takes it over" in text
        assert world.condition(one.kind, "left", "Stalled")["status"] == "True"
        text = await world.reason(one.kind, "seen", "Observed")
        assert "belongs to an administrator" in text
        assert world.condition(one.kind, "seen")["status"] == "True"
        await world.ready(one.kind, "taken")
        assert _owner(await one.standing(world, "taken")) == ("operator", "taken")
        # Whoever only looks on, or is refused, takes nothing along when it goes, whatever its deletion policy is.
        for name in ("left", "seen"):
            assert await one.standing(world, name) == one.record(name)
        world.delete(one.kind, "seen")
        await world.gone(one.kind, "seen")
        world.apply(one.kind, "left", {**one.spec, "adoption": "adopt"})
        await world.ready(one.kind, "left")
        assert _owner(await one.standing(world, "left")) == ("operator", "left")
        assert await one.standing(world, "seen") == one.record("seen")


@each_kind
async def test_a_name_belongs_to_the_first_object_and_to_the_second_when_that_is_gone(
    world: World, operator: MakeOperator, one: Sample
) -> None:
    world.make_cluster(allowedNamespaces={"policy": "all"})
    guest = world.server.namespace(f"{world.namespace}-guest")
    operator(namespaces=[world.namespace, guest])
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        await stage(world)
        world.secret(SECRET, "two", guest)
        world.apply(one.kind, "same", one.spec)
        await world.ready(one.kind, "same")
        first = await one.standing(world, "same")
        # Not even by adoption: that is for what no object has.
        spec = {**one.spec, "adoption": "adopt"}
        world.apply(one.kind, "same", spec, namespace=guest, ref=world.namespace)
        text = await world.reason(one.kind, "same", "NameClaimed", namespace=guest)
        assert f"belongs to {world.namespace}/same" in text
        assert await one.standing(world, "same") == first
        world.delete(one.kind, "same")
        await world.ready(one.kind, "same", namespace=guest)
        second = await one.standing(world, "same")
        assert second is not None
        assert second.owner.namespace == guest


@pytest.mark.parametrize("kind", ["Queue", "Topic"])
async def test_what_nobody_manages_is_left_observed_or_adopted(world: World, operator: MakeOperator, kind: str) -> None:
    """Nothing else has a home by which it would be known."""
    world.make_cluster()
    home = world.layout.home(kind.lower(), "dynamic")
    await world.client.put(home, HomeRecord(broker="b-0").encode())
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.apply(kind, "dynamic", {"deletionPolicy": "delete"})
        assert "nobody manages it" in await world.reason(kind, "dynamic", "Exists")
        world.apply(kind, "dynamic", {"deletionPolicy": "delete", "adoption": "observe"})
        await world.reason(kind, "dynamic", "Observed")
        assert await world.config(kind, "dynamic") is None
        world.delete(kind, "dynamic")
        await world.gone(kind, "dynamic")
        assert (await world.client.get(home)).found is not None
        world.apply(kind, "dynamic", {"adoption": "adopt"})
        await world.ready(kind, "dynamic")


def _in(seconds: float) -> tuple[datetime, dict[str, str]]:
    until = (datetime.now(UTC) + timedelta(seconds=seconds)).replace(microsecond=0)
    return until, {"until": until.strftime("%Y-%m-%dT%H:%M:%SZ")}


async def test_a_pause_of_any_kind_leaves_what_stands_until_it_ends(world: World, operator: MakeOperator) -> None:
    """All kinds in one world: they wait for the same end."""
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        await stage(world)
        for kind, one in SAMPLES.items():
            world.apply(kind, "held", one.spec)
            await world.ready(kind, "held")
        before = {kind: await one.standing(world, "held") for kind, one in SAMPLES.items()}
        told = {kind: (world.get(kind, "held") or {})["status"] for kind in SAMPLES}
        until, paused = _in(15)
        for kind, one in SAMPLES.items():
            world.apply(kind, "held", {**one.spec, **one.changed, "paused": paused})
            # One that never acted, and for which nobody has set an end.
            world.apply(kind, "never", {**one.spec, "paused": {}})
        for kind in SAMPLES:
            assert f"paused until {paused['until']}" in await world.reason(kind, "held", "Paused")
            await world.reason(kind, "never", "Paused")
            # What brokers have was asked for before, and that is what Ready speaks of.
            ready, stalled = (world.condition(kind, "held", name) for name in ("Ready", "Stalled"))
            assert (ready["status"], ready["observedGeneration"]) == ("True", 1), kind
            assert stalled["observedGeneration"] == 2
            assert world.condition(kind, "never", "Stalled")["status"] == "True"
            # All that was said of it beside conditions is so still.
            status = (world.get(kind, "held") or {})["status"]
            assert {**status, "conditions": 0, "observedGeneration": 0} == {
                **told[kind],
                "conditions": 0,
                "observedGeneration": 0,
            }
        world.secret(SECRET, "two")
        if datetime.now(UTC) < until - timedelta(seconds=2):
            assert {kind: await one.standing(world, "held") for kind, one in SAMPLES.items()} == before
        for kind, one in SAMPLES.items():
            found = await world.ready(kind, "held", timeout_s=60.0)
            assert world.condition(kind, "held")["reason"] == "Applied"
            record = await one.standing(world, "held")
            if isinstance(record, ConfigRecord):
                assert record.generation == found["metadata"]["generation"] == 2
                assert {name: record.manifest["spec"][name] for name in one.changed} == one.changed
            assert await one.standing(world, "never") is None
        assert datetime.now(UTC) >= until

        async def has_two_passwords() -> bool:
            record = await SAMPLES["User"].standing(world, "held")
            return isinstance(record, UserRecord) and len(record.credentials) == 2

        await eventually(has_two_passwords, timeout_s=30.0, what="the password that was changed in the pause")


async def test_a_pause_of_a_cluster_and_of_an_audit_job_leaves_their_children_until_it_ends(
    world: World, operator: MakeOperator
) -> None:
    world.make_cluster(authentication={"enabled": False})
    audits = Stage(world)
    operator(only_etcd=False, broker_image="localhost/broker:0", audit_image="localhost/audit:1")

    def child(version: str, kind: str, name: str, *fields: str) -> Any:
        found: Any = world.server.request("GET", path(version, kind, world.namespace, name)).body
        for one in ("spec", *fields):
            found = found[one]
        return found

    def brokers() -> int:
        return int(child("apps/v1", "StatefulSet", "mq-broker", "replicas"))

    def schedule() -> str:
        return str(child("batch/v1", "CronJob", "nightly", "schedule"))

    await world.reason("MessagingCluster", "mq", "Starting")
    world.apply("AuditJob", "nightly", AUDIT)
    await world.ready("AuditJob", "nightly")
    await audits.cron_job("nightly")
    until, paused = _in(12)
    world.make_cluster(authentication={"enabled": False}, brokers=2, paused=paused)
    world.apply("AuditJob", "nightly", {**AUDIT, "schedule": "0 4 * * *", "paused": paused})
    said = await world.reason("MessagingCluster", "mq", "Paused")
    assert said == f"paused until {paused['until']}"
    # It was not ready before; the AuditJob was, and what it was ready for stands.
    assert world.condition("MessagingCluster", "mq", "Stalled")["status"] == "True"
    said = await world.reason("AuditJob", "nightly", "Paused")
    assert said == f"paused until {paused['until']}; generation 1 is applied"
    ready = world.condition("AuditJob", "nightly")
    assert (ready["status"], ready["observedGeneration"]) == ("True", 1)
    assert world.condition("AuditJob", "nightly", "Stalled")["observedGeneration"] == 2
    if datetime.now(UTC) < until - timedelta(seconds=2):
        assert (brokers(), schedule()) == (1, "0 3 * * *")
    await eventually(lambda: brokers() == 2, timeout_s=60.0, what="the brokers that were asked for in the pause")
    await eventually(lambda: schedule() == "0 4 * * *", timeout_s=60.0, what="the schedule")
    await world.ready("AuditJob", "nightly")
    assert datetime.now(UTC) >= until
    # Without an end it lasts until somebody takes it away.
    world.make_cluster(authentication={"enabled": False}, brokers=3, paused={})
    await world.reason("MessagingCluster", "mq", "Paused")
    assert brokers() == 2
    world.make_cluster(authentication={"enabled": False}, brokers=3)
    await eventually(lambda: brokers() == 3, timeout_s=30.0)


@pytest.mark.parametrize("kind", ["Queue", "Topic", "DurableSubscription"])
async def test_only_if_empty_waits_says_how_many_and_goes_when_it_is(
    world: World, operator: MakeOperator, kind: str
) -> None:
    world.make_cluster()
    operator()
    one, claim = SAMPLES[kind], SAMPLES[kind].claim("held")
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        await stage(world)
        broker.messages[claim] = 7
        world.apply(kind, "held", {**one.spec, "deletionPolicy": "onlyIfEmpty"})
        made = await world.ready(kind, "held")
        assert made["metadata"]["finalizers"] == ["sterna.dev/operator"]
        world.delete(kind, "held")
        text = await world.reason(kind, "held", "DeletionBlocked")
        assert f"the deletion of {kind} '{claim}' waits: broker b-0 has 7 messages in it" in text
        assert (world.get(kind, "held") or {})["status"]["messages"] == 7
        await eventually(lambda: "DeletionBlocked" in world.events("held"))
        assert await one.standing(world, "held") is not None
        broker.messages.clear()
        await broker.report()
        await world.gone(kind, "held")
        assert await one.standing(world, "held") is None
        # Of what goes without a message nobody has to be asked.
        world.apply(kind, "empty", {**one.spec, "deletionPolicy": "onlyIfEmpty"})
        await world.ready(kind, "empty")
        world.delete(kind, "empty")
        await world.gone(kind, "empty")


async def test_a_store_that_is_deleted_if_empty_waits_for_what_is_kept_in_it(
    world: World, operator: MakeOperator
) -> None:
    """It holds no messages itself: a broker says which destination needs it."""
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        world.apply("Store", "ledger", {"deletionPolicy": "onlyIfEmpty"})
        world.queue("orders", store="ledger")
        await world.ready("Queue", "orders")
        made = await world.ready("Store", "ledger")
        assert made["metadata"]["finalizers"] == ["sterna.dev/operator"]
        broker.needed["ledger"] = "Queue orders"
        world.delete("Store", "ledger")
        text = await world.reason("Store", "ledger", "DeletionBlocked")
        assert text == "the deletion of Store 'ledger' waits: the Queue orders needs it"
        await eventually(lambda: "DeletionBlocked" in world.events("ledger"))
        assert await world.config("Store", "ledger") is not None
        world.delete("Queue", "orders")
        await world.gone("Queue", "orders")
        broker.needed.clear()
        await broker.report()
        await world.gone("Store", "ledger")
        assert await world.config("Store", "ledger") is None
