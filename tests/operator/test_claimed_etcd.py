"""Two clusters with one place in etcd: who has it does not depend on who is looked at first."""

from typing import Any, cast

import pytest
from sterna_operator.clusters import Clusters
from sterna_operator.keys import Key
from sterna_operator.kinds.cluster_observing import read
from sterna_operator.kinds.cluster_seen import Desired
from sterna_operator.objects import CLUSTER, Objects
from sterna_operator.settings import OperatorSettings
from sterna_operator.view import View, rival

FIRST, SECOND = Key(CLUSTER, "ns", "first"), Key(CLUSTER, "ns", "second")


def cluster(key: Key, *, made: str, status: dict[str, Any] | None = None, **etcd: Any) -> dict[str, Any]:
    metadata = {"name": key.name, "namespace": key.namespace, "uid": key.name, "resourceVersion": "1"}
    spec = {"etcd": {"endpoints": ["http://one:2379", "http://two:2379"], "clusterName": "shared", **etcd}}
    return {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": CLUSTER,
        "metadata": metadata | {"creationTimestamp": made},
        "spec": {**spec, "insecure": True},
        "status": status or {},
    }


def managed(key: Key, *, made: str) -> dict[str, Any]:
    """One whose etcd the operator runs."""
    whole = cluster(key, made=made)
    return whole | {"spec": {"etcd": {"managed": {}, "clusterName": "shared"}, "insecure": True}}


def rivals(*objects: dict[str, Any]) -> list[Key | None]:
    """Whom each of them has to give way to."""
    known, absent = Objects(), cast("Any", None)
    for one in objects:
        known.put(one)
    view = View(OperatorSettings(), absent, known, absent, absent)
    found = []
    for one in objects:
        desired = read(one)
        assert isinstance(desired, Desired)
        found.append(rival(view, one, desired.cluster))
    return found


EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
USED = {"etcdId": "store-1"}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(cluster(FIRST, made=EARLY), cluster(SECOND, made=LATE), [None, FIRST], id="the older one"),
        pytest.param(cluster(FIRST, made=LATE), cluster(SECOND, made=EARLY), [SECOND, None], id="whichever it is"),
        pytest.param(cluster(FIRST, made=EARLY), cluster(SECOND, made=EARLY), [None, FIRST], id="by name then"),
        pytest.param(
            cluster(FIRST, made=EARLY), cluster(SECOND, made=LATE, status=USED), [SECOND, None], id="who has used it"
        ),
        pytest.param(
            cluster(FIRST, made=EARLY),
            cluster(SECOND, made=LATE, endpoints=["http://two:2379"]),
            [None, FIRST],
            id="one endpoint is enough",
        ),
        pytest.param(
            cluster(FIRST, made=EARLY),
            cluster(SECOND, made=LATE, endpoints=["http://TWO.:2379"]),
            [None, FIRST],
            id="one endpoint is enough however it is spelt",
        ),
        pytest.param(
            managed(FIRST, made=EARLY),
            cluster(SECOND, made=LATE, endpoints=["http://first-etcd.ns.svc.cluster.local:2379"]),
            [None, FIRST],
            id="the etcd that is run for another",
        ),
        pytest.param(
            managed(FIRST, made=LATE),
            cluster(SECOND, made=EARLY, status=USED, endpoints=["http://first-etcd.ns.svc.cluster.local:2379"]),
            [None, FIRST],
            id="the etcd that is run for another, whoever was there before it",
        ),
        pytest.param(
            cluster(FIRST, made=EARLY), cluster(SECOND, made=LATE, clusterName="other"), [None, None], id="other names"
        ),
        pytest.param(
            cluster(FIRST, made=EARLY),
            cluster(SECOND, made=LATE, endpoints=["http://three:2379"]),
            [None, None],
            id="other etcds",
        ),
    ],
)
def test_the_place_belongs_to(first: dict[str, Any], second: dict[str, Any], expected: list[Key | None]) -> None:
    assert rivals(first, second) == expected
    assert rivals(second, first) == expected[::-1]


async def test_who_came_first_to_the_etcd_that_is_run_for_another_is_shown_out() -> None:
    absent = cast("Any", None)
    clusters = Clusters(absent, lambda *_: None, lambda _: None)
    intruder = cluster(SECOND, made=EARLY, endpoints=["http://first-etcd.ns.svc:2379"])
    for key, one in ((SECOND, intruder), (FIRST, managed(FIRST, made=LATE))):
        desired = read(one)
        assert isinstance(desired, Desired)
        await clusters.ensure(key, desired.cluster, absent, {})
    try:
        assert clusters.get(FIRST) is not None
        assert clusters.get(SECOND) is None
        fault = clusters.fault(SECOND)
        assert fault is not None
        assert fault[0] == "NameClaimed"
        assert "ns/first" in fault[1]
    finally:
        await clusters.close()
