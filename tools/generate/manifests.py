"""The manifests' JSON schema and reference page, from the models in crds/sterna_resources."""

import json
from pathlib import Path

from sterna_resources import reference
from sterna_resources.schema import schemas

INPUTS = ("crds/sterna_resources", "tools/generate/manifests.py")
OUTPUTS = ("docs/reference/manifests.md", "docs/reference/manifests.schema.json")


def make(root: Path) -> None:
    """Leaves the page and the schema below `root`."""
    page, schema = (root / name for name in OUTPUTS)
    page.parent.mkdir(parents=True)
    page.write_text(reference.page(), encoding="utf-8")
    schema.write_text(json.dumps(schemas(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
