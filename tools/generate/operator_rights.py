"""docs/kubernetes/operator-rights.md: what the operator may do in Kubernetes and why, from the chart's own rules."""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tools.fingerprints import ROOT

RULES = "charts/sterna-operator/files/rules.yaml"
PAGE = "docs/kubernetes/operator-rights.md"
INPUTS = ("tools/generate/operator_rights.py", RULES)
OUTPUTS = (PAGE,)

_HEAD = f"""# What the operator may do

Made from `{RULES}`, which the chart's roles are made of. The rules hold in the namespaces that the
operator looks after: as a ClusterRole for all of them, or with `watchNamespaces` as a Role in each. There is no
wildcard among them, and no right to give rights.

| it may | what | why |
|---|---|---|
"""

_TAIL = """
Beside that it may `get`, `create`, `update` and `patch` leases in its own namespace: the Lease says which of several
operators works.

Kubernetes cannot limit rights to "the Secrets that manifests name". The operator reads by name those that a manifest
in the same namespace names, watches each of them by name, and never lists; but its account could read any Secret whose
name it knew. Where that is too much, give `watchNamespaces` namespaces that hold nothing else.
"""


def make(root: Path) -> None:
    """Leaves the page below `root`."""
    file = root / PAGE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_HEAD + "\n".join(map(_row, _rules())) + "\n" + _TAIL, encoding="utf-8")


def _rules() -> list[dict[str, Any]]:
    return list(YAML(typ="safe").load((ROOT / RULES).read_text("utf-8")))


def _row(rule: dict[str, Any]) -> str:
    groups = "".join(f" of {group}" for group in rule["apiGroups"] if group)
    things = ", ".join(f"`{name}`" for name in rule["resources"])
    return f"| {', '.join(rule['verbs'])} | {things}{groups} | {rule['reason']} |"
