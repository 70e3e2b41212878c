"""The images as pods run them: what is in them, what is not, and the last words of a broker that cannot start."""

import json
import re
from functools import partial
from pathlib import Path

import pytest

from tests.kubernetes.conftest import MakeCluster
from tests.kubernetes.kubectl import CommandError, Namespace

# The machine may be the cluster's only node as well.
pytestmark = pytest.mark.slow_callbacks(5_000)

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
    "writable": [one for one in ("/", "/etc", "/usr", "/opt/sterna", "/tmp", "/var/lib/sterna") if writable(one)],
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
    listed = set(re.findall(r"`([^`]+)`", "".join(line.rpartition(" |")[0].rpartition("| ")[0] for line in _rows())))
    assert set(found["contents"]["system"]) == listed
    assert "grpcio" in found["contents"]["packages"]
    with pytest.raises(CommandError):
        operator.kubectl("exec", f"{cluster}-broker-0", "--", "sh", "-c", "true")


def _rows() -> list[str]:
    """The rows of the table of the distribution's packages."""
    part = _PAGE.read_text().split("| from the distribution", 1)[1]
    return [line for line in part.split("\n\n", 1)[0].splitlines() if line.startswith("| `")]


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
