"""`sterna snapshot`: the snapshots of brokers' stores that somebody keeps: see, verify and prune them.

Taking one is in `snapshot_create`.

It is the audits' own (`sterna_audit`), which is imported only here and only when it is asked for.
"""

import importlib.util
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sterna.cli import options
from sterna.cli.exits import CommandError, Exit, complain, usage
from sterna.cli.output import Column, Format, print_rows

if TYPE_CHECKING:
    from sterna_audit.snapshots.chains import Chain
    from sterna_audit.snapshots.keys import Signer, Verifier
    from sterna_audit.snapshots.layout import Place
    from sterna_audit.snapshots.pruning import Pruned, Retention
    from sterna_audit.snapshots.reading import Snapshot
    from sterna_audit.snapshots.stores import Store

app = typer.Typer(
    help="Snapshots of brokers' stores, for audits: take them; see, verify and prune those that are kept.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_COLUMNS = (
    *(Column("CLUSTER", "cluster"), Column("BROKER", "broker"), Column("CUT", "cut", "right")),
    *(Column("STATE", "state"), Column("POSITION", "position", "right"), Column("TAKEN", "taken")),
    *(Column("ROWS", "rows", "right"), Column("BYTES", "bytes", "right"), Column("KEY", lambda row: row["key"][:12])),
)
_FINDINGS = (Column("FILE", "file"), Column("WHAT", "what"), Column("WHY", "why"))
_PRUNED = (
    *(Column("CLUSTER", "cluster"), Column("BROKER", "broker"), Column("REMOVED", "removed")),
    *(Column("FROM", "from", "right"), Column("TO", "to", "right"), Column("SNAPSHOTS", "snapshots", "right")),
)

Root = Annotated[str, typer.Argument(metavar="URI", help="Where they are: a folder, or s3://BUCKET/PREFIX.")]
ClusterOption = Annotated[str, typer.Option("--cluster", metavar="NAME", help="Of this cluster alone.")]
BrokerOption = Annotated[str, typer.Option("--broker", metavar="NAME", help="Of this broker alone.")]
Keys = Annotated[
    list[Path] | None,
    typer.Option("--key", metavar="FILE", help="A public key in PEM whose signatures count; several are possible."),
]
Unsigned = Annotated[bool, typer.Option("--unsigned", help="Signatures are not looked at, and need not be there.")]


@app.command(
    "list",
    epilog=options.examples("sterna snapshot list /snapshots", "sterna snapshot list s3://audits/sterna -o json"),
)
def list_(
    root: Root, cluster: ClusterOption = "", broker: BrokerOption = "", output: options.Output = Format.TABLE
) -> None:
    """Show what is kept, half-written ones among it. Nothing is verified but that manifests can be read."""
    with audits():
        from sterna_audit.snapshots import reading

        store = opened_store(root)
        rows = [
            _row(reading.find(store, place, number))
            for place in _places(store, cluster, broker)
            for number in reading.numbers(store, place)
        ]
    print_rows(rows, _COLUMNS, output)


@app.command(
    epilog=options.examples(
        "sterna snapshot verify /snapshots --key exporter.pub.pem",
        "sterna snapshot verify s3://audits/sterna --broker main-0 --from 40 --to 52 --key exporter.pub.pem",
    )
)
def verify(
    root: Root,
    cluster: ClusterOption = "",
    broker: BrokerOption = "",
    first: Annotated[int | None, typer.Option("--from", metavar="CUT", min=1, help="From this cut on.")] = None,
    last: Annotated[
        int | None, typer.Option("--to", metavar="CUT", min=1, help="Up to this cut, which has to be there.")
    ] = None,
    key: Keys = None,
    unsigned: Unsigned = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Of files only sizes, checksums and columns, not each of their rows.")
    ] = False,
    output: options.Output = Format.TABLE,
) -> None:
    """Verify that snapshots are as they were written: signatures, chain, files, rows.

    Each fault is a row of the answer; ends with 8 when there is one, and with 4 when there is nothing to verify.
    """
    with audits():
        from sterna_audit.snapshots import chains

        verifier = _verifier(key, unsigned=unsigned)
        store = opened_store(root)
        places = _places(store, cluster, broker)
        if not places:
            raise CommandError(f"there are no snapshots in {store.uri}", exit_code=Exit.NOT_FOUND)
        found = [chains.verify(store, one, verifier, first=first, last=last, rows=not quick) for one in places]
    findings = [finding for chain in found for finding in chain.findings]
    if findings or output is not Format.TABLE:
        print_rows([{"file": one.file, "what": one.what, "why": one.why} for one in findings], _FINDINGS, output)
    for chain in found:
        complain(_verdict(chain, verifier))
    if findings:
        raise typer.Exit(Exit.CHECK_CRITICAL)


