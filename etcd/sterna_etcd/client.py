"""The client of etcd: reads, writes, transactions, leases and watches over several endpoints.

Used by brokers and by the operator. One endpoint is used as long as it answers; whoever cannot be connected to, does
not answer in time or has no leader is left for the next. Reads are repeated until the time is up. A write is repeated
only while it is certain that nothing of it was done; otherwise it ends in UnknownOutcomeError, and the caller reads
before trying again, or has made the write a transaction for which trying again is harmless.

All reads are linearizable: they see every write that was answered before they began, whichever member answers.

Left out: etcd's administration (members, users, alarms), nested transactions, locks and elections.
"""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import grpc

from sterna_etcd import values, wire
from sterna_etcd.credentials import unreadable
from sterna_etcd.endpoints import Endpoint, Endpoints, client_closed, closed, outliving_channel
from sterna_etcd.errors import CompactedError, EtcdError, UnavailableError, UnknownOutcomeError, Verdict
from sterna_etcd.errors import classified as _classified
from sterna_etcd.leases import Lease
from sterna_etcd.proto import etcd_pb2 as pb
from sterna_etcd.settings import EtcdSettings
from sterna_etcd.surroundings import monotonic_s, random_bits
from sterna_etcd.values import Condition, Got, KeyValue, Listed, Operation, Transacted
from sterna_etcd.watch import Verify, Watch
from sterna_etcd.wire import Method

PAGE = 500
"""How many keys one answer of a range has."""

# Between two rounds over all endpoints, when none of them could be had.
_ROUND_PAUSE_S = 0.1

# A member without a leader refuses at once, in place of waiting for one.
_LEADER = ("hasleader", "true")


