"""What is said of an AuditJob's runs when clocks, Jobs, pods or results are not as one would like them to be."""

from dataclasses import replace
from typing import Any

import pytest
from sterna_operator.builders import audits
from sterna_operator.conditions import parse_timestamp, timestamp
from sterna_operator.kinds import audit_runs
from sterna_operator.kinds.audit_runs import Ended, Running
from sterna_operator.plans import PatchObject

from tests.operator.audit_objects import ended, job, pod, result, violated
from tests.operator.test_audit_plan import CREATED_MS, DAY_MS, SEEN, One

RUN = "nightly-29400000"
DUE_MS = 29_400_000 * 60_000
YEAR_MS = 365 * DAY_MS


def _condition(one: One, name: str) -> dict[str, str]:
    return One.as_written(one.plan(), name)


def _last(one: One) -> str:
    status = one.plan().status
    assert status is not None
    return str((status.fields["lastRun"] or {}).get("run"))


def _without(one: One, *runs: Ended) -> None:
    """Somebody removes results, of which there are no Jobs any more."""
    names = {audits.result_name(run.run) for run in runs}
    children = {key: child for key, child in one.observed.children.items() if key[1] not in names}
    results = {name: ran for name, ran in one.observed.results.items() if name not in {run.run for run in runs}}
    one.see(ended=(), children=children, results=results)


@pytest.mark.parametrize("verdict", ["violated", "failed", "ok"])
def test_the_last_run_is_the_last_one_although_somebody_removed_its_result_and_left_older_ones(verdict: str) -> None:
    one = One()
    one.settle()
    runs = one.ran(0, "ok"), one.ran(1, "not provable"), one.ran(2, verdict)
    one.see(ended=runs, now_ms=runs[2].ended_ms)
    one.settle()
    said = _condition(one, "Clean")
    _without(one, runs[2])
    planned = one.settle()
    assert _last(one) == runs[2].run
    assert _condition(one, "Clean") == said
    assert planned.announcements == (), "of older runs nothing is told again"


def test_all_results_removed_leave_what_was_said_and_the_next_run_counts() -> None:
    one = One()
    one.settle()
    runs = one.ran(0, "ok"), one.ran(1, "violated")
    one.see(ended=runs, now_ms=runs[1].ended_ms)
    one.settle()
    _without(one, *runs)
    one.settle()
    assert _condition(one, "Clean")["reason"] == "Violated"
    following = one.ran(2, "ok")
    one.see(ended=(following,), now_ms=following.ended_ms)
    one.settle()
    assert (_last(one), _condition(one, "Clean")["reason"]) == (following.run, "Ok")


def test_a_run_whose_pod_and_result_are_gone_is_still_what_it_was_found_to_be() -> None:
    """Its Job is there, and would otherwise be read as one that said nothing."""
    said = audit_runs.read(
        job(RUN, scheduled_ms=DUE_MS, end="Failed"),
        [pod(RUN, **ended(violated(RUN, DUE_MS + 60_000), 8, "Error"))],
        prefix="nightly",
    )
    assert isinstance(said, Ended)
    later = audit_runs.read(job(RUN, scheduled_ms=DUE_MS, end="Failed"), [], prefix="nightly", known=said.status)
    assert isinstance(later, Ended)
    assert later.status == said.status


def test_a_result_whose_owner_somebody_took_away_is_taken_back() -> None:
    one = One()
    ran = one.ran(0, "violated")
    one.see(ended=(ran,), now_ms=ran.ended_ms)
    one.settle()
    key = ("ConfigMap", audits.result_name(ran.run))
    kept = one.observed.children[key]
    orphan = {**kept, "metadata": {**kept["metadata"], "ownerReferences": []}}
    one.see(ended=(), children={**one.observed.children, key: orphan})
    [step] = one.plan().steps
    assert isinstance(step, PatchObject)
    assert step.patch == {"metadata": {"ownerReferences": kept["metadata"]["ownerReferences"]}}