@app.command(
    epilog=options.examples(
        "sterna snapshot prune /snapshots --keep 90d --key exporter.pub.pem --sign-with exporter.pem",
        "sterna snapshot prune /snapshots --keep 400d --keep-table state=30d --unsigned --dry-run",
    )
)
def prune(
    root: Root,
    keep: Annotated[
        str,
        typer.Option("--keep", metavar="WHAT", help="So many of the newest (30), what is younger (90d), or 30,90d."),
    ],
    cluster: ClusterOption = "",
    broker: BrokerOption = "",
    keep_table: Annotated[
        list[str] | None,
        typer.Option("--keep-table", metavar="TABLE=WHAT", help="Else for state, events, or a table as events/ends."),
    ] = None,
    key: Keys = None,
    sign_with: Annotated[
        Path | None, typer.Option("--sign-with", metavar="FILE", help="The private key in PEM that signs what is gone.")
    ] = None,
    unsigned: Unsigned = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, remove nothing.")] = False,
    output: options.Output = Format.TABLE,
) -> None:
    """Remove old snapshots or tables of them, and half-written ones below the newest, which always stays.

    What is gone is written down and signed, so that the rest can still be verified. Ends with 7 when something that is
    broken was in the way.
    """
    with audits():
        from sterna_audit.snapshots import pruning

        retention = _retention(keep, keep_table or [])
        verifier = _verifier(key, unsigned=unsigned)
        signer = signer_of(sign_with, "what is gone", unsigned=unsigned or dry_run)
        store = opened_store(root)
        found = [
            pruning.prune(store, place, retention, signer, verifier, dry_run=dry_run)
            for place in _places(store, cluster, broker)
        ]
    print_rows([row for one in found for row in _pruned_rows(one)], _PRUNED, output)
    faults = [finding for one in found for finding in one.findings]
    for finding in faults:
        complain(f"not removed, nor anything after it: {finding}")
    if faults:
        raise typer.Exit(Exit.CHECK_WARNING)


@contextmanager
def audits() -> Iterator[None]:
    """What needs the audits; their errors are the command line's."""
    missing = next((name for name in ("pyarrow", "numpy", "cryptography") if not importlib.util.find_spec(name)), None)
    if missing is not None or not importlib.util.find_spec("sterna_audit"):
        raise CommandError(f"snapshots need {missing or 'sterna_audit'}", remedy="pip install 'sterna[audit]'")
    from sterna_audit.exporting import ExportError
    from sterna_audit.snapshots.pruning import PruningError
    from sterna_audit.snapshots.stores import StoreError
    from sterna_audit.snapshots.writing import RowsError

    try:
        yield
    except (ExportError, PruningError, RowsError, StoreError) as error:
        raise CommandError(str(error)) from error


def opened_store(root: str) -> "Store":
    """Where snapshots are, by what the command line says."""
    from sterna_audit.snapshots.stores import open_store

    try:
        return open_store(root)
    except ValueError as error:
        raise usage(str(error)) from error


