"""Objects of which there may be many, as the operator's own list and watch tells of them, from a real API server."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sterna_operator.clusters import Clusters
from sterna_operator.following import Follower
from sterna_operator.keys import Key
from sterna_operator.kube import Kube, load_configuration
from sterna_operator.objects import Objects
from sterna_operator.running import stores_first
from sterna_operator.watching import WatchClock, Watched

from tests.operator.worlds import API, World
from tests.support.unreliable_proxy import UnreliableProxy
from tests.waiting import eventually

pytestmark = [
    pytest.mark.slow_callbacks(30_000),
]
_TIMEOUT_S = 30.0


class Heard:
    """What a follower has told."""

    def __init__(self) -> None:
        self.events: list[tuple[str | None, str]] = []
        self.objects: dict[str, Mapping[str, Any]] = {}
        self.lists: list[set[str]] = []

    def on_event(self, event: str | None, object: Mapping[str, Any]) -> None:
        name = object["metadata"]["name"]
        self.events.append((event, name))
        self.objects[name] = object

    def on_listed(self, kind: str, namespace: str | None, found: set[Key], version: int) -> None:
        assert kind == "Queue"
        assert version > 0
        self.lists.append({key.name for key in found})

    async def of(self, event: str | None, name: str) -> None:
        await eventually(lambda: (event, name) in self.events, timeout_s=_TIMEOUT_S, what=f"{event} {name}")


@pytest.fixture
def proxy(world: World, tmp_path: Path) -> Iterator[UnreliableProxy]:
    with UnreliableProxy(world.server.url, world.server.kubeconfig, tmp_path) as made:
        yield made


@asynccontextmanager
async def following(world: World, kubeconfig: Path, **options: Any) -> AsyncIterator[Heard]:
    heard, kube = Heard(), Kube(await load_configuration(kubeconfig))
    silence_s = options.get("inactivity_s", 70.0)
    turn = options.get("turn")
    follower = Follower(
        kube, Watched(API, "Queue"), world.namespace, heard, WatchClock(), inactivity_s=silence_s, turn=turn
    )
    task = asyncio.create_task(follower.run())
    try:
        yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await kube.close()


async def test_what_is_there_comes_first_and_then_every_change(world: World) -> None:
    world.queue("before")
    async with following(world, world.server.kubeconfig) as heard:
        await heard.of(None, "before")
        await eventually(lambda: heard.lists == [{"before"}], timeout_s=_TIMEOUT_S)
        world.queue("new")
        await heard.of("ADDED", "new")
        world.queue("new", maxMessages=3)
        await heard.of("MODIFIED", "new")
        assert heard.objects["new"]["spec"]["maxMessages"] == 3
        world.delete("Queue", "new")
        await heard.of("DELETED", "new")
        assert heard.lists == [{"before"}]


async def test_an_object_larger_than_any_buffer_comes_whole(world: World) -> None:
    async with following(world, world.server.kubeconfig) as heard:
        await eventually(lambda: heard.lists, timeout_s=_TIMEOUT_S)
        world.queue("large")
        world.annotate("Queue", "large", {"example.com/note": "x" * 200_000})
        await heard.of("MODIFIED", "large")
        assert len(heard.objects["large"]["metadata"]["annotations"]["example.com/note"]) == 200_000


async def test_a_version_that_is_too_old_has_everything_listed_again(world: World, proxy: UnreliableProxy) -> None:
    """What was deleted meanwhile is missing from the list, which is how it is noticed."""
    world.queue("stays")
    world.queue("goes")
    is_cut = False

    def failing(_: str, path: str) -> int | None:
        return 410 if is_cut and "watch=true" in path else None

    proxy.failing = failing
    async with following(world, proxy.kubeconfig, inactivity_s=3.0) as heard:
        await eventually(lambda: proxy.passed_watches and heard.lists, timeout_s=_TIMEOUT_S)
        assert heard.lists == [{"stays", "goes"}]
        is_cut = True
        proxy.freeze()
        world.delete("Queue", "goes")
        await eventually(lambda: {"stays"} in heard.lists, timeout_s=_TIMEOUT_S, what="another list")
        assert ("DELETED", "goes") not in heard.events
        is_cut = False
        proxy.thaw()
        world.queue("later")
        await eventually(lambda: "later" in heard.objects, timeout_s=_TIMEOUT_S, what="what came afterwards")


async def test_what_is_new_is_told_while_the_rest_is_still_being_listed(world: World, proxy: UnreliableProxy) -> None:
    world.queue("old")
    is_slow = True
    # The first look asks for one object; a list is one for five hundred.
    proxy.failing = lambda _, path: 503 if is_slow and "limit=500" in path else None
    async with following(world, proxy.kubeconfig) as heard:
        await eventually(lambda: proxy.passed_watches and proxy.failed, timeout_s=_TIMEOUT_S, what="a failing list")
        world.queue("new")
        await heard.of("ADDED", "new")
        assert heard.lists == []
        assert (None, "old") not in heard.events
        is_slow = False
        await heard.of(None, "old")


async def test_a_server_that_fails_is_asked_until_it_answers(world: World, proxy: UnreliableProxy) -> None:
    world.queue("orders")
    proxy.failing = lambda _, path: 500
    async with following(world, proxy.kubeconfig) as heard:
        await eventually(lambda: len(proxy.failed) >= 4, timeout_s=_TIMEOUT_S, what="several attempts")
        assert heard.events == []
        proxy.failing = lambda _, path: None
        await heard.of(None, "orders")


async def test_what_is_new_is_told_while_the_list_waits_for_its_turn(world: World) -> None:
    world.queue("before")
    turn = asyncio.Event()

    async def wait() -> None:
        await turn.wait()

    async with following(world, world.server.kubeconfig, turn=wait) as heard:
        versions = itertools.count(1)

        def is_watched() -> bool:
            # Something new each time: the first may have been there when the list was read, which tells of it later.
            world.queue("new", maxMessages=next(versions))
            return bool(heard.events)

        await eventually(is_watched, timeout_s=_TIMEOUT_S, what="the watch")
        assert "before" not in heard.objects
        assert heard.lists == []
        turn.set()
        await eventually(lambda: heard.lists == [{"before", "new"}], timeout_s=_TIMEOUT_S)


class Reading:
    """A cluster's store, as far as who waits for it sees it."""

    is_listing = True


class Stores(Clusters):
    """Clusters whose stores are what the test says."""

    def __init__(self, stores: dict[Key, Any]) -> None:
        self.stores = stores
        self.asked = 0

    def all(self) -> dict[Key, Any]:
        self.asked += 1
        return self.stores

    async def asked_more(self) -> None:
        """They are asked for twice more: whoever asks has found nothing to go on with the first time."""
        wanted = self.asked + 2
        await eventually(lambda: self.asked >= wanted, timeout_s=_TIMEOUT_S, what="another look")


async def test_lists_wait_for_etcd_while_it_is_read_and_for_none_that_does_not_answer() -> None:
    cluster, objects = Key("MessagingCluster", "ns", "mq"), Objects()
    metadata = {"name": "mq", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    objects.put({"apiVersion": API, "kind": "MessagingCluster", "metadata": metadata, "spec": {}})
    reading = Reading()
    stores = Stores({})
    waiting = asyncio.create_task(stores_first(stores, objects))
    await stores.asked_more()
    assert not waiting.done(), "its store is not open yet"
    stores.stores = {cluster: reading}
    await stores.asked_more()
    assert not waiting.done(), "it is being read"
    reading.is_listing = False
    async with asyncio.timeout(5):
        await waiting
