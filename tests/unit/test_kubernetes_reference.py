"""The reference of the kinds in Kubernetes says everything that there is."""

from typing import Any

import pytest
from sterna_resources.definitions import definition, object_schema
from sterna_resources.kinds import KUBERNETES_KINDS
from sterna_resources.kubernetes_reference import pages
from sterna_resources.rules import KEYWORD


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return pages()


def parts(node: dict[str, Any]) -> list[dict[str, Any]]:
    """A schema and everything below it."""
    below = [
        *node.get("properties", {}).values(),
        *(node[word] for word in ("items",) if isinstance(node.get(word), dict)),
    ]
    return [node, *(part for one in below for part in parts(one))]


@pytest.mark.parametrize("kind", list(KUBERNETES_KINDS))
def test_a_page_has_every_field_rule_and_column(found: dict[str, str], kind: str) -> None:
    page = found[f"{kind.lower()}.md"]
    spec = object_schema(kind)
    for part in parts(spec):
        for rule in part.get(KEYWORD, ()):
            assert rule["message"] in page
        for name in part.get("properties", {}):
            assert name in page
    for column in definition(kind)["spec"]["versions"][0]["additionalPrinterColumns"]:
        assert column["name"] in page


def test_the_index_leads_to_every_page(found: dict[str, str]) -> None:
    for name in found.keys() - {"README.md"}:
        assert f"]({name})" in found["README.md"]
