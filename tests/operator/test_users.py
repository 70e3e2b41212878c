"""Users: passwords from Secrets become hashes in etcd; old and new together, or the old one at once no more."""

import time

import pytest
from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError
from sterna_etcd.records import UserRecord
from sterna_operator.kube import path

from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.waiting import eventually, within

pytestmark = pytest.mark.slow_callbacks(30_000)


async def _record(world: World, name: str) -> UserRecord | None:
    found = (await world.client.get(world.layout.user(name))).found
    return None if found is None else UserRecord.decode(found.key, found.value)


def _takes(record: UserRecord | None, password: str) -> bool:
    """Whether a broker would let the password in."""
    for one in record.credentials if record else ():
        if one.not_after_ms is not None and one.not_after_ms <= time.time() * 1000:
            continue
        try:
            return PasswordHasher().verify(one.argon2, password)
        except VerifyMismatchError:
            continue
    return False


async def _until_taken(world: World, name: str, password: str) -> UserRecord:
    async def check() -> UserRecord | None:
        record = await _record(world, name)
        return record if _takes(record, password) else None

    found = await eventually(check, timeout_s=30.0, what=f"{name} taken with {password}")
    assert found is not None
    return found


async def _change(world: World, name: str) -> float:
    """How long it takes until a changed password is taken."""
    secret = f"{name}-password"
    world.secret(secret, "one")
    world.apply("User", name, {"passwordSecret": {"name": secret}})
    await world.ready("User", name)
    began = time.monotonic()
    world.secret(secret, "two")
    await _until_taken(world, name, "two")
    return time.monotonic() - began


async def _arrival(world: World, name: str) -> float:
    """How long it takes until a User is ready whose Secret has come."""
    secret = f"{name}-password"
    world.apply("User", name, {"passwordSecret": {"name": secret}})
    assert await world.reason("User", name, "ReferenceMissing") == f"waits for the Secret {world.namespace}/{secret}"
    began = time.monotonic()
    world.secret(secret, "two")
    await world.ready("User", name)
    return time.monotonic() - began


async def test_a_changed_secret_is_taken_within_5_s_and_the_old_password_for_the_overlap(
    world: World, operator: MakeOperator
) -> None:
    world.make_cluster()
    # The log is to tell of nothing that came of a lead that ran out.
    running = operator(lease_duration_s=30.0)
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        world.apply("User", "ann", {"passwordSecret": {"name": "her-password"}, "overlapSeconds": 20})
        text = await world.reason("User", "ann", "ReferenceMissing")
        assert text == f"waits for the Secret {world.namespace}/her-password"
        world.secret("her-password", "one")
        await _until_taken(world, "ann", "one")
        ready = await world.ready("User", "ann")
        assert ready["status"]["credentials"] == 1
        world.secret("her-password", "two")
        both = await _until_taken(world, "ann", "two")
        assert _takes(both, "one")
        await eventually(lambda: broker.credentials.get("ann") == 2)
        shown = await eventually(lambda: (world.get("User", "ann") or {})["status"].get("overlapUntil"))
        assert shown
        await eventually(lambda: broker.credentials.get("ann") == 1, timeout_s=45.0)
        after = await _record(world, "ann")
        assert _takes(after, "two")
        assert not _takes(after, "one")
        await eventually(lambda: "CredentialsChanged" in world.events("ann"))
        await within(5.0, lambda number: _change(world, f"bob-{number}"))
        await within(2.0, lambda number: _arrival(world, f"eve-{number}"))
    assert "one" not in running.log.replace("done", "").replace("none", "").split()
    assert "object put back" not in running.log


async def test_a_revoked_password_ends_at_once(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator()
    world.secret("her-password", "one")
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        spec = {"passwordSecret": {"name": "her-password"}, "revokeImmediately": True}
        world.apply("User", "ann", spec)
        await world.ready("User", "ann")
        world.secret("her-password", "two")
        record = await _until_taken(world, "ann", "two")
        assert len(record.credentials) == 1


async def test_a_restarted_operator_makes_no_new_hash_of_an_unchanged_password(
    world: World, operator: MakeOperator
) -> None:
    world.make_cluster()
    running = operator()
    world.secret("her-password", "one")
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.apply("User", "ann", {"passwordSecret": {"name": "her-password"}})
        await world.ready("User", "ann")
        before = await _record(world, "ann")
        running.kill()
        world.end_lead()
        running.start()
        world.queue("mark")
        await world.ready("Queue", "mark")
        world.apply("User", "ann", {"passwordSecret": {"name": "her-password"}, "overlapSeconds": 1})
        await world.ready("User", "ann")
        assert await _record(world, "ann") == before


async def test_a_deleted_user_is_let_in_no_more_before_the_object_goes(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator()
    world.secret("her-password", "one")
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        world.apply("User", "ann", {"passwordSecret": {"name": "her-password"}})
        await world.ready("User", "ann")
        broker.is_late = True
        world.delete("User", "ann")
        await world.reason("User", "ann", "Deleting")
        # The object says so first; what brokers go by may come a moment later.
        await eventually(lambda: broker.credentials["ann"] == 0, timeout_s=30.0)
        assert world.get("User", "ann") is not None
        broker.is_late = False
        world.queue("wakes-the-double")
        await world.gone("User", "ann")
        assert await _record(world, "ann") is None


async def test_secrets_of_others_are_neither_listed_nor_watched(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    for number in range(20):
        world.secret(f"foreign-{number}", "none of ours")
    running = operator()
    world.secret("her-password", "one")
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.apply("User", "ann", {"passwordSecret": {"name": "her-password"}})
        await world.ready("User", "ann")
        figures = world.metrics(running.address)
        assert figures["sterna_operator_secret_watches"] == 1.0


async def test_with_rights_to_get_and_no_more_secrets_are_asked_for(world: World, operator: MakeOperator) -> None:
    """An operator that may not watch Secrets still notices their changes within 5 s."""
    rules = [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
        {"apiGroups": ["sterna.dev"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch", "get"]},
        {
            "apiGroups": ["", "apps", "policy", "networking.k8s.io"],
            "resources": [
                "statefulsets",
                "services",
                "configmaps",
                "serviceaccounts",
                "pods",
                "persistentvolumeclaims",
                "poddisruptionbudgets",
                "networkpolicies",
            ],
            "verbs": ["get", "list", "watch"],
        },
    ]
    kubeconfig = world.limited("watcher", rules)
    world.make_cluster()
    operator(kubeconfig=str(kubeconfig))
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        await within(5.0, lambda number: _change(world, f"ann-{number}"))


async def test_a_secret_without_the_key_and_one_that_is_no_text(world: World, operator: MakeOperator) -> None:
    world.make_cluster()
    operator()
    where = path("v1", "Secret", world.namespace)
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "odd"}, "data": {"other": "/w=="}}
    assert world.server.request("POST", where, body).ok
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.apply("User", "ann", {"passwordSecret": {"name": "odd"}})
        assert "waits for password in the Secret" in await world.reason("User", "ann", "ReferenceMissing")
        world.apply("User", "ann", {"passwordSecret": {"name": "odd", "key": "other"}})
        assert "no UTF-8" in await world.reason("User", "ann", "Invalid")
