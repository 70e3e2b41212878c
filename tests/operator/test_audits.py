"""AuditJobs and StoreSnapshots with a real API server; the test plays the controllers of Jobs, and the kubelet."""

import json
import time
from typing import Any

import pytest
from sterna_operator.kube import path

from tests.operator.audit_objects import AUDIT, SNAPSHOT, result, violated
from tests.operator.audit_stage import Stage
from tests.operator.conftest import MakeOperator
from tests.operator.kubelet import Kubelet, install_surroundings
from tests.operator.lookouts import Lookout
from tests.operator.worlds import World
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(30_000)

FLAGS = {"audit_image": "localhost/audit:1"}


@pytest.fixture
def stage(world: World) -> Stage:
    world.make_cluster(authentication={"enabled": False})
    return Stage(world)


def _minutes_ago(minutes: int) -> tuple[int, int]:
    """A minute since 1970, and the moment in ms that an hour-long run of it would have ended."""
    minute = int(time.time()) // 60 - minutes
    return minute, (minute + 1) * 60_000


async def test_an_audit_job_from_its_making_over_a_loss_to_a_clean_run(stage: Stage, operator: MakeOperator) -> None:
    world = stage.world
    running = operator(**FLAGS)
    world.apply("AuditJob", "nightly", AUDIT)
    await world.ready("AuditJob", "nightly")
    assert (await stage.condition("AuditJob", "nightly", "Clean", "Unknown", "NoVerdict"))["message"]
    cron_job = await stage.cron_job("nightly")
    assert cron_job["spec"]["concurrencyPolicy"] == "Forbid"
    assert cron_job["metadata"]["ownerReferences"][0]["kind"] == "AuditJob"
    run_file = stage.get("v1", "ConfigMap", "nightly-run")
    assert run_file is not None
    assert json.loads(run_file["data"]["run.json"])["job"] == f"{world.namespace}/nightly"

    minute, ended_ms = _minutes_ago(120)
    lost = await stage.run(cron_job, minute, violated(f"nightly-{minute}", ended_ms), 8, reason="Error")
    said = await stage.condition("AuditJob", "nightly", "Clean", "False", "Violated")
    assert "conservation: lost: orders ID:b0.7" in said["message"]
    labels = f'{{audit="nightly",namespace="{world.namespace}"}}'
    shown = world.metrics(running.address)
    assert (shown[f"sterna_operator_audit_violated{labels}"], shown[f"sterna_operator_audit_stale{labels}"]) == (1, 0)
    assert (world.get("AuditJob", "nightly") or {})["status"]["lastRun"]["counts"]["violated"] == 2

    clean = await stage.run(cron_job, minute + 60, result(f"nightly-{minute + 60}", "ok", ended_ms + 3_600_000))
    await stage.condition("AuditJob", "nightly", "Clean", "True", "Ok")
    await eventually(lambda: stage.results() == [f"{lost}-result", f"{clean}-result"])
    kept = stage.get("v1", "ConfigMap", f"{lost}-result")
    assert kept is not None
    assert (kept["immutable"], json.loads(kept["data"]["result.json"])["verdict"]) == (True, "violated")
    await eventually(lambda: {"AuditViolated", "AuditPassed"} <= set(world.events("nightly")))

    world.delete("AuditJob", "nightly")
    await world.gone("AuditJob", "nightly")


async def test_what_stands_of_an_audit_job_is_put_right_by_whatever_part_it_was_changed(
    stage: Stage, operator: MakeOperator
) -> None:
    world = stage.world
    operator(**FLAGS)
    world.apply("AuditJob", "nightly", AUDIT)
    await world.ready("AuditJob", "nightly")
    stage.patch("batch/v1", "CronJob", "nightly", {"spec": {"schedule": "0 4 * * *", "suspend": True}})
    await eventually(lambda: (stage.get("batch/v1", "CronJob", "nightly") or {})["spec"]["schedule"] == "0 3 * * *")
    await stage.cron_job("nightly")
    more = {"spec": {"jobTemplate": {"spec": {"template": {"spec": {"hostNetwork": True}}}}}}
    stage.patch("batch/v1", "CronJob", "nightly", more)

    def has_host_network() -> bool:
        found = stage.get("batch/v1", "CronJob", "nightly")
        return found is None or "hostNetwork" in found["spec"]["jobTemplate"]["spec"]["template"]["spec"]

    await eventually(lambda: not has_host_network(), what="hostNetwork taken away")
    for version, kind, name in (("v1", "ConfigMap", "nightly-run"), ("batch/v1", "CronJob", "nightly")):
        found = stage.get(version, kind, name)
        assert found is not None
        assert world.server.request("DELETE", path(version, kind, world.namespace, name)).ok
        await eventually(
            lambda kind=kind, name=name, version=version, uid=found["metadata"]["uid"]: (
                (  # type: ignore[misc]
                    stage.get(version, kind, name) or {"metadata": {"uid": uid}}
                )["metadata"]["uid"]
                != uid
            ),
            what=f"{kind} {name} made anew",
        )
    # Nothing of it is changed again and again: what the API server puts in is known.
    await world.ready("AuditJob", "nightly")
    versions = [stage.get("batch/v1", "CronJob", "nightly")]
    world.annotate("AuditJob", "nightly", {"sterna.dev/look": "again"})
    world.apply("AuditJob", "nightly", {**AUDIT, "jobs": ["chain"]})
    await world.ready("AuditJob", "nightly")
    versions.append(stage.get("batch/v1", "CronJob", "nightly"))
    assert len({one["metadata"]["resourceVersion"] for one in versions if one}) == 1


