"""The charts of operator and cluster: Helm's own checks, what they render, and that a real API server takes it."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML
from sterna_operator.settings import OperatorSettings
from sterna_resources.definitions import NAMES

from tests.support.api_server import ApiServer

OPERATOR, CLUSTER = "charts/sterna-operator", "charts/sterna"

VARIANTS = [
    pytest.param(OPERATOR, [], id="operator"),
    pytest.param(
        OPERATOR, ["--set", "watchNamespaces={a,b}", "--set", "replicas=2"], id="operator of named namespaces"
    ),
    pytest.param(OPERATOR, ["--set", "uninstallGuard=false", "--set", "settings.resyncS=60"], id="operator unguarded"),
    pytest.param(CLUSTER, [], id="cluster"),
    pytest.param(CLUSTER, ["--set", "tls.mode=secret", "--set", "tls.secretName=mine"], id="cluster with own secret"),
    pytest.param(
        CLUSTER, ["--set", "tls.mode=certManager", "--set", "tls.issuerRef.name=ca"], id="cluster with cert-manager"
    ),
    pytest.param(
        CLUSTER,
        [
            "--set",
            "tls.mode=none",
            "--set",
            "insecure=true",
            "--set",
            "authentication.enabled=false",
            "--set-json",
            "users=[]",
        ],
        id="cluster that is open",
    ),
    pytest.param(
        CLUSTER,
        [
            "--set-json",
            'queues=[{"name":"orders","spec":{"maxMessages":10}}]',
            "--set-json",
            'topics=[{"name":"news"}]',
            "--set-json",
            'listeners=[{"name":"out","type":"nodePort"}]',
            "--set-json",
            'etcd={"endpoints":["https://etcd-0.etcd:2379"],"tls":{"ca":{"name":"etcd-ca"}}}',
        ],
        id="cluster with everything",
    ),
]


def rendered(server: ApiServer, chart: str, *arguments: str, fails: bool = False) -> list[dict[str, Any]]:
    outcome = server.helm("template", "orders", chart, "--namespace", "default", *arguments)
    assert (outcome.returncode != 0) == fails, outcome.stderr
    return [one for one in YAML(typ="safe").load_all(outcome.stdout) if one]


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in objects if one["kind"] == kind]


def pods(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in objects:
        if one["kind"] == "Pod":
            yield one["spec"]
        elif one["kind"] in ("Deployment", "Job"):
            yield one["spec"]["template"]["spec"]


@pytest.mark.parametrize("chart", [OPERATOR, CLUSTER])
def test_the_chart_passes_helms_own_checks(api_server: ApiServer, chart: str) -> None:
    outcome = api_server.helm("lint", "--strict", chart)
    assert outcome.returncode == 0, outcome.stdout


@pytest.mark.parametrize("chart", [OPERATOR, CLUSTER])
def test_a_value_that_does_not_exist_is_refused(api_server: ApiServer, chart: str) -> None:
    outcome = api_server.helm("template", "orders", chart, "--set", "nosuchvalue=1")
    assert outcome.returncode != 0
    assert "nosuchvalue" in outcome.stderr


@pytest.mark.parametrize(("chart", "arguments"), VARIANTS)
def test_pods_are_restricted(api_server: ApiServer, chart: str, arguments: list[str]) -> None:
    found = list(pods(rendered(api_server, chart, *arguments)))
    assert found
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert "automountServiceAccountToken" in pod, "whether a pod gets a token is said, not left to a default"
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(("chart", "arguments"), VARIANTS)
def test_the_api_server_takes_what_is_rendered(
    api_server: ApiServer, definitions_installed: None, chart: str, arguments: list[str]
) -> None:
    objects = rendered(api_server, chart, *arguments)
    for one in objects:
        namespace = one["metadata"].get("namespace")
        if namespace in ("a", "b"):
            one["metadata"]["namespace"] = "default"
    text = "\n".join(map(json.dumps, objects))
    outcome = api_server.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=text)
    assert outcome.returncode == 0, outcome.stderr
    assert len(outcome.stdout.splitlines()) == len(objects)


def test_the_definitions_can_be_applied_without_helm(api_server: ApiServer, definitions_installed: None) -> None:
    arguments = ("apply", "--server-side", "--force-conflicts", "-f", "crds/yaml")
    outcome = api_server.kubectl(*arguments)
    assert outcome.returncode == 0, outcome.stderr
    assert len(outcome.stdout.splitlines()) == len(NAMES)


def test_named_namespaces_need_no_cluster_role(api_server: ApiServer) -> None:
    objects = rendered(api_server, OPERATOR, "--set", "watchNamespaces={a,b}")
    assert of_kind(objects, "ClusterRole") == []
    assert of_kind(objects, "ClusterRoleBinding") == []
    roles = {one["metadata"]["namespace"] for one in of_kind(objects, "Role")}
    assert roles == {"a", "b", "default"}


def test_the_rules_name_everything_and_give_nothing_away(api_server: ApiServer) -> None:
    [role] = [
        one for one in of_kind(rendered(api_server, OPERATOR), "ClusterRole") if "guard" not in one["metadata"]["name"]
    ]
    for rule in role["rules"]:
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
        assert "rbac.authorization.k8s.io" not in rule["apiGroups"]
        if "secrets" in rule["resources"]:
            assert not {"list", "delete", "deletecollection"} & set(rule["verbs"])


def test_spec_comes_before_the_values(api_server: ApiServer) -> None:
    arguments = ["--set-json", 'spec={"brokers":5,"settings":{"drainMs":2000}}', "--set", "brokers=2"]
    [cluster] = of_kind(rendered(api_server, CLUSTER, *arguments), "MessagingCluster")
    assert cluster["spec"]["brokers"] == 5
    assert cluster["spec"]["settings"] == {"drainMs": 2000}
    assert cluster["spec"]["etcd"] == {"managed": {}}


def test_endpoints_replace_the_etcd_for_trying(api_server: ApiServer) -> None:
    arguments = ["--set-json", 'etcd={"endpoints":["http://etcd:2379"]}']
    [cluster] = of_kind(rendered(api_server, CLUSTER, *arguments), "MessagingCluster")
    assert cluster["spec"]["etcd"] == {"endpoints": ["http://etcd:2379"]}


def test_first_objects_name_the_cluster(api_server: ApiServer) -> None:
    arguments = ["--set-json", 'queues=[{"name":"orders","spec":{"maxMessages":10}}]', "--set", "name=shop"]
    queues = of_kind(rendered(api_server, CLUSTER, *arguments), "Queue")
    first = next(one for one in queues if one["metadata"]["name"] == "orders")
    assert first["spec"] == {"clusterRef": {"name": "shop"}, "maxMessages": 10}


def test_the_guard_of_a_release_looks_at_its_own_cluster_and_destinations_alone(api_server: ApiServer) -> None:
    objects = rendered(api_server, CLUSTER, "--set", "name=shop", "--set-json", 'queues=[{"name":"first"}]')
    [role] = of_kind(objects, "Role")
    assert role["metadata"]["namespace"] == "default"
    assert role["rules"] == [
        {
            "apiGroups": ["sterna.dev"],
            "resources": ["messagingclusters"],
            "resourceNames": ["shop"],
            "verbs": ["get"],
        },
        {"apiGroups": ["sterna.dev"], "resources": ["queues", "topics", "durablesubscriptions"], "verbs": ["list"]},
        {"apiGroups": ["apps"], "resources": ["statefulsets"], "resourceNames": ["shop-broker"], "verbs": ["get"]},
    ]
    [job] = [one for one in of_kind(objects, "Job") if one["metadata"]["name"] == "shop-guard"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["cluster", "shop", "--release", "orders"]
    # It finds the release's objects by this label.
    first = next(one for one in of_kind(objects, "Queue") if one["metadata"]["name"] == "first")
    assert first["metadata"]["labels"]["app.kubernetes.io/instance"] == "orders"
    assert of_kind(rendered(api_server, CLUSTER, "--set", "uninstallGuard.enabled=false"), "Role") == []


@pytest.mark.parametrize("name", ["sterna-operator", "renamed"])
def test_the_operator_knows_the_labels_of_its_pods(api_server: ApiServer, name: str) -> None:
    [deployment] = of_kind(rendered(api_server, OPERATOR, "--set", f"nameOverride={name}"), "Deployment")
    template = deployment["spec"]["template"]
    told = {one["name"]: one.get("value") for one in template["spec"]["containers"][0]["env"]}
    known = OperatorSettings(pod_labels=told["STERNA_OPERATOR_POD_LABELS"]).labels()
    assert known == deployment["spec"]["selector"]["matchLabels"]
    assert known.items() <= template["metadata"]["labels"].items()
    assert known["app.kubernetes.io/name"] == name


def test_settings_of_the_chart_reach_the_operator(api_server: ApiServer) -> None:
    given = {"resyncS": 1, "workers": 2, "leaseDurationS": 3, "backgroundRate": 4}
    given |= {"watchInactivityS": 5, "watchDeadAfterS": 6}
    objects = rendered(api_server, OPERATOR, "--set-json", f"settings={json.dumps(given)}")
    [deployment] = of_kind(objects, "Deployment")
    told = {one["name"]: one.get("value") for one in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    fields = ["resync_s", "workers", "lease_duration_s", "background_rate", "watch_inactivity_s", "watch_dead_after_s"]
    assert set(fields) <= {field.name for field in dataclasses.fields(OperatorSettings)}
    assert [told[f"STERNA_OPERATOR_{name.upper()}"] for name in fields] == ["1", "2", "3", "4", "5", "6"]


def test_the_operators_image_says_its_version_and_hooks_guard_its_removal(api_server: ApiServer) -> None:
    objects = rendered(api_server, OPERATOR)
    [deployment] = of_kind(objects, "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "localhost/sterna-operator:0.1.0"
    jobs = of_kind(objects, "Job")
    assert [job["metadata"]["annotations"]["helm.sh/hook"] for job in jobs] == ["pre-delete"]
    assert of_kind(rendered(api_server, OPERATOR, "--set", "uninstallGuard=false"), "Job") == []
