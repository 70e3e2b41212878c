"""Snapshots brought to this machine, for a Spark that cannot read where they are: s3:// without a connector.

For a driver that runs the executors, too. They stand where Spark shuffles, for as long as a run takes.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sterna_audit.audits.history import Broker, History
from sterna_audit.audits.tables import NativeReader
from sterna_audit.snapshots.manifests import FileEntry
from sterna_audit.snapshots.stores import Directory, Store, StoreError, chunks, told
from sterna_audit.spark import SparkError, knows


@contextmanager
def readable(history: History, tell: Callable[[str], None]) -> Iterator[None]:
    """Within this Spark reads the history's snapshots.

    Raises:
        SparkError: it cannot, and its executors are elsewhere.
        StoreError: a snapshot cannot be brought here.
    """
    if knows(history.spark, history.store.uri):
        yield
        return
    if not (history.spark.sparkContext.master or "").startswith("local"):
        raise SparkError(
            f"Spark has no connector for {history.store.uri}, and its executors are on other machines: "
            "name one by the setting spark.jars.packages"
        )
    scratch = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    with tempfile.TemporaryDirectory(prefix="sterna-audit-", dir=scratch or None) as here:
        tell(f"bringing snapshots from {history.store.uri}, which Spark does not read by itself …")
        target = Directory(Path(here))
        for broker in history.brokers:
            _bring(history.store, broker, target)
        numbers = {broker.place: broker.number for broker in history.brokers}
        history.reader = NativeReader(history.spark, target.uri, numbers)
        yield


def _bring(store: Store, broker: Broker, target: Directory) -> None:
    for cut, manifest in broker.snapshots.items():
        for name, entry in manifest.files.items():
            _copy(store, f"{broker.place.cut(cut)}/{name}", entry, target)


def _copy(store: Store, path: str, entry: FileEntry, target: Directory) -> None:
    sha256 = hashlib.sha256()
    output = target.create(path)
    try:
        with store.reading(path) as file, told(path):
            for piece in chunks(file):
                sha256.update(piece)
                output.write(piece)
        output.finish()
    except BaseException:
        output.abandon()
        raise
    if sha256.hexdigest() != entry.sha256:
        raise StoreError(f"{path} was changed while it was read: its sha256 is not the manifest's")
