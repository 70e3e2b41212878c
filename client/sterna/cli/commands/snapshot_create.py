"""`sterna snapshot create`: takes a cut of a broker's store and keeps it as a snapshot.

Broken off at any point and repeated, it goes on with the same cut: the broker keeps it until it hears that it was kept.
"""

import asyncio
import re
from contextlib import AsyncExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sterna._surroundings import monotonic_s
from sterna.admin import Admin
from sterna.cli import options
from sterna.cli.commands.snapshot import audits, opened_store, signer_of, taken_at
from sterna.cli.exits import CommandError, complain, usage
from sterna.cli.output import Column, Format, print_rows
from sterna.cli.progress import progress
from sterna.cli.running import run as run_loop
from sterna.cli.servers import THIS_MACHINE, Server
from sterna.cuts import Cut, HeldCut
from sterna.errors import ConflictError, InUseError

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
_RATE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([kMG]?)")
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_RATE_MIN = 100_000
# How long a call waits for the cut to be whole, and how soon it is looked again whether another exporter has ended.
_CALL_S = 10.0
_AGAIN_S = 1.0


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

    from sterna_audit.broker_source import BrokerSource
    from sterna_audit.exporting import export

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(server.admin(timeout=timeout))
        held = await _held(client, stack, monotonic_s() + wait, timeout)
        advance = stack.enter_context(progress(f"cut {held.cut.number} of {held.cut.broker}", held.cut.rows))
        options_ = replace(writing, progress=lambda so_far: advance(so_far.rows))
        return await export(BrokerSource(held), store, options_, verifier=verifier), held.cut


async def _held(client: Admin, stack: AsyncExitStack, until_s: float, timeout: float) -> HeldCut:
    """The cut that waits, or a new one, once it is whole and nobody else holds it."""
    while True:
        cut = await client.begin_cut(wait=max(0.0, min(_CALL_S, timeout / 2, until_s - monotonic_s())))
        if cut is not None:
            try:
                return await stack.enter_async_context(client.hold_cut(cut))
            except ConflictError:
                # Another exporter has kept it just now: the next one is ours.
                if monotonic_s() >= until_s:
                    raise
                continue
            except InUseError:
                if monotonic_s() + _AGAIN_S >= until_s:
                    raise
                await asyncio.sleep(_AGAIN_S)
        elif monotonic_s() >= until_s:
            raise CommandError(
                "the broker has not finished the cut in time", remedy="repeat the command, or give a longer --wait"
            )


def _privacy(principals: Principals, key: Path | None) -> "Privacy":
    from sterna_audit.privacy import Privacy, PrivacyError, read_key

    if principals is not Principals.HASHED:
        if key is not None:
            raise usage(
                f"--principals-key is for hashes, and principals are kept {principals}", "leave one of them out"
            )
        return Privacy("plain" if principals is Principals.PLAIN else "none")
    if key is None:
        raise usage(
            "principals and client ids are kept as keyed hashes, and there is no key",
            "give --principals-key FILE, or --principals plain or none",
        )
    try:
        return Privacy("hashed", read_key(key))
    except PrivacyError as error:
        raise usage(str(error)) from error


def _verifier(writing: "WriterOptions", keys: list[Path] | None) -> "Verifier | None":
    """Whose signatures count on what is there already: our own, and those that are named."""
    from sterna_audit.snapshots.keys import KeyFileError, Verifier, read_public_keys

    try:
        trusted = read_public_keys(keys or [])
    except KeyFileError as error:
        raise usage(str(error)) from error
    if writing.signer is not None:
        trusted.append(writing.signer.public_key)
    return Verifier(trusted) if trusted else None


def _bytes_per_second(rate: str) -> float | None:
    if not rate:
        return None
    found = _RATE.fullmatch(rate)
    if found is None or float(found[1]) * _UNITS[found[2]] < _RATE_MIN:
        raise usage(
            f"--rate is {rate[:40]!r}, and has to be a number of bytes from 100k on", "write it as 500k, 20M or 1G"
        )
    return float(found[1]) * _UNITS[found[2]]


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
