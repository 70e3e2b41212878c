"""The operator's parts put together, started in order, and ended together."""

import asyncio
import contextlib
import json
import signal
import time  # noqa: TID251 - the operator as a process is not simulated
from dataclasses import dataclass, field
from functools import partial

import structlog
from kubernetes.aio import client

from sterna_operator.clusters import Clusters
from sterna_operator.connections import make_room
from sterna_operator.events import Events
from sterna_operator.following import Follower
from sterna_operator.kinds.registry import kinds
from sterna_operator.kube import STERNA_API, Kube, KubeError, load_configuration
from sterna_operator.leader import Leader, LostLeadError
from sterna_operator.leaving import let_go
from sterna_operator.liveness import Liveness, serve
from sterna_operator.looks import Looks
from sterna_operator.metrics import Metrics
from sterna_operator.named_watches import NamedWatches
from sterna_operator.objects import CLUSTER, Objects, key_of
from sterna_operator.own_writes import OwnWrites
from sterna_operator.ownership import Ownership
from sterna_operator.put_back import PutBack
from sterna_operator.secrets import Secrets
from sterna_operator.settings import OperatorSettings
from sterna_operator.store import FencedError
from sterna_operator.view import Kind, View, stands
from sterna_operator.wakeups import CLUSTER_LABEL, Wakeups, flow_of
from sterna_operator.watching import WatchClock, Watched, follow
from sterna_operator.work_queue import Priority, TokenBucket, WorkQueue
from sterna_operator.worker import Worker

log = structlog.get_logger(__name__)

# Why the process ends, as its exit status.
ENDED_BY_SIGNAL = 0
ENDED_BY_FAULT = 1
ENDED_BY_OTHER_LEADER = 3

# So long the lists of objects wait for what is listed of etcd, and for clusters to be opened before that.
_STORES_MAX_S = 30.0
_OPENING_MAX_S = 2.0

# So long what is well already waits for everything to be listed.
_LISTING_MAX_S = 60.0


class StartError(Exception):
    """The operator cannot begin; the text says what to do."""


@dataclass
class Parts:
    """Everything that there is one of."""

    settings: OperatorSettings
    configuration: client.Configuration
    kube: Kube
    kinds: dict[str, Kind]
    objects: Objects
    queue: WorkQueue
    wakeups: Wakeups
    secrets: Secrets
    named: NamedWatches
    leader: Leader
    clusters: Clusters
    metrics: Metrics
    clock: WatchClock
    ownership: Ownership
    own_writes: OwnWrites
    put_back: PutBack = field(default_factory=PutBack)

    @property
    def view(self) -> View:
        """What kinds may look at."""
        return View(
            self.settings,
            self.kube,
            self.objects,
            self.clusters,
            self.secrets,
            self.put_back,
            named=self.named,
            own_writes=self.own_writes,
        )


def assemble(settings: OperatorSettings, configuration: client.Configuration) -> Parts:
    """The parts, none of them started."""
    kube, objects = Kube(configuration), Objects()
    bucket = TokenBucket(settings.background_rate, settings.background_rate * 2)
    queue = WorkQueue(bucket=bucket, flow_of=partial(flow_of, objects))
    own_writes = OwnWrites()
    wakeups = Wakeups(queue, objects, own_writes)
    leader = Leader(
        kube,
        settings.lease_namespace,
        settings.lease_name,
        settings.identity,
        duration_s=settings.lease_duration_s,
    )
    clusters = wakeups.clusters = Clusters(
        leader, wakeups.on_store, wakeups.on_state, partial(stands, objects), settings.allowed_etcd_endpoints
    )
    secrets = Secrets(kube, wakeups.on_secret, wakeups.is_referred, inactivity_s=settings.watch_inactivity_s)
    named = NamedWatches(kube, wakeups.on_named_child, wakeups.is_named_child, inactivity_s=settings.watch_inactivity_s)
    parts = Parts(
        settings,
        configuration,
        kube,
        kinds(),
        objects,
        queue,
        wakeups,
        secrets,
        named,
        leader,
        clusters,
        Metrics(),
        WatchClock(dead_after_s=settings.watch_dead_after_s),
        Ownership(kube, settings.claim, lease_s=settings.lease_duration_s),
        own_writes,
    )
    kube.on_end = parts.clock.note_server
    parts.metrics.watch_over(
        queue, objects, clusters, secrets, kube, parts.clock, parts.ownership, lambda: leader.is_leading
    )
    return parts


