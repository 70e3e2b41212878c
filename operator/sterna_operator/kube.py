"""The API server, as the operator speaks to it: `kubernetes.aio` wrapped once.

The official client supplies configuration, tokens, TLS and connections; requests are made on paths of our own, since
its methods for custom objects need a content type for server-side apply that they do not choose themselves, and its
models would be built and thrown away. What every request here has:

- server-side apply under our field manager with its explicit content type, forced: what we say of an object is ours;
- a write or a deletion of an object that was read carries the resourceVersion that was read;
- 429 and 5xx are tried twice more, after what the server asks for; then they are the caller's, as `TransientError`;
- objects come back slim: without managedFields and the copy that kubectl keeps in an annotation.

`on_write` is told of every write that succeeded, `on_end` of every request that has ended: whether the server answered
it, be it by a refusal, or failed (5xx, 429, nothing at all).
"""

import asyncio
import json
import random  # noqa: TID251 - the operator as a process is not simulated
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

FIELD_MANAGER = "sterna-operator"
STERNA_API = "sterna.dev/v1alpha1"

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"

_ATTEMPTS = 3
_WAIT_MAX_S = 5.0
_REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=15.0, sock_connect=5.0)
_PAGE = 500
_KUBECTL_COPY = "kubectl.kubernetes.io/last-applied-configuration"

# How kinds are called in paths, where that is not the kind in lower case with an `s`.
_PLURALS = {
    "ConnectionFactory": "connectionfactories",
    "NetworkPolicy": "networkpolicies",
    "Ingress": "ingresses",
    "StorageClass": "storageclasses",
}
_CLUSTER_SCOPED = frozenset({"Namespace", "CustomResourceDefinition", "StorageClass", "PersistentVolume"})


class KubeError(Exception):
    """The API server did not do it. `code` is HTTP's; 0: it did not answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ConflictError(KubeError):
    """The object has changed since it was read, or a name is taken (409)."""


class NotFoundError(KubeError):
    """There is no such object (404), or a resourceVersion is too old (410).

    `names_object`: the server knows the kind, and says that it has no object of that name.
    """

    names_object = False


class ForbiddenError(KubeError):
    """We may not do that (401, 403)."""


class InvalidError(KubeError):
    """The object breaks a rule of its schema (400, 422)."""


class TransientError(KubeError):
    """Later, perhaps (429, 5xx, no answer). Whether a write was done is not known unless the code is 429."""

    def __init__(self, code: int, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(code, message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, order=True)
class Ref:
    """Names one object."""

    api_version: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class Page:
    """Some objects of a list, and the version of the whole of it, from which a watch goes on."""

    items: list[dict[str, Any]]
    version: str


def plural(kind: str) -> str:
    """What a kind is called in paths."""
    return _PLURALS.get(kind, f"{kind.lower()}s")


def path(api_version: str, kind: str, namespace: str | None = None, name: str | None = None, sub: str = "") -> str:
    """The path of an object, or of all objects of a kind; `namespace` None: in all namespaces."""
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    within = f"/namespaces/{quote(namespace)}" if namespace is not None and kind not in _CLUSTER_SCOPED else ""
    one = f"/{quote(name)}" if name is not None else ""
    return f"{root}{within}/{plural(kind)}{one}{f'/{sub}' if sub else ''}"


def slim(object: dict[str, Any]) -> dict[str, Any]:
    """The object without what nobody here reads and which makes up half of it. Changes it in place."""
    metadata = object.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        annotations = metadata.get("annotations")
        if annotations:
            annotations.pop(_KUBECTL_COPY, None)
    return object


async def load_configuration(kubeconfig: Path | None) -> client.Configuration:
    """From a kubeconfig file, or from the pod's service account when there is none given."""
    configuration = client.Configuration()
    if kubeconfig is not None:
        await config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    else:
        config.load_incluster_config(client_configuration=configuration)
    configuration.connection_pool_maxsize = 0
    # Credentials come from the configuration alone; a look into ~/.netrc for every request is neither wanted nor cheap.
    configuration.client_session_kwargs = {"trust_env": False}
    return configuration


