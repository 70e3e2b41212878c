"""`sterna-operator plan -f FILE`: what would be done for manifests, said by the functions that would do it.

Objects that Kubernetes has are taken with their identity and state from there and with the spec from the file; others
as if they had just been created. Nothing is written anywhere.
"""

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterna_resources.kinds import KUBERNETES_KINDS
from sterna_resources.problems import ManifestError
from sterna_resources.reading import read_files
from sterna_resources.resource import Resource

from sterna_operator.keys import Key
from sterna_operator.kube import STERNA_API, Ref, load_configuration
from sterna_operator.objects import CLUSTER, cluster_of, key_of
from sterna_operator.running import Parts, assemble, load
from sterna_operator.settings import OperatorSettings
from sterna_operator.view import open_etcd

_ETCD_TIMEOUT_S = 10.0


async def plan_files(settings: OperatorSettings, files: Sequence[Path], namespace: str) -> int:
    """Prints the plans; the exit status is 0, or 1 when a file cannot be read."""
    try:
        manifests = read_files(files, KUBERNETES_KINDS)
    except ManifestError as error:
        print(error, file=sys.stderr)
        return 1
    parts = assemble(settings, await load_configuration(settings.kubeconfig))
    parts.clusters.only_looks = True
    async with contextlib.AsyncExitStack() as ends:
        for end in (parts.kube.close, parts.clusters.close, parts.named.close, parts.secrets.close):
            ends.push_async_callback(end)
        await load(parts)
        for manifest in manifests:
            if manifest.resource.kind not in parts.kinds:
                print(f"{manifest.resource.label}: no kind of Kubernetes", file=sys.stderr)
                return 1
            print(await _plan(parts, manifest.resource, namespace))
    return 0


async def _plan(parts: Parts, resource: Resource, namespace: str) -> str:
    object = await _object(parts, resource, namespace)
    cluster = key_of(object) if resource.kind == CLUSTER else cluster_of(object)
    if cluster is not None:
        await _open(parts, cluster)
    parts.objects.put(object)
    decision = await parts.kinds[resource.kind].decide(parts.view, object)
    lines = [f"{key_of(object)}"]
    lines += [f"  {number}. {line}" for number, line in enumerate(decision.plan.lines(), 1)]
    if not decision.plan.steps:
        lines.append("  nothing to do")
    if decision.plan.status is not None:
        ready = decision.plan.status.conditions[0]
        lines.append(f"  then: {ready.type}={ready.status} ({ready.reason}) {ready.message}".rstrip())
    return "\n".join(lines)


async def _object(parts: Parts, resource: Resource, namespace: str) -> dict[str, Any]:
    where = resource.metadata.namespace or namespace
    standing = await parts.kube.get(Ref(STERNA_API, resource.kind, where, resource.metadata.name))
    spec = resource.model_dump(by_alias=True, exclude_unset=True, mode="json").get("spec", {})
    if standing is not None:
        changed = standing["spec"] != {**standing["spec"], **spec}
        standing["metadata"]["generation"] = int(standing["metadata"]["generation"]) + (1 if changed else 0)
        return {**standing, "spec": {**standing["spec"], **spec}}
    metadata = {
        "name": resource.metadata.name,
        "namespace": where,
        "uid": "new",
        "generation": 1,
        "resourceVersion": "1",
    }
    return {"apiVersion": STERNA_API, "kind": resource.kind, "metadata": metadata, "spec": spec, "status": {}}


async def _open(parts: Parts, key: Key) -> None:
    """Waits until the cluster's etcd was read, for a while."""
    object = parts.objects.get(key)
    if object is None:
        return
    await open_etcd(parts.view, object)
    store = parts.clusters.get(key)
    if store is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ETCD_TIMEOUT_S):
                await store.listed.wait()
