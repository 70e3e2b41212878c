"""MessagingCluster: brokers, their etcd if it is managed, and all that stands around them.

`plan` is a pure function from the manifest and what was observed to steps: what is applied, what goes, which broker is
emptied, which one is restarted. It never does two things to the brokers at once: scaling and restarting one is each
decided from what serves now. `cluster_status` says what has become of it, `cluster_observing` gathers what is observed.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sterna_resources.messaging_cluster import MessagingCluster

from sterna_operator import conditions
from sterna_operator.builders import brokers as broker_builder
from sterna_operator.builders import certificate, connection, differences, etcd, monitoring, protection, services
from sterna_operator.builders.blueprint import SECRETS_ANNOTATION, Blueprint
from sterna_operator.kinds import (
    cluster_certificate,
    cluster_claims,
    cluster_deletion,
    cluster_interlock,
    cluster_issuing,
    cluster_outside,
    cluster_rolling,
    cluster_scaling,
    cluster_status,
    cluster_taken,
)
from sterna_operator.kinds.cluster_interlock import Interlock
from sterna_operator.kinds.cluster_rolling import Rolling
from sterna_operator.kinds.cluster_scaling import Scaling
from sterna_operator.kinds.cluster_seen import Desired, Observed
from sterna_operator.kinds.holds import pause_of
from sterna_operator.kinds.upkeep import foreign_child, is_owned_by, put_right
from sterna_operator.plans import (
    FINALIZER,
    AddFinalizer,
    Announcement,
    ApplyObject,
    PatchObject,
    Plan,
    PutDrain,
    RemoveBroker,
    RemoveFinalizer,
    RemoveObject,
    RepairObject,
    Step,
    Wanted,
)
from sterna_operator.reasons import Reason

FORCE_DRAIN = "sterna.dev/force-drain"

# Something is on its way that no watch tells of: a broker that registers, a volume that grows.
_AGAIN_S = 5.0
# A cluster's place in etcd is another's: of this Kubernetes, as far as it is known here, or as etcd has it. Or it
# is one that the operator may not speak to.
_NOT_FOR_US = (Reason.NameClaimed.name, Reason.ManagedByOther.name, Reason.EndpointNotAllowed.name)


def plan(desired: Desired, observed: Observed) -> Plan:
    """What is to be done for a cluster."""
    if desired.is_deleting:
        return _deletion(desired, observed)
    if (claimed := _claimed(desired, observed)) is not None:
        return claimed
    if (paused := _paused(desired, observed)) is not None:
        return paused
    scaling = _scaling(desired, observed)
    blueprint, issued = _blueprint(desired, observed, scaling.replicas)
    interlock = _interlock(desired, observed, scaling, blueprint)
    if (held := interlock.waits or interlock.keeps) and not _is_forced(desired):
        scaling = _scaling(desired, observed, held=held)
        blueprint, issued = _blueprint(desired, observed, scaling.replicas)
    observed = replace(observed, secrets={**observed.secrets, **issued})
    wanted = children(blueprint, observed, issued)
    if blueprint.connection_secret in _made_secrets(cluster := desired.cluster):
        text = f"spec.connectionSecret: {blueprint.connection_secret} is where the operator keeps a certificate of"
        return _stands_back(desired, f"{text} {cluster.label}: name another Secret")
    if (foreign := foreign_child(desired.uid, observed.children, wanted)) is not None:
        return _stands_back(desired, f"{foreign} exists already and is not this cluster's: rename one of them")
    missing = sorted(name for name, data in observed.secrets.items() if data is None and _is_needed(blueprint, name))
    steps: list[Step] = [*_added_finalizer(desired), *cluster_claims.owned(blueprint, observed.claims)]
    steps += _applied(blueprint, observed, wanted, is_held=bool(missing))
    steps += _removed(desired, observed, wanted)
    steps += _restarted_etcd(blueprint, observed)
    steps += cluster_claims.grown(blueprint, observed.claims)
    steps += scaling.steps
    rolling = _rolling(blueprint, observed)
    judged = cluster_certificate.judge(blueprint, observed.secrets, observed.now_ms)
    if not missing:
        steps += _hurried(blueprint, observed)
        # One that does not serve anyway is repaired at once: it gives no export either.
        if interlock.waits and (rolling.restart is None or rolling.restart.name in _serving(observed)):
            rolling = replace(rolling, restart=None, waits_for=interlock.waits.removeprefix("waits for "))
        if judged is None or not judged.broken:
            steps += _restarted(blueprint, rolling)
    # Last: without it the cluster may go at any moment, and what it is to leave behind must not be its own any more.
    steps += _removed_finalizer(desired)
    facts = cluster_status.Facts(
        blueprint=blueprint,
        pods=observed.pods,
        members=observed.members,
        scaling=scaling,
        rolling=rolling,
        serving=_serving(observed),
        missing_secrets=tuple(missing),
        pending=tuple(cluster_outside.pending(blueprint, observed.of_kind("Service"))),
        put_back=_put_back(observed),
        immutable=tuple(name for name, child in observed.of_kind("Secret").items() if child.get("immutable")),
        late=cluster_taken.late(blueprint, observed.pods, observed.members, observed.secrets),
        lacks_cert_manager=_lacks_cert_manager(blueprint, observed),
        operator_version=observed.defaults.version,
        refused_pods=observed.refused_pods,
        certificate=judged,
        maintenance=interlock.maintenance,
        now_ms=observed.now_ms,
    )
    status, settled = cluster_status.wanted(facts)
    announced = (
        *_announcements(observed, scaling, rolling, steps, missing),
        *(Announcement(Reason.NotServing, text) for text in cluster_status.warnings(facts)),
        *([Announcement(Reason.CertificateInvalid, judged.fault)] if judged is not None and judged.fault else []),
        *cluster_interlock.announced(interlock, is_forced=_is_forced(desired)),
    )
    return Plan(tuple(steps), status, announced, None if settled else _AGAIN_S)


def referenced_secrets(cluster: MessagingCluster) -> set[str]:
    """The names of the Secrets that a cluster depends on, in its own namespace."""
    spec = cluster.spec
    names: set[str | None] = {spec.etcd.credentials_secret, *_made_secrets(cluster)}
    if spec.tls is not None:
        names.add(spec.tls.secret_name or f"{cluster.metadata.name}-tls")
        names |= {ca.name for ca in (spec.tls.ca, spec.tls.client_ca) if ca is not None}
    if spec.etcd.tls is not None:
        names |= {spec.etcd.tls.ca.name, spec.etcd.tls.certificate_secret}
    return {name for name in names if name is not None}


def _made_secrets(cluster: MessagingCluster) -> set[str]:
    """The names of the Secrets that certificates are kept in which the operator makes."""
    tls, managed = cluster.spec.tls, cluster.spec.etcd.managed
    has_generated = tls is not None and tls.generated is not None
    may_secure = managed is not None and managed.tls is not False
    return cluster_issuing.names(cluster.metadata.name, has_generated=has_generated, may_secure_etcd=may_secure)


# What is to be there


def children(
    blueprint: Blueprint, observed: Observed, issued: Mapping[str, Mapping[str, bytes]] | None = None
) -> list[dict[str, Any]]:
    """All objects that a cluster consists of, in the order in which they are made.

    `issued`: the Secrets with certificates of ours that have to be written; those that are right are left alone.
    """
    spec = blueprint.spec
    built = [*protection.build(blueprint), *services.build(blueprint)]
    built += cluster_issuing.manifests(blueprint, issued or {})
    if spec.etcd.managed is not None:
        size = _claim_size(observed.children.get(("StatefulSet", blueprint.etcd)))
        built += etcd.build(blueprint, spec.etcd.managed, size)
    built += [connection.settings(blueprint), connection.connection(blueprint)]
    if spec.tls is not None and spec.tls.cert_manager is not None and observed.has_certificates:
        built.append(certificate.build(blueprint, spec.tls.cert_manager))
    if spec.monitoring.pod_monitor and observed.has_pod_monitors:
        built.append(monitoring.build(blueprint))
    built.append(broker_builder.build(blueprint))
    return [differences.stamped(one) for one in built]


def _blueprint(desired: Desired, observed: Observed, replicas: int) -> tuple[Blueprint, dict[str, dict[str, bytes]]]:
    """Everything settled that children are made of, and the certificates that have to be made for it.

    Addresses come last: they need the names; and certificates name the addresses.
    """
    cluster, defaults = desired.cluster, observed.defaults
    managed = cluster.spec.etcd.managed
    standing = observed.children.get(("StatefulSet", f"{cluster.metadata.name}-broker"))
    standing_etcd = observed.children.get(("StatefulSet", f"{cluster.metadata.name}-etcd"))
    first = Blueprint(
        cluster=cluster,
        namespace=desired.namespace,
        uid=desired.uid,
        image=cluster.spec.image or desired.status.get("image") or _image(standing) or defaults.broker_image,
        # As with brokers: a newer operator leaves what runs alone.
        etcd_image=(managed.image if managed else None)
        or desired.status.get("etcdImage")
        or _image(standing_etcd)
        or defaults.etcd_image,
        operator_pods=defaults.operator_pods,
        replicas=replicas,
        claim_size=_claim_size(standing),
        etcd_user=_etcd_user(cluster, observed),
        is_etcd_secured=managed is not None and etcd.is_secured(managed, standing_etcd, standing),
    )
    given = observed.of_kind("Service")
    located = replace(first, addresses=cluster_outside.addresses(first, given))
    issued = cluster_issuing.issued(located, observed.secrets, observed.now_ms)
    observed = replace(observed, secrets={**observed.secrets, **issued})
    trusted = (observed.secrets.get(located.etcd_server_secret) or {}).get("ca.crt", b"")
    trust = hashlib.sha256(trusted).hexdigest()[:16]
    located = replace(located, ca=_ca(cluster, observed), etcd_trust=trust if located.is_etcd_secured else "")
    hosts = {pod.ordinal: pod.host_ip for pod in observed.pods}
    outside = cluster_outside.urls(located, given, hosts)
    settled = replace(
        located,
        outside_urls=outside,
        settings_hash=broker_builder.settings_hash(located),
        former_hashes={form: broker_builder.settings_hash(located, form) for form in broker_builder.FORMER_DEFAULTS},
    )
    return settled, issued


def _image(stateful_set: Mapping[str, Any] | None) -> str | None:
    if stateful_set is None:
        return None
    return str(stateful_set["spec"]["template"]["spec"]["containers"][0]["image"])


def _claim_size(stateful_set: Mapping[str, Any] | None) -> Any:
    if stateful_set is None:
        return None
    return stateful_set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"]


def _ca(cluster: MessagingCluster, observed: Observed) -> str | None:
    """What clients are to trust, from the Secret that has it."""
    tls = cluster.spec.tls
    if tls is None:
        return None
    name = tls.ca.name if tls.ca else tls.secret_name or f"{cluster.metadata.name}-tls"
    data = observed.secrets.get(name) or {}
    found = data.get(tls.ca.key if tls.ca else "ca.crt")
    return None if found is None else found.decode("utf-8", "replace")


def _etcd_user(cluster: MessagingCluster, observed: Observed) -> str | None:
    name = cluster.spec.etcd.credentials_secret
    found = ((observed.secrets.get(name) or {}) if name else {}).get("username")
    return None if found is None else found.decode("utf-8", "replace").strip()


# Steps


def _added_finalizer(desired: Desired) -> list[Step]:
    """Only a deletion that has something to wait for, or to say, needs one."""
    policy = desired.cluster.spec.deletion_policy
    if policy == "retain" or desired.has_finalizer:
        return []
    until = "until it is said what is destroyed with it" if policy == "delete" else "until it holds no message"
    return [AddFinalizer(f"keep {desired.label} {until} ({FINALIZER})")]


def _removed_finalizer(desired: Desired) -> list[Step]:
    if desired.cluster.spec.deletion_policy != "retain" or not desired.has_finalizer:
        return []
    return [RemoveFinalizer(f"let {desired.label} be deleted at any time")]


def _applied(
    blueprint: Blueprint, observed: Observed, wanted: Iterable[Mapping[str, Any]], *, is_held: bool
) -> list[Step]:
    """What is not as it is to be.

    Pods that could not start for want of a Secret are not made in the first place, nor before Kubernetes has given out
    the ports that they are to name.
    """
    steps: list[Step] = []
    for manifest in wanted:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        standing = observed.children.get((kind, name))
        if kind == "StatefulSet" and name == blueprint.brokers and standing is None:
            ports = [
                listener.name
                for listener in blueprint.spec.listeners
                if listener.type == "nodePort"
                and ("Service", blueprint.listener(listener.name, 0)) not in observed.children
            ]
            if is_held or ports:
                continue
        if standing is None:
            steps.append(ApplyObject(f"create {kind} {name}", manifest, is_new=True))
        elif (
            step := put_right(manifest, standing, observed.put_back.get(standing["metadata"]["uid"], ()))
        ) is not None:
            steps.append(step)
    return steps


def _removed(desired: Desired, observed: Observed, wanted: Iterable[Mapping[str, Any]]) -> list[Step]:
    """What was made for the cluster and is wanted no more."""
    kept = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in wanted}
    steps: list[Step] = []
    for (kind, name), child in sorted(observed.children.items()):
        # The StatefulSets are never removed but with the cluster: their pods are what all this is for.
        if (kind, name) in kept or kind == "StatefulSet" or not is_owned_by(desired.uid, child):
            continue
        metadata = child["metadata"]
        if "deletionTimestamp" not in metadata:
            steps.append(
                RemoveObject(
                    f"remove {kind} {name}",
                    child["apiVersion"],
                    kind,
                    desired.namespace,
                    name,
                    metadata["uid"],
                    metadata["resourceVersion"],
                )
            )
    return steps


def _hurried(blueprint: Blueprint, observed: Observed) -> list[Step]:
    """The kubelet looks at mounted Secrets and ConfigMaps about once a minute, and at once when the pod has changed."""
    steps: list[Step] = []
    for pod in observed.pods:
        wanted = mounted_hash(blueprint, observed, pod.ordinal)
        if pod.secrets != wanted and not pod.is_going:
            patch = {"metadata": {"annotations": {SECRETS_ANNOTATION: wanted}}}
            summary = f"have changed files mounted in pod {pod.name} at once"
            steps.append(PatchObject(summary, "v1", "Pod", blueprint.namespace, pod.name, patch, pod.version))
    return steps


def mounted_hash(blueprint: Blueprint, observed: Observed, ordinal: int) -> str:
    """A hash of what a broker's pod mounts and takes up without a restart."""
    digest = hashlib.sha256(" ".join((blueprint.uid, *blueprint.advertised(ordinal))).encode())
    for name in broker_builder.mounted_secrets(blueprint):
        data = observed.secrets.get(name) or {}
        for key in sorted(data):
            digest.update(f"\0{name}\0{key}\0".encode() + data[key])
    return digest.hexdigest()[:16]


