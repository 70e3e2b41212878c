"""`sterna snapshot create`: takes a cut of a broker's store and keeps it as a snapshot.

Broken off at any point and repeated, it goes on with the same cut: the broker keeps it until it hears that it was kept.
"""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sterna.cli import options
from sterna.cli.commands.snapshot import audits, opened_store, signer_of, taken_at
from sterna.cli.exits import CommandError, complain, usage
from sterna.cli.output import Column, Format, print_rows
from sterna.cli.progress import progress
from sterna.cli.running import run as run_loop
from sterna.cli.servers import THIS_MACHINE, Server
from sterna.cuts import Cut

if TYPE_CHECKING:
    from sterna_audit.exporting import Exported
    from sterna_audit.privacy import Privacy
    from sterna_audit.snapshots.keys import Verifier
    from sterna_audit.snapshots.stores import Store
    from sterna_audit.snapshots.writing import WriterOptions

EXAMPLES = options.examples(
    "sterna snapshot create --to /snapshots --sign-with exporter.pem --principals-key principals.key",
    "sterna snapshot create --to s3://audits/sterna --unsigned --principals none --rate 20M",
)

_COLUMNS = (
    *(Column("CLUSTER", "cluster"), Column("BROKER", "broker"), Column("CUT", "cut", "right")),
    *(Column("STATE", "state"), Column("POSITION", "position", "right"), Column("TAKEN", "taken")),
    *(Column("ROWS", "rows", "right"), Column("BYTES", "bytes", "right")),
)


class Principals(StrEnum):
    """What becomes of principals and client ids."""

    HASHED = "hashed"
    PLAIN = "plain"
    NONE = "none"


def create(
    to: Annotated[str, typer.Option("--to", metavar="URI", help="Where: a folder, or s3://BUCKET/PREFIX.")],
    sign_with: Annotated[
        Path | None, typer.Option("--sign-with", metavar="FILE", help="The private key in PEM that signs the manifest.")
    ] = None,
    unsigned: Annotated[bool, typer.Option("--unsigned", help="Nobody signs the manifest.")] = False,
    verify_key: Annotated[
        list[Path] | None,
        typer.Option("--verify-key", metavar="FILE", help="Another public key whose signatures there count; several."),
    ] = None,
    principals: Annotated[
        Principals,
        typer.Option("--principals", help="Principals and client ids: as keyed hashes, as they are, or not."),
    ] = Principals.HASHED,
    principals_key: Annotated[
        Path | None, typer.Option("--principals-key", metavar="FILE", help="The key of those hashes, 16 bytes or more.")
    ] = None,
    rate: Annotated[
        str, typer.Option("--rate", metavar="BYTES", help="Write at most so many bytes a second: 500k, 20M, 1G.")
    ] = "",
    wait: Annotated[
        float,
        typer.Option(
            "--wait", metavar="SECONDS", min=0.0, help="For the cut to be whole, and for another exporter to end."
        ),
    ] = 600.0,
    output: options.Output = Format.TABLE,
    server: Server = THIS_MACHINE,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Take a snapshot of a broker's store: all that there is, and what happened since the snapshot before.

    Messages go on meanwhile. Whoever breaks it off and repeats it gets the same cut; only when its manifest is written
    does the broker hear of it, and begin the next.
    """
    if unsigned and sign_with is not None:
        raise usage("--unsigned and --sign-with exclude each other", "leave one of them out")
    with audits():
        from sterna_audit.snapshots.writing import WriterOptions

        writing = WriterOptions(
            _privacy(principals, principals_key),
            signer_of(sign_with, "the manifest", unsigned=unsigned),
            _bytes_per_second(rate),
        )
        verifier = _verifier(writing, verify_key)
        store = opened_store(to)
        exported, cut = run_loop(_create(server, store, writing, verifier, wait, timeout))
    for start, end, reason in cut.gaps:
        complain(f"nothing is told of what happened from position {start} to {end}: {reason}")
    print_rows([_row(exported)], _COLUMNS, output, single=True)


async def _create(
    server: Server, store: "Store", writing: "WriterOptions", verifier: "Verifier | None", wait: float, timeout: float
) -> "tuple[Exported, Cut]":
    from dataclasses import replace

    from sterna_audit.broker_source import BrokerSource, NotInTimeError, held_cut
    from sterna_audit.exporting import export

    async with server.admin(timeout=timeout) as client:
        try:
            async with held_cut(client, wait_s=wait, call_s=timeout / 2) as held:
                with progress(f"cut {held.cut.number} of {held.cut.broker}", held.cut.rows) as advance:
                    options_ = replace(writing, progress=lambda so_far: advance(so_far.rows))
                    return await export(BrokerSource(held), store, options_, verifier=verifier), held.cut
        except NotInTimeError as error:
            raise CommandError(str(error), remedy="repeat the command, or give a longer --wait") from error


def _privacy(principals: Principals, key: Path | None) -> "Privacy":
    from sterna_audit.privacy import PrivacyError, chosen

    try:
        return chosen(principals.value, key)
    except PrivacyError as error:
        raise usage(str(error), "give --principals-key FILE, or --principals plain or none") from error


def _verifier(writing: "WriterOptions", keys: list[Path] | None) -> "Verifier | None":
    """Whose signatures count on what is there already: our own, and those that are named."""
    from sterna_audit.snapshots.keys import KeyFileError, trusted

    try:
        return trusted(writing.signer, keys or [])
    except KeyFileError as error:
        raise usage(str(error)) from error


def _bytes_per_second(rate: str) -> float | None:
    from sterna_audit.snapshots.writing import parse_rate

    try:
        return parse_rate(rate)
    except ValueError as error:
        raise usage(f"--rate: {error}") from error


def _row(exported: "Exported") -> dict[str, Any]:
    cut, files = exported.manifest.cut, exported.manifest.files.values()
    return {
        "cluster": cut.place.cluster,
        "broker": cut.place.broker,
        "cut": cut.number,
        "state": "new" if exported.is_new else "there already",
        "path": exported.path,
        "position": cut.position,
        "taken": taken_at(cut.time_ms),
        "rows": sum(entry.rows for entry in files),
        "bytes": sum(entry.bytes for entry in files),
        "sha256": exported.manifest.sha256,
    }
