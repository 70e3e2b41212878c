"""What a broker has when all its clients are gone, and whether what it reports of that is what there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.world.brokers import Broker

#: What is counted of each destination and durable subscription, and what is left of none when nobody is connected.
_NOBODYS: Final = ("consumers", "producers", "delivered_messages")

#: Totals that an administrator sees of the broker, and where else: of its connections, of what it keeps.
_OF_CONNECTIONS: Final = ("sessions", "consumers", "producers")
_OF_KEEPERS: Final = ("messages", "bytes")

#: The names under which /metrics has them.
_METRICS: Final = {"bytes": "sterna_message_bytes"}


def left(broker: Broker) -> Iterator[str]:
    """What somebody has left at a broker to which nobody is connected any more."""
    for row in _foreign(broker):
        yield f"a connection is left: {row}"
    for kind, rows in _kept(broker).items():
        for row in rows:
            counted = {what: row["statistics"][what] for what in _NOBODYS if row["statistics"][what]}
            if counted:
                yield f"of the {kind} {row['name']} {counted} are left"
            if str(row["name"]).startswith("$TMP$"):
                yield f"a temporary destination is left: {row['name']}"
    assert broker.process is not None
    for task in broker.process.tasks:
        if task.get_name().startswith("rpc"):
            yield f"a call is left: {task.get_name()}"


def postponed(broker: Broker) -> bool:
    """Whether something was given back for later, and its time has not come."""
    kept = _kept(broker)
    return any(row["statistics"]["redelivery_delayed_messages"] for kind in ("queue", "durable") for row in kept[kind])


def disagreements(broker: Broker) -> Iterator[str]:
    """Where the totals that a broker reports are not the sums of what it lists."""
    totals, told = broker.statistics(), broker.metrics()
    connections = broker.connections()
    kept = _kept(broker)
    sums = {what: sum(int(row[what]) for row in connections) for what in _OF_CONNECTIONS}
    holding = [row for kind in ("queue", "durable") for row in kept[kind]]
    sums |= {what: sum(int(row["statistics"][what]) for row in holding) for what in _OF_KEEPERS}
    sums |= {f"{kind}s": len(kept[kind]) for kind in ("queue", "topic")}
    sums["connections"] = len(connections)
    for what, there in sums.items():
        if totals[what] != there:
            yield f"{broker.name} says that it has {totals[what]} {what}, and lists {there}"
        if (metric := told[_METRICS.get(what, f"sterna_{what}")]) != totals[what]:
            yield f"{broker.name} says that it has {totals[what]} {what}, and /metrics {metric}"
    assert broker.node is not None
    if broker.readyz()["ready"] != (broker.node.state == "serving" and not broker.readyz()["reasons"]):
        yield f"{broker.name} says that it is ready, or is not: {broker.readyz()}"


def _foreign(broker: Broker) -> list[dict[str, Any]]:
    return [row for row in broker.connections() if not str(row.get("peer", "")).startswith("internal:")]


def _kept(broker: Broker) -> dict[str, list[dict[str, Any]]]:
    return {kind: broker.listed(kind) for kind in ("queue", "topic", "durable")}
