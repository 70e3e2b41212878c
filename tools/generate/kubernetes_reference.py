"""docs/kubernetes/reference: a page for each kind, from the models."""

from pathlib import Path

from sterna_resources import kubernetes_reference

INPUTS = ("crds/sterna_resources", "tools/generate/kubernetes_reference.py")
OUTPUTS = ("docs/kubernetes/reference",)


def make(root: Path) -> None:
    """Leaves the pages below `root`."""
    folder = root / OUTPUTS[0]
    folder.mkdir(parents=True)
    for name, text in kubernetes_reference.pages().items():
        (folder / name).write_text(text, encoding="utf-8")