async def run(settings: OperatorSettings) -> int:
    """Runs until a signal comes, the lead is lost or a part fails; the exit status.

    Raises:
        StartError: it cannot begin.
    """
    make_room()
    parts = assemble(settings, await load_configuration(settings.kubeconfig))
    liveness = Liveness(parts.clock, parts.clusters, parts.queue, lambda: parts.leader.is_leading)
    ready, stop = asyncio.Event(), asyncio.Event()
    runner, address = await serve(settings.listen, liveness, parts.metrics, ready.is_set)
    # Before kopf: when kopf ends, it cancels every task that is younger than itself.
    ending = asyncio.create_task(_until_ended(parts, liveness, ready, stop, address), name="operator")
    async with contextlib.AsyncExitStack() as ends:
        for end in (parts.kube.close, runner.cleanup, parts.clusters.close, parts.named.close, parts.secrets.close):
            ends.push_async_callback(end)
        return await ending


async def _until_ended(
    parts: Parts, liveness: Liveness, ready: asyncio.Event, stop: asyncio.Event, address: str
) -> int:
    await check_kinds(parts.kube, parts)
    await load(parts)
    events = Events(parts.kube, parts.settings.identity)
    worker = Worker(
        parts.view, parts.kinds, parts.queue, parts.wakeups, events, parts.leader, parts.metrics, parts.ownership
    )
    following = followers(parts)
    looks = Looks(
        parts.settings,
        parts.kube,
        parts.kinds,
        parts.objects,
        parts.queue,
        parts.wakeups,
        parts.clusters,
        parts.leader,
    )
    tasks = [
        asyncio.create_task(parts.leader.run(), name="leader"),
        asyncio.create_task(looks.at_all(), name="resync"),
        asyncio.create_task(looks.at_clusters(), name="clusters"),
        asyncio.create_task(_say_ready(parts, ready, [follower for _, follower in following], address), name="ready"),
        *(asyncio.create_task(worker.run(), name=f"worker {number}") for number in range(parts.settings.workers)),
        *(asyncio.create_task(follower.run(), name=f"follow {kind}") for kind, follower in following),
    ]
    # A kind that cannot be listed must not keep all others from ever being looked at.
    asyncio.get_running_loop().call_later(_LISTING_MAX_S, parts.queue.release)
    watching = asyncio.create_task(
        follow(
            parts.configuration,
            parts.settings.namespaces,
            watched(parts.kinds),
            parts.wakeups.on_event,
            parts.clock,
            ready,
            stop,
            inactivity_s=parts.settings.watch_inactivity_s,
        ),
        name="kopf",
    )
    told = asyncio.create_task(_until_told(ready), name="signals")
    done, _ = await asyncio.wait([*tasks, watching, told], return_when=asyncio.FIRST_COMPLETED)
    status = _status_of(done - {told}, watching, liveness)
    for task in (*tasks, told):
        task.cancel()
    await asyncio.gather(*tasks, told, return_exceptions=True)
    if status == ENDED_BY_SIGNAL:
        await let_go(parts.kube, list(parts.kinds), parts.settings.lease_namespace)
    if status != ENDED_BY_OTHER_LEADER:
        await parts.leader.release()
    # What is younger than kopf it takes for its own, and waits 5 s for it to end: nothing may be left by then.
    await parts.named.close()
    await parts.secrets.close()
    await parts.clusters.close()
    stop.set()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(10):
            await asyncio.gather(watching, return_exceptions=True)
    return status