def _restarted_etcd(blueprint: Blueprint, observed: Observed) -> list[Step]:
    """It reads when it starts whether it speaks TLS, and whom it trusts. Brokers serve on meanwhile."""
    wanted = etcd.made_for(blueprint)
    pod = observed.etcd_pod
    if pod is None or blueprint.spec.etcd.managed is None or pod.is_going or pod.settings == wanted:
        return []
    summary = f"restart etcd {pod.name}: how it is reached, or whom it trusts, has changed"
    return [RemoveObject(summary, "v1", "Pod", blueprint.namespace, pod.name, pod.uid, pod.version)]


def _rolling(blueprint: Blueprint, observed: Observed) -> Rolling:
    wanted, former = blueprint.settings_hash, blueprint.former_hashes
    return cluster_rolling.decide(observed.pods, blueprint.replicas, wanted, _serving(observed), former)


def _restarted(blueprint: Blueprint, rolling: Rolling) -> list[Step]:
    pod = rolling.restart
    if pod is None:
        return []
    summary = f"restart broker {pod.name}: what it was made for has changed"
    return [RemoveObject(summary, "v1", "Pod", blueprint.namespace, pod.name, pod.uid, pod.version)]


# What is known


def _scaling(desired: Desired, observed: Observed, *, held: str = "") -> Scaling:
    name, wanted = desired.cluster.metadata.name, desired.cluster.spec.brokers
    standing = _standing_replicas(desired, observed)
    names = {ordinal: f"{name}-broker-{ordinal}" for ordinal in range(max(wanted, standing or 0))}
    pods = frozenset(pod.name for pod in observed.pods)
    force = _is_forced(desired)
    return cluster_scaling.decide(wanted, standing, names, observed.members, pods, force=force, held=held)


