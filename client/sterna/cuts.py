"""Cuts of a broker's store, as whoever keeps snapshots of them takes them from a broker: see `Admin.begin_cut`.

    cut = await admin.begin_cut()
    async with admin.hold_cut(cut) as held:
        async for part in held.parts():
            ...
        await held.confirm(sha256)

`sterna snapshot create` is made of this. What the tables of a cut mean is in docs/audits/schema.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from sterna.errors import ConnectionLostError, ProtocolError, SternaError

__all__ = ["Cut", "CutManifest", "CutPiece", "HeldCut"]

# A call with many answers, and one with one, by the method's name.
_Open = Callable[[str, Any], Awaitable[Any]]
_Call = Callable[[str, Any], Awaitable[Any]]

# No broker makes a larger one.
_PIECE_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Cut:
    """Which cut it is and what it continues. Positions are those of the broker's log, ranges go from one up to another.

    Attributes:
        cluster: empty if the broker is none of a cluster.
        broker: the broker's name.
        store_id: identity of its store, 32 hexadecimal digits.
        number: from 1 on, without holes.
        epoch: of the broker, at the cut.
        position: of the cut.
        previous_position: of the cut before; the first one's is its own.
        time_ms: when it was taken, milliseconds since 1970.
        schema: the version of the tables' schema.
        previous_manifest: SHA-256 of the manifest under which the cut before was kept; empty for the first.
        events: the ranges that events tell of.
        gaps: those that they do not, each with the reason.
        rows: of all pieces together.
        bytes: of all pieces together.
    """

    cluster: str
    broker: str
    store_id: str
    number: int
    epoch: int
    position: int
    previous_position: int
    time_ms: int
    schema: int
    previous_manifest: bytes
    events: tuple[tuple[int, int], ...]
    gaps: tuple[tuple[int, int, str], ...]
    rows: int
    bytes: int

    @classmethod
    def read(cls, answer: Any) -> Cut:
        """The value of a `Cut` of the contract."""
        return cls(
            cluster=answer.cluster,
            broker=answer.broker,
            store_id=answer.store_id,
            number=answer.number,
            epoch=answer.epoch,
            position=answer.position,
            previous_position=answer.previous_position,
            time_ms=answer.time_ms,
            schema=answer.schema,
            previous_manifest=answer.previous_manifest,
            events=tuple((one.start, one.end) for one in answer.events),
            gaps=tuple((gap.range.start, gap.range.end, gap.reason) for gap in answer.gaps),
            rows=answer.rows,
            bytes=answer.bytes,
        )


@dataclass(frozen=True, slots=True)
class CutPiece:
    """Rows of one table: its folder (`state` or `events`), its name, how many, and an Arrow IPC stream of them."""

    folder: str
    table: str
    rows: int
    stream: bytes


@dataclass(frozen=True, slots=True)
class CutManifest:
    """A manifest in force: a row of `state/configuration`. `spec` is JSON; `revision` is 0 where nobody counts them."""

    kind: str
    name: str
    revision: int
    spec: str


class HeldCut:
    """A cut that is held, made by `Admin.hold_cut`; to be used with `async with`."""

    def __init__(self, cut: Cut, opens: _Open, calls: _Call, error_of: Callable[[Any], SternaError]) -> None:
        self._cut = cut
        self._opens = opens
        self._calls = calls
        self._error_of = error_of
        self._call: Any = None
        self._hold = 0

    @property
    def cut(self) -> Cut:
        """As the broker says now: events may have been given up since it was begun, and are gaps then."""
        return self._cut

    async def __aenter__(self) -> HeldCut:
        """Take hold of it.

        Raises:
            InUseError: somebody else holds it; this may be retried.
            ConflictError: it does not wait any more.
        """
        from sterna._proto.sterna.v1 import admin_pb2

        request = admin_pb2.ReadCutRequest(
            store_id=self._cut.store_id, number=self._cut.number, position=self._cut.position
        )
        self._call = await self._opens("ReadCut", request)
        try:
            answer = await self._next()
            if answer is None or not answer.HasField("held"):
                raise ProtocolError("the broker does not say that the cut is held")
        except BaseException:
            self._call.cancel()
            raise
        self._hold, self._cut = answer.held.hold, Cut.read(answer.held.cut)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it go."""
        self._call.cancel()

    async def parts(self) -> AsyncGenerator[CutPiece | tuple[CutManifest, ...], None]:
        """Everything that the cut holds: pieces of tables, and the manifests in force, some at a time. Once.

        It ends when all was told, and with an error in every other case. The broker reads on as it is iterated.

        Raises:
            ConflictError: the cut was given up meanwhile; nothing of it may be kept.
            StoreFailedError: a file of it is damaged.
            ShuttingDownError: the broker stops.
        """
        rows, begun, size = 0, list[bytes](), 0
        while (answer := await self._next()) is not None and not answer.HasField("end"):
            if answer.HasField("configuration"):
                yield tuple(
                    CutManifest(one.kind, one.name, one.revision, one.spec) for one in answer.configuration.manifests
                )
                continue
            piece = answer.piece
            begun.append(piece.data)
            size += len(piece.data)
            if size > _PIECE_BYTES_MAX:
                raise ProtocolError(f"a piece of {piece.table} has more than {_PIECE_BYTES_MAX} bytes")
            if not piece.goes_on:
                rows += piece.rows
                stream, begun, size = b"".join(begun), [], 0
                yield CutPiece(piece.folder, piece.table, piece.rows, stream)
        if answer is None or begun:
            raise ConnectionLostError("the broker ended before it had told all of the cut")
        if rows != answer.end.rows:
            raise ProtocolError(f"{rows} rows came, and the broker says that there are {answer.end.rows}")

    async def confirm(self, manifest: bytes) -> None:
        """Say that the cut was kept under a manifest of this SHA-256 (32 bytes); returns when that is durable.

        Raises:
            ConflictError: it is not held any more, or was given up.
        """
        from sterna._proto.sterna.v1 import admin_pb2

        request = admin_pb2.ConfirmCutRequest(hold=self._hold, number=self._cut.number, manifest=manifest)
        await self._calls("ConfirmCut", request)

    async def _next(self) -> Any:
        """The next answer; None when the broker ended the call."""
        import grpc

        try:
            answer = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise self._error_of(error) from error
        except asyncio.CancelledError:
            # Of this task, or of the call alone, which went with its channel.
            task = asyncio.current_task()
            if not self._call.cancelled() or (task is not None and task.cancelling()):
                raise
            raise ConnectionLostError("the call that holds the cut was ended here") from None
        return None if answer is grpc.aio.EOF else answer
