"""A checksum over a table's rows that does not depend on their order, and that Spark computes as well.

Each row has the 64 bits of Spark's function `xxhash64` over its columns, in the schema's order; a table has the sum of
those as unsigned numbers. So whoever reads the rows, wherever and however split, finds out whether they are the rows
that were written: in Spark SQL it is `sum(h & 4294967295)` and `sum(shiftrightunsigned(h, 32))`, which stay below 64
bits for two thousand million rows (`spark.row_checksums`).

`xxhash64` begins with 42 and goes on from column to column; a missing value changes nothing. So the sum is the same
after a column was added at the end, which older rows have no value for. It also is the reason why it is no protection
from whoever means harm: that are the sha256 of the files and the manifest's signature.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]
_Bytes = npt.NDArray[np.uint8]
_Integers = npt.NDArray[np.int64]

_SEED = 42
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LOW = np.uint64(0xFFFFFFFF)
_STRIPE = 32


@dataclass(frozen=True, slots=True)
class RowChecksum:
    """How many rows there are, and the sum of their hashes."""

    rows: int = 0
    total: int = 0

    def __add__(self, other: "RowChecksum") -> "RowChecksum":
        return RowChecksum(self.rows + other.rows, self.total + other.total)

    def __str__(self) -> str:
        return str(self.total)


def of_batch(batch: pa.RecordBatch) -> RowChecksum:
    """The checksum of a batch, over its columns in their order."""
    hashes = row_hashes(batch)
    low = int((hashes & _LOW).sum(dtype=np.uint64))
    high = int((hashes >> np.uint64(32)).sum(dtype=np.uint64))
    return RowChecksum(batch.num_rows, (high << 32) + low)


def row_hashes(batch: pa.RecordBatch) -> Hashes:
    """Each row's hash, as unsigned numbers; Spark shows the same bits as a signed one.

    Raises:
        TypeError: a column's type is none that snapshots have.
    """
    hashes: Hashes = np.full(batch.num_rows, _SEED, dtype=np.uint64)
    # Multiplications are meant to drop what is above 64 bits.
    with np.errstate(over="ignore"):
        for column in batch.columns:
            _add(hashes, column)
    return hashes


def _add(hashes: Hashes, column: "pa.Array[Any]") -> None:
    """Goes on with one column, where it has values."""
    kind = column.type
    is_there = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    at: Any = slice(None) if is_there is None else is_there
    present = column if is_there is None else column.drop_null()
    if pa.types.is_string(kind):
        hashes[at] = _of_texts(present, hashes[at])
    elif pa.types.is_int64(kind):
        hashes[at] = _of_longs(present.to_numpy(zero_copy_only=False).view(np.uint64), hashes[at])
    elif pa.types.is_boolean(kind) or pa.types.is_signed_integer(kind):
        numbers = pc.cast(present, pa.int32()).to_numpy(zero_copy_only=False)
        hashes[at] = _of_integers(numbers.view(np.uint32).astype(np.uint64), hashes[at])
    else:
        raise TypeError(f"no column of a snapshot is {kind}")


def _rotated(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _mixed(values: Hashes) -> Hashes:
    values = (values ^ (values >> np.uint64(33))) * _P2
    values = (values ^ (values >> np.uint64(29))) * _P3
    return values ^ (values >> np.uint64(32))


def _with_long(hashes: Hashes, values: Hashes) -> Hashes:
    return _rotated(hashes ^ (_rotated(values * _P2, 31) * _P1), 27) * _P1 + _P4


def _with_integer(hashes: Hashes, values: Hashes) -> Hashes:
    return _rotated(hashes ^ (values * _P1), 23) * _P2 + _P3


def _of_longs(values: Hashes, seeds: Hashes) -> Hashes:
    return _mixed(_with_long(seeds + _P5 + np.uint64(8), values))


def _of_integers(values: Hashes, seeds: Hashes) -> Hashes:
    return _mixed(_with_integer(seeds + _P5 + np.uint64(4), values))


def _of_texts(texts: "pa.Array[Any]", seeds: Hashes) -> Hashes:
    """XXH64 of each text's bytes, all texts one step at a time, as long as any of them has bytes left."""
    if len(texts) == 0:
        return seeds
    _, offsets_buffer, data_buffer = texts.buffers()
    assert offsets_buffer is not None
    offsets = np.frombuffer(memoryview(offsets_buffer), dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data: _Bytes = (
        np.frombuffer(memoryview(data_buffer), dtype=np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    )
    at: _Integers = offsets[:-1].astype(np.int64)
    ends: _Integers = offsets[1:].astype(np.int64)
    lengths = ends - at
    hashes: Hashes = seeds + _P5
    is_long = lengths >= _STRIPE
    if is_long.any():
        hashes[is_long], at[is_long] = _of_stripes(data, at[is_long], ends[is_long], seeds[is_long])
    hashes += lengths.astype(np.uint64)
    while (rest := ends - at >= 8).any():
        hashes[rest] = _with_long(hashes[rest], _words(data, at[rest]))
        at[rest] += 8
    rest = ends - at >= 4
    hashes[rest] = _with_integer(hashes[rest], _read(data, at[rest], 4).view("<u4").ravel().astype(np.uint64))
    at[rest] += 4
    while (rest := ends > at).any():
        hashes[rest] = _rotated(hashes[rest] ^ (data[at[rest]].astype(np.uint64) * _P5), 11) * _P1
        at[rest] += 1
    return _mixed(hashes)


def _of_stripes(data: _Bytes, at: _Integers, ends: _Integers, seeds: Hashes) -> tuple[Hashes, _Integers]:
    """What is made of the 32 bytes after 32 bytes that texts have, and where each text's rest begins."""
    lanes: list[Hashes] = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    at = at.copy()
    while (rest := ends - at >= _STRIPE).any():
        for number, lane in enumerate(lanes):
            lane[rest] = _rotated(lane[rest] + _words(data, at[rest] + 8 * number) * _P2, 31) * _P1
        at[rest] += _STRIPE
    hashes = _rotated(lanes[0], 1) + _rotated(lanes[1], 7) + _rotated(lanes[2], 12) + _rotated(lanes[3], 18)
    for lane in lanes:
        hashes = (hashes ^ (_rotated(lane * _P2, 31) * _P1)) * _P1 + _P4
    return hashes, at


def _words(data: _Bytes, at: _Integers) -> Hashes:
    words: Hashes = _read(data, at, 8).view("<u8").ravel()
    return words


def _read(data: _Bytes, at: _Integers, count: int) -> _Bytes:
    found: _Bytes = data[at[:, None] + np.arange(count)]
    return found
