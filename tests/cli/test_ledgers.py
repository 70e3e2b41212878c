"""`sterna ledger`: what the files say, and whether they can be trusted."""

import json
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from sterna import _ledger_format as form
from sterna_audit import pushing
from sterna_audit.snapshots.stores import Directory, StoreError

from tests.cli.conftest import Ran

Sterna = Callable[..., Ran]

LEDGER = "ab" * 16


def _written(path: Path, *, closed: bool = True) -> bytes:
    link = form.record(form.LINK, 1, 5, 7, 9, tail=b"".join(map(form.text, ("one", "", "cafe", "h:1", "billing"))))
    name = form.record(form.NAME, 2, form.QUEUE_NAME, tail=form.text("orders"))
    producer = form.record(form.PRODUCER, 3, 1, 1, 2, 77, 1, tail=form.text("ID:one.4D:") + form.text(""))
    sent = form.record(form.SENT, 3, 2, 0, 11, 1, 2, tail=form.sizes(array("I", [5, 6])) + bytes(range(32)))
    answers = [form.record(form.CONFIRMED, 3, 1, 2, 1, 12)]
    answers += [form.record(form.END, 99)] if closed else []
    blocks = form.block(0, [link, name, producer, sent]) + form.block(1, answers)
    data = form.head({"client_id": "billing", "ledger": LEDGER}) + blocks
    path.write_bytes(data)
    return data


@pytest.mark.parametrize("command", ["show", "verify", "push"])
def test_each_command_has_two_examples(sterna: Sterna, command: str) -> None:
    ran = sterna("ledger", command, "--help")
    assert ran.code == 0
    assert ran.out.count(f"$ sterna ledger {command}") >= 2


def test_records_are_shown_as_a_table_and_as_json(sterna: Sterna, tmp_path: Path) -> None:
    file = tmp_path / "a.ledger"
    _written(file)
    ran = sterna("ledger", "show", str(file))
    assert ran.code == 0
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[0] == ["RECORD", "MESSAGES", "ABOUT"]
    assert [line[0] for line in lines[1:]] == ["link", "producer", "sent", "sent", "confirmed"]
    assert lines[3][1:4] == ["ID:one.4D:1", "destination=orders", "size=5"]
    assert "ID:one.4D:1 to 2" in ran.out
    rows = [json.loads(line) for line in sterna("ledger", "show", str(file), "-o", "jsonl").out.splitlines()]
    assert rows[2]["messageId"] == "ID:one.4D:1"
    assert (rows[2]["checksum"], rows[2]["broker"]) == (bytes(range(16)).hex(), "one")
    assert rows[4] | {"record": "confirmed", "first": 1, "last": 2} == rows[4]


def test_a_torn_end_is_said_beside_what_is_shown(sterna: Sterna, tmp_path: Path) -> None:
    file = tmp_path / "a.ledger"
    file.write_bytes(_written(file)[:-3])
    ran = sterna("ledger", "show", str(file))
    assert ran.code == 0
    assert "confirmed" not in ran.out
    assert "cut off" in ran.err


def test_files_are_verified_and_a_damaged_one_is_named(sterna: Sterna, tmp_path: Path) -> None:
    closed, opened, torn, damaged = (tmp_path / name for name in ("closed", "open", "torn", "damaged"))
    data = _written(closed)
    _written(opened, closed=False)
    torn.write_bytes(data[:-3])
    assert sterna("ledger", "verify", *map(str, (closed, opened, torn))).code == 0
    flipped = bytearray(data)
    flipped[-20] ^= 1
    damaged.write_bytes(flipped)
    ran = sterna("ledger", "verify", *map(str, (closed, opened, torn, damaged, tmp_path / "missing")), "-o", "json")
    assert ran.code == 1
    assert str(damaged) in ran.err
    rows = json.loads(ran.out)
    assert [row["state"] for row in rows] == ["closed", "open", "torn", "damaged", "unreadable"]
    assert [row["sent"] for row in rows] == [2, 2, 2, 2, 0]
    assert [row["confirmed"] for row in rows] == [2, 2, 0, 0, 0]
    assert "offset" in rows[3]["cause"]


