"""What an exporter does with values that may name a person or an application: principals and client ids.

They are kept as keyed hashes (the default: equal values stay equal, so that audits join and count them, and nobody
without the key finds out which they are), as they are, or not at all. Bodies and properties of messages are in no table
of this version of the schema. `schema` says which columns are meant.
"""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from sterna_audit.columns import Column
from sterna_audit.schema import Table

Principals = Literal["hashed", "plain", "none"]

#: Of a text that another column explains: the values of that column for which it is personal.
PERSONAL = frozenset({"actor", "user", "client id"})

_HASH_BYTES = 16
_KEY_BYTES_MIN = 16
_KEY_BYTES_MAX = 4_096


class PrivacyError(ValueError):
    """The choice cannot be carried out: no key, or one that is of no use."""


@dataclass(frozen=True)
class Privacy:
    """The choice.

    Args:
        principals: `hashed` (HMAC-SHA256, the first 128 bits, in hexadecimal digits), `plain`, or `none`: missing where
            the table allows that, else empty.
        key: for `hashed`; at least 16 bytes. It is in no file and no message, only its first 64 bits of sha256 are, by
            which a reader sees that two snapshots were made with the same.
    """

    principals: Principals = "hashed"
    key: bytes | None = None

    def __post_init__(self) -> None:
        if self.principals not in ("hashed", "plain", "none"):
            raise PrivacyError(f"principals are kept hashed, plain or none, not {self.principals!r}")
        if self.principals == "hashed" and self.key is None:
            raise PrivacyError("principals are kept as keyed hashes, and there is no key for them")
        if self.key is not None and not _KEY_BYTES_MIN <= len(self.key) <= _KEY_BYTES_MAX:
            raise PrivacyError(
                f"the key of hashes has {len(self.key)} bytes, from {_KEY_BYTES_MIN} to {_KEY_BYTES_MAX}"
            )

    @property
    def options(self) -> dict[str, Any]:
        """As the manifest says it."""
        said: dict[str, Any] = {"bodies": "none", "principals": self.principals, "properties": "none"}
        if self.principals == "hashed" and self.key is not None:
            said["principals_key"] = hashlib.sha256(b"sterna principals\0" + self.key).hexdigest()[:16]
        return said

    def applied(self, table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as it may be written."""
        if self.principals == "plain":
            return batch
        for number, column in enumerate(table.columns):
            if column.person is not False:
                changed = self._changed(column, batch)
                batch = batch.set_column(number, table.schema.field(number), changed)
        return batch

    def _changed(self, column: Column, batch: pa.RecordBatch) -> "pa.Array[Any]":
        values = batch.column(column.name).to_pylist()
        explained = batch.column(column.person).to_pylist() if isinstance(column.person, str) else None
        become = self._become(column)
        return pa.array(
            [
                value if explained is not None and explained[row] not in PERSONAL else become(value)
                for row, value in enumerate(values)
            ],
            pa.string(),
        )

    def _become(self, column: Column) -> Callable[[str | None], str | None]:
        if self.principals == "none":
            return lambda _: None if column.is_nullable else ""
        return self.hashed

    def hashed(self, value: str | None) -> str | None:
        """A value's keyed hash; what is empty or missing names nobody and stays."""
        if not value or self.key is None:
            return value
        return hmac.new(self.key, value.encode(), hashlib.sha256).digest()[:_HASH_BYTES].hex()


def chosen(principals: Principals, key: Path | None) -> Privacy:
    """A choice whose key is in a file.

    Args:
        principals: as in `Privacy`.
        key: the key's file, for `hashed` alone.

    Raises:
        PrivacyError: the key cannot be read or is none, or it is missing, or nobody needs it.
    """
    if principals == "hashed":
        return Privacy("hashed", None if key is None else read_key(key))
    if key is not None:
        raise PrivacyError(f"a key is for hashes, and principals are kept {principals}")
    return Privacy(principals)


def read_key(path: Path) -> bytes:
    """The key of hashes from a file, whose bytes it is, but for a line's end.

    Raises:
        PrivacyError: the file cannot be read, or what is in it is no key.
    """
    try:
        with path.open("rb") as file:
            key = file.read(_KEY_BYTES_MAX + 2).rstrip(b"\r\n")
    except OSError as error:
        raise PrivacyError(f"the key of hashes cannot be read: {path}: {error.strerror}") from error
    Privacy("hashed", key)
    return key
