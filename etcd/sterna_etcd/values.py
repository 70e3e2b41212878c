"""What goes into etcd and what comes out, in plain words: no protobuf beyond this point."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sterna_etcd.proto import etcd_pb2 as pb


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key as it stands at some revision."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


@dataclass(frozen=True)
class Listed:
    """All keys of a range, as they were at one revision."""

    revision: int
    cluster_id: int
    values: list[KeyValue]


@dataclass(frozen=True)
class Got:
    """One key, and etcd's revision when it was asked for; `found` None: there is no such key."""

    revision: int
    cluster_id: int
    found: KeyValue | None


@dataclass(frozen=True)
class Put:
    """Writes a key, under a lease if one is given."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True)
class Delete:
    """Removes a key, or with `is_prefix` all keys that begin so."""

    key: str
    is_prefix: bool = False


@dataclass(frozen=True)
class Get:
    """Reads a key within a transaction."""

    key: str


Operation = Put | Delete | Get


@dataclass(frozen=True)
class Condition:
    """One comparison of a transaction; made by the functions below."""

    compare: Any


@dataclass(frozen=True)
class Transacted:
    """A transaction's outcome: whether its conditions held, and what each operation of that branch yielded.

    `results` has for Get the KeyValue or None, for Delete how many keys went, for Put None.
    """

    succeeded: bool
    revision: int
    results: list[KeyValue | int | None]


def absent(key: str) -> Condition:
    """The key does not exist."""
    return mod_revision(key, 0)


def mod_revision(key: str, revision: int) -> Condition:
    """The key was last written at this revision; 0: it does not exist."""
    return Condition(
        pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.MOD, key=key.encode(), mod_revision=revision)
    )


def create_revision(key: str, revision: int) -> Condition:
    """The key came into being at this revision, whatever was written to it since."""
    return Condition(
        pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.CREATE, key=key.encode(), create_revision=revision)
    )


def unchanged_since(prefix: str, revision: int) -> Condition:
    """No key that begins so was written after this revision, nor came into being."""
    return Condition(
        pb.Compare(
            result=pb.Compare.LESS,
            target=pb.Compare.MOD,
            key=prefix.encode(),
            range_end=prefix_end(prefix),
            mod_revision=revision + 1,
        )
    )


def equals(key: str, value: bytes) -> Condition:
    """The key holds exactly this; false, too, when it does not exist."""
    return Condition(pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.VALUE, key=key.encode(), value=value))


def prefix_end(prefix: str) -> bytes:
    """The first key after all those that begin with `prefix`; etcd's word for "to the end" where there is none."""
    raw = prefix.encode()
    for index in range(len(raw) - 1, -1, -1):
        if raw[index] < 0xFF:
            return raw[:index] + bytes([raw[index] + 1])
    return b"\0"


def key_value(pair: Any) -> KeyValue:
    """From etcd's message."""
    return KeyValue(
        pair.key.decode("utf-8", "backslashreplace"),
        pair.value,
        pair.create_revision,
        pair.mod_revision,
        pair.version,
        pair.lease,
    )


def request_operation(operation: Operation) -> Any:
    """As etcd's message."""
    key = operation.key.encode()
    if isinstance(operation, Put):
        return pb.RequestOp(request_put=pb.PutRequest(key=key, value=operation.value, lease=operation.lease))
    if isinstance(operation, Get):
        return pb.RequestOp(request_range=pb.RangeRequest(key=key))
    end = prefix_end(operation.key) if operation.is_prefix else b""
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key, range_end=end))


def transacted(response: Any) -> Transacted:
    """From etcd's message."""
    return Transacted(response.succeeded, response.header.revision, _results(response.responses))


def _results(responses: Sequence[Any]) -> list[KeyValue | int | None]:
    results: list[KeyValue | int | None] = []
    for one in responses:
        match one.WhichOneof("response"):
            case "response_range":
                pairs = one.response_range.kvs
                results.append(key_value(pairs[0]) if pairs else None)
            case "response_delete_range":
                results.append(one.response_delete_range.deleted)
            case _:
                results.append(None)
    return results
