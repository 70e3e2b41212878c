"""A little Kubernetes for plans: it takes the steps of a cluster's plan and does what controllers would do of them.

It holds objects as they were applied, makes pods of the brokers' StatefulSet, gives out ports, and answers for etcd
what brokers would. No API server: that the objects are accepted is shown elsewhere.
"""

import base64
import copy
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sterna_etcd.records import BrokerRecord, BrokerStatus, Draining, DrainRecord
from sterna_operator import conditions
from sterna_operator.builders.blueprint import SECRETS_ANNOTATION, SETTINGS_ANNOTATION, OperatorPods
from sterna_operator.kinds.cluster_rolling import Pod
from sterna_operator.kinds.cluster_seen import Defaults, Desired, Observed
from sterna_operator.kinds.messaging_cluster import plan
from sterna_operator.plans import (
    AddFinalizer,
    ApplyObject,
    PatchObject,
    Plan,
    PutDrain,
    RemoveBroker,
    RemoveDrain,
    RemoveFinalizer,
    RemoveObject,
    RepairObject,
    Step,
)
from sterna_resources.messaging_cluster import MessagingCluster

OPERATOR_PODS = OperatorPods("operators", {"app.kubernetes.io/name": "renamed"})
DEFAULTS = Defaults("localhost/broker:1", "localhost/etcd:1", "1.0.0", OPERATOR_PODS)


def manifest(spec: Mapping[str, Any], **metadata: Any) -> MessagingCluster:
    """A cluster `orders` in namespace `mq`: insecure, with a managed etcd, unless `spec` says otherwise."""
    whole = {"etcd": {"managed": {}}, "insecure": True, **spec}
    return MessagingCluster.model_validate(
        {
            "apiVersion": "sterna.dev/v1alpha1",
            "kind": "MessagingCluster",
            "metadata": {"name": "orders", "namespace": "mq", **metadata},
            "spec": whole,
        }
    )


