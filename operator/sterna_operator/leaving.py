"""What the operator does last when its own namespace is being deleted: it lets go of everything in there.

Kubernetes deletes the pods of a namespace before anything else in it, this operator's among them. Whatever has our
finalizer would then wait for an operator that never comes again, and the namespace with it. So a process that is told
to stop looks whether its namespace is going, and if so takes its finalizer off all objects there, deleted already or
not: the brokers that they speak of go as well.
"""

import structlog

from sterna_operator.kube import STERNA_API, Kube, KubeError, Ref
from sterna_operator.plans import FINALIZER

log = structlog.get_logger(__name__)


async def let_go(kube: Kube, kinds: list[str], namespace: str) -> int:
    """Takes the finalizer off all objects of a namespace that is being deleted; how many there were.

    Never raises: the process ends anyway. What could not be done is logged, object by object.
    """
    try:
        found = await kube.get(Ref("v1", "Namespace", "", namespace))
    except KubeError as error:
        log.info("not known whether the namespace is going", namespace=namespace, error=str(error))
        return 0
    if found is None or "deletionTimestamp" not in found["metadata"]:
        return 0
    released = 0
    for kind in kinds:
        try:
            objects = await kube.list(STERNA_API, kind, namespace, only_metadata=True)
        except KubeError as error:
            log.warning("objects of a namespace that goes not listed", kind=kind, error=str(error))
            continue
        for object in objects:
            released += await _release(kube, kind, object["metadata"])
    log.info("let go of a namespace that is being deleted", namespace=namespace, objects=released)
    return released


async def _release(kube: Kube, kind: str, metadata: dict[str, object]) -> int:
    standing = metadata.get("finalizers")
    if not isinstance(standing, list) or FINALIZER not in standing:
        return 0
    kept = [one for one in standing if one != FINALIZER]
    patch = {"metadata": {"finalizers": kept, "resourceVersion": metadata["resourceVersion"]}}
    ref = Ref(STERNA_API, kind, str(metadata["namespace"]), str(metadata["name"]))
    try:
        await kube.merge_patch(ref, patch)
    except KubeError as error:
        log.warning("finalizer not taken off", object=f"{kind} {metadata['name']}", error=str(error))
        return 0
    return 1
