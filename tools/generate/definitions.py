"""The custom resource definitions, as files and as the templates of the chart `sterna-crds`, from the models."""

import io
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from sterna_resources.definitions import NAMES, definitions

_FOLDER = "crds/yaml"
_TEMPLATES = "charts/sterna-crds/templates"

INPUTS = ("crds/sterna_resources", "tools/generate/definitions.py")
# The chart's other files are written by hand.
OUTPUTS = (_FOLDER, *(f"{_TEMPLATES}/{names.plural}.yaml" for names in NAMES.values()))

_HEAD = "# Made from the models in crds/sterna_resources by `make generate`.\n"
_METADATA = """\
metadata:
  name: {name}
  labels: {{{{- include "sterna-crds.labels" . | nindent 4 }}}}
  annotations:
    {annotations}
    {{{{- with include "sterna-crds.annotations" . | trim }}}}
    {{{{- . | nindent 4 }}}}
    {{{{- end }}}}
"""


def make(root: Path) -> None:
    """Leaves both below `root`."""
    for kind, definition in definitions().items():
        plural = NAMES[kind].plural
        _write(root / _FOLDER / f"{plural}.yaml", _HEAD + _yaml(definition))
        _write(root / _TEMPLATES / f"{plural}.yaml", _HEAD + _template(definition))


def _template(definition: dict[str, Any]) -> str:
    metadata = definition["metadata"]
    head = {key: definition[key] for key in ("apiVersion", "kind")}
    spec = _yaml({"spec": definition["spec"]})
    if "{{" in spec:
        raise ValueError(f"{metadata['name']} has what Helm would take for a template")
    annotations = _yaml(metadata["annotations"]).rstrip().replace("\n", "\n    ")
    return _yaml(head) + _METADATA.format(name=metadata["name"], annotations=annotations) + spec


def _yaml(value: Any) -> str:
    writer = YAML()
    writer.default_flow_style = False
    writer.width = 4_096
    writer.representer.ignore_aliases = lambda *_: True
    text = io.StringIO()
    writer.dump(value, text)
    return text.getvalue()


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
