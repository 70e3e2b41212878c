"""A ledger's file: what is written is read, a torn end is cut off and said, and whatever else is not whole is found."""

from __future__ import annotations

import contextlib
import json
import struct
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from sterna import _ledger_format as form
from sterna import errors, ledger
from sterna._encode import compress_body, encode_header, encode_links, encode_message, encode_uploaded
from sterna._ledger_body import body_of
from sterna._proto.sterna.v1 import message_pb2
from sterna.bodies import Foreign, Object
from sterna.destinations import Queue

from tools.fingerprints import ROOT

_HEAD = {"client_id": "billing", "checksum": form.CHECKSUM}
_LINK = form.record(form.LINK, 1, 5, 7, 9, tail=b"".join(map(form.text, ("one", "", "cafe", "h:1", "billing"))))
_NAME = form.record(form.NAME, 2, form.QUEUE_NAME, tail=form.text("orders"))
_PRODUCER = form.record(form.PRODUCER, 3, 1, 1, 2, 77, form.IS_CONFIRMED, tail=form.text("ID:one.4D:") + form.text(""))
_NAMES = [_LINK, _NAME, _PRODUCER]


def _sent(first: int, bodies: Sequence[bytes]) -> bytes:
    sums = b"".join(xxhash.xxh3_128_digest(body) for body in bodies)
    tail = form.sizes(array("I", map(len, bodies))) + sums
    return form.record(form.SENT, 3, 2, 0, 11, first, len(bodies), tail=tail)


def _file(blocks: Sequence[Sequence[bytes]]) -> bytes:
    return form.head(_HEAD) + b"".join(form.block(number, one) for number, one in enumerate(blocks))


def _some() -> list[list[bytes]]:
    end = form.record(form.END, 99)
    return [
        [*_NAMES, _sent(1, [b"a", b"bb"])],
        [form.record(form.CONFIRMED, 3, 1, 2, 1, 12)],
        [_sent(3, [b"c"]), form.record(form.IN_DOUBT, 3, 3, 3, 31), end],
    ]


def _read(path: Path, data: bytes) -> tuple[list[ledger.Record], ledger.Reading]:
    path.write_bytes(data)
    reading = ledger.read(path)
    return list(reading), reading


def test_what_was_written_is_read(tmp_path: Path) -> None:
    records, reading = _read(tmp_path / "f", _file(_some()))
    assert reading.is_closed
    assert (reading.torn_bytes, reading.head) == (0, _HEAD)
    link, producer, first, second, confirmed, third, doubt = records
    assert isinstance(link, ledger.Link)
    assert (link.broker, link.store, link.client_id, link.epoch, link.start_id) == ("one", "cafe", "billing", 7, 9)
    assert isinstance(producer, ledger.Producer)
    assert (producer.destination, producer.destination_kind, producer.incarnation) == ("orders", "queue", 77)
    assert isinstance(first, ledger.SentRecord)
    assert isinstance(second, ledger.SentRecord)
    assert (first.message_id, second.message_id, second.size) == ("ID:one.4D:1", "ID:one.4D:2", 2)
    assert second.checksum == xxhash.xxh3_128_digest(b"bb")
    assert confirmed == ledger.Confirmed(producer, 1, 2, 1, 12)
    assert isinstance(third, ledger.SentRecord)
    assert third.number == 3
    assert doubt == ledger.InDoubt(producer, 3, 3, 31)


def test_a_file_that_was_cut_anywhere_reads_as_a_beginning_and_says_so(tmp_path: Path) -> None:
    blocks = _some()
    whole = _file(blocks)
    every, _ = _read(tmp_path / "whole", whole)
    ends = [len(_file(blocks[:count])) for count in range(len(blocks) + 1)]
    for size in range(len(whole)):
        records, reading = _read(tmp_path / "cut", whole[:size])
        assert records == every[: len(records)]
        kept = max((end for end in ends if end <= size), default=0)
        assert reading.torn_bytes == size - kept, size
        assert not reading.is_closed


def test_zeros_where_a_block_would_be_are_what_is_left_of_one(tmp_path: Path) -> None:
    whole = _file(_some()[:1])
    records, reading = _read(tmp_path / "f", whole + bytes(70_000))
    assert len(records) == 4
    assert reading.torn_bytes == 70_000
    with pytest.raises(errors.LedgerDamagedError):
        _read(tmp_path / "f", whole + bytes(70_000) + b"x")


def test_any_bit_that_is_flipped_is_found(tmp_path: Path) -> None:
    blocks = _some()
    whole = _file(blocks)
    every, _ = _read(tmp_path / "whole", whole)
    for at in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << at % 8
        path = tmp_path / "flipped"
        path.write_bytes(flipped)
        found: list[ledger.Record] = []
        with pytest.raises(errors.LedgerDamagedError) as caught:
            found.extend(ledger.read(path))
        assert found == every[: len(found)]
        assert caught.value.offset <= at // 8
        assert str(path) in str(caught.value)
        assert f"offset {caught.value.offset}" in str(caught.value)


