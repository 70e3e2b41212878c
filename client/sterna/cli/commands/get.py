"""`sterna get`: resources and what they hold, connections, the broker's statistics."""

import dataclasses
import datetime
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer

from sterna.cli import options
from sterna.cli.destinations import by_any_name, resource_kind
from sterna.cli.output import Column, Format, Row, at, camel_keys, print_rows
from sterna.cli.running import run as run_loop
from sterna.cli.servers import THIS_MACHINE, Server
from sterna.inventory import BrokerStatistics, ConnectionInfo, Resource

EXAMPLES = options.examples("sterna get queues", "sterna get queue orders -o yaml", "sterna get topics 'flights.>'")


def _when(path: str) -> Any:
    """A column's time, from milliseconds."""

    def text(row: Row) -> str:
        milliseconds = at(row, path)
        if not milliseconds:
            return ""
        moment = datetime.datetime.fromtimestamp(milliseconds / 1_000, datetime.UTC)
        return moment.strftime("%Y-%m-%d %H:%M:%SZ")

    return text


def _source(row: Row) -> str:
    return _place(at(row, "spec.source"))


def _targets(row: Row) -> str:
    targets = at(row, "spec.targets") or []
    return ", ".join(_place(one) + (f" where {one['selector']}" if one.get("selector") else "") for one in targets)


def _place(end: Any) -> str:
    return next((f"{kind}:{end[kind]}" for kind in ("queue", "topic") if end and kind in end), "")


_NAME = Column("NAME", "status.name")
_ORIGIN = Column("ORIGIN", "status.origin", rank=4)
_MESSAGES = Column("MESSAGES", "status.statistics.messages", "right")
_BYTES = Column("BYTES", "status.statistics.bytes", "right", rank=2)
_UNACKNOWLEDGED = Column("UNACKED", "status.statistics.deliveredMessages", "right", rank=1)
_PRODUCERS = Column("PRODUCERS", "status.statistics.producers", "right", rank=3)
_CONSUMERS = Column("CONSUMERS", "status.statistics.consumers", "right", rank=2)
_HOME = Column("HOME", "status.home")
_OLDEST = Column("OLDEST", _when("status.statistics.oldestMs"), rank=5)

_COLUMNS: dict[str, Sequence[Column]] = {
    "Queue": (_NAME, _ORIGIN, _MESSAGES, _BYTES, _UNACKNOWLEDGED, _PRODUCERS, _CONSUMERS, _OLDEST),
    "Topic": (
        *(_NAME, _ORIGIN, Column("SUBSCRIPTIONS", "status.statistics.subscriptions", "right")),
        *(_PRODUCERS, _MESSAGES, _BYTES, Column("PUBLISHED", "status.statistics.publishedTotal", "right", rank=3)),
        # What would go with it, and keeps it until that is asked for.
        Column("IN DURABLES", "status.statistics.durableMessages", "right", rank=4),
    ),
    "Bridge": (_NAME, Column("SOURCE", _source), Column("TARGETS", _targets)),
    "DurableSubscription": (
        *(_NAME, Column("CLIENT", "spec.clientId", rank=6), Column("TOPIC", "spec.topic")),
        *(Column("SHARED", "spec.shared", rank=3), Column("SELECTOR", "spec.selector", rank=5)),
        *(_ORIGIN, _MESSAGES, _BYTES, _UNACKNOWLEDGED, _CONSUMERS),
    ),
    "Store": (_NAME, Column("MODE", "spec.mode"), _MESSAGES, _BYTES, Column("QUOTA", "spec.quotaBytes", "right")),
    "ConnectionFactory": (
        *(_NAME, Column("URL", "spec.url"), Column("CLIENT", "spec.clientId", rank=3)),
        Column("ALIASES", lambda row: ", ".join(at(row, "spec.aliases") or ()), rank=2),
    ),
    "Broker": (_NAME, _ORIGIN, Column("LISTENERS", "spec.listeners"), Column("LIMITS", "spec.limits")),
    "Connection": (
        *(
            Column("ID", "id", "right"),
            Column("CLIENT", "clientId"),
            Column("USER", "user", rank=3),
            Column("PRODUCT", "product", rank=6),
        ),
        *(
            Column("HOST", "host", rank=5),
            Column("PEER", "peer", rank=4),
            Column("SESSIONS", "sessions", "right", rank=3),
        ),
        *(Column("PRODUCERS", "producers", "right", rank=2), Column("CONSUMERS", "consumers", "right", rank=2)),
        *(
            Column("UNACKED", "unacknowledgedMessages", "right"),
            Column("UNCOMMITTED", "uncommittedMessages", "right", rank=3),
            Column("UNCOMMITTED BYTES", "uncommittedBytes", "right", rank=4),
            Column("CONNECTED", _when("connectedMs"), rank=6),
        ),
    ),
    "Statistics": (Column("WHAT", "what"), Column("VALUE", "value", "right")),
}


