"""What is decided for AuditJobs and StoreSnapshots, from data to data."""

import json
from dataclasses import replace
from typing import Any

import pytest
from sterna_operator.builders import audits, differences
from sterna_operator.builders.audits import AuditBlueprint
from sterna_operator.conditions import parse_timestamp, timestamp
from sterna_operator.keys import Key
from sterna_operator.kinds import audit_job, audit_runs, cluster_interlock, store_snapshot
from sterna_operator.kinds.audit_runs import Ended
from sterna_operator.kinds.topology import ClusterSeen
from sterna_operator.plans import ApplyObject, PatchObject, Plan, RemoveObject, RepairObject

from tests.operator import audit_objects
from tests.operator.audit_objects import ended, job, pod, result, violated

CREATED_MS = parse_timestamp("2026-05-01T00:00:00Z")
DAY_MS = 86_400_000
SEEN = ClusterSeen("MessagingCluster mq/orders")


class One:
    """An AuditJob, and what stands of it."""

    def __init__(self, spec: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None) -> None:
        resource = audit_objects.audit_job(spec)
        self.desired = audit_job.Desired(Key("AuditJob", "mq", "nightly"), "uid-1", 1, resource, CREATED_MS)
        blueprint = AuditBlueprint(resource, "mq", "uid-1", "mq", audit_objects.cluster(cluster), 2, "audit:1")
        self.observed = audit_job.Observed(CREATED_MS, SEEN, blueprint)

    def see(self, **what: Any) -> None:
        self.observed = replace(self.observed, **what)

    def plan(self) -> Plan:
        return audit_job.plan(self.desired, self.observed)

    def reconcile(self) -> Plan:
        """One round: what is planned is done."""
        made = self.plan()
        children, results = dict(self.observed.children), dict(self.observed.results)
        for step in made.steps:
            match step:
                case ApplyObject():
                    metadata = {**step.manifest["metadata"], "uid": f"uid {len(children)}", "resourceVersion": "1"}
                    key = (step.manifest["kind"], metadata["name"])
                    children[key] = {**step.manifest, "metadata": metadata}
                    if (text := (step.manifest.get("data") or {}).get(audits.STATUS_FILE)) is not None:
                        status = json.loads(text)
                        results[status["run"]] = Ended(status["run"], status)
                case RemoveObject():
                    del children[step.kind, step.name]
                    results.pop(step.name.removesuffix("-result"), None)
                case PatchObject():
                    standing = children[step.kind, step.name]
                    children[step.kind, step.name] = {**standing, "spec": {**standing["spec"], **step.patch["spec"]}}
                case RepairObject():
                    kind = step.manifest["kind"]
                    key = (kind, step.manifest["metadata"]["name"])
                    inner = "spec" if kind == "CronJob" else "data"
                    children[key] = {**children[key], inner: {**children[key][inner], **step.patch[inner]}}
        self.see(children=children, results=results)
        if made.status is not None:
            self.desired = replace(
                self.desired, status={**made.status.fields, "conditions": [self.as_written(made, "Stale")]}
            )
        return made

    def settle(self) -> Plan:
        for _ in range(5):
            if not self.reconcile().steps:
                return self.plan()
        raise AssertionError("does not settle")

    def ran(self, day: int, verdict: str = "ok") -> Ended:
        """The run of a day, ended an hour after it was due."""
        due = CREATED_MS + (day * 24 + 3) * 3_600_000
        name = f"nightly-{due // 60_000}"
        told = violated(name, due + 3_600_000) if verdict == "violated" else result(name, verdict, due + 3_600_000)
        state = ended(None, 137, "OOMKilled") if verdict == "failed" else ended(told)
        found = audit_runs.read(job(name, scheduled_ms=due, end="Complete"), [pod(name, **state)], prefix="nightly")
        assert isinstance(found, Ended)
        return found

    @property
    def cron_job(self) -> Any:
        return self.observed.children["CronJob", "nightly"]

    @property
    def results(self) -> set[str]:
        return {name for _, name in self.observed.children if name.endswith("-result")}

    @staticmethod
    def as_written(plan: Plan, name: str) -> dict[str, str]:
        assert plan.status is not None
        one = next(one for one in plan.status.conditions if one.type == name)
        return {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}


