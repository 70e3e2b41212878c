"""How often the operator writes to Kubernetes for one object: what a thousand of them cost the API server.

Counted by the operator's process itself, on a real API server. How long it takes is measured by `bench/operator.py`,
and told by no test.
"""

from collections import Counter

import pytest

from tests.operator.audit_objects import AUDIT, result
from tests.operator.audit_stage import Stage
from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.operators import RunningOperator
from tests.operator.worlds import World
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(30_000)

# With a finalizer, which is a write.
_DELETE = {"deletionPolicy": "delete"}


def _api_writes(running: RunningOperator, name: str) -> Counter[str]:
    """The writes to Kubernetes that concern an object; of etcd's keys none begins with a method."""
    found: Counter[str] = Counter()
    for write in running.writes:
        method, _, where = write.partition(" ")
        if method not in ("PATCH", "POST", "PUT", "DELETE"):
            continue
        if where.endswith(f"/queues/{name}"):
            found["object"] += 1
        elif where.endswith(f"/queues/{name}/status"):
            found["status"] += 1
        elif "/events" in where:
            # An event that is new is posted to all of them: its path does not say whose it is.
            found["event"] += 1
    return found


async def test_a_queue_that_brokers_take_at_once_costs_a_finalizer_and_a_status(
    world: World, operator: MakeOperator
) -> None:
    world.make_cluster()
    # However busy the machine is: what is not said within the usual second costs one write more.
    running = operator(silence_s=60.0)
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        # By then the operator has reached etcd, and heard of the broker.
        world.queue("first")
        await world.ready("Queue", "first")
        names = [f"q-{number}" for number in range(20)]
        for name in names:
            world.queue(name, **_DELETE)
        for name in names:
            await world.ready("Queue", name)
        world.queue("keeps")
        await world.ready("Queue", "keeps")
    counted = {name: _api_writes(running, name) for name in names}
    assert {name: one for name, one in counted.items() if one != {"object": 1, "status": 1}} == {}
    assert _api_writes(running, "keeps")["object"] == 0
    assert world.events("q-0") == []


async def test_a_queue_that_waits_for_its_broker_says_so_and_costs_three_writes(
    world: World, operator: MakeOperator
) -> None:
    world.make_cluster()
    running = operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        world.queue("first")
        await world.ready("Queue", "first")
        broker.is_late = True
        world.queue("slow", **_DELETE)
        text = await world.reason("Queue", "slow", "Applying")
        assert text == "waits for the brokers to apply it"
        broker.is_late = False
        await broker.report()
        await world.ready("Queue", "slow")
        # The home is told by a key of its own; both are there by now, as the double writes the home first.
        assert (world.get("Queue", "slow") or {})["status"]["home"] == "b-0"
    assert _api_writes(running, "slow") == {"object": 1, "status": 2}


async def test_an_operator_that_is_killed_while_it_waits_in_silence_leaves_the_next_one_what_to_say(
    world: World, operator: MakeOperator
) -> None:
    world.make_cluster()
    first = operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        broker.is_late = True
        world.queue("orders", **_DELETE)
        await world.configured("Queue", "orders")
        first.kill()
        world.end_lead()
        operator("second")
        await world.reason("Queue", "orders", "Applying")
        broker.is_late = False
        await broker.report()
        await world.ready("Queue", "orders")


async def test_a_queue_that_goes_while_it_is_waited_for_in_silence_leaves_nothing(
    world: World, operator: MakeOperator
) -> None:
    world.make_cluster()
    running = operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        broker.is_late = True
        world.queue("brief")
        await world.configured("Queue", "brief")
        world.delete("Queue", "brief")
        await world.unconfigured("Queue", "brief")
        await eventually(lambda: world.metrics(running.address)["sterna_operator_queue_delayed"] == 0.0)
        broker.is_late = False
        world.queue("brief")
        await world.ready("Queue", "brief")


async def test_an_audit_job_costs_three_writes_a_run_three_more_and_looking_at_it_none(
    world: World, operator: MakeOperator
) -> None:
    world.make_cluster(authentication={"enabled": False})
    stage = Stage(world)
    running = operator(audit_image="localhost/audit:1", resync_s=0.5)
    # Due once a year: what is said of the next run stays so while the test goes on.
    world.apply("AuditJob", "nightly", {**AUDIT, "schedule": "0 3 1 1 *"})
    await world.ready("AuditJob", "nightly")
    namespace = f"namespaces/{world.namespace}"
    # The object is seen before the operator has noted the answer to the write that made it so.
    await eventually(lambda: len(_of_audits(running)) >= 3, what="the write of the status, noted")
    assert Counter(_of_audits(running)) == {
        f"PATCH /api/v1/{namespace}/configmaps/nightly-run": 1,
        f"PATCH /apis/batch/v1/{namespace}/cronjobs/nightly": 1,
        f"PATCH /apis/sterna.dev/v1alpha1/{namespace}/auditjobs/nightly/status": 1,
    }
    made, minute = len(_of_audits(running)), 29_400_000
    told = result(f"nightly-{minute}", "ok", (minute + 1) * 60_000)
    await stage.run(await stage.cron_job("nightly"), minute, told)
    await stage.condition("AuditJob", "nightly", "Clean", "True", "Ok")
    await eventually(lambda: "an event" in _of_audits(running)[made:], what="the event, noted once it was answered")
    # While a run goes on its status says so: its Job, its pod, and how that ends are told one after the other.
    after = Counter(_of_audits(running)[made:])
    assert after.pop(f"PATCH /apis/sterna.dev/v1alpha1/{namespace}/auditjobs/nightly/status") in (1, 2, 3)
    assert after == {f"PATCH /api/v1/{namespace}/configmaps/nightly-{minute}-result": 1, "an event": 1}
    looked = 'sterna_operator_reconcile_seconds_count{kind="AuditJob"}'
    begun, written = world.metrics(running.address).get(looked, 0.0), len(running.writes)
    await eventually(lambda: world.metrics(running.address).get(looked, 0.0) > begun + 4, timeout_s=30.0)
    assert not [one for one in running.writes[written:] if "/leases/" not in one]


def _of_audits(running: RunningOperator) -> list[str]:
    """The writes to Kubernetes, in which all events are alike; of etcd's keys none begins with a method."""
    found = [one for one in running.writes if one.partition(" ")[0] in ("PATCH", "POST", "PUT", "DELETE")]
    return [
        "an event" if "/events" in one else one for one in found if "/leases/" not in one and "clusters/" not in one
    ]
