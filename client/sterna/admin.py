"""Administration: everything that the admin service of a broker can do, as an asynchronous client.

    async with sterna.admin.connect("sterna://127.0.0.1:7222") as admin:
        for queue in await admin.resources("Queue"):
            print(queue.name, queue.home or queue.statistics.messages)

The command line uses nothing else, and whoever manages brokers from Python may. It is separate from `sterna.connect`:
administration is single calls without a session. Errors are those of `sterna.errors`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sterna._channels import closing, dialled, refusal
from sterna._pauses import HOPS_MAX, pause_s
from sterna._secrets import Secret, authorization, reveal
from sterna.cuts import Cut, HeldCut
from sterna.destinations import Queue
from sterna.errors import (
    ClosedError,
    MovedError,
    NotAllowedError,
    SternaError,
    UnreachableError,
)
from sterna.inventory import Applied, BrokerStatistics, ConnectionInfo, Resource, values
from sterna.targets import Given, Target, resolve
from sterna.tls import Tls
from sterna.urls import named_address

if TYPE_CHECKING:
    import grpc

    from sterna.messages import Message

__all__ = ["Admin", "connect"]

_PAGE = 1_000
# Resources carry their manifests, and pages of them are larger than grpc's default of 4 MiB.
_ANSWER_BYTES = 64 * 1024 * 1024


def connect(
    url: str | None = None,
    *,
    user: str = "",
    password: Secret = "",
    token: Secret = "",
    tls: Tls | None = None,
    timeout: float = 30.0,
) -> Admin:
    """An admin client for the broker at `url`, to be used with `async with`.

    Args:
        url: as for `sterna.connect`, with the same meaning of none; the first address that answers is used.
        user: who asks, with `password` or `token`, as for `sterna.connect`.
        password: asked for at each call, if it is a function.
        token: the same.
        tls: for `sternas://`.
        timeout: how long a call may take, in seconds; browsing may take longer.
    """
    return Admin(resolve(url, Given(user=user, password=password, token=token), tls=tls), token=token, timeout=timeout)


class Admin:
    """The admin service of one broker. Made by `connect`; every method is one call, or one page after another."""

    def __init__(self, target: Target, *, token: Secret = "", timeout: float = 30.0) -> None:
        self._target = target
        self._token = token
        self._timeout = timeout
        self._channel: grpc.aio.Channel | None = None
        self._address = ""
        self._stub: Any = None
        self._others: dict[tuple[str, ...], Admin] = {}
        self._is_closed = False

    async def __aenter__(self) -> Admin:
        """Connect to the first address that answers.

        Raises:
            UnreachableError: none does, within the timeout; TlsError where TLS is the reason.
        """
        from sterna._proto.sterna.v1 import admin_pb2_grpc

        options = [
            ("grpc.max_receive_message_length", _ANSWER_BYTES),
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
            # Whoever reads a cut may wait long for a piece: not for a broker that vanished without a word.
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 20_000),
        ]
        failure: SternaError = UnreachableError("no address was tried")
        for address in self._target.addresses:
            try:
                channel = await dialled(address, self._target.tls, options, self._timeout)
            except UnreachableError as error:
                failure = error
                continue
            self._channel, self._address = channel, address
            self._stub = admin_pb2_grpc.AdminStub(channel)
            self._is_closed = False
            return self
        raise failure

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the channel, and those to other brokers."""
        self._is_closed = True
        channels = [one._channel for one in (self, *self._others.values()) if one._channel is not None]
        self._channel = None
        self._others.clear()
        if channels:
            # All at once: whoever waits for it may be cancelled.
            await asyncio.wait([closing(channel) for channel in channels])

    async def resources(
        self, kind: str, pattern: str = "", *, temporaries: bool = False, system: bool = False
    ) -> list[Resource]:
        """All resources of a kind that the broker knows, by name.

        Of what lives on another broker of a cluster it knows the manifest and the `home`, and not what it holds, which
        `resource` asks there. What clients made on others is not listed.

        Args:
            kind: "Queue", "Topic", "Bridge", "DurableSubscription", "Store", "ConnectionFactory" or "Broker".
            pattern: only names that it matches (`*` one element, `>` all that follow); empty: all.
            temporaries: temporary destinations, too.
            system: destinations of the broker itself (`$sys.`), too.
        """
        from sterna._proto.sterna.v1 import admin_pb2

        found: list[Resource] = []
        token = ""
        while True:
            request = admin_pb2.ListRequest(
                kind=kind, pattern=pattern, page_size=_PAGE, page_token=token, temporaries=temporaries, system=system
            )
            answer = await self._call("List", request)
            found.extend(Resource.read(one) for one in answer.resources)
            token = answer.next_page_token
            if not token:
                return found

    async def resource(self, kind: str, name: str) -> Resource:
        """One resource; in a cluster, queues, topics and durable subscriptions are asked for where they live.

        Raises:
            NoSuchDestinationError, NoSuchSubscriptionError: there is none of this name.
            UnreachableError: the broker on which it lives cannot be reached.
        """
        from sterna._proto.sterna.v1 import admin_pb2

        return Resource.read(await self._call("Get", admin_pb2.GetRequest(kind=kind, name=name)))

    async def apply(
        self,
        manifests: str | Mapping[str, str],
        *,
        dry_run: bool = False,
        source: str = "",
        create_only: bool = False,
    ) -> list[Applied]:
        """Make the resources so that these manifests (YAML documents, or JSON) describe them.

        Args:
            manifests: the text; or several, each by what errors name besides the line, such as its file. All are
                judged and applied together.
            dry_run: say what would change, change nothing.
            source: what errors name besides the line: the file.
            create_only: refuse what is there already, unless it is as described.
        """
        from sterna._proto.sterna.v1 import admin_pb2

        texts = [(source, manifests)] if isinstance(manifests, str) else list(manifests.items())
        request = admin_pb2.ApplyRequest(dry_run=dry_run, create_only=create_only)
        if texts:
            request.source, request.manifests = texts[0]
        request.files.extend(admin_pb2.ManifestFile(source=name, manifests=text) for name, text in texts[1:])
        answer = await self._call("Apply", request)
        return [Applied.read(one) for one in answer.applied]

    async def delete(self, kind: str, name: str, *, with_messages: bool = False) -> int:
        """Delete a resource; returns how many messages went with it.

        A topic's are those that durable subscriptions to exactly it hold; the subscriptions stay.

        Raises:
            InUseError: it holds messages and `with_messages` was not given, or is in use otherwise.
        """
        from sterna._proto.sterna.v1 import admin_pb2

        request = admin_pb2.DeleteRequest(kind=kind, name=name, with_messages=with_messages)
        answer = await self._call("Delete", request)
        return int(answer.messages)

    async def purge_queue(self, name: str) -> int:
        """Drop all messages of a queue; returns how many (EMS-DEST-B14).

        `$sys.delayed.q.` before a queue's name: what is delayed of it (EMS-DEST-A63).
        """
        from sterna._proto.sterna.v1 import admin_pb2

        return int((await self._call("Purge", admin_pb2.PurgeRequest(queue=name))).messages)

    async def purge_topic(self, name: str) -> int:
        """Drop what all subscriptions to this topic, or to this very pattern, hold; returns how many (EMS-DEST-B15).

        `$sys.delayed.t.` before a topic's name: what is delayed of it, wherever it waits (EMS-DEST-A63).
        """
        from sterna._proto.sterna.v1 import admin_pb2

        return int((await self._call("Purge", admin_pb2.PurgeRequest(topic=name))).messages)

    async def purge_durable(self, name: str, *, client_id: str = "") -> int:
        """Drop all messages of a durable subscription; returns how many (EMS-DEST-B17)."""
        from sterna._proto.sterna.v1 import admin_pb2

        request = admin_pb2.PurgeRequest(durable=admin_pb2.DurableName(client_id=client_id, name=name))
        return int((await self._call("Purge", request)).messages)

    async def browse_queue(
        self, name: str, *, selector: str = "", limit: int = 100, after_sequence: int = 0, body_bytes: int = 0
    ) -> AsyncIterator[Message]:
        """Look at a queue's messages without taking them, oldest first.

        Args:
            name: the queue's.
            selector: only messages that match; empty: all.
            limit: at most so many, up to 100,000.
            after_sequence: only those with a higher sequence number, to go on from an earlier look.
            body_bytes: only the first so many bytes of each body; 0: whole.
        """
        async for message in self._browse(name, selector, limit, after_sequence, body_bytes, queue=name):
            yield message

    async def browse_durable(
        self,
        name: str,
        *,
        client_id: str = "",
        selector: str = "",
        limit: int = 100,
        after_sequence: int = 0,
        body_bytes: int = 0,
    ) -> AsyncIterator[Message]:
        """Look at what a durable subscription holds; arguments as for `browse_queue`."""
        from sterna._proto.sterna.v1 import admin_pb2

        durable = admin_pb2.DurableName(client_id=client_id, name=name)
        async for message in self._browse(name, selector, limit, after_sequence, body_bytes, durable=durable):
            yield message

    async def statistics(self) -> BrokerStatistics:
        """What the broker as a whole is and does."""
        from sterna._proto.sterna.v1 import admin_pb2

        return BrokerStatistics.read(await self._call("GetStatistics", admin_pb2.StatisticsRequest()))

    async def connections(self) -> list[ConnectionInfo]:
        """All connections of clients."""
        from sterna._proto.sterna.v1 import admin_pb2

        answer = await self._call("ListConnections", admin_pb2.ListConnectionsRequest())
        return [values(ConnectionInfo, one) for one in answer.connections]

    async def close_connection(self, connection_id: int, *, reason: str = "") -> None:
        """Close a client's connection as if it were broken; `reason` is said to it."""
        from sterna._proto.sterna.v1 import admin_pb2

        request = admin_pb2.CloseConnectionRequest(id=connection_id, reason=reason)
        await self._call("CloseConnection", request)

    async def begin_cut(self, *, wait: float = 10.0) -> Cut | None:
        """Have the broker take a cut for a snapshot, or find the one that waits to be kept.

        Args:
            wait: how long to wait for it to be whole, in seconds; at most a minute, and less than the client's timeout.

        Returns:
            The cut; None while it is still being written: call again.

        Raises:
            ConflictError: it was given up; a retry takes another one.
            StoreFullError: the broker's disk is full.
        """
        from sterna._proto.sterna.v1 import admin_pb2

        answer = await self._call("BeginCut", admin_pb2.BeginCutRequest(wait_ms=round(wait * 1000)))
        return Cut.read(answer.cut) if answer.HasField("cut") else None

    def hold_cut(self, cut: Cut) -> HeldCut:
        """Hold a cut while it is read and kept, with `async with`; nobody else may read or confirm one meanwhile.

        Entering it raises InUseError while somebody else holds it, and ConflictError if it does not wait any more.
        """
        return HeldCut(cut, self._stream, self._call, self._error)

    async def _browse(
        self, source_name: str, selector: str, limit: int, after_sequence: int, body_bytes: int, **what: Any
    ) -> AsyncIterator[Message]:
        import grpc

        from sterna._proto.sterna.v1 import admin_pb2
        from sterna.messages import Message

        request = admin_pb2.BrowseRequest(
            selector=selector, max_messages=limit, after_sequence=after_sequence, body_bytes=body_bytes, **what
        )
        source: Any = _Looked(source_name)
        where: Admin = self
        hop = 0
        while True:
            metadata = await self._metadata()
            self._check_open()
            try:
                async for answer in where._stub.Browse(request, metadata=metadata):
                    for delivery in answer.deliveries:
                        yield Message(source, delivery, 0)
                return
            except grpc.aio.AioRpcError as error:
                # It is refused before anything was looked at.
                where, hop = await self._home(where._error(error), hop), hop + 1
            except asyncio.CancelledError:
                self._check_cancelled()
                raise

    async def _stream(self, method: str, request: Any) -> grpc.aio.UnaryStreamCall[Any, Any]:
        """A call with many answers, begun, by the method's name; it has no timeout."""
        metadata = await self._metadata()
        self._check_open()
        call: grpc.aio.UnaryStreamCall[Any, Any] = getattr(self._stub, method)(request, metadata=metadata)
        return call

    async def _call(self, method: str, request: Any) -> Any:
        """One call, by the method's name; at another broker of the cluster if this one says so."""
        import grpc

        metadata = await self._metadata()
        where: Admin = self
        hop = 0
        while True:
            self._check_open()
            try:
                return await getattr(where._stub, method)(request, timeout=self._timeout, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                where, hop = await self._home(where._error(error), hop), hop + 1
            except asyncio.CancelledError:
                self._check_cancelled()
                raise

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the admin client was closed", subject=self._address)

    def _check_cancelled(self) -> None:
        """Raises where a call was cancelled with its channel, and not with the task that waits for it."""
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            self._check_open()

    async def _home(self, error: SternaError, hop: int) -> Admin:
        """The client for the broker that has what was asked for; what is moving at this moment is followed a while.

        Raises:
            SternaError: `error` itself, unless it says where to go.
        """
        if not isinstance(error, MovedError) or not error.addresses or hop + 1 == HOPS_MAX:
            raise error
        await asyncio.sleep(pause_s(hop))
        secure = self._target.tls is not None
        addresses = tuple(named_address(one, secure=secure) for one in error.addresses)
        known = self._others.get(addresses)
        if known is None:
            target = replace(self._target, url=replace(self._target.url, groups=(addresses,)))
            made = await Admin(target, token=self._token, timeout=self._timeout).__aenter__()
            known = self._others.get(addresses, made)
            if self._is_closed or known is not made:
                await made.__aexit__(None, None, None)  # another call was quicker
            self._check_open()
            self._others[addresses] = known
        return known

    async def _metadata(self) -> tuple[tuple[str, str], ...]:
        token = await reveal(self._token, "token")
        password = "" if token else await reveal(self._target.password, "password")
        return authorization(self._target.user, password, token)

    def _error(self, error: grpc.aio.AioRpcError) -> SternaError:
        """The SDK's error for a failed call: the broker's own, where it sent one."""
        return refusal(error, self._address)


class _Looked:
    """Where a browsed message stands: it has a destination, and nobody who could settle it."""

    __slots__ = ("destination",)

    def __init__(self, name: str) -> None:
        self.destination = Queue(name)

    @property
    def session(self) -> Any:
        """There is none.

        Raises:
            NotAllowedError: always.
        """
        raise NotAllowedError("this message was looked at, not received", remedy="receive it to acknowledge it")
