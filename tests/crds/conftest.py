"""A namespace in which Kubernetes knows our kinds."""

from typing import Any

import pytest
from sterna_resources.definitions import NAMES
from sterna_resources.resource import API_VERSION, GROUP, VERSION

from tests.support.api_server import Answer, ApiServer
from tests.support.kinds import install_kinds_for_kubectl
from tests.support.own_names import own_name

NAMESPACE = own_name("kinds")


class Kinds:
    """Our kinds in a real API server. Nothing is kept (`dry_run`) unless a test wants it."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    def create(self, kind: str, name: str, spec: Any, *, dry_run: bool = True, **more: Any) -> Answer:
        """Creates an object; unknown fields are errors, as they are with kubectl."""
        query = "?fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
        return self.server.request("POST", self._path(kind) + query, document(kind, name, spec, **more))

    def replace_spec(self, kind: str, name: str, spec: Any) -> Answer:
        """Puts another spec in place of the one that is there."""
        found = self.get(kind, name)
        assert found.ok, found.message
        body = {**found.body, "spec": spec}
        return self.server.request("PUT", f"{self._path(kind)}/{name}?fieldValidation=Strict", body)

    def apply(self, kind: str, name: str, spec: Any) -> Answer:
        """As `kubectl apply --server-side`: what was applied before and is not said any more goes."""
        where = f"{self._path(kind)}/{name}?fieldManager=somebody"
        return self.server.request("PATCH", where, document(kind, name, spec), "application/apply-patch+yaml")

    def write_status(self, kind: str, name: str, status: Any) -> Answer:
        """Writes the status as the operator does."""
        found = self.get(kind, name)
        body = {**found.body, "status": status}
        return self.server.request("PUT", f"{self._path(kind)}/{name}/status?fieldValidation=Strict", body)

    def get(self, kind: str, name: str) -> Answer:
        """What is there."""
        return self.server.request("GET", f"{self._path(kind)}/{name}")

    def delete(self, kind: str, name: str) -> None:
        """Takes an object away."""
        self.server.request("DELETE", f"{self._path(kind)}/{name}")

    @staticmethod
    def _path(kind: str) -> str:
        return f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/{NAMES[kind].plural}"


def document(kind: str, name: str, spec: Any, **more: Any) -> dict[str, Any]:
    """An object as people write it; `...` in place of a spec leaves the spec out."""
    head = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}}
    return {**head, **({} if spec is ... else {"spec": spec}), **more}


@pytest.fixture(scope="session")
def kinds(api_server: ApiServer) -> Kinds:
    """The kinds, as soon as the server serves them."""
    install_kinds_for_kubectl(api_server)
    api_server.namespace(NAMESPACE)
    return Kinds(api_server)