def _standing_replicas(desired: Desired, observed: Observed) -> int | None:
    stateful_set = observed.children.get(("StatefulSet", f"{desired.cluster.metadata.name}-broker"))
    return None if stateful_set is None else int(stateful_set["spec"].get("replicas", 1))


def _is_forced(desired: Desired) -> bool:
    return desired.cluster.metadata.annotations.get(FORCE_DRAIN) == "true"


def _interlock(desired: Desired, observed: Observed, scaling: Scaling, blueprint: Blueprint) -> Interlock:
    """Whether brokers may be touched now, beside the runs of AuditJobs."""
    rolling = _rolling(blueprint, observed)
    standing = _standing_replicas(desired, observed) or 0
    return cluster_interlock.decide(
        desired.status.get("maintenance"),
        observed.audits,
        outdated=rolling.outdated,
        leaving=[blueprint.broker(ordinal) for ordinal in range(scaling.replicas, standing)],
        are_all_serving=len(_serving(observed)) >= blueprint.replicas,
        now_ms=observed.now_ms,
    )


def touches_brokers(desired: Desired, observed: Observed) -> bool:
    """Whether audits' runs matter now: a broker is to be restarted or taken away, or that was said before."""
    if desired.is_deleting or _paused(desired, observed) is not None:
        return False
    if desired.status.get("maintenance") is not None:
        return True
    scaling = _scaling(desired, observed)
    blueprint, _ = _blueprint(desired, observed, scaling.replicas)
    rolling = _rolling(blueprint, observed)
    return bool(rolling.outdated) or scaling.replicas < (_standing_replicas(desired, observed) or 0)