def get(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="queue, topic, bridge, durable, store, factory, broker, connection or statistics."
        ),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="One name, or a pattern with * and >.")] = "",
    temporaries: Annotated[bool, typer.Option("--temporaries", help="Temporary destinations, too.")] = False,
    system: Annotated[bool, typer.Option("--system", help="Destinations of the broker itself ($sys.), too.")] = False,
    output: options.Output = Format.TABLE,
    server: Server = THIS_MACHINE,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
) -> None:
    """Show resources and what they hold, connections, or the broker's statistics.

    JSON and YAML carry the whole resource: its manifest, and under status what the broker knows of it.

    In a cluster, one name is asked for where it lives. A list comes from one broker: what lives on others is in it with
    its home, and without figures, and what clients made on others is not.
    """
    wanted = resource_kind(kind)
    rows = run_loop(_rows(wanted, name, server, timeout, temporaries=temporaries, system=system or "$sys" in name))
    single = (bool(name) and not is_pattern(name)) or wanted == "Statistics"
    if wanted == "Statistics" and output is Format.TABLE:
        rows = [{"what": what, "value": value} for what, value in _flat(rows[0])]
    # A broker of a cluster lists what lives on others too, and knows how much there is only of its own.
    elsewhere = (_HOME,) if any(at(row, "status.home") for row in rows) else ()
    print_rows(rows, (*_COLUMNS[wanted], *elsewhere), output, single=single)


def is_pattern(name: str) -> bool:
    """Whether a name has a wildcard element."""
    return any(element in ("*", ">") for element in name.split("."))


def document(resource: Resource) -> dict[str, Any]:
    """A resource as a document: its manifest, and what the broker says of it under `status`."""
    manifest = resource.manifest or {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": resource.kind,
        "metadata": {"name": resource.name},
    }
    found = resource.known_statistics
    status = {
        "name": resource.name,
        "origin": resource.origin.value,
        "owner": resource.owner,
        "generation": resource.generation,
        "effective": resource.effective,
        **({"home": resource.home} if resource.home else {}),
        **({} if found is None else {"statistics": camel_keys(dataclasses.asdict(found))}),
    }
    return {**manifest, "status": status}


async def _rows(
    kind: str, name: str, server: Server, timeout: float, *, temporaries: bool, system: bool
) -> list[dict[str, Any]]:
    async with server.admin(timeout=timeout) as client:
        if kind == "Statistics":
            statistics: BrokerStatistics = await client.statistics()
            return [camel_keys(dataclasses.asdict(statistics))]
        if kind == "Connection":
            connections: list[ConnectionInfo] = await client.connections()
            return [
                camel_keys(dataclasses.asdict(one)) for one in connections if name in ("", str(one.id), one.client_id)
            ]
        if name and not is_pattern(name):
            return [document(await by_any_name(kind, name, partial(client.resource, kind)))]
        found = await client.resources(kind, name, temporaries=temporaries, system=system)
        return [document(one) for one in found]


def _flat(values: Row, prefix: str = "") -> list[tuple[str, Any]]:
    """Nested statistics as lines, for a table."""
    lines: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            lines.extend(_flat(value, f"{prefix}{key}."))
        elif isinstance(value, list | tuple):
            for item in value:
                lines.extend(_flat(item, f"{prefix}{key}.{item.get('name', '')}."))
        else:
            lines.append((prefix + key, value))
    return lines
