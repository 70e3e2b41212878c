"""The custom resource definitions, made from the models: what `crds/yaml` and the chart `sterna-crds` hold.

The models describe what people write; here is added what Kubernetes wants to know besides: names, columns, the status
and which fields are needed there. An absent group of fields is filled in with its defaults, so that rules that compare
them cannot be passed by leaving the group out.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from sterna_resources import names
from sterna_resources.kinds import KUBERNETES_KINDS
from sterna_resources.resource import GROUP, VERSION
from sterna_resources.rules import KEYWORD
from sterna_resources.schema import described
from sterna_resources.status import PENDING, READY, UNOBSERVED

CATEGORY = "sterna"

# Says which definition this is, so that an operator can tell whether the one that is installed is the one it knows.
DIGEST_ANNOTATION = f"{GROUP}/definition"

# Words that pydantic or we use and Kubernetes does not.
_FOREIGN_WORDS = {"examples", "x-sterna-required", "x-sterna-section", "x-sterna-default"}


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; a `wide` one is shown with `-o wide` alone."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The column as a definition writes it."""
        return {
            "name": self.name,
            "type": self.type,
            "jsonPath": self.path,
            **({"priority": 1} if self.wide else {}),
        }


@dataclass(frozen=True)
class Names:
    """What a kind is called in Kubernetes, and its columns before those that every kind has."""

    plural: str
    short: tuple[str, ...]
    columns: tuple[Column, ...]


def _ready(field: str) -> str:
    return f'.status.conditions[?(@.type=="{READY}")].{field}'


_CLUSTER = Column("Cluster", ".spec.clusterRef.name")
_HOME = Column("Home", ".status.home")
_COMMON = (
    Column("Ready", _ready("status")),
    Column("Reason", _ready("reason")),
    Column("Age", ".metadata.creationTimestamp", "date"),
    Column("Message", _ready("message"), wide=True),
)

NAMES: dict[str, Names] = {
    "MessagingCluster": Names(
        "messagingclusters",
        ("smc",),
        (
            Column("Brokers", ".spec.brokers", "integer"),
            Column("Serving", ".status.readyBrokers", "integer"),
            Column("URL", ".status.url", wide=True),
            Column("Etcd", ".status.etcd", wide=True),
            Column("Image", ".status.image", wide=True),
        ),
    ),
    "Queue": Names("queues", ("sq",), (_CLUSTER, Column("Queue", ".status.claim"), _HOME)),
    "Topic": Names("topics", ("stp",), (_CLUSTER, Column("Topic", ".status.claim"), _HOME)),
    "Bridge": Names("bridges", ("sbr",), (_CLUSTER, _HOME)),
    "DurableSubscription": Names(
        "durablesubscriptions",
        ("sds",),
        (_CLUSTER, Column("Topic", ".spec.topic"), Column("Claim", ".status.claim"), _HOME),
    ),
    "Store": Names(
        "stores",
        ("sto",),
        (_CLUSTER, Column("Mode", ".spec.mode"), Column("Quota", ".spec.quotaBytes", "integer")),
    ),
    "ConnectionFactory": Names(
        "connectionfactories",
        ("scf",),
        (_CLUSTER, Column("Factory", ".status.claim"), Column("URL", ".spec.url", wide=True)),
    ),
    "User": Names(
        "users",
        ("su",),
        (_CLUSTER, Column("User", ".status.claim"), Column("Passwords", ".status.credentials", "integer", wide=True)),
    ),
    "StoreSnapshot": Names("storesnapshots", ("ssn",), (_CLUSTER, Column("Taken", ".status.taken.endedAt", "date"))),
    "AuditJob": Names(
        "auditjobs",
        ("saj",),
        (
            _CLUSTER,
            Column("Schedule", ".spec.schedule"),
            Column("Suspend", ".spec.suspend", "boolean"),
            Column("Last run", ".status.lastRun.endedAt", "date"),
            Column("Verdict", ".status.lastRun.verdict"),
            Column("Clean", '.status.conditions[?(@.type=="Clean")].status'),
            Column("Stale", '.status.conditions[?(@.type=="Stale")].status'),
            Column("Next run", ".status.nextRunAt", wide=True),
            Column("Report", ".status.lastRun.report", wide=True),
        ),
    ),
}


