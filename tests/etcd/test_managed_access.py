"""The flags of the etcd that the operator runs, with the certificates that it makes, on a real etcd."""

import asyncio
import time  # the certificates are of today, as etcd sees it
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from sterna_etcd import UnavailableError
from sterna_operator.builders import authority
from sterna_operator.builders.authority import Order
from sterna_operator.builders.etcd import access_flags

from tests.etcd.conftest import Connect
from tests.etcds import RunningEtcd

ORDERS = (Order("server", "etcd", "server", ("localhost", "127.0.0.1")), Order("client", "mq", "client"))
DAY_MS = 86_400_000


def issued(standing: Mapping[str, Mapping[str, bytes] | None], days: int = 0) -> dict[str, dict[str, bytes]]:
    return authority.issued("ca", ORDERS, standing, round(time.time() * 1000) + days * DAY_MS)


def mounted(folder: Path, made: Mapping[str, Mapping[str, bytes]]) -> dict[str, Path]:
    """Writes Secrets as the kubelet does, each into a folder."""
    found = {}
    for name, data in made.items():
        found[name] = folder / name
        found[name].mkdir(exist_ok=True, parents=True)
        for key, value in data.items():
            (found[name] / key).write_bytes(value)
    return found


def access(folder: Path) -> dict[str, Path]:
    return {"ca": folder / "ca.crt", "cert": folder / "tls.crt", "key": folder / "tls.key"}


class Secured:
    """A real etcd with the operator's certificates, and a client's."""

    def __init__(self, etcd: Callable[..., RunningEtcd], folder: Path) -> None:
        self.folder, self.made = folder, issued({})
        self.folders = mounted(folder, self.made)
        self.running = etcd(scheme="https", flags=access_flags(str(self.folders["server"])))

    def take(self, made: Mapping[str, Mapping[str, bytes]]) -> None:
        """Pods get these Secrets."""
        mounted(self.folder, made)

    @property
    def access(self) -> dict[str, Path]:
        """With what a client comes."""
        return access(self.folders["client"])


@pytest.fixture
async def secured(etcd: Callable[..., RunningEtcd], tmp_path: Path) -> Secured:
    return await asyncio.to_thread(Secured, etcd, tmp_path / "pods")


async def test_it_is_for_those_alone_whom_the_operator_has_given_a_certificate(
    secured: Secured, client: Connect, tmp_path: Path, prefix: str
) -> None:
    running = secured.running
    await client(running, **secured.access).put(prefix + "a", b"1")
    # Without one; with one of another authority; with the server's own, which is none for clients.
    stranger = mounted(tmp_path / "strangers", issued({}))["client"]
    for given in (
        {"ca": secured.access["ca"]},
        {**access(stranger), "ca": secured.access["ca"]},
        access(secured.folders["server"]),
    ):
        with pytest.raises(UnavailableError):
            await client(running, **given, timeout_ms=1_500).put(prefix + "a", b"2")
    # Nor does whoever speaks without TLS get in.
    plain = running.urls.replace("https://", "http://")
    with pytest.raises(UnavailableError):
        await client(plain, timeout_ms=1_500).put(prefix + "a", b"3")


async def test_renewed_certificates_are_taken_up_while_it_runs(
    secured: Secured, client: Connect, tmp_path: Path, prefix: str
) -> None:
    running = secured.running
    connected = client(running, **secured.access)
    await connected.put(prefix + "a", b"1")
    renewed = issued(secured.made, 1) or issued({**secured.made, "server": None, "client": None})
    assert sorted(renewed) == ["client", "server"]
    # In either order, and with some time between: nobody is locked out meanwhile.
    secured.take({"server": renewed["server"]})
    await client(running, **secured.access).put(prefix + "a", b"2")
    await connected.put(prefix + "a", b"3")
    secured.take({"client": renewed["client"]})
    await connected.put(prefix + "a", b"4")
    await client(running, **secured.access).put(prefix + "a", b"5")


async def test_a_new_authority_is_taken_up_by_a_restart(
    secured: Secured, client: Connect, tmp_path: Path, prefix: str
) -> None:
    running = secured.running
    connected = client(running, **secured.access)
    await connected.put(prefix + "a", b"1")
    renewed = issued({**secured.made, "ca": None})
    secured.take({"server": renewed["server"]})
    await asyncio.to_thread(running.first.kill)
    await asyncio.to_thread(running.restart, running.first)
    # Who has the former certificate still is let in: the new authority's is trusted beside it.
    secured.take({"client": renewed["client"]})
    await connected.put(prefix + "a", b"2")
    former = mounted(tmp_path / "former", {"client": {**secured.made["client"], "ca.crt": renewed["client"]["ca.crt"]}})
    await client(running, **access(former["client"])).put(prefix + "a", b"3")
