"""The reference page of the manifests, written from the models."""

import re
from typing import Any

from pydantic.alias_generators import to_camel

from sterna_resources.kinds import KINDS
from sterna_resources.resource import API_VERSION
from sterna_resources.schema import schema
from sterna_resources.topology import OPERATOR_FIELDS

_INTRODUCTION = f"""# Manifests

Made from the models by `make generate`; edit those.

A manifest is a YAML or JSON document with `apiVersion: {API_VERSION}`, `kind`, `metadata` and `spec`. It is the
same document in a broker's configuration folder, in `sterna apply` and in Kubernetes. A file may hold several,
separated by `---`. An unknown field is an error; a folder is used as a whole or not at all.

`metadata.name` is unique in its kind and takes what Kubernetes takes: lower-case letters, digits, `-` and `.`. A
destination with another name, or a wildcard entry, says so in `spec.name`. `metadata.labels` and
`metadata.annotations` are kept and not interpreted. `status` is what a broker says of an object; it is not looked at,
so that what `sterna get -o yaml` prints can be applied.
"""


def page() -> str:
    """The whole page, in Markdown."""
    return "\n".join([_INTRODUCTION, *(_section(kind) for kind in KINDS)])


def _section(kind: str) -> str:
    described = schema(kind)
    rows = _rows(described["properties"]["spec"], "spec")
    table = ["| field | type | default | meaning |", "|---|---|---|---|", *rows]
    return "\n".join([f"## {kind}", "", described["description"], "", *table, ""])


def _rows(node: dict[str, Any], path: str) -> list[str]:
    rows = []
    required = set(node.get("required", ()))
    # What a destination is comes before how the operator treats it.
    last = {to_camel(field) for field in OPERATOR_FIELDS} if path == "spec" else set()
    for name, field in sorted(node["properties"].items(), key=lambda item: item[0] in last):
        here = f"{path}.{name}"
        inner = field.get("items", field)
        default = "required" if name in required else _default(field)
        rows.append(f"| `{here}` | {_type(field)} | {default} | {_cell(field.get('description', ''))} |")
        if "properties" in inner:
            rows += _rows(inner, f"{here}[]" if "items" in field else here)
    return rows


def _type(field: dict[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "whole number or text"
    if "enum" in field:
        return _cell(" or ".join(f"`{value}`" for value in field["enum"]))
    if field["type"] == "array":
        return f"list, {field.get('minItems', 0)} to {field['maxItems']}"
    words = {"integer": "whole number", "string": "text", "boolean": "true or false", "object": "fields"}
    word = words[field["type"]]
    if "minimum" in field:
        word += f", {field['minimum']:,} to {field['maximum']:,}"
    return word


def _default(field: dict[str, Any]) -> str:
    if "x-sterna-default" in field:
        return f"`{field['x-sterna-default']}`"
    if "default" not in field:
        return ""
    value = field["default"]
    if isinstance(value, bool):
        return str(value).lower()
    if value == "":
        return "empty"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)
