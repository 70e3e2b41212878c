"""The charts of operator and cluster: Helm's own checks, what they render, and that a real API server takes it."""

import base64
import dataclasses
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from ruamel.yaml import YAML
from sterna_operator.builders.authority import Order, issued
from sterna_operator.kube import path
from sterna_operator.settings import OperatorSettings
from sterna_resources.definitions import NAMES

from tests.support.api_server import ApiServer
from tests.support.own_names import own_name

ROOT = Path(__file__).parent.parent.parent
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
        CLUSTER,
        [
            *("--set", "generateSecrets=false", "--set", "tls.mode=secret", "--set", "tls.secretName=mine"),
            *("--set-json", 'users=[{"name":"app","secret":"app-password"}]'),
        ],
        id="cluster with own secrets",
    ),
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
            'bridges=[{"name":"copies","spec":{"source":{"topic":"news"},"targets":[{"queue":"orders"}]}}]',
            "--set-json",
            'durableSubscriptions=[{"name":"reader","spec":{"topic":"news","clientId":"app"}}]',
            "--set-json",
            'connectionFactories=[{"name":"billing","spec":{"url":"sternas://orders.default.svc"}}]',
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


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        pytest.param([], "ClusterRole", id="for the whole cluster"),
        pytest.param(["--set", "watchNamespaces={a,b}"], "Role", id="by namespace"),
    ],
)
def test_the_page_of_rights_has_what_the_chart_gives(api_server: ApiServer, arguments: list[str], kind: str) -> None:
    page = (ROOT / "docs" / "kubernetes" / "operator-rights.md").read_text("utf-8")
    told = set()
    for line in page.splitlines():
        if line.startswith("| ") and not line.startswith("| it may"):
            verbs, what, why = (part.strip() for part in line.strip("|").split("|"))
            names, _, group = what.partition(" of ")
            resources = tuple(name.strip(" `") for name in names.split(","))
            told.add((tuple(verbs.split(", ")), resources, group))
            assert len(why) > 20, line
    roles = of_kind(rendered(api_server, OPERATOR, *arguments), kind)
    found = [one for one in roles if not one["metadata"]["name"].endswith("-leader") and "guard" not in str(one)]
    assert found
    for role in found:
        rules = role["rules"]
        given = {(tuple(one["verbs"]), tuple(one["resources"]), "".join(one["apiGroups"])) for one in rules}
        assert given == told
        assert len(rules) == len(told)
    # What is easily overlooked is said in words.
    for words in (
        "StatefulSets, Jobs or CronJobs may have pods made",
        "ServiceAccounts",
        "as good as an administrator's",
    ):
        assert words in page


def test_spec_comes_before_the_values(api_server: ApiServer) -> None:
    arguments = ["--set-json", 'spec={"brokers":5,"settings":{"drainMs":2000}}', "--set", "brokers=2"]
    [cluster] = of_kind(rendered(api_server, CLUSTER, *arguments), "MessagingCluster")
    assert cluster["spec"]["brokers"] == 5
    assert cluster["spec"]["settings"] == {"drainMs": 2000}
    assert cluster["spec"]["etcd"] == {"managed": {}}


def test_the_number_of_brokers_is_said_when_it_is_given_and_nobodys_otherwise(api_server: ApiServer) -> None:
    [silent] = of_kind(rendered(api_server, CLUSTER), "MessagingCluster")
    assert "brokers" not in silent["spec"]
    [said] = of_kind(rendered(api_server, CLUSTER, "--set", "brokers=3"), "MessagingCluster")
    assert said["spec"]["brokers"] == 3


def test_who_scales_a_cluster_owns_the_number_through_upgrades_and_rollbacks(
    api_server: ApiServer, definitions_installed: None
) -> None:
    namespace = api_server.namespace(own_name("scaled"))
    release = ("scaled", CLUSTER, "--namespace", namespace)

    def helm(*arguments: str) -> None:
        outcome = api_server.helm(*arguments)
        assert outcome.returncode == 0, outcome.stderr

    def brokers() -> int:
        where = path("sterna.dev/v1alpha1", "MessagingCluster", namespace, "scaled")
        return int(api_server.request("GET", where).body["spec"]["brokers"])

    helm("install", *release)
    assert brokers() == 1
    outcome = api_server.kubectl("scale", "messagingcluster/scaled", "--replicas=3", "--namespace", namespace)
    assert outcome.returncode == 0, outcome.stderr
    helm("upgrade", *release, "--set", "deletionPolicy=onlyIfEmpty")
    assert brokers() == 3
    helm("rollback", "scaled", "1", "--namespace", namespace)
    assert brokers() == 3


