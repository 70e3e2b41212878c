"""What a Kubernetes without controllers and nodes lacks: a test plays them, as far as a MessagingCluster needs them.

The StatefulSet controller makes pods and volume claims, and takes pods away; the kubelet starts a broker's double in
each pod and says that it is ready, and ends a pod that is being deleted; the garbage collector removes what belonged to
something that is gone. Everything follows from what the API server tells, and is done at once.

It looks on, too: `restarts` counts the pods that somebody deleted although they were wanted, and `faults` says when
that took a second broker away from the clients.
"""

import asyncio
from collections import Counter
from typing import Any, Self

from sterna_operator.builders import certificate, monitoring
from sterna_operator.kube import path

from tests.operator.lookouts import Lookout, Object
from tests.operator.pod_double import PodDouble
from tests.operator.worlds import World
from tests.support.api_server import ApiServer
from tests.support.kinds import install

NODE, NODE_IP = "node-1", "192.0.2.7"
STORAGE_CLASS = "growing"
_POD_NAME = "statefulset.kubernetes.io/pod-name"
_COMPONENT = "app.kubernetes.io/component"
_PROTECTION = "kubernetes.io/pvc-protection"
# What could not be done is tried again: the server's own caches may be behind.
_AGAIN_S = 0.1


def install_surroundings(server: ApiServer) -> None:
    """Volumes that can grow, and the kinds of cert-manager and of the Prometheus operator, without who acts on them."""
    manifest = {"metadata": {"name": STORAGE_CLASS}, "provisioner": "nobody", "allowVolumeExpansion": True}
    answer = server.request("POST", "/apis/storage.k8s.io/v1/storageclasses", manifest)
    assert answer.ok or answer.status == 409, answer.message
    install(
        server,
        [
            _definition(certificate.API_VERSION, "Certificate"),
            _definition(monitoring.API_VERSION, "PodMonitor"),
        ],
    )


def _definition(version: str, kind: str) -> dict[str, Any]:
    """A definition that takes any spec."""
    group, _, name = version.partition("/")
    plural = f"{kind.lower()}s"
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    served = {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": "Namespaced",
            "versions": [served],
        },
    }


