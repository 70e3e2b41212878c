"""What a name leads to, and which names cannot go together."""

import pytest
from sterna_broker.configuration import checks, lookups
from sterna_broker.configuration.lookups import FoundDestination
from sterna_broker.configuration.objects import Entry, ObjectSet
from sterna_resources import read_text
from sterna_resources.connection_factory import FACTORIES_MAX, ConnectionFactory

from tests.running import manifest


def objects(*documents: str) -> ObjectSet:
    return ObjectSet.of(Entry(one, "folder") for one in read_text("---\n".join(documents), "f.yaml"))


def factory(name: str, spec: str = "") -> str:
    return manifest("ConnectionFactory", name, f"url: 'sterna://a'{spec and ', ' + spec}")


LEADS = manifest("Bridge", "b", "source: {topic: news}, targets: [{queue: led}]")


def found(given: ObjectSet, name: str) -> list[str]:
    """What a name leads to, in words."""
    return [
        f"factory {one.subject}" if isinstance(one, ConnectionFactory) else f"{one.kind} {one.name}"
        for one in lookups.find(given, name)
    ]


@pytest.mark.covers("EMS-CLI-B15")
def test_a_thing_is_found_by_its_name_and_by_each_alias() -> None:
    given = objects(
        factory("billing", "name: Billing, aliases: [Old, java:comp/env/Billing]"),
        manifest("Queue", "orders", "name: orders.in, aliases: [OrdersIn]"),
        manifest("Topic", "prices", "aliases: [Prices]"),
    )
    for name in ("Billing", "Old", "java:comp/env/Billing"):
        assert found(given, name) == ["factory Billing"]
    for name in ("orders.in", "OrdersIn"):
        assert found(given, name) == ["queue orders.in"]
    for name in ("prices", "Prices"):
        assert found(given, name) == ["topic prices"]
    for name in ("billing", "orders", "other"):
        assert found(given, name) == []


def test_own_names_of_several_kinds_may_meet() -> None:
    given = objects(factory("a"), manifest("Queue", "a"), manifest("Topic", "a"))
    assert not list(checks.problems(given, lambda _: None))
    assert found(given, "a") == ["factory a", "queue a", "topic a"]


def test_what_patterns_allow_is_not_found_and_where_a_bridge_leads_is() -> None:
    bridge = manifest("Bridge", "b", "source: {topic: news.a}, targets: [{queue: kept}]")
    given = objects(manifest("Topic", "any", "name: news.>"), bridge)
    assert found(given, "news.a") == []
    assert found(given, "news.>") == []
    assert lookups.find(given, "kept") == [FoundDestination("queue", "kept")]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (
            factory("a", "aliases: [X]"),
            factory("b", "aliases: [Y, X]"),
            "spec.aliases[1]: 'X' is an alias of the ConnectionFactory a at",
        ),
        (
            factory("a", "aliases: [X]"),
            manifest("Queue", "q", "aliases: [X]"),
            "spec.aliases[0]: 'X' is an alias of the ConnectionFactory a at",
        ),
        (
            manifest("Queue", "q"),
            factory("a", "aliases: [q]"),
            "spec.aliases[0]: 'q' is the name of the Queue q at",
        ),
        (
            factory("a", "aliases: [orders]"),
            manifest("Topic", "t", "name: orders"),
            "spec.name: 'orders' is an alias of the ConnectionFactory a at",
        ),
        (
            factory("a", "aliases: [led]"),
            LEADS,
            "spec.targets[0]: 'led' is an alias of the ConnectionFactory a at",
        ),
        (
            LEADS,
            factory("a", "aliases: [led]"),
            "spec.aliases[0]: 'led' is a target of the Bridge b at",
        ),
        (factory("a", "name: X"), factory("b", "name: X"), "spec.name: the connection factory 'X' is described at"),
    ],
)
def test_an_alias_that_is_taken_is_refused_by_name_and_of_what_came_later(first: str, second: str, said: str) -> None:
    (problem,) = checks.problems(objects(first, second), lambda _: None)
    assert said in str(problem)
    # The second document stands below the first one's four lines.
    assert problem.place.line > 5


def test_there_are_only_so_many_factories() -> None:
    given = objects(*(factory(f"f{number}") for number in range(FACTORIES_MAX + 1)))
    (problem,) = checks.problems(given, lambda _: None)
    assert "there may be 1,000 connection factories, and this is one more" in str(problem)


def test_of_a_name_that_two_have_the_younger_loses_that_alone() -> None:
    given = objects(
        factory("a", "aliases: [X, orders, led]"),
        manifest("Queue", "b", "aliases: [X, Y]"),
        manifest("Topic", "c", "aliases: [b, Z]"),
        manifest("Queue", "orders"),
        LEADS,
    )
    kept, wrong = lookups.without_taken(given)
    assert list(kept.entries) == list(given.entries)
    assert {key: len(problems) for key, problems in wrong.items()} == {
        ("Queue", "b"): 1,
        ("Topic", "c"): 1,
        ("Queue", "orders"): 1,
        ("Bridge", "b"): 1,
    }
    assert [found(kept, name) for name in ("X", "Y", "Z")] == [["factory a"], ["queue b"], ["topic c"]]
    assert found(kept, "b") == ["queue b"]
    # By its kind, what is called so is found all the same.
    assert found(kept, "orders") == ["factory a", "queue orders"]
    assert found(kept, "led") == ["factory a", "queue led"]
