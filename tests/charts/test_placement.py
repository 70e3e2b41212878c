"""Where the pods of the charts run, hooks and tests too, with what images, and what protects the operator's."""

import json
from typing import Any

import pytest

from tests.charts.test_charts import CLUSTER, OPERATOR, of_kind, pods, rendered
from tests.support.api_server import ApiServer

TOLERATION = {"key": "messaging", "operator": "Exists", "effect": "NoSchedule"}
DIGEST = f"sha256:{'0a' * 32}"
PLACED = [
    *("--set-json", 'imagePullSecrets=["pull","other"]', "--set-json", 'nodeSelector={"pool":"messaging"}'),
    *("--set-json", f"tolerations={json.dumps([TOLERATION])}"),
]


def _is_placed(pod: dict[str, Any]) -> None:
    assert pod["imagePullSecrets"] == [{"name": "pull"}, {"name": "other"}]
    assert pod["nodeSelector"] == {"pool": "messaging"}
    assert pod["tolerations"] == [TOLERATION]


@pytest.mark.parametrize(
    ("chart", "count"), [pytest.param(OPERATOR, 3, id="operator"), pytest.param(CLUSTER, 2, id="cluster")]
)
def test_every_pod_of_a_chart_can_be_placed(api_server: ApiServer, chart: str, count: int) -> None:
    found = list(pods(rendered(api_server, chart, *PLACED)))
    assert len(found) == count
    for pod in found:
        _is_placed(pod)
    for pod in pods(rendered(api_server, chart)):
        assert not {"imagePullSecrets", "nodeSelector", "tolerations"} & pod.keys()


def test_brokers_are_placed_as_the_release_is_and_their_own_fields_come_first(
    api_server: ApiServer, definitions_installed: None
) -> None:
    [cluster] = of_kind(rendered(api_server, CLUSTER, *PLACED), "MessagingCluster")
    _is_placed(cluster["spec"]["pod"])
    own = ("--set-json", 'spec={"pod":{"nodeSelector":{"pool":"own"},"labels":{"a":"b"}}}')
    objects = rendered(api_server, CLUSTER, *PLACED, *own)
    [cluster] = of_kind(objects, "MessagingCluster")
    assert cluster["spec"]["pod"]["nodeSelector"] == {"pool": "own"}
    assert cluster["spec"]["pod"]["labels"] == {"a": "b"}
    assert cluster["spec"]["pod"]["tolerations"] == [TOLERATION]
    # Who says it for brokers alone means what fetches images for them: the hooks have the same registry and nodes.
    assert {pod["nodeSelector"]["pool"] for pod in pods(objects)} == {"own"}
    text = "\n".join(map(json.dumps, objects))
    outcome = api_server.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=text)
    assert outcome.returncode == 0, outcome.stderr


def test_digests_come_before_tags(api_server: ApiServer) -> None:
    arguments = ("--set", f"image.digest={DIGEST}", "--set", f"brokerImage.digest={DIGEST}", "--set", "image.tag=other")
    objects = rendered(api_server, OPERATOR, *arguments)
    images = {pod["containers"][0]["image"] for pod in pods(objects)}
    assert images == {f"localhost/sterna-operator@{DIGEST}"}
    [deployment] = of_kind(objects, "Deployment")
    told = {one["name"]: one.get("value") for one in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert told["STERNA_OPERATOR_BROKER_IMAGE"] == f"localhost/sterna-broker@{DIGEST}"
    of_cluster = ("--set", f"test.image.digest={DIGEST}", "--set", f"uninstallGuard.image.digest={DIGEST}")
    images = {pod["containers"][0]["image"] for pod in pods(rendered(api_server, CLUSTER, *of_cluster))}
    assert images == {f"localhost/sterna-operator@{DIGEST}", f"localhost/sterna-broker@{DIGEST}"}


def test_the_operator_is_spread_bounded_in_disruption_and_shut_off(api_server: ApiServer) -> None:
    objects = rendered(api_server, OPERATOR, "--set", "replicas=2")
    [deployment] = of_kind(objects, "Deployment")
    selected = deployment["spec"]["selector"]["matchLabels"]
    spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [one["topologyKey"] for one in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert all(one["labelSelector"]["matchLabels"] == selected for one in spread)
    assert {one["whenUnsatisfiable"] for one in spread} == {"ScheduleAnyway"}
    [budget] = of_kind(objects, "PodDisruptionBudget")
    assert budget["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": selected}}
    [policy] = of_kind(objects, "NetworkPolicy")
    assert policy["spec"] == {
        "podSelector": {"matchLabels": selected},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"port": "http", "protocol": "TCP"}]}],
    }


def test_who_may_reach_the_operator_and_where_it_may_go_can_be_said(
    api_server: ApiServer, definitions_installed: None
) -> None:
    monitors, egress = [{"namespaceSelector": {"matchLabels": {"a": "b"}}}], [{"ports": [{"port": 443}]}]
    given = {"monitors": monitors, "egress": egress}
    objects = rendered(api_server, OPERATOR, "--set-json", f"networkPolicy={json.dumps(given)}")
    [policy] = of_kind(objects, "NetworkPolicy")
    [test] = of_kind(objects, "Pod")
    assert policy["spec"]["ingress"][0]["from"] == [
        *monitors,
        {"podSelector": {"matchLabels": test["metadata"]["labels"]}},
    ]
    assert policy["spec"]["egress"] == egress
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    without = ("networkPolicy.enabled=false", "podDisruptionBudget.enabled=false", "topologySpread.keys=null")
    objects = rendered(api_server, OPERATOR, *(part for one in without for part in ("--set", one)))
    assert not {"NetworkPolicy", "PodDisruptionBudget"} & {one["kind"] for one in objects}
    [deployment] = of_kind(objects, "Deployment")
    assert "topologySpreadConstraints" not in deployment["spec"]["template"]["spec"]
