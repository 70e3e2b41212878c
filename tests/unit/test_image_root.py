"""What the images are made of: the Python that runs, what is installed beside it, what both need, and no more."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tools import image_root
from tools.fingerprints import ROOT

pytestmark = pytest.mark.usefixtures("tier_broker")


@pytest.fixture(scope="module")
def made(tier_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with an environment that has a package of Python, some that is left out, and programs."""
    folder = tmp_path_factory.mktemp("image")
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    packages = next(environment.glob("lib/python3*/site-packages"))
    for name in ("kubernetes/client/models", "thing"):
        (packages / name).mkdir(parents=True)
    for name in ("kubernetes/client/models/__init__.py", "kubernetes/client/models/v1_pod.py", "thing/__init__.py"):
        (packages / name).write_text("")
    for name in ("thing/__init__.pyi", "thing/fast.c"):
        (packages / name).write_text("")
    (packages / "thing-1.2.dist-info").mkdir()
    for name in ("sterna", "idna"):
        (environment / "bin" / name).write_text("#!/usr/bin/python3\n")
    interpreter = str(Path(sys.executable).resolve())
    java = ["--java"] if shutil.which("java") else []
    # A Python of its own, not of an environment, as in the build.
    subprocess.run(
        [interpreter, str(ROOT / "tools/image_root.py"), *java, str(folder / "root"), str(environment)],
        check=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    return folder / "root"


def test_what_is_not_needed_is_not_there(made: Path) -> None:
    names = {str(file.relative_to(made)) for file in made.rglob("*")}
    for left_out in ("ensurepip", "idlelib", "lib2to3", "tkinter", "pydoc_data", "sqlite3", "site-packages/pip"):
        assert not [name for name in names if f"/{left_out}/" in name], left_out
    programs = {Path(name).name for name in names if re.search(r"(^|/)s?bin/[^/]+$", name)}
    assert all(re.fullmatch(r"chmod|java|python[\d.]*|sterna", program) for program in programs), programs
    packages = next(made.rglob("site-packages/thing")).parent
    assert [file.name for file in (packages / "thing").iterdir()] == ["__init__.py"]
    assert [file.name for file in (packages / "kubernetes/client/models").iterdir()] == ["__init__.py"]


def test_python_runs_from_there_and_finds_what_the_product_imports(made: Path) -> None:
    """With the root's own loader and libraries; the outside world lends its kernel."""
    interpreter = Path(sys.executable).resolve()
    loader = next(made.glob("lib64/ld-linux*"), None) or next(made.glob("lib/ld-linux*"))
    libraries = {str(file.parent) for file in made.rglob("*.so*") if "lib-dynload" not in str(file)}
    stdlib = made / Path(os.__file__).parent.relative_to("/")
    modules = "asyncio, ssl, json, hashlib, ctypes, multiprocessing, decimal, zlib, bz2, lzma, uuid, xml.parsers.expat"
    code = f"import {modules}; print(asyncio.__file__); print(ssl.OPENSSL_VERSION)"
    outcome = subprocess.run(
        [
            str(loader),
            "--library-path",
            ":".join(sorted(libraries)),
            str(made / interpreter.relative_to("/")),
            "-c",
            code,
        ],
        env={"PYTHONHOME": f"{stdlib.parent.parent}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.startswith(str(stdlib)), "the library of the root, not that of this machine"
    assert list((stdlib / "asyncio" / "__pycache__").glob("base_events.*.pyc")), "nothing can be compiled later"


@pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java here")
def test_java_runs_from_there(made: Path) -> None:
    program = made / "usr/bin/java"
    home = made / program.readlink().relative_to("/").parent.parent
    loader = next(made.glob("lib64/ld-linux*"), None) or next(made.glob("lib/ld-linux*"))
    libraries = [home / "lib", home / "lib/server", *{file.parent for file in made.glob("**/libc.so.6")}]
    outcome = subprocess.run(
        [str(loader), "--library-path", ":".join(map(str, libraries)), str(home / "bin/java"), "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (outcome.returncode, "version" in outcome.stderr) == (0, True), outcome
    assert not list(home.rglob("libawt*"))
    assert {one.name for one in (home / "bin").iterdir()} == {"java"}


def test_it_says_what_is_in_it(made: Path) -> None:
    told = json.loads((made / "usr/share/sterna/contents.json").read_text())
    assert told["packages"] == {"thing": "1.2"}
    assert told["system"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "sterna:x:65532:65532:" in (made / "etc/passwd").read_text()
    assert "BEGIN CERTIFICATE" in (made / "etc/ssl/certs/ca-certificates.crt").read_text()
    assert (made / "tmp").stat().st_mode & 0o7777 == 0o1777


def test_a_library_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "ldd"
    program.write_text("#!/bin/sh\necho '\tlibgone.so.1 => not found'\n")
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        with pytest.raises(ValueError, match=r"libgone\.so\.1"):
            image_root.needed(tmp_path / "thing")


@pytest.mark.parametrize("role", ["audit", "broker", "operator"])
def test_an_image_begins_with_nothing_and_runs_as_nobody(role: str) -> None:
    text = (ROOT / role / "Dockerfile").read_text()
    last = text[text.rindex("\nFROM ") :]
    assert last.startswith("\nFROM scratch\n")
    assert "\nUSER 65532:65532\n" in last
    assert "pip" not in last
    [image] = re.findall(rf"sterna-{role}\]=(\d+)", (ROOT / "tools/images.sh").read_text())
    assert f"| {image} MB |" in (ROOT / "docs/kubernetes/images.md").read_text()
