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


async def test_it_is_for_those_alone_whom_the_operator_has_given_a_certificate(
    etcd: Callable[..., RunningEtcd], client: Connect, tmp_path: Path, prefix: str
) -> None:
    made = issued({})
    folders = mounted(tmp_path / "pods", made)
    running = await asyncio.to_thread(etcd, scheme="https", flags=access_flags(str(folders["server"])))
    await client(running, **access(folders["client"])).put(prefix + "a", b"1")
    # Without one; with one of another authority; with the server's own, which is none for clients.
    stranger = mounted(tmp_path / "strangers", issued({}))["client"]
    for given in (
        {"ca": folders["client"] / "ca.crt"},
        {**access(stranger), "ca": folders["client"] / "ca.crt"},
        access(folders["server"]),
    ):
        with pytest.raises(UnavailableError):
            await client(running, **given, timeout_ms=1_500).put(prefix + "a", b"2")
    # Nor does whoever speaks without TLS get in.
    plain = running.urls.replace("https://", "http://")
    with pytest.raises(UnavailableError):
        await client(plain, timeout_ms=1_500).put(prefix + "a", b"3")


async def test_renewed_certificates_are_taken_up_while_it_runs(
    etcd: Callable[..., RunningEtcd], client: Connect, tmp_path: Path, prefix: str
) -> None:
    made = issued({})
    folders = mounted(tmp_path / "pods", made)
    running = await asyncio.to_thread(etcd, scheme="https", flags=access_flags(str(folders["server"])))
    connected = client(running, **access(folders["client"]))
    await connected.put(prefix + "a", b"1")
    renewed = issued(made, 1) or issued({**made, "server": None, "client": None})
    assert sorted(renewed) == ["client", "server"]
    # In either order, and with some time between: nobody is locked out meanwhile.
    mounted(tmp_path / "pods", {"server": renewed["server"]})
    await client(running, **access(folders["client"])).put(prefix + "a", b"2")
    await connected.put(prefix + "a", b"3")
    mounted(tmp_path / "pods", {"client": renewed["client"]})
    await connected.put(prefix + "a", b"4")
    await client(running, **access(folders["client"])).put(prefix + "a", b"5")


async def test_a_new_authority_is_taken_up_by_a_restart(
    etcd: Callable[..., RunningEtcd], client: Connect, tmp_path: Path, prefix: str
) -> None:
    made = issued({})
    folders = mounted(tmp_path / "pods", made)
    running = await asyncio.to_thread(etcd, scheme="https", flags=access_flags(str(folders["server"])))
    connected = client(running, **access(folders["client"]))
    await connected.put(prefix + "a", b"1")
    renewed = issued({**made, "ca": None})
    mounted(tmp_path / "pods", {"server": renewed["server"]})
    await asyncio.to_thread(running.first.kill)
    await asyncio.to_thread(running.restart, running.first)
    # Who has the former certificate still is let in: the new authority's is trusted beside it.
    mounted(tmp_path / "pods", {"client": renewed["client"]})
    await connected.put(prefix + "a", b"2")
    former = mounted(tmp_path / "former", {"client": {**made["client"], "ca.crt": renewed["client"]["ca.crt"]}})
    await client(running, **access(former["client"])).put(prefix + "a", b"3")
