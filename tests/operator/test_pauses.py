"""Pauses: nothing is done, and what is said is about what was applied before."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sterna_operator import conditions

from tests.operator.audit_objects import SNAPSHOT, result
from tests.operator.audit_stage import Stage
from tests.operator.cluster_world import DEFAULTS, World, settled
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World as Namespace
from tests.waiting import eventually


def test_a_paused_cluster_is_left_alone() -> None:
    world = settled({"brokers": 1})
    world.edit({"brokers": 3, "paused": {}})
    plan = world.reconcile()
    assert plan.steps == ()
    # What was asked for before stands, and is what Ready speaks of.
    assert (world.condition(), world.condition("Stalled")) == (("True", "Paused"), ("False", "Paused"))
    ready = conditions.find(world.desired.status, "Ready")
    assert (ready["observedGeneration"], world.desired.generation) == (1, 2)
    assert ready["message"] == ("paused until spec.paused is removed; generation 1 is applied; 1 of 1 brokers serve")


def test_a_paused_cluster_says_when_a_broker_serves_no_more_and_when_it_does_again() -> None:
    """Kubernetes looks after the pods meanwhile, and clients ask whether they are served."""
    world = settled({"brokers": 2})
    world.edit({"brokers": 2, "image": "localhost/broker:2", "paused": {}})
    found = []
    for is_ready in (True, False, True):
        world.change_pod("orders-broker-1", is_ready=is_ready)
        assert world.reconcile().steps == ()
        status = world.desired.status
        ready = conditions.find(status, "Ready")
        brokers = [one["ready"] for one in status["brokers"]]
        found.append((ready["status"], ready["observedGeneration"], status["readyBrokers"], brokers))
    assert found == [
        ("True", 1, 2, [True, True]),
        ("False", 1, 1, [True, False]),
        ("True", 1, 2, [True, True]),
    ]
    assert world.desired.status["image"] == DEFAULTS.broker_image
    # Without the pause it is judged by what is asked for now.
    world.edit({"brokers": 2, "image": "localhost/broker:2"})
    world.reconcile()
    assert conditions.find(world.desired.status, "Ready")["observedGeneration"] == 3


def test_a_cluster_that_never_served_is_not_ready_in_a_pause() -> None:
    world = World({"brokers": 1, "paused": {}})
    assert world.reconcile().steps == ()
    assert (world.condition(), world.condition("Stalled")) == (("False", "Paused"), ("True", "Paused"))


def test_what_is_known_of_a_certificate_is_known_in_a_pause() -> None:
    valid = {"type": "CertificateValid", "status": "True", "reason": "Valid", "message": "", "observedGeneration": 1}
    world = settled({"brokers": 1})
    world.desired = replace(world.desired, status={**world.desired.status, "conditions": [valid]})
    world.edit({"brokers": 1, "paused": {}})
    world.reconcile()
    assert conditions.find(world.desired.status, "CertificateValid")["observedGeneration"] == 1


@pytest.mark.slow_callbacks(30_000)
async def test_a_snapshot_is_not_begun_in_a_pause_and_one_that_has_begun_goes_on(
    world: Namespace, operator: MakeOperator
) -> None:
    world.make_cluster(authentication={"enabled": False})
    stage = Stage(world)
    operator(audit_image="localhost/audit:1")

    def job(name: str) -> object:
        return stage.get("batch/v1", "Job", name)

    until = (datetime.now(UTC) + timedelta(seconds=8)).replace(microsecond=0)
    end = until.strftime("%Y-%m-%dT%H:%M:%SZ")
    world.apply("StoreSnapshot", "later", {**SNAPSHOT, "paused": {"until": end}})
    world.apply("StoreSnapshot", "held", {**SNAPSHOT, "paused": {}})
    assert await world.reason("StoreSnapshot", "later", "Paused") == f"paused until {end}"
    await world.reason("StoreSnapshot", "held", "Paused")
    assert world.condition("StoreSnapshot", "held", "Stalled")["status"] == "True"
    # It is begun when the pause has ended, by itself or by somebody.
    await eventually(lambda: job("later"), timeout_s=40.0, what="the Job after the pause")
    assert datetime.now(UTC) >= until
    assert job("held") is None
    world.apply("StoreSnapshot", "held", SNAPSHOT)
    await eventually(lambda: job("held"), timeout_s=30.0, what="the Job after the pause was taken away")
    # A pause that comes later changes nothing any more: what becomes of the run is told.
    world.apply("StoreSnapshot", "held", {**SNAPSHOT, "paused": {}})
    stage.end(stage.pod("held"), result("held", "ok", int(time.time() * 1000)))
    stage.over("held")
    found = await world.ready("StoreSnapshot", "held")
    assert found["status"]["taken"]["snapshots"][0]["cut"] == 12
