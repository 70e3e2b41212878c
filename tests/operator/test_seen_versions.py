"""What the operator writes was decided from objects as it saw them; one that has changed since is not written to."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sterna_operator.apply import Applier
from sterna_operator.kube import ConflictError, Kube, load_configuration, path
from sterna_operator.plans import PatchObject, RemoveObject

from tests.operator.worlds import World

pytestmark = pytest.mark.slow_callbacks(30_000)

MERGE = "application/merge-patch+json"


@pytest.fixture
async def applier(world: World) -> AsyncIterator[Applier]:
    """Executes steps as the operator does."""
    kube = Kube(await load_configuration(world.server.kubeconfig))
    yield Applier(kube, None, None, lambda: None)
    await kube.close()


def _claim(world: World) -> dict[str, Any]:
    """A volume claim, made."""
    manifest = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    answer = world.server.request("POST", path("v1", "PersistentVolumeClaim", world.namespace), manifest)
    assert answer.ok, answer.message
    return dict(answer.body)


def _now(world: World) -> dict[str, Any]:
    return dict(world.server.request("GET", path("v1", "PersistentVolumeClaim", world.namespace, "data")).body)


def _touched(world: World, metadata: dict[str, Any]) -> None:
    """Somebody else changes it."""
    where = path("v1", "PersistentVolumeClaim", world.namespace, "data")
    answer = world.server.request("PATCH", where, {"metadata": metadata}, MERGE)
    assert answer.ok, answer.message


def _owner(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": f"uid-{name}"}


def _patch(world: World, seen: dict[str, Any], metadata: dict[str, Any]) -> PatchObject:
    version = seen["metadata"]["resourceVersion"]
    return PatchObject("patch", "v1", "PersistentVolumeClaim", world.namespace, "data", {"metadata": metadata}, version)


def _removal(world: World, seen: dict[str, Any]) -> RemoveObject:
    metadata = seen["metadata"]
    return RemoveObject(
        "remove",
        "v1",
        "PersistentVolumeClaim",
        world.namespace,
        "data",
        metadata["uid"],
        metadata["resourceVersion"],
    )


async def test_owners_that_others_have_added_since_are_not_overwritten(world: World, applier: Applier) -> None:
    seen = _claim(world)
    _touched(world, {"ownerReferences": [_owner("theirs")]})
    with pytest.raises(ConflictError):
        await applier.execute([_patch(world, seen, {"ownerReferences": [_owner("ours")]})])
    assert [one["name"] for one in _now(world)["metadata"]["ownerReferences"]] == ["theirs"]


async def test_two_patches_of_one_plan_follow_each_other(world: World, applier: Applier) -> None:
    seen = _claim(world)
    first, second = ({"annotations": {f"example.com/{name}": "1"}} for name in ("a", "b"))
    await applier.execute([_patch(world, seen, first), _patch(world, seen, second)])
    assert {"example.com/a", "example.com/b"} <= set(_now(world)["metadata"]["annotations"])


async def test_an_object_that_has_changed_since_is_not_deleted(world: World, applier: Applier) -> None:
    seen = _claim(world)
    _touched(world, {"annotations": {"example.com/a": "1"}})
    with pytest.raises(ConflictError):
        await applier.execute([_removal(world, seen)])
    assert "deletionTimestamp" not in _now(world)["metadata"]
    await applier.execute([_removal(world, _now(world))])


async def test_what_is_gone_or_going_counts_as_deleted(world: World, applier: Applier) -> None:
    seen = _claim(world)
    _touched(world, {"finalizers": ["example.com/held"]})
    await applier.execute([_removal(world, _now(world))])
    assert "deletionTimestamp" in _now(world)["metadata"]
    await applier.execute([_removal(world, seen)])
    _touched(world, {"finalizers": None})
    await applier.execute([_removal(world, seen)])
    assert world.server.request("GET", path("v1", "PersistentVolumeClaim", world.namespace, "data")).status == 404
