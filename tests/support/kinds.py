"""Definitions of kinds in an API server that several processes share; each asks for them when it needs them."""

from collections.abc import Iterable
from typing import Any

from sterna_resources.definitions import definitions
from sterna_resources.resource import GROUP

from tests.support.api_server import ApiServer
from tests.waiting import eventually_blocking

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?fieldValidation=Strict"
_TIMEOUT_S = 30.0


def install_kinds(server: ApiServer) -> None:
    """Makes our kinds known, and waits until they can be used; nothing is done that was done before."""
    install(server, definitions().values())


def install(server: ApiServer, kinds: Iterable[dict[str, Any]]) -> None:
    """The same for any definitions."""
    missing = [one for one in kinds if not _is_served(server, one)]
    for one in missing:
        answer = server.request("POST", _DEFINITIONS, one)
        # Another process may have been quicker.
        assert answer.ok or answer.status == 409, f"{one['metadata']['name']}: {answer.message}"
    for one in missing:
        name = one["metadata"]["name"]
        eventually_blocking(lambda kind=one: _is_served(server, kind), timeout_s=_TIMEOUT_S, what=name)  # type: ignore[misc]


def install_kinds_for_kubectl(server: ApiServer) -> None:
    """As `install_kinds`, and waits until kubectl knows short names and categories, which it looks up and keeps."""
    install_kinds(server)
    names = {one["metadata"]["name"] for one in definitions().values()}

    def known() -> bool:
        told = server.kubectl("api-resources", f"--api-group={GROUP}", "--cached=false", "--output=name")
        return names <= set(told.stdout.split())

    eventually_blocking(known, timeout_s=_TIMEOUT_S, what="kubectl to know our kinds")


def _is_served(server: ApiServer, definition: dict[str, Any]) -> bool:
    """Whether its objects can be asked for, and who asks which kinds there are is told of it."""
    spec = definition["spec"]
    plural = spec["names"]["plural"]
    group = f"/apis/{spec['group']}/{spec['versions'][0]['name']}"
    if not server.request("GET", f"{group}/{plural}?limit=1").ok:
        return False
    told = server.request("GET", group)
    return told.ok and plural in {one["name"] for one in told.body["resources"]}
