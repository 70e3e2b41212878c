"""Alerts and board of the operator's chart: Prometheus takes and evaluates them, and they fire when they should."""

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.charts.promtool import promtool, write
from tests.charts.test_charts import OPERATOR, of_kind, rendered
from tests.support.api_server import ApiServer

ROOT = Path(__file__).parent.parent.parent
FILES = ROOT / OPERATOR / "files"
ALERTS = YAML(typ="safe").load((FILES / "alerts.yaml").read_text())
RULES: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in ALERTS["groups"] for rule in group["rules"]}
BOARD = json.loads((FILES / "dashboard.json").read_text())

pytestmark = pytest.mark.usefixtures("tier_broker")

_CLUSTER = '{namespace="m",cluster="orders"}'
_AUDIT = '{namespace="m",audit="nightly"}'
_BROKER = '{namespace="m",pod="orders-broker-0"}'
_QUEUE = '{namespace="m",pod="orders-broker-0",kind="Queue",name="q"}'
_DURABLE = '{namespace="m",pod="orders-broker-0",client_id="c",name="d"}'
_WAITING = '{namespace="s",pod="o",priority="user_change"}'
_FAILED = '{namespace="s",pod="o",kind="Queue",error="KubeError"}'


def _commits(bound: str) -> str:
    return f'{{namespace="m",pod="orders-broker-0",le="{bound}"}}'


