"""What may be uninstalled."""

from typing import Any

import pytest
from sterna_operator.guard import cluster_objection, operator_objection


def cluster(policy: str | None, *brokers: dict[str, Any]) -> dict[str, Any]:
    spec = {} if policy is None else {"deletionPolicy": policy}
    metadata = {"namespace": "mq", "name": "orders"}
    return {"kind": "MessagingCluster", "metadata": metadata, "spec": spec, "status": {"brokers": list(brokers)}}


EMPTY = {"name": "b-0", "ready": True, "messages": 0}
FULL = {"name": "b-1", "ready": True, "messages": 3}
AWAY = {"name": "b-2", "ready": False, "messages": 0}


@pytest.mark.parametrize(
    ("found", "word"),
    [
        pytest.param(None, None, id="no cluster"),
        pytest.param(cluster("delete"), "says nothing of its brokers", id="nobody has said anything"),
        pytest.param(cluster(None, FULL), None, id="volumes stay"),
        pytest.param(cluster("delete", EMPTY), None, id="empty"),
        pytest.param(
            cluster("delete", EMPTY, FULL),
            "3 messages, and its deletion policy is delete: they would be lost",
            id="lost",
        ),
        pytest.param(cluster("onlyIfEmpty", FULL), "onlyIfEmpty: its deletion would wait for them", id="waits"),
        pytest.param(cluster("delete", EMPTY, AWAY), "b-2", id="cannot be told"),
        pytest.param(cluster("delete", {"name": "b-3", "ready": True}), "b-3", id="has not said"),
    ],
)
def test_a_cluster_goes_unless_messages_may_be_lost(found: dict[str, Any] | None, word: str | None) -> None:
    objection = cluster_objection(found, has_brokers=True)
    if word is None:
        assert objection is None
    else:
        assert objection is not None
        assert word in objection


def test_a_cluster_that_never_had_brokers_goes() -> None:
    assert cluster_objection(cluster("delete"), has_brokers=False) is None


def test_an_operator_with_clusters_stays() -> None:
    objection = operator_objection([cluster(None)])
    assert objection is not None
    assert "MessagingCluster mq/orders" in objection


def test_an_operator_stays_while_deletions_wait_for_it() -> None:
    queue = {"kind": "Queue", "metadata": {"namespace": "mq", "name": "q", "finalizers": ["sterna.dev/operator"]}}
    objection = operator_objection([queue])
    assert objection is not None
    assert "Queue mq/q" in objection


def test_an_operator_with_nothing_to_do_may_go() -> None:
    assert operator_objection([]) is None
    assert operator_objection([{"kind": "Queue", "metadata": {"namespace": "mq", "name": "q"}}]) is None
