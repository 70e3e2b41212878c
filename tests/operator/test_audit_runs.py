"""What a run has come to, from its Job and its pods: a result, or why there is none."""

import json
from typing import Any

import pytest
from sterna_operator import schedules
from sterna_operator.conditions import parse_timestamp, timestamp
from sterna_operator.kinds import audit_result, audit_runs
from sterna_operator.kinds.audit_runs import Ended, Running
from sterna_operator.schedules import Schedule, ScheduleError

from tests.operator.audit_objects import ended, job, pod, result, violated

RUN = "nightly-29400000"
DUE_MS = 29_400_000 * 60_000


def _read(*pods: object, end: str | None = "Complete", **more: object) -> Ended | Running:
    given = {key: more.pop(key) for key in ("refused", "known_fault") if key in more}
    return audit_runs.read(
        job(RUN, scheduled_ms=DUE_MS, end=end, **more),
        pods,  # type: ignore[arg-type]
        prefix="nightly",
        **given,  # type: ignore[arg-type]
    )


def test_a_result_is_taken_as_it_was_said() -> None:
    told = violated(RUN, DUE_MS + 60_000)
    found = _read(pod(RUN, **ended(told, 8, "Error")), end="Failed", reason="PodFailurePolicy")
    assert isinstance(found, Ended)
    assert (found.verdict, found.told, found.is_good) == ("violated", told, False)
    assert found.status["counts"] == {"ok": 4, "inFlight": 1, "notProvable": 0, "violated": 2}
    assert found.status["worst"] == [
        {"audit": "conservation", "what": "lost", "object": "orders", "message": "ID:b0.7"}
    ]
    assert found.status["snapshots"] == [{"broker": "orders-broker-0", "cut": 12, "state": "new"}]
    assert found.status["scheduledAt"] == timestamp(DUE_MS)
    assert found.began_ms == DUE_MS


def test_the_pod_that_said_a_result_counts_whatever_others_did() -> None:
    found = _read(pod(RUN, 0, **ended("Killed", 137, "OOMKilled")), pod(RUN, 1, **ended(result(RUN))))
    assert isinstance(found, Ended)
    assert found.verdict == "ok"


def test_a_run_that_goes_on_has_come_to_nothing_whatever_its_pod_has_said() -> None:
    """Its Job may try again: what counts stands when that says that it is over."""
    found = _read(pod(RUN, **ended(result(RUN))), end=None)
    assert isinstance(found, Running)
    assert found.fault is None


@pytest.mark.parametrize(
    ("state", "said"),
    [
        pytest.param(ended(None, 137, "OOMKilled"), "OOMKilled, ended with status 137", id="no memory"),
        pytest.param(ended("Traceback …\nValueError: no", 1, "Error"), "ended with status 1: ValueError: no", id="log"),
        pytest.param(ended("", 0), "ended with status 0", id="silent"),
        pytest.param(ended('{"run": "x"', 1, "Error"), "it said no result", id="cut off"),
        pytest.param(ended(result("other"), 0), "it is of run 'other'", id="of another run"),
        pytest.param(ended(result(RUN, "perfect"), 0), "verdict", id="no verdict of ours"),
        pytest.param(ended("[]", 0), "it said no result", id="no object"),
        pytest.param(ended(result(RUN, counts={"violated": -1}), 0), "counts.violated", id="a count below nothing"),
        pytest.param(ended(result(RUN, ended_ms=10**16), 0), "ended_ms", id="a time that is none"),
    ],
)
def test_a_pod_without_a_result_is_a_run_that_failed_and_why(state: dict[str, Any], said: str) -> None:
    found = _read(pod(RUN, **state), end="Failed", reason="BackoffLimitExceeded", message="too often")
    assert isinstance(found, Ended)
    assert (found.verdict, found.told) == ("failed", None)
    assert said in found.status["error"]
    assert "BackoffLimitExceeded: too often" in found.status["error"]


