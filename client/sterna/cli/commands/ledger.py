"""`sterna ledger`: what clients wrote down of what they sent and received: see it, check it, bring it to audits."""

from collections import Counter
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sterna import ledger
from sterna.cli import options
from sterna.cli.commands.snapshot import audits, opened_store
from sterna.cli.exits import CommandError, complain
from sterna.cli.output import Column, Format, Printer, camel_keys, print_rows
from sterna.errors import LedgerDamagedError, LedgerError

if TYPE_CHECKING:
    from sterna_audit.pushing import Pushed

app = typer.Typer(
    help="Ledgers of clients: see what they say, check them, bring them to where audits are.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_SHOWN = (
    Column("RECORD", "record", width=13),
    Column("MESSAGES", lambda row: _messages(row), width=52),
    Column("ABOUT", lambda row: _about(row)),
)
_VERIFIED = (
    *(Column("FILE", "file"), Column("STATE", "state"), Column("CLIENT", "clientId")),
    *(Column(title, title.lower(), "right") for title in ("SENT", "CONFIRMED", "RECEIVED")),
    *(Column("TORN", "tornBytes", "right"), Column("CAUSE", "cause")),
)

_PUSHED = (
    *(Column("FILE", "file"), Column("STATE", "state"), Column("THERE", "path"), Column("BYTES", "bytes", "right")),
    *(Column("BEFORE", lambda row: "yes" if row["wasThere"] else ""), Column("CAUSE", "cause")),
)


@app.command(
    epilog=options.examples(
        "sterna ledger show ledger/billing-411-1795467739439-1.ledger", "sterna ledger show F -o jsonl"
    )
)
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A ledger's file.")],
    output: options.Output = Format.TABLE,
) -> None:
    """Show the records of a file, in the order in which they were written."""
    reading = ledger.read(file)
    printer = Printer(output, _SHOWN, streaming=True)
    for record in reading:
        printer.add(camel_keys(_row(record)))
    printer.close()
    if reading.torn_bytes:
        complain(f"{file}: its last {reading.torn_bytes} bytes were being written when its process ended: cut off")


@app.command(epilog=options.examples("sterna ledger verify ledger/*.ledger", "sterna ledger verify F -o json"))
def verify(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Ledgers' files.")],
    output: options.Output = Format.TABLE,
) -> None:
    """Read files to their ends, and say of each whether it is whole: closed, open (or left so), torn or damaged.

    Exit code 1 when one of them is damaged, or cannot be read.
    """
    rows = [_verified(file) for file in files]
    print_rows(rows, _VERIFIED, output)
    damaged = [row["file"] for row in rows if row["cause"]]
    if damaged:
        raise CommandError(f"{len(damaged)} of {len(rows)} files cannot be trusted: {', '.join(damaged)}")


@app.command(
    epilog=options.examples(
        "sterna ledger push /var/lib/billing/ledger s3://audits/ledgers --remove", "sterna ledger push ledger /ledgers"
    )
)
def push(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where clients write them.", exists=True, file_okay=False)
    ],
    root: Annotated[str, typer.Argument(metavar="URI", help="Where to: a folder, or s3://BUCKET/PREFIX.")],
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove closed files from the folder when they are there.")
    ] = False,
    output: options.Output = Format.TABLE,
) -> None:
    """Bring ledgers to where audits find them. Run it again and again: what is there already is not brought anew.

    Files that are still written are brought as far as they are. Exit code 1 when one is damaged, or cannot be read.
    """
    with audits():
        from sterna_audit.pushing import push as pushing

        rows = [_pushed(one) for one in pushing(folder, opened_store(root), removes=remove)]
    print_rows(rows, _PUSHED, output)
    damaged = [row["file"] for row in rows if row["cause"]]
    if damaged:
        raise CommandError(f"{len(damaged)} of {len(rows)} files cannot be trusted: {', '.join(damaged)}")


def _pushed(one: "Pushed") -> dict[str, Any]:
    return {
        "file": str(one.file),
        "state": one.state,
        "path": one.path,
        "bytes": one.size,
        "wasThere": one.was_there,
        "removed": one.removed,
        "cause": one.why,
    }


def _verified(file: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"file": str(file), "state": "damaged", "clientId": ""}
    counts: Counter[str] = Counter()
    torn_bytes, cause = 0, ""
    try:
        reading = ledger.read(file)
        row["clientId"] = reading.head.get("client_id", "")
        for record in reading:
            counts[record.kind] += record.last - record.first + 1 if isinstance(record, ledger.Confirmed) else 1
        torn_bytes = reading.torn_bytes
        row["state"] = reading.state
    except LedgerDamagedError as error:
        cause = error.cause
    except LedgerError as error:
        row["state"], cause = "unreadable", error.cause
    said = {name: counts[name] for name in ("sent", "confirmed", "received")}
    return {**row, **said, "tornBytes": torn_bytes, "cause": cause}


def _row(record: Any) -> dict[str, Any]:
    """A record as JSON has it: with the message's id, and the names of what it belongs to beside it."""
    row: dict[str, Any] = {"record": record.kind}
    for one in fields(record):
        value = getattr(record, one.name)
        if one.name in ("link", "producer", "consumer") and is_dataclass(value):
            row.update({name: found for name, found in _row(value).items() if name not in row and name != "time_ms"})
        else:
            row[one.name] = value.hex() if isinstance(value, bytes) else value
    if record.kind == "sent":
        row["message_id"] = record.message_id
    return row


def _messages(row: Any) -> str:
    match row["record"]:
        case "sent" | "received":
            return str(row["messageId"])
        case "link" | "producer" | "consumer" | "transaction" | "acknowledged":
            return str(row.get("prefix") or row.get("number") or row.get("transaction") or "")
        case "acknowledging":
            return f"source {row['source']}: {row['first']} to {row['last']}"
        case _:
            return f"{row['prefix']}{row['first']} to {row['last']}"


_TOLD = {
    "link": ("broker", "address", "epoch", "clientId"),
    "producer": ("destination", "name", "session"),
    "consumer": ("destination", "subscription", "source", "session"),
    "sent": ("destination", "size", "checksum", "transaction"),
    "confirmed": ("durability", "arrivedMs"),
    "refused": ("code", "isFinal"),
    "in_doubt": ("code",),
    "received": ("source", "sequence", "isRedelivered", "deliveryCount"),
    "acknowledging": ("number", "transaction", "session"),
    "acknowledged": ("outcome", "code"),
    "transaction": ("session", "outcome", "durability"),
}


def _about(row: Any) -> str:
    told = ((name, row.get(name)) for name in _TOLD.get(row["record"], ()))
    return " ".join(f"{name}={value}" for name, value in told if value not in (None, "", 0) or value is False)
