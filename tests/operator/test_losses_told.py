"""What a deletion destroys, and what keeps a broker from going, is said with true numbers and reasons."""

from dataclasses import replace

import pytest
from sterna_etcd.records import BrokerRecord, BrokerStatus, Draining, DrainRecord
from sterna_operator.kinds import cluster_scaling
from sterna_operator.kinds.cluster_scaling import Members

from tests.operator.broker_double import BrokerDouble
from tests.operator.cluster_world import World as LittleWorld
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(30_000)


def test_a_cluster_that_is_deleted_with_everything_says_what_goes_and_then_goes() -> None:
    world = LittleWorld({"brokers": 2, "deletionPolicy": "delete"})
    world.settle()
    assert world.desired.has_finalizer
    world.messages |= {"orders-broker-0": 1, "orders-broker-1": 4}
    world.reconcile()
    world.desired = replace(world.desired, is_deleting=True)
    plan = world.reconcile()
    assert not world.finalized
    assert world.condition() == ("False", "Deleting")
    assert "2 brokers and their volumes are deleted, and with them 5 messages in 2 destinations" in world.message()
    assert [one.message for one in plan.announcements] == [world.message()]
    said = {"type": "Ready", "status": "False", "reason": "Deleting", "message": world.message()}
    world.desired = replace(world.desired, status={**world.desired.status, "conditions": [said]})
    world.reconcile()
    assert world.finalized


def test_nothing_holds_up_the_deletion_of_a_cluster_whose_etcd_is_away() -> None:
    world = LittleWorld({"brokers": 1, "deletionPolicy": "delete"})
    world.settle()
    world.change_members(fault=("EtcdUnavailable", "nobody answers"))
    world.desired = replace(world.desired, is_deleting=True)
    world.reconcile()
    assert "cannot be told: nobody answers" in world.message()


def _members(left: Draining) -> Members:
    live = BrokerRecord(addresses=["sterna://b"], version="1", incarnation="i", started_ms=0)
    status = BrokerStatus(applied_revision=1, state="draining", draining=left)
    return Members({"b-1": live}, {"b-1": status}, {"b-1": DrainRecord(force=False)}, {"b-1": left.destinations})


@pytest.mark.parametrize(
    ("left", "text", "blocked"),
    [
        pytest.param(Draining(destinations=1, messages=1), "still has 1 message in 1 destination", True, id="one"),
        pytest.param(Draining(destinations=3, messages=2), "still has 2 messages in 3 destinations", True, id="some"),
        pytest.param(
            Draining(destinations=1, messages=0), "still has 1 destination without messages", False, id="on-its-way"
        ),
        pytest.param(
            Draining(destinations=1, messages=0, waits_for="topic 'news' has 1 durable subscription"),
            "still has 1 destination without messages: topic 'news' has 1 durable subscription",
            True,
            id="kept",
        ),
    ],
)
def test_what_keeps_a_broker_is_said(left: Draining, text: str, blocked: bool) -> None:
    names = {0: "b-0", 1: "b-1"}
    decided = cluster_scaling.decide(1, 2, names, _members(left), frozenset(names.values()), force=False)
    assert decided.waiting == {"b-1": text}
    assert ("b-1" in decided.blocked) is blocked


async def test_a_deletion_says_how_many_messages_went(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator()
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        broker.messages["orders"] = 3
        world.queue("orders", deletionPolicy="delete")
        await world.ready("Queue", "orders", timeout_s=60)
        world.delete("Queue", "orders")
        await world.gone("Queue", "orders", timeout_s=60)

        def told() -> list[str]:
            answer = world.server.request("GET", f"/api/v1/namespaces/{world.namespace}/events")
            return [one["message"] for one in answer.body["items"] if one["reason"] == "Deleted"]

        await eventually(told, timeout_s=60, what="the event")
        assert told() == ["Queue 'orders' is deleted, and with it 3 messages"]
