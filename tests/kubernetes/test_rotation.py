"""Certificates and passwords that change while messages flow: who is connected stays, who connects gets the new."""

import asyncio
import base64
import json
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
import sterna
from cryptography import x509

from tests.access.authorities import Authority
from tests.kubernetes.conftest import Loads, MakeCluster, outside_url
from tests.kubernetes.kubectl import Namespace

# The machine may be the cluster's only node as well.
pytestmark = pytest.mark.slow_callbacks(5_000)

_FIRST, _SECOND, _THIRD = (f"password-number-{number}" for number in range(3))


def _secret(namespace: Namespace, name: str, data: Mapping[str, bytes]) -> None:
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}
    namespace.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))


class Secured:
    """A cluster of two brokers with TLS and a user; `name` is its name, `ca` a file with what clients trust."""

    def __init__(self, namespace: Namespace, make_cluster: MakeCluster, folder: Path) -> None:
        self.authority = Authority()
        self.ca = self.authority.write(folder / "ca.crt")
        self._namespace = namespace
        self._folder = folder
        node = namespace.all("node")[0]["status"]["addresses"]
        self._address = next(one["address"] for one in node if one["type"] == "InternalIP")
        self.certify("the first")
        self.say(_FIRST)
        spec = {"brokers": 2, "insecure": False, "authentication": {"enabled": True}, "tls": {"secretName": "rotating"}}
        self.name = make_cluster({**spec, "listeners": [{"name": "out", "type": "nodePort"}]})
        self.user({})
        namespace.ready("user", "rotated", 90)
        self.url = outside_url(namespace, self.name)
        self.environment = {"STERNA_CA": str(self.ca), "STERNA_USER": "rotated", "STERNA_PASSWORD": _FIRST}

    def certify(self, name: str) -> None:
        """Another certificate, by the same authority."""
        names = ("localhost", self._address)
        certificate, key = self.authority.issue(self._folder / name, name, alternatives=names)
        files = {"tls.crt": certificate.read_bytes(), "tls.key": key.read_bytes(), "ca.crt": self.authority.pem}
        _secret(self._namespace, "rotating", files)

    def say(self, password: str) -> None:
        """Another password."""
        _secret(self._namespace, "rotated", {"password": password.encode()})

    def user(self, spec: Mapping[str, object]) -> None:
        """The user, with these fields besides."""
        whole = {"clusterRef": {"name": self.name}, "passwordSecret": {"name": "rotated"}, **spec}
        self._namespace.apply("User", "rotated", whole)

    def shown(self) -> set[str]:
        """The common names of the certificates that the brokers show to who connects now."""
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        context.set_alpn_protocols(["h2"])
        return {
            asyncio.run(_common_name(context, *address.rsplit(":", 1)))
            for address in self.url.removeprefix("sternas://").split("+")
        }

    def takes(self, password: str) -> bool:
        """Whether somebody with this password may connect, and use both queues."""
        try:
            asyncio.run(self._connect(password))
        except sterna.errors.UnauthenticatedError:
            return False
        return True

    async def _connect(self, password: str) -> None:
        tls = sterna.Tls(ca=self.ca)
        async with sterna.connect(self.url, user="rotated", password=password, tls=tls) as connection:
            await connection.send("asked", "whether it is taken")

    def settled(self) -> dict[str, tuple[str, int]]:
        """The brokers' pods and how often their containers started again: neither may change."""
        pods = self._namespace.broker_pods(self.name)
        return {
            name: (pod["metadata"]["uid"], sum(one["restartCount"] for one in pod["status"]["containerStatuses"]))
            for name, pod in pods.items()
        }


async def _common_name(context: ssl.SSLContext, host: str, port: str) -> str:
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        certificate = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        return certificate.subject.rfc4514_string().removeprefix("CN=")
    finally:
        writer.transport.abort()


def _queues(namespace: Namespace, cluster: str) -> None:
    """One on each broker, and one for those who ask whether they may."""
    for name in ("one", "other", "asked"):
        namespace.apply("Queue", name, {"clusterRef": {"name": cluster}, "deletionPolicy": "delete"})
    assert len({namespace.ready("queue", name, 90)["status"]["home"] for name in ("one", "other", "asked")}) == 2


def test_a_certificate_is_rotated_under_load(
    operator: Namespace, make_cluster: MakeCluster, load: Loads, tmp_path: Path
) -> None:
    secured = Secured(operator, make_cluster, tmp_path)
    _queues(operator, secured.name)
    before = secured.settled()
    assert secured.shown() == {"the first"}
    running = [load(secured.url, name, **secured.environment) for name in ("one", "other")]
    for one in running:
        one.goes_on()
    secured.certify("the second")
    operator.wait(lambda: secured.shown() == {"the second"}, 90, "both brokers show the new certificate")
    for one in running:
        one.goes_on()
    # Who connects anew is served as well, and nobody was sent away.
    running.append(load(secured.url, "asked", **secured.environment))
    running[-1].goes_on()
    assert secured.settled() == before
    reports = [one.stop() for one in running]
    print(json.dumps(reports))
    assert all(report["lost"] == report["unknown"] == report["twice_unflagged"] == 0 for report in reports)
    for name in ("one", "other", "asked"):
        operator.delete("queue", name)


def test_a_password_is_rotated_under_load(
    operator: Namespace, make_cluster: MakeCluster, load: Loads, tmp_path: Path
) -> None:
    secured = Secured(operator, make_cluster, tmp_path)
    _queues(operator, secured.name)
    before = secured.settled()
    running = [load(secured.url, name, **secured.environment) for name in ("one", "other")]
    for one in running:
        one.goes_on()
    assert secured.takes(_FIRST)
    assert not secured.takes(_SECOND)

    # For a while both are taken.
    secured.say(_SECOND)
    operator.wait(lambda: secured.takes(_SECOND), 90, "the new password taken")
    assert secured.takes(_FIRST), "the old one goes on for its overlap"
    for one in running:
        one.goes_on()

    assert secured.settled() == before
    reports = [one.stop() for one in running]
    print(json.dumps(reports))
    assert all(report["lost"] == report["unknown"] == report["twice_unflagged"] == 0 for report in reports)

    # One that others may know ends at once, and whoever is connected with it is sent away.
    told = load(secured.url, "one", **{**secured.environment, "STERNA_PASSWORD": _SECOND})
    told.goes_on()
    secured.user({"revokeImmediately": True})
    secured.say(_THIRD)
    operator.wait(lambda: secured.takes(_THIRD), 90, "the third password taken")
    operator.wait(lambda: not secured.takes(_SECOND) and not secured.takes(_FIRST), 90, "the others refused")
    operator.wait(lambda: "not valid any more" in told.said(), 90, "who has the old one sent away", told.said)
    assert secured.settled() == before
    for name in ("one", "other", "asked"):
        operator.delete("queue", name)