async def test_a_pod_without_a_result_and_one_that_cannot_start_say_why(stage: Stage, operator: MakeOperator) -> None:
    world = stage.world
    operator(**FLAGS)
    world.apply("AuditJob", "nightly", AUDIT)
    cron_job = await stage.cron_job("nightly")
    minute, _ = _minutes_ago(10)
    killed = await stage.run(cron_job, minute, "java.lang.OutOfMemoryError", 137, reason="OOMKilled")

    def last() -> dict[str, Any]:
        return ((world.get("AuditJob", "nightly") or {}).get("status") or {}).get("lastRun") or {}

    await eventually(lambda: last().get("run") == killed)
    assert last()["verdict"] == "failed"
    assert "OOMKilled, ended with status 137: java.lang.OutOfMemoryError" in last()["error"]
    await stage.condition("AuditJob", "nightly", "Clean", "Unknown", "NoVerdict")

    stuck = stage.begin(cron_job, minute + 5)
    pod = stage.pod(stuck)
    stage.wait(pod, "ImagePullBackOff", "no such image")
    await eventually(
        lambda: "ImagePullBackOff" in str((world.get("AuditJob", "nightly") or {})["status"].get("running")),
        what="what keeps it from running",
    )
    # Its time is over: the Job controller removes the pod, and says so.
    where = path("v1", "Pod", world.namespace, pod)
    assert world.server.request("DELETE", where, {"gracePeriodSeconds": 0}).ok
    stage.over(stuck, is_well=False, reason="DeadlineExceeded")
    await eventually(lambda: last().get("run") == stuck)
    assert last()["error"].startswith("ImagePullBackOff: no such image; DeadlineExceeded")


async def test_no_verdict_for_two_periods_shows_and_so_does_one_that_comes(
    stage: Stage, operator: MakeOperator
) -> None:
    world = stage.world
    operator(**FLAGS)
    world.apply("AuditJob", "hourly", {**AUDIT, "schedule": "0 * * * *"})
    cron_job = await stage.cron_job("hourly")
    await stage.condition("AuditJob", "hourly", "Stale", "False", "Awaited")
    minute, ended_ms = _minutes_ago(600)
    await stage.run(cron_job, minute, result(f"hourly-{minute}", "ok", ended_ms))
    await stage.condition("AuditJob", "hourly", "Stale", "True", "NoVerdict")
    await eventually(lambda: "AuditStale" in world.events("hourly"))
    minute, ended_ms = _minutes_ago(1)
    await stage.run(cron_job, minute, result(f"hourly-{minute}", "ok", ended_ms))
    await stage.condition("AuditJob", "hourly", "Stale", "False", "Current")


async def test_what_a_run_needs_is_waited_for_and_taken_when_it_comes(stage: Stage, operator: MakeOperator) -> None:
    world = stage.world
    operator(**FLAGS)
    key = {"name": "keys", "key": "password"}
    snapshots = {"principals": "none", "signKeySecret": key}
    world.apply("AuditJob", "nightly", {**AUDIT, "snapshots": snapshots, "keys": [key]})
    assert await world.reason("AuditJob", "nightly", "ReferenceMissing") == "waits for Secret keys"
    await stage.cron_job("nightly", is_suspended=True)
    world.secret("keys", "a key")
    await world.ready("AuditJob", "nightly")
    await stage.cron_job("nightly")


