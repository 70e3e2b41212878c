"""Draws charts in a process of their own: what draws them ends its process when it fails, and must not end an audit's.

    python -m sterna_audit.report.drawing < specifications > pictures

Both are JSON: a list of Vega-Lite's specifications, and a list of SVG.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

_PATIENCE_S = 120


class DrawingError(Exception):
    """Charts were not drawn; the text says why."""


def draw(specifications: Sequence[dict[str, Any]]) -> list[str]:
    """Each specification as SVG.

    Raises:
        DrawingError: they cannot be drawn.
    """
    if not specifications:
        return []
    command = [sys.executable, "-m", "sterna_audit.report.drawing"]
    data = json.dumps(list(specifications)).encode()
    try:
        ran = subprocess.run(command, input=data, capture_output=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DrawingError(f"the process that draws charts: {error}") from error
    if ran.returncode != 0:
        said = next(
            (line for line in ran.stderr.decode(errors="replace").splitlines() if "rror" in line or "ail" in line), ""
        )
        raise DrawingError(f"the process that draws charts ended with {ran.returncode}: {said[:200]}")
    pictures: list[str] = json.loads(ran.stdout)
    return pictures


def main() -> None:
    """Reads specifications, writes pictures."""
    import altair as alt
    import vl_convert

    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    pictures = [vl_convert.vegalite_to_svg(one, vl_version=version) for one in json.load(sys.stdin)]
    json.dump(pictures, sys.stdout)


if __name__ == "__main__":
    main()