def _serving(observed: Observed) -> frozenset[str]:
    """Brokers that are ready and, where etcd can be asked, have registered there."""
    members = observed.members
    return frozenset(
        pod.name
        for pod in observed.pods
        if pod.is_ready and not pod.is_going and (members.fault is not None or pod.name in members.live)
    )


def _is_needed(blueprint: Blueprint, secret: str) -> bool:
    return secret in broker_builder.mounted_secrets(blueprint)


def _put_back(observed: Observed) -> tuple[str, ...]:
    """The children that somebody's webhook, say, keeps another than they should be, with one of the fields each."""
    marks = {key: observed.put_back.get(child["metadata"].get("uid", "")) for key, child in observed.children.items()}
    return tuple(
        f"{kind} {name} ({min(found).partition('=')[0]})" for (kind, name), found in sorted(marks.items()) if found
    )


def _lacks_cert_manager(blueprint: Blueprint, observed: Observed) -> bool:
    tls = blueprint.spec.tls
    return tls is not None and tls.cert_manager is not None and not observed.has_certificates


def _announcements(
    observed: Observed, scaling: Scaling, rolling: Rolling, steps: Iterable[Step], missing: list[str]
) -> tuple[Announcement, ...]:
    said = []
    made = [step for step in steps if isinstance(step, ApplyObject) and step.manifest["kind"] == "StatefulSet"]
    said += [Announcement(Reason.Created, f"{step.summary}") for step in made if step.summary.startswith("create")]
    said += [
        Announcement(Reason.DriftRepaired, step.summary)
        for step in steps
        if isinstance(step, RepairObject) or (isinstance(step, ApplyObject) and step.is_drift)
    ]
    if missing:
        said.append(Announcement(Reason.ReferenceMissing, f"waits for Secret {', '.join(missing)}"))
    if any(isinstance(step, PutDrain) for step in scaling.steps):
        said.append(Announcement(Reason.Draining, f"brokers are being emptied: {', '.join(sorted(scaling.waiting))}"))
    blocked = {broker: text for broker, text in scaling.waiting.items() if broker in scaling.blocked}
    if blocked:
        said.append(Announcement(Reason.DrainBlocked, "; ".join(f"{name} {text}" for name, text in blocked.items())))
    said += [
        Announcement(Reason.BrokerGivenUp, cluster_scaling.loss(step.broker, observed.members))
        for step in scaling.steps
        if isinstance(step, RemoveBroker) and step.gives_up_homes
    ]
    if rolling.restart is not None and not missing:
        said.append(Announcement(Reason.Rolling, f"broker {rolling.restart.name} is restarted with changed settings"))
    return tuple(said)


