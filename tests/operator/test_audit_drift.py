"""What somebody changes by hand in what was made for audits is put back, field by field, where it can be changed."""

import contextlib
import random
import statistics
import time
from typing import Any

import pytest
from sterna_operator.kube import path

from tests.operator.audit_objects import AUDIT, SNAPSHOT, result
from tests.operator.audit_stage import Stage
from tests.operator.conftest import MakeOperator
from tests.operator.drift import Patch, by_hand, essence, told
from tests.operator.worlds import World
from tests.support.seeds import is_complete, seed
from tests.waiting import eventually

pytestmark = [pytest.mark.slow_callbacks(30_000), pytest.mark.timeout(600)]

# What nobody told of would not be back within this: the next look at everything comes later.
SEEN_S = 60.0
# What is promised. A machine that others hold up takes longer for some, so the median counts.
BACK_S = 5.0
JSON_PATCH = "application/json-patch+json"
# Nobody looks without cause: what is put back was told of.
FLAGS = {"audit_image": "localhost/audit:1", "resync_s": 3600.0, "clusters_s": 3600.0}
RICH: dict[str, Any] = {
    **AUDIT,
    "keys": [{"name": "keys", "key": "password"}],
    "snapshots": {"principals": "none", "signKeySecret": {"name": "keys", "key": "password"}},
    "pod": {"nodeSelector": {"disk": "fast"}, "resources": {"limits": {"memory": "4096Mi"}}},
}
CHILDREN = (
    ("v1", "ConfigMap", "nightly-run"),
    ("batch/v1", "CronJob", "nightly"),
    ("v1", "ConfigMap", "once-run"),
    ("batch/v1", "Job", "once"),
)
# That a Job is suspended is not the operator's to say: those who let Jobs wait for their turn do.
OTHERS = "/spec/suspend"
# So many of a child's changes are tried, drawn by the seed; `make test-all` tries all.
TRIED_MAX = 25
# Tried in any case: by each of these runs would not begin, find other brokers, or be overlooked.
HARM: dict[tuple[str, str], list[Patch]] = {
    ("CronJob", "nightly"): [
        [{"op": "replace", "path": "/spec/suspend", "value": True}],
        [{"op": "replace", "path": "/spec/schedule", "value": "0 0 1 1 *"}],
        [{"op": "add", "path": "/spec/jobTemplate/spec/template/spec/hostNetwork", "value": True}],
        [{"op": "add", "path": "/spec/jobTemplate/spec/suspend", "value": True}],
        [{"op": "remove", "path": "/spec/jobTemplate/metadata/labels"}],
        [{"op": "remove", "path": "/metadata/labels"}],
    ],
    ("ConfigMap", "nightly-run"): [[{"op": "replace", "path": "/data/run.json", "value": "{}"}]],
    ("ConfigMap", "once-run"): [[{"op": "replace", "path": "/data/run.json", "value": "{}"}]],
    ("Job", "once"): [
        [{"op": "remove", "path": "/metadata/labels/sterna.dev~1audit"}],
        [{"op": "replace", "path": "/spec/parallelism", "value": 0}],
        [{"op": "add", "path": "/spec/ttlSecondsAfterFinished", "value": 0}],
        [{"op": "replace", "path": "/spec/activeDeadlineSeconds", "value": 1}],
        [{"op": "replace", "path": "/spec/manualSelector", "value": True}],
    ],
}


@pytest.fixture
async def stage(world: World, operator: MakeOperator) -> Stage:
    """An AuditJob, and a StoreSnapshot whose Job goes on."""
    world.make_cluster(authentication={"enabled": False})
    made = Stage(world)
    world.secret("keys", "a key")
    operator(**FLAGS)
    world.apply("AuditJob", "nightly", RICH)
    world.apply("StoreSnapshot", "once", SNAPSHOT)
    await world.reason("AuditJob", "nightly", "Scheduled")
    await eventually(lambda: made.get("batch/v1", "Job", "once"), what="the snapshot's Job")
    await world.reason("StoreSnapshot", "once", "Taking")
    return made


def _shown(stage: Stage) -> dict[tuple[str, str], dict[str, Any]]:
    return {(kind, name): stage.get(version, kind, name) or {} for version, kind, name in CHILDREN}


async def test_each_child_of_audits_is_put_back_within_5_s(stage: Stage) -> None:
    world, versions = stage.world, {(kind, name): version for version, kind, name in CHILDREN}
    before = {key: essence(one) for key, one in _shown(stage).items()}
    waiting: dict[tuple[str, str], list[Patch]] = {}
    for key, standing in _shown(stage).items():
        every = [one for one in by_hand(standing) if key[0] != "Job" or one[0]["path"] != OTHERS]
        count = len(every) if is_complete() else min(len(every), TRIED_MAX)
        waiting[key] = [*HARM[key], *random.Random(f"{seed()} {key}").sample(every, count)]
    took_s: list[float] = []
    tried, harms = 0, {told(patch) for patches in HARM.values() for patch in patches}
    while any(waiting.values()):
        left: dict[tuple[str, str], str] = {}
        for (kind, name), patches in waiting.items():
            if not patches:
                continue
            patch = patches.pop(0)
            where = path(versions[kind, name], kind, world.namespace, name)
            answer = world.server.request("PATCH", where, patch, JSON_PATCH)
            if answer.ok and essence(answer.body) != before[kind, name]:
                left[kind, name] = told(patch)
            else:
                # What the API server itself does not take, or fills in again.
                assert told(patch) not in harms, answer.message
        tried += len(left)
        began = time.monotonic()

        def is_back(left: dict[tuple[str, str], str] = left) -> bool:
            for key, one in _shown(stage).items():
                if key in left and essence(one) == before[key]:
                    del left[key]
            return not left

        with contextlib.suppress(AssertionError):
            await eventually(is_back, timeout_s=SEEN_S, pause_max_s=0.05)
        assert not left, f"not put back: {left}; {world.condition('StoreSnapshot', 'once')}"
        took_s.append(time.monotonic() - began)
    assert tried > 50
    assert statistics.median(took_s) < BACK_S
    await eventually(lambda: "DriftRepaired" in world.events("nightly"))
    await eventually(lambda: "DriftRepaired" in world.events("once"))


async def test_each_child_of_audits_that_is_deleted_is_made_again_within_5_s(stage: Stage) -> None:
    before, took_s = _shown(stage), []
    for version, kind, name in CHILDREN:
        uid = before[kind, name]["metadata"]["uid"]
        began = time.monotonic()
        stage.take_away(kind, name)

        def is_back(version: str = version, kind: str = kind, name: str = name, uid: str = uid) -> bool:
            found = stage.get(version, kind, name)
            return found is not None and found["metadata"]["uid"] != uid

        await eventually(is_back, timeout_s=SEEN_S, what=f"{kind} {name} back", pause_max_s=0.05)
        took_s.append(time.monotonic() - began)
    assert statistics.median(took_s) < BACK_S


async def test_a_job_that_somebody_suspends_is_said_to_wait_for_them(stage: Stage) -> None:
    world = stage.world
    stage.patch("batch/v1", "Job", "once", {"spec": {"suspend": True}})
    await eventually(
        lambda: "somebody has suspended it" in str(world.condition("StoreSnapshot", "once").get("message")),
        what="that it is suspended",
    )
    stage.patch("batch/v1", "Job", "once", {"spec": {"suspend": False}})
    stage.end(stage.pod("once"), result("once", "ok", int(time.time() * 1000)))
    stage.over("once")
    await world.ready("StoreSnapshot", "once")
