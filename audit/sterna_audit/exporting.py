"""Takes a snapshot: what a broker tells of a cut goes into a store.

`sterna snapshot create` calls `export` with the broker's stream as its `Source`. A run may be broken off at any point
and repeated: the broker gives the same cut again until it was told that it is exported, and a cut that is whole already
is not written twice.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from sterna_audit.snapshots import anchors, reading
from sterna_audit.snapshots.keys import Verifier
from sterna_audit.snapshots.manifests import Cut, Manifest, decoded
from sterna_audit.snapshots.stores import Store
from sterna_audit.snapshots.writing import SnapshotWriter, WriterOptions

T = TypeVar("T")


class ExportError(Exception):
    """A cut was not exported; the text says why. The store is as it was, but for files without a manifest."""


class Source(Protocol):
    """A broker that gives one cut."""

    async def cut(self) -> Cut:
        """Which cut it is and what it continues. A run that is repeated gets the same."""
        ...

    def batches(self) -> AsyncGenerator[tuple[str, str, pa.RecordBatch], None]:
        """The rows: folder, table, a batch of bounded size; tables in any order, each in the order of the log.

        It ends when all was told, and with an error in every other case.
        """
        ...

    async def exported(self, sha256: str) -> None:
        """The cut is kept for good, and this is the sha256 of its manifest, which the next cut names.

        Told again when a run is repeated.
        """
        ...


@dataclass(frozen=True, slots=True)
class Exported:
    """A cut that is in the store.

    Attributes:
        manifest: its manifest.
        path: its folder below the store's root.
        is_new: whether this run wrote it; it was there already otherwise.
    """

    manifest: Manifest
    path: str
    is_new: bool


async def export(
    source: Source,
    store: Store,
    options: WriterOptions,
    *,
    verifier: Verifier | None = None,
    extra_options: Mapping[str, Any] | None = None,
) -> Exported:
    """Writes the source's cut into the store and tells the source that it is there.

    Args:
        source: whose cut.
        store: where to.
        options: how it is written and signed.
        verifier: whose signatures count on what is there already; None: it need have none.
        extra_options: what the manifest says besides of how the broker made the cut.

    Raises:
        ExportError: the store has other snapshots of this broker that this cut does not continue.
        RowsError: the broker tells rows that the schema does not have.
        StoreError: the store does not take it.
    """
    cut = await source.cut()
    with _Thread() as thread:
        there = await thread.run(lambda: _already(store, cut, verifier))
        if there is None:
            writer = SnapshotWriter(store, cut.place, cut.number, options)
            try:
                await thread.run(writer.begin)
                async with aclosing(source.batches()) as batches:
                    async for folder, table, batch in batches:
                        await thread.run(partial(writer.add, folder, table, batch))
                data = await thread.run(lambda: writer.finish(cut, extra_options))
            except BaseException:
                # The source is not let go before: another may write to the same place from then on.
                writer.give_up()
                await thread.run_to_its_end(writer.abandon)
                raise
            exported = Exported(decoded(data), cut.place.cut(cut.number), is_new=True)
        else:
            exported = Exported(there, cut.place.cut(cut.number), is_new=False)
    await source.exported(exported.manifest.sha256)
    return exported


class _Thread:
    """One thread for all that touches the store: it is slow, and a writer is used by one at a time."""

    def __enter__(self) -> "_Thread":
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="sterna-snapshot")
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False)

    async def run(self, action: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, action)

    async def run_to_its_end(self, action: Callable[[], None]) -> None:
        """After what is under way there, and also when whoever waits is cancelled, which is put off until then."""
        future = self._pool.submit(action)
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait((asyncio.wrap_future(future),))
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        future.result()


def _already(store: Store, cut: Cut, verifier: Verifier | None) -> Manifest | None:
    """The manifest of this cut, if it is there.

    Raises:
        ExportError: what is there does not fit this cut.
    """
    place = cut.place
    anchor, found = anchors.find(store, place, verifier)
    if found:
        raise ExportError(f"{store.uri}: {found[0]}")
    if anchor is not None and cut.number <= anchor.through:
        raise ExportError(f"{store.uri}: cut {cut.number} of {place} was pruned there, with all up to {anchor.through}")
    same = reading.find(store, place, cut.number, verifier)
    if same.findings:
        raise ExportError(f"{store.uri}: {same.findings[0]}")
    if same.manifest is not None:
        _check_same(f"{store.uri}: {same.path}", same.manifest.cut, cut)
        return same.manifest
    before = reading.find(store, place, cut.number - 1).manifest if cut.number > 1 else None
    sha256 = before.sha256 if before is not None else None
    if before is None and anchor is not None and anchor.through == cut.number - 1:
        sha256 = anchor.sha256
    if sha256 is not None and sha256 != cut.previous:
        raise ExportError(
            f"{store.uri}: cut {cut.number} of {place} does not go on from cut {cut.number - 1} that is there: "
            "it belongs to another chain, and needs a root of its own"
        )
    return None


def _check_same(path: str, there: Cut, cut: Cut) -> None:
    """Refuses another cut of the same number.

    What the broker has given up since of the events of this one is there all the same: it may have fewer gaps.
    """
    if there == cut:
        return
    if replace(there, events=cut.events, gaps=cut.gaps) == cut and _gap_bytes(there) <= _gap_bytes(cut):
        return
    text = f"{path} is another cut of that number: {_difference(there, cut)}"
    if (there.store, there.previous) == (cut.store, cut.previous):
        text += (
            ". The broker gave that one up before it heard that it was kept, so that it is in no chain: "
            "move its folder away, and export again"
        )
    raise ExportError(text)


def _gap_bytes(cut: Cut) -> int:
    return sum(gap.end - gap.start for gap in cut.gaps)


def _difference(there: Cut, cut: Cut) -> str:
    names = ("store", "epoch", "position", "previous_position", "previous", "time_ms", "events", "gaps")
    different = [name for name in names if getattr(there, name) != getattr(cut, name)]
    return f"{', '.join(different)} differ"
