"""Every check that needs no test run, as many at once as there are cores; all of them run. Behind `make lint`.

`python -m tools.lint NAME …` runs only the checks named.
"""

import os
import subprocess
import sys
import time  # noqa: TID251 - measures real time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.fingerprints import ROOT

BIN = Path(sys.executable).parent
PYTHON_FOLDERS = ("client", "crds", "etcd", "broker", "operator", "audit", "tests", "tools", "bench", "examples")


def _python_folders() -> list[str]:
    return [name for name in PYTHON_FOLDERS if any((ROOT / name).rglob("*.py"))]


def checks() -> dict[str, list[str]]:
    """The commands by name, those first that take a minute on a new machine: several run at once."""
    cargo = ["--manifest-path", "core/Cargo.toml"]
    stubtest = [sys.executable, "-m", "mypy.stubtest", "--concise", "--allowlist", "tools/stubtest_allowlist.txt"]
    clippy = [
        "cargo",
        "clippy",
        "--quiet",
        "--locked",
        *cargo,
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ]
    return {
        "clippy": clippy,
        "generated": [sys.executable, "-m", "tools.generate", "--check"],
        "mypy": [str(BIN / "mypy"), "--no-error-summary", *_python_folders()],
        "tidy": [sys.executable, "-m", "tools.tidy"],
        "links": [sys.executable, "-m", "tools.links"],
        "format": [str(BIN / "ruff"), "format", "--check", "--quiet", "--diff", "."],
        "ruff": [str(BIN / "ruff"), "check", "--quiet", "."],
        "imports": [str(BIN / "lint-imports"), "--no-logo", "--no-cache"],
        "stubtest": [*stubtest, "sterna_core"],
        "rustfmt": ["cargo", "fmt", *cargo, "--check"],
        "protogen": ["cargo", "fmt", "--manifest-path", "core/protogen/Cargo.toml", "--check"],
    }


def environment() -> dict[str, str]:
    """The rooms on the path, for the import contracts, and PyO3 told which Python is meant."""
    rooms = os.pathsep.join(str(ROOT / name) for name in ("client", "broker", "crds", "etcd", "operator", "audit"))
    return {**os.environ, "PYTHONPATH": rooms, "PYO3_PYTHON": sys.executable}


def passes(name: str, command: list[str]) -> bool:
    """Runs one check; its output is shown only when it fails."""
    began = time.monotonic()
    outcome = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    verdict = "ok" if outcome.returncode == 0 else "FAILED"
    lines = [f"lint: {name:<10} {verdict} ({time.monotonic() - began:.1f} s)"]
    if outcome.returncode != 0:
        lines.append(outcome.stdout.rstrip())
    # In one go, since others end at the same time.
    print("\n".join(lines), flush=True)
    return outcome.returncode == 0


def main() -> int:
    """All checks, or those named; 1 when any failed, with their names in the last line."""
    chosen = checks()
    if unknown := set(sys.argv[1:]) - chosen.keys():
        sys.exit(f"lint: no such check: {', '.join(sorted(unknown))}; there are {', '.join(chosen)}")
    if sys.argv[1:]:
        chosen = {name: chosen[name] for name in sys.argv[1:]}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = list(pool.map(passes, chosen, chosen.values()))
    failed = [name for name, passed in zip(chosen, verdicts, strict=True) if not passed]
    print(f"lint: failed: {', '.join(failed)}" if failed else f"lint: all {len(chosen)} checks passed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
