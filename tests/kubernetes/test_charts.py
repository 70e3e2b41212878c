"""The chart of a cluster, as a user types it: installed with TLS and a user, tested, used, guarded, uninstalled."""

import asyncio
import base64
import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import sterna

from tests.kubernetes.conftest import BROKER_IMAGE, OPERATOR, OPERATOR_IMAGE, outside_url, recycle
from tests.kubernetes.kubectl import CommandError, Namespace, helm

# The machine may be the cluster's only node as well.
pytestmark = pytest.mark.slow_callbacks(5_000)


def _values(address: str) -> list[str]:
    broker, _, broker_tag = BROKER_IMAGE.rpartition(":")
    guard, _, guard_tag = OPERATOR_IMAGE.rpartition(":")
    return [
        *("--set", f"test.image.repository={broker}", "--set", f"test.image.tag={broker_tag}"),
        *("--set", f"uninstallGuard.image.repository={guard}", "--set", f"uninstallGuard.image.tag={guard_tag}"),
        *("--set-json", 'listeners=[{"name":"out","type":"nodePort"}]', "--set", f"tls.names={{{address}}}"),
        *("--set-json", 'queues=[{"name":"first","spec":{"deletionPolicy":"delete"}}]'),
        *("--set-json", 'spec={"pod":{"resources":{"requests":{"cpu":"10m","memory":"64Mi"}}}}'),
        *("--set", "storage.size=1Gi", "--set-json", 'etcd={"managed":{"storage":{"size":"1Gi"}}}'),
        *("--set", "deletionPolicy=delete"),
    ]


