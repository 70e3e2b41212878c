"""A broker as the source of an export: the cut that it holds for us, its pieces as Arrow batches."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import pyarrow as pa
from sterna.admin import Admin
from sterna.cuts import Cut as BrokersCut
from sterna.cuts import CutManifest, CutPiece, HeldCut
from sterna.errors import ConflictError, InUseError

from sterna_audit import schema
from sterna_audit.exporting import ExportError
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.manifests import Cut, Gap
from sterna_audit.surroundings import monotonic_s

#: What stands for the cluster of a broker that is in none.
NO_CLUSTER = "standalone"
# How long a call waits for the cut to be whole, and how soon it is looked again whether another exporter has ended.
_CALL_S = 10.0
_AGAIN_S = 1.0


class NotInTimeError(ExportError):
    """The broker has not finished the cut in time. It goes on with it, so that repeating helps."""


@asynccontextmanager
async def held_cut(client: Admin, *, wait_s: float, call_s: float = _CALL_S) -> AsyncIterator[HeldCut]:
    """The cut that waits, or a new one, once it is whole and nobody else holds it.

    Args:
        client: the broker's.
        wait_s: how long at most for the cut to be whole, and for another exporter to end, in seconds.
        call_s: how long at most a single call waits for that; less than the client's timeout.

    Raises:
        NotInTimeError: it is not whole by then.
        InUseError: another exporter has it still.
        SternaError: the broker does not give it.
    """
    async with AsyncExitStack() as stack:
        yield await _held(client, stack, monotonic_s() + wait_s, min(_CALL_S, call_s))


async def _held(client: Admin, stack: AsyncExitStack, until_s: float, call_s: float) -> HeldCut:
    while True:
        cut = await client.begin_cut(wait=max(0.0, min(call_s, until_s - monotonic_s())))
        if cut is not None:
            try:
                return await stack.enter_async_context(client.hold_cut(cut))
            except ConflictError:
                # Another exporter has kept it just now: the next one is ours.
                if monotonic_s() >= until_s:
                    raise
            except InUseError:
                if monotonic_s() + _AGAIN_S >= until_s:
                    raise
                await asyncio.sleep(_AGAIN_S)
        elif monotonic_s() >= until_s:
            raise NotInTimeError("the broker has not finished the cut in time")


class BrokerSource:
    """See `exporting.Source`. `held` is a cut that is held, and has to be until the export has ended."""

    def __init__(self, held: HeldCut) -> None:
        self._held = held

    async def cut(self) -> Cut:
        """See Source.

        Raises:
            ExportError: its names cannot be folders, or its tables are of another version.
        """
        cut = self._held.cut
        if cut.schema != schema.VERSION:
            raise ExportError(
                f"the broker tells version {cut.schema} of the schema, this program writes {schema.VERSION}"
            )
        try:
            place = Place(cut.cluster or NO_CLUSTER, cut.broker)
        except ValueError as error:
            raise ExportError(f"the snapshots of this broker cannot be kept: {error}") from error
        return Cut(
            place=place,
            store=cut.store_id,
            number=cut.number,
            epoch=cut.epoch,
            position=cut.position,
            previous_position=cut.previous_position,
            time_ms=cut.time_ms,
            events=cut.events,
            gaps=tuple(Gap(*gap) for gap in cut.gaps),
            previous=cut.previous_manifest.hex() or None,
        )

    async def batches(self) -> AsyncGenerator[tuple[str, str, pa.RecordBatch], None]:
        """See Source.

        Raises:
            ExportError: a piece is none.
        """
        async with aclosing(self._held.parts()) as parts:
            async for part in parts:
                if isinstance(part, CutPiece):
                    for batch in _batches(part):
                        yield part.folder, part.table, batch
                else:
                    yield "state", "configuration", _manifests(part)

    async def exported(self, sha256: str) -> None:
        """See Source."""
        await self._held.confirm(bytes.fromhex(sha256))


def asked(cut: Cut) -> BrokersCut:
    """A cut that was exported as one asks a broker to hold it, if it still waits there."""
    return BrokersCut(
        cluster=cut.place.cluster,
        broker=cut.place.broker,
        store_id=cut.store,
        number=cut.number,
        epoch=cut.epoch,
        position=cut.position,
        previous_position=cut.previous_position,
        time_ms=cut.time_ms,
        schema=schema.VERSION,
        previous_manifest=bytes.fromhex(cut.previous or ""),
        events=cut.events,
        gaps=tuple((gap.start, gap.end, gap.reason) for gap in cut.gaps),
        rows=0,
        bytes=0,
    )


def _batches(piece: CutPiece) -> list[pa.RecordBatch]:
    try:
        with pa.ipc.open_stream(piece.stream) as stream:
            batches = list(stream)
    except (pa.ArrowException, OSError) as error:
        raise ExportError(f"the broker tells a piece of {piece.table} that is no Arrow stream: {error}") from error
    if (rows := sum(batch.num_rows for batch in batches)) != piece.rows:
        raise ExportError(f"the broker tells a piece of {piece.table} with {rows} rows, and says {piece.rows}")
    return batches


def _manifests(manifests: tuple[CutManifest, ...]) -> pa.RecordBatch:
    rows = [{"kind": one.kind, "name": one.name, "revision": one.revision, "spec": one.spec} for one in manifests]
    return pa.RecordBatch.from_pylist(rows, schema=schema.table("state", "configuration").schema)
