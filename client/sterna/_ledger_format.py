"""A ledger's file as bytes: a head, then blocks of records. No file is opened here, and no clock read.

    head      magic "STERNALG", version u16, size u32 of the content, CRC-32 of these, the content (JSON), its CRC-32
    block     size u32 of the content, CRC-32 of the content, CRC-32 of these eight bytes, the content
    record    kind u8, size u32 of what follows, then the kind's own fields

All numbers are little-endian. A block's sums begin with the block's number in its file, so that a block that is
missing, doubled or in another place is found as well as a bit that was flipped. A file that ends within a block was
torn, as by a process that was killed: the block counts as not written. Zeros up to the end are what a disk without
power leaves of it, and count as torn too. Anything else that does not fit is damage.

Names, links, producers and consumers are records of their own with a number, by which the others name them; each file
has all that its records name. A record of a kind that is not known is skipped: kinds are only ever added.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

#: What the names of its files end in.
SUFFIX: Final = ".ledger"
MAGIC: Final = b"STERNALG"
VERSION: Final = 1
CHECKSUM: Final = "XXH3-128"

#: No block's content is longer; the writer begins another one well before.
BLOCK_BYTES_MAX: Final = 1 << 20
#: So many messages, or ranges, are in one record at most.
ROWS_MAX: Final = 4096
HEAD_BYTES_MAX: Final = 1 << 16
_TEXT_BYTES_MAX: Final = 4096

# Kinds of records.
LINK, NAME, PRODUCER, CONSUMER, SENT, AGAIN, CONFIRMED, REFUSED, IN_DOUBT, GIVEN_UP = range(1, 11)
TRANSACTION, RECEIVED, ACKNOWLEDGING, ACKNOWLEDGED, END = range(11, 16)

# What a name is.
QUEUE_NAME, TOPIC_NAME, PREFIX = 1, 2, 3

#: Of PRODUCER.
IS_CONFIRMED, IS_TRANSACTED = 1, 2

_FRAME: Final = struct.Struct("<BI")
_BLOCK: Final = struct.Struct("<III")
_SUM: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<8sHI")

#: The fixed fields of each kind; what has a length of its own stands behind them.
FIELDS: Final = {
    LINK: struct.Struct("<IqQQ"),  # number, time_ms, epoch, start id; broker, cluster, store, address, client id
    NAME: struct.Struct("<IB"),  # number, what; text
    PRODUCER: struct.Struct("<IIIIQB"),  # number, link, session, destination (0: any), incarnation, flags; prefix, name
    CONSUMER: struct.Struct("<IIIIQQB"),  # number, link, session, destination, source, epoch, mode; subscription
    SENT: struct.Struct("<IIQqQI"),  # producer, destination, transaction, time_ms, first, count; sizes u32, sums
    AGAIN: struct.Struct("<IqQQ"),  # producer, time_ms, first, last
    CONFIRMED: struct.Struct("<IQQBq"),  # producer, first, last, durability, arrived_ms
    REFUSED: struct.Struct("<IQQIB"),  # producer, first, last, code, final
    IN_DOUBT: struct.Struct("<IQQI"),  # producer, first, last, code
    GIVEN_UP: struct.Struct("<IQQ"),  # producer, first, last
    TRANSACTION: struct.Struct("<IIQqBB"),  # link, session, transaction, time_ms, what became of it, durability
    RECEIVED: struct.Struct("<IqI"),  # consumer, time_ms, count; rows
    ACKNOWLEDGING: struct.Struct("<QIIQqI"),  # number, link, session, transaction, time_ms, count; rows
    ACKNOWLEDGED: struct.Struct("<QBI"),  # number, what became of it, code
    END: struct.Struct("<q"),  # time_ms
}
#: Rows of RECEIVED: sequence in its source, prefix (a name), number in the message id, redelivered, delivery count.
RECEIVED_ROW: Final = struct.Struct("<QIQBI")
#: Rows of ACKNOWLEDGING: source, epoch, first, last.
ACKNOWLEDGED_ROW: Final = struct.Struct("<QQQQ")
_CHECKSUM_BYTES: Final = 16
_TEXT: Final = struct.Struct("<H")


class FormatError(Exception):
    """What stands at `offset` is no ledger's."""

    def __init__(self, offset: int, cause: str) -> None:
        super().__init__(cause)
        self.offset = offset
        self.cause = cause


# --- Writing


def text(value: str) -> bytes:
    """A text with its length; one beyond all bounds is cut."""
    content = value.encode("utf-8", "replace")[:_TEXT_BYTES_MAX]
    return _TEXT.pack(len(content)) + content


def record(kind: int, *fields: int, tail: bytes = b"") -> bytes:
    """A record: its fixed fields, and what stands behind them."""
    content = FIELDS[kind].pack(*fields)
    return _FRAME.pack(kind, len(content) + len(tail)) + content + tail


def sizes(column: array[int]) -> bytes:
    """The column of sizes of a SENT record."""
    if sys.byteorder == "big":  # pragma: no cover - no such machine here
        column.byteswap()
    return column.tobytes()


def head(content: Mapping[str, Any]) -> bytes:
    """The file's beginning."""
    said = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    begin = _HEAD.pack(MAGIC, VERSION, len(said))
    return b"".join((begin, _SUM.pack(zlib.crc32(begin)), said, _SUM.pack(zlib.crc32(said))))


