"""Makes the root of an image: Python, what is installed beside it, and the libraries that these need. No more.

Run by the Dockerfiles of broker, operator and audits, in an image that has Python with pip and a package manager, of
which nothing is left in the result: no shell, no package manager, no pip, no module that only tests or compilers use.
It needs nothing but the standard library, and takes the Python that runs it.

`python3 image_root.py [--java] ROOT FOLDER…` fills ROOT with that Python, each FOLDER, and what they need; with
`--java` also with the Java that is on PATH. A list of what is in it stands in ROOT/usr/share/sterna; scanners find the
distribution's packages in ROOT/var/lib/dpkg/status.d.
"""

import compileall
import json
import os
import py_compile
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

USER = 65532

# Parts of the standard library that nobody needs in an image: its own tests, editors, installers, what draws windows.
STDLIB_LEFT_OUT = (
    *(
        "test",
        "idlelib",
        "lib2to3",
        "tkinter",
        "turtledemo",
        "turtle.py",
        "ensurepip",
        "venv",
        "pydoc_data",
        "distutils",
    ),
    *("sqlite3", "dbm", "curses", "config-*", "__pycache__", "site-packages", "dist-packages", "EXTERNALLY-MANAGED"),
)
EXTENSIONS_LEFT_OUT = (
    "_tkinter",
    "_sqlite3",
    "_curses",
    "_dbm",
    "_gdbm",
    "readline",
    "nis",
    "_test",
    "_xxtest",
    "xxlimited",
)

# Of Kubernetes' client the modules of each kind and each API, which it loads when somebody asks for them: the operator
# makes requests on paths of its own. They are nine tenths of that package.
EMPTIED = (
    "kubernetes/client/api",
    "kubernetes/client/models",
    "kubernetes/aio/client/api",
    "kubernetes/aio/client/models",
)
# What compilers and type checkers read, and tests that a package brings along.
FILES_LEFT_OUT = ("*.pyi", "*.pyx", "*.pxd", "*.c", "*.h", "*.a")
# Parts of packages that nothing of ours asks for: their own tests and examples; of Arrow its network protocol; of Spark
# what learns from data, keeps the state of streams, speaks with Hive, serves remote sessions or compiles Scala, which
# are a third of it.
PACKAGES_LEFT_OUT = (
    *("numpy/**/tests", "pyarrow/tests", "pyarrow/include", "pyarrow/src", "pyspark/examples", "pyspark/data"),
    *("pyarrow/_flight*", "pyarrow/flight.py", "pyarrow/lib*_flight*"),
    *(
        f"pyspark/jars/{name}-*.jar"
        for name in (
            *("rocksdbjni", "spark-mllib_*", "breeze*", "spire*", "cats-kernel*", "algebra*", "arpack*", "lapack"),
            *(
                "blas",
                "JTransforms",
                "hive-[!s]*",
                "datanucleus-*",
                "derby",
                "spark-hive*",
                "spark-connect_*",
            ),
            *("scala-compiler", "spark-repl*", "jline"),
        )
    ),
)
# Of Java what draws, prints, plays, or looks into another one.
JAVA_LEFT_OUT = (
    *(
        "libawt*",
        "libfontmanager.so",
        "libfreetype.so",
        "libjawt.so",
        "libjavajpeg.so",
        "liblcms.so",
        "libmlib_image.so",
    ),
    *("libsplashscreen.so", "libjsound.so", "libatk-wrapper.so", "psfont*", "libj2pcsc.so", "libjdwp.so"),
    *("libdt_socket.so", "libsaproc.so", "libsctp.so", "ct.sym", "src.zip", "jexec", "jar.binfmt", "jfr"),
    "classes_nocoops.jsa",
)
# Of the programs of an environment those that serve: its Python, and ours.
PROGRAMS_KEPT = ("python", "python3", "python3.*", "sterna", "sterna-operator")

_ELF = b"\x7fELF"
_NEEDED = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$")