Series = dict[str, str]
# Of each alert, figures of two hours, one a minute, by which it fires, and by which it does not.
CASES: dict[str, tuple[Series, Series]] = {
    "SternaClusterNotReady": (
        {f"sterna_operator_cluster_ready{_CLUSTER}": "0x120"},
        {f"sterna_operator_cluster_ready{_CLUSTER}": "0x115 1x5"},
    ),
    "SternaClusterDown": (
        {
            f"sterna_operator_cluster_brokers{_CLUSTER}": "3x120",
            f"sterna_operator_cluster_brokers_serving{_CLUSTER}": "0x120",
        },
        {
            f"sterna_operator_cluster_brokers{_CLUSTER}": "3x120",
            f"sterna_operator_cluster_brokers_serving{_CLUSTER}": "1x120",
        },
    ),
    "SternaAuditViolated": (
        {f"sterna_operator_audit_violated{_AUDIT}": "0x100 1x20"},
        {f"sterna_operator_audit_violated{_AUDIT}": "1x100 0x20"},
    ),
    "SternaAuditStale": (
        {f"sterna_operator_audit_stale{_AUDIT}": "0x60 1x60"},
        {f"sterna_operator_audit_stale{_AUDIT}": "0x117 1x3"},
    ),
    "SternaCertificateEndsSoon": (
        {f"sterna_operator_certificate_days_left{_CLUSTER}": "13x120"},
        {f"sterna_operator_certificate_days_left{_CLUSTER}": "14x120"},
    ),
    "SternaCertificateEnds": (
        {f"sterna_operator_certificate_days_left{_CLUSTER}": "-1x120"},
        {f"sterna_operator_certificate_days_left{_CLUSTER}": "2x120"},
    ),
    "SternaBrokerNotReady": ({f"sterna_ready{_BROKER}": "0x120"}, {f"sterna_ready{_BROKER}": "1x60 0x2 1x58"}),
    "SternaBrokerRestarts": (
        {f"sterna_start_time_seconds{_BROKER}": "1x100 2x4 3x4 4x20"},
        {f"sterna_start_time_seconds{_BROKER}": "1x100 2x30"},
    ),
    "SternaDiskFillsUp": (
        {f"sterna_log_free_bytes{_BROKER}": "10x120", f"sterna_log_disk_bytes{_BROKER}": "90x120"},
        {f"sterna_log_free_bytes{_BROKER}": "20x120", f"sterna_log_disk_bytes{_BROKER}": "80x120"},
    ),
    "SternaDiskIsFullSoon": (
        {f"sterna_log_free_bytes{_BROKER}": "300-1x120", f"sterna_log_disk_bytes{_BROKER}": "500+1x120"},
        {f"sterna_log_free_bytes{_BROKER}": "3000-1x120", f"sterna_log_disk_bytes{_BROKER}": "500+1x120"},
    ),
    "SternaLogDamaged": (
        {f"sterna_log_damaged_places{_BROKER}": "2x120"},
        {f"sterna_log_damaged_places{_BROKER}": "0x120"},
    ),
    "SternaDurableLags": (
        {
            f"sterna_durable_oldest_seconds{_DURABLE}": "3500+60x120",
            f"sterna_durable_messages{_DURABLE}": "7x120",
        },
        {
            f"sterna_durable_oldest_seconds{_DURABLE}": "1000+20x120",
            f"sterna_durable_messages{_DURABLE}": "7x120",
        },
    ),
    "SternaCommitsAreSlow": (
        {
            f"sterna_log_commit_seconds_bucket{_commits('0.5')}": "0+90x120",
            f"sterna_log_commit_seconds_bucket{_commits('1.0')}": "0+100x120",
            f"sterna_log_commit_seconds_bucket{_commits('+Inf')}": "0+100x120",
        },
        {
            f"sterna_log_commit_seconds_bucket{_commits('0.5')}": "0+100x120",
            f"sterna_log_commit_seconds_bucket{_commits('1.0')}": "0+100x120",
            f"sterna_log_commit_seconds_bucket{_commits('+Inf')}": "0+100x120",
        },
    ),
    "SternaClientsCutOff": (
        {'sterna_streams_cut_total{namespace="m",pod="b",code="SLOW_CONSUMER"}': "0x100 0+1x20"},
        {'sterna_streams_cut_total{namespace="m",pod="b",code="SLOW_CONSUMER"}': "9x100 9x17 10x3"},
    ),
    "SternaMessagesLostToDamage": (
        {'sterna_destroyed_total{namespace="m",pod="b",reason="damaged"}': "0x100 5x20"},
        {
            'sterna_destroyed_total{namespace="m",pod="b",reason="expired"}': "0x100 5x20",
            'sterna_destroyed_total{namespace="m",pod="b",reason="damaged"}': "5x120",
        },
    ),
    "SternaEtcdLost": ({f"sterna_etcd_followed{_BROKER}": "0x120"}, {f"sterna_etcd_followed{_BROKER}": "1x120"}),
    "SternaSnapshotDue": (
        {f"sterna_snapshot_half_full{_BROKER}": "1x120"},
        {f"sterna_snapshot_half_full{_BROKER}": "1x60 0x2 1x10 0x50"},
    ),
    "SternaStrayMessages": ({f"sterna_stray_messages{_BROKER}": "7x120"}, {f"sterna_stray_messages{_BROKER}": "0x120"}),
    "SternaDanglingBridges": (
        {f"sterna_dangling_bridges{_BROKER}": "1x120"},
        {f"sterna_dangling_bridges{_BROKER}": "0x120"},
    ),
    "SternaQueueWithoutConsumers": (
        {f"sterna_destination_messages{_QUEUE}": "2000x120", f"sterna_destination_consumers{_QUEUE}": "0x120"},
        {f"sterna_destination_messages{_QUEUE}": "2000x120", f"sterna_destination_consumers{_QUEUE}": "1x120"},
    ),
    "SternaOperatorAway": (
        {'sterna_operator_leading{pod="o-0"}': "0x120", 'sterna_operator_leading{pod="o-1"}': "0x120"},
        {'sterna_operator_leading{pod="o-0"}': "0x120", 'sterna_operator_leading{pod="o-1"}': "1x120"},
    ),
    "SternaOperatorWatchSilent": (
        {'sterna_operator_watch_age_seconds{path="/api"}': "60x60 130x60"},
        {'sterna_operator_watch_age_seconds{path="/api"}': "60x120"},
    ),
    "SternaOperatorFails": (
        {f"sterna_operator_failures_total{_FAILED}": "0+1x120"},
        {f"sterna_operator_failures_total{_FAILED}": "5x120"},
    ),
    "SternaOperatorQueueWaits": (
        {f"sterna_operator_queue_depth{_WAITING}": "3x120"},
        {f"sterna_operator_queue_depth{_WAITING}": "3x115 0x5"},
    ),
    "SternaEtcdUnusable": (
        {'sterna_operator_etcd_usable{cluster="m.orders"}': "0x120"},
        {'sterna_operator_etcd_usable{cluster="m.orders"}': "1x120"},
    ),
    "SternaClustersOfOthers": (
        {"sterna_operator_clusters_of_others": "1x120"},
        {"sterna_operator_clusters_of_others": "0x120"},
    ),
}


