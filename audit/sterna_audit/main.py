"""The command `sterna-audit`: runs audits over snapshots, and says by its exit status what they found.

Exit codes are those of `sterna snapshot verify`: 0 nothing is violated, 1 something went wrong, 2 usage, 4 there is
nothing to audit, 8 something is violated. With `--strict` 7: something is not provable.
"""

import enum
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sterna_audit.auditing import Tell
    from sterna_audit.audits.declared import Declarations
    from sterna_audit.audits.history import Bound
    from sterna_audit.audits.running import Run
    from sterna_audit.snapshots.keys import Verifier
    from sterna_audit.snapshots.layout import Place
    from sterna_audit.snapshots.stores import Store

_SHOWN = 20
_SETTING = re.compile(r"(spark\.[A-Za-z0-9._-]+)=(.*)", re.DOTALL)

app = typer.Typer(
    help="Audits over snapshots of brokers' stores: prove from outside that no message was lost.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Exit(enum.IntEnum):
    """What the exit code means; the numbers are those of `sterna`."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 4
    WARNING = 7
    VIOLATED = 8


class _UsageError(Exception):
    """The command was called in a way that makes no sense; the text says what."""


def _say(text: str) -> None:
    typer.echo(text, err=True)


@app.command("list")
def list_() -> None:
    """Show which audits there are, and what each proves."""
    from sterna_audit.audits import registry

    for audit in registry.audits():
        typer.echo(f"{audit.name:14} {audit.about}")


@app.command()
def run(
    snapshots: Annotated[
        str, typer.Option("--snapshots", metavar="URI", help="Where they are: a folder, or s3://BUCKET/PREFIX.")
    ],
    out: Annotated[
        str,
        typer.Option("--out", metavar="URI", help="Where to the findings go; those of an earlier run are replaced."),
    ],
    first: Annotated[
        str,
        typer.Option("--from", metavar="CUT|TIME", help="From this cut on, or each broker's last one up to a time."),
    ] = "",
    last: Annotated[
        str, typer.Option("--to", metavar="CUT|TIME", help="Up to this cut, which has to be there, or up to a time.")
    ] = "",
    jobs: Annotated[str, typer.Option("--jobs", metavar="NAMES", help="These audits alone, with commas.")] = "",
    ledgers: Annotated[
        str, typer.Option("--ledgers", metavar="URI", help="Where clients' ledgers are, at any depth.")
    ] = "",
    manifests: Annotated[
        Path | None,
        typer.Option(
            "--manifests", metavar="PATH", help="What the configuration should be: a file of manifests, or a folder."
        ),
    ] = None,
    cluster: Annotated[str, typer.Option("--cluster", metavar="NAME", help="Of this cluster alone.")] = "",
    broker: Annotated[str, typer.Option("--broker", metavar="NAME", help="Of this broker alone.")] = "",
    key: Annotated[
        list[Path] | None,
        typer.Option("--key", metavar="FILE", help="A public key in PEM whose signatures count; several are possible."),
    ] = None,
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="Signatures are not looked at, and need not be there.")
    ] = False,
    master: Annotated[str, typer.Option("--master", metavar="URL", help="Where Spark runs.")] = "local[*]",
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Of the driver, as 3g.")] = "",
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; several are possible.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="End with 7 when something is not provable.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say the verdict alone.")] = False,
) -> None:
    """Run audits, and write what they find into OUT: report.html, findings.json, and all findings as Parquet.

    Ends with 8 when something is violated, and with 4 when there is nothing to audit.
    """
    tell = (lambda _: None) if quiet else _say
    with _told():
        from sterna_audit import auditing
        from sterna_audit.audits import registry

        begin, end = _bound("--from", first), _bound("--to", last)
        if begin is not None and end is not None and begin.is_after(end):
            raise _UsageError("--from is after --to")
        store = _store("--snapshots", snapshots)
        what = auditing.Auditing(
            audits=registry.audits([name.strip() for name in jobs.split(",") if name.strip()]),
            snapshots=store,
            verifier=_verifier(key, unsigned=unsigned),
            out=_store("--out", out),
            ledgers=_store("--ledgers", ledgers) if ledgers else None,
            start=begin,
            end=end,
            manifests=_manifests(manifests, tell),
            places=_places(store, cluster, broker),
        )
        where = auditing.Spark(master, memory, _settings(conf or []))
        done = auditing.run(what, where, tell)
    _show(done, auditing.report(what.out), quiet=quiet)
    raise typer.Exit(_exit_code(done, strict=strict))


@app.command()
def job(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="What to do, as JSON.")],
    name: Annotated[
        str,
        typer.Option("--run", metavar="NAME", envvar="STERNA_AUDIT_RUN", help="The run: repeated it changes nothing."),
    ],
    result_file: Annotated[
        Path | None,
        typer.Option(
            "--result-file", metavar="FILE", help="Where to its result goes; else /dev/termination-log, if it is there."
        ),
    ] = None,
) -> None:
    """Do all that a file asks for: take snapshots of brokers, audit them, remove what is too old, and keep the result.

    For a schedule: what is broken off is repeated under the same name and goes on. Ends with 8 when something is
    violated, with 1 when it failed, with 2 when the file is wrong, and else with 0.
    """
    from sterna_audit.job import command

    raise typer.Exit(command.run(config, name, result_file, _say))


@contextmanager
def _told() -> Iterator[None]:
    """What a command ends with when it cannot go on."""
    from pyspark.errors import PySparkException

    from sterna_audit.auditing import OutError
    from sterna_audit.audits.history import HistoryError
    from sterna_audit.audits.registry import AuditError
    from sterna_audit.java import JavaError
    from sterna_audit.snapshots.keys import KeyFileError
    from sterna_audit.snapshots.stores import StoreError
    from sterna_audit.spark import SparkError, first_line

    try:
        yield
    except (AuditError, KeyFileError, _UsageError) as error:
        _say(str(error))
        raise typer.Exit(Exit.USAGE) from None
    except OutError as error:
        _say(f"--out: {error}")
        raise typer.Exit(Exit.USAGE) from None
    except HistoryError as error:
        _say(str(error))
        raise typer.Exit(Exit.NOT_FOUND) from None
    except (StoreError, JavaError, SparkError) as error:
        _say(str(error))
        raise typer.Exit(Exit.ERROR) from None
    except PySparkException as error:
        _say(f"Spark: {first_line(error)}")
        raise typer.Exit(Exit.ERROR) from None


def _verifier(key: list[Path] | None, *, unsigned: bool) -> "Verifier | None":
    from sterna_audit.snapshots.keys import read_verifier

    if unsigned:
        if key:
            raise _UsageError("--key and --unsigned contradict one another")
        return None
    if not key:
        raise _UsageError("whose signatures count? --key FILE, or --unsigned if there need be none")
    return read_verifier(key)


def _bound(option: str, text: str) -> "Bound | None":
    from sterna_audit.audits.history import bound

    try:
        return bound(text) if text else None
    except ValueError as error:
        raise _UsageError(f"{option}: {error}") from None


def _store(option: str, uri: str) -> "Store":
    from sterna_audit.snapshots.stores import open_store

    try:
        return open_store(uri)
    except ValueError as error:
        raise _UsageError(f"{option}: {error}") from None


def _manifests(path: Path | None, tell: "Tell") -> "Declarations | None":
    from sterna_resources.problems import ManifestError

    from sterna_audit.audits import declared

    if path is None:
        return None
    try:
        found = declared.read(path)
    except ManifestError as error:
        raise _UsageError(f"--manifests:\n{error}") from None
    foreign = f"; {found.foreign} documents that are not Sterna's are passed over" if found.foreign else ""
    tell(f"{len(found.manifests)} manifests are in {path}{foreign}")
    return found


def _places(store: "Store", cluster: str, broker: str) -> "list[Place]":
    from sterna_audit.audits.history import HistoryError
    from sterna_audit.snapshots import reading

    found = [one for one in reading.places(store) if cluster in ("", one.cluster) and broker in ("", one.broker)]
    if not found:
        of = " of ".join(filter(None, (broker, cluster)))
        raise HistoryError(f"there are no snapshots{f' of {of}' if of else ''} in {store.uri}")
    return found


def _settings(conf: list[str]) -> dict[str, str]:
    found = {}
    for text in conf:
        matched = _SETTING.fullmatch(text)
        if matched is None:
            raise _UsageError(f"--conf: {text!r} is not as spark.name=value")
        found[matched[1]] = matched[2]
    return found


def _show(done: "Run", path: str, *, quiet: bool) -> None:
    from sterna_audit.audits import running

    if not quiet:
        for name, finding in running.worst(done, _SHOWN):
            where = "/".join(filter(None, (finding.cluster, finding.broker)))
            about = " ".join(filter(None, (where, finding.object, finding.message)))
            typer.echo(f"{finding.verdict}: {name}: {finding.what}: {about}: {finding.why}")
        typer.echo(f"report: {path}")
    typer.echo(f"verdict: {done.verdict}{' (an audit did not come to its end)' if done.has_failed else ''}")


def _exit_code(done: "Run", *, strict: bool) -> Exit:
    if done.verdict == "violated":
        return Exit.VIOLATED
    if done.has_failed:
        return Exit.ERROR
    return Exit.WARNING if strict and done.verdict == "not provable" else Exit.OK


def main() -> None:
    """The entry point."""
    app()


if __name__ == "__main__":
    main()
