"""etcd's store as a model: keys with all their versions since the last compaction, and leases. Nothing here waits.

What it does and how it refuses is etcd's, as far as Sterna uses it; `etcd_cases` shows it on this and on a real one.
"""

from __future__ import annotations

import bisect
import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from sterna_etcd.proto import etcd_pb2 as pb

_OPERATIONS_MAX: Final = 128
_REQUEST_BYTES_MAX: Final = 1_572_864
_MESSAGE_BYTES_MAX: Final = _REQUEST_BYTES_MAX + 512 * 1024
_LEASE_S_MIN: Final = 2
_END: Final = b"\0"


class Refused(Exception):  # noqa: N818 - it is no error of the model, but etcd's answer
    """etcd's answer to what it does not do."""

    def __init__(self, code: grpc.StatusCode, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


_INVALID = grpc.StatusCode.INVALID_ARGUMENT
_RANGE = grpc.StatusCode.OUT_OF_RANGE
COMPACTED = "etcdserver: mvcc: required revision has been compacted"


@dataclass
class _Lease:
    ttl_s: int
    ends_s: float
    keys: dict[bytes, None] = field(default_factory=dict)


class Store:
    """See the module. What it has is on disk: it outlives its servers, and can be copied and put back."""

    def __init__(self, cluster_id: int = 1) -> None:
        self.cluster_id = cluster_id
        self.revision = 1
        self.compacted = -1
        self.leases: dict[int, _Lease] = {}
        self._versions: dict[bytes, list[Any]] = {}
        """By key: every version, the last one last; one of version 0 says that the key was removed."""

        self._keys: list[bytes] = []
        self._events: list[Any] = []
        """All changes since the compaction, in their order."""

    def copied(self) -> Store:
        """A copy of the data, as a backup is one."""
        return copy.deepcopy(self)

    def became(self, other: Store) -> None:
        """Is what a copy was, from now on."""
        self.__dict__.update(copy.deepcopy(other).__dict__)

    # --- Reading

    def header(self) -> Any:
        """What each answer begins with."""
        return pb.ResponseHeader(cluster_id=self.cluster_id, member_id=1, revision=self.revision, raft_term=2)

    def range(self, request: Any) -> Any:
        """Of the KV service."""
        if not request.key:
            raise Refused(_INVALID, "etcdserver: key is not provided")
        if request.revision > self.revision:
            raise Refused(_RANGE, "etcdserver: mvcc: required revision is a future revision")
        if 0 < request.revision < self.compacted:
            raise Refused(_RANGE, COMPACTED)
        found = self._at(request.key, request.range_end, request.revision or self.revision)
        answer = pb.RangeResponse(header=self.header(), count=len(found))
        if request.count_only:
            return answer
        if request.limit and len(found) > request.limit:
            found, answer.more = found[: request.limit], True
        for one in found:
            pair = answer.kvs.add()
            pair.CopyFrom(one)
            if request.keys_only:
                pair.value = b""
        return answer

    def _within(self, key: bytes, end: bytes) -> list[bytes]:
        if not end:
            return [key] if key in self._versions else []
        first = bisect.bisect_left(self._keys, key)
        last = len(self._keys) if end == _END else bisect.bisect_left(self._keys, end)
        return self._keys[first:last]

    def _at(self, key: bytes, end: bytes, revision: int) -> list[Any]:
        found = []
        for one in self._within(key, end):
            version = next((two for two in reversed(self._versions[one]) if two.mod_revision <= revision), None)
            if version is not None and version.version:
                found.append(version)
        return found

    def _now(self, key: bytes) -> Any:
        """A key's present version; None: there is none."""
        versions = self._versions.get(key)
        return versions[-1] if versions and versions[-1].version else None

    # --- Writing

    def put(self, request: Any) -> Any:
        """Of the KV service."""
        self._check_put(request)
        self._put(request, self.revision + 1)
        self.revision += 1
        return pb.PutResponse(header=self.header())

    def delete_range(self, request: Any) -> Any:
        """Of the KV service."""
        if not request.key:
            raise Refused(_INVALID, "etcdserver: key is not provided")
        count = self._delete(request, self.revision + 1)
        self.revision += bool(count)
        return pb.DeleteRangeResponse(header=self.header(), deleted=count)

    def _check_put(self, request: Any) -> None:
        if not request.key:
            raise Refused(_INVALID, "etcdserver: key is not provided")
        check_size(request)
        if request.lease and request.lease not in self.leases:
            raise Refused(grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found")

    def _put(self, request: Any, revision: int) -> None:
        before = self._now(request.key)
        pair = pb.KeyValue(
            key=request.key,
            value=request.value,
            lease=request.lease,
            create_revision=before.create_revision if before is not None else revision,
            mod_revision=revision,
            version=(before.version if before is not None else 0) + 1,
        )
        if before is not None and before.lease in self.leases:
            self.leases[before.lease].keys.pop(request.key, None)
        if request.lease:
            self.leases[request.lease].keys[request.key] = None
        self._write(pair, pb.Event.PUT)

    def _delete(self, request: Any, revision: int) -> int:
        found = [key for key in self._within(request.key, request.range_end) if self._now(key) is not None]
        for key in found:
            lease = self._now(key).lease
            if lease in self.leases:
                self.leases[lease].keys.pop(key, None)
            self._write(pb.KeyValue(key=key, mod_revision=revision), pb.Event.DELETE)
        return len(found)

    def _write(self, pair: Any, kind: Any) -> None:
        if pair.key not in self._versions:
            bisect.insort(self._keys, pair.key)
        self._versions.setdefault(pair.key, []).append(pair)
        self._events.append(pb.Event(type=kind, kv=pair))

    # --- Transactions

    def transact(self, request: Any) -> Any:
        """Of the KV service."""
        if max(map(len, (request.compare, request.success, request.failure))) > _OPERATIONS_MAX:
            raise Refused(_INVALID, "etcdserver: too many operations in txn request")
        for branch in (request.success, request.failure):
            _check_branch(branch)
        check_size(request)
        succeeded = all(self._holds(one) for one in request.compare)
        branch = request.success if succeeded else request.failure
        for one in branch:
            if one.WhichOneof("request") == "request_put":
                self._check_put(one.request_put)
        revision, answers, has_written = self.revision + 1, [], False
        for one in branch:
            match one.WhichOneof("request"):
                case "request_put":
                    self._put(one.request_put, revision)
                    has_written = True
                    answers.append(pb.ResponseOp(response_put=pb.PutResponse()))
                case "request_delete_range":
                    count = self._delete(one.request_delete_range, revision)
                    has_written = has_written or count > 0
                    answers.append(pb.ResponseOp(response_delete_range=pb.DeleteRangeResponse(deleted=count)))
                case _:
                    answers.append(pb.ResponseOp(response_range=self._range_within(one.request_range, revision)))
        self.revision += has_written
        return pb.TxnResponse(header=self.header(), succeeded=succeeded, responses=answers)

    def _range_within(self, request: Any, revision: int) -> Any:
        """A read in a transaction: it sees what was written before it there."""
        found = self._at(request.key, request.range_end, request.revision or revision)
        return pb.RangeResponse(header=self.header(), kvs=found, count=len(found))

    def _holds(self, compare: Any) -> bool:
        if compare.range_end:
            found = self._at(compare.key, compare.range_end, self.revision)
            return all(_compared(compare, one) for one in found)
        return _compared(compare, self._now(compare.key))

    def compact(self, request: Any) -> Any:
        """Of the KV service."""
        if request.revision <= self.compacted:
            raise Refused(_RANGE, COMPACTED)
        if request.revision > self.revision:
            raise Refused(_RANGE, "etcdserver: mvcc: required revision is a future revision")
        self.compacted = request.revision
        for key, versions in list(self._versions.items()):
            older = [one for one in versions if one.mod_revision <= self.compacted]
            kept = versions[len(older) - bool(older and older[-1].version) :]
            if kept:
                self._versions[key] = kept
            else:
                del self._versions[key]
        self._keys = sorted(self._versions)
        # Of what was just compacted there is still what the last version of each key says.
        there = {(one.key, one.mod_revision) for versions in self._versions.values() for one in versions}
        self._events = [one for one in self._events if (one.kv.key, one.kv.mod_revision) in there]
        return pb.CompactionResponse(header=self.header())

    # --- Watching

    def events(self, key: bytes, end: bytes, first: int) -> list[Any]:
        """What has changed in a range from a revision on, in its order."""
        begin = bisect.bisect_left(self._events, first, key=lambda one: one.kv.mod_revision)
        return [one for one in self._events[begin:] if _is_within(one.kv.key, key, end)]

    # --- Leases

    def grant(self, request: Any, now_s: float) -> Any:
        """Of the Lease service."""
        if request.ID in self.leases:
            raise Refused(grpc.StatusCode.FAILED_PRECONDITION, "etcdserver: lease already exists")
        ttl_s = max(request.TTL, _LEASE_S_MIN)
        self.leases[request.ID] = _Lease(ttl_s, now_s + ttl_s)
        return pb.LeaseGrantResponse(header=self.header(), ID=request.ID, TTL=ttl_s)

    def keep_alive(self, request: Any, now_s: float) -> Any:
        """Of the Lease service: one question and its answer."""
        lease = self.leases.get(request.ID)
        if lease is not None:
            lease.ends_s = now_s + lease.ttl_s
        ttl_s = lease.ttl_s if lease is not None else 0
        return pb.LeaseKeepAliveResponse(header=self.header(), ID=request.ID, TTL=ttl_s)

    def revoke(self, request: Any) -> Any:
        """Of the Lease service."""
        lease = self.leases.get(request.ID)
        if lease is None:
            raise Refused(grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found")
        # All its keys go at one revision.
        revision = self.revision + 1
        keys = sorted(lease.keys)
        for key in keys:
            self._delete(pb.DeleteRangeRequest(key=key), revision)
        del self.leases[request.ID]
        self.revision += bool(keys)
        return pb.LeaseRevokeResponse(header=self.header())

    def expire(self, now_s: float) -> None:
        """Ends the leases whose time is up."""
        for number in [number for number, lease in self.leases.items() if lease.ends_s <= now_s]:
            self.revoke(pb.LeaseRevokeRequest(ID=number))

    def promoted(self, now_s: float) -> None:
        """A new leader gives each lease all of its time again, and a little more."""
        for lease in self.leases.values():
            lease.ends_s = now_s + lease.ttl_s + 1.0


def check_size(request: Any) -> None:
    """Refuses what etcd takes for too large.

    Raises:
        Refused: it is.
    """
    size = request.ByteSize()
    if size > _MESSAGE_BYTES_MAX:
        words = f"grpc: received message larger than max ({size} vs. {_MESSAGE_BYTES_MAX})"
        raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, words)
    if size > _REQUEST_BYTES_MAX:
        raise Refused(_INVALID, "etcdserver: request is too large")


def _check_branch(branch: Iterable[Any]) -> None:
    """No key is written twice in a branch, nor written and removed."""
    puts: dict[bytes, None] = {}
    for one in branch:
        if one.WhichOneof("request") == "request_put":
            if one.request_put.key in puts:
                raise Refused(_INVALID, "etcdserver: duplicate key given in txn request")
            puts[one.request_put.key] = None
    for one in branch:
        removed = one.request_delete_range if one.WhichOneof("request") == "request_delete_range" else None
        if removed is not None and any(_is_within(key, removed.key, removed.range_end) for key in puts):
            raise Refused(_INVALID, "etcdserver: duplicate key given in txn request")


def _is_within(key: bytes, first: bytes, end: bytes) -> bool:
    if not end:
        return key == first
    return first <= key and (end == _END or key < end)


def _compared(compare: Any, pair: Any) -> bool:
    target = compare.target
    if target == pb.Compare.VALUE:
        if pair is None:
            return False  # a value that is not there is unlike any
        return _decided(compare.result, pair.value, compare.value)
    now = pair if pair is not None else pb.KeyValue()
    match target:
        case pb.Compare.VERSION:
            return _decided(compare.result, now.version, compare.version)
        case pb.Compare.CREATE:
            return _decided(compare.result, now.create_revision, compare.create_revision)
        case pb.Compare.MOD:
            return _decided(compare.result, now.mod_revision, compare.mod_revision)
        case _:
            return _decided(compare.result, now.lease, compare.lease)


def _decided(result: Any, one: Any, other: Any) -> bool:
    match result:
        case pb.Compare.EQUAL:
            return bool(one == other)
        case pb.Compare.GREATER:
            return bool(one > other)
        case pb.Compare.LESS:
            return bool(one < other)
        case _:
            return bool(one != other)