def make(root: Path, folders: Iterable[Path], *, java: bool = False) -> None:
    """Fills `root`.

    Raises:
        ValueError: a library that something needs is not there, or no Java.
    """
    given = list(folders)
    root.mkdir(parents=True, exist_ok=True)
    _skeleton(root)
    copied = [*_python(root), *given]
    for folder in given:
        copy_environment(folder, _below(root, folder))
    programs = [Path(sys.executable).resolve()]
    beside: list[Path] = []
    if java:
        program, chmod = _java(root)
        programs += [program, chmod]
        home = program.parent.parent
        copied += [home, chmod]
        beside = [home / "lib", home / "lib" / "server"]
    libraries = _libraries(root, copied, beside)
    _certificates(root)
    # Only root may look into a root that is not its own, as in a build; the loader finds what is in its usual folders.
    ldconfig = shutil.which("ldconfig", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if ldconfig is not None and os.geteuid() == 0:
        subprocess.run([ldconfig, "-X", "-r", str(root)], check=True)
    _contents(root, [*programs, *libraries], given)


def copy_environment(folder: Path, into: Path) -> None:
    """Copies an environment of Python (`venv`) without what only its making needs."""
    shutil.copytree(
        folder, into, symlinks=True, ignore=shutil.ignore_patterns(*FILES_LEFT_OUT, "Activate.ps1", "activate*")
    )
    for packages in into.glob("lib/python3*/site-packages"):
        for name in EMPTIED:
            for module in sorted((packages / name).rglob("*.py*")):
                if not module.name.startswith("__init__."):
                    module.unlink()
        for pattern in PACKAGES_LEFT_OUT:
            for part in sorted(packages.glob(pattern)):
                _remove(part)
    for program in sorted(into.glob("bin/*")):
        if not any(program.match(name) for name in PROGRAMS_KEPT):
            _remove(program)
    shutil.rmtree(into / "include", ignore_errors=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _skeleton(root: Path) -> None:
    """Folders, links and files that every program takes for granted."""
    for name in ("usr/lib", "usr/bin", "etc", "tmp", "var/lib/dpkg/status.d", "usr/share/sterna"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for name in ("lib", "lib64", "bin"):
        if (link := Path("/") / name).is_symlink():
            (root / name).symlink_to(link.readlink())
            (root / "usr" / name).mkdir(exist_ok=True)
    (root / "etc/passwd").write_text(
        f"root:x:0:0:root:/:/sbin/nologin\nsterna:x:{USER}:{USER}:Sterna:/tmp:/sbin/nologin\n"
    )
    (root / "etc/group").write_text(f"root:x:0:\nsterna:x:{USER}:\n")
    (root / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    for name in ("etc/os-release", "etc/ld.so.conf"):
        if (there := Path("/") / name).exists():
            shutil.copyfile(there, root / name)
    if (parts := Path("/etc/ld.so.conf.d")).is_dir():
        shutil.copytree(parts, root / "etc/ld.so.conf.d")


def _python(root: Path) -> list[Path]:
    """The interpreter and its standard library; what was copied."""
    program = Path(sys.executable).resolve()
    stdlib = Path(sysconfig.get_path("stdlib"))
    _copied(root, program)
    for name in ("python3", "python"):
        link = _below(root, program.parent / name)
        if not link.exists():
            link.symlink_to(program.name)
    into = _below(root, stdlib)
    shutil.copytree(stdlib, into, symlinks=True, ignore=shutil.ignore_patterns(*STDLIB_LEFT_OUT))
    for extension in sorted(into.glob("lib-dynload/*.so")):
        if extension.name.startswith(EXTENSIONS_LEFT_OUT):
            extension.unlink()
    # Nothing can be written beside modules later, and compiling them at each start takes seconds. Not by their times,
    # which depend on when an image is built.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(into, ddir=str(stdlib), quiet=1, invalidation_mode=mode)
    return [program, stdlib]


def _java(root: Path) -> list[Path]:
    """The Java on PATH, without its tools, and `chmod`, by which Hadoop's file system sets rights; the programs.

    Raises:
        ValueError: one of them is not there.
    """
    found = [shutil.which(name) for name in ("java", "chmod")]
    if None in found:
        raise ValueError("there is no java, or no chmod, on PATH")
    program, chmod = (Path(name).resolve() for name in found if name)
    _copied(root, chmod)
    home = program.parent.parent
    _copied(root, program)
    for name in ("lib", "conf", "release"):
        if (home / name).is_dir():
            ignored = shutil.ignore_patterns(*JAVA_LEFT_OUT)
            shutil.copytree(home / name, _below(root, home / name), symlinks=True, ignore=ignored)
    # What an administrator may change is elsewhere, and linked from there.
    for link in sorted(one for one in _below(root, home).rglob("*") if one.is_symlink()):
        target = (Path("/") / link.relative_to(root)).resolve()
        if target.is_file() and not _below(root, target).exists():
            _below(root, target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(target, _below(root, target))
    (root / "usr/bin/java").symlink_to(program)
    return [program, chmod]


def _libraries(root: Path, copied: Iterable[Path], beside: Sequence[Path] = ()) -> list[Path]:
    """Copies the libraries that programs and libraries in the root need; what they are called outside."""
    done: dict[Path, None] = {}
    for path in copied:
        for file in _elf_files(_below(root, path)):
            for name in needed(Path("/") / file.relative_to(root), beside):
                # Beside what is copied anyway, wheels bring libraries of their own.
                if not _below(root, name).exists():
                    _copied(root, name)
                    done[name] = None
                elif not any(name.is_relative_to(one) for one in copied):
                    done[name] = None
    return list(done)


def _elf_files(path: Path) -> Iterator[Path]:
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file() and not file.is_symlink():
            with file.open("rb") as opened:
                if opened.read(4) == _ELF:
                    yield file


def needed(file: Path, beside: Sequence[Path] = ()) -> list[Path]:
    """What the loader would load with a program or library.

    Args:
        file: which.
        beside: where a program that loads libraries by itself has some of them.

    Raises:
        ValueError: one of these is not there.
    """
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, beside))} if beside else None
    told = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False, env=environment).stdout
    if "not found" in told:
        raise ValueError(f"{file} needs what is not there: {told.strip()}")
    return [Path(found[1]) for line in told.splitlines() if (found := _NEEDED.match(line))]


def _copied(root: Path, file: Path) -> None:
    """Copies a file to where it is found outside, folders that are links followed."""
    into = _below(root, file.parent.resolve() / file.name)
    into.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, into)
    into.chmod(0o755)


