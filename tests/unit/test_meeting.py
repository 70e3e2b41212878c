"""Where what is tied together and lives on several brokers meets."""

from __future__ import annotations

from typing import Any

import pytest
from sterna_broker.cluster import meeting
from sterna_broker.cluster.view import Stored
from sterna_etcd import HomeKey
from sterna_etcd.records import DrainRecord, HomeRecord

from tests.cluster.conftest import document
from tests.unit.test_placement import objects, view


def _bridge(name: str, source: str, *targets: str) -> dict[str, Any]:
    return document("Bridge", name, source={"queue": source}, targets=[{"queue": one} for one in targets])


def _found(places: dict[str, str], *documents: dict[str, Any], drains: tuple[str, ...] = ()) -> dict[str, str]:
    """By queue, where it is to go to, of what is on any of the brokers b0 and b1."""
    seen = view()
    for name, broker in places.items():
        seen.homes[HomeKey("queue", name)] = Stored(HomeRecord(broker=broker), 1, 1)
    seen.drains |= {name: Stored(DrainRecord(), 1, 1) for name in drains}
    read = objects(*documents)
    return {one.key.name: one.place for name in ("b0", "b1") for one in meeting.apart(seen, read, name)}


def test_targets_go_to_their_source_and_what_is_together_stays() -> None:
    over = _bridge("over", "s", "t", "u")
    assert _found({"s": "b1", "t": "b0", "u": "b1"}, over) == {"t": "b1"}
    assert _found({"s": "b1", "t": "b1", "u": "b1"}, over) == {}
    assert _found({"t": "b1"}, over) == {}, "what has no home gets one with the others"
    assert _found({"s": "b1", "t": "b0"}) == {}


def test_of_several_bridges_the_first_by_name_decides_for_all_that_hangs_together() -> None:
    places = {"s": "b0", "t": "b1", "x": "b1"}
    assert _found(places, _bridge("one", "s", "t"), _bridge("two", "x", "t")) == {"t": "b0", "x": "b0"}
    assert _found(places, _bridge("two", "s", "t"), _bridge("one", "x", "t")) == {"s": "b1"}


@pytest.mark.parametrize(
    ("named", "found"),
    [({"t": "b1"}, {"s": "b1"}), ({"s": "b0", "t": "b1"}, {}), ({"t": "b0"}, {"t": "b0"}), ({"t": "b7"}, {"t": "b0"})],
)
def test_what_lives_where_its_manifest_says_stays(named: dict[str, str], found: dict[str, str]) -> None:
    queues = [document("Queue", name, broker=broker) for name, broker in named.items()]
    assert _found({"s": "b0", "t": "b1"}, _bridge("over", "s", "t"), *queues) == found


@pytest.mark.parametrize("drained", ["b0", "b1"])
def test_nothing_goes_from_or_to_a_broker_that_is_being_emptied(drained: str) -> None:
    assert _found({"s": "b0", "t": "b1"}, _bridge("over", "s", "t"), drains=(drained,)) == {}


def test_nothing_goes_to_a_broker_that_is_away_or_for_a_bridge_from_a_pattern() -> None:
    assert _found({"s": "b9", "t": "b1"}, _bridge("over", "s", "t")) == {}
    assert _found({"t": "b0", "u": "b1"}, _bridge("over", "all.>", "t", "u")) == {}
