"""The Rust types of proto/sterna/v1, in core/src/proto, made by the small crate core/protogen.

The crate writes next to itself, into the tree that it is run in. It is therefore run in a copy of what it reads, so
that checking leaves the repository untouched.
"""

import os
import shutil
import subprocess
from pathlib import Path

from tools.fingerprints import ROOT

INPUTS = ("proto", "core/protogen", "tools/generate/rust_stubs.py")
OUTPUTS = ("core/src/proto",)


def make(root: Path) -> None:
    """Leaves the generated Rust files below `root`."""
    for name in ("proto", "core/protogen"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("target"))
    (root / OUTPUTS[0]).mkdir(parents=True)
    manifest = root / "core" / "protogen" / "Cargo.toml"
    environment = {**os.environ, "CARGO_TARGET_DIR": str(ROOT / "build" / "protogen")}
    command = ["cargo", "run", "--quiet", "--locked", "--manifest-path", str(manifest)]
    subprocess.run(command, cwd=root, env=environment, check=True, stdin=subprocess.DEVNULL)
