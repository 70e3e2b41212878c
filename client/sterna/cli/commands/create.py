"""`sterna create`: one queue, topic or connection factory, without writing a manifest.

What it makes is what `sterna apply` makes of the manifest that the arguments stand for. Unlike that it never changes
what is there: who says create means that there is none.
"""

import hashlib
import json
import re
from typing import Annotated, Any, Final

import typer

from sterna import admin
from sterna.cli import options
from sterna.cli.destinations import resource_kind
from sterna.cli.exits import usage
from sterna.cli.output import Column, Format, print_rows
from sterna.cli.running import run as run_loop
from sterna.cli.servers import THIS_MACHINE, Server
from sterna.errors import NoSuchDestinationError
from sterna.inventory import Applied, Origin, Resource

EXAMPLES = options.examples(
    "sterna create queue orders --max-messages 10000",
    "sterna create topic 'prices.>' --set expirationMs=60000 --dry-run",
    "sterna create factory billing --url sterna://a:7222,b:7222 --alias BillingFactory",
)

_COLUMNS = (
    Column("KIND", "kind", is_word=True),
    Column("NAME", "name"),
    Column("CHANGE", options.change_shown, is_word=True),
)
# An object's name as Kubernetes takes it, as manifests have it.
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_OBJECT_NAME_CHARACTERS_MAX: Final = 253


def create(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="queue, topic or factory.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name; with * or > a wildcard entry.")],
    max_messages: Annotated[int | None, typer.Option("--max-messages", help="The most that may wait.")] = None,
    max_bytes: Annotated[int | None, typer.Option("--max-bytes", help="The most bytes that may wait.")] = None,
    expiration_ms: Annotated[
        int | None, typer.Option("--expiration-ms", help="How long a message may wait, in milliseconds.")
    ] = None,
    overflow_policy: Annotated[
        str | None,
        typer.Option("--overflow-policy", metavar="POLICY", help="default, discardOld or rejectIncoming."),
    ] = None,
    exclusive: Annotated[bool, typer.Option("--exclusive", help="A queue: all goes to one consumer.")] = False,
    store: Annotated[str | None, typer.Option("--store", metavar="NAME", help="The store that keeps it.")] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="A factory: where it connects, as sterna://a:7222,b:7222."),
    ] = None,
    aliases: Annotated[
        list[str] | None,
        typer.Option("--alias", metavar="NAME", help="Another name to look it up by; may be repeated."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Any other field of the manifest's spec; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, change nothing.")] = False,
    output: options.Output = Format.TABLE,
    server: Server = THIS_MACHINE,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Create a queue, topic or connection factory; one that is there already is never changed.

    One with these very properties is unchanged, which is no error; one with others is, and ends with 1.
    """
    wanted = resource_kind(kind, among=("Queue", "Topic", "ConnectionFactory"))
    given = {
        "maxMessages": max_messages,
        "maxBytes": max_bytes,
        "expirationMs": expiration_ms,
        "overflowPolicy": overflow_policy,
        "exclusive": exclusive or None,
        "store": store,
        "url": url,
        "aliases": aliases or None,
    }
    spec = {field: value for field, value in given.items() if value is not None}
    for setting in settings or ():
        field, value = _setting(setting)
        if field in spec:
            raise usage(f"{field} is given twice", "give it once")
        spec[field] = value
    applied = run_loop(_create(wanted, name, spec, server, timeout, dry_run=dry_run))
    row = {"kind": wanted, "name": name, "change": applied.change.value, "dryRun": dry_run}
    print_rows([row], _COLUMNS, output, single=True)


def _setting(text: str) -> tuple[str, Any]:
    """A field and its value: JSON where it is some, else text."""
    field, equals, value = text.partition("=")
    if not (field and equals):
        raise usage(f"'{text}' sets nothing", "write --set FIELD=VALUE, such as --set prefetch=10")
    if field == "name":
        raise usage("the name is the argument", "leave --set name=... out")
    try:
        return field, json.loads(value)
    except ValueError:
        return field, value


def _manifest(kind: str, name: str, spec: dict[str, Any], there: Resource | None) -> dict[str, Any]:
    """The manifest; of an object that is there already it has the name, which need not be the one made here."""
    static = there.manifest if there is not None and there.origin is Origin.STATIC else None
    called = str(static["metadata"]["name"]) if static else _object_name(name)
    return {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": called},
        "spec": spec if called == name else {"name": name, **spec},
    }


def _object_name(name: str) -> str:
    """An object's name made of a destination's: as it is, or with dashes for what Kubernetes would not take.

    Behind the latter stands a digest: `a_b` and `a-b` are two destinations, and two objects.
    """
    if len(name) <= _OBJECT_NAME_CHARACTERS_MAX and _OBJECT_NAME.fullmatch(name):
        return name
    kept = "".join(character if character.isascii() and character.isalnum() else "-" for character in name.lower())
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{kept.strip('-')[: _OBJECT_NAME_CHARACTERS_MAX - 9]}-{digest}".lstrip("-")


async def _create(
    kind: str, name: str, spec: dict[str, Any], server: Server, timeout: float, *, dry_run: bool
) -> Applied:
    """Makes it, and never changes what is there; one that is there and is the same will do."""
    async with server.admin(timeout=timeout) as client:
        text = json.dumps(_manifest(kind, name, spec, await _found(client, kind, name)))
        (applied,) = await client.apply(text, dry_run=dry_run, create_only=True, source="sterna create")
        if applied.error is not None:
            raise applied.error
        return applied


async def _found(client: admin.Admin, kind: str, name: str) -> Resource | None:
    try:
        return await client.resource(kind, name)
    except NoSuchDestinationError:
        return None