class Kube:
    """Requests to one API server."""

    def __init__(self, configuration: client.Configuration) -> None:
        self._api = client.ApiClient(configuration)
        self.on_write: Callable[[str, str], None] | None = None
        self.on_end: Callable[[bool], None] | None = None
        self.requests_total: dict[tuple[str, int], int] = {}

    async def close(self) -> None:
        """Ends all connections."""
        await self._api.close()

    async def get(self, ref: Ref) -> dict[str, Any] | None:
        """One object; None: there is none. A kind that the server does not know is an error, not "none"."""
        try:
            return slim(await self._request("GET", self._path(ref)))
        except NotFoundError as error:
            if error.names_object:
                return None
            raise KubeError(404, f"the API server does not know {ref.kind} of {ref.api_version}") from error

    async def list(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        only_metadata: bool = False,
        page_max: int = 0,
    ) -> list[dict[str, Any]]:
        """All objects of a kind, page by page; with `page_max` the first so many. `labels`, `fields`: selectors."""
        found: list[dict[str, Any]] = []
        pages = self.pages(
            api_version,
            kind,
            namespace,
            labels=labels,
            fields=fields,
            only_metadata=only_metadata,
            page_max=page_max,
        )
        async with aclosing(pages):
            async for page in pages:
                found += page.items
                if page_max:
                    break
        return found

    async def pages(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        only_metadata: bool = False,
        page_max: int = 0,
    ) -> AsyncGenerator[Page, None]:
        """All objects of a kind, some at a time; all pages are of one version.

        Raises:
            NotFoundError: the server does not know the kind, or has forgotten the version between two pages.
        """
        query = {"limit": str(page_max or _PAGE)}
        query |= {name: one for name, one in (("labelSelector", labels), ("fieldSelector", fields)) if one}
        accept = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1" if only_metadata else JSON
        while True:
            answer = await self._request("GET", path(api_version, kind, namespace), query=query, accept=accept)
            items = []
            for item in answer.get("items") or ():
                # Items of a list do not say what they are.
                item["apiVersion"], item["kind"] = api_version, kind
                items.append(slim(item))
            yield Page(items, str(answer["metadata"].get("resourceVersion") or ""))
            following = answer["metadata"].get("continue")
            if not following:
                return
            query["continue"] = following

    async def apply(self, manifest: Mapping[str, Any], sub: str = "", *, force: bool = True) -> dict[str, Any]:
        """Server-side apply; the object as it is afterwards. With metadata.resourceVersion it must be unchanged."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"}
        where = self._path(ref_of(manifest), sub)
        return slim(await self._request("PATCH", where, query=query, body=manifest, content_type=APPLY))

    async def merge_patch(self, ref: Ref, patch: Mapping[str, Any], sub: str = "") -> dict[str, Any]:
        """Merge patch; the object as it is afterwards. With metadata.resourceVersion it must be unchanged."""
        query = {"fieldManager": FIELD_MANAGER}
        return slim(await self._request("PATCH", self._path(ref, sub), query=query, body=patch, content_type=MERGE))

    async def create(self, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
        """A new object; None: there is one of this name already."""
        ref = ref_of(manifest)
        where = path(ref.api_version, ref.kind, ref.namespace)
        try:
            return slim(await self._request("POST", where, query={"fieldManager": FIELD_MANAGER}, body=manifest))
        except ConflictError:
            return None

    async def replace(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """The whole object; with metadata.resourceVersion it must be unchanged."""
        return slim(await self._request("PUT", self._path(ref_of(manifest)), body=manifest))

    async def delete(self, ref: Ref, uid: str, version: str | None, propagation: str = "Background") -> None:
        """Deletes the object if it still is the one with this uid, as it was at `version`; None: as it is by now.

        Gone or going counts as done.

        Raises:
            ConflictError: it has changed since it was seen.
        """
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid, **({} if version is None else {"resourceVersion": version})},
            "propagationPolicy": propagation,
        }
        try:
            await self._request("DELETE", self._path(ref), body=body)
        except NotFoundError:
            return
        except ConflictError:
            standing = await self.get(ref)
            metadata = {} if standing is None else standing["metadata"]
            if metadata.get("uid") == uid and "deletionTimestamp" not in metadata:
                raise

    async def watch(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        name: str | None = None,
        *,
        since: str,
        seconds: int,
        silence_s: float | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Events after a resourceVersion, until the server ends the stream.

        Of one named object, or of all of a kind. Nothing for `silence_s`, not even a bookmark, is an error.

        Raises:
            NotFoundError: the resourceVersion is too old.
            KubeError: refused, or broken off.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(seconds),
            **({"fieldSelector": f"metadata.name={name}"} if name is not None else {}),
        }
        where, what = path(api_version, kind, namespace), f"{kind} {namespace or ''}/{name or ''}"
        timeout = aiohttp.ClientTimeout(total=seconds + 30.0, sock_connect=5.0, sock_read=silence_s)
        try:
            response = await self._send("GET", where, query, None, JSON, JSON, timeout)
        except (aiohttp.ClientError, TimeoutError, OSError, ApiException) as error:
            raise TransientError(0, f"{what} cannot be watched: {error or type(error).__name__}") from error
        stream = response.response
        try:
            if response.status >= 400:
                raise _error(response.status, await response.read(), response.headers)
            async with aclosing(_lines(stream.content)) as lines:
                async for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _error(int(event["object"].get("code") or 500), line, {})
                    yield event
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise TransientError(0, f"the watch of {what} broke: {str(error) or type(error).__name__}") from error
        finally:
            stream.close()

    # The wire

    def _path(self, ref: Ref, sub: str = "") -> str:
        return path(ref.api_version, ref.kind, ref.namespace or None, ref.name, sub)

    async def _request(
        self,
        method: str,
        where: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> dict[str, Any]:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                answer = await self._once(method, where, query or {}, body, content_type, accept)
            except TransientError as error:
                # A creation whose fate is unknown is found by name, and conflicts then; all else may be repeated.
                if attempt == _ATTEMPTS or error.retry_after_s > _WAIT_MAX_S:
                    raise
                await asyncio.sleep(max(error.retry_after_s, 0.1 * 3**attempt * random.uniform(0.5, 1.0)))
                continue
            if method != "GET" and self.on_write is not None:
                self.on_write(method, where)
            return answer
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _once(
        self,
        method: str,
        where: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
        content_type: str,
        accept: str,
    ) -> dict[str, Any]:
        try:
            response = await self._send(method, where, query, body, content_type, accept, _REQUEST_TIMEOUT)
            content = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError, ApiException) as error:
            self._count(method, 0)
            raise TransientError(0, f"the API server did not answer: {error or type(error).__name__}") from error
        self._count(method, response.status)
        if response.status >= 400:
            raise _error(response.status, content, response.headers)
        answer: dict[str, Any] = json.loads(content) if content else {}
        return answer

    async def _send(
        self,
        method: str,
        where: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
        content_type: str,
        accept: str,
        timeout: aiohttp.ClientTimeout,
    ) -> Any:
        headers = {"Accept": accept, "Content-Type": content_type}
        _, url, headers, _, _ = await self._api.param_serialize(
            method, where, query_params=list(query.items()), header_params=headers, auth_settings=["BearerToken"]
        )
        return await self._api.call_api(method, url, headers, body, None, timeout)

    def _count(self, method: str, code: int) -> None:
        self.requests_total[method, code] = self.requests_total.get((method, code), 0) + 1
        if self.on_end is not None:
            self.on_end(0 < code < 500 and code != 429)


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    """The lines of a stream, however long; an object with its managed fields may be larger than a buffer."""
    rest: list[bytes] = []
    async for chunk in content.iter_any():
        head, *more = chunk.split(b"\n")
        rest.append(head)
        for part in more:
            if line := b"".join(rest):
                yield line
            rest = [part]


def ref_of(manifest: Mapping[str, Any]) -> Ref:
    """What names the object of a manifest."""
    metadata = manifest["metadata"]
    return Ref(manifest["apiVersion"], manifest["kind"], metadata.get("namespace", ""), metadata["name"])


def _error(code: int, content: bytes, headers: Mapping[str, str]) -> KubeError:
    try:
        status = json.loads(content)
        message = str(status.get("message") or content[:500])
        details = status.get("details") or {}
    except (ValueError, AttributeError):
        message, details = content[:500].decode(errors="replace"), {}
    text = f"{code}: {message}"
    if code == 409:
        return ConflictError(code, text)
    if code in (404, 410):
        error = NotFoundError(code, text)
        error.names_object = bool(details.get("name"))
        return error
    if code in (401, 403):
        return ForbiddenError(code, text)
    if code == 429 or code >= 500:
        after = headers.get("Retry-After", "") or str(details.get("retryAfterSeconds", ""))
        return TransientError(code, text, float(after) if after.isdigit() else 0.0)
    return InvalidError(code, text)
