"""Prometheus metrics, collected from the engine when they are asked for.

Names follow Prometheus: base units, `_total` for what only grows. Figures of single destinations are given for those
that hold the most, so that a broker with a hundred thousand queues does not drown its monitoring; the sums are of
all.

| metric | labels | meaning |
|---|---|---|
| `sterna_info` | broker, version, store_id | 1 |
| `sterna_ready` | | 1 if /readyz would say so |
| `sterna_start_time_seconds` | | when the process started, seconds since 1970 |
| `sterna_epoch` | | grows with each start |
| `sterna_certificate_not_after_seconds` | | when the certificate ends, seconds since 1970; only with TLS |
| `sterna_etcd_followed` | | in a cluster: 1 while etcd is there and is the one that is known |
| `sterna_cluster_applied_revision`, `sterna_cluster_brokers`, `sterna_cluster_homes` | | in a cluster |
| `sterna_stray_destinations`, `sterna_stray_messages` | | in a cluster: what is here of names that live elsewhere |
| `sterna_resident_memory_bytes` | | memory of the process |
| `sterna_connections`, `sterna_sessions`, `sterna_producers`, `sterna_consumers` | | how many there are |
| `sterna_queues`, `sterna_topics`, `sterna_subscriptions` | | how many there are |
| `sterna_dangling_bridges` | | bridges with an end that no manifest describes |
| `sterna_messages`, `sterna_message_bytes` | | waiting, or delivered and not acknowledged |
| `sterna_published_total`, `sterna_delivered_total`, `sterna_acknowledged_total` | | messages since the start |
| `sterna_uploaded_bytes_total` | | of large bodies that came ahead of their messages, since the start |
| `sterna_uploads_resumed_total` | | such bodies that went on where a broken link had left them, since the start |
| `sterna_uploads_kept_bytes` | | what is kept of bodies whose link broke, for their clients to come back |
| `sterna_destroyed_total` | reason | messages since the start that are gone and nobody took; see below |
| `sterna_log_disk_bytes`, `sterna_log_free_bytes`, `sterna_log_segments` | | the log on disk |
| `sterna_log_damaged_places` | | found by reads, rewrites and the scrubber since the start |
| `sterna_log_commits_total`, `sterna_log_commit_records_total` | | syncs, and records in them |
| `sterna_snapshot_kept_bytes`, `sterna_snapshot_kept_seconds` | | what waits for a snapshot: size, age of the oldest |
| `sterna_snapshot_half_full` | | 1 if that is half of what may be kept, or more |
| `sterna_snapshot_gaps` | | ranges of the log that the next snapshot will not tell of |
| `sterna_snapshot_exported_cut` | | number of the last snapshot that was taken; 0: none |
| `sterna_store_messages`, `sterna_store_bytes` | store | what each store holds |
| `sterna_refused_total` | code | messages, requests and calls that were refused, since the start |
| `sterna_streams_cut_total` | code | streams that were ended for what their clients did or did not do, or not begun |
| `sterna_confirm_seconds_bucket` | le | from arrival to confirmation of each message, rounded up to milliseconds |
| `sterna_confirm_seconds_count`, `sterna_confirm_seconds_sum` | | of the same |
| `sterna_log_commit_seconds_bucket` | le | how long it took to write and sync what was committed together |
| `sterna_log_commit_seconds_count`, `sterna_log_commit_seconds_sum` | | of the same |
| `sterna_destination_messages`, `sterna_destination_bytes`, `sterna_destination_consumers` | kind, name | the fullest |
| `sterna_destination_unacknowledged_messages`, `sterna_destination_delayed_messages` | kind, name | of those messages |
| `sterna_destination_oldest_seconds` | kind, name | how long the oldest one that waits has waited; 0: none |
| `sterna_destination_flow_controlled_sessions` | kind, name | of the same: whose messages wait for flowControlBytes |
| `sterna_destination_published_total`, `sterna_destination_delivered_total` | kind, name | since the start |
| `sterna_destination_acknowledged_total`, `sterna_destination_redelivered_total` | kind, name | likewise |
| `sterna_destination_expired_total`, `sterna_destination_discarded_total` | kind, name | likewise |
| `sterna_destination_undelivered_total` | kind, name | likewise: moved to the undelivered queue |
| `sterna_durable_messages`, `sterna_durable_oldest_seconds` | client_id, name | how far the fullest durables lag |
| `sterna_durable_unacknowledged_messages`, `sterna_durable_consumers` | client_id, name | of the same |
| `sterna_destinations_listed` | kind | how many queues, topics and durable subscriptions the figures above are of |

Messages are destroyed because they `expired`, at `max_redelivery` (delivered as often as the queue allows), when they
are `discarded` to make room or found `damaged`; and by people: `purged`, or `deleted` with their queue or subscription.
What went to a queue's deadLetterQueue or to `$sys.undelivered` is not among them.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from sterna_broker.cluster.member import Member
from sterna_broker.contract import admin
from sterna_broker.kept_for_snapshots import Kept
from sterna_broker.monitor.places import places
from sterna_broker.pump import Pump
from sterna_broker.statistics import StatisticsSource

# A broker may have more destinations than a scrape may take time to look at; beyond so many the rest is not compared.
_EXAMINED_MAX = 2_000

_GAUGES = {
    "sterna_epoch": ("epoch", "Grows with each start of the broker."),
    "sterna_resident_memory_bytes": ("resident_bytes", "Memory of the process."),
    "sterna_connections": ("connections", "Connections of clients."),
    "sterna_sessions": ("sessions", "Sessions of all connections."),
    "sterna_producers": ("producers", "Producers of all connections."),
    "sterna_consumers": ("consumers", "Consumers of all connections."),
    "sterna_queues": ("queues", "Queues that exist."),
    "sterna_topics": ("topics", "Topics that exist."),
    "sterna_subscriptions": ("subscriptions", "Subscriptions, durable and not."),
    "sterna_messages": ("messages", "Messages waiting, or delivered and not acknowledged."),
    "sterna_message_bytes": ("bytes", "Bytes of those messages."),
    "sterna_uploads_kept_bytes": ("uploads_kept_bytes", "What is kept of bodies whose link broke."),
}
_COUNTERS = {
    "sterna_published": ("published_total", "Messages published since the start."),
    "sterna_delivered": ("delivered_total", "Messages delivered since the start."),
    "sterna_acknowledged": ("acknowledged_total", "Messages acknowledged since the start."),
    "sterna_uploaded_bytes": ("uploaded_bytes_total", "Bytes of bodies that came ahead of their messages."),
    "sterna_uploads_resumed": ("uploads_resumed_total", "Bodies that went on where a broken link had left them."),
}
_LOG_GAUGES = {
    "sterna_log_disk_bytes": ("disk_bytes", "Disk space that the log takes."),
    "sterna_log_free_bytes": ("free_bytes", "Space left on the log's file system."),
    "sterna_log_segments": ("segments", "Files of the log."),
}
_LOG_COUNTERS = {
    "sterna_log_commits": ("commits_total", "Syncs of the log."),
    "sterna_log_commit_records": ("commit_records_total", "Records that those made durable."),
}
# Those that a broker in order has now and then; others show with the first.
_CODES = ("DESTINATION_FULL", "NO_SUCH_DESTINATION", "SLOW_CONSUMER", "STORE_FULL", "UNAUTHENTICATED", "UNAVAILABLE")
# A reason is there before it counts for the first time, or nobody could ask how fast it grows.
_NEVER = dict.fromkeys(("DAMAGED", "DELETED", "DISCARDED", "EXPIRED", "MAX_REDELIVERY", "PURGED"), 0)


class Metrics:
    """All metrics of one broker, in a registry of its own."""

    def __init__(
        self, pump: Pump, statistics: StatisticsSource, destinations_max: int, member: Member | None = None
    ) -> None:
        self.ready = False
        self.certificate_not_after_ms: int | None = None
        self.dangling_bridges: Callable[[], int] = lambda: 0
        self.refused: Counter[str] = Counter()
        """Unary calls that were refused, by code; what is refused within a stream the engine counts."""
        self.cut: Counter[str] = Counter()
        """Streams that the host ended, by code, beside those that the engine did."""
        self.kept: Kept | None = None
        self.member = member
        self._collector = _BrokerCollector(pump, statistics, destinations_max, self)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._collector)

    def text(self) -> bytes:
        """The page as Prometheus reads it. Asks the engine: call it on the loop's thread."""
        return generate_latest(self._registry)