def test_what_kept_a_pod_from_running_is_told_while_it_waits_and_when_its_time_is_over() -> None:
    waiting = pod(RUN, waiting={"reason": "ImagePullBackOff", "message": "no such image"})
    found = _read(waiting, end=None)
    assert isinstance(found, Running)
    assert found.fault == "ImagePullBackOff: no such image"
    # The Job's time is over: its controller has removed the pod, which may be told first.
    gone = _read(end=None, known_fault=found.fault)
    assert isinstance(gone, Running)
    assert gone.fault == found.fault
    over = _read(end="Failed", reason="DeadlineExceeded", message="too long", known_fault=found.fault)
    assert isinstance(over, Ended)
    assert over.status["error"] == "ImagePullBackOff: no such image; DeadlineExceeded: too long"


def test_a_run_of_which_no_pod_may_be_made_says_who_refuses_it() -> None:
    found = _read(end=None, refused="FailedCreate: exceeded quota")
    assert isinstance(found, Running)
    assert found.fault == "FailedCreate: exceeded quota"


def test_texts_and_lists_are_cut_to_what_a_status_may_hold() -> None:
    worst = [{"audit": "a" * 99, "what": "w" * 999, "object": "o" * 999, "message": "m" * 999}] * 40
    told = result(RUN, "violated", DUE_MS, worst=worst, error="e" * 9_999, report="r" * 9_999)
    found = audit_result.status(audit_result.read(told, RUN), RUN, None)
    assert len(found["worst"]) == 10
    assert {name: len(value) for name, value in found["worst"][0].items()} == {
        "audit": 64,
        "what": 128,
        "object": 512,
        "message": 512,
    }
    assert (len(found["error"]), len(found["report"])) == (1_024, 1_024)


def test_what_a_newer_program_says_besides_is_passed_over() -> None:
    told = json.dumps({**json.loads(result(RUN)), "invention": {"x": 1}})
    assert audit_result.read(told, RUN).verdict == "ok"


def test_a_run_is_known_by_its_name_and_one_begun_by_hand_was_not_due() -> None:
    assert schedules.minute_of(RUN, "nightly") == DUE_MS
    assert schedules.minute_of("by-hand", "nightly") is None
    assert schedules.minute_of("nightly-by-hand", "nightly") is None


def _at(text: str) -> int:
    return parse_timestamp(text)


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "due"),
    [
        ("0 3 * * *", "Etc/UTC", "2026-05-01T12:00:00Z", "2026-05-02T03:00:00Z"),
        ("0 3 * * *", "Europe/Zurich", "2026-07-01T00:30:00Z", "2026-07-01T01:00:00Z"),
        ("0 3 * * *", "Europe/Zurich", "2026-01-01T00:30:00Z", "2026-01-01T02:00:00Z"),
        ("0 3 * * *", "Etc/UTC", "2026-05-02T03:00:00Z", "2026-05-03T03:00:00Z"),
        ("0 3 * * MON-FRI", "Etc/UTC", "2026-05-01T12:00:00Z", "2026-05-04T03:00:00Z"),
        ("@hourly", "Etc/UTC", "2026-05-01T12:59:59Z", "2026-05-01T13:00:00Z"),
        ("*/5 * * * *", "Asia/Kolkata", "2026-05-01T12:00:01Z", "2026-05-01T12:05:00Z"),
    ],
)
def test_when_a_schedule_is_due(schedule: str, zone: str, after: str, due: str) -> None:
    assert timestamp(Schedule(schedule, zone).after(_at(after))) == due


def test_two_periods_are_counted_from_when_a_run_was_due_and_it_has_its_time() -> None:
    weekdays = Schedule("0 3 * * MON-FRI", "Etc/UTC")
    friday = _at("2026-05-01T03:00:00Z")
    assert timestamp(weekdays.overdue_at(friday, 600_000)) == "2026-05-05T03:10:00Z"


@pytest.mark.parametrize(
    ("schedule", "zone", "said"),
    [
        ("0 25 * * *", "Etc/UTC", "spec.schedule: '0 25 * * *' cannot be read"),
        ("0 3 31 2 *", "Etc/UTC", "spec.schedule: '0 3 31 2 *' "),
        ("0 3 * * *", "Europe/Nowhere", "spec.timeZone: there is no time zone 'Europe/Nowhere'"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_by_its_field(schedule: str, zone: str, said: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Schedule(schedule, zone)
    assert str(caught.value).startswith(said)
