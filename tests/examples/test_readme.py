"""What the README and the quick start tell a newcomer to type works as typed, but for addresses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import ANYTHING, RunningBroker, manifest

pytestmark = pytest.mark.usefixtures("tier_broker")

ROOT = Path(__file__).parents[2]


def sh(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a document's shell lines in `folder`, with the command of this environment."""
    programs = {"sterna": f"{sys.executable} -m sterna", "python": sys.executable}
    command = re.sub(r"\.venv/bin/(sterna|python)\b", lambda found: programs[found[1]], script)
    return subprocess.run(
        ["bash", "-euc", command], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def blocks(document: str) -> list[str]:
    """The indented blocks of a document, without their indentation; drawings and programs are none."""
    return blocks_of((ROOT / document).read_text())


def blocks_of(text: str) -> list[str]:
    """The same of what a document says."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE)
    return ["\n".join(line[4:] for line in one.strip("\n").splitlines()) for one in found]


@pytest.mark.covers("EMS-CLI-D03")
def test_the_five_lines_of_the_readme_work(tmp_path: Path) -> None:
    [start] = [one for one in blocks("README.md") if "sterna broker" in one]
    made = sh(start.partition("    .venv/bin/sterna broker")[0].partition("\n.venv/bin/sterna broker")[0], tmp_path)
    assert made.returncode == 0, made.stderr
    manifests = (tmp_path / "orders-config" / "orders.yaml").read_text().split("---\n")
    [program] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    with RunningBroker(tmp_path / "broker", manifests) as broker:
        program = program.replace("127.0.0.1:7222", broker.address)
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "one coffee\n"), ended.stderr


def test_the_quick_start_works_as_typed(tmp_path: Path) -> None:
    typed = blocks("docs/quickstart.md")
    [config] = [one for one in typed if one.startswith("mkdir")]
    [sending] = [one for one in typed if "sterna send" in one]
    [applying] = [one for one in typed if "sterna apply" in one]
    made = sh(config, tmp_path)
    assert made.returncode == 0, made.stderr
    manifests = (tmp_path / "try" / "config" / "destinations.yaml").read_text().split("---\n")
    with RunningBroker(tmp_path / "broker", manifests) as broker:
        environment = f"export STERNA_URL=sterna://{broker.address}\n"
        sent = sh(environment + sending, tmp_path)
        assert sent.returncode == 0, sent.stderr
        assert sent.stdout.count("one coffee") == 2, "browsed and received"
        applied = sh(environment + applying, tmp_path)
        assert applied.returncode == 0, applied.stderr
        assert "unchanged" in applied.stdout


def how_tos() -> dict[str, str]:
    """The sections of that page, by their titles."""
    _, *sections = re.split(r"^## ", (ROOT / "docs/how-to.md").read_text(), flags=re.MULTILINE)
    return dict(section.split("\n", 1) for section in sections)


@pytest.mark.parametrize("title", how_tos())
def test_a_how_to_works_as_typed(title: str, tmp_path: Path) -> None:
    manifests = (*ANYTHING, manifest("Broker", "sterna", "flowControl: true"))
    with RunningBroker(tmp_path / "broker", manifests) as broker:
        for typed in blocks_of(how_tos()[title]):
            shown = re.findall(r"^#> (.*)$", typed, re.MULTILINE)
            told = re.sub(r"^#> .*$", ": shown", typed, flags=re.MULTILINE)
            ended = sh(f"export STERNA_URL=sterna://{broker.address}\n{_TELLING}{told}\n", tmp_path)
            assert ended.returncode == 0, ended.stderr
            printed = re.findall(r"\x1e([^\x1e\x1f]*)(\x1f+)", ended.stdout)
            for one, before in zip(shown, _each(printed), strict=True):
                assert one in before


#: Before what a command prints stands one control character, and for each line that shows some of that another one.
#: What comes of a command that may fail is its own, and not that of the `true` or `test` behind it.
_TELLING = r"""exec 9>&1
trap 'case "$BASH_COMMAND" in (": shown") printf "\037" >&9;; (true|"test "*) ;; (*) printf "\036" >&9;; esac' DEBUG
"""


def _each(printed: list[tuple[str, str]]) -> list[str]:
    """What the command printed that stands before each line that shows some of it."""
    return [text for text, marks in printed for _ in marks]


def test_every_how_to_has_a_drawing() -> None:
    assert len(how_tos()) >= 10
    assert [
        title for title, text in how_tos().items() if not re.search(r"^```(mermaid|text)$", text, re.MULTILINE)
    ] == []
