"""A change of the configuration reaches the engine as what is different, and as everything when that is in doubt."""

import json
from typing import Any

import pytest
from sterna_broker.configuration.handover import Handover
from sterna_broker.configuration.objects import Entry, ObjectSet
from sterna_resources.reading import examine_text


def objects(*specs: tuple[str, str, str]) -> ObjectSet:
    text = "---\n".join(
        f"apiVersion: sterna.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
        for kind, name, spec in specs
    )
    examined = examine_text(text, "test")
    assert not [problem for one in examined for problem in one.problems]
    return ObjectSet.of(Entry(one.manifest, "folder") for one in examined if one.manifest is not None)


class Engine:
    """Records what it is told; refuses what it is told to refuse."""

    def __init__(self) -> None:
        self.whole: list[dict[str, Any]] = []
        self.changes: list[dict[str, Any]] = []
        self.refuse: set[tuple[str, str]] = set()
        self.broken = False

    def configure(self, text: str) -> str:
        self.whole.append(json.loads(text))
        return self._answer()

    def reconfigure(self, text: str) -> str:
        if self.broken:
            raise ValueError("broken")
        self.changes.append(json.loads(text))
        return self._answer()

    def _answer(self) -> str:
        return json.dumps({"refused": [{"kind": kind, "name": name, "error": {}} for kind, name in self.refuse]})


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def handover(engine: Engine) -> Handover:
    return Handover(engine.configure, engine.reconfigure)


def give(handover: Handover, wanted: ObjectSet) -> None:
    handover.give(handover.prepare(wanted))


A, B = ("Queue", "a", "maxMessages: 1"), ("Queue", "b", "maxMessages: 2")
D = ("DurableSubscription", "d", "topic: news, clientId: me")


def test_the_first_hand_over_is_whole_and_the_next_one_what_is_different(handover: Handover, engine: Engine) -> None:
    give(handover, objects(A, B, D))
    assert [row["name"] for row in engine.whole[0]["queues"]] == ["a", "b"]
    give(handover, objects(("Queue", "a", "maxMessages: 7"), ("Queue", "c", "")))
    [changes] = engine.changes
    assert [(row["name"], row["maxMessages"]) for row in changes["queues"]] == [("a", 7), ("c", 0)]
    assert changes["removed"] == {
        "queues": [{"name": "b", "client_id": ""}],
        "durables": [{"name": "d", "client_id": "me"}],
    }
    assert not changes["inherited"]
    assert {"bridges", "stores", "topics", "durables"}.isdisjoint(changes)
    give(handover, objects(("Queue", "a", "maxMessages: 7"), ("Queue", "c", "")))
    assert engine.changes[1] == {"inherited": False, "removed": {}}


def test_wildcard_entries_and_bridges_are_told_when_they_differ(handover: Handover, engine: Engine) -> None:
    bridge = "source: {queue: a}, targets: [{queue: b}]"
    give(handover, objects(A, B, ("Bridge", "x", bridge)))
    give(handover, objects(A, B, ("Bridge", "x", bridge), ("Queue", "any", "name: 'w.>', maxMessages: 3")))
    assert engine.changes[0]["inherited"]
    assert "bridges" not in engine.changes[0]
    give(handover, objects(A, B, ("Queue", "any", "name: 'w.>', maxMessages: 3")))
    assert engine.changes[1]["bridges"] == []
    assert not engine.changes[1]["inherited"]


def test_what_was_refused_is_tried_again(handover: Handover, engine: Engine) -> None:
    give(handover, objects(A, D))
    engine.refuse = {("queue", "b"), ("durable", "d")}
    give(handover, objects(A, B))
    engine.refuse = set()
    give(handover, objects(A, B))
    assert [row["name"] for row in engine.changes[1]["queues"]] == ["b"]
    assert engine.changes[1]["removed"] == {"durables": [{"name": "d", "client_id": "me"}]}
    give(handover, objects(A, B))
    assert engine.changes[2] == {"inherited": False, "removed": {}}


def test_in_doubt_everything_is_handed_over(handover: Handover, engine: Engine) -> None:
    give(handover, objects(A))
    engine.broken = True
    with pytest.raises(ValueError, match="broken"):
        give(handover, objects(A, B))
    give(handover, objects(A, B))
    assert [row["name"] for row in engine.whole[1]["queues"]] == ["a", "b"]


def test_what_the_engine_deleted_by_itself_is_made_again_if_it_is_still_wanted(
    handover: Handover, engine: Engine
) -> None:
    give(handover, objects(A, B))
    handover.discard("queue", "a")
    prepared = handover.prepare(objects(A, B))
    # One more goes while the comparison is under way; it shows in the next one.
    handover.discard("queue", "b")
    handover.give(prepared)
    give(handover, objects(A, B))
    assert [[row["name"] for row in changes.get("queues", [])] for changes in engine.changes] == [["a"], ["b"]]
    give(handover, objects(A, B))
    assert "queues" not in engine.changes[2]


def test_whether_there_is_news_is_told_before_anything_is_given(handover: Handover, engine: Engine) -> None:
    give(handover, objects(A, B))
    assert not handover.prepare(objects(A, B)).is_news
    assert handover.prepare(objects(A)).is_news
    assert handover.prepare(objects(A, B, ("Queue", "any", "name: 'w.>'"))).is_news
    # What was refused waits for something to change; asking for the same again and again would only be refused again.
    engine.refuse = {("queue", "c")}
    give(handover, objects(A, ("Queue", "c", "")))
    assert not handover.prepare(objects(A, ("Queue", "c", ""))).is_news
    handover.discard("queue", "a")
    assert handover.prepare(objects(A, ("Queue", "c", ""))).is_news
