"""Whatever somebody does to snapshots is found, named, and never a stack trace."""

import base64
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sterna_audit.snapshots import anchors, chains, manifests, reading, signed_json
from sterna_audit.snapshots.chains import Link, link_findings
from sterna_audit.snapshots.findings import Finding
from sterna_audit.snapshots.keys import KeyFileError, Signer, read_signer, read_verifier
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.stores import Directory

from tests.audit.kept import SIGNER, VERIFIER, Kept, told
from tests.audit.story import PLACE

# The exporter's loop serves nobody else: it writes and syncs its files there, beside other tests.
pytestmark = pytest.mark.slow_callbacks(2_000)

ENDS = "events/ends-000.parquet"


@pytest.fixture
def three(kept: Kept) -> Kept:
    """A chain of three cuts."""
    kept.cuts(3)
    assert kept.faults() == []
    return kept


def folder(kept: Kept, number: int) -> Path:
    return Path(kept.store.uri) / PLACE.cut(number)


def rewritten(kept: Kept, number: int, signer: Signer | None, **changes: Any) -> None:
    """The manifest says something else, and is signed."""
    path = folder(kept, number) / "manifest.json"
    values = {**json.loads(path.read_bytes()), **changes}
    values.pop("signature")
    path.write_bytes(signed_json.signed(values, signer))


