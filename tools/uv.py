"""Runs the uv of `.venv` with what pip is told on this machine: indexes, files, certificates, proxies.

uv reads none of pip's configuration, and pip is what a machine behind a mirror or a proxy is set up for. So pip is
asked, each time, and uv is told by its environment: addresses, which may hold passwords, are never written anywhere.
What is set for uv itself comes first. tools/provision.py installs with it; `python -m tools.uv …` is `uv pip …` for a
script (tools/pins.sh). Standard library alone: there may be no package yet.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.fingerprints import ROOT

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"

# pip's settings by uv's variable, and those by which a machine may have been told the same for uv.
_ONE_VALUE = (
    ("UV_DEFAULT_INDEX", ("index-url",), ("UV_INDEX_URL",)),
    ("UV_HTTP_TIMEOUT", ("timeout", "default-timeout"), ("UV_REQUEST_TIMEOUT", "HTTP_TIMEOUT")),
    ("UV_HTTP_RETRIES", ("retries",), ()),
    ("ALL_PROXY", ("proxy",), ("all_proxy",)),
    ("SSL_CLIENT_CERT", ("client-cert",), ()),
)
# The same for lists, with what stands between uv's values.
_LISTS = (
    ("UV_INDEX", "extra-index-url", ("UV_EXTRA_INDEX_URL",), " "),
    ("UV_FIND_LINKS", "find-links", (), ","),
    ("UV_INSECURE_HOST", "trusted-host", (), " "),
)


def settings(listing: str) -> dict[str, str]:
    """What pip is told for installing, from what `pip config list` prints; variables before files, `install` first."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listing.splitlines():
        key, equals, value = line.partition("=")
        section, _, name = key.partition(".")
        if equals and section in sections:
            sections[section][name] = str(ast.literal_eval(value))
    return {name: value for section in sections.values() for name, value in section.items() if value}


def translated(pip: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that tell uv what pip's settings say, but for what `environment` tells uv already."""
    told: dict[str, str] = {}
    for variable, names, others in _ONE_VALUE:
        value = next((pip[name] for name in names if name in pip), None)
        if value and not any(name in environment for name in (variable, *others)):
            # pip's seconds may have a fraction, uv's may not.
            told[variable] = value.partition(".")[0] if variable == "UV_HTTP_TIMEOUT" else value
    for variable, name, others, between in _LISTS:
        values = pip.get(name, "").split()
        if variable == "UV_FIND_LINKS":
            # pip passes over a folder that is not there; uv stops.
            values = [value for value in values if "://" in value or Path(value).expanduser().exists()]
        if values and not any(name in environment for name in (variable, *others)):
            told[variable] = between.join(values)
    if "UV_INDEX" in told and "UV_INDEX_STRATEGY" not in environment:
        # As pip does: whichever index has the file. The pins' hashes say which file it has to be.
        told["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return told | _certificates(pip, environment)


def _certificates(pip: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Whom to trust: what pip was told, or else the system's certificates, as cargo and a new pip do."""
    if any(name in environment for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS")):
        return {}
    named = (pip.get("cert"), environment.get("REQUESTS_CA_BUNDLE"), environment.get("CURL_CA_BUNDLE"))
    bundle = next((name for name in named if name), None)
    if bundle is None:
        return {"UV_SYSTEM_CERTS": "true"}
    return {"SSL_CERT_DIR" if Path(bundle).is_dir() else "SSL_CERT_FILE": bundle}


def ask_pip() -> dict[str, str]:
    """What pip is told on this machine. A configuration that pip cannot read ends the program with pip's words."""
    command = (PYTHON, "-m", "pip", "config", "list")
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if outcome.returncode != 0:
        sys.exit(f"setup: pip cannot say how it is configured: {outcome.stderr.strip()}")
    return settings(outcome.stdout)


def environment(pip: Mapping[str, str]) -> dict[str, str]:
    """The environment for uv, and for what calls it: never another Python than ours, least of all a downloaded one."""
    return {
        **os.environ,
        **translated(pip, os.environ),
        "VIRTUAL_ENV": str(VENV),
        "UV_PYTHON_DOWNLOADS": "never",
        "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }


def command(pip: Mapping[str, str], *arguments: str | Path) -> list[str]:
    """The command `uv pip` with `arguments`. That there is no index at all can be said by an argument alone."""
    without_index = ["--no-index"] if pip.get("no-index", "").lower() in {"1", "true", "yes", "on"} else []
    return [str(UV), "pip", *map(str, arguments), *without_index]


def main() -> int:
    """`uv pip` with the arguments of this program; its exit code."""
    pip = ask_pip()
    return subprocess.run(command(pip, *sys.argv[1:]), env=environment(pip), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
