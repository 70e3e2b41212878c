"""Values that do not exist are refused at every depth, offline: each level of each schema with a misspelt field."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_server import ApiServer

ROOT = Path(__file__).parent.parent.parent
CHARTS = ["charts/sterna", "charts/sterna-operator", "charts/sterna-crds"]
TYPO = "noSuchField"
# What a parent chart hands down belongs to nobody here.
OPEN = {"/global"}
_REFUSED = re.compile(rf"at '([^']*)': additional properties '{TYPO}' not allowed")


class Levels:
    """A schema's levels, and values that have all of them, with a misspelt field in each."""

    def __init__(self, chart: str) -> None:
        self.schema = json.loads((ROOT / chart / "values.schema.json").read_text())
        self.closed: set[str] = set()
        self.open: set[str] = set()
        self.values = self._example(self.schema, "")

    def _example(self, node: dict[str, Any], path: str) -> Any:
        if "$ref" in node:
            node = self.schema["definitions"][node["$ref"].rpartition("/")[2]]
        branches = [one for one in node.get("anyOf", ()) if "properties" in one or "$ref" in one]
        if "properties" in node or (node.get("anyOf") and branches and "properties" in branches[-1]):
            node = node if "properties" in node else branches[-1]
            return self._object(node, path)
        if isinstance(node.get("additionalProperties"), dict):
            return {"any": self._example(node["additionalProperties"], f"{path}/any")}
        if node.get("type") == "object":
            # The names that it takes may be said as a pattern.
            (self.closed if node.get("additionalProperties") is False else self.open).add(path)
            return {TYPO: 1}
        if node.get("type") == "array":
            return [self._example(node["items"], f"{path}/0")]
        return node["enum"][0] if "enum" in node else "x"

    def _object(self, node: dict[str, Any], path: str) -> dict[str, Any]:
        (self.closed if node.get("additionalProperties") is False else self.open).add(path)
        fields = {name: self._example(field, f"{path}/{name}") for name, field in node["properties"].items()}
        return {**fields, TYPO: 1}


def depths(paths: set[str]) -> Iterator[int]:
    """How deep each level is."""
    return (path.count("/") for path in paths)


@pytest.mark.parametrize("chart", CHARTS)
def test_no_level_of_a_schema_takes_what_it_does_not_know(chart: str) -> None:
    levels = Levels(chart)
    assert levels.open <= OPEN


@pytest.mark.parametrize("chart", CHARTS)
def test_helm_refuses_a_misspelt_field_at_every_depth(api_server: ApiServer, chart: str, tmp_path: Path) -> None:
    levels = Levels(chart)
    values = tmp_path / "values.yaml"
    values.write_text(json.dumps(levels.values))
    outcome = api_server.helm("template", "orders", chart, "--values", str(values))
    assert outcome.returncode != 0
    refused = set(_REFUSED.findall(outcome.stderr))
    assert levels.closed - refused == set()
    if chart == "charts/sterna":
        assert len(levels.closed) > 100
        assert max(depths(levels.closed)) > 8


@pytest.mark.parametrize(
    ("chart", "value", "words"),
    [
        pytest.param("charts/sterna", 'spec={"pod":{"nodeSelectors":{}}}', "nodeSelectors", id="spec"),
        pytest.param("charts/sterna", 'queues=[{"name":"q","spec":{"maxMesages":1}}]', "maxMesages", id="a queue"),
        pytest.param("charts/sterna", 'listeners=[{"name":"o","type":"nodeport"}]', "nodePort", id="a word"),
        pytest.param("charts/sterna", 'spec={"pod":{"affinity":{"podAffinty":{}}}}', "podAffinty", id="affinity"),
        pytest.param("charts/sterna-operator", 'tolerations=[{"keys":"a"}]', "keys", id="a toleration"),
        pytest.param("charts/sterna-operator", 'image={"digest":"sha256:12"}', "digest", id="half a digest"),
        pytest.param(
            "charts/sterna-operator", 'networkPolicy={"monitors":[{"podSelectors":{}}]}', "podSelectors", id="peer"
        ),
    ],
)
def test_one_misspelt_field_is_named(api_server: ApiServer, chart: str, value: str, words: str) -> None:
    outcome = api_server.helm("template", "orders", chart, "--set-json", value)
    assert outcome.returncode != 0
    assert words in outcome.stderr
