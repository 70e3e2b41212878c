"""The objects of our kinds as Kubernetes last told of them, with the indexes that decisions need.

Watches fill it, and so do the answers to our own writes, so that the next decision does not come from before the last
one. What is older than what is known is passed over; resource versions of one API server can be compared. It is a copy:
every write that was decided from it says which version it has seen.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sterna_operator.keys import Key

CLUSTER = "MessagingCluster"
AUDIT_JOB = "AuditJob"
STORE_SNAPSHOT = "StoreSnapshot"

_ANNOTATIONS = "sterna.dev/"
# What hardly two objects have in common, and so is anything that is longer.
_OWN = frozenset({"name", "uid", "resourceVersion", "claim"})
_SHORT = 32
# So many different conditions are remembered. Where objects come and go most are of one of them, and nothing is saved.
_ALIKE_MAX = 2_000
_METADATA = (
    "name",
    "namespace",
    "uid",
    "generation",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "finalizers",
)


def key_of(object: Mapping[str, Any]) -> Key:
    """What names an object."""
    metadata = object["metadata"]
    return Key(object["kind"], metadata.get("namespace", ""), metadata["name"])


def cluster_of(object: Mapping[str, Any]) -> Key | None:
    """The MessagingCluster that an object names; None: it names none."""
    reference = (object.get("spec") or {}).get("clusterRef") or {}
    if not reference.get("name"):
        return None
    return Key(CLUSTER, reference.get("namespace") or object["metadata"]["namespace"], reference["name"])


def claim_of(object: Mapping[str, Any]) -> str:
    """The name that an object claims in its cluster, as `Resource.claim` says it, without reading the whole of it."""
    spec, name = object.get("spec") or {}, object["metadata"]["name"]
    own = str(spec.get("name") or name)
    if object["kind"] == "DurableSubscription":
        return f"{spec.get('clientId') or ''}/{own}"
    return name if object["kind"] in ("Bridge", CLUSTER) else own


def secrets_of(object: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Namespace and name of the Secrets that a User or an audit needs."""
    namespace, spec = object["metadata"]["namespace"], object.get("spec") or {}
    if object["kind"] == "User":
        return {(namespace, spec["passwordSecret"]["name"])}
    if object["kind"] not in (AUDIT_JOB, STORE_SNAPSHOT):
        return set()
    snapshots, connect = spec.get("snapshots") or {}, spec.get("connect") or {}
    bucket = (spec.get("storage") or {}).get("bucket") or {}
    named = [snapshots.get("signKeySecret"), snapshots.get("principalsKeySecret"), *(spec.get("keys") or ())]
    names = [one["name"] for one in (*named, connect.get("passwordSecret"), connect.get("ca")) if one]
    names += [connect.get("certificateSecret"), bucket.get("credentialsSecret")]
    # Where it says nothing of an authority, it is the one that the cluster tells applications.
    names.append(f"{(spec.get('clusterRef') or {}).get('name')}-connection")
    return {(namespace, name) for name in names if name}