class Etcd:
    """A client; also an async context manager. Its methods belong to the event loop that first used it."""

    def __init__(self, settings: EtcdSettings) -> None:
        self.settings = settings
        self._endpoints = Endpoints(settings)
        self._token: str | None = None
        self._authenticating = asyncio.Lock()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends all connections, and what is under way on them: that fails, and so does what is asked afterwards.

        Leases are not revoked: whoever has one ends it first.
        """
        self._is_closed = True
        await self._endpoints.close()

    # Reads

    async def get(self, key: str) -> Got:
        """One key.

        Raises:
            NotDoneError: etcd could not be asked.
        """
        response = await self.call(wire.RANGE, pb.RangeRequest(key=key.encode()))
        header = response.header
        found = values.key_value(response.kvs[0]) if response.kvs else None
        return Got(header.revision, header.cluster_id, found)

    async def list_all(self, prefix: str, *, page: int = PAGE, until: str = "") -> Listed:
        """All keys that begin with `prefix` (or, with `until`, from `prefix` on and before that key), at one revision.

        Raises:
            NotDoneError: etcd could not be asked.
        """
        while True:
            try:
                return await self._list(prefix, page, until)
            except CompactedError:
                # The revision of the first page was compacted before the last one was read: begin anew.
                continue

    async def _list(self, prefix: str, page: int, until: str) -> Listed:
        pairs: list[KeyValue] = []
        key, revision = prefix.encode(), 0
        end = until.encode() if until else values.prefix_end(prefix)
        while True:
            request = pb.RangeRequest(key=key, range_end=end, limit=page, revision=revision)
            response = await self.call(wire.RANGE, request)
            revision = revision or response.header.revision
            pairs += map(values.key_value, response.kvs)
            if not response.more:
                return Listed(revision, response.header.cluster_id, pairs)
            key = response.kvs[-1].key + b"\0"

    def watch(self, prefix: str, *, until: str = "", verify: Verify | None = None, idle_ms: int = 2_000) -> Watch:
        """Everything below `prefix` (or, with `until`, before that key), now and as it changes; see Watch."""
        return Watch(self, prefix, until, verify, idle_ms / 1000)

    # Writes

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        """Writes a key whatever it held; etcd's revision afterwards.

        Raises:
            NotDoneError: it is not written.
            UnknownOutcomeError: it may be.
        """
        response = await self.call(wire.PUT, pb.PutRequest(key=key.encode(), value=value, lease=lease))
        return int(response.header.revision)

    async def delete(self, key: str, *, is_prefix: bool = False) -> int:
        """Removes a key, or all that begin so; how many there were. Errors as put."""
        end = values.prefix_end(key) if is_prefix else b""
        response = await self.call(wire.DELETE_RANGE, pb.DeleteRangeRequest(key=key.encode(), range_end=end))
        return int(response.deleted)

    async def transact(
        self, conditions: Sequence[Condition], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> Transacted:
        """Does `then` if all conditions hold, `otherwise` if not; all of it or nothing. Errors as put."""
        request = pb.TxnRequest(
            compare=[condition.compare for condition in conditions],
            success=[values.request_operation(operation) for operation in then],
            failure=[values.request_operation(operation) for operation in otherwise],
        )
        reads_only = all(isinstance(operation, values.Get) for operation in (*then, *otherwise))
        return values.transacted(await self.call(wire.READ_TXN if reads_only else wire.TXN, request))

    async def compact(self, revision: int) -> None:
        """Forgets what was before `revision`. Errors as put."""
        await self.call(wire.COMPACT, pb.CompactionRequest(revision=revision))

    # Leases

    async def lease(self, ttl_s: int) -> Lease:
        """A lease that is kept alive until it is revoked or lost.

        Raises:
            NotDoneError: there is none.
        """
        # The number is ours, so that a repeated grant does not make a second lease.
        number = random_bits(62) | 1
        sent_s = monotonic_s()
        try:
            response = await self.call(wire.LEASE_GRANT, pb.LeaseGrantRequest(TTL=ttl_s, ID=number))
            granted_s = int(response.TTL)
        except EtcdError as error:
            if "lease already exists" not in str(error):
                raise
            granted_s = ttl_s
        return Lease(self, number, granted_s, sent_s)

    async def keep_alive(self, lease: int, attempt_s: float) -> int:
        """Renews a lease once; the seconds that it now lives, 0 when it has ended. An endpoint is given `attempt_s`.

        Raises:
            NotDoneError: etcd could not be asked.
        """
        response = await self.call(wire.LEASE_KEEP_ALIVE, pb.LeaseKeepAliveRequest(ID=lease), attempt_s)
        return int(response.TTL)

    async def revoke(self, lease: int) -> None:
        """Ends a lease, with every key that hangs on it.

        Raises:
            NotDoneError: etcd could not be asked, or it had ended before (LeaseNotFoundError).
        """
        await self.call(wire.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=lease))

    # The wire

    async def status(self) -> Any:
        """What the member that is used now says of itself (etcd's StatusResponse)."""
        return await self.call(wire.STATUS, pb.StatusRequest())

    async def call(self, method: Method, request: Any, attempt_s: float | None = None) -> Any:
        """One request, at as many endpoints as it takes; `attempt_s`, if given, bounds what each may take.

        Raises:
            NotDoneError: it was not done.
            UnknownOutcomeError: it may have been; not for reads.
        """
        deadline = monotonic_s() + self.settings.timeout_ms / 1000
        failures, renewed = 0, False
        while True:
            self._check_open()
            endpoint = self._endpoints.current
            try:
                latest = deadline if attempt_s is None else min(deadline, monotonic_s() + attempt_s)
                return await self._attempt(endpoint, method, request, latest)
            except grpc.aio.AioRpcError as error:
                verdict, failure = _classified(error)
                failure.__cause__ = error
            except UnavailableError as error:
                verdict, failure = Verdict.ELSEWHERE, error
            except UnknownOutcomeError as error:
                verdict, failure = Verdict.UNKNOWN, error
            if verdict is Verdict.FINAL:
                raise failure
            if verdict is Verdict.AUTHENTICATE:
                if renewed or self.settings.user is None:
                    raise failure
                renewed, self._token = True, None
                continue
            self._endpoints.leave(endpoint)
            if verdict is Verdict.UNKNOWN and not method.is_read:
                raise failure
            failures += 1
            left_s = deadline - monotonic_s()
            if left_s <= _ROUND_PAUSE_S:
                raise _not_had(failure) from failure
            if failures % len(self._endpoints) == 0:
                await asyncio.sleep(_ROUND_PAUSE_S)

    async def _attempt(self, endpoint: Endpoint, method: Method, request: Any, deadline: float) -> Any:
        left_s = max(deadline - monotonic_s(), 0.01)
        channel = await endpoint.ready(min(left_s, self.settings.connect_timeout_ms / 1000))
        ended = UnknownOutcomeError(f"etcd: the connection to {endpoint.url} was closed (it may have been done)")
        try:
            with outliving_channel(ended):
                return await self._asked(channel, method, request, deadline)
        except grpc.aio.UsageError as error:
            raise closed(endpoint.url) from error

    async def _asked(self, channel: grpc.aio.Channel, method: Method, request: Any, deadline: float) -> Any:
        metadata = [*await self.metadata(channel), _LEADER] if method is not wire.STATUS else []
        timeout_s = min(max(deadline - monotonic_s(), 0.01), self.settings.attempt_timeout_ms / 1000)
        if method is wire.LEASE_KEEP_ALIVE:
            return await _first_answer(channel, method, request, timeout_s, metadata)
        call = channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        return await call(request, timeout=timeout_s, metadata=metadata)

    def _check_open(self) -> None:
        """Raises UnavailableError once we are closed: a channel that is made now would never be ended."""
        if self._is_closed:
            raise client_closed()

    async def open_watch(self) -> tuple[Endpoint, Any]:
        """A watch stream at the endpoint that is used now; for Watch.

        Raises:
            NotDoneError: it cannot be had there; the next call tries another endpoint.
        """
        self._check_open()
        endpoint = self._endpoints.current
        try:
            channel = await endpoint.ready(self.settings.connect_timeout_ms / 1000)
            metadata = [*await self.metadata(channel), _LEADER]
            call = channel.stream_stream(
                wire.WATCH.path,
                request_serializer=pb.WatchRequest.SerializeToString,
                response_deserializer=pb.WatchResponse.FromString,
            )
            return endpoint, call(metadata=metadata)
        except grpc.aio.UsageError as error:
            raise closed(endpoint.url) from error
        except (UnavailableError, grpc.aio.AioRpcError) as error:
            self._endpoints.leave(endpoint)
            raise _not_had(error) from error

    def leave(self, endpoint: Endpoint) -> None:
        """Goes on to the next endpoint; for Watch."""
        self._endpoints.leave(endpoint)

    def leave_current(self) -> None:
        """Goes on to the next endpoint, from whichever is used now; for Watch."""
        self._endpoints.leave(self._endpoints.current)

    def forget_token(self) -> None:
        """Has the next request authenticate anew; for Watch."""
        self._token = None

    async def metadata(self, channel: grpc.aio.Channel) -> list[tuple[str, str]]:
        """What says who we are; authenticates first if need be."""
        if self.settings.user is None:
            return []
        async with self._authenticating:
            if self._token is None:
                self._token = await self._authenticate(channel)
        return [("token", self._token)] if self._token else []

    async def _authenticate(self, channel: grpc.aio.Channel) -> str:
        try:
            password = await asyncio.to_thread(self.settings.current_password)
        except OSError as error:
            raise unreadable(error) from error
        method = wire.AUTHENTICATE
        call = channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        request = pb.AuthenticateRequest(name=self.settings.user, password=password)
        try:
            with outliving_channel(UnavailableError("etcd: the connection was closed before it knew who asks")):
                response = await call(request, timeout=self.settings.attempt_timeout_ms / 1000)
        except grpc.aio.AioRpcError as error:
            if "authentication is not enabled" in (error.details() or ""):
                # As etcd's own client: a user that etcd does not ask for does no harm.
                return ""
            verdict, failure = _classified(error)
            if verdict is Verdict.FINAL:
                raise failure from error
            # Whether a token was made does not matter: what it was wanted for has not been sent.
            raise UnavailableError(str(failure)) from error
        return str(response.token)


async def _first_answer(
    channel: grpc.aio.Channel, method: Method, request: Any, timeout_s: float, metadata: list[tuple[str, str]]
) -> Any:
    """One question and its answer over a method that is a stream."""
    opened = channel.stream_stream(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )
    call = opened(iter((request,)), timeout=timeout_s, metadata=metadata)
    try:
        async for response in call:
            return response
    finally:
        call.cancel()
    raise UnavailableError(f"etcd: no answer to {method.path}")


def _not_had(error: Exception) -> EtcdError:
    """The error of a read that no endpoint answered."""
    if isinstance(error, UnknownOutcomeError | grpc.aio.AioRpcError):
        words = (error.details() or "") if isinstance(error, grpc.aio.AioRpcError) else str(error)
        return UnavailableError(f"etcd did not answer: {words.removesuffix(' (it may have been done)')}")
    return error if isinstance(error, EtcdError) else UnavailableError(str(error))
