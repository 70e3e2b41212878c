"""`sterna snapshot`: what is kept is listed, verified and pruned, with exit codes for scripts."""

import asyncio
import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from sterna.cli.application import run

from bench.broker import Broker
from tests.audit.golden.make import GOLDEN, KEY
from tests.audit.story import PLACE
from tests.cli.conftest import Ran
from tests.support.exports import holding

Sterna = Callable[..., Ran]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the golden snapshots: two cuts, signed, and the public key."""
    return Path(shutil.copytree(GOLDEN / "v1", tmp_path / "snapshots"))


@pytest.fixture
def private_key(tmp_path: Path) -> Path:
    """The key that signed them."""
    path = tmp_path / "key.pem"
    path.write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return path


def test_what_is_kept_is_listed(sterna: Sterna, root: Path) -> None:
    (root / PLACE.cut(3) / "state").mkdir(parents=True)
    (root / PLACE.manifest(2)).write_text("{")
    ran = sterna("snapshot", "list", str(root))
    assert ran.code == 0
    assert " ".join(ran.out.split()[:9]) == "CLUSTER BROKER CUT STATE POSITION TAKEN ROWS BYTES KEY"
    assert [line.split()[:4] for line in ran.out.splitlines()[1:]] == [
        ["bank", "broker-0", "1", "whole"],
        ["bank", "broker-0", "2", "broken"],
        ["bank", "broker-0", "3", "half-written"],
    ]
    rows = json.loads(sterna("snapshot", "list", str(root), "-o", "json").out)
    assert rows[0]["taken"].endswith("Z")
    assert "broken-manifest" in rows[1]["findings"][0]
    assert sterna("snapshot", "list", str(root), "--cluster", "other", "-o", "json").out == "[]\n"


def test_what_is_as_it_was_written_verifies(sterna: Sterna, root: Path) -> None:
    ran = sterna("snapshot", "verify", str(root), "--key", str(root / "key.pub.pem"), "-o", "json")
    assert (ran.code, ran.out) == (0, "[]\n")
    assert ran.err == "bank/broker-0: cuts 1 to 2, no fault\n"
    assert "signatures not looked at" in sterna("snapshot", "verify", str(root), "--unsigned").err


def test_a_fault_is_a_row_and_an_exit_code(sterna: Sterna, root: Path) -> None:
    (root / PLACE.cut(2) / "events" / "ends-000.parquet").unlink()
    ran = sterna("snapshot", "verify", str(root), "--key", str(root / "key.pub.pem"), "-o", "json")
    assert ran.code == 8
    assert [(one["file"], one["what"]) for one in json.loads(ran.out)] == [
        (f"{PLACE.cut(2)}/events/ends-000.parquet", "missing-file")
    ]
    assert "1 faults" in ran.err
    assert sterna("snapshot", "verify", str(root), "--unsigned", "--to", "1", "--quick").code == 0
    assert sterna("snapshot", "verify", str(root), "--unsigned", "--to", "9").code == 8


def test_old_ones_are_removed_and_the_rest_verifies(sterna: Sterna, root: Path, private_key: Path) -> None:
    key = str(root / "key.pub.pem")
    assert sterna("snapshot", "prune", str(root), "--keep", "1", "--key", key, "--dry-run").code == 0
    assert (root / PLACE.manifest(1)).exists()
    ran = sterna(
        "snapshot", "prune", str(root), "--keep", "1", "--key", key, "--sign-with", str(private_key), "-o", "jsonl"
    )
    assert ran.code == 0
    assert json.loads(ran.out) == {
        "cluster": "bank", "broker": "broker-0", "removed": "snapshots", "from": 1, "to": 1, "snapshots": 1,
    }  # fmt: skip
    ran = sterna("snapshot", "verify", str(root), "--key", key)
    assert (ran.code, ran.err) == (0, "bank/broker-0: cuts 2 to 2, no fault, pruned up to cut 1\n")


def test_what_is_broken_is_left_and_said(sterna: Sterna, root: Path) -> None:
    (root / PLACE.manifest(1)).write_text("{")
    ran = sterna("snapshot", "prune", str(root), "--keep", "1", "--unsigned")
    assert ran.code == 7
    assert "not removed, nor anything after it" in ran.err
    (root / PLACE.anchor).write_text("{")
    assert sterna("snapshot", "prune", str(root), "--keep", "1", "--unsigned").code == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["verify", "ROOT"], "give --key FILE, or --unsigned"),
        (["verify", "ROOT", "--key", "ROOT/missing.pem"], "missing.pem cannot be read"),
        (["verify", "ROOT", "--key", "ROOT/key.pub.pem", "--unsigned"], "--unsigned to look at none"),
        (["prune", "ROOT", "--keep", "1", "--key", "ROOT/key.pub.pem"], "nobody signs what is gone"),
        (["prune", "ROOT", "--keep", "ten", "--unsigned"], "neither a number of cuts nor an age"),
        (["prune", "ROOT", "--keep", "1", "--keep-table", "x=1", "--unsigned"], "there is no table x"),
        (["prune", "ROOT", "--keep", "1", "--unsigned", "--sign-with", "ROOT/key.pub.pem"], "no private key"),
        (["create", "--to", "ROOT", "--principals", "none"], "nobody signs the manifest"),
        (["create", "--to", "ROOT", "--unsigned", "--sign-with", "ROOT/key.pub.pem"], "exclude each other"),
        (["create", "--to", "ROOT", "--unsigned"], "as keyed hashes, and there is no key"),
        (["create", "--to", "ROOT", "--unsigned", "--principals-key", "ROOT/none"], "ROOT/none: No such file"),
        (["create", "--to", "ROOT", "--unsigned", "--principals", "none", "--principals-key", "ROOT/k"], "kept none"),
        (["create", "--to", "ROOT", "--unsigned", "--principals", "none", "--rate", "9k"], "from 100k on"),
        (["create", "--to", "ROOT", "--unsigned", "--principals", "none", "--verify-key", "ROOT/k"], "cannot be read"),
        (["create", "--to", "s3://a:secret@b/c", "--unsigned", "--principals", "none"], "holds no password"),
        (["list", "s3://key:secret@bucket/x"], "holds no password"),
        (["list", "gs://bucket"], "gs:// is not known"),
    ],
)
def test_a_wrong_call_is_refused(sterna: Sterna, root: Path, arguments: list[str], why: str) -> None:
    ran = sterna("snapshot", *(one.replace("ROOT", str(root)) for one in arguments))
    assert ran.code == 2
    assert why.replace("ROOT", str(root)) in ran.err
    assert "secret" not in ran.err


def test_what_is_taken_is_a_chain_that_verifies(cli: Sterna, tmp_path: Path, private_key: Path) -> None:
    root, key = str(tmp_path / "kept"), tmp_path / "principals.key"
    key.write_bytes(b"sixteen bytes or more\n")
    public = tmp_path / "public.pem"
    public.write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    create = ("snapshot", "create", "--to", root, "--sign-with", str(private_key), "--principals-key", str(key))
    cuts = []
    for number in (1, 2):
        assert cli("send", "t.snapshots", f"message {number}").code == 0
        ran = cli(*create, "-o", "json")
        assert (ran.code, ran.err) == (0, "")
        cuts.append(json.loads(ran.out))
    assert [(one["cluster"], one["broker"], one["state"]) for one in cuts] == [("standalone", "sterna", "new")] * 2
    assert cuts[1]["cut"] == cuts[0]["cut"] + 1
    ran = cli(*create)
    assert " ".join(ran.out.split()[:8]) == "CLUSTER BROKER CUT STATE POSITION TAKEN ROWS BYTES"
    sterna = ("snapshot", "verify", root, "--key", str(public))
    assert run(list(sterna)) == 0


def test_another_exporter_is_waited_for_and_then_named(cli: Sterna, broker: Broker, tmp_path: Path) -> None:
    command = ("snapshot", "create", "--to", str(tmp_path / "kept"), "--unsigned", "--principals", "none")

    async def beside() -> Ran:
        async with holding(broker.url):
            return await asyncio.to_thread(cli, *command, "--wait", "0")

    ran = asyncio.run(beside())
    assert ran.code == 1
    assert "error IN_USE: Another exporter has been reading cut" in ran.err
    assert "Try again when it has ended." in ran.err
    assert not (tmp_path / "kept").exists()
    assert cli(*command).code == 0


def test_without_a_broker_nothing_is_taken(sterna: Sterna, tmp_path: Path) -> None:
    command = ("snapshot", "create", "--to", str(tmp_path / "kept"), "--unsigned", "--principals", "none")
    ran = sterna(*command, "-s", "sterna://127.0.0.1:1")
    assert (ran.code, (tmp_path / "kept").exists()) == (6, False)


def test_nothing_to_verify_is_not_found(sterna: Sterna, tmp_path: Path) -> None:
    assert sterna("snapshot", "verify", str(tmp_path), "--unsigned").code == 4


def test_without_the_audits_it_says_what_to_install(
    sterna: Sterna, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = importlib.util.find_spec

    def missing(name: str, package: str | None = None) -> object:
        return None if name == "pyarrow" else there(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", missing)
    ran = sterna("snapshot", "list", str(root))
    assert ran.code == 1
    assert "snapshots need pyarrow" in ran.err
    assert "pip install 'sterna[audit]'" in ran.err