def _said(plan: Plan, name: str) -> tuple[str, str]:
    written = One.as_written(plan, name)
    return written["status"], written["reason"]


def _events(plan: Plan) -> list[str]:
    return [one.reason.name for one in plan.announcements]


def test_a_run_is_told_by_a_file_that_holds_no_secret() -> None:
    key = {"name": "keys", "key": "private.pem"}
    spec = {
        "snapshots": {"principals": "hashed", "principalsKeySecret": key, "signKeySecret": key, "rate": "20M"},
        "keys": [{"name": "keys", "key": "public.pem"}],
        "connect": {"user": "auditor", "passwordSecret": {"name": "auditor-password"}},
        "jobs": ["chain", "conservation"],
        "ledgers": "ledgers/today",
        "retention": {"snapshots": "30,90d", "results": 30},
        "spark": {"memory": "3g", "conf": {"spark.x": "1"}},
    }
    one = One(spec, {"insecure": False, "tls": {"generated": {}}, "authentication": {"enabled": True}})
    one.settle()
    text = one.observed.children["ConfigMap", "nightly-run"]["data"][audits.RUN_FILE]
    assert json.loads(text) == {
        "job": "mq/nightly",
        "cluster": "mq.orders",
        "brokers": [
            {"name": "orders-broker-0", "url": "sternas://orders-broker-0.mq.svc:7222"},
            {"name": "orders-broker-1", "url": "sternas://orders-broker-1.mq.svc:7222"},
        ],
        "connect": {
            "user": "auditor",
            "password_file": "/secrets/user/password",
            "ca_file": "/secrets/ca/ca.crt",
        },
        "snapshots": "/audits/snapshots",
        "take": {
            "principals": "hashed",
            "principals_key_file": "/secrets/principals/key",
            "sign_key_file": "/secrets/sign/key.pem",
            "keys": ["/secrets/key-0/key.pem"],
            "unsigned": False,
            "rate": "20M",
            "wait_s": 600,
        },
        "audit": {
            "jobs": ["chain", "conservation"],
            "keys": ["/secrets/key-0/key.pem"],
            "unsigned": False,
            "ledgers": "/audits/ledgers/today",
            "master": "local[*]",
            "memory": "3g",
            "conf": {"spark.x": "1"},
        },
        "results": "/audits/results",
        "keep": {"snapshots": "30,90d", "results": 30},
    }
    assert audits.needed_secrets(one.observed.blueprint) == {
        "auditor-password": {"password"},
        "orders-connection": {"ca.crt"},
        "keys": {"private.pem", "public.pem"},
    }


def test_a_pod_has_no_token_no_rights_and_secrets_by_reference_alone() -> None:
    bucket = {"uri": "s3://abc/d", "credentialsSecret": "s3", "endpoint": "http://minio:9000", "region": "eu-1"}
    one = One({"storage": {"bucket": bucket}})
    one.settle()
    spec = one.cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    assert spec["securityContext"]["runAsNonRoot"] is True
    [container] = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["args"][-1] == "$(STERNA_AUDIT_RUN)"
    given = {one["name"]: one.get("value") or one["valueFrom"] for one in container["env"]}
    assert given["STERNA_AUDIT_RUN"]["fieldRef"]["fieldPath"] == "metadata.labels['batch.kubernetes.io/job-name']"
    assert (given["AWS_ENDPOINT_URL"], given["AWS_REGION"]) == ("http://minio:9000", "eu-1")
    assert given["AWS_SECRET_ACCESS_KEY"] == {"secretKeyRef": {"name": "s3", "key": "AWS_SECRET_ACCESS_KEY"}}
    assert given["AWS_SESSION_TOKEN"]["secretKeyRef"]["optional"] is True
    run = json.loads(one.observed.children["ConfigMap", "nightly-run"]["data"][audits.RUN_FILE])
    assert (run["snapshots"], run["results"]) == ("s3://abc/d/snapshots", "s3://abc/d/results")


