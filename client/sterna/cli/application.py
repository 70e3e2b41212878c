"""The typer application: which commands there are, and how their errors end the process.

One module of `commands/` for each command; a group of commands on one noun (`ctx`, `user`) will be a typer of its own,
added here the same way. Commands raise; `run` turns what they raise into a line for people and an exit code for
scripts.
"""

import os
import sys

import typer

from sterna.cli.commands import (
    apply,
    bench,
    broker,
    browse,
    context,
    create,
    delete,
    explain,
    get,
    hash_password,
    ledger,
    lookup,
    purge,
    receive,
    send,
    snapshot,
    snapshot_create,
)
from sterna.cli.exits import CommandError, Exit, PartlyDoneError, complain, describe, exit_code_of, is_unreachable
from sterna.cli.running import Terminated
from sterna.cli.servers import with_server
from sterna.errors import SternaError

EXIT_CODES = (
    "Exit codes: 0 ok, 1 error, 2 usage, 3 partly done, 4 not found, 5 denied, 6 unreachable, "
    "7 not as described (diff, snapshot prune), 8 a fault found (snapshot verify), "
    "130 and 143 ended by Ctrl-C and SIGTERM. "
    "Only data goes to stdout; everything else to stderr. `sterna explain CODE` says what to do about an error."
)

app = typer.Typer(
    name="sterna",
    help="Send, receive and administer messages of a Sterna broker.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_MESSAGES = "Messages"
_ADMINISTRATION = "Administration"

# Each flag has a twin in the environment: STERNA_BROKER_DATA for --data, and so on.
app.command(
    "broker",
    rich_help_panel="Brokers",
    epilog=broker.EXAMPLES,
    context_settings={"auto_envvar_prefix": "STERNA_BROKER"},
)(broker.broker)
app.add_typer(context.app, name="context", rich_help_panel="Brokers")
app.command("explain", rich_help_panel="Brokers", epilog=explain.EXAMPLES)(explain.explain)
app.command("hash-password", rich_help_panel="Brokers", epilog=hash_password.EXAMPLES)(hash_password.hash_password)
app.command("send", rich_help_panel=_MESSAGES, epilog=send.EXAMPLES)(with_server(send.send))
app.command("receive", rich_help_panel=_MESSAGES, epilog=receive.EXAMPLES)(with_server(receive.receive))
app.command("browse", rich_help_panel=_MESSAGES, epilog=browse.EXAMPLES)(with_server(browse.browse))
app.command("lookup", rich_help_panel=_MESSAGES, epilog=lookup.EXAMPLES)(with_server(lookup.lookup))
app.command("bench", rich_help_panel=_MESSAGES, epilog=bench.EXAMPLES)(with_server(bench.bench))
app.add_typer(ledger.app, name="ledger", rich_help_panel=_MESSAGES)
app.command("get", rich_help_panel=_ADMINISTRATION, epilog=get.EXAMPLES)(with_server(get.get))
app.command("create", rich_help_panel=_ADMINISTRATION, epilog=create.EXAMPLES)(with_server(create.create))
app.command("apply", rich_help_panel=_ADMINISTRATION, epilog=apply.EXAMPLES)(with_server(apply.apply))
app.command("diff", rich_help_panel=_ADMINISTRATION, epilog=apply.DIFF_EXAMPLES)(with_server(apply.diff))
app.command("delete", rich_help_panel=_ADMINISTRATION, epilog=delete.EXAMPLES)(with_server(delete.delete))
snapshot.app.command("create", epilog=snapshot_create.EXAMPLES)(with_server(snapshot_create.create))
app.add_typer(snapshot.app, name="snapshot", rich_help_panel=_ADMINISTRATION)
app.command("purge", rich_help_panel=_ADMINISTRATION, epilog=purge.EXAMPLES)(with_server(purge.purge))


def _print_version(wanted: bool) -> None:
    if wanted:
        from sterna._version import __version__

        sys.stdout.write(f"sterna {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", "-V", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Send, receive and administer messages of a Sterna broker."""


def run(arguments: list[str]) -> int:
    """Run the command line; returns the exit code."""
    try:
        app(arguments, prog_name="sterna")
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else Exit.ERROR
    except PartlyDoneError as error:
        code = _code_of(error.cause)
        complain(error.report)
        return Exit.PARTIAL if error.is_partly else code
    except (CommandError, SternaError, OSError, KeyboardInterrupt) as error:
        return _code_of(error)
    return Exit.OK


def _code_of(error: BaseException) -> int:
    """Says what ended a command; the exit code."""
    match error:
        case CommandError():
            complain(describe("error", str(error), error.remedy, error.__cause__))
            return error.exit_code
        case SternaError():
            return _refused(error)
        case BrokenPipeError():
            # The reader of a pipe left ("| head"): no fault of anybody's.
            _drop_output()
            return Exit.OK
        case OSError():
            # Files that are given are looked at by the commands; what is left is where the output goes.
            complain(describe("error", error.strerror or str(error), "look where the output goes: is there room?"))
            _drop_output()
            return Exit.ERROR
        case Terminated():
            return int(error.code or 0)
        case _:
            return 130


def _drop_output() -> None:
    """What is still buffered has nowhere to go; Python would try again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refused(error: SternaError) -> int:
    about = f"{error.subject}: " if error.subject and error.subject not in error.cause else ""
    if is_unreachable(type(error)):
        complain(describe("error UNREACHABLE", about + error.cause, error.remedy))
        return Exit.UNREACHABLE
    # What the SDK found by itself has no code: `sterna explain` knows it by its class.
    name = error.code.name if error.code else type(error).__name__
    complain(describe(f"error {name}", about + error.cause, error.remedy))
    return exit_code_of(error.code.name)
