"""Pages that a generator prints when it is run as a program: the environment's packages are imported there alone."""

import subprocess
import sys
from pathlib import Path


def write_printed(target: Path, module: str) -> None:
    """Writes what `python -m module` prints; raises if that fails."""
    page = subprocess.run([sys.executable, "-m", module], check=True, capture_output=True, text=True).stdout
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page)
