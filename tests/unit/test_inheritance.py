"""What holds for a destination: its own properties and what wildcard entries hand on."""

from typing import Any

import pytest
from sterna_broker.configuration.compiling import rows
from sterna_broker.configuration.inheritance import effective
from sterna_broker.configuration.objects import Entry, ObjectSet
from sterna_broker.configuration.patterns import covers, matches, overlap
from sterna_resources import read_text


def holds(own: dict[str, Any], *parents: dict[str, Any], kind: Any = "queue") -> dict[str, Any]:
    return effective(kind, own, [(f"p{number}", entry) for number, entry in enumerate(parents)]).values


def objects(*entries: str) -> ObjectSet:
    """A set from short lines: `Queue a.> maxMessages=3`."""
    documents = []
    for number, entry in enumerate(entries):
        kind, name, *properties = entry.split()
        spec = ", ".join(f"{key}: {value}" for key, value in (item.split("=") for item in properties))
        documents.append(
            f"apiVersion: sterna.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: o{number}}}\n"
            f"spec: {{name: '{name}'{', ' + spec if spec else ''}}}\n"
        )
    return ObjectSet.of(Entry(manifest, "folder") for manifest in read_text("---\n".join(documents), "test"))


@pytest.mark.covers("EMS-DEST-A42")
@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        (">", "foo", True),
        (">", "foo.a.b", True),
        ("foo.>", "foo.bar", True),
        ("foo.>", "foo.a.b", True),
        ("foo.>", "foo", False),
        ("foo.>", "food.a", False),
        ("foo.*", "foo.bar", True),
        ("foo.*", "foo.a.b", False),
        ("foo.*.bar", "foo.x.bar", True),
        ("foo.*.bar", "foo.x.y.bar", False),
        ("*.bar", "foo.bar", True),
        ("*.>", "foo", False),
        ("foo", "foo", True),
        ("foo", "foo.bar", False),
    ],
)
def test_wildcards_match_whole_elements(pattern: str, name: str, expected: bool) -> None:
    assert matches(pattern, name) is expected


@pytest.mark.parametrize(
    ("one", "other", "covering", "overlapping"),
    [
        ("foo.>", "foo.*", True, True),
        ("foo.*", "foo.>", False, True),
        ("*.>", ">", False, True),
        (">", "*.a", True, True),
        ("a.*", "*.b", False, True),
        ("a.*", "b.*", False, False),
        ("a.>", "a", False, False),
        ("a.*.c", "a.>", False, True),
        ("a", "a.b", False, False),
    ],
)
def test_patterns_cover_and_overlap(one: str, other: str, covering: bool, overlapping: bool) -> None:
    assert covers(one, other) is covering
    assert overlap(one, other) is overlapping
    assert overlap(other, one) is overlapping


@pytest.mark.covers("EMS-DEST-A46")
def test_a_name_may_be_created_only_where_some_wildcard_entry_matches() -> None:
    some = objects("Queue foo.>", "Queue bar.*", "Queue x.*.z", "Queue static", "Topic news.*")
    for name in ("foo.a", "foo.a.b", "bar.a", "x.y.z", "static"):
        assert some.allows("queue", name), name
    for name in ("foo", "bar.a.b", "x.z", "other", "news.a"):
        assert not some.allows("queue", name), name
    assert some.allows("topic", "news.a")
    assert objects("Queue >").allows("queue", "anything.at.all")


@pytest.mark.covers("EMS-DEST-A47")
def test_everything_is_inherited_and_adds_to_what_the_child_has() -> None:
    some = objects("Queue a.> maxMessages=10 exclusive=true", "Queue a.* maxRedelivery=4", "Queue a.b maxBytes=7")
    found = some.effective("queue", "a.b")
    assert found.values["maxMessages"] == 10
    assert found.values["maxRedelivery"] == 4
    assert found.values["maxBytes"] == 7
    assert found.values["exclusive"] is True
    assert found.sources == {
        "expirationMs": "default",
        "maxMessages": "a.>",
        "maxBytes": "own",
        "flowControlBytes": "default",
        "overflowPolicy": "default",
        "prefetch": "default",
        "maxRedelivery": "a.*",
        "redeliveryDelayMs": "default",
        "deadLetterQueue": "default",
        "exclusive": "a.>",
        "senderName": "default",
        "senderNameEnforced": "default",
        "secure": "default",
        "store": "default",
    }
    # A dynamic one inherits at once, and a topic nothing of queues.
    assert some.effective("queue", "a.new").values["maxMessages"] == 10
    assert some.effective("topic", "a.b").values["maxMessages"] == 0