# Standing back, and going


def _paused(desired: Desired, observed: Observed) -> Plan | None:
    pause = pause_of(desired.cluster.spec.paused, observed.now_ms)
    if pause is None:
        return None
    standing = _standing_replicas(desired, observed)
    return pause.plan(cluster_status.paused(pause, desired, standing, observed.pods, _serving(observed)))


def _claimed(desired: Desired, observed: Observed) -> Plan | None:
    """The plan of a cluster whose place in etcd is another one's (its brokers would join that), or is not allowed."""
    fault = observed.members.fault
    if fault is None or fault[0] not in _NOT_FOR_US:
        return None
    return _stands_back(desired, fault[1], _AGAIN_S, reason=Reason[fault[0]])


def _stands_back(
    desired: Desired, text: str, again_s: float | None = None, *, reason: Reason = Reason.NameClaimed
) -> Plan:
    status = Wanted(conditions.stalled(reason.name, text), cluster_status.kept(desired.status))
    return Plan(status=status, announcements=(Announcement(reason, text),), again_s=again_s)


def _deletion(desired: Desired, observed: Observed) -> Plan:
    """See cluster_deletion. A cluster that waits is looked after, unless Kubernetes takes it apart at the same time."""
    if not desired.has_finalizer:
        return Plan()
    blueprint, _ = _blueprint(desired, observed, _scaling(desired, observed).replicas)
    upkeep: list[Step] = []
    if not desired.is_dismantled:
        wanted = children(blueprint, observed)
        if foreign_child(desired.uid, observed.children, wanted) is None:
            # No StatefulSet is made any more.
            upkeep = [*_applied(blueprint, observed, wanted, is_held=True), *_hurried(blueprint, observed)]
    return cluster_deletion.decide(desired, observed, cluster_claims.owned(blueprint, observed.claims), upkeep)
