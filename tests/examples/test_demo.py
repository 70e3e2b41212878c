"""The demo as `make demo` runs it, with the first flights only: a real broker, killed with -9 on the way."""

import json
from pathlib import Path

import pytest

from examples.flights import demo
from examples.flights.tally import Tally

pytestmark = pytest.mark.usefixtures("tier_broker")


@pytest.mark.timeout(240)
@pytest.mark.slow_callbacks(2_000)
@pytest.mark.covers("EMS-DEST-A02", "EMS-DEST-A23", "EMS-DEST-A48", "EMS-DEST-A52", "EMS-MSG-A08", "EMS-MSG-A20")
async def test_every_flight_is_accounted_for_across_the_crash(capsys: pytest.CaptureFixture[str]) -> None:
    code = await demo.main(limit=4_000)
    said = capsys.readouterr().out
    assert code == 0, said
    assert "kill -9" in said
    assert "all flights are accounted for" in said


@pytest.mark.timeout(240)
@pytest.mark.slow_callbacks(2_000)
async def test_a_flight_that_never_arrived_fails_the_demo(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Tally.delivered

    def forgetful(self: Tally, index: int, *, flagged: bool, accept: bool = True) -> None:
        if index != 42:
            counted(self, index, flagged=flagged, accept=accept)

    monkeypatch.setattr(Tally, "delivered", forgetful)
    assert await demo.main(limit=1_000) == 1
    assert "FAILED" in capsys.readouterr().out


@pytest.mark.timeout(600)
@pytest.mark.slow_callbacks(2_000)
@pytest.mark.usefixtures("tier_spark")
async def test_the_audits_name_the_message_that_the_broker_loses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As with AUDIT=1, on a broker that confirms a message and keeps nothing of it."""
    monkeypatch.setenv("STERNA_PLANTED_FAULT", "lose-message:300")
    monkeypatch.setenv("STERNA_PLANTED_TOLD", str(tmp_path / "victim"))
    monkeypatch.setattr(demo, "_STALLED_S", 2.0)
    assert await demo.main(limit=1_000, audit=tmp_path / "audit") == 1
    said = capsys.readouterr().out
    assert "verdict: violated" in said
    _, number = (tmp_path / "victim").read_text().split()
    found = json.loads((tmp_path / "audit" / "report" / "findings.json").read_text())
    wrong = [one for audit in found["audits"] for one in audit["findings"] if one["verdict"] == "violated"]
    named = {(one["what"], one["message"].rpartition(":")[2]) for one in wrong if one["message"]}
    assert named == {("not-stored", number)}, wrong
