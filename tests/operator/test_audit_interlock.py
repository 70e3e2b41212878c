"""Brokers are touched only when no audit's run is in the way, or has been for long; and audits always go on again."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sterna_operator.conditions import parse_timestamp
from sterna_operator.keys import Key
from sterna_operator.kinds import cluster_interlock, messaging_cluster
from sterna_operator.kinds.audit_observing import audits_of
from sterna_operator.kinds.cluster_interlock import HOLD_MS, WAIT_MS, AuditSeen
from sterna_operator.objects import Objects
from sterna_operator.plans import RemoveObject
from sterna_operator.view import View

from tests.operator.audit_objects import audit_job, cluster
from tests.operator.cluster_world import World, settled

QUIET = AuditSeen("AuditJob mq/nightly", is_suspended=True)
EAGER = replace(QUIET, is_suspended=False)
BUSY = replace(QUIET, running=("nightly-29400000",))
CHANGED: dict[str, Any] = {"brokers": 3, "settings": {"limits": {"sessions": 7}}}


def _see(world: World, *audits: AuditSeen, now_ms: int | None = None) -> None:
    now = world.observed.now_ms if now_ms is None else now_ms
    world.observed = replace(world.observed, audits=audits, now_ms=now)


def _maintenance(world: World) -> dict[str, Any] | None:
    found: dict[str, Any] | None = world.desired.status.get("maintenance")
    return found


def _changed(*audits: AuditSeen) -> World:
    """Three brokers whose settings have just changed."""
    world = settled({"brokers": 3})
    _see(world, *audits)
    world.edit(CHANGED)
    return world


def test_without_audits_nothing_is_waited_for_nor_said() -> None:
    world = _changed()
    world.settle()
    assert world.restarted == ["orders-broker-2", "orders-broker-1", "orders-broker-0"]
    assert _maintenance(world) is None


@pytest.mark.parametrize("audit", [EAGER, BUSY, replace(BUSY, is_suspended=False)])
def test_no_broker_is_restarted_before_audits_stand_back(audit: AuditSeen) -> None:
    world = _changed(audit)
    for _ in range(3):
        assert not [step for step in world.reconcile().steps if isinstance(step, RemoveObject)]
    assert _maintenance(world) == {"reason": "Rolling", "left": 3, "since": "1970-01-01T00:00:00Z"}
    wanted = "waits for run nightly-29400000 of AuditJob mq/nightly" if audit.running else "waits for AuditJob"
    assert wanted in world.message()
    _see(world, QUIET)
    world.settle()
    assert world.restarted == ["orders-broker-2", "orders-broker-1", "orders-broker-0"]
    assert _maintenance(world) is None, "audits go on"


def test_nothing_is_touched_before_it_stands_in_the_status_that_it_will_be() -> None:
    world = _changed(QUIET)
    assert not [step for step in world.reconcile().steps if isinstance(step, RemoveObject)]
    assert (_maintenance(world) or {})["left"] == 3
    world.reconcile()
    assert world.restarted == ["orders-broker-2"]


def test_a_run_is_waited_for_so_long_and_no_longer_and_so_for_each_broker() -> None:
    world = _changed(BUSY)
    world.reconcile()
    _see(world, BUSY, now_ms=WAIT_MS)
    world.reconcile()
    assert world.restarted == []
    _see(world, BUSY, now_ms=WAIT_MS + 1_000)
    world.reconcile()
    assert world.restarted == ["orders-broker-2"]
    # The next one has its own time.
    world.reconcile()
    assert world.restarted == ["orders-broker-2"]
    assert (_maintenance(world) or {})["left"] == 2
    _see(world, BUSY, now_ms=2 * WAIT_MS + 3_000)
    world.reconcile()
    assert world.restarted == ["orders-broker-2", "orders-broker-1"]


def test_an_operator_that_starts_anew_goes_on_waiting_and_no_longer_than_the_one_before() -> None:
    world = _changed(BUSY)
    world.reconcile()
    # All that another operator knows is what stands in the objects.
    another = World(CHANGED)
    another.desired, another.observed = world.desired, world.observed
    _see(another, BUSY, now_ms=WAIT_MS - 1)
    another.reconcile()
    assert another.restarted == []
    _see(another, BUSY, now_ms=WAIT_MS + 1_000)
    another.reconcile()
    assert another.restarted == ["orders-broker-2"]


def test_a_broker_that_does_not_serve_anyway_is_repaired_at_once() -> None:
    world = _changed(BUSY)
    world.change_pod("orders-broker-1", is_ready=False, fault="CrashLoopBackOff")
    world.reconcile()
    assert world.restarted == ["orders-broker-1"]


def test_audits_stand_back_until_the_last_one_serves_again() -> None:
    world = _changed(QUIET)
    for _ in range(10):
        world.reconcile()
        if len(world.restarted) == 3:
            break
    world.change_pod("orders-broker-0", is_ready=False)
    world.reconcile()
    maintenance = _maintenance(world)
    assert maintenance is not None
    assert (maintenance["left"], cluster_interlock.holds(maintenance, 0)) == (0, "brokers are starting again")
    assert cluster_interlock.holds(maintenance, HOLD_MS + 1_000) == "", "audits go on although it never comes"
    world.change_pod("orders-broker-0", is_ready=True)
    world.reconcile()
    assert _maintenance(world) is None


def test_an_emptied_broker_goes_only_when_audits_stand_back() -> None:
    world = settled({"brokers": 2})
    world.messages["orders-broker-1"] = 3
    world.reconcile()
    _see(world, BUSY)
    world.edit({"brokers": 1})
    world.reconcile()
    world.reconcile()
    # It is being emptied, which may take days: nothing keeps audits from going on meanwhile.
    assert _maintenance(world) is None
    world.messages.clear()
    for _ in range(3):
        world.reconcile()
    assert set(world.pods) == {"orders-broker-0", "orders-broker-1"}
    assert (_maintenance(world) or {})["reason"] == "Scaling"
    assert "has nothing left, and waits for run nightly-29400000" in world.message()
    _see(world, QUIET)
    world.settle()
    assert set(world.pods) == {"orders-broker-0"}
    assert _maintenance(world) is None


def test_an_emptied_broker_goes_only_when_a_last_snapshot_of_it_was_taken_however_long_that_takes() -> None:
    world = settled({"brokers": 2})
    taking = replace(QUIET, takes_last="nightly")
    _see(world, taking, now_ms=5_000)
    world.edit({"brokers": 1})
    for _ in range(3):
        world.reconcile()
    maintenance = _maintenance(world)
    assert maintenance is not None
    assert maintenance["leaving"] == ["orders-broker-1"]
    assert "waits for AuditJob mq/nightly to take a last snapshot of orders-broker-1" in world.message()
    _see(world, replace(taking, ended={"nightly-last-5": False}), now_ms=10 * HOLD_MS)
    world.reconcile()
    assert "could not take a last snapshot: Job nightly-last-5 says why" in world.message()
    # One of another time is none of this.
    _see(world, replace(taking, ended={"nightly-last-4": True}))
    world.reconcile()
    assert set(world.pods) == {"orders-broker-0", "orders-broker-1"}
    _see(world, replace(taking, ended={"nightly-last-5": True}))
    world.settle()
    assert set(world.pods) == {"orders-broker-0"}
    assert _maintenance(world) is None


def test_force_does_without_a_last_snapshot_and_says_so() -> None:
    world = settled({"brokers": 2})
    _see(world, replace(QUIET, takes_last="nightly"))
    world.edit({"brokers": 1}, annotations={"sterna.dev/force-drain": "true"})
    said = [one.message for _ in range(4) for one in world.reconcile().announcements]
    assert set(world.pods) == {"orders-broker-0"}
    assert any("orders-broker-1 taken away by force, without a last snapshot" in text for text in said)


def test_force_waits_for_nobody() -> None:
    world = settled({"brokers": 2})
    _see(world, BUSY)
    world.edit({"brokers": 1}, annotations={"sterna.dev/force-drain": "true"})
    world.settle()
    assert set(world.pods) == {"orders-broker-0"}


def test_a_paused_cluster_holds_no_audit() -> None:
    world = _changed(BUSY)
    world.reconcile()
    assert _maintenance(world) is not None
    world.edit({**CHANGED, "paused": {}})
    world.reconcile()
    assert _maintenance(world) is None


def test_audits_are_asked_for_only_by_who_is_about_to_touch_a_broker() -> None:
    """Two requests for each AuditJob: a cluster that has a thousand is looked at once a minute all the same."""
    world = settled({"brokers": 3})
    is_asked = messaging_cluster.touches_brokers
    assert not is_asked(world.desired, world.observed)
    # Who is not asked would have changed nothing.
    _see(world, BUSY)
    with_audits = world.decide()
    _see(world)
    assert world.decide() == with_audits
    world.edit(CHANGED)
    # The changed settings are written first; brokers are outdated by them at once.
    assert is_asked(world.desired, world.observed)
    _see(world, QUIET)
    world.reconcile()
    assert _maintenance(world) is not None
    assert is_asked(world.desired, world.observed), "what was said has to be taken back"
    world.settle()
    assert not is_asked(world.desired, world.observed)
    world.edit({**CHANGED, "brokers": 2})
    asked = []
    while len(world.pods) == 3:
        asked.append(is_asked(world.desired, world.observed))
        world.reconcile()
    # While it is being emptied, which may take days, nobody is asked.
    assert (asked[0], asked[-1]) == (False, True)
    world.edit({**CHANGED, "brokers": 1, "paused": {}})
    assert not is_asked(world.desired, world.observed)


class _Kubernetes:
    """An AuditJob's CronJob that begins runs, and no Job."""

    async def list(self, *_: object, **__: object) -> list[dict[str, Any]]:
        return []

    async def get(self, _: object) -> dict[str, Any]:
        return {"spec": {"suspend": False}}