def test_who_changes_a_password_owns_it_through_upgrades_and_rollbacks(
    api_server: ApiServer, definitions_installed: None
) -> None:
    namespace = api_server.namespace(own_name("rotated"))
    release = ("rotated", CLUSTER, "--namespace", namespace)
    secret = path("v1", "Secret", namespace, "rotated-user-app")

    def helm(*arguments: str) -> None:
        outcome = api_server.helm(*arguments)
        assert outcome.returncode == 0, outcome.stderr

    def password() -> str:
        return str(api_server.request("GET", secret).body["data"]["password"])

    helm("install", *release)
    made = password()
    helm("upgrade", *release, "--set-json", 'users=["app","more"]')
    assert password() == made
    assert api_server.request("GET", path("v1", "Secret", namespace, "rotated-user-more")).ok
    patch = ("--type=merge", "--patch", '{"stringData":{"password":"by hand"}}')
    outcome = api_server.kubectl("patch", "secret/rotated-user-app", *patch, "--namespace", namespace)
    assert outcome.returncode == 0, outcome.stderr
    changed = password()
    assert changed != made
    helm("upgrade", *release, "--set", "deletionPolicy=onlyIfEmpty")
    assert password() == changed
    helm("rollback", "rotated", "1", "--namespace", namespace)
    assert password() == changed


def test_a_password_that_an_earlier_chart_made_stays_in_its_release(
    api_server: ApiServer, definitions_installed: None
) -> None:
    """Helm removes what a release had and has no more."""
    namespace = api_server.namespace(own_name("earlier"))
    where = path("v1", "Secret", namespace, "earlier-user-app")
    owner = {"meta.helm.sh/release-name": "earlier", "meta.helm.sh/release-namespace": namespace}
    metadata = {
        "name": "earlier-user-app",
        "annotations": owner,
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
    }
    secret = {"username": "app", "password": "kept"}
    body = {"metadata": metadata, "type": "kubernetes.io/basic-auth", "stringData": secret}
    assert api_server.request("POST", path("v1", "Secret", namespace), body).ok
    before = api_server.request("GET", where).body["data"]
    outcome = api_server.helm("install", "earlier", CLUSTER, "--namespace", namespace)
    assert outcome.returncode == 0, outcome.stderr
    manifest = api_server.helm("get", "manifest", "earlier", "--namespace", namespace).stdout
    assert "earlier-user-app" in [one["metadata"]["name"] for one in YAML(typ="safe").load_all(manifest) if one]
    assert api_server.request("GET", where).body["data"] == before


OWN_SECRETS = [
    *("--set", "generateSecrets=false", "--set", "tls.mode=secret", "--set", "tls.secretName=mine"),
    *("--set-json", 'users=[{"name":"app","secret":"app-password"}]'),
]


def test_with_secrets_of_ones_own_two_renderings_are_the_same_and_make_none(api_server: ApiServer) -> None:
    objects = rendered(api_server, CLUSTER, *OWN_SECRETS)
    assert objects == rendered(api_server, CLUSTER, *OWN_SECRETS)
    assert of_kind(objects, "Secret") == []
    [user] = of_kind(objects, "User")
    assert user["metadata"]["name"] == "orders-app"
    assert user["spec"]["name"] == "app"
    assert user["spec"]["passwordSecret"] == {"name": "app-password"}
    [pod] = of_kind(objects, "Pod")
    [password] = [one for one in pod["spec"]["containers"][0]["env"] if one["name"] == "STERNA_PASSWORD"]
    assert password["valueFrom"]["secretKeyRef"] == {"name": "app-password", "key": "password"}


