"""The Rust types of proto/sterna/v1, in core/src/proto, made by the small crate core/protogen."""

import os
import subprocess
from pathlib import Path

from tools.fingerprints import ROOT

INPUTS = ("proto", "core/protogen", "tools/generate/rust_stubs.py")
OUTPUTS = ("core/src/proto",)


def make(root: Path) -> None:
    """Leaves the generated Rust files below `root`."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(ROOT / "build" / "protogen")}
    crate = ["--manifest-path", "core/protogen/Cargo.toml"]
    command = ["cargo", "run", "--quiet", "--locked", *crate, "--", str(root / OUTPUTS[0])]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdin=subprocess.DEVNULL)
