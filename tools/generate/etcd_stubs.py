"""The messages of etcd's interface, made from etcd.proto beside them by the same old protoc as our own stubs.

The proto lies in the package that uses it, so the module's name and the descriptor's path
(`sterna_etcd/proto/etcd.proto`) are right as they are made.
"""

import os
import subprocess
from pathlib import Path

from tools.fingerprints import ROOT
from tools.generate import python_stubs

_PROTO = "sterna_etcd/proto/etcd.proto"
INPUTS = (f"etcd/{_PROTO}", "requirements/protoc.txt", "tools/generate/etcd_stubs.py")
OUTPUTS = ("etcd/sterna_etcd/proto/etcd_pb2.py", "etcd/sterna_etcd/proto/etcd_pb2.pyi")


def make(root: Path) -> None:
    """Leaves the module and its `.pyi` file below `root`."""
    out = root / "etcd"
    out.mkdir(parents=True)
    kinds = [f"--{kind}_out={out}" for kind in ("python", "pyi")]
    protoc = [str(python_stubs.environment()), "-m", "grpc_tools.protoc", "--proto_path=etcd", *kinds, _PROTO]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run(protoc, cwd=ROOT, env=plain, check=True, stdin=subprocess.DEVNULL)
