"""What an operator learns while it starts: nothing that goes in between may stay in its copy."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sterna_operator.apply import Applier
from sterna_operator.keys import Key
from sterna_operator.kube import load_configuration
from sterna_operator.objects import CLUSTER
from sterna_operator.plans import FINALIZER, RemoveFinalizer
from sterna_operator.running import Parts, assemble, followers, load
from sterna_operator.settings import OperatorSettings

from tests.operator.worlds import World
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(30_000)


@pytest.fixture
async def parts(world: World) -> AsyncIterator[Parts]:
    settings = OperatorSettings(namespaces=(world.namespace,), lease_namespace=world.namespace)
    made = assemble(settings, await load_configuration(world.server.kubeconfig))
    yield made
    await made.secrets.close()
    await made.clusters.close()
    await made.kube.close()


async def test_a_cluster_that_goes_between_two_lists_is_forgotten(world: World, parts: Parts) -> None:
    world.make_cluster()
    key = Key(CLUSTER, world.namespace, "mq")
    await load(parts)
    assert parts.objects.get(key) is not None
    world.delete(CLUSTER, "mq")
    tasks = [asyncio.create_task(follower.run()) for _, follower in followers(parts)]
    try:
        await eventually(lambda: parts.objects.get(key) is None, what="the cluster to be forgotten")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_was_let_go_is_known_without_its_finalizer(world: World, parts: Parts) -> None:
    world.queue("orders")
    standing = world.get("Queue", "orders")
    assert standing is not None
    standing["metadata"]["finalizers"] = [FINALIZER]
    world.delete("Queue", "orders")
    applier = Applier(parts.kube, standing, None, lambda: None)
    await applier.execute([RemoveFinalizer("let it go, which is gone already")])
    assert applier.object is not None
    assert applier.object["metadata"]["finalizers"] == []
