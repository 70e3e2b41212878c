"""The health checks for Argo CD, one for each kind, as a patch of its settings."""

from pathlib import Path

from sterna_resources.definitions import NAMES
from sterna_resources.resource import GROUP

from tools.fingerprints import ROOT

_SCRIPT = "crds/argo-cd/health.lua"

INPUTS = (_SCRIPT, "crds/sterna_resources/definitions.py", "tools/generate/argo_cd.py")
OUTPUTS = ("crds/argo-cd/argocd-cm.yaml",)

_HEAD = """\
# Made from health.lua by `make generate`. Teaches Argo CD when objects of Sterna are healthy:
#   kubectl -n argocd patch configmap argocd-cm --patch-file crds/argo-cd/argocd-cm.yaml
data:
"""


def make(root: Path) -> None:
    """Leaves the patch below `root`."""
    script = "".join(f"    {line}\n" if line else "\n" for line in (ROOT / _SCRIPT).read_text().splitlines())
    checks = "".join(f"  resource.customizations.health.{GROUP}_{kind}: |\n{script}" for kind in NAMES)
    file = root / OUTPUTS[0]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_HEAD + checks, encoding="utf-8")