def block(number: int, records: Sequence[bytes]) -> bytes:
    """A block of these records, the `number`th of its file, from 0."""
    content = b"".join(records)
    begin = _BLOCK.pack(len(content), zlib.crc32(content, number), 0)[:8]
    return b"".join((begin, _SUM.pack(zlib.crc32(begin, number)), content))


def blocks(number: int, records: Iterable[bytes]) -> Iterator[bytes]:
    """These records in blocks, the first of which is the `number`th."""
    held: list[bytes] = []
    size = 0
    for one in records:
        if held and size + len(one) > BLOCK_BYTES_MAX:
            yield block(number, held)
            number, held, size = number + 1, [], 0
        held.append(one)
        size += len(one)
    if held:
        yield block(number, held)


# --- Reading


@dataclass(frozen=True, slots=True)
class Raw:
    """A record as it stands in its file: the fixed fields, and what is behind them."""

    offset: int
    kind: int
    fields: tuple[int, ...]
    tail: bytes


def head_of(data: bytes) -> tuple[dict[str, Any], int] | None:
    """The head's content and its size; None: the file ends within it.

    Raises:
        FormatError: it is none.
    """
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise FormatError(0, "this is no ledger: it does not begin as one")
    at = _HEAD.size + _SUM.size
    if len(data) < at:
        return None
    _, version, size = _HEAD.unpack_from(data)
    if _SUM.unpack_from(data, _HEAD.size)[0] != zlib.crc32(data[: _HEAD.size]):
        raise FormatError(0, "the head is damaged")
    if version != VERSION:
        raise FormatError(len(MAGIC), f"it has version {version}, and only {VERSION} is known here")
    if size > HEAD_BYTES_MAX:
        raise FormatError(len(MAGIC), f"the head says that it has {size} bytes")
    end = at + size
    if len(data) < end + _SUM.size:
        return None
    said = data[at:end]
    if _SUM.unpack_from(data, end)[0] != zlib.crc32(said):
        raise FormatError(at, "the head is damaged")
    try:
        content = json.loads(said)
    except ValueError as error:
        raise FormatError(at, f"the head is no JSON: {error}") from None
    return content, end + _SUM.size


def block_size(begin: bytes, number: int, offset: int) -> int:
    """How long the content of a block is, by its first twelve bytes.

    Raises:
        FormatError: they are damaged.
    """
    size, _, sum_ = _BLOCK.unpack(begin)
    if sum_ != zlib.crc32(begin[:8], number):
        raise FormatError(offset, f"the beginning of block {number} is damaged")
    if size > BLOCK_BYTES_MAX:
        raise FormatError(offset, f"block {number} says that it has {size} bytes")
    return int(size)


#: Bytes of a block before its content.
BLOCK_BEGIN_BYTES: Final = _BLOCK.size


def records_of(begin: bytes, content: bytes, number: int, offset: int) -> Iterator[Raw]:
    """The records of a block that stands at `offset`.

    Raises:
        FormatError: it is damaged.
    """
    if _BLOCK.unpack(begin)[1] != zlib.crc32(content, number):
        raise FormatError(offset, f"block {number} is damaged")
    at = 0
    first = offset + BLOCK_BEGIN_BYTES
    while at < len(content):
        begun = at
        if at + _FRAME.size > len(content):
            raise FormatError(first + at, f"block {number} ends within a record")
        kind, size = _FRAME.unpack_from(content, at)
        at += _FRAME.size
        if at + size > len(content):
            raise FormatError(first + begun, f"a record reaches over the end of block {number}")
        layout = FIELDS.get(kind)
        if layout is not None:
            if size < layout.size:
                raise FormatError(first + begun, f"a record of kind {kind} is too short")
            fields = layout.unpack_from(content, at)
            yield Raw(first + begun, kind, fields, content[at + layout.size : at + size])
        at += size


def texts(raw: Raw, count: int) -> list[str]:
    """The texts behind a record's fields.

    Raises:
        FormatError: there are fewer.
    """
    found, at = [], 0
    for _ in range(count):
        if at + _TEXT.size > len(raw.tail):
            raise FormatError(raw.offset, f"a text is missing in a record of kind {raw.kind}")
        (size,) = _TEXT.unpack_from(raw.tail, at)
        at += _TEXT.size
        if at + size > len(raw.tail):
            raise FormatError(raw.offset, f"a text reaches over the end of a record of kind {raw.kind}")
        found.append(raw.tail[at : at + size].decode("utf-8", "replace"))
        at += size
    return found


def rows(raw: Raw, layout: struct.Struct, count: int) -> Iterator[tuple[int, ...]]:
    """The rows behind a record's fields.

    Raises:
        FormatError: there are not as many as it says.
    """
    if count * layout.size != len(raw.tail):
        raise FormatError(raw.offset, f"a record of kind {raw.kind} does not have the {count} rows that it says")
    return layout.iter_unpack(raw.tail)


def columns(raw: Raw, count: int) -> tuple[Sequence[int], list[bytes]]:
    """Sizes and checksums of a SENT record.

    Raises:
        FormatError: there are not as many as it says.
    """
    if count * (4 + _CHECKSUM_BYTES) != len(raw.tail):
        raise FormatError(raw.offset, f"a record does not have the {count} messages that it says")
    column = struct.unpack_from(f"<{count}I", raw.tail)
    sums = raw.tail[count * 4 :]
    return column, [sums[at : at + _CHECKSUM_BYTES] for at in range(0, len(sums), _CHECKSUM_BYTES)]
