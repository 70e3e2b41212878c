"""What Prometheus is told. Values that somebody already counts are read when they are asked for."""

import time  # noqa: TID251 - the operator as a process is not simulated
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from sterna_operator.clusters import Clusters
from sterna_operator.conditions import READY, find, parse_timestamp
from sterna_operator.kinds.audit_status import CLEAN, STALE
from sterna_operator.kinds.cluster_certificate import days_left
from sterna_operator.kube import Kube
from sterna_operator.objects import AUDIT_JOB, CLUSTER, Objects
from sterna_operator.ownership import Ownership
from sterna_operator.secrets import Secrets
from sterna_operator.watching import WatchClock
from sterna_operator.work_queue import WorkQueue

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Metrics:
    """The registry, and what is counted as it happens."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconcile_seconds = self._durations("reconcile", "How long an object was worked on", "kind")
        self.waited_seconds = self._durations(
            "queue", "How long an object stood in the queue, by why it was looked at", "priority"
        )
        self.failures_total = Counter(
            "sterna_operator_failures",
            "Objects that could not be worked on, by reason",
            ["kind", "error"],
            registry=self.registry,
        )
        self.steps_total = Counter(
            "sterna_operator_steps", "Steps of plans that were done", ["kind", "step"], registry=self.registry
        )

    def watch_over(
        self,
        queue: WorkQueue,
        objects: Objects,
        clusters: Clusters,
        secrets: Secrets,
        kube: Kube,
        clock: WatchClock,
        ownership: Ownership,
        is_leading: Callable[[], bool],
    ) -> None:
        """Adds what others count."""
        self.registry.register(_Gathered(queue, objects, clusters, secrets, kube, clock, ownership, is_leading))

    def _durations(self, what: str, help_text: str, label: str) -> Histogram:
        name = f"sterna_operator_{what}_seconds"
        return Histogram(name, help_text, [label], buckets=_SECONDS, registry=self.registry)


class _Gathered:
    """The figures of the operator's parts, read when they are asked for."""

    def __init__(
        self,
        queue: WorkQueue,
        objects: Objects,
        clusters: Clusters,
        secrets: Secrets,
        kube: Kube,
        clock: WatchClock,
        ownership: Ownership,
        is_leading: Callable[[], bool],
    ) -> None:
        self._queue = queue
        self._objects = objects
        self._clusters = clusters
        self._secrets = secrets
        self._kube = kube
        self._clock = clock
        self._ownership = ownership
        self._is_leading = is_leading

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        depth = GaugeMetricFamily("sterna_operator_queue_depth", "Objects to be looked at", labels=["priority"])
        for priority, count in self._queue.depth().items():
            depth.add_metric([priority.name.lower()], count)
        yield depth
        yield GaugeMetricFamily(
            "sterna_operator_queue_delayed", "Objects that wait for their time", self._queue.delayed
        )
        yield CounterMetricFamily(
            "sterna_operator_retries", "Objects put back after a failure", self._queue.retries_total
        )
        yield GaugeMetricFamily("sterna_operator_leading", "1: this operator leads", int(self._is_leading()))
        yield GaugeMetricFamily("sterna_operator_objects", "Objects that are known", len(self._objects))
        yield GaugeMetricFamily("sterna_operator_secret_watches", "Secrets that are watched", len(self._secrets))
        yield from self._of_clusters()
        yield from self._of_audits()
        others = len(self._ownership.others)
        yield GaugeMetricFamily("sterna_operator_clusters_of_others", "Clusters that another operator has", others)
        age = GaugeMetricFamily("sterna_operator_watch_age_seconds", "Since a watch was heard of", labels=["path"])
        for path, seconds in self._clock.ages_s().items():
            age.add_metric([path], seconds)
        yield age
        events = CounterMetricFamily("sterna_operator_events", "Events that watches brought", labels=["kind"])
        for kind, total in self._clock.events_total.items():
            events.add_metric([kind], total)
        yield events
        usable = GaugeMetricFamily("sterna_operator_etcd_usable", "1: a cluster's etcd can be used", labels=["cluster"])
        keys = GaugeMetricFamily("sterna_operator_etcd_keys", "Keys of a cluster in etcd", labels=["cluster"])
        writes = CounterMetricFamily("sterna_operator_etcd_writes", "Transactions of ours", labels=["cluster"])
        for store in self._clusters.all().values():
            usable.add_metric([store.layout.cluster], int(store.is_usable))
            keys.add_metric([store.layout.cluster], len(store.mirror))
            writes.add_metric([store.layout.cluster], store.writes_total)
        yield from (usable, keys, writes)
        requests = CounterMetricFamily(
            "sterna_operator_api_requests", "Requests to Kubernetes", labels=["method", "code"]
        )
        for (method, code), total in self._kube.requests_total.items():
            requests.add_metric([method, str(code)], total)
        yield requests

    def _of_clusters(self) -> Iterator[Metric]:
        """What the status of each cluster says, as figures."""
        labels = ["namespace", "cluster"]
        wanted = GaugeMetricFamily(
            "sterna_operator_cluster_brokers", "Brokers that a cluster is to have", labels=labels
        )
        text = "Brokers of a cluster that serve"
        serving = GaugeMetricFamily("sterna_operator_cluster_brokers_serving", text, labels=labels)
        ready = GaugeMetricFamily("sterna_operator_cluster_ready", "1: a cluster is Ready", labels=labels)
        text = "When the certificate ends that a cluster's brokers show, in seconds since 1970"
        ends = GaugeMetricFamily("sterna_operator_certificate_not_after_seconds", text, labels=labels)
        text = "Days until then; less than 0: it has ended"
        left = GaugeMetricFamily("sterna_operator_certificate_days_left", text, labels=labels)
        for key in self._objects.keys(CLUSTER):
            object, names = self._objects.get(key) or {}, [key.namespace, key.name]
            status = object.get("status") or {}
            wanted.add_metric(names, (object.get("spec") or {}).get("brokers", 1))
            serving.add_metric(names, status.get("readyBrokers") or 0)
            ready.add_metric(names, int(find(status, READY).get("status") == "True"))
            if end := status.get("certificateNotAfter"):
                ends_ms = parse_timestamp(end)
                ends.add_metric(names, ends_ms / 1000)
                left.add_metric(names, days_left(ends_ms, int(time.time() * 1000)))
        yield from (wanted, serving, ready, ends, left)

    def _of_audits(self) -> Iterator[Metric]:
        """What the conditions of each AuditJob say, as figures."""
        labels = ["namespace", "audit"]
        text = "1: the last run of an AuditJob that came to a verdict found something violated"
        violated = GaugeMetricFamily("sterna_operator_audit_violated", text, labels=labels)
        text = "1: an AuditJob has had no verdict for two periods of its schedule"
        stale = GaugeMetricFamily("sterna_operator_audit_stale", text, labels=labels)
        for key in self._objects.keys(AUDIT_JOB):
            status, names = (self._objects.get(key) or {}).get("status") or {}, [key.namespace, key.name]
            violated.add_metric(names, int(find(status, CLEAN).get("status") == "False"))
            stale.add_metric(names, int(find(status, STALE).get("status") == "True"))
        yield from (violated, stale)
