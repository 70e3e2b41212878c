"""Reading objects from the API server in this process.

Tests look at them again and again, and a kubectl for each look keeps a core busy, of a machine that may be the only
node as well. Whatever KUBECONFIG says is the cluster, as for kubectl, by which tests change objects.
"""

import json
from functools import cache
from typing import Any, NamedTuple

from kubernetes import client, config

_ALL_IN_ONE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Kind(NamedTuple):
    """Where objects of a kind are found."""

    api: str
    """Such as /api/v1."""
    plural: str
    namespaced: bool

    def path(self, namespace: str, name: str = "") -> str:
        """The address of one object; without a name, of all."""
        middle = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{self.api}{middle}/{self.plural}" + (f"/{name}" if name else "")


class UnreadableError(AssertionError):
    """The API server answers with something else than what was asked for."""


@cache
def _client() -> Any:
    return config.new_client_from_config()


def _request(path: str, query: dict[str, str], accept: str = "application/json") -> tuple[int, Any]:
    connection: client.ApiClient = _client()
    request = connection.param_serialize(
        "GET",
        path,
        query_params=list(query.items()),
        header_params={"Accept": accept},
        auth_settings=["BearerToken"],
    )
    response = connection.call_api(*request, _request_timeout=60)
    return response.status, json.loads(response.read())


@cache
def _kinds() -> dict[str, Kind]:
    """All kinds by their plural, singular and short names, as kubectl takes them; of two alike the first group's."""
    found: dict[str, Kind] = {}
    for root in ("/api", "/apis"):
        _, groups = _request(root, {}, _ALL_IN_ONE)
        for group in groups["items"]:
            name = group["metadata"].get("name", "")
            version = group["versions"][0]
            for one in version["resources"]:
                kind = Kind(
                    "/".join(filter(None, (root, name, version["version"]))), one["resource"], one["scope"] != "Cluster"
                )
                for called in (one["resource"], one["singularResource"], *one.get("shortNames", ())):
                    found.setdefault(called, kind)
    return found


def _kind(name: str) -> Kind:
    if name not in _kinds():
        # It may have been installed after the last look.
        _kinds.cache_clear()
    return _kinds()[name]


def read(kind: str, namespace: str, name: str) -> dict[str, Any] | None:
    """One object; None: there is none.

    Raises:
        UnreadableError: it cannot be read.
    """
    return _read(_kind(kind).path(namespace, name), {})


def read_all(kind: str, namespace: str, selector: str = "") -> list[dict[str, Any]]:
    """All objects of a kind that a label selector picks. Errors as read."""
    found = _read(_kind(kind).path(namespace), {"labelSelector": selector} if selector else {})
    return list((found or {}).get("items", ()))


def _read(path: str, query: dict[str, str]) -> dict[str, Any] | None:
    status, body = _request(path, query)
    if status == 404 and isinstance(body, dict) and body.get("reason") == "NotFound":
        return None
    if status != 200:
        raise UnreadableError(f"{path}: {status}: {body}")
    return dict(body)