def definitions() -> dict[str, dict[str, Any]]:
    """The definition of each kind, by kind."""
    return {kind: definition(kind) for kind in KUBERNETES_KINDS}


def definition(kind: str) -> dict[str, Any]:
    """The definition of one kind.

    Raises:
        KeyError: there is no such kind in Kubernetes.
    """
    called = NAMES[kind]
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [column.as_dict() for column in (*called.columns, *_COMMON)],
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": object_schema(kind)},
    }
    if kind != "MessagingCluster":
        # kubectl get queues --field-selector spec.clusterRef.name=…: as far as the server can do it (1.31 and later).
        version["selectableFields"] = [{"jsonPath": ".spec.clusterRef.name"}]
    if kind == "MessagingCluster":
        version["subresources"]["scale"] = {
            "specReplicasPath": ".spec.brokers",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    spec = {
        "group": GROUP,
        "names": {
            "kind": kind,
            "listKind": f"{kind}List",
            "plural": called.plural,
            "singular": kind.lower(),
            "shortNames": list(called.short),
            "categories": [CATEGORY],
        },
        "scope": "Namespaced",
        "versions": [version],
    }
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{called.plural}.{GROUP}", "annotations": {DIGEST_ANNOTATION: digest}},
        "spec": spec,
    }


def object_schema(kind: str) -> dict[str, Any]:
    """The structural schema of a kind's objects."""
    model = KUBERNETES_KINDS[kind]
    whole = described(model)
    spec = _structural(whole["properties"]["spec"])
    spec.pop("default", None)
    unseen = {"observedGeneration": UNOBSERVED, "conditions": [PENDING.values()]}
    status = {**_structural(described(model.STATUS)), "default": unseen}
    for name, field in status["properties"].items():
        if name != "observedGeneration":
            # A status that nobody wrote yet says nothing.
            field.pop("default", None)
    rules = {KEYWORD: whole[KEYWORD]} if KEYWORD in whole else {}
    return {
        "description": whole["description"],
        "type": "object",
        "required": ["spec"],
        **rules,
        "properties": {
            "apiVersion": {"type": "string", "description": f"`{GROUP}/{VERSION}`."},
            "kind": {"type": "string", "description": f"`{kind}`."},
            # The length is Kubernetes' own; it bounds what rules about the name are estimated to cost.
            "metadata": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": names.OBJECT_NAME_CHARACTERS_MAX}},
            },
            "spec": spec,
            "status": status,
        },
    }


def _structural(node: dict[str, Any]) -> dict[str, Any]:
    """A schema in the words that Kubernetes has, in an order that reads well."""
    result = {key: value for key, value in node.items() if key not in (*_FOREIGN_WORDS, "properties", "items")}
    if node.get("type") == "integer":
        result["format"] = "int64"
    if isinstance(node.get("items"), dict):
        result["items"] = _structural(node["items"])
    if isinstance(node.get("additionalProperties"), dict):
        result["additionalProperties"] = _structural(node["additionalProperties"])
    if "properties" in node:
        needed = {name for name, field in node["properties"].items() if field.get("x-sterna-required")}
        required = [name for name in node["properties"] if name in needed or name in node.get("required", ())]
        result.pop("required", None)
        if required:
            result["required"] = required
        fields = {name: _structural(field) for name, field in node["properties"].items()}
        result["properties"] = fields
        if node.get("x-sterna-section"):
            result["default"] = {name: field["default"] for name, field in fields.items() if "default" in field}
    return result
