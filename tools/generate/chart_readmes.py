"""README.md of every chart that has a values schema: what it is (README.head.md) and its values, as a table."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tools.fingerprints import ROOT

CHARTS = sorted(file.parent.name for file in (ROOT / "charts").glob("*/values.yaml"))
_SCHEMAS = ("values.schema.head.json", "values.schema.json")
INPUTS = ("tools/generate/chart_readmes.py", "charts")
OUTPUTS = tuple(f"charts/{chart}/README.md" for chart in CHARTS)


def make(root: Path) -> None:
    """Leaves the pages below `root`."""
    for chart in CHARTS:
        file = root / "charts" / chart / "README.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page(ROOT / "charts" / chart), encoding="utf-8")


def page(folder: Path) -> str:
    """The page of one chart."""
    yaml = YAML(typ="safe")
    chart, values = (yaml.load((folder / name).read_text()) for name in ("Chart.yaml", "values.yaml"))
    # Where one is made from a head, that has every value, and the rest has what they refer to.
    schema = json.loads(next(filter(Path.exists, (folder / name for name in _SCHEMAS))).read_text())
    head_file = folder / "README.head.md"
    head = head_file.read_text().strip() + "\n\n" if head_file.exists() else ""
    rows = "\n".join(_rows(schema, values or {}, ""))
    table = f"| value | default | meaning |\n|---|---|---|\n{rows}"
    return f"# {chart['name']}\n\n{chart['description']}.\n\n{head}## Values\n\n{table}\n"


def _rows(schema: dict[str, Any], values: dict[str, Any], prefix: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        path, value = f"{prefix}{name}", values.get(name)
        if field.get("properties"):
            yield from _rows(field, value or {}, f"{path}.")
            continue
        meaning = " ".join(field.get("description", "").split()).replace("|", "\\|")
        yield f"| `{path}` | `{json.dumps(value, ensure_ascii=False)}` | {meaning} |"