async def _until_told(ready: asyncio.Event) -> None:
    """Until a signal asks the process to end.

    In place of kopf, which hears signals until then: it would end itself first, over 5 s, and the lead with it only
    afterwards.
    """
    await ready.wait()
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    await told.wait()


def _status_of(done: set[asyncio.Task[None]], watching: asyncio.Task[None], liveness: Liveness) -> int:
    status = ENDED_BY_SIGNAL
    for task in done:
        liveness.ended.append(task.get_name())
        error = None if task.cancelled() else task.exception()
        if isinstance(error, LostLeadError | FencedError):
            log.warning("another operator leads", error=str(error))
            status = ENDED_BY_OTHER_LEADER
        elif error is not None or task is not watching:
            log.error("a part has ended", part=task.get_name(), error=repr(error), exc_info=error)
            status = status or ENDED_BY_FAULT
    return status


async def check_kinds(kube: Kube, parts: Parts) -> None:
    """Looks whether the API server knows our kinds.

    Raises:
        StartError: it does not, or will not say.
    """
    namespace = parts.settings.namespaces[0] if parts.settings.namespaces else None
    for kind in parts.kinds:
        try:
            await kube.list(STERNA_API, kind, namespace, only_metadata=True, page_max=1)
        except KubeError as error:
            hint = "install the chart sterna-crds first" if error.code == 404 else "see the operator's roles"
            raise StartError(f"{kind} of {STERNA_API} cannot be listed ({error}): {hint}") from error


async def load(parts: Parts) -> None:
    """Reads all clusters: what names one must not be taken for an orphan because the watches are still beginning."""
    if CLUSTER not in parts.kinds:
        return
    for namespace in parts.settings.namespaces or (None,):
        for object in await parts.kube.list(STERNA_API, CLUSTER, namespace):
            parts.objects.put(object)
            parts.queue.add(key_of(object), Priority.REFERENCE)


def watched(known: dict[str, Kind]) -> list[Watched]:
    """What kopf watches: the objects that are made for clusters."""
    children = {(child.api_version, child.kind) for kind in known.values() for child in kind.children}
    return [Watched(version, kind, CLUSTER_LABEL) for version, kind in sorted(children)]


def followers(parts: Parts) -> list[tuple[str, Follower]]:
    """What we follow ourselves: our own kinds; each with its kind."""
    made = []
    for kind in parts.kinds:
        for namespace in parts.settings.namespaces or (None,):
            parts.wakeups.expect(kind, namespace)
            follower = Follower(
                parts.kube,
                Watched(STERNA_API, kind),
                namespace,
                parts.wakeups,
                parts.clock,
                inactivity_s=parts.settings.watch_inactivity_s,
                turn=None if kind == CLUSTER else partial(stores_first, parts.clusters, parts.objects),
            )
            made.append((kind, follower))
    return made


async def stores_first(clusters: Clusters, objects: Objects) -> None:
    """Waits while clusters' etcds are read: without that nothing can be done for any object, however new.

    Both keep a core busy, for tens of thousands of objects for seconds. An etcd that does not answer is not waited for.
    """
    began = time.monotonic()
    while (waited_s := time.monotonic() - began) < _STORES_MAX_S:
        stores = clusters.all()
        opening = waited_s < _OPENING_MAX_S and any(key not in stores for key in objects.keys(CLUSTER))
        if not opening and not any(store.is_listing for store in stores.values()):
            return
        await asyncio.sleep(0.05)


async def _say_ready(parts: Parts, ready: asyncio.Event, following: list[Follower], address: str) -> None:
    await ready.wait()
    # What comes from now on is told at once. A kind that cannot be followed is said elsewhere, and holds nothing up.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_OPENING_MAX_S):
            for follower in following:
                await follower.has_begun.wait()
    log.info("watching", address=address, identity=parts.settings.identity)
    if parts.settings.ready_file is not None:
        text = json.dumps({"address": address, "identity": parts.settings.identity})
        await asyncio.to_thread(parts.settings.ready_file.write_text, text, "utf-8")
    await asyncio.Event().wait()