class Objects:
    """The copy and its indexes."""

    def __init__(self) -> None:
        self._objects: dict[Key, dict[str, Any]] = {}
        self._alike = _Alike()
        self._gone: dict[Key, int] = {}
        self._listed: set[tuple[str, str | None]] = set()
        self._of_cluster: defaultdict[Key, set[Key]] = defaultdict(set)
        # Nearly all names are claimed once, and a tuple of one takes a quarter of a set.
        self._of_claim: dict[tuple[Key, str, str], tuple[Key, ...]] = {}
        self._of_secret: defaultdict[tuple[str, str], set[Key]] = defaultdict(set)

    def get(self, key: Key) -> dict[str, Any] | None:
        """One object; not to be changed."""
        return self._objects.get(key)

    def keys(self, kind: str | None = None) -> list[Key]:
        """All objects, or those of a kind."""
        return [key for key in self._objects if kind is None or key.kind == kind]

    def of_cluster(self, cluster: Key) -> set[Key]:
        """The objects that name a cluster."""
        return self._of_cluster.get(cluster, set())

    def of_claim(self, cluster: Key, kind: str, claim: str) -> set[Key]:
        """The objects that claim one name in a cluster."""
        return set(self._of_claim.get((cluster, kind, claim), ()))

    def of_secret(self, namespace: str, name: str) -> set[Key]:
        """The objects that name a Secret."""
        return self._of_secret.get((namespace, name), set())

    def note_listed(self, kind: str, namespace: str | None) -> None:
        """All objects of a kind, in a namespace or in all (None), have been put here once."""
        self._listed.add((kind, namespace))

    def has_listed(self, kind: str, namespaces: Iterable[str]) -> bool:
        """Whether what is not known of a kind in these namespaces (none: in all) is not there."""
        return all((kind, namespace) in self._listed for namespace in tuple(namespaces) or (None,))

    def put(self, object: Mapping[str, Any]) -> bool:
        """Told of an object; whether that is news."""
        key, version = key_of(object), version_of(object)
        known = self._objects.get(key)
        if (known is not None and version_of(known) >= version) or self._gone.get(key, -1) >= version:
            return False
        self._gone.pop(key, None)
        if known is not None:
            self._unlink(key, known)
        kept = self._objects[key] = _slim(object, self._alike)
        for index, entry in self._links(kept):
            index[entry].add(key)
        if (claim := _claim(kept)) is not None:
            self._of_claim[claim] = (*self._of_claim.get(claim, ()), key)
        return True

    def remove(self, key: Key, version: int) -> bool:
        """Told that an object is gone; whether that is news. `version` 0: whatever is known of it."""
        known = self._objects.get(key)
        if known is None or (version and version_of(known) > version):
            return False
        # A late word of the time before would bring it back.
        self._gone[key] = max(version, version_of(known))
        del self._objects[key]
        self._unlink(key, known)
        return True

    def __len__(self) -> int:
        return len(self._objects)

    def forget_gone(self, kept_max: int = 10_000) -> None:
        """Bounds the memory of what is gone: the oldest half goes."""
        if len(self._gone) > kept_max:
            for key in list(self._gone)[: len(self._gone) // 2]:
                del self._gone[key]

    def _links(self, object: Mapping[str, Any]) -> Iterable[tuple[Any, Any]]:
        cluster = cluster_of(object)
        if cluster is not None:
            yield self._of_cluster, cluster
        for secret in secrets_of(object):
            yield self._of_secret, secret

    def _unlink(self, key: Key, object: Mapping[str, Any]) -> None:
        for index, entry in self._links(object):
            index[entry].discard(key)
            if not index[entry]:
                del index[entry]
        if (claim := _claim(object)) is not None:
            rest = tuple(one for one in self._of_claim[claim] if one != key)
            if rest:
                self._of_claim[claim] = rest
            else:
                del self._of_claim[claim]


def _claim(object: Mapping[str, Any]) -> tuple[Key, str, str] | None:
    """Cluster, kind and name that an object claims; None: it names no cluster."""
    cluster = cluster_of(object)
    return None if cluster is None else (cluster, object["kind"], claim_of(object))


def version_of(object: Mapping[str, Any]) -> int:
    """Which version of an object this is, 0 where that is not said; of one API server they can be compared."""
    return int(object["metadata"].get("resourceVersion") or 0)


class _Alike:
    """Conditions that say the same, kept once: of thousands of objects most do, and they are most of each."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, Any], ...], dict[str, Any]] = {}

    def status(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """A status whose conditions are shared with others; not to be changed, as all that is kept here."""
        found = _once(status)
        if isinstance(said := status.get("conditions"), list):
            found["conditions"] = [self._one(condition) for condition in said]
        return found

    def _one(self, condition: dict[str, Any]) -> dict[str, Any]:
        try:
            marks = tuple(condition.items())
            known = self._known.get(marks)
        except TypeError:
            # No condition of ours: it has lists in it.
            return condition
        if known is None:
            if len(self._known) >= _ALIKE_MAX:
                # Who has one of these keeps it.
                self._known.clear()
            known = self._known[marks] = condition
        return known


def _slim(object: Mapping[str, Any], alike: _Alike) -> dict[str, Any]:
    metadata = object["metadata"]
    kept = _once({name: metadata[name] for name in _METADATA if name in metadata})
    annotations = metadata.get("annotations") or {}
    ours = {name: value for name, value in annotations.items() if name.startswith(_ANNOTATIONS)}
    if ours:
        kept["annotations"] = ours
    return {
        "apiVersion": sys.intern(object["apiVersion"]),
        "kind": sys.intern(object["kind"]),
        "metadata": kept,
        "spec": _once(object.get("spec") or {}),
        "status": alike.status(object.get("status") or {}),
    }


def _once(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields whose short texts, which others have, too, are kept once: namespaces, policies, brokers' names."""
    return {
        name: sys.intern(value) if type(value) is str and len(value) <= _SHORT and name not in _OWN else value
        for name, value in fields.items()
    }