async def test_a_result_is_kept_although_the_operator_was_killed_before_it_said_so(
    stage: Stage, operator: MakeOperator
) -> None:
    world = stage.world
    first = operator(**FLAGS)
    world.apply("AuditJob", "nightly", AUDIT)
    cron_job = await stage.cron_job("nightly")
    first.kill()
    minute, ended_ms = _minutes_ago(60)
    await stage.run(cron_job, minute, violated(f"nightly-{minute}", ended_ms), 8, reason="Error")
    # Right after it has kept the result, the second one dies, too.
    world.end_lead()
    kept = f"/api/v1/namespaces/<namespace>/configmaps/nightly-{minute}-result"
    second = operator("second", is_started=False, **FLAGS)
    second.launch((f"PATCH {kept}", 1))
    await eventually(lambda: second.has_ended, timeout_s=40.0)
    assert stage.results() == [f"nightly-{minute}-result"]
    world.end_lead()
    operator("third", **FLAGS)
    await stage.condition("AuditJob", "nightly", "Clean", "False", "Violated")
    assert stage.results() == [f"nightly-{minute}-result"]


async def test_a_snapshot_is_taken_once(stage: Stage, operator: MakeOperator) -> None:
    world = stage.world
    operator(**FLAGS)
    world.apply("StoreSnapshot", "once", SNAPSHOT)
    await eventually(lambda: stage.get("batch/v1", "Job", "once"), what="the Job")
    await world.reason("StoreSnapshot", "once", "Taking")
    stage.end(stage.pod("once"), result("once", "ok", int(time.time() * 1000)))
    stage.over("once")
    found = await world.ready("StoreSnapshot", "once")
    assert found["status"]["taken"]["snapshots"][0]["cut"] == 12
    where, how = path("batch/v1", "Job", world.namespace, "once"), {"propagationPolicy": "Background"}
    assert world.server.request("DELETE", where, how).ok
    world.annotate("StoreSnapshot", "once", {"sterna.dev/look": "again"})
    await eventually(lambda: "SnapshotTaken" in world.events("once"))
    assert stage.get("batch/v1", "Job", "once") is None


async def test_brokers_are_restarted_between_runs_and_runs_begin_again_afterwards(
    world: World, operator: MakeOperator
) -> None:
    """The whole interlock: an operator with the real kind of clusters, one that is killed in the middle of it."""
    install_surroundings(world.server)
    stage = Stage(world)
    async with Lookout(world.server) as lookout, Kubelet(world, lookout) as kubelet:
        first = operator(only_etcd=False, broker_image="localhost/broker:1", **FLAGS)
        spec: dict[str, Any] = {"brokers": 2, "authentication": {"enabled": False}}
        world.make_cluster(**spec)
        await world.ready("MessagingCluster", "mq", timeout_s=60.0)
        world.apply("AuditJob", "nightly", AUDIT)
        cron_job = await stage.cron_job("nightly")
        minute, ended_ms = _minutes_ago(1)
        job = stage.begin(cron_job, minute)
        pod = stage.pod(job)

        world.make_cluster(**spec, image="localhost/broker:2")
        await stage.cron_job("nightly", is_suspended=True)
        await eventually(
            lambda: f"waits for run {job} of AuditJob" in str(world.condition("MessagingCluster", "mq").get("message")),
            timeout_s=30.0,
            what="the cluster waits for the run",
        )
        first.kill()
        world.end_lead()
        operator("second", only_etcd=False, broker_image="localhost/broker:1", **FLAGS)
        assert not kubelet.restarts
        stage.end(pod, result(job, "ok", ended_ms))
        stage.over(job)

        def is_new() -> bool:
            status = (world.get("MessagingCluster", "mq") or {})["status"]
            brokers = status.get("brokers") or ()
            return len(brokers) == 2 and all(one["image"] == "localhost/broker:2" for one in brokers)

        await eventually(is_new, timeout_s=60.0, what="both brokers changed")
        assert kubelet.restarts == {"mq-broker-0": 1, "mq-broker-1": 1}
        await stage.cron_job("nightly")
        await stage.condition("AuditJob", "nightly", "Clean", "True", "Ok")

        # One of them goes, when a last snapshot of it was taken.
        world.make_cluster(**{**spec, "brokers": 1}, image="localhost/broker:2")

        def last_job() -> str:
            answer = world.server.request("GET", path("batch/v1", "Job", world.namespace))
            found = [one["metadata"] for one in answer.body["items"]]
            return next((one["name"] for one in found if "sterna.dev/last-of" in one.get("annotations", {})), "")

        last = await eventually(last_job, timeout_s=30.0, what="the Job of the last snapshot")
        await eventually(
            lambda: "last snapshot of mq-broker-1" in str(world.condition("MessagingCluster", "mq").get("message")),
            timeout_s=30.0,
            what="the cluster waits for the last snapshot",
        )
        assert set(kubelet.brokers) == {"mq-broker-0", "mq-broker-1"}
        stage.end(stage.pod(last), result(last, "ok", ended_ms))
        stage.over(last)
        await eventually(lambda: set(kubelet.brokers) == {"mq-broker-0"}, timeout_s=30.0, what="the broker gone")
        await stage.cron_job("nightly")
        await eventually(lambda: not last_job(), timeout_s=30.0, what="nothing of the last snapshot left")
        assert (world.get("AuditJob", "nightly") or {})["status"]["lastRun"]["run"] == job
        # No broker was restarted while another was away, and what is made for audits is nothing of the cluster's.
        assert not kubelet.faults
        kubelet.check()


