"""What a broker that is to go still has, in the words of the cluster's status."""

from sterna_etcd.records import BrokerRecord, BrokerStatus, Draining, DrainRecord
from sterna_operator.kinds.cluster_scaling import Members, Scaling, decide

_NAMES = {0: "b0", 1: "b1"}


def scaled_down(draining: Draining) -> Scaling:
    """The decision on two brokers of which one is to go, and still has this."""
    live = {name: BrokerRecord(addresses=[], version="1", incarnation="i", started_ms=1) for name in _NAMES.values()}
    statuses = {"b1": BrokerStatus(applied_revision=1, state="draining", draining=draining)}
    members = Members(live, statuses, {"b1": DrainRecord()})
    return decide(1, 2, _NAMES, members, frozenset(_NAMES.values()), force=False)


def test_messages_in_a_queue_of_its_own_keep_a_broker_that_has_given_everything_else_away() -> None:
    own = "queue '$sys.undelivered' holds 7 messages of its own"
    scaling = scaled_down(Draining(destinations=1, messages=7, waits_for=own))
    assert scaling.replicas == 2
    assert scaling.blocked == {"b1"}
    assert scaling.waiting == {"b1": f"still has 7 messages in 1 destination: {own}"}


def test_a_broker_that_has_nothing_left_goes() -> None:
    scaling = scaled_down(Draining(destinations=0, messages=0))
    assert scaling.replicas == 1
    assert scaling.waiting == {}
