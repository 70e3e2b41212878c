"""`sterna lookup`: what a name leads to, as programs are told."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from sterna.cli import options
from sterna.cli.output import Column, Format, Row, print_rows
from sterna.cli.running import run as run_loop
from sterna.cli.servers import THIS_MACHINE, Server

EXAMPLES = options.examples("sterna lookup BillingFactory", "sterna lookup orders --kind queue -o json")

_COLUMNS = (Column("KIND", "kind", is_word=True), Column("NAME", "name"), Column("URL", "url"))


class LookedUp(StrEnum):
    """What may be looked up."""

    ANY = "any"
    FACTORY = "factory"
    QUEUE = "queue"
    TOPIC = "topic"


def lookup(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name, or an alias.")],
    kind: Annotated[
        LookedUp, typer.Option("--kind", metavar="KIND", help="factory, queue or topic, where several have the name.")
    ] = LookedUp.ANY,
    output: options.Output = Format.TABLE,
    server: Server = THIS_MACHINE,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Show what a name leads to: a connection factory, or a static queue or topic.

    What clients create by using it is not found. Ends with 4 where the name leads to nothing.
    """
    print_rows([run_loop(_lookup(name, kind, server, timeout))], _COLUMNS, output, single=True)


async def _lookup(name: str, kind: LookedUp, server: Server, timeout: float) -> Row:
    from sterna.destinations import Destination

    async with server.naming(timeout=timeout) as naming:
        ask = {LookedUp.FACTORY: naming.factory, LookedUp.QUEUE: naming.queue, LookedUp.TOPIC: naming.topic}
        found = await ask.get(kind, naming.lookup)(name)
    if isinstance(found, Destination):
        return {"kind": found.label, "name": found.name}
    return _row(found)


def _row(factory: Any) -> Row:
    """A factory, as its manifest writes it; what it does not say is left out."""
    reconnect, tls = factory.reconnect, factory.tls
    seconds = {
        "connectTimeoutMs": factory.connect_timeout_s,
        "reconnectGiveUpMs": reconnect and (reconnect.give_up_after_s or 0),
    }
    row = {
        "kind": "ConnectionFactory",
        "name": factory.name,
        "url": factory.url,
        "loadBalancing": factory.load_balancing,
        "clientId": factory.client_id or None,
        "connectAttempts": factory.connect_attempts,
        "connectDelayMs": factory.connect_delay_ms,
        "reconnectDelayMs": reconnect and reconnect.initial_ms,
        "reconnectDelayMaxMs": reconnect and reconnect.maximum_ms,
        "heartbeatMs": factory.heartbeat_ms,
        **{name: None if value is None else round(value * 1000) for name, value in seconds.items()},
    }
    if tls is not None:
        named = {
            "caFile": tls.ca,
            "certificateFile": tls.certificate,
            "keyFile": tls.key,
            "serverName": tls.server_name,
        }
        row["tls"] = {name: str(value) for name, value in named.items() if value}
    return {name: value for name, value in row.items() if value is not None}