def test_what_stands_as_it_should_is_left_alone_and_what_somebody_changed_is_put_right() -> None:
    one = One()
    assert [step.summary for step in one.plan().steps] == ["create ConfigMap nightly-run", "create CronJob nightly"]
    assert one.settle().steps == ()
    changed = {**one.cron_job, "spec": {**one.cron_job["spec"], "schedule": "0 4 * * *"}}
    one.see(children={**one.observed.children, ("CronJob", "nightly"): changed})
    [step] = one.plan().steps
    assert isinstance(step, RepairObject)
    assert "DriftRepaired" in _events(one.plan())
    one.see(children={key: child for key, child in one.observed.children.items() if key[0] != "CronJob"})
    assert [step.summary for step in one.plan().steps] == ["create CronJob nightly"]


def test_an_object_of_somebody_elses_is_left_alone_and_said() -> None:
    one = One()
    one.see(children={("CronJob", "nightly"): {"kind": "CronJob", "metadata": {"name": "nightly", "uid": "x"}}})
    planned = one.plan()
    assert planned.steps == ()
    assert _said(planned, "Stalled") == ("True", "NameClaimed")


def test_a_result_never_takes_the_place_of_somebody_elses_object_whatever_else_is_wrong() -> None:
    one = One()
    ran = one.ran(0)
    name = f"{ran.run}-result"
    one.see(children={("ConfigMap", name): {"kind": "ConfigMap", "metadata": {"name": name, "uid": "x"}}})
    one.see(ended=(ran,), cluster=replace(SEEN, is_there=False), now_ms=ran.ended_ms)
    planned = one.plan()
    assert planned.steps == ()
    assert _said(planned, "Stalled") == ("True", "NameClaimed")


def test_before_any_run_nothing_is_clean_and_nothing_stale() -> None:
    planned = One().settle()
    assert _said(planned, "Clean") == ("Unknown", "NoVerdict")
    assert _said(planned, "Stale") == ("False", "Awaited")
    assert _said(planned, "Ready") == ("True", "Scheduled")
    assert planned.status is not None
    assert planned.status.fields["nextRunAt"] == "2026-05-01T03:00:00Z"


@pytest.mark.parametrize(
    ("verdict", "clean", "event"),
    [
        ("ok", ("True", "Ok"), "AuditPassed"),
        ("in flight", ("True", "InFlight"), "AuditPassed"),
        ("not provable", ("True", "NotProvable"), "AuditPassed"),
        ("violated", ("False", "Violated"), "AuditViolated"),
        ("failed", ("Unknown", "NoVerdict"), "AuditFailed"),
    ],
)
def test_a_run_that_ends_is_kept_and_said(verdict: str, clean: tuple[str, str], event: str) -> None:
    one = One()
    one.settle()
    ran = one.ran(0, verdict)
    one.see(ended=(ran,), now_ms=ran.ended_ms)
    planned = one.reconcile()
    assert [step.summary for step in planned.steps] == [f"keep the result of run {ran.run}: {verdict}"]
    assert _said(planned, "Clean") == clean
    assert event in _events(planned)
    kept = one.observed.children["ConfigMap", f"{ran.run}-result"]
    assert kept["immutable"] is True
    assert (audits.RESULT_FILE in kept["data"]) == (verdict != "failed")
    # Said once.
    assert one.settle().announcements == ()


def test_what_is_violated_is_named_with_its_message_and_the_report() -> None:
    one = One()
    ran = one.ran(0, "violated")
    one.see(ended=(ran,), now_ms=ran.ended_ms)
    assert One.as_written(one.plan(), "Clean")["message"] == (
        f"run {ran.run}: 2 violated, 1 in flight, 4 ok; conservation: lost: orders ID:b0.7; "
        f"report: s3://audits/{ran.run}/report.html"
    )


