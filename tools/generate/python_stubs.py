"""The Python stubs of proto/sterna/v1, in client/sterna/_proto.

They are made by an old protoc (requirements/protoc.txt) in an environment of its own, because a protobuf runtime
refuses code that is newer than itself: made this way they run on protobuf 5, 6 and 7. Within the repository they live
below `sterna._proto`, so that no top-level package is claimed beside `sterna`; the descriptors keep their true names
(`sterna/v1/message.proto`), under which reflection and other languages know them.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from tools.fingerprints import ROOT, fingerprint, remember, unchanged

INPUTS = ("proto", "requirements/protoc.txt", "tools/generate/python_stubs.py")
OUTPUTS = ("client/sterna/_proto",)

PACKAGE = "sterna._proto"
_VENV = ROOT / "build" / "protoc"
_PACKAGE_DOC = '"""Made by `make generate` from proto/; not part of the SDK\'s public interface."""\n'


def environment() -> Path:
    """The Python that has the old protoc; installed at most once for each state of the pins."""
    python = _VENV / "bin" / "python"
    pins = ROOT / "requirements" / "protoc.txt"
    value = fingerprint([pins], extra=sys.version)
    if not (python.exists() and unchanged("protoc", value)):
        subprocess.run([sys.executable, "-m", "venv", "--clear", _VENV], check=True)
        install = [
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--quiet",
            "install",
            "--require-hashes",
            "-r",
            str(pins),
        ]
        subprocess.run([python, *install], check=True, stdin=subprocess.DEVNULL)
        remember("protoc", value)
    return python


def relocated(source: str) -> str:
    """The text of a stub with its module names moved below `sterna._proto`; file names of descriptors stay."""
    source = re.sub(r"^from (sterna\.v1) import ", rf"from {PACKAGE}.\1 import ", source, flags=re.MULTILINE)
    return re.sub(r"'(sterna\.v1\.\w+_pb2)'", rf"'{PACKAGE}.\1'", source)


def make(root: Path) -> None:
    """Leaves the stubs, their `.pyi` files and the packages around them below `root`."""
    out = root / OUTPUTS[0]
    out.mkdir(parents=True)
    protos = sorted(str(file.relative_to(ROOT / "proto")) for file in (ROOT / "proto").rglob("*.proto"))
    kinds = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
    protoc = [str(environment()), "-m", "grpc_tools.protoc", "--proto_path=proto", *kinds, *protos]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run(protoc, cwd=ROOT, env=plain, check=True, stdin=subprocess.DEVNULL)
    for file in out.rglob("*.py*"):
        file.write_text(relocated(file.read_text()))
    for folder in (out, *(path for path in out.rglob("*") if path.is_dir())):
        (folder / "__init__.py").write_text(_PACKAGE_DOC)
