"""The parts of Kubernetes' own API that charts take as values, as closed JSON schemas: which fields there are.

Only what is of use to refuse a misspelt field; what may stand in them is the API server's to judge.
"""

from typing import Any

Shape = dict[str, Any]


def _object(**fields: Shape) -> Shape:
    return {"type": "object", "additionalProperties": False, "properties": fields}


def _list(of: Shape) -> Shape:
    return {"type": "array", "items": of}


def _map(of: Shape) -> Shape:
    return {"type": "object", "additionalProperties": of}


def _shape(name: str) -> Shape:
    return {"$ref": f"#/definitions/{name}"}


_TEXT: Shape = {"type": "string"}
_NUMBER: Shape = {"type": "integer"}
_TEXTS = _list(_TEXT)
_AMOUNTS = _map({"type": ["string", "number"]})

_REQUIREMENTS = _list(_object(key=_TEXT, operator=_TEXT, values=_TEXTS))
_NODE_TERM = _object(matchExpressions=_REQUIREMENTS, matchFields=_REQUIREMENTS)
_POD_TERM = _object(
    labelSelector=_shape("LabelSelector"),
    namespaceSelector=_shape("LabelSelector"),
    namespaces=_TEXTS,
    topologyKey=_TEXT,
    matchLabelKeys=_TEXTS,
    mismatchLabelKeys=_TEXTS,
)
_POD_RULES = _object(
    requiredDuringSchedulingIgnoredDuringExecution=_list(_POD_TERM),
    preferredDuringSchedulingIgnoredDuringExecution=_list(_object(weight=_NUMBER, podAffinityTerm=_POD_TERM)),
)
_NODE_RULES = _object(
    requiredDuringSchedulingIgnoredDuringExecution=_object(nodeSelectorTerms=_list(_NODE_TERM)),
    preferredDuringSchedulingIgnoredDuringExecution=_list(_object(weight=_NUMBER, preference=_NODE_TERM)),
)

SHAPES: dict[str, Shape] = {
    "LabelSelector": _object(matchLabels=_map(_TEXT), matchExpressions=_REQUIREMENTS),
    "Toleration": _object(
        key=_TEXT,
        operator={"enum": ["Exists", "Equal"]},
        value=_TEXT,
        effect={"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
        tolerationSeconds=_NUMBER,
    ),
    "Affinity": _object(nodeAffinity=_NODE_RULES, podAffinity=_POD_RULES, podAntiAffinity=_POD_RULES),
    "Resources": _object(requests=_AMOUNTS, limits=_AMOUNTS),
    "NetworkPolicyPeer": _object(
        podSelector=_shape("LabelSelector"),
        namespaceSelector=_shape("LabelSelector"),
        ipBlock={**_object(cidr=_TEXT, **{"except": _TEXTS}), "required": ["cidr"]},
    ),
    "NetworkPolicyEgress": _object(
        to=_list(_shape("NetworkPolicyPeer")),
        ports=_list(_object(port={"type": ["integer", "string"]}, endPort=_NUMBER, protocol=_TEXT)),
    ),
}