async def test_a_secret_and_a_cluster_that_go_keep_runs_back_until_they_come(
    stage: Stage, operator: MakeOperator
) -> None:
    world = stage.world
    operator(**FLAGS)
    world.secret("keys", "a key")
    key = {"name": "keys", "key": "password"}
    snapshots = {"principals": "none", "signKeySecret": key}
    world.apply("AuditJob", "nightly", {**AUDIT, "snapshots": snapshots, "keys": [key]})
    await world.ready("AuditJob", "nightly")
    where = path("v1", "Secret", world.namespace, "keys")
    assert world.server.request("DELETE", where).ok
    assert await world.reason("AuditJob", "nightly", "ReferenceMissing") == "waits for Secret keys"
    await stage.cron_job("nightly", is_suspended=True)
    world.secret("keys", "another key")
    await world.ready("AuditJob", "nightly")
    await stage.cron_job("nightly")
    world.delete("MessagingCluster", "mq")
    await world.reason("AuditJob", "nightly", "ReferenceMissing")
    await stage.cron_job("nightly", is_suspended=True)
    world.make_cluster(authentication={"enabled": False})
    await world.ready("AuditJob", "nightly")
    await stage.cron_job("nightly")


@pytest.mark.parametrize("kind", ["AuditJob", "StoreSnapshot"])
async def test_a_volume_claim_that_comes_is_heard_of_at_once(stage: Stage, operator: MakeOperator, kind: str) -> None:
    """And so is another one that is named instead, as far as that can be changed."""
    world = stage.world
    operator(**FLAGS)
    spec = {**(AUDIT if kind == "AuditJob" else SNAPSHOT), "storage": {"volumeClaim": "other"}}
    world.apply(kind, "one", spec)
    assert await world.reason(kind, "one", "ReferenceMissing") == "waits for PersistentVolumeClaim other"
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    stage.post("v1", "PersistentVolumeClaim", {"metadata": {"name": "other"}, "spec": claim})
    # Within the bound of references that arrive, and well before it would be looked at again by itself.
    await eventually(
        lambda: world.condition(kind, "one").get("reason") in ("Scheduled", "Taking"),
        timeout_s=5.0,
        what="the claim heard of",
    )
    if kind == "AuditJob":
        world.apply(kind, "one", {**spec, "storage": {"volumeClaim": "third"}})
        await world.reason(kind, "one", "ReferenceMissing")
        await stage.cron_job("one", is_suspended=True)
        world.apply(kind, "one", {**spec, "storage": {"volumeClaim": "audits"}})
        await world.ready(kind, "one")
        await stage.cron_job("one")


async def test_of_two_operators_one_looks_after_an_audit_job_and_both_rest_when_its_cluster_is_gone(
    stage: Stage, operator: MakeOperator
) -> None:
    world = stage.world
    quick = {"resync_s": 0.5, **FLAGS}
    both = operator("first", **quick), operator("second", lease_name="another", **quick)
    # Due once a year: what is said of the next run stays so while the test goes on.
    world.apply("AuditJob", "nightly", {**AUDIT, "schedule": "0 3 1 1 *"})
    await world.ready("AuditJob", "nightly")
    minute, ended_ms = _minutes_ago(60)
    await stage.run(await stage.cron_job("nightly"), minute, result(f"nightly-{minute}", "ok", ended_ms))
    await stage.condition("AuditJob", "nightly", "Clean", "True", "Ok")
    assert [sum("nightly" in write for write in one.writes) > 0 for one in both].count(True) == 1
    # Events are posted behind the status.
    await eventually(lambda: world.events("nightly").count("AuditPassed") == 1)

    world.delete("MessagingCluster", "mq")
    await stage.cron_job("nightly", is_suspended=True)
    await world.reason("AuditJob", "nightly", "ReferenceMissing")
    looked = 'sterna_operator_reconcile_seconds_count{kind="AuditJob"}'

    def looks() -> list[float]:
        return [world.metrics(one.address).get(looked, 0.0) for one in both]

    async def look_often() -> None:
        begun = looks()
        await eventually(lambda: all(now > then + 4 for now, then in zip(looks(), begun, strict=True)), timeout_s=30.0)

    await look_often()
    written = [len(one.writes) for one in both]
    await look_often()
    rest = [write for one, count in zip(both, written, strict=True) for write in one.writes[count:]]
    assert not [write for write in rest if "/leases/" not in write], "neither undoes what the other has said"
    assert world.events("nightly").count("AuditPassed") == 1
