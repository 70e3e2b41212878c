"""The images as pods run them: what is in them, what is not, and the last words of a broker that cannot start."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.conftest import AUDIT_IMAGE, MakeCluster
from tests.kubernetes.kubectl import CommandError, Namespace

# The machine may be the cluster's only node as well.
pytestmark = pytest.mark.slow_callbacks(5_000)

# As a run of audits has it: a read-only root, and two folders to write to.
_AUDITS_POD: dict[str, Any] = {
    "restartPolicy": "Never",
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "scratch", "emptyDir": {}}],
    "containers": [
        {
            "name": "audit",
            "image": AUDIT_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "scratch", "mountPath": "/scratch"}],
            "securityContext": {
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
    ],
}
# A job of Spark that shuffles, runs Python in its executors, writes Parquet and reads it: what audits are made of.
_JOB = """
import pathlib, sys
from sterna_audit.auditing import Spark, running_spark
said = []
with running_spark(Spark("local[2]", "512m"), said.append, rows=10_000) as spark:
    rows = spark.range(10_000).selectExpr("id", "id % 7 AS rest", "uuid() AS text")
    rows.groupBy("rest").count().write.mode("overwrite").parquet("/tmp/rows")
    found = {row["rest"]: row["count"] for row in spark.read.parquet("/tmp/rows").collect()}
    doubled = spark.sparkContext.parallelize(range(10)).map(lambda number: 2 * number).sum()
    assert (sum(found.values()), len(found), doubled) == (10_000, 7, 90), found
    assert list(pathlib.Path("/scratch").iterdir())
assert "pyarrow, the selectors' evaluator" in said[0], said
"""

_PAGE = Path(__file__).parents[2] / "docs/kubernetes/images.md"

_LOOK = """
import json, os, pathlib, shutil
def writable(folder):
    try:
        pathlib.Path(folder, "probe").write_text("")
        return True
    except OSError:
        return False
print(json.dumps({
    "contents": json.loads(pathlib.Path("/usr/share/sterna/contents.json").read_text()),
    "user": os.getuid(),
    "programs": sorted({one for folder in ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin",
                        "/opt/sterna/bin") if os.path.isdir(folder) for one in os.listdir(folder)}),
    "writable": [one for one in ("/", "/etc", "/usr", "/opt/sterna", "/tmp", "/scratch", "/var/lib/sterna")
                 if writable(one)],
    "pip": [str(one) for one in pathlib.Path("/").glob("**/site-packages/pip")],
}))
"""


def test_the_brokers_image_has_what_is_listed_and_no_more(operator: Namespace, make_cluster: MakeCluster) -> None:
    cluster = make_cluster({"brokers": 1})
    found = json.loads(operator.python(f"{cluster}-broker-0", _LOOK))
    assert found["user"] == 65532
    assert found["writable"] == ["/tmp", "/var/lib/sterna"]
    assert found["pip"] == []
    assert all(re.fullmatch(r"python[\d.]*|sterna(-operator|-audit)?", program) for program in found["programs"])
    assert set(found["contents"]["system"]) == _listed()
    assert "grpcio" in found["contents"]["packages"]
    with pytest.raises(CommandError):
        operator.kubectl("exec", f"{cluster}-broker-0", "--", "sh", "-c", "true")


def test_the_audits_image_lists_audits_and_runs_spark(namespace: Namespace) -> None:
    pods = {
        "list": {"args": ["list"]},
        "look": {"command": ["python", "-c", _LOOK]},
        "spark": {"command": ["python", "-c", _JOB]},
    }
    for name, runs in pods.items():
        [container] = _AUDITS_POD["containers"]
        pod = {**_AUDITS_POD, "containers": [{**container, **runs}]}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"audits-{name}"}, "spec": pod}
        namespace.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def said(name: str) -> str:
        def phase() -> str:
            return str((namespace.get("pod", f"audits-{name}") or {}).get("status", {}).get("phase"))

        namespace.wait(lambda: phase() in ("Succeeded", "Failed"), 180, f"the end of audits-{name}")
        log = namespace.kubectl("logs", f"audits-{name}")
        assert phase() == "Succeeded", log
        return log

    assert re.search(r"^conservation +\S", said("list"), re.MULTILINE)
    found = json.loads(said("look"))
    assert found["user"] == 65532
    assert found["writable"] == ["/tmp", "/scratch"]
    assert found["pip"] == []
    assert all(re.fullmatch(r"chmod|java|python[\d.]*|sterna(-operator|-audit)?", one) for one in found["programs"])
    assert set(found["contents"]["system"]) == _listed() | _listed("Besides, in the audits' image")
    assert {"pyspark", "pyarrow"} <= set(found["contents"]["packages"])
    said("spark")


def _listed(title: str = "from the distribution") -> set[str]:
    """The distribution's packages that a table of the page names."""
    part = _PAGE.read_text().split(f"| {title}", 1)[1]
    rows = [line for line in part.split("\n\n", 1)[0].splitlines() if line.startswith("| `")]
    return set(re.findall(r"`([^`]+)`", "".join(line.rpartition(" |")[0].rpartition("| ")[0] for line in rows)))


def test_a_broker_that_cannot_start_says_why_in_the_status(operator: Namespace, make_cluster: MakeCluster) -> None:
    secret = ("broken-tls", "--from-literal=tls.crt=nothing", "--from-literal=tls.key=nothing")
    operator.kubectl("create", "secret", "generic", *secret)
    cluster = make_cluster({"brokers": 1, "tls": {"secretName": "broken-tls"}}, wait=False)
    words = "ended with status 2: certificates or users cannot be used: "

    def said() -> str:
        found = operator.get("messagingcluster", cluster) or {}
        brokers = (found.get("status") or {}).get("brokers") or [{}]
        return str(brokers[0].get("message", ""))

    operator.wait(lambda: words in said(), 120, "the last words of the broker")
    # While the kubelet waits it says no more than that.
    operator.wait(lambda: said().startswith(f"CrashLoopBackOff: {words}"), 120, "its words while the kubelet waits")
    assert "back-off" not in said()
    ready = partial(operator.condition, "messagingcluster", cluster)
    operator.wait(lambda: words in ready()["message"], 60, "its words in Ready's message")
    assert "Secret broken-tls: tls.crt is no certificate" in ready()["message"]