@pytest.mark.covers("EMS-DEST-A47")
@pytest.mark.parametrize(
    "name", ["maxMessages", "maxBytes", "flowControlBytes", "maxRedelivery", "expirationMs", "redeliveryDelayMs"]
)
def test_of_several_parents_the_smallest_limit_counts_unless_the_child_says_otherwise(name: str) -> None:
    assert holds({}, {name: 30}, {name: 20}, {name: 50})[name] == 20
    assert holds({name: 90}, {name: 30}, {name: 20})[name] == 90
    # 0 is no limit, so it is not the smallest.
    assert holds({}, {name: 0}, {name: 20})[name] == 20
    assert holds({}, {name: 0})[name] == 0
    assert holds({name: 0}, {name: 20})[name] == 0


@pytest.mark.covers("EMS-DEST-A47")
@pytest.mark.parametrize("flag", ["exclusive", "senderName", "senderNameEnforced", "secure"])
def test_a_flag_cannot_be_taken_away_in_the_child(flag: str) -> None:
    assert holds({flag: False}, {flag: True})[flag] is True
    assert holds({flag: True})[flag] is True
    assert holds({flag: False}, {flag: False})[flag] is False


@pytest.mark.covers("EMS-DEST-A25")
def test_overflow_policies_rank_reject_before_discard_before_default() -> None:
    policy = "overflowPolicy"
    assert holds({}, {policy: "discardOld"}, {policy: "rejectIncoming"})[policy] == "rejectIncoming"
    assert holds({}, {policy: "default"}, {policy: "discardOld"})[policy] == "discardOld"
    assert holds({policy: "discardOld"}, {policy: "rejectIncoming"})[policy] == "discardOld"
    assert holds({policy: "default"}, {policy: "rejectIncoming"})[policy] == "rejectIncoming"
    assert holds({})[policy] == "default"


@pytest.mark.covers("EMS-DEST-A30")
def test_prefetch_takes_the_largest_and_none_only_where_nobody_has_a_number() -> None:
    assert holds({}, {"prefetch": 3}, {"prefetch": 9}, {"prefetch": "none"})["prefetch"] == 9
    assert holds({}, {"prefetch": "none"}, {"prefetch": 0})["prefetch"] == 0
    assert holds({"prefetch": 0}, {"prefetch": 7})["prefetch"] == 7
    assert holds({"prefetch": "none"}, {"prefetch": 7})["prefetch"] == 0
    assert holds({"prefetch": 2}, {"prefetch": 7})["prefetch"] == 2
    assert holds({})["prefetch"] == 5
    assert holds({}, kind="topic")["prefetch"] == 64


@pytest.mark.covers("EMS-DEST-A40")
def test_the_temporary_settings_neither_inherit_nor_hand_on() -> None:
    some = objects("Queue > maxMessages=3", "Queue TMP.> maxBytes=9")
    assert some.effective("queue", "TMP.>").values["maxMessages"] == 0
    assert some.effective("queue", "a").values["maxBytes"] == 0
    assert not objects("Queue TMP.>").allows("queue", "TMP.a")


@pytest.mark.covers("EMS-DEST-A39")
def test_temporary_destinations_have_what_the_temporary_settings_say_and_nothing_else() -> None:
    some = objects("Queue > maxBytes=3", "Queue TMP.> maxMessages=9")
    explained = some.effective("queue", "$TMP$.b.1").explained()
    assert explained["maxMessages"] == {"value": 9, "from": "TMP.>"}
    assert explained["maxBytes"] == {"value": 0, "from": "default"}
    # They let nobody have such a name.
    assert not some.allows("queue", "$TMP$.b.1")
    assert some.effective("topic", "$TMP$.b.1").values["maxMessages"] == 0


@pytest.mark.parametrize("documents", [(), ("Queue TMP.> maxMessages=9",)])
def test_the_engine_is_always_told_what_temporary_destinations_get(documents: tuple[str, ...]) -> None:
    # Else it would go on with what a manifest said that is gone.
    given = {row["kind"]: row["maxMessages"] for row in rows(objects(*documents))["temporaries"]}
    assert given == {"queue": 9 if documents else 0, "topic": 0}


def test_a_wildcard_entry_inherits_from_wider_ones() -> None:
    some = objects("Queue > maxMessages=3", "Queue a.* maxBytes=9")
    assert some.effective("queue", "a.*").explained()["maxMessages"] == {"value": 3, "from": ">"}
    assert some.effective("queue", ">").values["maxBytes"] == 0


def test_the_brokers_own_destinations_inherit_nothing() -> None:
    assert objects("Queue > maxMessages=3").effective("queue", "$sys.undelivered").values["maxMessages"] == 0


def test_the_dead_letter_queue_is_inherited_the_first_by_name() -> None:
    assert holds({})["deadLetterQueue"] == ""
    assert holds({}, {"deadLetterQueue": "b"}, {"deadLetterQueue": "a"}, {})["deadLetterQueue"] == "a"
    assert holds({"deadLetterQueue": "c"}, {"deadLetterQueue": "a"})["deadLetterQueue"] == "c"
    some = objects("Queue a.> deadLetterQueue=dead")
    assert "deadLetterQueue" not in some.effective("topic", "a.b").values
