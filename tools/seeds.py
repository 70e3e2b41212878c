"""The seed of a run: what it draws follows from the commit, so that a red run can be repeated. `SEED=` chooses another.

`python -m tools.seeds` prints it, for shells.
"""

import os
import subprocess
import sys

from tools.fingerprints import ROOT


def chosen() -> int:
    """SEED of the environment, else a number below 2**32 from the commit's hash; 0 outside a repository."""
    named = os.environ.get("SEED", "")
    if named:
        try:
            chosen = int(named, 0)
        except ValueError:
            chosen = -1
        if not 0 <= chosen < 2**64:
            sys.exit(f"SEED={named}: not a number from 0 to 2**64 - 1")
        return chosen
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return int(done.stdout[:8], 16) if done.returncode == 0 else 0


if __name__ == "__main__":
    print(chosen())