def test_what_would_have_to_be_made_is_refused_where_nothing_may_be(api_server: ApiServer) -> None:
    outcome = api_server.helm("template", "orders", CLUSTER, *OWN_SECRETS, "--set-json", 'users=["app"]')
    assert outcome.returncode != 0
    assert "no password is made for user app" in outcome.stderr


def test_the_operator_makes_the_certificate_so_that_rendering_needs_no_cluster(api_server: ApiServer) -> None:
    arguments = [*OWN_SECRETS, "--set", "tls.mode=generate", "--set", "tls.names={mq.example.com,192.0.2.1}"]
    objects = rendered(api_server, CLUSTER, *arguments)
    assert objects == rendered(api_server, CLUSTER, *arguments)
    assert of_kind(objects, "Secret") == []
    [cluster] = of_kind(objects, "MessagingCluster")
    assert cluster["spec"]["tls"] == {"generated": {"dnsNames": ["mq.example.com", "192.0.2.1"]}}


_CERTIFICATE_OF_BEFORE = """\
{{- $authority := genCA "earlier-ca" 3650 }}
{{- $certificate := genSignedCert "earlier" nil (list "earlier") 3650 $authority }}
apiVersion: v1
kind: Secret
metadata: {name: earlier-tls}
type: kubernetes.io/tls
data:
  ca.crt: {{ $authority.Cert | b64enc }}
  ca.key: {{ $authority.Key | b64enc }}
  tls.crt: {{ $certificate.Cert | b64enc }}
  tls.key: {{ $certificate.Key | b64enc }}
"""


def test_clients_go_on_trusting_a_release_whose_certificate_an_earlier_chart_made(
    api_server: ApiServer, definitions_installed: None, tmp_path: Path
) -> None:
    (tmp_path / "earlier" / "templates").mkdir(parents=True)
    (tmp_path / "earlier" / "Chart.yaml").write_text("{apiVersion: v2, name: earlier, version: 0.0.1}")
    (tmp_path / "earlier" / "templates" / "certificate.yaml").write_text(_CERTIFICATE_OF_BEFORE)
    namespace = api_server.namespace(own_name("trusting"))

    def helm(*arguments: str) -> None:
        outcome = api_server.helm(*arguments, "--namespace", namespace)
        assert outcome.returncode == 0, outcome.stderr

    def secret(name: str) -> dict[str, bytes] | None:
        answer = api_server.request("GET", path("v1", "Secret", namespace, name))
        return {key: base64.b64decode(value) for key, value in answer.body["data"].items()} if answer.ok else None

    helm("install", "earlier", str(tmp_path / "earlier"))
    before = secret("earlier-tls")
    assert before is not None
    ca = {"tls.crt": before["ca.crt"], "tls.key": before["ca.key"]}
    for _ in range(2):
        # The second time nothing of before is there, and the authority stays.
        helm("upgrade", "earlier", CLUSTER)
        assert secret("earlier-tls") is None, "the operator makes it"
        assert secret("earlier-ca") == ca
    orders = [Order("earlier-tls", "earlier", "server", ("earlier",))]
    made = issued("earlier-ca", orders, {"earlier-ca": ca}, round(time.time() * 1000))
    assert list(made) == ["earlier-tls"]
    (tmp_path / "ca.crt").write_bytes(before["ca.crt"])
    (tmp_path / "tls.crt").write_bytes(made["earlier-tls"]["tls.crt"])
    trusting = ["openssl", "verify", "-x509_strict", "-CAfile", str(tmp_path / "ca.crt"), str(tmp_path / "tls.crt")]
    assert subprocess.run(trusting, capture_output=True, text=True, timeout=60).stderr == ""
    # Back to the chart of before, whose Secret has the name of the operator's, and forth again.
    standing = api_server.request("GET", path("sterna.dev/v1alpha1", "MessagingCluster", namespace, "earlier")).body
    of_operator = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "earlier-tls",
            "labels": {"app.kubernetes.io/managed-by": "sterna-operator"},
            "ownerReferences": [
                {
                    "apiVersion": "sterna.dev/v1alpha1",
                    "kind": "MessagingCluster",
                    "name": "earlier",
                    "uid": standing["metadata"]["uid"],
                }
            ],
        },
        "type": "kubernetes.io/tls",
        "data": {key: base64.b64encode(value).decode() for key, value in made["earlier-tls"].items()},
    }
    where = f"{path('v1', 'Secret', namespace, 'earlier-tls')}?fieldManager=sterna-operator&force=true"
    assert api_server.request("PATCH", where, of_operator, "application/apply-patch+yaml").ok
    helm("upgrade", "earlier", CLUSTER)
    assert secret("earlier-tls") == made["earlier-tls"]
    refused = api_server.helm("rollback", "earlier", "1", "--namespace", namespace)
    assert 'conflicts with "sterna-operator"' in refused.stderr
    helm("rollback", "earlier", "1", "--force-conflicts")
    assert secret("earlier-tls") == before
    helm("upgrade", "earlier", CLUSTER)
    assert secret("earlier-tls") is None
    assert secret("earlier-ca") == ca


