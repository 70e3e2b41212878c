"""Which part of much is taken: repeatable, another with another seed, and with so many seeds everything."""

import random

import pytest

from tests.support.seeds import is_complete, is_slow, seed, share

MANY = [f"write {number}" for number in range(200)]


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STERNA_ALL", raising=False)
    monkeypatch.delenv("STERNA_SLOW", raising=False)
    monkeypatch.setenv("SEED", "7")


def test_the_same_seed_takes_the_same_whatever_the_order_and_whatever_else_there_is() -> None:
    taken = share(MANY, 4, "story")
    shuffled = [*MANY, "another"]
    random.Random(1).shuffle(shuffled)
    assert set(share(shuffled, 4, "story")) - {"another"} == set(taken)
    assert [item for item in MANY if item in taken] == taken


def test_so_many_seeds_in_a_row_take_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    for number in range(100, 104):
        monkeypatch.setenv("SEED", str(number))
        part = share(MANY, 4, "story")
        assert 30 <= len(part) <= 70
        taken += part
    assert sorted(taken) == sorted(MANY)


def test_a_slow_machine_takes_half_and_twice_as_many_seeds_take_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STERNA_SLOW", "1")
    taken = []
    for number in range(100, 108):
        monkeypatch.setenv("SEED", str(number))
        taken += share(MANY, 4, "story")
    assert sorted(taken) == sorted(MANY)
    monkeypatch.setenv("STERNA_ALL", "1")
    assert share(MANY, 4, "story") == MANY
    assert not is_slow()


def test_parts_differ_by_name() -> None:
    assert share(MANY, 4, "story") != share(MANY, 4, "other")


@pytest.mark.parametrize("number", range(8))
def test_of_few_at_least_one_is_taken_and_of_none_none(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setenv("SEED", str(number))
    assert len(share(MANY[:2], 8, "few")) in (1, 2)
    assert share([], 8, "none") == []


def test_everything_is_taken_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_complete()
    monkeypatch.setenv("STERNA_ALL", "1")
    assert is_complete()
    assert share(MANY, 4, "story") == MANY


@pytest.mark.parametrize(("text", "number"), [("", 0), ("0", 0), ("12", 12), ("0xff", 255)])
def test_the_seed_is_a_number(monkeypatch: pytest.MonkeyPatch, text: str, number: int) -> None:
    monkeypatch.setenv("SEED", text)
    assert seed() == number


def test_a_seed_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED", "many")
    with pytest.raises(ValueError, match="SEED=many"):
        seed()
