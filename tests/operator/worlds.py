"""Where the operator's tests take place: an API server with our kinds, an etcd, a namespace and a cluster."""

import base64
import json
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sterna_etcd import Claim, Etcd, EtcdSettings, Layout
from sterna_etcd.records import ClaimRecord, ConfigRecord
from sterna_operator.kube import path

from tests.support.api_server import Answer, ApiServer
from tests.support.own_names import own_name
from tests.waiting import eventually

API = "sterna.dev/v1alpha1"
# So long at most between two looks at a server that others share.
ASK_S = 0.05


class World:
    """One test's namespace and cluster. Methods that ask the server are quick and block."""

    def __init__(self, server: ApiServer, etcd_urls: str) -> None:
        self.server = server
        self.etcd_urls = etcd_urls
        self.namespace = server.namespace(own_name("ns"))
        self.etcd_name = f"{self.namespace}.mq"
        self.layout = Layout(self.etcd_name)
        self.client = Etcd(EtcdSettings.of_urls(etcd_urls))

    async def close(self) -> None:
        """Ends the connection to etcd."""
        await self.client.close()

    # Kubernetes

    def make_cluster(self, name: str = "mq", namespace: str = "", **spec: Any) -> None:
        """A MessagingCluster over the test's etcd."""
        full = {"etcd": {"endpoints": self.etcd_urls.split(",")}, "insecure": True, **spec}
        self.apply("MessagingCluster", name, full, namespace=namespace)

    def apply(
        self,
        kind: str,
        name: str,
        spec: Mapping[str, Any],
        *,
        namespace: str = "",
        ref: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """As `kubectl apply --server-side`: makes or changes an object of ours."""
        full = dict(spec)
        if kind not in ("MessagingCluster", "Secret"):
            full.setdefault("clusterRef", {"name": "mq"} | ({"namespace": ref} if ref else {}))
        where = path(API, kind, namespace or self.namespace, name)
        metadata = {"name": name, **({"annotations": dict(annotations)} if annotations else {})}
        manifest = {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": full}
        answer = self.server.request(
            "PATCH", f"{where}?fieldManager=test&force=true", manifest, "application/apply-patch+yaml"
        )
        assert answer.ok, answer.message
        return dict(answer.body)

    def queue(self, name: str, **spec: Any) -> dict[str, Any]:
        """A queue."""
        return self.apply("Queue", name, spec)

    def secret(self, name: str, password: str, namespace: str = "") -> None:
        """A Secret with a password."""
        where = path("v1", "Secret", namespace or self.namespace, name)
        manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "stringData": {"password": password},
        }
        answer = self.server.request(
            "PATCH", f"{where}?fieldManager=test&force=true", manifest, "application/apply-patch+yaml"
        )
        assert answer.ok, answer.message

    def certificate(self, name: str, data: Mapping[str, bytes]) -> None:
        """A Secret with a certificate and its key."""
        where = path("v1", "Secret", self.namespace, name)
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}
        answer = self.server.request(
            "PATCH", f"{where}?fieldManager=test&force=true", manifest, "application/apply-patch+yaml"
        )
        assert answer.ok, answer.message

    def get(self, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        """An object as it is; None: gone."""
        answer = self.server.request("GET", path(API, kind, namespace or self.namespace, name))
        assert answer.ok or answer.status == 404, answer.message
        return dict(answer.body) if answer.ok else None

    def annotate(self, kind: str, name: str, annotations: Mapping[str, str | None]) -> None:
        """Sets annotations; None takes one away."""
        where = path(API, kind, self.namespace, name)
        answer = self.server.request(
            "PATCH", where, {"metadata": {"annotations": annotations}}, "application/merge-patch+json"
        )
        assert answer.ok, answer.message

    def delete(self, kind: str, name: str, namespace: str = "") -> Answer:
        """Asks for an object's deletion."""
        answer = self.server.request("DELETE", path(API, kind, namespace or self.namespace, name))
        assert answer.ok, answer.message
        return answer

    def events(self, name: str) -> list[str]:
        """The reasons of the events of an object."""
        answer = self.server.request("GET", path("v1", "Event", self.namespace))
        return [one["reason"] for one in answer.body["items"] if one["involvedObject"]["name"] == name]

    def condition(self, kind: str, name: str, type: str = "Ready", namespace: str = "") -> dict[str, Any]:  # noqa: A002
        """A condition of an object, with the generation it should be of; empty: it has none such."""
        return _condition(self.get(kind, name, namespace), type)

    def limited(self, name: str, rules: list[dict[str, Any]], more: Sequence[str] = ()) -> Path:
        """A kubeconfig of a user who has these rights in the test's namespace, in `more`, and nowhere else."""
        account = {"metadata": {"name": name}}
        role = {"metadata": {"name": name}, "rules": rules}
        subject = {"kind": "ServiceAccount", "name": name, "namespace": self.namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
        api = "rbac.authorization.k8s.io/v1"
        wanted: list[tuple[str, dict[str, Any]]] = [(path("v1", "ServiceAccount", self.namespace), account)]
        for namespace in (self.namespace, *more):
            wanted += [(path(api, "Role", namespace), role), (path(api, "RoleBinding", namespace), binding)]
        for where, body in wanted:
            answer = self.server.request("POST", where, body)
            assert answer.ok, answer.message
        token = self.server.request(
            "POST", f"{path('v1', 'ServiceAccount', self.namespace, name, 'token')}", {"spec": {}}
        )
        assert token.ok, token.message
        text = json.loads(self.server.kubeconfig.read_text())
        text["users"] = [{"name": "admin", "user": {"token": token.body["status"]["token"]}}]
        file = self.server.folder / f"{self.namespace}.{name}.kubeconfig"
        file.write_text(json.dumps(text))
        return file

    def end_lead(self) -> None:
        """As who knows that the leader is dead: that a Lease runs out by itself is shown elsewhere, and takes time."""
        where = path("coordination.k8s.io/v1", "Lease", self.namespace, "sterna-operator")
        answer = self.server.request("DELETE", where)
        assert answer.ok or answer.status == 404, answer.message

    def metrics(self, address: str) -> dict[str, float]:
        """An operator's figures, by name and labels."""
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as response:
            lines = response.read().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line and line[0] != "#"}

    # Waiting

    async def ready(self, kind: str, name: str, timeout_s: float = 30.0, namespace: str = "") -> dict[str, Any]:
        """The object once it is ready in its present generation."""

        def check() -> dict[str, Any] | None:
            found = self.get(kind, name, namespace)
            ready = _condition(found, "Ready")
            is_current = found is not None and ready.get("observedGeneration") == found["metadata"]["generation"]
            return found if is_current and ready["status"] == "True" else None

        found = await eventually(check, timeout_s=timeout_s, what=f"{kind} {name} ready", pause_max_s=ASK_S)
        assert found is not None
        return found

    async def reason(self, kind: str, name: str, reason: str, timeout_s: float = 30.0, namespace: str = "") -> str:
        """The message of the Ready condition once its reason is this one."""
        condition: dict[str, Any] = {}

        def check() -> bool:
            condition.clear()
            condition.update(self.condition(kind, name, namespace=namespace))
            return condition.get("reason") == reason

        try:
            await eventually(check, timeout_s=timeout_s, what=f"{kind} {name}: {reason}", pause_max_s=ASK_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {condition}") from error
        return str(condition["message"])

    async def gone(self, kind: str, name: str, timeout_s: float = 30.0, namespace: str = "") -> None:
        """Waits until the object is no more."""
        await eventually(
            lambda: self.get(kind, name, namespace) is None,
            timeout_s=timeout_s,
            what=f"{kind} {name} gone",
            pause_max_s=ASK_S,
        )

    # etcd

    async def config(self, kind: str, claim: str) -> ConfigRecord | None:
        """A configured object."""
        key = self.layout.config(Claim(kind, claim))
        found = (await self.client.get(key)).found
        return None if found is None else ConfigRecord.decode(key, found.value)

    async def configured(self, kind: str, claim: str, timeout_s: float = 30.0) -> ConfigRecord:
        """A configured object, once it is."""
        record = await eventually(
            lambda: self.config(kind, claim), timeout_s=timeout_s, what=f"{kind} {claim} configured", pause_max_s=ASK_S
        )
        assert record is not None
        return record

    async def configured_claim(self) -> ClaimRecord:
        """Who has claimed the cluster's place, once somebody has."""
        key = self.layout.operator_claim

        async def found() -> ClaimRecord | None:
            pair = (await self.client.get(key)).found
            return None if pair is None else ClaimRecord.decode(key, pair.value)

        record = await eventually(found, timeout_s=30.0, what="the place in etcd claimed", pause_max_s=ASK_S)
        assert record is not None
        return record

    async def unconfigured(self, kind: str, claim: str, timeout_s: float = 30.0) -> None:
        """Waits until an object is configured no more."""

        async def is_gone() -> bool:
            return await self.config(kind, claim) is None

        await eventually(is_gone, timeout_s=timeout_s, what=f"{kind} {claim} configured no more", pause_max_s=ASK_S)


def _condition(object: dict[str, Any] | None, type: str) -> dict[str, Any]:  # noqa: A002
    conditions = (object or {}).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == type), {})