class World:
    """Everything around one cluster."""

    def __init__(self, spec: Mapping[str, Any], defaults: Defaults = DEFAULTS) -> None:
        self.desired = Desired(manifest(spec), "mq", "uid-1", 1)
        self.observed = Observed(defaults)
        self.messages: dict[str, int] = {}
        self.restarted: list[str] = []
        self.last = Plan()
        self.finalized = False
        self.files_are_late = False
        """Whether the kubelet has not brought changed files into pods yet: brokers go on with what they have read."""
        self._next = 1

    # What a person does

    def edit(self, spec: Mapping[str, Any], **metadata: Any) -> None:
        """The manifest is another one now."""
        self.desired = replace(self.desired, cluster=manifest(spec, **metadata), generation=self.desired.generation + 1)

    def decide(self) -> Plan:
        """The plan for things as they are."""
        return plan(self.desired, self.observed)

    def reconcile(self) -> Plan:
        """One round: plan, do it, and let controllers and brokers do theirs."""
        self.last = self.decide()
        for step in self.last.steps:
            self._do(step)
        if self.last.status is not None:
            said, standing = self.last.status, self.desired.status.get("conditions") or ()
            told = conditions.written(said.conditions, standing, self.desired.generation, self.observed.now_ms)
            self.desired = replace(self.desired, status={**said.fields, "conditions": told})
        self._controllers()
        return self.last

    def settle(self, rounds_max: int = 60) -> Plan:
        """Rounds until nothing is to be done any more; the last plan."""
        for _ in range(rounds_max):
            if not self.reconcile().steps and not self.decide().steps:
                return self.last
        raise AssertionError(f"does not settle: {self.last.lines()}")

    # What is there

    @property
    def pods(self) -> dict[str, Pod]:
        """The pods by name."""
        return {pod.name: pod for pod in self.observed.pods}

    def child(self, kind: str, name: str) -> Mapping[str, Any]:
        """A child, which has to be there."""
        return self.observed.children[kind, name]

    def names(self, kind: str) -> set[str]:
        """The names of all children of a kind."""
        return set(self.observed.of_kind(kind))

    def condition(self, name: str = "Ready") -> tuple[str, str]:
        """Status and reason of a condition of the last plan."""
        assert self.last.status is not None
        one = next(one for one in self.last.status.conditions if one.type == name)
        return one.status, one.reason

    def message(self) -> str:
        """What Ready says in the last plan."""
        assert self.last.status is not None
        return next(one.message for one in self.last.status.conditions if one.type == "Ready")

    def change_pod(self, name: str, **fields: Any) -> None:
        """Something happens to a pod."""
        pods = tuple(replace(pod, **fields) if pod.name == name else pod for pod in self.observed.pods)
        self.observed = replace(self.observed, pods=pods)

    def change_members(self, **fields: Any) -> None:
        """Something happens in etcd."""
        self.observed = replace(self.observed, members=replace(self.observed.members, **fields))

    # Inside

    def _do(self, step: Step) -> None:
        children, members = dict(self.observed.children), self.observed.members
        match step:
            case ApplyObject():
                one = copy.deepcopy(dict(step.manifest))
                key = (one["kind"], one["metadata"]["name"])
                one["metadata"] |= {"uid": self._uid(), "resourceVersion": str(self._next)}
                standing = children.get(key)
                if standing is not None and one["kind"] == "StatefulSet":
                    fixed = ("selector", "serviceName", "volumeClaimTemplates", "podManagementPolicy")
                    for field in fixed:
                        assert one["spec"][field] == standing["spec"][field], f"{field} of a StatefulSet cannot change"
                children[key] = one
                if one["kind"] == "Secret" and one["type"] == "kubernetes.io/tls":
                    data = {name: base64.b64decode(value) for name, value in one["data"].items()}
                    secrets = {**self.observed.secrets, one["metadata"]["name"]: data}
                    self.observed = replace(self.observed, secrets=secrets)
            case RepairObject():
                name = (step.manifest["kind"], step.manifest["metadata"]["name"])
                children[name] = _merged(children[name], step.patch)
            case RemoveObject(kind="Pod"):
                self.restarted.append(step.name)
                pods = tuple(pod for pod in self.observed.pods if pod.name != step.name)
                self.observed = replace(self.observed, pods=pods)
            case RemoveObject():
                del children[step.kind, step.name]
            case PatchObject(kind="Pod"):
                self.change_pod(step.name, secrets=step.patch["metadata"]["annotations"][SECRETS_ANNOTATION])
            case PatchObject(kind="PersistentVolumeClaim"):
                claims = dict(self.observed.claims)
                claims[step.name] = _merged(claims[step.name], step.patch)
                self.observed = replace(self.observed, claims=claims)
            case PutDrain():
                drains = {**members.drains, step.broker: DrainRecord(force=step.force, closes_only=step.closes_only)}
                self.change_members(drains=drains)
            case RemoveDrain():
                self.change_members(drains={k: v for k, v in members.drains.items() if k != step.broker})
            case RemoveBroker():
                if step.gives_up_homes:
                    self.change_members(homes={k: v for k, v in members.homes.items() if k != step.broker})
                self.change_members(
                    drains={k: v for k, v in members.drains.items() if k != step.broker},
                    statuses={k: v for k, v in members.statuses.items() if k != step.broker},
                )
            case AddFinalizer():
                self.desired = replace(self.desired, has_finalizer=True)
            case RemoveFinalizer():
                self.desired = replace(self.desired, has_finalizer=False)
                self.finalized = True
            case _:
                raise AssertionError(f"unexpected: {step}")
        self.observed = replace(self.observed, children=children)

    def _uid(self) -> str:
        self._next += 1
        return f"uid-{self._next}"

    def _controllers(self) -> None:
        children = dict(self.observed.children)
        for key, child in children.items():
            if key[0] == "Service" and child["spec"].get("type") == "NodePort":
                child["spec"]["ports"][0].setdefault("nodePort", 30_000 + len(key[1]) * 97 % 2_000 + self._next)
        stateful_set = children.get(("StatefulSet", "orders-broker"))
        if stateful_set is None:
            return
        wanted = [f"orders-broker-{ordinal}" for ordinal in range(stateful_set["spec"]["replicas"])]
        pods = {name: pod for name, pod in self.pods.items() if name in wanted}
        claims = dict(self.observed.claims)
        for name in wanted:
            if name not in pods:
                pods[name] = self._pod(name, stateful_set)
            claims.setdefault(f"data-{name}", _claim(stateful_set))
        self.observed = replace(self.observed, pods=tuple(pods.values()), claims=claims)
        self._brokers()

    def _pod(self, name: str, stateful_set: Mapping[str, Any]) -> Pod:
        template = stateful_set["spec"]["template"]
        return Pod(
            name=name,
            uid=self._uid(),
            ordinal=int(name.rpartition("-")[2]),
            settings=template["metadata"]["annotations"][SETTINGS_ANNOTATION],
            image=template["spec"]["containers"][0]["image"],
            secrets="",
            host_ip="192.0.2.7",
            is_ready=True,
            is_going=False,
        )

    def _brokers(self) -> None:
        members = self.observed.members
        if members.fault is not None:
            return
        live = {
            name: BrokerRecord(addresses=self._addresses(pod), version="1", incarnation=pod.uid, started_ms=0)
            for name, pod in self.pods.items()
        }
        statuses = dict(members.statuses)
        for name in live:
            held = self.messages.get(name, 0)
            drain, draining = members.drains.get(name), None
            if drain is not None:
                draining = Draining(destinations=int(held > 0), messages=held, is_closed=drain.closes_only)
            statuses[name] = BrokerStatus(
                applied_revision=1,
                state="serving",
                draining=draining,
                messages=held,
                incarnation=live[name].incarnation,
                certificate=self._certificate(self.pods[name]),
            )
        homes = {name: int(self.messages.get(name, 0) > 0) for name in statuses}
        self.change_members(live=live, statuses=statuses, homes=homes)

    def _addresses(self, pod: Pod) -> list[str]:
        """What a broker reads in its settings."""
        is_there = ("ConfigMap", "orders-settings") in self.observed.children
        if (self.files_are_late or not is_there) and (known := self.observed.members.live.get(pod.name)):
            return known.addresses
        text = str(self.child("ConfigMap", "orders-settings")["data"][pod.name])
        return text.strip().replace("$(HOST_IP)", str(pod.host_ip)).split(",")

    def _certificate(self, pod: Pod) -> str:
        """The digest of the certificate that a broker has mounted."""
        if self.files_are_late and (known := self.observed.members.statuses.get(pod.name)):
            return known.certificate
        data = self.observed.secrets.get("server") or {}
        return hashlib.sha256(data["tls.crt"]).hexdigest() if "tls.crt" in data else ""


def settled(spec: Mapping[str, Any]) -> World:
    """A world in which a cluster has come up, and nothing is to be done."""
    world = World(spec)
    world.settle()
    world.restarted.clear()
    return world


def _claim(stateful_set: Mapping[str, Any]) -> dict[str, Any]:
    template = stateful_set["spec"]["volumeClaimTemplates"][0]
    return {"metadata": {"uid": "claim", "resourceVersion": "1"}, "spec": copy.deepcopy(template["spec"])}


def _merged(standing: Any, patch: Any) -> Any:
    if not isinstance(standing, dict) or not isinstance(patch, Mapping):
        return patch
    merged = {**standing, **{key: _merged(standing.get(key), value) for key, value in patch.items()}}
    return {key: value for key, value in merged.items() if value is not None}