@pytest.fixture
def release(operator: Namespace) -> Iterator[str]:
    """A release of the chart, Ready; its name is the cluster's."""
    name = f"r{secrets.token_hex(2)}"
    node = operator.all("node")[0]
    address = next(one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP")
    helm("install", name, "charts/sterna", "--namespace", operator.name, *_values(address))
    operator.ready("messagingcluster", name, 180)
    operator.ready("user", f"{name}-app", 90)
    yield name
    helm("uninstall", name, "--namespace", operator.name, "--no-hooks", "--ignore-not-found")
    operator.wait(lambda: not operator.broker_pods(name), 120, "the brokers' pods gone")
    recycle()


def _secret(namespace: Namespace, name: str, key: str) -> str:
    found = namespace.get("secret", name)
    assert found is not None
    return base64.b64decode(found["data"][key]).decode()


async def _send(url: str, ca: Path, password: str, text: str) -> None:
    async with sterna.connect(url, user="app", password=password, tls=sterna.Tls(ca=ca)) as connection:
        await connection.send("first", text)


async def _receive(url: str, ca: Path, password: str) -> object:
    async with sterna.connect(url, user="app", password=password, tls=sterna.Tls(ca=ca)) as connection:
        consumer = await connection.consumer("first")
        message = await consumer.receive(timeout=60)
        assert message is not None
        await message.acknowledge()
        return message.body


def test_a_release_is_upgraded_and_rolled_back(operator: Namespace, release: str, tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text(_secret(operator, f"{release}-connection", "ca.crt"))
    password = _secret(operator, f"{release}-user-app", "password")
    url = outside_url(operator, release)
    asyncio.run(_send(url, ca, password, "kept"))
    authority = _secret(operator, f"{release}-tls", "ca.crt")

    def first_pod() -> str:
        return str(operator.broker_pods(release)[f"{release}-broker-0"]["metadata"]["uid"])

    before = first_pod()
    more = '[{"name":"first","spec":{"deletionPolicy":"delete"}},{"name":"second","spec":{"deletionPolicy":"delete"}}]'
    helm(
        *("upgrade", release, "charts/sterna", "--namespace", operator.name, "--reuse-values"),
        *("--set", "brokers=2", "--set-json", f"queues={more}"),
    )
    operator.wait(lambda: len(operator.broker_pods(release)) == 2, 120, "two brokers")
    operator.ready("messagingcluster", release, 120)
    operator.ready("queue", "second", 90)
    assert first_pod() == before

    helm("rollback", release, "--namespace", operator.name)
    operator.wait(lambda: operator.get("queue", "second") is None, 120, "the queue of the upgrade gone")
    operator.wait(lambda: len(operator.broker_pods(release)) == 1, 180, "one broker")
    operator.ready("messagingcluster", release, 120)
    operator.ready("queue", "first", 90)
    # Nobody has to be given a new password or authority, no broker was restarted, and nothing is lost.
    assert _secret(operator, f"{release}-user-app", "password") == password
    assert _secret(operator, f"{release}-tls", "ca.crt") == authority
    assert first_pod() == before
    assert asyncio.run(_receive(url, ca, password)) == "kept"


def test_the_operators_release_is_tested(operator: Namespace) -> None:
    log = helm("test", OPERATOR, "--namespace", operator.name, "--logs")
    assert "ready, and leads" in log
    assert operator.get("service", f"{OPERATOR}-test") is None, "it is there for the test alone"


def test_a_release_is_tested_rotated_guarded_and_uninstalled(operator: Namespace, release: str, tmp_path: Path) -> None:
    log = helm("test", release, "--namespace", operator.name, "--logs")
    assert "received: helm test" in log

    # From outside, with the authority that the connection Secret names.
    ca = tmp_path / "ca.crt"
    ca.write_text(_secret(operator, f"{release}-connection", "ca.crt"))
    password = _secret(operator, f"{release}-user-app", "password")
    url = outside_url(operator, release)
    asyncio.run(_send(url, ca, password, "one"))

    # A new password counts within seconds, and the old one goes on for its overlap.
    fresh = base64.b64encode(b"another-password-of-some-length").decode()
    operator.patch("secret", f"{release}-user-app", {"data": {"password": fresh}})

    def takes_the_new_one() -> bool:
        try:
            asyncio.run(_send(url, ca, "another-password-of-some-length", "two"))
        except sterna.SternaError:
            return False
        return True

    operator.wait(takes_the_new_one, 90, "the new password")
    asyncio.run(_send(url, ca, password, "three"))
    with pytest.raises(sterna.SternaError):
        asyncio.run(_send(url, ca, "wrong", "four"))

    # Three messages would be lost: neither the release nor the operator may go.
    def counted() -> bool:
        cluster = operator.get("messagingcluster", release)
        assert cluster is not None
        return bool(sum(broker.get("messages", 0) for broker in cluster["status"]["brokers"]) == 3)

    operator.wait(counted, 90, "the count of messages in the status")
    with pytest.raises(CommandError):
        helm("uninstall", release, "--namespace", operator.name, "--timeout", "60s")
    assert operator.get("messagingcluster", release) is not None
    said = operator.kubectl("logs", f"job/{release}-guard")
    assert f"{release} holds 3 messages" in said
    # With the volumes kept, the release's own queue would still go while its broker runs.
    assert f"Queue {operator.name}/first: policy delete, and broker {release}-broker-0" in said
    with pytest.raises(CommandError):
        helm("uninstall", OPERATOR, "--namespace", operator.name, "--timeout", "60s")
    assert "only this operator looks after" in operator.kubectl("logs", f"job/{OPERATOR}-guard")
    # Helm upgrades no release whose uninstallation was refused; this is how one goes on.
    revision = json.loads(helm("history", OPERATOR, "--namespace", operator.name, "-o", "json"))[-1]["revision"]
    helm("rollback", OPERATOR, str(revision), "--namespace", operator.name, "--wait", "--timeout", "180s")

    received = {str(asyncio.run(_receive(url, ca, "another-password-of-some-length"))) for _ in range(3)}
    assert received == {"one", "two", "three"}

    def empty() -> bool:
        cluster = operator.get("messagingcluster", release)
        assert cluster is not None
        return bool(sum(broker.get("messages", 0) for broker in cluster["status"]["brokers"]) == 0)

    operator.wait(empty, 90, "no messages in the status")
    helm("uninstall", release, "--namespace", operator.name, "--timeout", "120s")
    operator.wait(lambda: operator.get("messagingcluster", release) is None, 90, "the cluster gone")
    operator.wait(lambda: operator.get("queue", "first") is None, 90, "the queue gone with it")
    operator.wait(lambda: operator.get("pvc", f"data-{release}-broker-0") is None, 90, "its volume gone")
