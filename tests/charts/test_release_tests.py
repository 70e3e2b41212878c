"""What `helm test` of the operator's chart makes, and what `helm install` of each chart says is to be done next."""

import re
import shlex
from typing import Any

import pytest

from tests.charts.test_charts import CLUSTER, OPERATOR, ROOT, of_kind, rendered
from tests.support.api_server import ApiServer
from tests.support.own_names import own_name

DEFINITIONS = "charts/sterna-crds"


def _is_hook(one: dict[str, Any]) -> bool:
    return bool(one["metadata"].get("annotations", {}).get("helm.sh/hook") == "test")


def test_the_operators_release_is_tested_by_who_has_no_rights(api_server: ApiServer) -> None:
    objects = rendered(api_server, OPERATOR, "--set", "replicas=2", "--set", "metrics.service=false")
    [deployment] = of_kind(objects, "Deployment")
    [service], [pod] = of_kind(objects, "Service"), of_kind(objects, "Pod")
    assert _is_hook(service)
    assert _is_hook(pod)
    assert int(service["metadata"]["annotations"]["helm.sh/hook-weight"]) < 0, "it is there before who asks for it"
    # The Service is one name for the addresses of all operators, the unready ones too, and not for the test's own.
    selected = service["spec"]["selector"]
    assert selected == deployment["spec"]["selector"]["matchLabels"]
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert not selected.items() <= pod["metadata"]["labels"].items()
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod["spec"]
    [container] = pod["spec"]["containers"]
    [operator] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == operator["image"]
    assert container["command"] == ["/opt/sterna/bin/python", "-m", "sterna_operator.release_check"]
    assert container["args"] == [f"{service['metadata']['name']}.default.svc", "--replicas", "2"]


def _notes(server: ApiServer, release: str, chart: str, *arguments: str) -> tuple[str, list[list[str]]]:
    """What is said after an installation, and the commands in it."""
    outcome = server.helm("install", release, chart, "--namespace", "default", "--dry-run=client", *arguments)
    assert outcome.returncode == 0, outcome.stderr
    text = outcome.stdout.split("\nNOTES:\n", 1)[1]
    lines = re.findall(r"^ +((?:kubectl|helm) .*)$", text, re.MULTILINE)
    return text, [shlex.split(line) for line in lines]


def _follow(commands: list[list[str]], *words: str) -> list[str]:
    """The command that begins with these words."""
    [found] = [one for one in commands if one[: len(words)] == list(words)]
    return found


def test_after_the_definitions_comes_the_operator(api_server: ApiServer) -> None:
    text, commands = _notes(api_server, own_name("crds"), DEFINITIONS)
    assert "Next, the operator" in text
    install = _follow(commands, "helm", "upgrade", "--install", "sterna-operator")
    assert (ROOT / install[4] / "Chart.yaml").exists()
    assert _follow(commands, "kubectl", "explain")[2] == "queue.spec"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param([], "all namespaces.", id="for the whole cluster"),
        pytest.param(["--set", "watchNamespaces={a,b}"], "the namespaces a, b.", id="by namespace"),
    ],
)
def test_after_the_operator_it_is_waited_for_and_tested_and_then_comes_a_cluster(
    api_server: ApiServer, arguments: list[str], words: str
) -> None:
    # Cluster-wide objects of another test's release with this name would be refused.
    release = own_name("op")
    text, commands = _notes(api_server, release, OPERATOR, "--set", "fullnameOverride=orders", *arguments)
    assert words in text
    [deployment] = of_kind(rendered(api_server, OPERATOR, "--set", "fullnameOverride=orders"), "Deployment")
    waited = _follow(commands, "kubectl", "-n", "default", "rollout", "status")
    assert waited[-1] == f"deployment/{deployment['metadata']['name']}"
    assert _follow(commands, "helm", "test")[2:] == [release, "--namespace", "default", "--logs"]
    install = _follow(commands, "helm", "install")
    assert (ROOT / install[3] / "Chart.yaml").exists()
    assert "sterna-crds" in text


def test_after_a_cluster_it_is_waited_for_tested_and_used(api_server: ApiServer, definitions_installed: None) -> None:
    release = own_name("mq")
    text, commands = _notes(api_server, release, CLUSTER, "--set-json", 'users=["app","more"]')
    wait = _follow(commands, "kubectl", "-n", "default", "wait")
    assert wait[4:6] == [f"messagingcluster/{release}", "--for=condition=Ready"]
    assert _follow(commands, "helm", "test")[2:] == [release, "--namespace", "default", "--logs"]
    # Where an application finds what it needs: the connection, and each user's password.
    for secret in (f"{release}-connection", f"{release}-user-app", f"{release}-user-more"):
        assert re.search(rf"\b{secret}\b", text), secret
    # The queue that is to be made is taken as it stands.
    manifest = re.search(r"<<EOF\n(.*?)\n +EOF", text, re.DOTALL)
    assert manifest is not None
    queue = "\n".join(line[4:] for line in manifest[1].splitlines())
    assert f"clusterRef: {{name: {release}}}" in queue
    outcome = api_server.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=queue)
    assert outcome.returncode == 0, outcome.stderr
    assert "for production give etcd.endpoints" in text
    own = ("--set-json", 'etcd={"endpoints":["https://etcd-0.etcd:2379"]}')
    assert "for production" not in _notes(api_server, release, CLUSTER, *own)[0]
