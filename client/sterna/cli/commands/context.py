"""`sterna context`: brokers by name, with what it takes to connect to them, in a file of one's own."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sterna import contexts
from sterna.cli import options
from sterna.cli.exits import CommandError, usage
from sterna.cli.output import Column, Format, print_rows
from sterna.targets import Given, resolve

app = typer.Typer(
    help="Brokers by name: keep them, see them, choose one.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_COLUMNS = (
    Column("CURRENT", lambda row: "*" if row["current"] else ""),
    *(Column("NAME", "name"), Column("URL", "url"), Column("USER", "user"), Column("PASSWORD", "password")),
    *(Column("CA", "ca"), Column("CERT", "cert"), Column("SERVER NAME", "server_name")),
)
_FILES = ("password_file", "ca", "cert", "key")


@app.command("list", epilog=options.examples("sterna context list", "sterna context list -o json"))
def list_(output: options.Output = Format.TABLE) -> None:
    """Show all contexts; of passwords only where they come from."""
    known = contexts.load()
    print_rows([_row(one, known.current) for one in known.by_name.values()], _COLUMNS, output)


@app.command(epilog=options.examples("sterna context use production"))
def use(name: Annotated[str, typer.Argument(metavar="NAME", help="Which.")]) -> None:
    """Choose the context that commands use when they are told nothing else."""
    known = contexts.load()
    known.current = known.context(name).name
    _save(known)


@app.command(
    epilog=options.examples(
        "sterna context set production --server sternas://broker.example --user alice --password-file pw --ca ca.pem",
    )
)
def set(  # noqa: A001 - the command's name
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which; a new one needs --server.")],
    url: Annotated[str, typer.Option("--server", "-s", metavar="URL", help="The broker.")] = "",
    user: Annotated[str, typer.Option(metavar="NAME", help="Who connects.")] = "",
    password_file: Annotated[str, typer.Option(metavar="FILE", help="Where the password is.")] = "",
    ca: Annotated[str, typer.Option(metavar="FILE", help="The authority to trust, in PEM.")] = "",
    cert: Annotated[str, typer.Option(metavar="FILE", help="The certificate to show, in PEM.")] = "",
    key: Annotated[str, typer.Option(metavar="FILE", help="Its key, in PEM.")] = "",
    server_name: Annotated[str, typer.Option(metavar="NAME", help="The name in the broker's certificate.")] = "",
) -> None:
    """Make a context, or change what is given of one. The first one made is the one in use."""
    given = {"user": user, "password_file": password_file, "ca": ca, "cert": cert, "key": key}
    values = {name: str(Path(value).absolute()) if name in _FILES else value for name, value in given.items() if value}
    if server_name:
        values["server_name"] = server_name
    known = contexts.load()
    before = known.by_name.get(name)
    if before is None and not url:
        raise usage(f"there is no context {name} to change", "give --server to make it")
    if before is not None:
        kept = dict(before.values)
        if password_file:
            kept.pop("password", None)
        values = {**kept, **values}
    made = contexts.Context(name, url or (before.url if before else ""), values)
    resolve(made.url, Given.of(made.values))
    known.by_name[name] = made
    known.current = known.current or name
    _save(known)


def _save(known: contexts.Contexts) -> None:
    try:
        contexts.save(known)
    except OSError as error:
        raise CommandError(f"cannot write {known.path}", remedy="see who may write there") from error
    sys.stderr.write(f"{known.path}: in use is {known.current}\n")


def _row(one: contexts.Context, current: str) -> dict[str, Any]:
    shown = {name: one.values.get(name, "") for name in ("user", "ca", "cert", "server_name")}
    password = one.values.get("password_file") or ("set" if one.values.get("password") else "")
    # Options of a URL may hold a password.
    return {
        "name": one.name,
        "url": one.url.partition("?")[0],
        "current": one.name == current,
        **shown,
        "password": password,
    }