def _judged(series: Series, alert: str, fires: int) -> dict[str, Any]:
    firing = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
    samples = [{"labels": "{}", "value": fires}] if fires else []
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": firing, "eval_time": "2h", "exp_samples": samples}],
    }


def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    assert CASES.keys() == RULES.keys()
    tests = []
    for alert, (fires, calm) in CASES.items():
        tests += [_judged(fires, alert, 1), _judged(calm, alert, 0)]
    write(tmp_path / "tests.yaml", {"rule_files": [str(FILES / "alerts.yaml")], "tests": tests})
    promtool("test", "rules", "tests.yaml", folder=tmp_path)


def test_no_operator_at_all_is_an_alert_too(tmp_path: Path) -> None:
    tests = [_judged({}, "SternaOperatorAway", 1)]
    write(tmp_path / "tests.yaml", {"rule_files": [str(FILES / "alerts.yaml")], "tests": tests})
    promtool("test", "rules", "tests.yaml", folder=tmp_path)


def expressions() -> list[str]:
    """Every expression of the board."""
    return [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]


def test_prometheus_can_read_every_expression_of_the_board(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(expressions())]
    assert len(rules) > 20
    write(tmp_path / "rules.yaml", {"groups": [{"name": "board", "rules": rules}]})
    assert f"{len(rules)} rules found" in promtool("check", "rules", "rules.yaml", folder=tmp_path)


def test_the_boards_panels_stand_beside_each_other() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_chart_has_alerts_board_and_monitors_as_prometheus_operator_takes_them(api_server: ApiServer) -> None:
    wanted = ["metrics.rules=true", "metrics.dashboard=true", "metrics.serviceMonitor=true", "metrics.podMonitor=true"]
    arguments = [*(part for one in wanted for part in ("--set", one)), "--set", "metrics.labels.release=prometheus"]
    objects = rendered(api_server, OPERATOR, *arguments)
    [rule] = of_kind(objects, "PrometheusRule")
    assert rule["spec"] == ALERTS
    [board] = [one for one in of_kind(objects, "ConfigMap") if "sterna.json" in one["data"]]
    assert json.loads(board["data"]["sterna.json"]) == BOARD
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    # What `helm test` makes beside it is not for monitors.
    [service] = [one for one in of_kind(objects, "Service") if one["metadata"]["name"].endswith("-metrics")]
    [monitor] = of_kind(objects, "ServiceMonitor")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    # The namespace of a cluster's figures is the cluster's, not the operator's.
    assert endpoint["honorLabels"] is True
    for one in (rule, monitor, *of_kind(objects, "PodMonitor")):
        assert one["metadata"]["labels"]["release"] == "prometheus"
    plain = rendered(api_server, OPERATOR)
    assert not {"PrometheusRule", "ServiceMonitor", "PodMonitor", "ConfigMap"} & {one["kind"] for one in plain}


def test_a_monitor_of_a_service_that_is_not_made_is_refused(api_server: ApiServer) -> None:
    arguments = ("--set", "metrics.serviceMonitor=true", "--set", "metrics.service=false")
    outcome = api_server.helm("template", "orders", OPERATOR, *arguments)
    assert outcome.returncode != 0
    assert "metrics.serviceMonitor needs metrics.service" in outcome.stderr


def test_the_documentation_says_what_to_do_about_each_alert() -> None:
    page = (ROOT / "docs/kubernetes/monitoring.md").read_text()
    told = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `Sterna")}
    assert told == RULES.keys()