def _certificates(root: Path) -> None:
    """Whom TLS trusts where nobody says: in one file, and where OpenSSL looks for it."""
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    if not bundle.exists():
        raise ValueError(f"{bundle} is not there: install ca-certificates")
    into = _below(root, bundle)
    into.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(bundle, into)
    looked_for = _below(root, Path(ssl.get_default_verify_paths().openssl_cafile))
    if not looked_for.exists():
        looked_for.parent.mkdir(parents=True, exist_ok=True)
        looked_for.symlink_to(bundle)


# What is in it


def _contents(root: Path, files: Iterable[Path], folders: Iterable[Path]) -> None:
    """Writes down what the root has, by name and version."""
    system = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in ["ca-certificates", *sorted({one for file in files for one in _package_of(file)})]:
        stanza = _told("dpkg-query", "-s", package)
        if version := re.search(r"^Version: (.+)$", stanza, re.MULTILINE):
            system[package] = version[1]
            (root / "var/lib/dpkg/status.d" / package).write_text(stanza)
            if (words := Path("/usr/share/doc") / package / "copyright").exists():
                _copied(root, words)
                _below(root, words.parent.resolve() / words.name).chmod(0o644)
    packages = {
        name: version
        for folder in folders
        for one in sorted(folder.glob("lib/python3*/site-packages/*.dist-info"))
        for name, version in [one.name.removesuffix(".dist-info").split("-", 1)]
    }
    text = json.dumps({"system": system, "packages": packages}, indent=1, sort_keys=True)
    (root / "usr/share/sterna/contents.json").write_text(text + "\n")


def _package_of(file: Path) -> list[str]:
    """The distribution's package that a file is of; none: it came otherwise."""
    names = [file, file.resolve(), Path("/usr") / file.relative_to("/")]
    # A package that has not heard that /bin is /usr/bin by now.
    names += [Path("/") / name.relative_to("/usr") for name in names if name.is_relative_to("/usr")]
    for name in names:
        if told := _told("dpkg-query", "-S", str(name)):
            return [told.split(":", 1)[0]]
    return []


def _told(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name != "--java"]
    make(Path(names[0]), [Path(name) for name in names[1:]], java="--java" in sys.argv)