@pytest.mark.parametrize(
    ("paused", "takes_last"),
    [
        (None, "nightly"),
        ({}, ""),
        ({"until": "2030-01-31T18:00:00Z"}, ""),
        ({"until": "2020-01-31T18:00:00Z"}, "nightly"),
    ],
)
async def test_an_audit_job_whose_pause_is_over_takes_a_last_snapshot_and_is_waited_for(
    paused: dict[str, str] | None, takes_last: str
) -> None:
    objects, key = Objects(), Key("MessagingCluster", "mq", "orders")
    manifest = audit_job({} if paused is None else {"paused": paused}).model_dump(by_alias=True, exclude_none=True)
    objects.put({**manifest, "metadata": {**manifest["metadata"], "resourceVersion": "1", "uid": "u"}})
    objects.note_listed("AuditJob", None)
    objects.note_listed("StoreSnapshot", None)
    now_ms = parse_timestamp("2026-01-01T00:00:00Z")
    settings = SimpleNamespace(namespaces=())
    view = SimpleNamespace(kube=_Kubernetes(), objects=objects, settings=settings, now_ms=lambda: now_ms)
    [seen] = await audits_of(cast("View", view), cluster(), key)
    assert (seen.takes_last, seen.is_suspended) == (takes_last, not takes_last)
