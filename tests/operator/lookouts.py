"""All objects of an API server that matter to the operator's tests, as watches tell of them: looking costs nothing.

Tests that go on in many namespaces at once would otherwise ask the server all the time. What comes may be a moment
old: whoever has just changed something waits for the version, or generation, that the change was answered with.
"""

import asyncio
import contextlib
from typing import Any, Self

from sterna_operator.builders import certificate, monitoring
from sterna_operator.kube import STERNA_API, Kube, KubeError, load_configuration

from tests.support.api_server import ApiServer

# Everything that operators may make or change, but for events and Leases.
KINDS = (
    (STERNA_API, "MessagingCluster"),
    (STERNA_API, "Queue"),
    (STERNA_API, "Topic"),
    (STERNA_API, "Bridge"),
    (STERNA_API, "DurableSubscription"),
    (STERNA_API, "Store"),
    (STERNA_API, "ConnectionFactory"),
    (STERNA_API, "User"),
    (STERNA_API, "StoreSnapshot"),
    (STERNA_API, "AuditJob"),
    ("batch/v1", "CronJob"),
    ("batch/v1", "Job"),
    ("apps/v1", "StatefulSet"),
    ("v1", "Pod"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "ServiceAccount"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    (certificate.API_VERSION, "Certificate"),
    (monitoring.API_VERSION, "PodMonitor"),
)

Object = dict[str, Any]


class Lookout:
    """`async with` follows; `of` and `get` look."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._listeners: dict[str, list[asyncio.Event]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._listed = {kind: asyncio.Event() for _, kind in KINDS}
        self._kube: Kube | None = None

    async def __aenter__(self) -> Self:
        self._kube = Kube(await load_configuration(self._server.kubeconfig))
        self._tasks = [asyncio.create_task(self._follow(self._kube, *one)) for one in KINDS]
        async with asyncio.timeout(60):
            for listed in self._listed.values():
                await listed.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self._kube is not None
        await self._kube.close()

    def of(self, namespace: str, kind: str) -> list[Object]:
        """The objects of a kind in a namespace."""
        found = self._objects.get(namespace, {})
        return [found[key] for key in sorted(found) if key[0] == kind]

    def all(self, namespace: str) -> list[Object]:
        """All objects in a namespace."""
        return list(self._objects.get(namespace, {}).values())

    def get(self, namespace: str, kind: str, name: str) -> Object | None:
        """One object; None: there is none."""
        return self._objects.get(namespace, {}).get((kind, name))

    def listen(self, namespace: str) -> asyncio.Event:
        """An event that is set whenever something changes in a namespace; whoever waits for it clears it.

        Before anything is made in it: what happens in namespaces to which nobody listens is not kept.
        """
        event = asyncio.Event()
        self._listeners.setdefault(namespace, []).append(event)
        return event

    def forget(self, namespace: str) -> None:
        """Nobody listens to a namespace any more."""
        self._listeners.pop(namespace, None)
        self._objects.pop(namespace, None)

    async def _follow(self, kube: Kube, version: str, kind: str) -> None:
        while True:
            with contextlib.suppress(KubeError):
                since = await self._list(kube, version, kind)
                self._listed[kind].set()
                async with contextlib.aclosing(kube.watch(version, kind, None, since=since, seconds=290)) as events:
                    async for event in events:
                        if event["type"] != "BOOKMARK":
                            self._take(event["type"], event["object"])

    async def _list(self, kube: Kube, version: str, kind: str) -> str:
        found: list[Object] = []
        since = ""
        async for page in kube.pages(version, kind):
            found += page.items
            since = page.version
        there = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in found}
        for namespace, known in list(self._objects.items()):
            for key in list(known):
                if key[0] == kind and (namespace, key[1]) not in there:
                    self._take("DELETED", known[key])
        for one in found:
            self._take("ADDED", one)
        return since

    def _take(self, event: str, object: Object) -> None:
        metadata = object["metadata"]
        if metadata["namespace"] not in self._listeners:
            # Another process's, on the same server.
            return
        metadata.pop("managedFields", None)
        known = self._objects.setdefault(metadata["namespace"], {})
        key = (object["kind"], metadata["name"])
        if event == "DELETED":
            known.pop(key, None)
        else:
            known[key] = object
        for listener in self._listeners[metadata["namespace"]]:
            listener.set()