def test_endpoints_replace_the_etcd_for_trying(api_server: ApiServer) -> None:
    arguments = ["--set-json", 'etcd={"endpoints":["http://etcd:2379"]}']
    [cluster] = of_kind(rendered(api_server, CLUSTER, *arguments), "MessagingCluster")
    assert cluster["spec"]["etcd"] == {"endpoints": ["http://etcd:2379"]}


def test_first_objects_name_the_cluster(api_server: ApiServer) -> None:
    arguments = ["--set-json", 'queues=[{"name":"orders","spec":{"maxMessages":10}}]', "--set", "name=shop"]
    queues = of_kind(rendered(api_server, CLUSTER, *arguments), "Queue")
    first = next(one for one in queues if one["metadata"]["name"] == "orders")
    assert first["spec"] == {"clusterRef": {"name": "shop"}, "maxMessages": 10}


def test_each_list_of_objects_makes_its_kind(api_server: ApiServer) -> None:
    chart, arguments = VARIANTS[-1].values
    objects = rendered(api_server, str(chart), *cast("list[str]", arguments))
    for kind, name in (("Bridge", "copies"), ("DurableSubscription", "reader"), ("ConnectionFactory", "billing")):
        (found,) = of_kind(objects, kind)
        assert found["metadata"]["name"] == name
        assert found["spec"]["clusterRef"] == {"name": "orders"}


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
    given |= {"watchInactivityS": 5, "watchDeadAfterS": 6, "clustersS": 7, "resyncRate": 8}
    objects = rendered(api_server, OPERATOR, "--set-json", f"settings={json.dumps(given)}")
    [deployment] = of_kind(objects, "Deployment")
    told = {one["name"]: one.get("value") for one in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    fields = ["resync_s", "workers", "lease_duration_s", "background_rate", "watch_inactivity_s", "watch_dead_after_s"]
    fields += ["clusters_s", "resync_rate"]
    assert set(fields) <= {field.name for field in dataclasses.fields(OperatorSettings)}
    assert [told[f"STERNA_OPERATOR_{name.upper()}"] for name in fields] == list("12345678")


def test_the_operator_is_told_which_etcds_it_may_speak_to(api_server: ApiServer) -> None:
    given = "allowedEtcdEndpoints={https://a:2379,https://*.b:2379}"
    for arguments, expected in (([], ""), (["--set", given], "https://a:2379,https://*.b:2379")):
        [deployment] = of_kind(rendered(api_server, OPERATOR, *arguments), "Deployment")
        told = {one["name"]: one.get("value") for one in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
        assert told["STERNA_OPERATOR_ALLOWED_ETCD_ENDPOINTS"] == expected


def test_the_operators_image_says_its_version_and_hooks_guard_its_removal(api_server: ApiServer) -> None:
    objects = rendered(api_server, OPERATOR)
    [deployment] = of_kind(objects, "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "localhost/sterna-operator:0.1.0"
    jobs = of_kind(objects, "Job")
    assert [job["metadata"]["annotations"]["helm.sh/hook"] for job in jobs] == ["pre-delete"]
    assert of_kind(rendered(api_server, OPERATOR, "--set", "uninstallGuard=false"), "Job") == []
