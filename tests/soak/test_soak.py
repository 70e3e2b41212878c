"""A few cycles in every run, others with every commit; `make soak` runs hundreds."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.soak import damage
from tests.soak.cycles import CONFIRMED_MIN, Outcome, Soak
from tests.soak.faults import KINDS
from tests.support.forgetful_disk import Covered, ForgetfulDisk
from tests.support.seeds import seed
from tests.support.system_calls import Call, is_possible

_CYCLES = 4
pytestmark = [
    pytest.mark.skipif(not is_possible(), reason="system calls are supervised on Linux on x86-64 alone"),
    pytest.mark.slow_callbacks(5_000),
    pytest.mark.timeout(300),
]


async def outcomes(folder: Path, most: int, *kinds: str, until_faulty: bool = False) -> list[Outcome]:
    """Of so many cycles, with all faults or these; `until_faulty` ends with the first that is."""
    found: list[Outcome] = []
    soak = Soak(folder, seed(), tuple(kind for kind in KINDS if not kinds or kind.name in kinds))
    try:
        while len(found) < most and not (until_faulty and found and found[-1].faults):
            found.append(await soak.cycle())
    finally:
        await asyncio.to_thread(soak.close)
    return found


async def test_what_clients_were_told_holds_after_faults_of_process_and_disk(tier_broker: None, tmp_path: Path) -> None:
    found = await outcomes(tmp_path, _CYCLES)
    assert [outcome.faults for outcome in found] == [[]] * _CYCLES
    assert all(outcome.confirmed >= CONFIRMED_MIN for outcome in found)


@pytest.mark.parametrize("named", ["segment", "log"], ids=["segments", "names"])
async def test_a_broker_that_does_not_sync_is_found_out(
    tier_broker: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """Its syncs are answered, and cover nothing: as if they were not asked for."""
    covers = ForgetfulDisk.synced

    def covers_nothing(disk: ForgetfulDisk, call: Call) -> Covered:
        covered = covers(disk, call)
        return covered._replace(number=0) if call.path.endswith(named) else covered

    monkeypatch.setattr(ForgetfulDisk, "synced", covers_nothing)
    # A cut may come before anything is confirmed, and a disk may keep what was not synced: not ten times in a row.
    *_, last = await outcomes(tmp_path, 10, "power cut, slow disk", until_faulty=True)
    # What the store holds is less than it said, or it does not start.
    assert any("confirmed and lost" in fault or "no verdict" in fault for fault in last.faults), last


async def test_a_broker_that_lies_about_damage_is_found_out(
    tier_broker: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage, "reported", lambda _: damage.Report(0, []))
    monkeypatch.setattr(damage, "do_damage", _lose_the_first_segment)
    [outcome] = await outcomes(tmp_path, 1, "missing file")
    assert any("confirmed and lost" in fault for fault in outcome.faults), outcome
    assert any("lost where nothing is reported" in fault for fault in outcome.faults), outcome


def _lose_the_first_segment(folder: Path, *_: Any) -> str:
    (folder / "0000000000000001.segment").unlink()
    return "removed the first segment"


async def test_a_cycle_without_a_verdict_is_a_fault(
    tier_broker: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> None:
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(Soak, "_judge", fails)
    [outcome] = await outcomes(tmp_path, 1, "clean stop")
    assert outcome.faults[0].startswith("no verdict: ConnectionError: nobody answers")


async def test_each_fault_has_its_turn(tmp_path: Path) -> None:
    soak = Soak(tmp_path, seed())
    try:
        tried = []
        for _ in range(2 * len(KINDS)):
            kind = soak._next_kind()
            tried.append(kind.name)
            # One that does not come about is tried again, and holds no other up.
            soak.happened[kind.name] += kind.name != "names error"
    finally:
        soak.close()
    assert set(tried[: len(KINDS)]) == {kind.name for kind in KINDS}
    assert tried.count("names error") > 1
