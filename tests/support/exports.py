"""Snapshots of a running broker, taken by the exporter's own parts."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sterna.admin
from sterna_audit.broker_source import BrokerSource
from sterna_audit.exporting import Exported, export
from sterna_audit.snapshots.stores import Store

from tests.audit.kept import PLAIN, VERIFIER


@asynccontextmanager
async def holding(url: str) -> AsyncIterator[BrokerSource]:
    """The broker's cut, begun or found again, held."""
    async with sterna.admin.connect(url) as admin:
        cut = None
        while cut is None:
            cut = await admin.begin_cut(wait=5)
        async with admin.hold_cut(cut) as held:
            yield BrokerSource(held)


async def exported(url: str, store: Store, wrap: Callable[[BrokerSource], Any] = lambda source: source) -> Exported:
    """Takes a snapshot; `wrap` may put something between broker and exporter."""
    async with holding(url) as source:
        return await export(wrap(source), store, PLAIN, verifier=VERIFIER)


def table(store: Store, exported: Exported, title: str) -> pa.Table:
    """All rows of a table, such as `state/messages`."""
    folder, name = title.split("/")
    files = exported.manifest.files_of(folder, name)
    tables = []
    for file in files:
        with store.reading(f"{exported.path}/{file}") as opened:
            tables.append(pq.read_table(opened))
    return pa.concat_tables(tables)