class Kubelet:
    """Plays them in a world's namespace, between `async with`."""

    def __init__(self, world: World, lookout: Lookout) -> None:
        self.brokers: dict[str, PodDouble] = {}
        self.volumes: dict[str, dict[str, int]] = {}
        self.restarts: Counter[str] = Counter()
        self.faults: list[str] = []
        self._world = world
        self._lookout = lookout
        self._changed = lookout.listen(world.namespace)
        self._dead: set[str] = set()
        self._ending: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name=f"kubelet {self._world.namespace}")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*map(self._stop, list(self.brokers)))

    def check(self) -> None:
        """Raises when it has failed itself."""
        assert self._task is not None
        if self._task.done():
            self._task.result()

    async def report(self) -> None:
        """Has all brokers say anew what there is to say: after the test has changed what volumes hold."""
        for broker in list(self.brokers.values()):
            await broker.report()

    async def kill(self, name: str) -> None:
        """A broker dies, and cannot be started again: its node has failed, say."""
        self._dead.add(name)
        await self._stop(name)
        self._changed.set()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            is_done = await self._round()
            try:
                async with asyncio.timeout(None if is_done else _AGAIN_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _round(self) -> bool:
        """Everything once; whether nothing is left to be tried again."""
        lookout, namespace = self._lookout, self._world.namespace
        is_done = True
        for one in lookout.of(namespace, "StatefulSet"):
            is_done &= self._make_pods(one)
        for pod in lookout.of(namespace, "Pod"):
            await self._tend(pod)
        for one in lookout.all(namespace):
            self._collect(one)
        return is_done

    # The StatefulSet controller

    def _make_pods(self, known: Object) -> bool:
        namespace, name = self._world.namespace, known["metadata"]["name"]
        wanted = {f"{name}-{ordinal}" for ordinal in range(known["spec"]["replicas"])}
        pods = {pod["metadata"]["name"]: pod for pod in self._lookout.of(namespace, "Pod") if _owner(pod) == name}
        for surplus in sorted(pods.keys() - wanted):
            if "deletionTimestamp" not in pods[surplus]["metadata"]:
                self._ending.add(pods[surplus]["metadata"]["uid"])
                self._delete(pods[surplus])
        missing = sorted(wanted - pods.keys())
        if not missing or "deletionTimestamp" in known["metadata"]:
            return True
        # As it is now: what is known may be from before the change that the pod is made for.
        answer = self._world.server.request("GET", path("apps/v1", "StatefulSet", namespace, name))
        if not answer.ok:
            return True
        is_done = True
        for pod in missing:
            is_done &= int(pod.rpartition("-")[2]) >= answer.body["spec"]["replicas"] or self._make_pod(
                answer.body, pod
            )
        return is_done

    def _make_pod(self, owner: Object, name: str) -> bool:
        request, namespace = self._world.server.request, self._world.namespace
        volumes = []
        for template in owner["spec"]["volumeClaimTemplates"]:
            claim = f"{template['metadata']['name']}-{name}"
            volumes.append(
                {"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim}},
            )
            metadata = {**template["metadata"], "name": claim}
            body = {"metadata": metadata, "spec": template["spec"]}
            made = request("POST", path("v1", "PersistentVolumeClaim", namespace), body)
            assert made.ok or made.status == 409, made.message
            if made.ok:
                where = path("v1", "PersistentVolumeClaim", namespace, claim, "status")
                bound = request("PATCH", where, {"status": {"phase": "Bound"}}, "application/merge-patch+json")
                assert bound.ok, bound.message
        template = owner["spec"]["template"]
        labels = {**template["metadata"]["labels"], _POD_NAME: name}
        reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True, "blockOwnerDeletion": True}
        reference |= {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        metadata = {**template["metadata"], "name": name, "labels": labels, "ownerReferences": [reference]}
        spec = {**template["spec"], "hostname": name, "subdomain": owner["spec"]["serviceName"], "nodeName": NODE}
        spec["volumes"] = [*spec.get("volumes", ()), *volumes]
        made = request("POST", path("v1", "Pod", namespace), {"metadata": metadata, "spec": spec})
        # The account that the pod names may not be known to all of the server yet.
        assert made.ok or made.status in (403, 409), made.message
        return made.ok

    # The kubelet

    async def _tend(self, pod: Object) -> None:
        metadata = pod["metadata"]
        name, uid = metadata["name"], metadata["uid"]
        is_broker = metadata["labels"].get(_COMPONENT) == "broker"
        if "deletionTimestamp" in metadata:
            if name in self.brokers and self.brokers[name].uid == uid:
                self._note_end(pod)
                await self._stop(name)
            self._delete(pod, grace_s=0)
            return
        standing = self.brokers.get(name)
        if standing is not None and standing.uid != uid:
            # The pod before was gone before its end was heard of.
            await self._stop(name)
            standing = None
        if is_broker and standing is None and name not in self._dead:
            version = pod["spec"]["containers"][0]["image"].rpartition(":")[2]
            volume = self.volumes.setdefault(name, {})
            broker = PodDouble(
                self._world.etcd_urls, self._world.etcd_name, name, uid=uid, version=version, volume=volume
            )
            self.brokers[name] = await broker.__aenter__()
        if name in self.brokers:
            await self.brokers[name].advertise(self._addresses(pod))
        if _is_ready(pod) is (name in self._dead):
            where = path("v1", "Pod", self._world.namespace, name, "status")
            conditions = [{"type": "Ready", "status": "False" if name in self._dead else "True"}]
            status = {"phase": "Running", "hostIP": NODE_IP, "podIP": "192.0.2.8", "conditions": conditions}
            body = {"metadata": {"uid": uid}, "status": status}
            answer = self._world.server.request("PATCH", where, body, "application/merge-patch+json")
            assert answer.ok or answer.status in (404, 409), answer.message

    def _addresses(self, pod: Object) -> list[str]:
        """What a broker reads in the settings that its pod mounts."""
        name = next(one["configMap"]["name"] for one in pod["spec"]["volumes"] if one["name"] == "settings")
        settings = self._lookout.get(self._world.namespace, "ConfigMap", name)
        text = settings["data"].get(pod["metadata"]["name"], "") if settings is not None else ""
        addresses = text.strip().replace("$(HOST_IP)", NODE_IP).split(",")
        return addresses if text else [f"sterna://{pod['metadata']['name']}:7222"]

    def _note_end(self, pod: Object) -> None:
        """A pod is ended that nobody here has asked to end."""
        name, uid, namespace = pod["metadata"]["name"], pod["metadata"]["uid"], self._world.namespace
        owner = self._lookout.get(namespace, "StatefulSet", _owner(pod))
        if uid in self._ending or owner is None or self._is_orphan(owner):
            return
        self.restarts[name] += 1
        wanted = {f"{_owner(pod)}-{ordinal}" for ordinal in range(owner["spec"]["replicas"])}
        away = sorted(wanted - self.brokers.keys())
        if away:
            self.faults.append(f"{name} was restarted while {', '.join(away)} did not serve")

    async def _stop(self, name: str) -> None:
        await self.brokers.pop(name).__aexit__()

    # The garbage collector

    def _collect(self, object: Object) -> None:
        metadata = object["metadata"]
        if object["kind"] == "PersistentVolumeClaim" and "deletionTimestamp" in metadata:
            finalizers = [one for one in metadata.get("finalizers", ()) if one != _PROTECTION]
            body = {"metadata": {"finalizers": finalizers, "uid": metadata["uid"]}}
            where = path("v1", "PersistentVolumeClaim", self._world.namespace, metadata["name"])
            answer = self._world.server.request("PATCH", where, body, "application/merge-patch+json")
            assert answer.ok or answer.status in (404, 409), answer.message
        elif "deletionTimestamp" not in metadata and self._is_orphan(object):
            self._ending.add(metadata["uid"])
            self._delete(object)

    def _is_orphan(self, object: Object) -> bool:
        """Whether all that it belonged to is gone, by the server's own word."""
        owners = object["metadata"].get("ownerReferences", ())
        return bool(owners) and not any(self._is_there(owner) for owner in owners)

    def _is_there(self, owner: dict[str, Any]) -> bool:
        namespace = self._world.namespace
        known = self._lookout.get(namespace, owner["kind"], owner["name"])
        if known is not None and known["metadata"]["uid"] == owner["uid"]:
            return True
        answer = self._world.server.request("GET", path(owner["apiVersion"], owner["kind"], namespace, owner["name"]))
        assert answer.ok or answer.status == 404, answer.message
        return bool(answer.ok and answer.body["metadata"]["uid"] == owner["uid"])

    def _delete(self, object: Object, grace_s: int | None = None) -> None:
        where = path(object["apiVersion"], object["kind"], self._world.namespace, object["metadata"]["name"])
        options: dict[str, Any] = {"preconditions": {"uid": object["metadata"]["uid"]}}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        answer = self._world.server.request("DELETE", where, options)
        assert answer.ok or answer.status in (404, 409), answer.message


def _owner(pod: Object) -> str:
    owners = pod["metadata"].get("ownerReferences", ())
    return next((str(one["name"]) for one in owners if one["kind"] == "StatefulSet"), "")


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
