"""`sterna hash-password`: a line for the users file of a broker, without the password being seen by anybody."""

import getpass
import sys
from typing import Annotated

import typer

from sterna.cli import options
from sterna.cli.exits import CommandError, usage

EXAMPLES = options.examples(
    "sterna hash-password",
    "sterna hash-password --user alice >> users.yaml",
    "head -c 24 /dev/urandom | base64 | tee password.txt | sterna hash-password",
)


def hash_password(
    user: Annotated[str, typer.Option("--user", "-u", metavar="NAME", help="Write 'NAME: HASH', a line of YAML.")] = "",
) -> None:
    """Make the argon2id hash of a password: typed at a prompt, or the first line of stdin."""
    try:
        from sterna_resources.passwords import hash_password as make
        from sterna_resources.passwords import user_fault

        if user and (fault := user_fault(user)):
            raise usage(f"the name {fault}", "choose another name")
        hashed = make(_password())
    except ModuleNotFoundError as error:
        raise CommandError(f"hashing needs {error.name}", remedy="pip install 'sterna[broker]'") from error
    except ValueError as error:
        raise usage(str(error)) from error
    sys.stdout.write(f"{_quoted(user)}: {hashed}\n" if user else f"{hashed}\n")


def _password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    first = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != first:
        raise usage("the two differ", "type the same password twice")
    return first


def _quoted(name: str) -> str:
    """A name as a key in YAML, always in quotes: `no` and `12` are words there, too."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
