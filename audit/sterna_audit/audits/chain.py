"""The audit `chain`: whether the snapshots are those that were written, one after another, without holes."""

from collections.abc import Iterator

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit import schema
from sterna_audit.audits import findings
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import Broker, History
from sterna_audit.audits.registry import Audit
from sterna_audit.checksums import RowChecksum
from sterna_audit.snapshots import reading
from sterna_audit.snapshots.findings import Finding as Fault
from sterna_audit.snapshots.manifests import Manifest

_LOW_BITS = 0xFFFFFFFF
#: So many rows are read faster here than Spark plans to read two dozen tables.
HERE_ROWS_MAX = 1_000_000
#: Who wrote a snapshot is a matter of trust; what is in it may be right all the same.
_OF_TRUST = frozenset({"unsigned", "unknown-key", "wrong-signature"})


def chain(history: History) -> DataFrame:
    """Whether the snapshots are those that were written, one after another, without holes.

    Taken for proof: manifests' signatures by keys that the caller trusts, each manifest's link to the one before, each
    file's sha256, and the checksums of rows as they are read. A fault is `violated`; so is a range of the log between
    two cuts that neither event files nor a stated gap cover. A stated gap is `not provable`: what happened in it,
    nobody can tell but the counters. Unsigned snapshots, where the caller asked for no signatures, are `not provable`:
    anybody who can write there could have made them right.

    It cannot see that a chain's newest cuts were removed, unless the range names its last.
    """
    said = [finding for broker in history.brokers for finding in _of_broker(broker, _row_faults(history, broker))]
    return findings.frame(history.spark, said)


AUDIT = Audit("chain", "The snapshots are those that were written, one after another, without holes.", chain)


def _of_broker(broker: Broker, of_rows: list[Fault]) -> Iterator[Finding]:
    cluster, name = broker.place.cluster, broker.place.broker
    faults = [*broker.chain.findings, *of_rows]
    for fault in faults:
        severity: findings.Severity = "error" if fault.what in _OF_TRUST else "critical"
        cut = next((one.number for one in broker.chain.snapshots if fault.file.startswith(one.path)), 0)
        yield Finding(
            *("violated", severity, fault.what, fault.why),
            *(cluster, name, cut, fault.file),
            evidence={"file": fault.file},
        )
    for cut, manifest in sorted(broker.snapshots.items()):
        # What was before the first cut of a range is no part of it.
        for gap in manifest.cut.gaps if cut > broker.first else ():
            yield Finding(
                *("not provable", "warning", "gap", f"no events from {gap.start} to {gap.end}: {gap.reason}"),
                *(cluster, name, cut),
                evidence={"from": gap.start, "to": gap.end, "reason": gap.reason},
            )
    if broker.snapshots and not all(manifest.key for manifest in broker.snapshots.values()):
        why = "nobody signed them: whoever can write there could have made them right"
        yield Finding("not provable", "warning", "unsigned", why, cluster, name)
    if not broker.has_cuts:
        yield Finding("not provable", "warning", "no-cuts", "there is no cut of this range", cluster, name)
    elif not faults:
        yield _in_order(broker)


def _in_order(broker: Broker) -> Finding:
    manifests = broker.snapshots.values()
    entries = [entry for manifest in manifests for entry in manifest.files.values()]
    rows = sum(entry.rows for entry in entries)
    figures = {
        "first": broker.first,
        "last": broker.last,
        "cuts": len(broker.snapshots),
        "files": len(entries),
        "rows": rows,
        "bytes": sum(entry.bytes for entry in entries),
    }
    why = f"cuts {broker.first} to {broker.last} are as they were written: {len(entries)} files, {rows} rows"
    return Finding("ok", "info", "verified", why, broker.place.cluster, broker.place.broker, evidence=figures)


def _row_faults(history: History, broker: Broker) -> list[Fault]:
    """Files whose rows, as they are read, are not those of the manifest."""
    rows = sum(entry.rows for manifest in broker.snapshots.values() for entry in manifest.files.values())
    if rows <= HERE_ROWS_MAX:
        return _faults_here(history, broker)
    try:
        found = _checksums(history, broker)
    except PySparkException:
        # Some page is broken although its file is the one that was written: which, the reader of one file tells.
        faults = _faults_here(history, broker)
        if not faults:
            raise
        return faults
    return [
        Fault(f"{broker.place.cut(cut)}/{path}", "wrong-rows", "its rows are not those that the manifest counts")
        for cut, manifest in sorted(broker.snapshots.items())
        for path, expected in _expected(manifest)
        if found.get((cut, path), RowChecksum()) != expected
    ]


def _faults_here(history: History, broker: Broker) -> list[Fault]:
    snapshots = [one for one in broker.chain.snapshots if one.number in broker.snapshots]
    return [fault for one in snapshots for fault in reading.verify_files(history.store, one)]


def _expected(manifest: Manifest) -> Iterator[tuple[str, RowChecksum]]:
    for path, entry in sorted(manifest.files.items()):
        yield path, RowChecksum(entry.rows, entry.row_checksum)


def _checksums(history: History, broker: Broker) -> dict[tuple[int, str], RowChecksum]:
    """The rows of each file, by cut and path, in one pass over all tables."""
    cuts = [(broker.number, cut) for cut in broker.snapshots]
    parts = []
    for table in schema.tables():
        rows = history.read(table.folder, table.name, cuts)
        parts.append(rows.select("cut", "file", F.xxhash64(*table.names).alias("hash")))
    hashed = parts[0]
    for part in parts[1:]:
        hashed = hashed.unionAll(part)
    sums = hashed.groupBy("cut", "file").agg(
        F.count("*").alias("rows"),
        F.sum(F.col("hash").bitwiseAND(F.lit(_LOW_BITS).cast("long"))).alias("low"),
        F.sum(F.shiftrightunsigned("hash", 32)).alias("high"),
    )
    return {
        (row["cut"], row["file"]): RowChecksum(row["rows"], (row["high"] << 32) + row["low"]) for row in sums.collect()
    }
