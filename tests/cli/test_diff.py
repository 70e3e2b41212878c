"""`sterna diff`: what an apply would change, said and not done."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

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
