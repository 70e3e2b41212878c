"""Metrics of single places where messages wait: queues, topics and durable subscriptions, the fullest of each."""

import heapq
import json
from collections.abc import Iterator
from typing import Any

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from sterna_broker.pump import Pump
from sterna_broker.server.listing import ENGINE_KINDS
from sterna_broker.surroundings import wall_ms

# So many of each kind are looked at; a page that took them all would hold up the broker.
_EXAMINED_MAX = 2_000

_HELD = {
    "messages": ("messages", "Messages {} holds."),
    "unacknowledged_messages": (
        "delivered_messages",
        "Messages that consumers of {} were given and have not acknowledged.",
    ),
    "oldest_seconds": ("oldest_seconds", "How long the oldest message that waits at {} has waited; 0: none does."),
    "consumers": ("consumers", "Consumers of {}."),
}
_DESTINATION_GAUGES = {
    **_HELD,
    "bytes": ("bytes", "Bytes {} holds."),
    "delayed_messages": ("delayed_messages", "Messages that wait at {} for their senders' delay."),
    "flow_controlled_sessions": (
        "flow_controlled_sessions",
        "Sessions whose messages wait for flowControlBytes of {}.",
    ),
}
_DESTINATION_COUNTERS = {
    "published": ("published_total", "Messages published to {} since the start."),
    "delivered": ("delivered_total", "Messages delivered from {} since the start."),
    "acknowledged": ("acknowledged_total", "Messages acknowledged at {} since the start."),
    "redelivered": ("redelivered_total", "Messages delivered again from {} since the start."),
    "expired": ("expired_total", "Messages that have expired at {} since the start."),
    "discarded": ("discarded_total", "Messages discarded at {} to make room since the start."),
    "undelivered": ("undelivered_total", "Messages moved from {} to an undelivered queue since the start."),
}


def places(pump: Pump, most: int) -> Iterator[Metric]:
    """Of queues and topics together, then of durable subscriptions: so many of each kind."""
    text = "Destinations and durable subscriptions with figures here."
    listed = GaugeMetricFamily("sterna_destinations_listed", text, labels=["kind"])
    rows = [(kind, row) for kind in ("Queue", "Topic") for row in _fullest(pump, kind, most)]
    durables = _fullest(pump, "DurableSubscription", most)
    for kind in ("Queue", "Topic"):
        listed.add_metric([kind], sum(found == kind for found, _ in rows))
    listed.add_metric(["DurableSubscription"], len(durables))
    yield listed
    labelled = [((kind, str(row["name"])), row) for kind, row in rows]
    labels = ["kind", "name"]
    yield from _families(
        "sterna_destination_", "a destination", GaugeMetricFamily, _DESTINATION_GAUGES, labels, labelled
    )
    yield from _families(
        "sterna_destination_", "a destination", CounterMetricFamily, _DESTINATION_COUNTERS, labels, labelled
    )
    labelled = [((str(row["client_id"]), str(row["name"])), row) for row in durables]
    labels = ["client_id", "name"]
    yield from _families("sterna_durable_", "a durable subscription", GaugeMetricFamily, _HELD, labels, labelled)


def _families(
    prefix: str,
    place: str,
    family: Any,
    table: dict[str, tuple[str, str]],
    labels: list[str],
    rows: list[tuple[tuple[str, str], dict[str, Any]]],
) -> Iterator[Metric]:
    for name, (field, text) in table.items():
        made = family(prefix + name, text.format(place), labels=labels)
        for values, row in rows:
            made.add_metric(values, row.get(field, 0))
        yield made


def _fullest(pump: Pump, kind: str, most: int) -> list[dict[str, Any]]:
    """Those that hold the most, temporaries left out: their names mean nothing to anybody and never come again."""
    return heapq.nlargest(most, _rows(pump, kind), key=lambda row: row["messages"])


def _rows(pump: Pump, kind: str) -> Iterator[dict[str, Any]]:
    now_ms = wall_ms()
    for row in json.loads(pump.tick().list(ENGINE_KINDS[kind], "", "", _EXAMINED_MAX)):
        if row["origin"] == "temporary":
            continue
        figures = row["statistics"]
        oldest_ms = figures["oldest_ms"]
        waited_s = max(0, now_ms - oldest_ms) / 1000 if oldest_ms else 0
        yield {"name": row["name"], "client_id": row.get("client_id", ""), "oldest_seconds": waited_s, **figures}
