"""A broker as the source of an export: the cut that it holds for us, its pieces as Arrow batches."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pyarrow as pa
from sterna.cuts import CutManifest, CutPiece, HeldCut

from sterna_audit import schema
from sterna_audit.exporting import ExportError
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.manifests import Cut, Gap

#: What stands for the cluster of a broker that is in none.
NO_CLUSTER = "standalone"


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
