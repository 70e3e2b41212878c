"""The judge is judged: what was told and does not hold is found, and no more is excused than was reported."""

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.soak import damage
from tests.soak.damage import Report, do_damage, reported
from tests.soak.ledger import Ledger

_QUEUES = ("plain", "fleeting", "in", "out", "copies", "again", "last", "undelivered", "durable")


def stored(**queues: list[str]) -> dict[str, list[str]]:
    """What queues hold; those that are not named are empty."""
    return {name: queues.get(name, []) for name in _QUEUES}


def ledger() -> Ledger:
    """Of messages of which some were acknowledged, asked for or answered, and one refused; a move; last values."""
    return Ledger(
        sent={"p1", "p2", "p3", "p4", "p5", "m1", "m2", "m3", "t1", "r1", "r2", "v1", "v2"},
        confirmed={"p1", "p2", "p3", "m1", "m2", "m3", "t1", "r1"},
        refused={"p5"},
        acknowledging={"p2", "p3", "v2"},
        acknowledged={"p3", "v2"},
        moves=[(("m1", "m2"), True)],
        last_confirmed=7,
        last_sent=8,
    )


def right(**found: list[str]) -> dict[str, list[str]]:
    """What holds, with these queues otherwise."""
    whole = stored(plain=["p1"], out=["m1", "m2"], copies=["t1"], durable=["t1"], again=["r1"], last=["7"])
    return whole | {"in": ["m3"]} | found


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"plain": ["p1", "p2"]},
        {"plain": ["p1", "p2", "p4"]},
        {"again": ["r1", "r2"]},
        {"fleeting": ["v1"]},
        {"last": ["8"]},
        {"plain": [], "undelivered": ["p1"]},
        {"in": [], "undelivered": ["m3"]},
        {"out": ["m2"], "undelivered": ["m1"]},
        {"last": [], "undelivered": ["7"]},
    ],
)
def test_what_is_in_doubt_may_be_there_or_not_and_what_was_put_aside_is_there(found: dict[str, list[str]]) -> None:
    assert ledger().judge(right(**found)) == []


WRONG = [
    ({"plain": ["p2"]}, "plain: confirmed and lost"),
    ({"plain": ["p1", "p1"]}, "plain: there twice"),
    ({"plain": ["p1", "p3"]}, "plain: there although it was acknowledged"),
    ({"plain": ["p1", "p5"]}, "plain: there although it was refused"),
    ({"plain": ["p1", "p9"]}, "plain: there and never sent"),
    ({"again": ["r1", "r1"]}, "again: there twice"),
    ({"again": []}, "again: confirmed and lost"),
    ({"copies": []}, "copies: confirmed and lost"),
    ({"durable": []}, "durable: confirmed and lost"),
    ({"durable": [], "gone": ["reader"]}, "gone: 1"),
    ({"fleeting": ["v1", "v1"]}, "fleeting: there twice"),
    ({"fleeting": ["v2"]}, "fleeting: there although it was acknowledged"),
    ({"in": []}, "in/out: confirmed and lost"),
    ({"in": ["m3", "m1"]}, "in/out: there twice"),
    ({"in": ["m3", "m3"]}, "in: there twice"),
    ({"in": ["m3", "m1", "m2"], "out": []}, "in/out: committed and not moved"),
    ({"in": ["m3", "m1"], "out": ["m2"]}, "in/out: half of a transaction"),
    ({"last": []}, "last: empty"),
    ({"last": ["6"]}, "last: older than what was confirmed"),
    ({"last": ["7", "8"]}, "last: holds more than one"),
    ({"last": ["9"]}, "last: never sent"),
]


@pytest.mark.parametrize(("found", "fault"), WRONG)
def test_what_was_told_and_does_not_hold_is_found(found: dict[str, list[str]], fault: str) -> None:
    faults = ledger().judge(right(**found))
    assert any(one.startswith(fault) for one in faults), faults


@pytest.mark.parametrize("found", [found for found, fault in WRONG if "never sent" in fault or "refused" in fault])
def test_no_reported_loss_explains_what_was_never_sent_or_refused(found: dict[str, list[str]]) -> None:
    assert ledger().judge(right(**found), None)


def test_what_comes_again_has_its_flag() -> None:
    told = ledger()
    told.receive("p1", flagged=False)
    told.receive("p1", flagged=True)
    assert told.judge(right()) == []
    told.receive("p1", flagged=False)
    assert told.judge(right()) == ["comes again without its flag: 1, the first p1"]
    assert told.judge(right(), None) == ["comes again without its flag: 1, the first p1"]


@pytest.mark.parametrize("key", ["p3", "m1"])
def test_what_was_ended_does_not_come_any_more(key: str) -> None:
    told = ledger()
    told.settle()
    told.receive(key, flagged=True)
    assert told.judge(right()) == [f"comes after it was acknowledged or moved: 1, the first {key}"]


def test_no_more_is_excused_than_was_reported() -> None:
    found = right(plain=[], again=[])
    assert len(ledger().judge(found, 0)) == 2
    assert ledger().judge(found, 1)[0].startswith("1 records were reported as lost: plain: confirmed and lost")
    assert ledger().judge(found, 2) == []
    assert ledger().judge(found, None) == []


def test_a_loss_is_reported_where_it_is() -> None:
    report = Report(2, [(100, 200), (300, 301)])
    positions = {"p1": {150}, "p2": {300}, "p3": {200}, "p4": {50, 199}}
    assert report.outside({"p1", "p2", "p3", "p4", "p5"}, positions) == ["p3", "p5"]


class TellsLater:
    """A broker that has met a damaged place: `/metrics` counts it at once, the log tells of it when it is its turn."""

    def __init__(self, *logs: str, status: int | None = None) -> None:
        self._logs = list(logs)
        self.ready: dict[str, Any] = {"recovery": {}}
        self.process = SimpleNamespace(poll=lambda: status)

    @property
    def stderr(self) -> str:
        return self._logs.pop(0) if len(self._logs) > 1 else self._logs[0]


_PLACE = json.dumps({"event": "damaged_place_found", "position": 7}) + "\n"


def test_a_report_waits_for_the_log_to_tell_what_the_broker_has_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "_places_met", lambda _: 1)
    broker: Any = TellsLater("", _PLACE[:10], _PLACE[:-1], _PLACE)
    assert reported(broker) == Report(1, [(7, 8)])


def test_a_broker_that_keeps_damage_from_its_log_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "_places_met", lambda _: 2)
    monkeypatch.setattr(damage, "_TELLS_S", 0.0)
    broker: Any = TellsLater(_PLACE)
    with pytest.raises(AssertionError, match="a word of 2 damaged places"):
        reported(broker)
    ended: Any = TellsLater(_PLACE, status=1)
    assert reported(ended) == Report(1, [(7, 8)])


@pytest.mark.parametrize("how", ["flip", "cut", "zero", "remove", "swap", "older"])
def test_damage_changes_what_the_folder_holds(tmp_path: Path, how: str) -> None:
    folder, older = tmp_path / "log", tmp_path / "older"
    for place, byte in ((folder, b"\x01"), (older, b"\x02")):
        place.mkdir()
        for number in (1, 2):
            (place / f"{number}.segment").write_bytes(byte * 4096 * 4 + bytes([number]) * 4096)
        (place / "lock").touch()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert do_damage(folder, older, how, random.Random(how))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} != before
    assert not (folder / "third").exists()
