"""How a MessagingCluster goes: what it waits for, what is said, and what becomes of its volumes."""

from dataclasses import replace
from typing import Any

import pytest
from sterna_etcd.records import BrokerStatus, Draining, DrainRecord
from sterna_operator.plans import ApplyObject, PatchObject, RemoveFinalizer
from sterna_operator.reasons import Reason

from tests.operator.cluster_world import World, settled

VOLUMES = {"data-orders-broker-0", "data-orders-broker-1"}


def going(world: World, **fields: Any) -> World:
    world.desired = replace(world.desired, is_deleting=True, **fields)
    return world


def own_volumes(world: World) -> set[str]:
    """The volumes that Kubernetes removes with the cluster."""
    claims = world.observed.claims
    return {name for name, claim in claims.items() if claim["metadata"].get("ownerReferences")}


def test_volumes_belong_to_the_cluster_only_where_they_are_to_go_with_it() -> None:
    world = settled({"brokers": 1})
    assert not world.observed.claims["data-orders-broker-0"]["metadata"].get("ownerReferences")
    world.edit({"brokers": 1, "deletionPolicy": "delete"})
    world.settle()
    owners = world.observed.claims["data-orders-broker-0"]["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in owners] == ["uid-1"]
    # Nor where it goes when it is empty: a message may come at the last moment.
    for policy in ("retain", "delete", "onlyIfEmpty"):
        world.edit({"brokers": 1, "deletionPolicy": policy})
        world.settle()
        owners = world.observed.claims["data-orders-broker-0"]["metadata"]["ownerReferences"]
        assert bool(owners) is (policy == "delete")


def test_a_cluster_goes_only_when_it_is_empty_if_its_policy_says_so() -> None:
    world = settled({"brokers": 2, "deletionPolicy": "onlyIfEmpty"})
    assert world.desired.has_finalizer
    world.messages["orders-broker-1"] = 5
    world.reconcile()
    world.desired = replace(world.desired, is_deleting=True)
    world.reconcile()
    assert world.condition() == ("False", "DeletionBlocked")
    assert "5 messages" in world.message()
    assert world.observed.members.drains == {}, "it serves on"
    world.messages.clear()
    world.reconcile()
    world.reconcile()
    assert {drain.closes_only for drain in world.observed.members.drains.values()} == {True}
    assert not world.finalized, "they have not been asked since"
    for _ in range(3):
        world.reconcile()
    assert world.finalized


def test_a_message_that_came_before_brokers_were_closed_keeps_the_cluster_and_opens_them_again() -> None:
    world = settled({"brokers": 2, "deletionPolicy": "onlyIfEmpty"})
    world.desired = replace(world.desired, is_deleting=True)
    world.reconcile()
    assert len(world.observed.members.drains) == 2
    # The last count says none yet; the one that was made after it had closed says one.
    left = Draining(destinations=1, messages=1, is_closed=True)
    status = BrokerStatus(applied_revision=1, state="draining", messages=0, draining=left)
    world.change_members(statuses={**world.observed.members.statuses, "orders-broker-1": status})
    world.reconcile()
    assert world.condition() == ("False", "DeletionBlocked")
    assert world.observed.members.drains == {}, "it serves on"
    assert not world.finalized


def test_what_a_broker_said_before_it_was_started_anew_lets_no_cluster_go() -> None:
    world = going(settled({"brokers": 1, "deletionPolicy": "onlyIfEmpty"}))
    world.reconcile()
    closed = world.observed.members.statuses["orders-broker-0"]
    assert closed.draining is not None
    assert closed.draining.is_closed
    world.change_members(statuses={"orders-broker-0": closed.model_copy(update={"incarnation": "before"})})
    world.reconcile()
    assert world.condition() == ("False", "Closing")
    assert not world.finalized
    world.reconcile()
    assert world.finalized


def test_brokers_that_were_closed_for_a_deletion_serve_again_in_a_cluster_that_is_there() -> None:
    world = settled({"brokers": 2})
    world.change_members(drains={name: DrainRecord(closes_only=True) for name in world.observed.members.live})
    world.messages["orders-broker-1"] = 5
    world.edit({"brokers": 1})
    world.reconcile()
    assert world.observed.members.drains == {"orders-broker-1": DrainRecord()}


def test_a_drain_for_scaling_down_is_no_reason_to_let_a_cluster_go() -> None:
    world = settled({"brokers": 2, "deletionPolicy": "onlyIfEmpty"})
    drains = {name: DrainRecord() for name in world.observed.members.live}
    world.change_members(drains=drains)
    world.reconcile()
    world.desired = replace(world.desired, is_deleting=True)
    world.reconcile()
    assert not world.finalized
    assert {drain.closes_only for drain in world.observed.members.drains.values()} == {True}


def test_a_cluster_that_leaves_everything_needs_no_finalizer() -> None:
    assert not settled({"brokers": 1, "deletionPolicy": "retain"}).desired.has_finalizer


@pytest.mark.parametrize("last", ["retain", "onlyIfEmpty"])
def test_volumes_stay_when_the_policy_became_one_that_keeps_them_after_the_deletion(last: str) -> None:
    world = settled({"brokers": 2, "deletionPolicy": "delete"})
    assert own_volumes(world) == VOLUMES
    world.edit({"brokers": 2, "deletionPolicy": last})
    going(world)
    for _ in range(5):
        world.reconcile()
    assert world.finalized
    assert own_volumes(world) == set()


def test_volumes_go_when_the_policy_became_delete_while_the_deletion_waited() -> None:
    world = settled({"brokers": 2, "deletionPolicy": "onlyIfEmpty"})
    world.messages["orders-broker-1"] = 5
    world.reconcile()
    going(world).reconcile()
    assert world.condition() == ("False", "DeletionBlocked")
    world.edit({"brokers": 2, "deletionPolicy": "delete"})
    plan = world.reconcile()
    assert [one.reason for one in plan.announcements] == [Reason.Deleting]
    assert "5 messages" in plan.announcements[0].message
    world.desired = replace(world.desired, status={**world.desired.status, "conditions": [said(world)]})
    world.reconcile()
    assert world.finalized
    assert own_volumes(world) == VOLUMES


def said(world: World) -> dict[str, str]:
    """The Ready condition as it stands in the status then."""
    status, reason = world.condition()
    return {"type": "Ready", "status": status, "reason": reason, "message": world.message()}


def test_what_is_destroyed_is_said_even_if_the_deletion_waited_for_an_empty_cluster_before() -> None:
    world = settled({"brokers": 1, "deletionPolicy": "onlyIfEmpty"})
    going(world).reconcile()
    world.desired = replace(world.desired, status={"conditions": [said(world)]})
    world.edit({"brokers": 1, "deletionPolicy": "delete"})
    plan = world.reconcile()
    assert [one.reason for one in plan.announcements] == [Reason.Deleting]
    assert not world.finalized


def test_a_cluster_gives_its_volumes_away_before_it_may_be_deleted_at_any_time() -> None:
    world = settled({"brokers": 2, "deletionPolicy": "delete"})
    world.edit({"brokers": 2, "deletionPolicy": "retain", "pod": {"labels": {"team": "a"}}})
    steps = world.decide().steps
    given = [index for index, step in enumerate(steps) if isinstance(step, PatchObject)]
    applied = [index for index, step in enumerate(steps) if isinstance(step, ApplyObject)]
    assert len(given) == 2
    assert max(given) < min(applied)
    assert isinstance(steps[-1], RemoveFinalizer)


@pytest.fixture
def waiting() -> World:
    """A cluster that is to go when it is empty, holds messages, and has lost its Service."""
    world = settled({"brokers": 2, "deletionPolicy": "onlyIfEmpty"})
    world.messages["orders-broker-1"] = 5
    world.reconcile()
    lose(world, "Service", "orders")
    return world


def lose(world: World, kind: str, name: str) -> None:
    """Somebody removes a child."""
    children = {key: child for key, child in world.observed.children.items() if key != (kind, name)}
    world.observed = replace(world.observed, children=children)


def test_a_cluster_that_waits_for_its_consumers_is_looked_after(waiting: World) -> None:
    going(waiting).reconcile()
    assert waiting.condition() == ("False", "DeletionBlocked")
    assert ("Service", "orders") in waiting.observed.children


def test_nothing_is_made_again_of_a_cluster_that_kubernetes_takes_apart(waiting: World) -> None:
    plan = going(waiting, is_dismantled=True).reconcile()
    assert plan.steps == ()
    lose(waiting, "StatefulSet", "orders-broker")
    waiting.reconcile()
    assert waiting.finalized