@pytest.mark.parametrize("off_ms", [-YEAR_MS, -3_600_000, 0, 3_600_000, YEAR_MS])
def test_when_a_run_ended_goes_by_its_job_whatever_the_clock_of_its_node_says(off_ms: int) -> None:
    told = result(RUN, "ok", DUE_MS + 60_000 + off_ms)
    found = audit_runs.read(job(RUN, scheduled_ms=DUE_MS, end="Complete"), [pod(RUN, **ended(told))], prefix="nightly")
    assert isinstance(found, Ended)
    assert DUE_MS <= parse_timestamp(found.status["startedAt"]) <= found.ended_ms <= DUE_MS + 3_600_000
    assert found.told == told


def test_a_violation_is_not_hidden_by_a_run_that_was_told_while_the_clock_was_ahead() -> None:
    """The clock that Kubernetes itself goes by was a year ahead for a while, and is not any more."""
    one = One()
    one.settle()
    ahead = one.ran(365, "ok")
    one.see(ended=(ahead,), now_ms=ahead.ended_ms)
    one.settle()
    one.see(now_ms=CREATED_MS + DAY_MS)
    assert _last(one) == ahead.run
    bad = one.ran(1, "violated")
    one.see(ended=(ahead, bad), now_ms=bad.ended_ms)
    one.settle()
    assert (_last(one), _condition(one, "Clean")["reason"]) == (bad.run, "Violated")
    # Whatever becomes of the results.
    _without(one, ahead)
    one.settle()
    assert (_last(one), _condition(one, "Clean")["reason"]) == (bad.run, "Violated")


def test_no_verdict_shows_although_the_last_one_was_told_while_the_clock_was_ahead() -> None:
    one = One()
    one.settle()
    ahead = one.ran(365, "ok")
    one.see(ended=(ahead,), now_ms=ahead.ended_ms)
    one.settle()
    one.see(now_ms=CREATED_MS + 3 * DAY_MS)
    assert _condition(one, "Stale")["status"] == "True"


def test_a_clock_that_went_back_a_little_changes_nothing() -> None:
    one = One()
    one.settle()
    runs = one.ran(0, "ok"), one.ran(1, "violated")
    one.see(ended=runs, now_ms=runs[1].ended_ms)
    said = one.settle()
    one.see(now_ms=runs[1].ended_ms - 1_800_000)
    assert one.reconcile().announcements == ()
    assert _condition(one, "Clean") == One.as_written(said, "Clean")


def test_a_job_that_somebody_suspended_says_so_until_it_goes_on() -> None:
    held: dict[str, Any] = {**job(RUN), "spec": {"suspend": True}}
    found = audit_runs.read(held, [], prefix="nightly")
    assert isinstance(found, Running)
    assert "somebody has suspended it" in str(found.fault)
    after = audit_runs.read(job(RUN), [], prefix="nightly", known_fault=found.fault)
    assert isinstance(after, Running)
    assert after.fault is None


def test_runs_end_while_an_audit_job_is_paused_and_are_told_when_that_is_over() -> None:
    one = One({"paused": {"until": timestamp(CREATED_MS + 2 * DAY_MS)}})
    ran = one.ran(0, "violated")
    one.see(ended=(ran,), now_ms=ran.ended_ms)
    planned = one.plan()
    assert planned.steps == ()
    assert planned.again_s == pytest.approx((CREATED_MS + 2 * DAY_MS - ran.ended_ms) / 1000)
    one.see(now_ms=CREATED_MS + 2 * DAY_MS)
    one.settle()
    assert _condition(one, "Clean")["reason"] == "Violated"
    assert one.results == {f"{ran.run}-result"}


def test_a_cluster_that_goes_and_comes_back_holds_runs_only_meanwhile() -> None:
    one = One()
    one.settle()
    ran = one.ran(0, "violated")
    one.see(ended=(ran,), now_ms=ran.ended_ms)
    one.settle()
    whole = one.observed
    gone = replace(whole.blueprint, cluster=None, replicas=0)
    one.see(cluster=replace(SEEN, is_there=False), blueprint=gone)
    one.settle()
    held = one.cron_job["spec"]["suspend"]
    assert _condition(one, "Clean")["reason"] == "Violated"
    one.see(cluster=whole.cluster, blueprint=whole.blueprint)
    one.settle()
    assert (held, one.cron_job["spec"]["suspend"]) == (True, False)
    assert one.results == {f"{ran.run}-result"}
