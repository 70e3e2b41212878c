"""`sterna purge`: drop the messages of a queue, of a topic's subscriptions, or of a durable subscription."""

from typing import Annotated

import typer

from sterna import admin
from sterna.cli import asking, options
from sterna.cli.destinations import durable_of, resource_kind, spoken
from sterna.cli.output import Column, Format, print_rows
from sterna.cli.running import run as run_loop
from sterna.cli.servers import THIS_MACHINE, Server

# What waits for its delivery delay is purged by its queue's or topic's name behind these.
_DELAYED, _DELAYED_OF_TOPIC = "$sys.delayed.q.", "$sys.delayed.t."

EXAMPLES = options.examples("sterna purge queue orders", "sterna purge durable audit --client-id auditor --yes")

_COLUMNS = (Column("KIND", "kind", is_word=True), Column("NAME", "name"), Column("PURGED", "messages", "right"))


def purge(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="queue, topic or durable.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")],
    client_id: options.ClientId = "",
    yes: options.Yes = False,
    output: options.Output = Format.TABLE,
    server: Server = THIS_MACHINE,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Drop all messages of a queue, a topic or a durable subscription, those being processed too.

    Of a topic: what every subscription to it holds, but for those to a pattern. Under '$sys.delayed.q.NAME'
    (kind queue) or '$sys.delayed.t.NAME' (kind topic): what waits there for its delivery delay. Asks first;
    of a queue or durable it says how many there are.
    """
    wanted = resource_kind(kind, among=("Queue", "Topic", "DurableSubscription"))
    run_loop(_purge(wanted, name, client_id, server, timeout, output, yes=yes))


async def _purge(
    kind: str, name: str, client_id: str, server: Server, timeout: float, output: Format, *, yes: bool
) -> None:
    async with server.admin(timeout=timeout) as client:
        owner, own = await durable_of(client, name, client_id) if kind == "DurableSubscription" else ("", "")
        if not yes and name.startswith(_DELAYED_OF_TOPIC):
            topic = name.removeprefix(_DELAYED_OF_TOPIC)
            asking.confirm(f"Drop what is delayed of topic {topic} in all subscriptions?", yes=yes)
        elif not yes and kind == "Topic":
            # What the broker counts for a topic has in it what subscriptions to patterns hold, which stays.
            asking.confirm(f"Drop what all subscriptions to topic {name} hold?", yes=yes)
        elif not yes:
            held = await _held(client, kind, f"{owner}/{own}" if own else name)
            asking.confirm(f"Drop {held:,} messages of {spoken(kind)} {name}?", yes=yes)
        if kind == "Queue":
            messages = await client.purge_queue(name)
        elif kind == "Topic":
            messages = await client.purge_topic(name)
        else:
            messages = await client.purge_durable(own, client_id=owner)
    print_rows([{"kind": kind, "name": name, "messages": messages}], _COLUMNS, output, single=True)


async def _held(client: admin.Admin, kind: str, name: str) -> int:
    """How many messages would go: all that it has, also what waits to come again; or, by that name, what is delayed."""
    if kind == "Queue" and name.startswith(_DELAYED):
        return (await client.resource(kind, name.removeprefix(_DELAYED))).statistics.delayed_messages
    found = (await client.resource(kind, name)).statistics
    return found.messages + found.redelivery_delayed_messages
