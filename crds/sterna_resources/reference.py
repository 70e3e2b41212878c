"""The reference page of the manifests, written from the models."""

import json
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
    table = [
        "| field | type | default | meaning |",
        "|---|---|---|---|",
        *rows(described["properties"]["spec"], "spec"),
    ]
    return "\n".join([f"## {kind}", "", described["description"], "", *table, ""])


def rows(node: dict[str, Any], path: str) -> list[str]:
    """A row of a table for each field below a schema: path, type, default, meaning."""
    result = []
    required = set(node.get("required", ()))
    # What a destination is comes before how the operator treats it.
    last = {to_camel(field) for field in OPERATOR_FIELDS} if path == "spec" else set()
    for name, field in sorted(node["properties"].items(), key=lambda item: item[0] in last):
        here = f"{path}.{name}"
        inner, mark = field, ""
        for word, mark_of in (("items", "[]"), ("additionalProperties", ".*")):
            if isinstance(field.get(word), dict):
                inner, mark = field[word], mark_of
        default = "required" if name in required else _default(field)
        result.append(f"| `{here}` | {_type(field)} | {default} | {cell(field.get('description', ''))} |")
        if "properties" in inner:
            result += rows(inner, f"{here}{mark}")
    return result


def _type(field: dict[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        # A union with a pattern is an amount as Kubernetes writes it.
        return "amount" if "pattern" in field else "whole number or text"
    if "enum" in field:
        return cell(" or ".join(f"`{value}`" for value in field["enum"]))
    if field["type"] == "array":
        return f"list, {field.get('minItems', 0)} to {field['maxItems']}"
    if isinstance(field.get("additionalProperties"), dict):
        return f"set of {_type(field['additionalProperties'])}s, up to {field['maxProperties']}"
    words = {"integer": "whole number", "string": "text", "boolean": "true or false", "object": "fields"}
    word = words[field["type"]]
    if "maximum" in field:
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
    if isinstance(value, dict | list):
        # In a group of fields each says its own.
        return "" if "properties" in field else f"`{json.dumps(value)}`"
    return f"{value:,}" if isinstance(value, int) else str(value)


def cell(text: str) -> str:
    """A text as it stands in a cell of a table."""
    return re.sub(r"(?<!\\)\|", r"\\|", text)
