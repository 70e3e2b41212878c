"""What happens to an operator's objects, told as stories: each with its checkpoints, for whoever disturbs the operator.

A story is told undisturbed first. Whatever is done to operator, API server or network in another telling, the same has
to be found at each checkpoint.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.etcds import RunningEtcd
from tests.operator.audit_objects import AUDIT, SNAPSHOT, result, violated
from tests.operator.audit_stage import Stage
from tests.operator.broker_double import BrokerDouble
from tests.operator.kubelet import STORAGE_CLASS, Kubelet
from tests.operator.lookouts import Lookout
from tests.operator.pairs import pair
from tests.operator.tales import Tale
from tests.support.api_server import ApiServer

# So many are told at once.
WIDTH = 6
# When the runs of the story of audits were due: long ago, so that all tellings have the same.
AUDIT_MINUTE = 29_400_000
# The flags of an operator with the real kind of clusters.
REAL = {"only_etcd": False, "broker_image": "localhost/broker:0"}

_OBJECTS = (
    ("Store", "ledger"),
    ("Queue", "kept"),
    ("Topic", "prices"),
    ("Bridge", "copy"),
    ("DurableSubscription", "audit"),
    ("User", "ann"),
)


Story = Callable[[Tale], Awaitable[None]]


async def topology(tale: Tale) -> None:
    """All kinds of which there are many: made, changed, deleted by each policy, a password changed."""
    world = tale.world
    tale.cluster(insecure=True)
    async with BrokerDouble(world.etcd_urls, world.etcd_name) as broker:
        world.secret("her-password", "one")
        tale.apply("Store", "ledger", mode="sync")
        tale.apply("Queue", "kept", store="ledger", maxMessages=1)
        tale.apply("Queue", "deleted", deletionPolicy="delete")
        tale.apply("Queue", "emptied", deletionPolicy="onlyIfEmpty")
        tale.apply("Topic", "prices")
        tale.apply("Bridge", "copy", source={"topic": "prices"}, targets=[{"queue": "kept"}])
        tale.apply("DurableSubscription", "audit", topic="prices", clientId="c", deletionPolicy="delete")
        tale.apply("DurableSubscription", "left", topic="prices", clientId="c", deletionPolicy="delete")
        tale.apply("User", "ann", passwordSecret={"name": "her-password"}, revokeImmediately=True)
        made = (*_OBJECTS, ("Queue", "deleted"), ("Queue", "emptied"), ("DurableSubscription", "left"))
        await tale.until(lambda: all(tale.is_ready(kind, name) for kind, name in made), "all ready")
        await tale.checkpoint("made")
        tale.apply("Queue", "kept", store="ledger", maxMessages=2)
        world.secret("her-password", "two")
        broker.messages["emptied"] = 1
        for kind, name in (("Queue", "deleted"), ("DurableSubscription", "left"), ("Queue", "emptied")):
            world.delete(kind, name)
        await tale.until(lambda: tale.get("Queue", "deleted") is None, "the deleted queue gone")
        await tale.until(lambda: tale.get("DurableSubscription", "left") is None, "the deleted durable gone")
        await tale.until(lambda: tale.ready("Queue", "emptied").get("reason") == "DeletionBlocked", "blocked")
        await tale.until(lambda: tale.is_ready("Queue", "kept"), "the changed queue ready")
        await tale.checkpoint("blocked")
        broker.messages.clear()
        await broker.report()
        await tale.until(lambda: tale.get("Queue", "emptied") is None, "the emptied queue gone")
        await tale.checkpoint("end")


async def cluster(tale: Tale) -> None:
    """A MessagingCluster from its making to its deletion, with all that is made for it."""
    world = tale.world
    spec: dict[str, Any] = {
        "brokers": 2,
        "image": "localhost/broker:1",
        "tls": {"certManager": {"issuerRef": {"name": "authority"}}},
        "listeners": [{"name": "outside", "type": "nodePort"}],
        "storage": {"size": "1Gi", "storageClassName": STORAGE_CLASS},
        "deletionPolicy": "onlyIfEmpty",
    }
    async with Kubelet(world, tale.lookout) as kubelet:
        tale.look_after = kubelet.check
        tale.note = lambda: {"restarts": dict(kubelet.restarts), "two brokers away": list(kubelet.faults)}

        async def serves(what: str, claims: str = "1Gi") -> None:
            def is_so() -> bool:
                pods = tale.of("Pod")
                images = {one["spec"]["containers"][0]["image"] for one in pods}
                sizes = {one["spec"]["resources"]["requests"]["storage"] for one in tale.of("PersistentVolumeClaim")}
                is_settled = len(pods) == spec["brokers"] and images == {spec["image"]} and sizes == {claims}
                return is_settled and tale.ready("MessagingCluster", "mq").get("reason") == "Serving"

            await tale.until(is_so, what)
            await tale.checkpoint(what)

        tale.cluster(**spec)
        await tale.until(lambda: tale.get("Certificate", "mq-tls"), "the certificate asked for")
        world.certificate("mq-tls", pair("one"))
        await serves("made")
        before = tale.mounted()
        world.certificate("mq-tls", pair("two"))
        await tale.until(lambda: tale.mounted().isdisjoint(before), "the new certificate mounted at once")
        spec |= {"image": "localhost/broker:2", "settings": {"drainMs": 1_000}, "pod": {"labels": {"team": "a"}}}
        tale.cluster(**spec)
        await serves("rolled")
        spec |= {"brokers": 3, "storage": {"size": "2Gi", "storageClassName": STORAGE_CLASS}}
        tale.cluster(**spec)
        await serves("larger", claims="2Gi")
        tale.apply("Queue", "orders", broker="mq-broker-2")
        await tale.until(lambda: tale.is_ready("Queue", "orders"), "the queue ready")
        kubelet.volumes["mq-broker-2"]["orders"] = 3
        await kubelet.report()
        spec |= {"brokers": 2}
        tale.cluster(**spec)
        await tale.until(lambda: tale.ready("MessagingCluster", "mq").get("reason") == "DrainBlocked", "blocked")
        await tale.checkpoint("blocked")
        kubelet.volumes["mq-broker-2"].clear()
        await kubelet.report()
        # The volume of a broker that went stays.
        await serves("smaller", claims="2Gi")
        kubelet.volumes["mq-broker-0"]["orders"] = 1
        await kubelet.report()
        # What the status says of brokers stays as it is from here on.
        await tale.until(lambda: tale.messages() == 1, "the message in the cluster's status")
        world.delete("MessagingCluster", "mq")
        await tale.until(
            lambda: tale.ready("MessagingCluster", "mq").get("reason") == "DeletionBlocked", "the deletion blocked"
        )
        await tale.checkpoint("deletion blocked")
        kubelet.volumes["mq-broker-0"].clear()
        await kubelet.report()
        # The volumes stay: a message may have come at the last moment.
        left = {"Queue", "Secret", "PersistentVolumeClaim"}
        await tale.until(lambda: {one["kind"] for one in tale.everything()} == left, "all gone but the volumes")
        await tale.checkpoint("end")


async def losses(tale: Tale) -> None:
    """A broker that died for good is given up by force, and the cluster is deleted with what it holds."""
    world = tale.world
    storage = {"size": "1Gi", "storageClassName": STORAGE_CLASS}
    spec: dict[str, Any] = {"brokers": 2, "insecure": True, "storage": storage, "deletionPolicy": "delete"}
    async with Kubelet(world, tale.lookout) as kubelet:
        tale.look_after = kubelet.check

        def says(text: str) -> bool:
            ready = tale.ready("MessagingCluster", "mq")
            return text in f"{ready.get('reason')}: {ready.get('message')}"

        tale.cluster(**spec)
        await tale.until(lambda: says("Serving"), "made")
        tale.apply("Queue", "orders", broker="mq-broker-1")
        await tale.until(lambda: tale.is_ready("Queue", "orders"), "the queue ready")
        kubelet.volumes["mq-broker-1"]["orders"] = 3
        await kubelet.report()
        tale.apply("Queue", "orders")
        await tale.until(lambda: tale.is_ready("Queue", "orders"), "the queue ready wherever it is")
        await kubelet.kill("mq-broker-1")
        tale.cluster(**spec | {"brokers": 1})
        await tale.until(lambda: says("is not there to be emptied"), "waits for the dead broker")
        await tale.checkpoint("waits")
        world.annotate("MessagingCluster", "mq", {"sterna.dev/force-drain": "true"})
        await tale.until(lambda: says("Serving") and len(tale.of("Pod")) == 1, "given up")
        await tale.until(lambda: tale.is_ready("Queue", "orders"), "the queue on another broker")
        await tale.checkpoint("given up")
        kubelet.volumes["mq-broker-0"]["orders"] = 2
        await kubelet.report()
        await tale.until(lambda: tale.messages() == 2, "the messages in the cluster's status")
        world.delete("MessagingCluster", "mq")
        await tale.until(lambda: {one["kind"] for one in tale.everything()} == {"Queue"}, "all gone")
        await tale.checkpoint("end")


async def trying(tale: Tale) -> None:
    """A cluster with an etcd that the operator runs, which has no address here: all is made, and waits."""
    storage = {"size": "1Gi", "storageClassName": STORAGE_CLASS}
    etcd = {"managed": {"image": "localhost/etcd:1"}}
    spec: dict[str, Any] = {"etcd": etcd, "insecure": True, "storage": storage, "deletionPolicy": "delete"}
    async with Kubelet(tale.world, tale.lookout) as kubelet:
        tale.look_after = kubelet.check

        def waits(pods: int) -> bool:
            ready = tale.ready("MessagingCluster", "mq")
            is_said = ready.get("reason") == "EtcdUnavailable" and "was not connected" in ready["message"]
            return len(tale.of("Pod")) == pods and is_said

        tale.cluster(**spec, brokers=1)
        await tale.until(lambda: waits(2), "made")
        await tale.checkpoint("made")
        tale.cluster(**spec, brokers=2)
        await tale.until(lambda: waits(3), "larger")
        await tale.checkpoint("larger")
        tale.world.delete("MessagingCluster", "mq")
        await tale.until(lambda: tale.everything() == [], "all gone")
        await tale.checkpoint("end")


async def audits(tale: Tale) -> None:
    """An AuditJob and a StoreSnapshot: what they need comes late, runs end, hands meddle, and all of it goes."""
    world, key = tale.world, {"name": "keys", "key": "password"}
    tale.cluster(insecure=True, authentication={"enabled": False})
    stage = Stage(world)
    # Due once a year, so that no telling comes to another day than the others.
    spec: dict[str, Any] = {**AUDIT, "schedule": "0 3 1 1 *", "failedJobsHistoryLimit": 1, "keys": [key]}
    spec |= {"snapshots": {"principals": "none", "signKeySecret": key}}

    def says(text: str, kind: str = "AuditJob", name: str = "nightly") -> bool:
        ready = tale.ready(kind, name)
        return text in f"{ready.get('reason')}: {ready.get('message')}"

    def run_is(run: str) -> bool:
        status = (tale.get("AuditJob", "nightly") or {}).get("status") or {}
        return bool((status.get("lastRun") or {}).get("run") == run)

    def suspended() -> Any:
        return (tale.get("CronJob", "nightly") or {"spec": {}})["spec"].get("suspend")

    async def ran(minute: int, message: str, status: int = 0, **how: Any) -> str:
        run = await stage.run(await stage.cron_job("nightly"), minute, message, status, **how)
        await tale.until(lambda: run_is(run), f"{run} told")
        return run

    tale.apply("AuditJob", "nightly", **spec)
    await tale.until(lambda: says("waits for Secret keys") and suspended() is True, "waits")
    await tale.checkpoint("waits")
    world.secret("keys", "a key")
    await tale.until(lambda: says("Scheduled") and suspended() is False, "scheduled")
    await tale.checkpoint("made")
    first = AUDIT_MINUTE
    lost = await ran(first, violated(f"nightly-{first}", (first + 1) * 60_000), 8, reason="Error")
    await tale.checkpoint("violated")
    clean = await ran(first + 60, result(f"nightly-{first + 60}", "ok", (first + 61) * 60_000))
    await tale.checkpoint("clean")
    killed = await ran(first + 120, "", 137, reason="OOMKilled")
    # One failed run is kept: the result of the first goes.
    await tale.until(lambda: tale.get("ConfigMap", f"{lost}-result") is None, "the old result gone")
    await tale.checkpoint("failed")
    # What somebody removes comes back as long as there is the Job that said it.
    removed = tale.uid("ConfigMap", f"{killed}-result")
    stage.take_away("ConfigMap", f"{killed}-result")
    await tale.until(lambda: tale.uid("ConfigMap", f"{killed}-result") not in ("", removed), "the result back")
    for run in (lost, clean, killed):
        stage.forget_run(run)
    await tale.checkpoint("jobs gone")
    stage.take_away("ConfigMap", "nightly-run")
    stage.patch("batch/v1", "CronJob", "nightly", {"spec": {"schedule": "0 4 * * *", "suspend": True}})
    await tale.until(lambda: tale.get("ConfigMap", "nightly-run") and suspended() is False, "put right")
    await tale.checkpoint("put right")
    tale.apply("AuditJob", "nightly", **spec, paused={})
    # Ready speaks of the generation that was applied, and the status of the one that was looked at.
    await tale.until(lambda: tale.is_seen("AuditJob", "nightly", "Paused"), "paused")
    tale.apply("AuditJob", "nightly", **{**spec, "schedule": "0 5 1 1 *"})
    await tale.until(lambda: says("Scheduled"), "goes on")
    await tale.checkpoint("changed")
    tale.apply("StoreSnapshot", "once", **SNAPSHOT)
    await tale.until(lambda: tale.get("Job", "once") and says("goes on", "StoreSnapshot", "once"), "the snapshot's Job")
    at_ms = (first + 180) * 60_000
    stage.end(stage.pod("once"), result("once", "ok", at_ms), at_ms=at_ms)
    stage.over("once", at_ms=at_ms)
    await tale.until(lambda: tale.is_ready("StoreSnapshot", "once"), "the snapshot taken")
    await tale.checkpoint("taken")
    for kind, name in (("StoreSnapshot", "once"), ("AuditJob", "nightly")):
        world.delete(kind, name)
        await tale.until(lambda kind=kind, name=name: tale.get(kind, name) is None, f"{kind} gone")  # type: ignore[misc]
        stage.collect(kind, name)
    await tale.checkpoint("end")


class Tellings:
    """All tellings of one story."""

    def __init__(
        self, server: ApiServer, store: RunningEtcd, lookout: Lookout, folder: Path, story: Story, **flags: Any
    ) -> None:
        self.server = server
        self._made = (server, store, lookout, folder)
        self._story = story
        self._flags = flags
        self._width = asyncio.Semaphore(WIDTH)

    @property
    def name(self) -> str:
        """The story's."""
        return self._story.__name__

    async def tell(self, undisturbed: Tale | None, what: str = "", **how: Any) -> Tale:
        """Once; `how` as Tale takes it, `what` is said when it ends otherwise."""
        async with self._width, AsyncExitStack() as stack:
            expected = undisturbed.endings if undisturbed is not None else None
            tale = Tale(*self._made, expected=expected, **{**self._flags, **how})
            stack.push_async_callback(tale.close)
            try:
                tale.begin()
                await self._story(tale)
                await tale.finish()
            except BaseException as error:
                error.add_note(f"{self.name}, {what} {how} ({tale.victim}); the last operator said:\n{tale.log}")
                raise
            return tale
