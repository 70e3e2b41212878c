"""A pause of a cluster in its plan: nothing is done, and what is said is about what was applied before."""

from dataclasses import replace

from sterna_operator import conditions

from tests.operator.cluster_world import DEFAULTS, World, settled


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
