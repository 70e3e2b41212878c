"""A child that stands, and what it should be: what puts it right, and whose it is."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sterna_operator.builders import differences
from sterna_operator.plans import ApplyObject, RemoveObject, RepairObject


def put_right(
    manifest: Mapping[str, Any], standing: Mapping[str, Any], left: Collection[str]
) -> ApplyObject | RepairObject | RemoveObject | None:
    """What makes a child that stands into what it should be; None: it is. `left` as in `differences`.

    One that somebody made immutable is made anew. Secrets we may not delete: the status says it.
    """
    becoming = differences.corrected(manifest, standing, left)
    if becoming == standing:
        return None
    metadata, kind = standing["metadata"], manifest["kind"]
    label = f"{kind} {metadata['name']}"
    if standing.get("immutable"):
        where = (manifest["apiVersion"], kind, metadata["namespace"], metadata["name"])
        summary = f"remove {label}, which was made immutable behind the operator's back, to make it anew"
        removal = RemoveObject(summary, *where, metadata["uid"], metadata["resourceVersion"])
        return None if kind == "Secret" or "deletionTimestamp" in metadata else removal
    if not differences.is_of(manifest, standing):
        return ApplyObject(f"update {label}", manifest)
    changes = differences.changes(standing, becoming)
    summary = f"put {label} right, which was changed behind the operator's back: {changes}"
    patch = differences.repair(standing, becoming)
    if patch is None:
        return ApplyObject(summary, manifest, is_drift=True)
    remaining = differences.remaining(manifest, standing, left)
    return RepairObject(summary, manifest, patch, metadata["resourceVersion"], metadata["uid"], remaining)


# What can be changed of a Job that goes on, with what stands where a manifest is silent (None: nothing). All else the
# API server keeps as it was. That it is suspended is others' to say, as those who let Jobs wait for their turn do.
_OF_A_JOB = {
    "parallelism": 1,
    "activeDeadlineSeconds": None,
    "backoffLimit": 6,
    "ttlSecondsAfterFinished": None,
    "podReplacementPolicy": "Failed",
    "manualSelector": False,
}


def put_job_right(
    manifest: Mapping[str, Any], standing: Mapping[str, Any], left: Collection[str]
) -> RepairObject | None:
    """What puts right of a Job what can be; None: it is as it should be."""
    said, stands = manifest["spec"], standing["spec"]
    given = {name: said.get(name, default) for name, default in _OF_A_JOB.items() if name in said or name in stands}
    spec = {name: value for name, value in {**stands, **given}.items() if value is not None}
    wanted = {**manifest, "spec": spec}
    becoming = differences.corrected(wanted, standing, left)
    if becoming == standing:
        return None
    before, after = standing["metadata"], becoming["metadata"]
    names = ("labels", "annotations", "ownerReferences")
    metadata = {name: after[name] for name in names if after.get(name) != before.get(name)}
    patch = {**({"metadata": metadata} if metadata else {}), **(differences.repair(standing, becoming) or {})}
    text = differences.changes(standing, becoming)
    summary = f"put Job {before['name']} right, which was changed behind the operator's back: {text}"
    remaining = differences.remaining(wanted, standing, left)
    return RepairObject(summary, wanted, patch, before["resourceVersion"], before["uid"], remaining)


def is_owned_by(uid: str, child: Mapping[str, Any]) -> bool:
    """Whether a child belongs to the object with this uid."""
    return any(owner.get("uid") == uid for owner in child["metadata"].get("ownerReferences") or ())


def has_lost_its_owner(manifest: Mapping[str, Any], standing: Mapping[str, Any]) -> bool:
    """Whether a child has all our labels, and no owner: somebody took that away, or orphaned it."""
    labels, ours = standing["metadata"].get("labels") or {}, manifest["metadata"]["labels"]
    return not standing["metadata"].get("ownerReferences") and all(labels.get(key) == ours[key] for key in ours)


def foreign_child(
    uid: str, children: Mapping[tuple[str, str], Mapping[str, Any]], wanted: Iterable[Mapping[str, Any]]
) -> str | None:
    """A child by kind and name that has the name of one of these, and belongs to another object than that of `uid`."""
    for manifest in wanted:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        standing = children.get((kind, name))
        if standing is not None and not is_owned_by(uid, standing) and not has_lost_its_owner(manifest, standing):
            return f"{kind} {name}"
    return None
