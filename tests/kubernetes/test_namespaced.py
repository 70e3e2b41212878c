"""An installation by who has every right in one namespace, and none elsewhere; the definitions are there already."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.conftest import OPERATOR, Loads, operator_values, outside_url, recycle
from tests.kubernetes.exchanging import receive_bodies, send_numbers
from tests.kubernetes.kubectl import CommandError, Namespace, helm, run

# The machine may be the cluster's only node as well.
pytestmark = [pytest.mark.slow_callbacks(5_000), pytest.mark.long]

TENANT = "tenant"
ROUTES = 10


@pytest.fixture
def tenant(definitions: None, tmp_path: Path) -> Iterator[tuple[Namespace, str]]:
    """A namespace where only restricted pods run, and a kubeconfig of who has all of it and nothing else."""
    namespace = Namespace(f"sterna-e2e-t{os.urandom(3).hex()}")
    run("kubectl", "create", "namespace", namespace.name)
    run("kubectl", "label", "namespace", namespace.name, "pod-security.kubernetes.io/enforce=restricted")
    namespace.kubectl("create", "serviceaccount", TENANT)
    namespace.kubectl("create", "role", TENANT, "--verb=*", "--resource=*.*")
    namespace.kubectl(
        "create", "rolebinding", TENANT, f"--role={TENANT}", f"--serviceaccount={namespace.name}:{TENANT}"
    )
    config = json.loads(run("kubectl", "config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    config["users"][0]["user"] = {"token": namespace.kubectl("create", "token", TENANT).strip()}
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    yield namespace, str(file)
    run("kubectl", "delete", "namespace", namespace.name, "--ignore-not-found", "--wait=true", timeout_s=180)
    recycle()


def test_who_has_one_namespace_alone_installs_uses_and_uninstalls(tenant: tuple[Namespace, str], load: Loads) -> None:
    namespace, kubeconfig = tenant
    mine = ("--kubeconfig", kubeconfig, "--namespace", namespace.name)
    with pytest.raises(CommandError, match="forbidden"):
        run("kubectl", *mine[:2], "get", "nodes")
    helm("install", OPERATOR, "charts/sterna-operator", *mine, *operator_values(namespace.name), "--wait")
    asked = {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": "MessagingCluster",
        "metadata": {"name": "mq"},
        "spec": {
            "etcd": {"managed": {"storage": {"size": "1Gi"}}},
            "insecure": True,
            "authentication": {"enabled": False},
            "storage": {"size": "1Gi"},
            "deletionPolicy": "delete",
            "listeners": [{"name": "out", "type": "nodePort"}],
            "pod": {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}}},
        },
    }
    run("kubectl", *mine, "apply", "-f", "-", stdin=json.dumps(asked))
    namespace.ready("messagingcluster", "mq", 180)
    for name in ("flowing", "resting"):
        namespace.apply("Queue", name, {"clusterRef": {"name": "mq"}, "deletionPolicy": "delete"})
        namespace.ready("queue", name, 90)
    url = outside_url(namespace, "mq")
    asyncio.run(send_numbers(url, "resting", ROUTES))
    running = load(url, "flowing")
    running.goes_on(200)
    # Its rights end at the namespace, and so do the operator's.
    account = f"system:serviceaccount:{namespace.name}:{OPERATOR}"
    for verb, what in (("list", "secrets"), ("create", "statefulsets.apps"), ("list", "queues.sterna.dev")):
        can = ("kubectl", "auth", "can-i", verb, what, f"--as={account}")
        with pytest.raises(CommandError):
            run(*can, "--namespace", "default")
    assert namespace.kubectl("logs", f"deployment/{OPERATOR}").count("forbidden") == 0
    report = running.stop()
    print(json.dumps(report))
    assert report["lost"] == report["twice_unflagged"] == report["unknown"] == report["refused"] == 0
    assert asyncio.run(receive_bodies(url, "resting", ROUTES)) == [str(number) for number in range(ROUTES)]
    for kind, name in (("queue", "flowing"), ("queue", "resting"), ("messagingcluster", "mq")):
        run("kubectl", *mine, "delete", kind, name, timeout_s=120)
    helm("uninstall", OPERATOR, *mine, "--wait")
    left = namespace.kubectl("get", "deployments,statefulsets,roles,rolebindings,jobs", "--output", "name").split()
    assert [one for one in left if TENANT not in one] == []