def test_a_run_that_fails_leaves_the_verdict_before_it_and_says_so() -> None:
    one = One()
    bad, failed = one.ran(0, "violated"), one.ran(1, "failed")
    one.see(ended=(bad, failed), now_ms=failed.ended_ms)
    planned = one.settle()
    assert _said(planned, "Clean") == ("False", "Violated")
    assert f"run {failed.run} has failed: pod {failed.run}-0 OOMKilled" in One.as_written(planned, "Clean")["message"]
    assert planned.status is not None
    assert planned.status.fields["lastRun"]["verdict"] == "failed"
    assert planned.status.fields["lastVerdict"]["run"] == bad.run


def test_results_are_kept_within_the_limits_and_the_last_verdict_in_any_case() -> None:
    one = One({"successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 1})
    one.settle()
    runs = [one.ran(0), one.ran(1), one.ran(2), one.ran(3, "violated"), one.ran(4, "failed"), one.ran(5, "failed")]
    one.see(ended=tuple(runs[:3]), now_ms=runs[2].ended_ms)
    one.settle()
    assert one.results == {f"{run.run}-result" for run in runs[1:3]}
    # What Kubernetes still has of the others makes no result come back.
    one.see(ended=tuple(runs), now_ms=runs[5].ended_ms)
    one.settle()
    assert one.results == {f"{run.run}-result" for run in (runs[1], runs[2], runs[3], runs[5])}
    # The Jobs are gone by now, and the operator is another one.
    one.see(ended=())
    assert _said(one.settle(), "Clean") == ("False", "Violated")


def test_a_result_that_somebody_removed_is_still_spoken_of() -> None:
    one = One()
    ran = one.ran(0, "violated")
    one.see(ended=(ran,), now_ms=ran.ended_ms)
    one.settle()
    one.see(ended=(), results={}, children={k: v for k, v in one.observed.children.items() if "result" not in k[1]})
    assert _said(one.settle(), "Clean") == ("False", "Violated")


def test_no_verdict_for_two_periods_is_stale_to_the_moment_and_said_once() -> None:
    one = One()
    ran = one.ran(0)
    one.see(ended=(ran,), now_ms=ran.ended_ms)
    one.settle()
    # Due at three on the first, ended at four: two nights later at four.
    overdue_ms = ran.ended_ms + 2 * DAY_MS
    one.see(now_ms=overdue_ms - 1)
    assert _said(one.settle(), "Stale") == ("False", "Current")
    one.see(now_ms=overdue_ms)
    planned = one.reconcile()
    assert _said(planned, "Stale") == ("True", "NoVerdict")
    assert "AuditStale" in _events(planned)
    assert one.settle().announcements == ()
    # A run that fails is no verdict; one that comes to a verdict is.
    failed, passed = one.ran(2, "failed"), one.ran(3)
    one.see(ended=(ran, failed), now_ms=overdue_ms)
    assert _said(one.settle(), "Stale") == ("True", "NoVerdict")
    one.see(ended=(ran, failed, passed), now_ms=passed.ended_ms)
    assert _said(one.settle(), "Stale") == ("False", "Current")


def test_no_first_run_is_stale_after_two_periods_too_and_it_is_looked_at_by_then() -> None:
    one = One({"schedule": "*/5 * * * *"})
    planned = one.settle()
    assert planned.again_s is not None
    assert 0 < planned.again_s <= 300.05
    one.see(now_ms=CREATED_MS + 599_999)
    assert _said(one.settle(), "Stale") == ("False", "Awaited")
    one.see(now_ms=CREATED_MS + 600_000)
    assert _said(one.settle(), "Stale") == ("True", "NoVerdict")


def test_a_suspended_job_begins_no_run_and_says_so_when_it_is_stale() -> None:
    one = One({"suspend": True})
    planned = one.settle()
    assert one.cron_job["spec"]["suspend"] is True
    assert _said(planned, "Ready") == ("True", "Suspended")
    one.see(now_ms=CREATED_MS + 3 * DAY_MS)
    assert "spec.suspend is true" in One.as_written(one.settle(), "Stale")["message"]


def test_while_brokers_are_changed_no_run_begins_and_afterwards_they_do() -> None:
    one = One()
    one.settle()
    maintenance = {"reason": "Rolling", "left": 2, "since": timestamp(CREATED_MS)}
    one.see(maintenance=maintenance)
    planned = one.settle()
    assert one.cron_job["spec"]["suspend"] is True
    assert _said(planned, "Reconciling") == ("True", "Held")
    assert _said(planned, "Ready") == ("True", "Held")
    assert planned.status is not None
    assert "2 brokers to be restarted" in planned.status.fields["held"]
    one.see(maintenance=None)
    one.settle()
    assert one.cron_job["spec"]["suspend"] is False


def test_a_last_snapshot_is_taken_of_brokers_that_leave_and_is_no_run() -> None:
    one = One()
    one.settle()
    since = {"reason": "Scaling", "left": 1, "since": timestamp(CREATED_MS)}
    one.see(maintenance={**since, "leaving": ["orders-broker-1"]})
    one.settle()
    name = f"nightly-last-{CREATED_MS // 1000}"
    made = one.observed.children["Job", name]
    run = json.loads(one.observed.children["ConfigMap", "nightly-last"]["data"][audits.RUN_FILE])
    assert [broker["name"] for broker in run["brokers"]] == ["orders-broker-1"]
    assert (run["audit"], run["keep"]) == (None, {})
    volumes = made["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["configMap"]["name"] == "nightly-last"
    # The next one is another Job; and when brokers have gone nothing of it stays.
    later = timestamp(CREATED_MS + 60_000)
    one.see(maintenance={**since, "since": later, "leaving": ["orders-broker-1", "orders-broker-0"]})
    one.settle()
    jobs = {key[1] for key in one.observed.children if key[0] == "Job"}
    assert jobs == {f"nightly-last-{CREATED_MS // 1000 + 60}"}
    one.see(maintenance=None)
    one.settle()
    assert set(one.observed.children) == {("ConfigMap", "nightly-run"), ("CronJob", "nightly")}


def test_a_maintenance_of_which_nothing_comes_holds_no_run_for_ever() -> None:
    one = One()
    one.see(maintenance={"reason": "Rolling", "left": 1, "since": timestamp(CREATED_MS)})
    planned = one.settle()
    assert one.cron_job["spec"]["suspend"] is True
    assert planned.again_s is not None
    one.see(now_ms=CREATED_MS + cluster_interlock.HOLD_MS + 1)
    one.settle()
    assert one.cron_job["spec"]["suspend"] is False


@pytest.mark.parametrize(
    ("seen", "reason", "text"),
    [
        ({"missing": ("Secret keys",)}, "ReferenceMissing", "waits for Secret keys"),
        ({"misfit": "spec.connect.user is missing"}, "Invalid", "spec.connect.user is missing"),
        ({"cluster": replace(SEEN, is_there=False)}, "ReferenceMissing", "there is no MessagingCluster mq/orders"),
        ({"cluster": replace(SEEN, allows=False)}, "NotAllowed", "does not allow objects of namespace mq"),
        ({"cluster": replace(SEEN, is_going=True)}, "ReferenceMissing", "is being deleted"),
    ],
)
def test_what_could_only_fail_is_not_begun_and_begins_when_it_can(seen: dict[str, Any], reason: str, text: str) -> None:
    one = One()
    one.settle()
    well = one.observed
    one.see(**seen)
    planned = one.settle()
    assert one.cron_job["spec"]["suspend"] is True
    written = One.as_written(planned, "Ready")
    assert (written["status"], written["reason"]) == ("False", reason)
    assert text in written["message"]
    one.see(missing=well.missing, misfit=well.misfit, cluster=well.cluster)
    one.settle()
    assert one.cron_job["spec"]["suspend"] is False


def test_a_run_that_ends_when_its_cluster_is_gone_is_kept_all_the_same() -> None:
    one = One()
    one.settle()
    ran = one.ran(0, "violated")
    gone = replace(one.observed.blueprint, cluster=None, replicas=0)
    one.see(cluster=replace(SEEN, is_there=False), blueprint=gone, ended=(ran,), now_ms=ran.ended_ms)
    assert _said(one.settle(), "Clean") == ("False", "Violated")
    assert one.results == {f"{ran.run}-result"}


def test_a_schedule_that_cannot_be_read_is_said_by_its_field_and_what_stands_goes_on() -> None:
    standing, wrong = One(), One({"schedule": "0 25 * * *"})
    standing.settle()
    wrong.see(children=standing.observed.children)
    planned = wrong.plan()
    assert _said(planned, "Stalled") == ("True", "Invalid")
    assert "spec.schedule: '0 25 * * *'" in One.as_written(planned, "Ready")["message"]
    assert planned.steps == ()


# StoreSnapshots


def _snapshot(spec: dict[str, Any] | None = None, **seen: Any) -> Plan:
    resource = audit_objects.store_snapshot(spec)
    status = seen.pop("status", {})
    desired = store_snapshot.Desired(Key("StoreSnapshot", "mq", "once"), "uid-1", 1, resource, status=status)
    blueprint = AuditBlueprint(resource, "mq", "uid-1", "mq", audit_objects.cluster(), 2, "audit:1")
    return store_snapshot.plan(desired, store_snapshot.Observed(CREATED_MS, SEEN, blueprint, **seen))


def _of_job(text: str, status: int = 0) -> Any:
    return audit_runs.read(job("once", end="Complete"), [pod("once", **ended(text, status))], prefix="")


def test_a_snapshot_is_a_job_that_audits_nothing() -> None:
    planned = _snapshot({"brokers": ["orders-broker-1"]})
    file, made = (step.manifest for step in planned.steps if isinstance(step, ApplyObject))
    run = json.loads(file["data"][audits.RUN_FILE])
    assert (run["audit"], run["keep"]) == (None, {})
    assert [one["name"] for one in run["brokers"]] == ["orders-broker-1"]
    assert (made["kind"], made["metadata"]["name"]) == ("Job", "once")
    assert _said(planned, "Ready") == ("False", "Taking")


def test_what_was_taken_is_said_and_final() -> None:
    planned = _snapshot(run=_of_job(result("once", "ok", CREATED_MS)))
    assert _said(planned, "Ready") == ("True", "Taken")
    assert "orders-broker-0 cut 12" in One.as_written(planned, "Ready")["message"]
    assert _events(planned) == ["SnapshotTaken"]
    assert planned.status is not None
    # Its Job is gone, and the cluster with it.
    later = _snapshot(status=planned.status.fields, missing=("Secret x",))
    assert later.steps == ()
    assert _said(later, "Ready") == ("True", "Taken")


def test_a_broker_of_which_nothing_was_taken_is_named() -> None:
    snapshots = [
        {"broker": "orders-broker-0", "cut": 3, "state": "there already", "error": None},
        {"broker": "orders-broker-1", "cut": None, "state": "failed", "error": "no route"},
    ]
    planned = _snapshot(run=_of_job(result("once", "not provable", CREATED_MS, snapshots=snapshots)))
    assert _said(planned, "Stalled") == ("True", "Failed")
    assert "orders-broker-1: no route" in One.as_written(planned, "Ready")["message"]
    assert _events(planned) == ["SnapshotFailed"]


def test_a_job_that_somebody_took_away_is_made_again_and_one_that_runs_is_left_alone() -> None:
    made = {
        (step.manifest["kind"], step.manifest["metadata"]["name"]): {
            **differences.stamped(step.manifest),
            "metadata": {**step.manifest["metadata"], "uid": "u", "resourceVersion": "1"},
        }
        for step in _snapshot().steps
        if isinstance(step, ApplyObject)
    }
    running = audit_runs.read(job("once"), [], prefix="")
    assert _snapshot(children=made, run=running).steps == ()
    rest = {key: child for key, child in made.items() if key[0] != "Job"}
    assert [step.summary for step in _snapshot(children=rest).steps] == ["create Job once"]


def test_a_snapshot_waits_while_brokers_are_changed() -> None:
    maintenance = {"reason": "Scaling", "left": 1, "since": timestamp(CREATED_MS)}
    planned = _snapshot(maintenance=maintenance)
    assert planned.steps == ()
    assert _said(planned, "Ready") == ("False", "Held")
    assert planned.again_s == pytest.approx(cluster_interlock.HOLD_MS / 1000, abs=1)
