"""What alerts and board of the chart ask for is there: in the figures of a real operator and of a real broker."""

import re
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sterna
from sterna_operator.metrics import Metrics

from tests.charts.test_alerts import RULES, expressions
from tests.operator.audit_objects import AUDIT
from tests.operator.conftest import MakeOperator
from tests.operator.pairs import pair
from tests.operator.worlds import World
from tests.running import RunningBroker
from tests.waiting import eventually

pytestmark = pytest.mark.slow_callbacks(30_000)

# What a Prometheus adds itself to what it fetches, as the chart's monitors have it do.
_TARGET = {"namespace", "pod", "le"}
_SELECTOR = re.compile(r"\b(sterna_[a-z0-9_]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'([a-z_]+)(=~|!~|!=|=)"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|without) \(([^)]*)\)")
_SAMPLE = re.compile(r"^([a-z0-9_]+)(?:\{(.*)\})? \S+$")

Figures = dict[str, dict[str, set[str]]]


def _page(address: str) -> str:
    with urllib.request.urlopen(f"{address}/metrics", timeout=5) as response:
        return str(response.read().decode())


def figures(page: str) -> Figures:
    """The figures of a page by name, with their labels and the values of these."""
    found: Figures = {}
    for line in page.splitlines():
        if (sample := _SAMPLE.match(line)) is not None:
            labels = found.setdefault(sample[1], defaultdict(set))
            for name, _, value in _MATCHER.findall(sample[2] or ""):
                labels[name].add(value)
    return found


def faults(expression: str, known: Figures) -> Iterator[str]:
    """What an expression asks for that there is not."""
    labels = set(_TARGET)
    for name, matchers in _SELECTOR.findall(expression):
        if name not in known:
            yield f"{name} in {expression}"
            continue
        labels |= known[name].keys()
        for label, operator, value in _MATCHER.findall(matchers):
            if label not in known[name] and label not in _TARGET:
                yield f"{name} has no label {label}"
            elif operator == "=" and value not in known[name][label]:
                yield f"{name} is never {label}={value}"
    for group in _GROUPING.findall(expression):
        yield from (f"{label} in {expression}" for label in map(str.strip, group.split(",")) if label not in labels)


def test_a_figure_or_label_that_is_not_there_is_found() -> None:
    known = figures('sterna_a{kind="Queue"} 1.0\nsterna_b 2.0\n# HELP sterna_c nothing')
    assert list(faults('sum by (kind) (sterna_a{kind="Queue"}) / sterna_b', known)) == []
    assert len(list(faults("sterna_c", known))) == 1
    assert len(list(faults('sterna_a{kind="Topic"}', known))) == 1
    assert len(list(faults('sterna_b{kind="Topic"}', known))) == 1
    assert len(list(faults("sum by (what) (sterna_a)", known))) == 1


async def test_whatever_alerts_and_board_ask_for_is_there(world: World, operator: MakeOperator, tmp_path: Path) -> None:
    world.certificate("server", pair())
    world.make_cluster(insecure=False, tls={"secretName": "server"})
    running = operator(only_etcd=False, broker_image="localhost/broker:0")
    certificate = tmp_path / "tls"
    certificate.mkdir()
    for name, content in pair().items():
        (certificate / name).write_bytes(content)
    with ExitStack() as stack:
        cluster = {"etcd": world.etcd_urls, "cluster": world.etcd_name}
        broker = RunningBroker(tmp_path / "b-0", None, name="b-0", cluster=cluster)
        stack.callback(broker.stop)
        broker.start()
        world.queue("orders")
        world.apply("Topic", "news", {})
        world.apply("AuditJob", "nightly", AUDIT)
        for kind, name in (("Queue", "orders"), ("Topic", "news")):
            await world.ready(kind, name)
        async with sterna.connect(f"sterna://{broker.address}", client_id="reader") as connection:
            await connection.send("orders", "one")
            await connection.consumer(sterna.Topic("news"), durable="slow")
        days = f'sterna_operator_certificate_days_left{{cluster="mq",namespace="{world.namespace}"}}'
        await eventually(lambda: days in world.metrics(running.address), timeout_s=30.0)
        audit = f'sterna_operator_audit_stale{{audit="nightly",namespace="{world.namespace}"}}'
        await eventually(lambda: audit in world.metrics(running.address), timeout_s=30.0)
        pages = [_page(address) for address in (f"http://{running.address}", broker.monitor)]
    known = figures("\n".join(pages))
    # It is there from the first failure on.
    known["sterna_operator_failures_total"] = {name: set() for name in Metrics().failures_total._labelnames}
    asked = [*(rule["expr"] for rule in RULES.values()), *expressions()]
    assert [fault for one in asked for fault in faults(one, known)] == []
    told = {name for rule in RULES.values() for name in re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))}
    assert told <= _TARGET | {label for labels in known.values() for label in labels}
