"""`sterna delete`: remove resources from a broker."""

from functools import partial
from typing import Annotated, Any

import typer

from sterna import admin
from sterna.cli import asking, options
from sterna.cli.destinations import by_any_name, resource_kind, spoken
from sterna.cli.exits import Exit, complain, describe, usage
from sterna.cli.output import Column, Format, print_rows
from sterna.cli.running import run as run_loop
from sterna.cli.servers import THIS_MACHINE, Server
from sterna.errors import ExistenceError, NoSuchDestinationError, NoSuchSubscriptionError, SternaError

EXAMPLES = options.examples("sterna delete queue orders", "sterna delete bridge delays archive --yes --idempotent")

_KINDS = ("Queue", "Topic", "Bridge", "DurableSubscription", "Store", "ConnectionFactory", "Broker")
_COLUMNS = (Column("KIND", "kind", is_word=True), Column("NAME", "name"), Column("MESSAGES", "messages", "right"))


def delete(
    kind: options.Kind,
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="The resources' names.")],
    with_messages: Annotated[
        bool, typer.Option("--with-messages", help="Also those that hold messages, which are lost.")
    ] = False,
    idempotent: Annotated[bool, typer.Option("--idempotent", help="What is not there counts as deleted.")] = False,
    yes: options.Yes = False,
    output: options.Output = Format.TABLE,
    server: Server = THIS_MACHINE,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Delete resources; what still holds messages only with --with-messages.

    A topic's messages are those that durable subscriptions to it hold, which stay themselves, emptied. What those to a
    pattern hold of it stays with them.

    Asks first, saying how many messages would go. Ends with 3 when only some could be deleted.
    """
    wanted = resource_kind(kind, among=_KINDS)
    run_loop(_delete(wanted, names, server, timeout, output, with_messages, idempotent, yes))


async def _delete(
    kind: str,
    names: list[str],
    server: Server,
    timeout: float,
    output: Format,
    with_messages: bool,
    idempotent: bool,
    yes: bool,
) -> None:
    async with server.admin(timeout=timeout) as client:
        if not yes:
            held = await _held(client, kind, names)
            asking.confirm(_question(kind, names, held, with_messages=with_messages), yes=yes)
        deleted: list[dict[str, Any]] = []
        failures: list[SternaError] = []
        for name in names:
            try:
                messages = await by_any_name(kind, name, partial(client.delete, kind, with_messages=with_messages))
                deleted.append({"kind": kind, "name": name, "messages": messages})
            except ExistenceError as error:
                if not (idempotent and _is_absence(error)):
                    failures.append(error)
    if len(failures) == 1 and not deleted:
        raise failures[0]
    if deleted or output is not Format.TABLE:
        print_rows(deleted, _COLUMNS, output)
    for failure in failures:
        complain(describe(f"error {failure.code.name}", failure.cause, failure.remedy))
    if failures:
        raise typer.Exit(Exit.PARTIAL if deleted else Exit.ERROR)


def _question(kind: str, names: list[str], held: int, *, with_messages: bool) -> str:
    """What is asked; nobody is asked for what the broker would refuse in any case."""
    what = f"{spoken(kind)} {', '.join(names)}"
    if held and not with_messages and len(names) == 1:
        raise usage(f"{what} holds {held:,} messages", "take them out, or lose them too by --with-messages")
    if held and with_messages:
        return f"Delete {what}, with {held:,} messages?"
    stays = f" What holds messages stays ({held:,} in all) without --with-messages." if held else ""
    return f"Delete {what}?{stays}"


async def _held(client: admin.Admin, kind: str, names: list[str]) -> int:
    """How many messages the resources hold; those that do not exist hold none."""
    held = 0
    for name in names:
        try:
            found = (await by_any_name(kind, name, partial(client.resource, kind))).statistics
            own = found.messages + found.redelivery_delayed_messages
            held += found.durable_messages if kind == "Topic" else own
        except ExistenceError as error:
            if not _is_absence(error):
                raise
    return held


def _is_absence(error: ExistenceError) -> bool:
    return isinstance(error, NoSuchDestinationError | NoSuchSubscriptionError)