def test_what_is_no_ledger_ends_the_command_with_the_reason(sterna: Sterna, tmp_path: Path) -> None:
    file = tmp_path / "other"
    file.write_text("something else")
    ran = sterna("ledger", "show", str(file))
    assert ran.code == 1
    assert "no ledger" in ran.err


def test_files_are_brought_to_audits_once_and_again_when_they_have_grown(sterna: Sterna, tmp_path: Path) -> None:
    folder, root = tmp_path / "client", tmp_path / "root"
    folder.mkdir()
    closed, growing = folder / "a.ledger", folder / "b.ledger"
    _written(closed)
    whole = _written(growing, closed=False)
    growing.write_bytes(whole[:-9])

    def push(*options: str) -> tuple[int, list[dict[str, object]]]:
        ran = sterna("ledger", "push", str(folder), str(root), "-o", "json", *options)
        return ran.code, json.loads(ran.out)

    code, rows = push()
    assert (code, [(row["state"], row["wasThere"]) for row in rows]) == (0, [("closed", False), ("torn", False)])
    assert (root / LEDGER / "a.ledger").read_bytes() == closed.read_bytes()
    assert (root / LEDGER / "b.ledger").read_bytes() == whole[:-9]
    growing.write_bytes(whole)
    code, rows = push("--remove")
    told = [(row["state"], row["wasThere"], row["removed"]) for row in rows]
    assert (code, told) == (0, [("closed", True, True), ("open", False, False)])
    assert (root / LEDGER / "b.ledger").read_bytes() == whole
    assert not closed.exists()
    assert growing.exists(), "it may still be written"


def test_what_was_brought_is_there_until_all_of_what_replaces_it_is(
    tmp_path: Path,
) -> None:
    """Whatever ends a push, and whoever else pushes meanwhile."""
    folder, store = tmp_path / "client", Directory(tmp_path / "root")
    folder.mkdir()
    file, brought = folder / "a.ledger", tmp_path / "root" / LEDGER / "a.ledger"
    whole = _written(file)
    file.write_bytes(whole[:-9])
    assert [one.state for one in pushing.push(folder, store)] == ["torn"]
    file.write_bytes(whole)
    writing = store.create(f"{LEDGER}/a.ledger")
    writing.write(whole[:20])
    assert brought.read_bytes() == whole[:-9]
    with pytest.raises(StoreError, match="is being written by somebody else"):
        list(pushing.push(folder, store, removes=True))
    assert file.exists()
    assert brought.read_bytes() == whole[:-9]
    writing.abandon()
    (one,) = pushing.push(folder, store, removes=True)
    assert (one.was_there, one.removed) == (False, True)
    assert [path.name for path in brought.parent.iterdir()] == ["a.ledger"]
    assert brought.read_bytes() == whole


def test_a_damaged_ledger_is_brought_and_named_and_another_file_is_not(sterna: Sterna, tmp_path: Path) -> None:
    folder, root = tmp_path / "client", tmp_path / "root"
    folder.mkdir()
    data = bytearray(_written(folder / "a.ledger"))
    data[-20] ^= 1
    (folder / "a.ledger").write_bytes(data)
    (folder / "z.ledger").write_bytes(b"no ledger")
    ran = sterna("ledger", "push", str(folder), str(root), "--remove", "-o", "json")
    rows = json.loads(ran.out)
    assert (ran.code, [row["state"] for row in rows]) == (1, ["damaged", "unreadable"])
    assert "2 of 2 files cannot be trusted" in ran.err
    assert (root / LEDGER / "a.ledger").read_bytes() == data
    assert sorted(path.name for path in folder.iterdir()) == ["a.ledger", "z.ledger"]
    assert len([path for path in root.rglob("*") if path.is_file()]) == 1
    ran = sterna("ledger", "push", str(folder), "s4://bucket")
    assert ran.code == 2, ran.err
