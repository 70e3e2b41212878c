"""values.schema.json of each chart: what is written by hand (values.schema.head.json), and what it refers to.

`{"$ref": "#/definitions/NAME"}` in the head may name a definition of the head itself, one of the parts of Kubernetes'
API in `kubernetes_shapes`, a kind's spec (`Queue`), or a part of one (`Etcd`): then it comes from the models, closed at
every level, so that a misspelt field is refused before anything is sent to a cluster. Helm checks what can be checked
offline; rules between fields are the API server's.
"""

import json
from pathlib import Path
from typing import Any

from sterna_resources.cluster_access import IssuerRef, Listener
from sterna_resources.cluster_etcd import Etcd
from sterna_resources.fields import Model
from sterna_resources.kinds import KUBERNETES_KINDS
from sterna_resources.schema import part_schema

from tools.fingerprints import ROOT
from tools.generate.kubernetes_shapes import SHAPES

HEAD = "values.schema.head.json"
CHARTS = sorted(file.parent.name for file in (ROOT / "charts").glob(f"*/{HEAD}"))
INPUTS = (
    *("tools/generate/chart_schemas.py", "tools/generate/kubernetes_shapes.py", "crds/sterna_resources"),
    *(f"charts/{chart}/{HEAD}" for chart in CHARTS),
)
OUTPUTS = tuple(f"charts/{chart}/values.schema.json" for chart in CHARTS)

# What the chart adds to a spec by itself, or needs in one of its modes alone, so that values may leave it out.
_ADDED = {"MessagingCluster": {"etcd"}, "IssuerRef": {"name"}}
_ADDED_TO_ALL = {"clusterRef"}
# Fields whose text is Kubernetes' own API, by their names: the models leave them open, and the API server judges them.
_FOREIGN = {"affinity": "Affinity", "clients": "NetworkPolicyPeer", "monitors": "NetworkPolicyPeer"}
# Parts of specs that charts have as values of their own, by the names of their models.
_PARTS: dict[str, type[Model]] = {part.__name__: part for part in (Etcd, IssuerRef, Listener)}
_REF = "#/definitions/"


def make(root: Path) -> None:
    """Leaves the schemas below `root`."""
    for chart in CHARTS:
        head = json.loads((ROOT / "charts" / chart / HEAD).read_text())
        file = root / "charts" / chart / "values.schema.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(whole(head), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def whole(head: dict[str, Any]) -> dict[str, Any]:
    """A chart's schema with every definition that it refers to."""
    known = dict(head.get("definitions", {}))
    while lacking := sorted(_named({**head, "definitions": known}) - known.keys()):
        for name in lacking:
            known[name] = SHAPES[name] if name in SHAPES else _of_models(name)
    return {**head, "definitions": dict(sorted(known.items()))}


def _named(node: Any) -> set[str]:
    if isinstance(node, list):
        return {name for one in node for name in _named(one)}
    if not isinstance(node, dict):
        return set()
    found = {name for one in node.values() for name in _named(one)}
    reference = node.get("$ref")
    return found | ({reference.removeprefix(_REF)} if isinstance(reference, str) else set())


def _of_models(name: str) -> dict[str, Any]:
    kind = KUBERNETES_KINDS.get(name)
    spec = part_schema(_PARTS[name]) if kind is None else part_schema(kind)["properties"]["spec"]
    left_out = _ADDED_TO_ALL | _ADDED.get(name, set())
    required = [name for name in spec.get("required", ()) if name not in left_out]
    closed: dict[str, Any] = _closed({**spec, "required": required}, "spec")
    return closed


def _closed(node: Any, name: str) -> Any:
    """A schema in which no object takes a field that it does not know. `name`: of the field that has it.

    Raises:
        ValueError: a field is open, and nothing is known of it.
    """
    if isinstance(node, list):
        return [_closed(one, name) for one in node]
    if not isinstance(node, dict):
        return node
    if node.get("x-kubernetes-preserve-unknown-fields"):
        if name not in _FOREIGN:
            raise ValueError(f"{name} may hold anything: say in {__name__} what of Kubernetes' API it is")
        return {"$ref": _REF + _FOREIGN[name]}
    result = {key: _closed(value, name) for key, value in node.items() if key not in ("properties", "default")}
    if "properties" in node:
        result["properties"] = {field: _closed(value, field) for field, value in node["properties"].items()}
        result["additionalProperties"] = False
    elif node.get("type") == "object" and "additionalProperties" not in node:
        raise ValueError(f"{name} may hold anything")
    if result.get("required") == []:
        del result["required"]
    return result