def test_a_block_that_is_missing_doubled_or_in_another_place_is_found(tmp_path: Path) -> None:
    blocks = [form.block(number, one) for number, one in enumerate(_some())]
    for order in ((1, 2), (0, 2), (0, 0, 1, 2), (0, 2, 1)):
        data = form.head(_HEAD) + b"".join(blocks[one] for one in order)
        with pytest.raises(errors.LedgerDamagedError):
            _read(tmp_path / "f", data)


@given(data=st.binary(max_size=200), whole=st.booleans())
def test_no_bytes_make_a_reader_fail_otherwise(
    data: bytes, whole: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(form.head(_HEAD) + (form.block(0, [data]) if whole else data))
    reading = ledger.read(path)
    with contextlib.suppress(errors.LedgerDamagedError):
        for _ in reading:
            pass
    assert reading.torn_bytes <= len(data)


def test_a_kind_that_is_not_known_is_skipped(tmp_path: Path) -> None:
    unknown = struct.pack("<BI", 200, 3) + b"abc"
    records, reading = _read(tmp_path / "f", _file([[unknown, *_NAMES, unknown, _sent(1, [b""])]]))
    assert [one.kind for one in records] == ["link", "producer", "sent"]
    assert reading.torn_bytes == 0


def test_what_is_no_ledger_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(errors.LedgerDamagedError, match="no ledger"):
        _read(tmp_path / "f", b"PAR1 something else")
    with pytest.raises(errors.LedgerError, match="cannot be read"):
        ledger.read(tmp_path / "missing")


def test_a_later_version_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "VERSION", 2)
    later = _file(_some())
    monkeypatch.undo()
    with pytest.raises(errors.LedgerDamagedError, match="version 2"):
        _read(tmp_path / "f", later)


_HEADER = encode_header(1, 7, 60_000, 5)
_LINKS = encode_links("correlated", Queue("replies"), "type")
_PROPERTIES = {"text": "a", "number": 2**40, "flag": True, "long": "x" * 300}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("grüße", None),
        (b"\x00\x01", None),
        ({"a": 1, "b": [1, {"c": b"d"}]}, "map"),
        ([1, "two", b"three"], "stream"),
        (Object(b"pickled", "application/x"), "object"),
        (Foreign("amqp", b"raw"), "foreign"),
    ],
)
def test_the_body_is_what_stands_on_the_wire(body: object, field: str | None) -> None:
    message = encode_message(_HEADER, _LINKS, _PROPERTIES, body)
    if field is None:
        wanted = body.encode() if isinstance(body, str) else body
    else:
        wanted = getattr(message_pb2.Message.FromString(message), field).SerializeToString()
    assert body_of(message) == wanted
    assert body_of(encode_message(b"", b"", None, body)) == wanted


def test_no_body_is_an_empty_one_a_deflated_one_stays_so_and_an_uploaded_one_is_named() -> None:
    assert body_of(encode_message(_HEADER, _LINKS, _PROPERTIES, None)) == b""
    deflated = message_pb2.Message.FromString(compress_body("text" * 50)).bytes
    assert body_of(encode_message(b"", b"", {"JMS_STERNA_COMPRESS": True}, "text" * 50)) == deflated
    assert body_of(encode_uploaded(_HEADER, _LINKS, _PROPERTIES, 1 << 47, 1, "", b"")) == 1 << 47


def test_the_checksum_is_xxh3_128_with_seed_0() -> None:
    """As the algorithm's own documentation and the broker have it."""
    assert xxhash.xxh3_128_hexdigest(b"") == "99aa06d3014798d86001c324468d497f"
    assert xxhash.xxh3_128_hexdigest("grüße".encode()) == xxhash.xxh128(b"gr\xc3\xbc\xc3\x9fe", seed=0).hexdigest()


def _vectors() -> list[dict[str, str]]:
    cases: list[dict[str, str]] = json.loads((ROOT / "tests/vectors/body_checksums.json").read_text())["cases"]
    # Brokers refuse several bodies, and no SDK sends them.
    return [case for case in cases if not case.get("several_bodies")]


@pytest.mark.parametrize("case", _vectors(), ids=lambda case: str(case["name"]))
def test_brokers_make_the_same_checksums(case: dict[str, str]) -> None:
    body = body_of(bytes.fromhex(case["message"]))
    if isinstance(body, int):
        body = bytes.fromhex(case.get("uploaded", ""))
    assert xxhash.xxh3_128_hexdigest(body) == case["checksum"]
