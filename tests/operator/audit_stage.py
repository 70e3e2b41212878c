"""Those who act on Jobs, played by a test: the controllers of CronJobs and Jobs, and the kubelet.

What stands in a pod's status is what a kubelet writes there: how the container ended, and its last words.
"""

import time
from typing import Any

from sterna_operator import conditions
from sterna_operator.kube import path

from tests.operator.audit_objects import SCHEDULED
from tests.operator.worlds import World
from tests.waiting import eventually

MERGE = "application/merge-patch+json"


class Stage:
    """A cluster of the world with a volume for audits, and those who act on Jobs."""

    def __init__(self, world: World) -> None:
        self.world = world
        for kind, name, spec in (
            ("ServiceAccount", "default", None),
            (
                "PersistentVolumeClaim",
                "audits",
                {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            ),
        ):
            self.post("v1", kind, {"metadata": {"name": name}, **({"spec": spec} if spec else {})})

    def post(self, version: str, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.world.server.request("POST", path(version, kind, self.world.namespace), body)
        assert answer.ok or answer.status == 409, answer.message
        return dict(answer.body)

    def get(self, version: str, kind: str, name: str) -> dict[str, Any] | None:
        answer = self.world.server.request("GET", path(version, kind, self.world.namespace, name))
        return dict(answer.body) if answer.ok else None

    def patch(self, version: str, kind: str, name: str, body: dict[str, Any], sub: str = "") -> None:
        where = path(version, kind, self.world.namespace, name, sub)
        answer = self.world.server.request("PATCH", where, body, MERGE)
        assert answer.ok, answer.message

    async def cron_job(self, name: str, *, is_suspended: bool = False) -> dict[str, Any]:
        """The CronJob, once runs of it may begin, or may not."""

        def check() -> dict[str, Any] | None:
            found = self.get("batch/v1", "CronJob", name)
            return found if found is not None and found["spec"]["suspend"] is is_suspended else None

        found = await eventually(check, timeout_s=30.0, what=f"CronJob {name}, suspended: {is_suspended}")
        assert found is not None
        return found

    def begin(self, cron_job: dict[str, Any], minute: int) -> str:
        """As the CronJob controller begins a run that was due then; the Job's name."""
        metadata, template = cron_job["metadata"], cron_job["spec"]["jobTemplate"]
        name = f"{metadata['name']}-{minute}"
        due = conditions.timestamp(minute * 60_000)
        owner = {"apiVersion": "batch/v1", "kind": "CronJob", "controller": True, "blockOwnerDeletion": True}
        owner |= {"name": metadata["name"], "uid": metadata["uid"]}
        head = {"name": name, "labels": template["metadata"]["labels"], "annotations": {SCHEDULED: due}}
        self.post("batch/v1", "Job", {"metadata": {**head, "ownerReferences": [owner]}, "spec": template["spec"]})
        return name

    def pod(self, job: str) -> str:
        """As the Job controller makes a pod."""
        made = self.get("batch/v1", "Job", job)
        assert made is not None
        template = made["spec"]["template"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True, "blockOwnerDeletion": True}
        owner |= {"name": job, "uid": made["metadata"]["uid"]}
        name = f"{job}-abcde"
        metadata = {"name": name, "labels": template["metadata"]["labels"], "ownerReferences": [owner]}
        self.post("v1", "Pod", {"metadata": metadata, "spec": template["spec"]})
        return name

    def wait(self, pod: str, reason: str, message: str) -> None:
        """As the kubelet says of a container that cannot be started."""
        state = {"waiting": {"reason": reason, "message": message}}
        self._container(pod, state, "Pending")

    def end(self, pod: str, message: str, status: int = 0, reason: str = "Completed", at_ms: int | None = None) -> None:
        """As the kubelet says of a container that has ended."""
        now = _timestamp(at_ms)
        ended = {"exitCode": status, "reason": reason, "message": message, "startedAt": now, "finishedAt": now}
        self._container(pod, {"terminated": ended}, "Failed" if status else "Succeeded")

    def _container(self, pod: str, state: dict[str, Any], phase: str) -> None:
        image = {"image": "x", "imageID": "", "ready": False, "restartCount": 0}
        status = {"phase": phase, "containerStatuses": [{"name": "audit", "state": state, **image}]}
        self.patch("v1", "Pod", pod, {"status": status}, "status")

    def over(self, job: str, *, is_well: bool = True, reason: str = "", at_ms: int | None = None) -> None:
        """As the Job controller says of a Job that is over."""
        now = _timestamp(at_ms)
        kinds = ("SuccessCriteriaMet", "Complete") if is_well else ("FailureTarget", "Failed")
        said = [
            {"type": one, "status": "True", "lastTransitionTime": now, "reason": reason or "Done", "message": ""}
            for one in kinds
        ]
        first: dict[str, Any] = {"startTime": now, "conditions": said[:1], "terminating": 0}
        self.patch("batch/v1", "Job", job, {"status": first}, "status")
        counts = {"succeeded": 1, "completionTime": now} if is_well else {"failed": 1}
        self.patch("batch/v1", "Job", job, {"status": {"conditions": said, "ready": 0, **counts}}, "status")

    async def run(self, cron_job: dict[str, Any], minute: int, message: str, status: int = 0, **how: Any) -> str:
        """A run from its beginning to its end, a minute after it was due."""
        job, at_ms = self.begin(cron_job, minute), (minute + 1) * 60_000
        self.end(self.pod(job), message, status, at_ms=at_ms, **how)
        self.over(job, is_well=status == 0, at_ms=at_ms)
        return job

    async def condition(self, kind: str, name: str, type: str, status: str, reason: str) -> dict[str, Any]:  # noqa: A002
        """A condition, once it is so."""
        seen: dict[str, Any] = {}

        def check() -> bool:
            seen.clear()
            seen.update(self.world.condition(kind, name, type))
            return (seen.get("status"), seen.get("reason")) == (status, reason)

        try:
            await eventually(check, timeout_s=30.0, what=f"{kind} {name}: {type}={status} ({reason})")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {seen}") from error
        return seen

    def take_away(self, kind: str, name: str) -> None:
        """As somebody by hand, or the garbage collector."""
        version = "v1" if kind in ("ConfigMap", "Pod") else "batch/v1"
        where = path(version, kind, self.world.namespace, name)
        answer = self.world.server.request(
            "DELETE", where, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        )
        assert answer.ok or answer.status == 404, answer.message

    def forget_run(self, job: str) -> None:
        """As the CronJob controller, which keeps so many Jobs, and the collector of what belonged to them."""
        self.take_away("Job", job)
        self.take_away("Pod", f"{job}-abcde")

    def collect(self, kind: str, name: str) -> None:
        """As the garbage collector, once an AuditJob or StoreSnapshot is gone."""
        selector = f"labelSelector=sterna.dev/audit={kind.lower()}.{name}"
        for version, child in (("batch/v1", "CronJob"), ("batch/v1", "Job"), ("v1", "ConfigMap"), ("v1", "Pod")):
            found = self.world.server.request("GET", f"{path(version, child, self.world.namespace)}?{selector}")
            for one in found.body["items"]:
                self.take_away(child, one["metadata"]["name"])

    def results(self) -> list[str]:
        answer = self.world.server.request("GET", path("v1", "ConfigMap", self.world.namespace))
        return sorted(
            one["metadata"]["name"] for one in answer.body["items"] if one["metadata"]["name"].endswith("-result")
        )


def _timestamp(at_ms: int | None) -> str:
    return conditions.timestamp(int(time.time() * 1000) if at_ms is None else at_ms)
