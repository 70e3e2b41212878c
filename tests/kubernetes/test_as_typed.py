"""The documents for beginners, typed as they stand: what a new user does first works, and so does the way out again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.kubernetes.conftest import BROKER_IMAGE, is_local, recycle
from tests.kubernetes.documents import Block, Shell, blocks
from tests.kubernetes.kubectl import ROOT, Namespace, helm, run
from tests.support.leaving_out import leave_out

README = ROOT / "README.md"
QUICK_START = ROOT / "docs" / "kubernetes" / "quickstart.md"
# The namespaces and releases that the documents name.
CLUSTER, OPERATOR = Namespace("messaging"), Namespace("sterna-system")
# `make test-cluster` has typed this before it runs the tests.
DONE_BEFORE = "A Kubernetes to try it on"


@pytest.fixture
def shell(whole_cluster: None, tmp_path: Path) -> Iterator[Shell]:
    """A shell for a document that installs into the namespaces above. Whatever it leaves there is taken away.

    The documents' operator looks after the whole cluster, other tests' namespaces too.
    """
    if not is_local():
        leave_out("the documents as typed", "their images are those of the local cluster (tools/cluster/cluster)")
    standing = run("kubectl", "get", "namespace", CLUSTER.name, OPERATOR.name, "--ignore-not-found", "-o", "name")
    assert not standing, f"somebody uses what the documents name; remove it first: kubectl delete {standing}"
    shell = Shell(tmp_path)
    yield shell
    shell.end()
    # The cluster first, while there is an operator that looks after it; what is gone already is no matter.
    for namespace, release in ((CLUSTER, "orders"), (OPERATOR, "sterna-operator")):
        helm("uninstall", release, "--namespace", namespace.name, "--no-hooks", "--ignore-not-found", "--wait")
        # A namespace whose pods are still ending is looked at again after half their grace period.
        namespace.kubectl("delete", "pod", "--all")
        run("kubectl", "delete", "namespace", namespace.name, "--ignore-not-found", timeout_s=180)
    recycle()


def shell_blocks(document: Path, heading: str | None = None) -> list[Block]:
    """A document's shell blocks, those below one heading."""
    found = [one for one in blocks(document) if one.language == "shell" and heading in (None, one.heading)]
    assert found, f"{document} has shell blocks"
    return found


def test_the_readme_brings_up_a_cluster_and_sends_a_message(shell: Shell) -> None:
    printed = [shell.type(block) for block in shell_blocks(README, "On Kubernetes")]
    assert "received: helm test" in printed[-1]


def test_the_quick_start_works_from_the_installation_to_the_last_trace(shell: Shell) -> None:
    typed = [block for block in shell_blocks(QUICK_START) if block.heading != DONE_BEFORE]
    printed = {block.heading: "" for block in typed}
    for block in typed:
        if block.heading == "From outside" and not printed[block.heading]:
            # Its place in the document: there is a cluster, and nothing was received yet.
            _an_application_sends("from a pod")
        printed[block.heading] += shell.type(block)
    assert "received: helm test" in printed["Install"]
    assert "invoices" in printed["A queue of your own"]
    # What the application's pod sent was before it in the queue.
    assert "from a pod" in printed["From outside"]
    left = run("kubectl", "get", "namespace", CLUSTER.name, OPERATOR.name, "--ignore-not-found", "-o", "name")
    assert not left


def _an_application_sends(text: str) -> None:
    """A pod with the environment that the document gives sends a message; it knows nothing else."""
    found = [one for one in blocks(QUICK_START) if one.language == "yaml" and one.heading == "From an application"]
    assert len(found) == 1
    name = "application"
    CLUSTER.kubectl("apply", "-f", "-", stdin=json.dumps(_pod(name, YAML(typ="safe").load(found[0].text)["env"], text)))

    def done() -> bool:
        pod = CLUSTER.get("pod", name)
        phase = pod["status"].get("phase") if pod else None
        assert phase != "Failed", CLUSTER.kubectl("logs", name)
        return phase == "Succeeded"

    CLUSTER.wait(done, 90, "the application's pod done")
    CLUSTER.delete("pod", name)


def _pod(name: str, environment: list[dict[str, Any]], text: str) -> dict[str, Any]:
    code = f"""
import asyncio, sterna
async def main():
    async with sterna.connect() as connection:
        await connection.send("invoices", {text!r})
asyncio.run(main())
"""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "volumes": [{"name": "sterna", "secret": {"secretName": "orders-connection"}}],
            "containers": [
                {
                    "name": name,
                    "image": BROKER_IMAGE,
                    "command": ["/opt/sterna/bin/python", "-c", code],
                    "env": environment,
                    "volumeMounts": [{"name": "sterna", "mountPath": "/etc/sterna"}],
                }
            ],
        },
    }