def _places(store: "Store", cluster: str, broker: str) -> "list[Place]":
    from sterna_audit.snapshots import reading

    return [place for place in reading.places(store) if cluster in ("", place.cluster) and broker in ("", place.broker)]


def _verifier(keys: list[Path] | None, *, unsigned: bool) -> "Verifier | None":
    from sterna_audit.snapshots.keys import KeyFileError, read_verifier

    if bool(keys) == unsigned:
        raise usage("whose signatures count is not said", "give --key FILE, or --unsigned to look at none")
    try:
        return read_verifier(keys) if keys else None
    except KeyFileError as error:
        raise usage(str(error)) from error


def signer_of(path: Path | None, what: str, *, unsigned: bool) -> "Signer | None":
    """Who signs something; None: nobody, as was asked for."""
    from sterna_audit.snapshots.keys import KeyFileError, read_signer

    if path is None:
        if not unsigned:
            raise usage(f"nobody signs {what}", "give --sign-with FILE, or --unsigned")
        return None
    try:
        return read_signer(path)
    except KeyFileError as error:
        raise usage(str(error)) from error


def _retention(keep: str, tables: Iterable[str]) -> "Retention":
    from sterna_audit.snapshots.pruning import Retention, parse_keep

    try:
        by_table = {name: parse_keep(what) for name, _, what in (one.partition("=") for one in tables)}
        return Retention(parse_keep(keep), by_table)
    except ValueError as error:
        raise usage(str(error)) from error


def _row(snapshot: "Snapshot") -> dict[str, Any]:
    row: dict[str, Any] = {"cluster": snapshot.place.cluster, "broker": snapshot.place.broker, "cut": snapshot.number}
    manifest = snapshot.manifest
    if manifest is None:
        state = "half-written" if snapshot.is_half_written else "broken"
        empty = dict.fromkeys(("position", "taken", "rows", "bytes"))
        return {**row, "state": state, **empty, "key": "", "findings": [str(one) for one in snapshot.findings]}
    return {
        **row,
        "state": "broken" if snapshot.findings else "whole",
        "position": manifest.cut.position,
        "taken": taken_at(manifest.cut.time_ms),
        "rows": sum(entry.rows for entry in manifest.files.values()),
        "bytes": sum(entry.bytes for entry in manifest.files.values()),
        "key": manifest.key or "unsigned",
        "findings": [str(one) for one in snapshot.findings],
    }


def taken_at(time_ms: int) -> str:
    """When a cut was taken, as people read it."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(min(time_ms // 1000, 253_402_300_799), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _verdict(chain: "Chain", verifier: "Verifier | None") -> str:
    """What was verified, in a line."""
    whole = [one.number for one in chain.snapshots if one.manifest is not None]
    half = [one.number for one in chain.snapshots if one.is_half_written]
    cuts = f"cuts {whole[0]} to {whole[-1]}" if whole else "no cut"
    parts = [f"{chain.place}: {cuts}", f"{len(chain.findings)} faults" if chain.findings else "no fault"]
    if verifier is None:
        parts.append("signatures not looked at" if chain.is_signed else "NOT SIGNED")
    if chain.anchor is not None and chain.anchor.through:
        parts.append(f"pruned up to cut {chain.anchor.through}")
    if half:
        parts.append(f"half-written: {', '.join(map(str, half))}")
    return ", ".join(parts)


def _pruned_rows(pruned: "Pruned") -> list[dict[str, Any]]:
    place = {"cluster": pruned.place.cluster, "broker": pruned.place.broker}
    rows = [
        {**place, "removed": what, "from": min(cuts), "to": max(cuts), "snapshots": len(cuts)}
        for what, cuts in (("snapshots", pruned.cuts), ("half-written", pruned.half_written))
        if cuts
    ]
    tables = [
        {**place, "removed": title, "from": None, "to": None, "snapshots": count}
        for title, count in pruned.tables.items()
    ]
    return rows + tables
