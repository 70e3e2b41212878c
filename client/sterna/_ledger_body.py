"""A message's body as its checksum sees it, out of the encoded message; used by `_ledger` alone.

The checksum is XXH3-128 with seed 0 over the body as it stands on the wire: a text's UTF-8, the bytes, the encoded
submessage of a map, stream, object or foreign body, the assembled bytes of an uploaded one, nothing where there is
none.
What is deflated is taken as it is, deflated.
"""

from __future__ import annotations

from typing import Final

_BODIES: Final = frozenset((9, 10, 11, 12, 13, 15))
_UPLOADED: Final = 14
_VARINT, _FIXED64, _DELIMITED = 0, 1, 2


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def body_of(message: bytes) -> bytes | int:
    """The body of an encoded Message, or the number of the upload that has it. The SDK's own encoder wrote it."""
    at, size = 0, len(message)
    found: bytes | int = b""
    while at < size:
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == _DELIMITED:
            length, at = _varint(message, at)
            if number in _BODIES:
                found = message[at : at + length]
            elif number == _UPLOADED:
                # Its first field is the number: a tag, and eight bytes.
                found = int.from_bytes(message[at + 1 : at + 9], "little")
            at += length
        elif wire == _VARINT:
            _, at = _varint(message, at)
        else:
            at += 8 if wire == _FIXED64 else 4
    return found
