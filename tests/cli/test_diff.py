"""`sterna diff`: what an apply would change, said and not done."""

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.broker import Broker
from tests.cli.conftest import Ran
from tests.running import manifest

Cli = Callable[..., Ran]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "queues.yaml"


def test_it_says_what_would_change_by_fields_and_changes_nothing(cli: Cli, file: Path) -> None:
    assert cli("create", "queue", "d.kept", "--max-messages", "7").code == 0
    file.write_text(manifest("Queue", "d.kept", "maxMessages: 8") + "---\n" + manifest("Queue", "d.new"))
    for _ in range(2):
        found = cli("diff", "-f", str(file), "-o", "jsonl")
        assert found.code == 7
        kept, new = map(json.loads, found.out.splitlines())
        assert (kept["name"], kept["change"], new["name"], new["change"]) == (
            "d.kept",
            "configured",
            "d.new",
            "created",
        )
        assert "maxMessages: 7 -> 8" in kept["changes"][0]
    assert "maxMessages: 7 -> 8" in cli("diff", "-f", str(file)).out
    assert json.loads(cli("get", "queue", "d.kept", "-o", "json").out)["spec"] == {"maxMessages": 7}


def test_what_is_as_described_ends_with_0(cli: Cli, file: Path) -> None:
    file.write_text(manifest("Queue", "d.same", "maxMessages: 3"))
    assert cli("apply", "-f", str(file)).code == 0
    same = cli("diff", "-f", str(file))
    assert (same.code, same.out) == (0, "")
    assert "nothing would change" in same.err


def test_what_would_be_refused_is_told_with_file_and_field(cli: Cli, file: Path) -> None:
    file.write_text(manifest("Queue", "d.wrong", "maxMesages: 3"))
    wrong = cli("diff", "-f", str(file))
    assert wrong.code == 1
    assert "queues.yaml" in wrong.err
    assert "maxMesages" in wrong.err


def test_files_are_judged_and_applied_together_in_whatever_order(cli: Cli, tmp_path: Path) -> None:
    """As the broker reads its folder: a store may stand in a later file than its queue."""
    (tmp_path / "1.yaml").write_text(manifest("Queue", "d.stored", "store: d-store"))
    (tmp_path / "2.yaml").write_text(manifest("Store", "d-store", "mode: async"))
    (tmp_path / ".3.yaml").write_text("what an editor keeps")
    planned = cli("diff", "-f", str(tmp_path), "-o", "jsonl")
    assert planned.code == 7, planned.err
    assert [json.loads(line)["change"] for line in planned.out.splitlines()] == ["created", "created"]
    assert cli("apply", "-f", str(tmp_path)).code == 0
    assert cli("diff", "-f", str(tmp_path)).code == 0
    one_by_one = [part for file in ("2.yaml", "1.yaml", "2.yaml") for part in ("-f", str(tmp_path / file))]
    assert cli("diff", *one_by_one).code == 0


def test_what_is_wrong_with_one_file_applies_none_and_is_told_with_its_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "1.yaml").write_text(manifest("Queue", "d.first"))
    (tmp_path / "2.yaml").write_text(manifest("Queue", "d.second", "wrong: 1"))
    for command in ("diff", "apply"):
        refused = cli(command, "-f", str(tmp_path))
        assert refused.code == 3
        assert "2.yaml:4:8: spec.wrong" in refused.err
    assert cli("get", "queue", "d.first").code == 4
    # Two files that say two things of one object are no plan: nothing would ever be as described.
    (tmp_path / "2.yaml").write_text(manifest("Queue", "d.first", "maxMessages: 2"))
    twice = cli("diff", "-f", str(tmp_path))
    assert twice.code == 3
    assert "a Queue of this name stands at" in twice.err
    assert "1.yaml:1:1" in twice.err


def test_what_is_no_file_in_a_folder_is_told(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "1.yaml").symlink_to(tmp_path / "nowhere")
    found = cli("diff", "-f", str(tmp_path))
    assert found.code == 2
    assert "1.yaml is no file" in found.err


def test_a_terminal_of_80_columns_shows_every_field_and_number_whole(cli: Cli, broker: Broker, file: Path) -> None:
    before = "maxMessages: 1234567890, maxBytes: 9007199254740991"
    after = "maxMessages: 98765, maxBytes: 2199023255552"
    assert cli("apply", "-f", _written(file, manifest("Queue", "d.of-a-long-name.for-a-column", before))).code == 0
    _written(file, manifest("Queue", "d.of-a-long-name.for-a-column", f"{after}, exclusive: true"))
    for command in (("diff",), ("apply", "--dry-run")):
        lines = _on_a_terminal(80, *command, "-f", str(file), "-s", broker.url)
        assert all(len(line) <= 80 for line in lines)
        fields = lines[0].index("FIELDS")
        shown = " ".join(line[fields:].strip() for line in lines[1:] if line[fields:].strip())
        assert "spec.maxMessages: 1234567890 -> 98765" in shown
        assert "spec.maxBytes: 9007199254740991 -> 2199023255552" in shown
        assert "spec.exclusive: (absent) -> true" in shown
        assert all(re.fullmatch(r"[A-Z]\S* .*|\s.*", line) for line in lines), "what goes on is indented"


def _written(file: Path, text: str) -> str:
    file.write_text(text)
    return str(file)


def _on_a_terminal(columns: int, *arguments: str) -> list[str]:
    """What the command shows on a terminal so wide, line by line."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    surroundings = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-m", "sterna", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=surroundings,
    ):
        os.close(theirs)
        text = b""
        # So a terminal ends that nobody holds any more.
        with contextlib.suppress(OSError):
            while some := os.read(ours, 65_536):
                text += some
        os.close(ours)
    return [line.rstrip() for line in re.sub(r"\x1b\[\d*m", "", text.decode()).splitlines()]
