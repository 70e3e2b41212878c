"""Where names are placed that have to live together, and what cannot have one home."""

from typing import Any

import pytest
from sterna_broker.cluster import placement
from sterna_broker.cluster.examined import entry_of
from sterna_broker.cluster.view import Stored, View
from sterna_broker.configuration.objects import ObjectSet
from sterna_etcd import Batch, Event, HomeKey, Layout
from sterna_etcd.records import BrokerRecord, HomeRecord
from sterna_resources.reading import from_document

from tests.cluster.conftest import document

_LIVES = BrokerRecord(addresses=["sterna://b:7222"], version="1", incarnation="i", started_ms=1)
_DURABLE = document("DurableSubscription", "all", topic="app.*", clientId="me")


def view(**homes: str) -> View:
    """Two brokers, and homes: `topic_x` is the topic app.x, `pattern` is app.*."""
    made = View(Layout("c1"), brokers={name: Stored(_LIVES, 1, 1) for name in ("b0", "b1")})
    made.addresses = dict.fromkeys(made.brokers, _LIVES.addresses)
    for name, broker in homes.items():
        key = (
            HomeKey("pattern", "app.*") if name == "pattern" else HomeKey("topic", f"app.{name.removeprefix('topic_')}")
        )
        made.homes[key] = Stored(HomeRecord(broker=broker), 1, 1)
    return made


def objects(*documents: dict[str, Any]) -> ObjectSet:
    """These, as the cluster's configuration."""
    return ObjectSet.of([entry_of(from_document(one, "test"), "admin", "test") for one in documents])


def test_topics_are_placed_together_with_the_durable_subscription_that_matches_them() -> None:
    topics = [document("Topic", f"app.{number}") for number in range(5)]
    others = [document("Topic", f"other.{number}") for number in range(5)]
    plan = placement.plan(view(), objects(*others, *topics, _DURABLE))
    together = {plan.homes[HomeKey("topic", f"app.{number}")] for number in range(5)}
    assert together == {plan.homes[HomeKey("pattern", "app.*")]}
    assert {plan.homes[HomeKey("topic", f"other.{number}")] for number in range(5)} == {"b0", "b1"}


def test_many_topics_and_patterns_are_grouped_in_no_time() -> None:
    topics = [document("Topic", f"app.t{number}") for number in range(3_000)]
    patterns = ["app.*", "app.>", ">", "*.*"]
    durables = [
        document("DurableSubscription", f"d{number}", topic=pattern, clientId="me")
        for number, pattern in enumerate(patterns)
    ]
    groups = placement.Groups(objects(*topics, *durables))
    group = groups.of(HomeKey("topic", "app.t7"))
    assert len(group) == len(topics) + len(patterns)
    # One set for all of them: nothing is copied for each.
    assert groups.of(HomeKey("pattern", ">")) is group


def test_whatever_would_be_on_two_brokers_gets_no_home_and_is_told_why() -> None:
    apart = view(topic_x="b0", topic_y="b1")
    plan = placement.plan(apart, objects(_DURABLE, document("Topic", "app.z")))
    # A new topic that matches may be anywhere, since nobody subscribes by the pattern.
    assert plan.homes.keys() == {HomeKey("topic", "app.z")}
    durable, none = from_document(_DURABLE, "test"), objects()
    assert placement.torn(apart, none, durable) == "'app.*' cannot have a home: what it matches lives on b0, b1"
    assert placement.torn(view(topic_x="b0"), none, durable) == ""


@pytest.mark.parametrize("named", ["b0", "b1", None])
def test_a_topic_is_where_its_subscribers_are_or_says_why_it_is_nowhere(named: str | None) -> None:
    topic = document("Topic", "app.x", **({"broker": named} if named else {}))
    subscribed = view(pattern="b1")
    plan = placement.plan(subscribed, objects(topic))
    words = placement.torn(subscribed, objects(topic), from_document(topic, "test"))
    # A durable subscription to it is told the same.
    durable = from_document(document("DurableSubscription", "one", topic="app.x", clientId="me"), "test")
    assert placement.torn(subscribed, objects(topic), durable) == words
    if named == "b0":
        assert plan.homes == {}
        assert words == (
            "'app.x' cannot have a home: who subscribes to patterns that match it is on b1, and spec.broker names b0"
        )
    else:
        assert (plan.homes, words) == ({HomeKey("topic", "app.x"): "b1"}, "")


def test_a_bridge_to_a_topic_that_has_to_be_elsewhere_says_so() -> None:
    bridge = document("Bridge", "copy", source={"topic": "other"}, targets=[{"topic": "app.x"}])
    found = view(pattern="b1")
    found.homes[HomeKey("topic", "other")] = Stored(HomeRecord(broker="b0"), 1, 1)
    read: Any = from_document(bridge, "test")
    where = "it leads over several brokers: topic 'other' on b0, topic 'app.x' on b1; delete the bridge and"
    assert placement.spanning(found, read).startswith(where)


def test_a_pattern_is_known_as_soon_as_it_is_claimed_and_until_it_is_given_up() -> None:
    found = view()
    topic, pattern = HomeKey("topic", "app.x"), HomeKey("pattern", "app.*")
    assert placement.bound_to(found, topic) == set()
    found.note_home(pattern, HomeRecord(broker="b1"), 2)
    assert placement.bound_to(found, topic) == {"b1"}
    found.note_home(pattern, None, 3)
    assert placement.bound_to(found, topic) == set()


def test_a_home_that_was_taken_by_ourselves_outlasts_what_the_watch_tells_late_of_its_removal() -> None:
    found = view(topic_x="b0")
    topic = HomeKey("topic", "app.x")
    found.note_home(topic, HomeRecord(broker="b1"), 5)
    key = found.layout.home(topic.kind, topic.name)
    found.take(Batch(4, [Event(key, None, 4)], is_listing=False))
    assert found.homes[topic].record == HomeRecord(broker="b1")
    found.take(Batch(6, [Event(key, None, 6)], is_listing=False))
    assert topic not in found.homes