def flipped(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def replaced(kept: Kept, table: pa.Table) -> None:
    """The ends of cut 2 are other rows, and the manifest, signed, says so."""
    path = folder(kept, 2) / ENDS
    pq.write_table(table, path)
    data = path.read_bytes()
    files = json.loads((folder(kept, 2) / "manifest.json").read_bytes())["files"]
    files[ENDS] |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    rewritten(kept, 2, SIGNER, files=files)


def _made_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _without_first_two(kept: Kept) -> None:
    shutil.rmtree(folder(kept, 1))
    shutil.rmtree(folder(kept, 2))


FAULTS: dict[str, tuple[Callable[[Kept], object], list[tuple[str, str]]]] = {
    "a file is gone": (
        lambda kept: (folder(kept, 2) / ENDS).unlink(),
        [(f"000000000002/{ENDS}", "missing-file")],
    ),
    "a byte is flipped": (
        lambda kept: flipped(folder(kept, 2) / ENDS, 20),
        [(f"000000000002/{ENDS}", "altered-file")],
    ),
    "a file is cut off": (
        lambda kept: (folder(kept, 2) / ENDS).write_bytes((folder(kept, 2) / ENDS).read_bytes()[:-9]),
        [(f"000000000002/{ENDS}", "altered-file")],
    ),
    "a file is a folder": (
        lambda kept: _made_folder(folder(kept, 2) / ENDS),
        [(f"000000000002/{ENDS}", "missing-file")],
    ),
    "the manifest is no JSON": (
        lambda kept: (folder(kept, 3) / "manifest.json").write_bytes(b"\xff{"),
        [("000000000003/manifest.json", "broken-manifest")],
    ),
    "the manifest is laid out anew": (
        lambda kept: (folder(kept, 3) / "manifest.json").write_text(
            json.dumps(json.loads((folder(kept, 3) / "manifest.json").read_bytes()), indent=1)
        ),
        [("000000000003/manifest.json", "broken-manifest")],
    ),
    "the manifest is changed": (
        lambda kept: (folder(kept, 3) / "manifest.json").write_bytes(
            (folder(kept, 3) / "manifest.json").read_bytes().replace(b'"epoch":1', b'"epoch":2')
        ),
        [("000000000003/manifest.json", "wrong-signature")],
    ),
    "the signature is another's": (
        lambda kept: rewritten(kept, 3, Signer(Ed25519PrivateKey.generate())),
        [("000000000003/manifest.json", "unknown-key")],
    ),
    "the signature is gone": (
        lambda kept: rewritten(kept, 3, None),
        [("000000000003/manifest.json", "unsigned")],
    ),
    "a newer schema": (
        lambda kept: rewritten(kept, 3, SIGNER, schema=2),
        [("000000000003/manifest.json", "newer-schema")],
    ),
    "a manifest in another's place": (
        lambda kept: rewritten(kept, 3, SIGNER, broker="broker-1"),
        [("000000000003/manifest.json", "foreign-manifest")],
    ),
    "another manifest before": (
        lambda kept: rewritten(kept, 3, SIGNER, previous="0" * 64),
        [("000000000003/manifest.json", "broken-chain")],
    ),
    "no manifest before": (
        lambda kept: rewritten(kept, 3, SIGNER, previous=None),
        [("000000000003/manifest.json", "broken-chain")],
    ),
    "the manifest before is another": (
        lambda kept: rewritten(kept, 2, SIGNER, options={}),
        [("000000000003/manifest.json", "broken-chain")],
    ),
    "another store": (
        lambda kept: rewritten(kept, 3, SIGNER, store="0" * 32),
        [("000000000003/manifest.json", "broken-chain")],
    ),
    "an epoch before": (
        lambda kept: rewritten(kept, 3, SIGNER, epoch=0),
        [("000000000003/manifest.json", "broken-chain")],
    ),
    "events that do not adjoin": (
        lambda kept: rewritten(kept, 3, SIGNER, events=[[0, 10]]),
        [("000000000003/manifest.json", "wrong-range")] * 2,
    ),
    "another position before": (
        lambda kept: rewritten(kept, 3, SIGNER, previous_position=7),
        [("000000000003/manifest.json", "wrong-range")] * 2,
    ),
    "a manifest is gone in the middle": (
        lambda kept: (folder(kept, 2) / "manifest.json").unlink(),
        [("000000000002", "no-manifest"), ("000000000002", "missing-cut")],
    ),
    "a cut is gone in the middle": (
        lambda kept: shutil.rmtree(folder(kept, 2)),
        [("000000000002", "missing-cut")],
    ),
    "the first cuts are gone": (
        _without_first_two,
        [("000000000001", "missing-cut")],
    ),
    "another type": (
        lambda kept: replaced(kept, pq.read_table(folder(kept, 2) / ENDS).cast(_schema(kept, reason=pa.int32()))),
        [("000000000003/manifest.json", "broken-chain"), (f"000000000002/{ENDS}", "foreign-schema")],
    ),
    "a column is gone": (
        lambda kept: replaced(kept, pq.read_table(folder(kept, 2) / ENDS).drop_columns(["actor"])),
        [("000000000003/manifest.json", "broken-chain"), (f"000000000002/{ENDS}", "missing-column")],
    ),
    "a foreign column": (
        lambda kept: replaced(kept, _with_column(pq.read_table(folder(kept, 2) / ENDS))),
        [("000000000003/manifest.json", "broken-chain"), (f"000000000002/{ENDS}", "foreign-schema")],
    ),
    "a row is gone": (
        lambda kept: replaced(kept, pq.read_table(folder(kept, 2) / ENDS).slice(1)),
        [("000000000003/manifest.json", "broken-chain"), (f"000000000002/{ENDS}", "wrong-rows")],
    ),
    "a row is changed": (
        lambda kept: replaced(kept, _with_other_row(pq.read_table(folder(kept, 2) / ENDS))),
        [("000000000003/manifest.json", "broken-chain"), (f"000000000002/{ENDS}", "wrong-rows")],
    ),
}


def _schema(kept: Kept, **types: pa.DataType) -> pa.Schema:
    found = pq.read_schema(folder(kept, 2) / ENDS)
    return pa.schema([pa.field(one.name, types.get(one.name, one.type)) for one in found])


def _with_column(table: pa.Table) -> pa.Table:
    return table.append_column("more", pa.array([1] * table.num_rows))


def _with_other_row(table: pa.Table) -> pa.Table:
    values: list[int] = [int(one or 0) for one in table["last"].to_pylist()]
    return table.set_column(3, "last", pa.array([values[0] + 1, *values[1:]], pa.int64()))


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_where_it_is(three: Kept, name: str) -> None:
    do, expected = FAULTS[name]
    do(three)
    assert sorted(three.faults()) == sorted(expected)


BAD_FIELDS: dict[str, dict[str, Any]] = {
    "a path out of the folder": {"files": {"../../secret/x-000.parquet": {}}},
    "an absolute path": {"files": {"/etc/passwd": {}}},
    "a path with a twin": {"files": {"events/ends-0000.parquet": {}}},
    "a table that is none": {"files": {"events/other-000.parquet": {}}},
    "files that are none": {"files": 7},
    "an absurd size": {
        "files": {ENDS: {"sha256": "0" * 64, "bytes": 1 << 70, "rows": 1, "table": "ends", "row_checksum": "1"}}
    },
    "fewer than no rows": {
        "files": {ENDS: {"sha256": "0" * 64, "bytes": 1, "rows": -1, "table": "ends", "row_checksum": "1"}}
    },
    "another table": {
        "files": {ENDS: {"sha256": "0" * 64, "bytes": 1, "rows": 1, "table": "moves", "row_checksum": "1"}}
    },
    "a checksum that is none": {
        "files": {ENDS: {"sha256": "0" * 64, "bytes": 1, "rows": 1, "table": "ends", "row_checksum": "9" * 99}}
    },
    "a position that is none": {"position": True},
    "a cut too high": {"cut": 10**12},
    "a range the wrong way": {"events": [[7, 3]]},
    "a gap without a reason": {"gaps": [{"from": 1, "to": 2}]},
    "a name that is a path": {"cluster": "../bank"},
    "a store that is none": {"store": "7"},
    "no schema": {"schema": None},
    "options that are none": {"options": []},
    "a key that is none": {"previous": "0"},
}


def test_the_first_cut_tells_of_nothing_before_it(three: Kept) -> None:
    first = three.chain().snapshots[0].manifest
    assert first is not None
    link = Link(0, None, -1, None)
    as_brokers_do = dataclasses.replace(first.cut, previous_position=first.cut.position, events=())
    assert list(link_findings("cut", link, as_brokers_do)) == []
    odd = dataclasses.replace(first.cut, previous_position=7, events=((7, first.cut.position),))
    assert [one.what for one in link_findings("cut", link, odd)] == ["wrong-range"]


@pytest.mark.parametrize("name", BAD_FIELDS)
def test_a_signed_manifest_that_makes_no_sense_is_one_finding(three: Kept, name: str) -> None:
    rewritten(three, 3, SIGNER, **BAD_FIELDS[name])
    assert three.faults() == [("000000000003/manifest.json", "broken-manifest")]


def test_a_manifest_that_leaves_files_out_is_found(three: Kept) -> None:
    files = json.loads((folder(three, 3) / "manifest.json").read_bytes())["files"]
    rewritten(three, 3, SIGNER, files={path: entry for path, entry in files.items() if path != ENDS})
    assert three.faults() == [("000000000003/manifest.json", "broken-manifest")]
    files["events/ends-002.parquet"] = files[ENDS]
    rewritten(three, 3, SIGNER, files=files)
    assert ("000000000003/manifest.json", "broken-manifest") in three.faults()


def test_a_manifest_of_absurd_size_is_not_read(three: Kept) -> None:
    with (folder(three, 3) / "manifest.json").open("r+b") as file:
        file.truncate(manifests.MANIFEST_BYTES_MAX + 1)
    assert three.faults() == [("000000000003/manifest.json", "broken-manifest")]


def test_a_file_that_is_no_parquet_is_found_though_its_checksum_is_right(three: Kept) -> None:
    data = b"PAR1 and nothing that follows PAR1"
    (folder(three, 3) / ENDS).write_bytes(data)
    files = json.loads((folder(three, 3) / "manifest.json").read_bytes())["files"]
    files[ENDS] |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    rewritten(three, 3, SIGNER, files=files)
    assert three.faults() == [(f"000000000003/{ENDS}", "unreadable-file")]


def test_what_is_missing_at_the_end_is_found_by_who_knows_the_last_cut(three: Kept) -> None:
    shutil.rmtree(folder(three, 3))
    assert three.faults() == []
    assert [told(one) for one in three.chain(last=3).findings] == [("000000000003", "missing-cut")]
    (folder(three, 3) / "state").mkdir(parents=True)
    assert three.faults() == []
    assert [told(one) for one in three.chain(last=3).findings] == [("000000000003", "no-manifest")]


def test_a_part_of_a_chain_is_verified_with_its_link_to_what_is_before(three: Kept) -> None:
    flipped(folder(three, 1) / ENDS, 9)
    assert [one.number for one in three.chain(first=2).snapshots] == [2, 3]
    assert three.chain(first=2).findings == []
    assert [told(one)[1] for one in three.chain(last=1).findings] == ["altered-file"]
    rewritten(three, 1, SIGNER, options={})
    assert [told(one) for one in three.chain(first=2).findings] == [("000000000002/manifest.json", "broken-chain")]
    shutil.rmtree(folder(three, 2))
    shutil.rmtree(folder(three, 1))
    assert [told(one) for one in three.chain(first=2).findings] == [("000000000002", "missing-cut")]


def test_brokers_are_listed_and_what_is_none_is_passed_over(three: Kept) -> None:
    root = Path(three.store.uri)
    for path in ("bank/broker-9/000000000004", "bank/other/notes", ".hidden/b/000000000001", "bank/zero/000000000000"):
        (root / path).mkdir(parents=True)
    assert list(reading.places(three.store)) == [PLACE, Place("bank", "broker-9")]
    assert reading.numbers(three.store, PLACE) == [1, 2, 3]
    assert list(reading.places(Directory(root / "nowhere"))) == []
    with pytest.raises(ValueError, match="cannot be the name of a folder"):
        Place("bank", "../broker")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_manifest_whatever_its_bytes_is_more_than_a_finding(kept: Kept, data: st.DataObject) -> None:
    path = folder(kept, 1) / "manifest.json"
    if not path.exists():
        kept.cuts(1)
        (path.parent / "right").write_bytes(path.read_bytes())
    right = (path.parent / "right").read_bytes()
    at = data.draw(st.integers(0, len(right)))
    cut = data.draw(st.integers(0, 40))
    path.write_bytes(right[:at] + data.draw(st.binary(max_size=40)) + right[at + cut :])
    findings = kept.chain().findings
    assert bool(findings) == (path.read_bytes() != right)
    # Without keys, too, it is findings at most.
    chains.verify(kept.store, PLACE, None)


def test_anchors_that_make_no_sense_are_findings_and_count_for_nothing(three: Kept) -> None:
    path = Path(three.store.uri) / PLACE.anchor
    for text in (b"", b"{}", b"[1]", b'{"anchor":2}', b"{" * 100_000):
        path.write_bytes(text)
        anchor, found = anchors.find(three.store, PLACE, VERIFIER)
        assert anchor is None
        assert [told(one) for one in found] == [("pruned.json", "broken-anchor")]
    # Whoever can write there removes a cut and says that it was pruned.
    first = three.chain().snapshots[0].manifest
    assert first is not None
    mine = anchors.Anchor(PLACE, 1, 1, first.sha256, first.cut.position, first.cut.store)
    shutil.rmtree(folder(three, 1))
    path.write_bytes(anchors.encoded(mine, Signer(Ed25519PrivateKey.generate())))
    assert three.faults() == [("pruned.json", "unknown-key"), ("000000000001", "missing-cut")]
    path.write_bytes(anchors.encoded(mine, SIGNER))
    assert three.faults() == []


def test_key_files_that_are_none_are_refused_by_name(tmp_path: Path, private_key: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    public = tmp_path / "public.pem"
    public.write_bytes(
        Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    for path in (wrong, public, tmp_path / "missing.pem"):
        with pytest.raises(KeyFileError, match=path.name):
            read_signer(path)
    for path in (wrong, private_key, tmp_path / "missing.pem"):
        with pytest.raises(KeyFileError, match=path.name):
            read_verifier([path])
    assert read_signer(private_key).key_id == SIGNER.key_id
    signature = read_signer(private_key).sign(b"data")
    assert VERIFIER.is_signed(b"data", SIGNER.key_id, signature)
    assert not VERIFIER.is_signed(b"date", SIGNER.key_id, signature)
    assert not VERIFIER.is_signed(b"data", SIGNER.key_id, base64.b64encode(b"x").decode())
    assert not VERIFIER.is_signed(b"data", SIGNER.key_id, "no base64!")


def test_a_finding_is_a_line() -> None:
    assert str(Finding("a/b", "missing-file", "it is gone")) == "a/b: missing-file: it is gone"