class _BrokerCollector(Collector):
    def __init__(self, pump: Pump, statistics: StatisticsSource, destinations_max: int, owner: Metrics) -> None:
        self._pump = pump
        self._statistics = statistics
        self._destinations_max = destinations_max
        self._owner = owner

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: what there is, is known when it is asked for."""
        return []

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        figures = self._statistics.message()
        info = GaugeMetricFamily("sterna_info", "The broker.", labels=["broker", "version", "store_id"])
        info.add_metric([figures.broker, figures.version, figures.store_id], 1)
        yield info
        yield GaugeMetricFamily("sterna_ready", "Whether clients should come.", value=float(self._owner.ready))
        started_s = figures.started_ms / 1000
        yield GaugeMetricFamily("sterna_start_time_seconds", "When the broker started.", value=started_s)
        if (until_ms := self._owner.certificate_not_after_ms) is not None:
            text = "When the certificate that clients are shown ends."
            yield GaugeMetricFamily("sterna_certificate_not_after_seconds", text, value=until_ms / 1000)
        if self._owner.member is not None:
            yield from _of_cluster(self._owner.member)
        text = "Bridges with an end that no manifest describes."
        yield GaugeMetricFamily("sterna_dangling_bridges", text, value=float(self._owner.dangling_bridges()))
        yield from _plain(figures, _GAUGES, GaugeMetricFamily)
        yield from _plain(figures, _COUNTERS, CounterMetricFamily)
        yield from _plain(figures.log, _LOG_GAUGES, GaugeMetricFamily)
        yield from _plain(figures.log, _LOG_COUNTERS, CounterMetricFamily)
        yield from self._times()
        damaged = self._statistics.engine()["log"]["damaged_places"]
        text = "Places of the log found damaged since the start."
        yield GaugeMetricFamily("sterna_log_damaged_places", text, value=damaged)
        if self._owner.kept is not None:
            yield from _snapshots(self._owner.kept)
        yield from _stores(figures.stores)
        text = "Messages that are gone and nobody took, since the start."
        destroyed = CounterMetricFamily("sterna_destroyed", text, labels=["reason"])
        for reason, messages in {**_NEVER, **json.loads(self._pump.tick().destroyed())["totals"]}.items():
            destroyed.add_metric([reason.lower()], messages)
        yield destroyed
        refused = Counter(self._statistics.engine()["refused"]) + self._owner.refused
        yield from _codes("sterna_refused", "Messages, requests and calls that were refused.", refused)
        cut = Counter(self._statistics.engine()["cut"]) + self._owner.cut
        yield from _codes("sterna_streams_cut", "Streams that were ended for their clients' doing.", cut)
        yield from places(self._pump, self._destinations_max)

    def _times(self) -> Iterator[Metric]:
        engine = self._statistics.engine()
        text = "From a message's arrival to its confirmation, rounded up to milliseconds."
        yield _histogram("sterna_confirm_seconds", text, engine["confirm_times"])
        if engine["commit_times"] is not None:
            text = "How long it took to write and sync what was committed together."
            yield _histogram("sterna_log_commit_seconds", text, engine["commit_times"])


def _codes(name: str, text: str, counted: Counter[str]) -> Iterator[Metric]:
    family = CounterMetricFamily(name, text, labels=["code"])
    # A code is there before it counts for the first time, or nobody could ask how fast it grows.
    for code, times in sorted({**dict.fromkeys(_CODES, 0), **counted}.items()):
        family.add_metric([code], times)
    yield family


def _histogram(name: str, text: str, times: dict[str, Any]) -> Metric:
    bounds = [("+Inf" if bound is None else str(bound / 1e6), below) for bound, below in times["buckets"]]
    return HistogramMetricFamily(name, text, buckets=bounds, sum_value=times["sum_us"] / 1e6)


def _plain(source: Any, table: dict[str, tuple[str, str]], family: Any) -> Iterator[Metric]:
    for name, (field, text) in table.items():
        yield family(name, text, value=float(getattr(source, field)))


def _of_cluster(member: Member) -> Iterator[Metric]:
    view = member.link.view
    followed = float(member.link.fault is None)
    yield GaugeMetricFamily("sterna_etcd_followed", "Whether etcd is there, and the one that is known.", value=followed)
    text = "The revision of etcd that this broker has made so."
    yield GaugeMetricFamily("sterna_cluster_applied_revision", text, value=float(member.applied_revision))
    yield GaugeMetricFamily("sterna_cluster_brokers", "Brokers of the cluster that live.", value=float(len(view.live)))
    homes = float(len(view.homes_on(member.name)))
    yield GaugeMetricFamily("sterna_cluster_homes", "Names that have their home on this broker.", value=homes)
    text = "Destinations with messages here that live on other brokers; nobody is given them."
    yield GaugeMetricFamily("sterna_stray_destinations", text, value=float(len(member.stray)))
    text = "Messages of those destinations."
    yield GaugeMetricFamily("sterna_stray_messages", text, value=float(sum(member.stray.values())))


def _snapshots(kept: Kept) -> Iterator[Metric]:
    facts = kept.facts()
    text = "Bytes of disk that wait for a snapshot."
    yield GaugeMetricFamily("sterna_snapshot_kept_bytes", text, value=float(facts["kept_bytes"]))
    yield GaugeMetricFamily("sterna_snapshot_kept_seconds", "The age of the oldest of those.", value=kept.age_s(facts))
    text = "Whether half of what may be kept for snapshots is."
    yield GaugeMetricFamily("sterna_snapshot_half_full", text, value=float(facts["half_full"]))
    text = "Ranges of the log that the next snapshot will not tell of."
    yield GaugeMetricFamily("sterna_snapshot_gaps", text, value=float(facts["kept_gaps"]))
    text = "Number of the last snapshot that was taken."
    yield GaugeMetricFamily("sterna_snapshot_exported_cut", text, value=float(facts["exported"] or 0))


def _stores(stores: Iterable[admin.StoreStatistics]) -> Iterator[Metric]:
    messages = GaugeMetricFamily("sterna_store_messages", "Messages in a store.", labels=["store"])
    size = GaugeMetricFamily("sterna_store_bytes", "Bytes in a store.", labels=["store"])
    for store in stores:
        messages.add_metric([store.name], store.messages)
        size.add_metric([store.name], store.bytes)
    yield messages
    yield size
