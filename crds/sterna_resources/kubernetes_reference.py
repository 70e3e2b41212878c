"""The reference pages of the kinds in Kubernetes, one a kind, written from the models and their definitions."""

from typing import Any

from sterna_resources.definitions import NAMES, definition, object_schema
from sterna_resources.kinds import KUBERNETES_KINDS
from sterna_resources.reference import cell, rows
from sterna_resources.resource import API_VERSION
from sterna_resources.rules import KEYWORD

_CLUSTER = """\
apiVersion: sterna.dev/v1alpha1
kind: MessagingCluster
metadata: {name: trial}
spec:
  brokers: 3
  storage: {size: 20Gi}
  etcd:
    managed: {}        # one member, for trying; endpoints: [https://…] in production
  tls:
    certManager:
      issuerRef: {name: company-ca, kind: ClusterIssuer}
  listeners:
    - name: outside
      type: loadBalancer
      host: b{ordinal}.mq.example.com
"""

# Manifests that work, for the head of each page; a test puts them to an API server.
EXAMPLES: dict[str, str] = {
    "MessagingCluster": _CLUSTER,
    "Queue": """\
apiVersion: sterna.dev/v1alpha1
kind: Queue
metadata: {name: orders-new}
spec:
  clusterRef: {name: trial}
  name: orders.new
  maxMessages: 1000000
  maxRedelivery: 5
  deletionPolicy: onlyIfEmpty
""",
    "Topic": """\
apiVersion: sterna.dev/v1alpha1
kind: Topic
metadata: {name: all-prices}
spec:
  clusterRef: {name: trial}
  name: prices.>
""",
    "Bridge": """\
apiVersion: sterna.dev/v1alpha1
kind: Bridge
metadata: {name: orders-to-audit}
spec:
  clusterRef: {name: trial}
  source: {queue: orders.new}
  targets:
    - {queue: audit.orders}
    - {topic: orders.large, selector: amount > 1000}
""",
    "DurableSubscription": """\
apiVersion: sterna.dev/v1alpha1
kind: DurableSubscription
metadata: {name: billing}
spec:
  clusterRef: {name: trial}
  topic: orders.>
  clientId: billing
""",
    "Store": """\
apiVersion: sterna.dev/v1alpha1
kind: Store
metadata: {name: fast}
spec:
  clusterRef: {name: trial}
  mode: async
  quotaBytes: 1073741824
""",
    "ConnectionFactory": """\
apiVersion: sterna.dev/v1alpha1
kind: ConnectionFactory
metadata: {name: billing}
spec:
  clusterRef: {name: trial}
  aliases: [BillingFactory]
  url: sternas://trial-0.example.com,trial-1.example.com
  clientId: billing
  connectAttempts: 10
  tls: {caFile: /etc/billing/ca.pem}
""",
    "User": """\
apiVersion: sterna.dev/v1alpha1
kind: User
metadata: {name: billing}
spec:
  clusterRef: {name: trial}
  passwordSecret: {name: billing-password}
  overlapSeconds: 600
""",
    "StoreSnapshot": """\
apiVersion: sterna.dev/v1alpha1
kind: StoreSnapshot
metadata: {name: before-upgrade}
spec:
  clusterRef: {name: trial}
  snapshots:
    signKeySecret: {name: snapshot-keys, key: private.pem}
    principalsKeySecret: {name: snapshot-keys, key: principals}
  storage: {volumeClaim: snapshots}
  connect:
    user: auditor
    passwordSecret: {name: auditor-password}
""",
    "AuditJob": """\
apiVersion: sterna.dev/v1alpha1
kind: AuditJob
metadata: {name: nightly}
spec:
  clusterRef: {name: trial}
  schedule: 0 3 * * *
  timeZone: Europe/Zurich
  snapshots:
    signKeySecret: {name: snapshot-keys, key: private.pem}
    principalsKeySecret: {name: snapshot-keys, key: principals}
  keys:
    - {name: snapshot-keys, key: public.pem}
  storage:
    bucket:
      uri: s3://audits/prod
      credentialsSecret: audits-bucket
  connect:
    user: auditor
    passwordSecret: {name: auditor-password}
  retention: {snapshots: "30,90d", results: 365}
""",
}


def pages() -> dict[str, str]:
    """Each page by the name of its file, an index among them."""
    return {"README.md": _index(), **{f"{kind.lower()}.md": page(kind) for kind in KUBERNETES_KINDS}}


def page(kind: str) -> str:
    """The page of one kind, in Markdown."""
    names, schema = NAMES[kind], object_schema(kind)
    spec, status = (schema["properties"][part] for part in ("spec", "status"))
    columns = definition(kind)["spec"]["versions"][0]["additionalPrinterColumns"]
    short = ", ".join(f"`{one}`" for one in names.short)
    shown = ", ".join(f"{one['name']}{' (wide)' if one.get('priority') else ''}" for one in columns)
    called = f"`kubectl get {names.plural}`, in short {short}; all kinds: `kubectl get sterna`. Columns: {shown}."
    return "\n".join(
        [
            f"# {kind}",
            "",
            "Made from the models by `make generate`; edit those.",
            "",
            schema["description"],
            "",
            "```yaml",
            EXAMPLES[kind].rstrip(),
            "```",
            "",
            called,
            "",
            "## Spec",
            "",
            "| field | type | default | meaning |",
            "|---|---|---|---|",
            *rows(spec, "spec"),
            "",
            *_rules(schema),
            "## Status",
            "",
            "| field | type | default | meaning |",
            "|---|---|---|---|",
            *rows(status, "status"),
            "",
        ]
    )


def _index() -> str:
    table = [
        f"| [{kind}]({kind.lower()}.md) | {cell(object_schema(kind)['description'])} | {', '.join(NAMES[kind].short)} |"
        for kind in KUBERNETES_KINDS
    ]
    head = (
        "# Kinds\n\nMade from the models by `make generate`; edit those.\n\n"
        f"All are of the API `{API_VERSION}`, live in a namespace, and have the conditions Ready, Reconciling and "
        "Stalled. Until an operator has looked at an object for the first time, `status.observedGeneration` is -1 and "
        "Ready is Unknown, with the reason Pending. "
        "`kubectl get queues --field-selector spec.clusterRef.name=prod` shows those of one cluster.\n"
    )
    return "\n".join([head, "| kind | | short |", "|---|---|---|", *table, ""])


def _rules(schema: dict[str, Any]) -> list[str]:
    """What Kubernetes refuses besides wrong types and bounds; what concerns changes by itself."""
    found = list(_found(schema, ""))
    always = [line for changes, line in found if not changes]
    changes = [line for changes, line in found if changes]
    lines: list[str] = []
    for title, group in (("## What is refused", always), ("## What cannot be changed", changes)):
        if group:
            lines += [title, "", *dict.fromkeys(group), ""]
    return lines


def _found(node: dict[str, Any], path: str) -> list[tuple[bool, str]]:
    where = path.removeprefix(".") or "the whole object"
    result = [
        ("oldSelf" in rule["rule"], f"- `{_place(path, rule, where)}`: {cell(rule['message'])}")
        for rule in node.get(KEYWORD, ())
    ]
    for name, field in node.get("properties", {}).items():
        result += _found(field, f"{path}.{name}")
    if isinstance(node.get("items"), dict):
        result += _found(node["items"], f"{path}[]")
    return result


def _place(path: str, rule: dict[str, str], where: str) -> str:
    return f"{path}{rule['fieldPath']}".removeprefix(".") if "fieldPath" in rule else where
