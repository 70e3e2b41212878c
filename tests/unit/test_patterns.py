"""Which patterns match a name, found among many."""

import itertools

import pytest
from sterna_broker.cluster.homes import Homes
from sterna_broker.cluster.view import Stored, View
from sterna_broker.configuration import patterns as patterns_module
from sterna_broker.configuration.patterns import PatternIndex, matches
from sterna_etcd import HomeKey, Layout
from sterna_etcd.records import HomeRecord

_ELEMENTS = ("a", "b", "*", ">")


def test_the_index_finds_what_matches_one_by_one_find() -> None:
    patterns = [".".join(one) for length in (1, 2, 3) for one in itertools.product(_ELEMENTS, repeat=length)]
    index = PatternIndex((pattern, number) for number, pattern in enumerate(patterns))
    # Names that administrators ask about may be patterns themselves.
    for name in [
        ".".join(one) for length in (1, 2, 3, 4) for one in itertools.product((*_ELEMENTS, "c"), repeat=length)
    ]:
        found = sorted((pattern, number) for number, pattern in enumerate(patterns) if matches(pattern, name))
        assert sorted(index.matching(name)) == found, name


def test_whether_topics_are_torn_from_many_patterns_takes_no_comparison_of_all_with_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = View(Layout("c1"))
    for number in range(1_000):
        view.homes[HomeKey("pattern", f"app.{number}.>")] = Stored(HomeRecord(broker="b0"), 1, 1)
    topics = [HomeKey("topic", f"app.{number}.x") for number in range(500, 1_500)]
    homes = Homes(view, None, None, "b1")  # type: ignore[arg-type]
    compared: list[str] = []
    plain = patterns_module._matches

    def counted(pattern: list[str], name: list[str]) -> bool:
        compared.append(name[0])
        return plain(pattern, name)

    monkeypatch.setattr(patterns_module, "_matches", counted)
    assert sum(homes.is_torn(topic) for topic in topics) == 500
    # One by one it is a million.
    assert len(compared) <= 2 * len(topics)
