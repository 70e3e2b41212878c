"""TLS on both ports of a live broker: who is talked to, with what, and certificates that are renewed meanwhile."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

from tests.access.authorities import Authority
from tests.broker.calls import CallError, call
from tests.broker.wire import Wire
from tests.waiting import eventually

Channels = Callable[..., grpc.aio.Channel]


async def shown(address: object, authority: Authority, certificate: tuple[Path, Path] | None = None) -> str:
    """The common name of the certificate that a port shows."""
    context = ssl.create_default_context(cadata=authority.pem.decode())
    context.set_alpn_protocols(["h2", "http/1.1"])
    if certificate:
        context.load_cert_chain(*certificate)
    host, _, port = str(address).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="localhost")
    try:
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(der).subject.rfc4514_string()
    finally:
        writer.close()
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()
        del reader


async def http(address: object, path: str, authority: Authority, **headers: str) -> tuple[int, str]:
    """Status and body of a request to the monitor."""
    import aiohttp

    context = ssl.create_default_context(cadata=authority.pem.decode())
    async with aiohttp.ClientSession() as session:
        async with session.get(f"https://{address}{path}", ssl=context, headers=headers) as response:
            return response.status, await response.text()


@pytest.mark.covers("EMS-SEC-E08", "EMS-MON-E03", "EMS-SEC-B41")
async def test_both_ports_speak_tls_and_nothing_else(
    node: Any, pki: dict[str, Path], secure_channel: Channels, authority: Authority
) -> None:
    running = await node(**pki)
    async with secure_channel(running.messaging) as channel:
        assert (await call(channel, "Admin/GetStatistics")).broker == "sterna"
        stream = Wire(channel)
        assert (await stream.hello()).broker == "sterna"
        await stream.goodbye()
        await stream.status()
        stream.close()
    assert (await http(running.monitor, "/readyz", authority))[0] == 200
    status, text = await http(running.monitor, "/metrics", authority)
    assert status == 200
    assert "sterna_certificate_not_after_seconds 1." in text
    async with grpc.aio.insecure_channel(str(running.messaging)) as channel:
        with pytest.raises(CallError) as caught:
            await call(channel, "Admin/GetStatistics", timeout_s=5)
        assert caught.value.status is grpc.StatusCode.UNAVAILABLE


@pytest.mark.covers("EMS-SEC-B33", "EMS-SEC-B34")
async def test_a_renewed_certificate_is_shown_without_a_restart(
    node: Any, tmp_path: Path, secure_channel: Channels, authority: Authority
) -> None:
    certificate, key = authority.issue(tmp_path, "first")
    running = await node(tls_cert=certificate, tls_key=key)
    for address in (running.messaging, running.monitor):
        assert await shown(address, authority) == "CN=first"
    async with secure_channel(running.messaging) as channel:
        stream = Wire(channel)
        await stream.hello()
        authority.issue(tmp_path, "second")

        async def are_new() -> bool:
            names = [await shown(address, authority) for address in (running.messaging, running.monitor)]
            return names == ["CN=second"] * 2

        checking: Callable[[], bool | Awaitable[bool]] = are_new
        await eventually(checking, what="the renewed certificate")
        # Whoever was there goes on.
        assert await stream.session() == 1
        stream.close()


async def test_files_that_cannot_be_used_leave_the_old_certificate(
    node: Any, tmp_path: Path, authority: Authority, logged: list[dict[str, Any]]
) -> None:
    certificate, key = authority.issue(tmp_path, "first")
    running = await node(tls_cert=certificate, tls_key=key)
    _, other = authority.issue(tmp_path / "other", "second")
    other.replace(key)
    await running.reload()
    assert logged[-1]["event"] == "certificates_not_reloaded"
    assert f"--tls-key {key}: is not the key" in logged[-1]["error"]
    assert await shown(running.messaging, authority) == "CN=first"
    (tmp_path / "other" / "tls.crt").replace(certificate)
    await running.reload()
    assert await shown(running.messaging, authority) == "CN=second"
    assert await shown(running.monitor, authority) == "CN=second"


async def test_an_expired_certificate_is_spoken_of(
    node: Any, tmp_path: Path, authority: Authority, logged: list[dict[str, Any]]
) -> None:
    certificate, key = authority.issue(tmp_path, days=-1)
    await node(tls_cert=certificate, tls_key=key)
    assert "certificate_expired" in [one["event"] for one in logged]
    authority.issue(tmp_path, days=5)
    certificate, key = authority.issue(tmp_path, days=5)
    await node(tls_cert=certificate, tls_key=key, folder="soon")
    assert "certificate_expires_soon" in [one["event"] for one in logged]


# --- Certificates of clients


@pytest.mark.covers("EMS-SEC-B29", "EMS-SEC-B37", "EMS-SEC-E10")
async def test_with_a_client_ca_nobody_is_talked_to_without_a_certificate_of_it(
    node: Any, pki: dict[str, Path], tmp_path: Path, secure_channel: Channels, authority: Authority
) -> None:
    running = await node(**pki, client_ca=authority.write(tmp_path / "ca.pem"))
    stranger = Authority("strangers").issue(tmp_path / "stranger", "mallory")
    for certificate in (None, stranger):
        async with secure_channel(running.messaging, certificate) as channel:
            with pytest.raises(CallError) as caught:
                await call(channel, "Admin/GetStatistics", timeout_s=5)
            assert caught.value.status is grpc.StatusCode.UNAVAILABLE
    async with secure_channel(running.messaging, authority.issue(tmp_path / "alice", "alice")) as channel:
        assert (await call(channel, "Admin/GetStatistics")).broker == "sterna"


@pytest.mark.covers("EMS-SEC-B31")
@pytest.mark.parametrize(
    ("how", "alternatives", "user"),
    [
        (None, (), "alice"),
        ("cn", ("client.example",), "alice"),
        ("dns", ("client.example",), "client.example"),
        ("email", ("alice@example.org",), "alice@example.org"),
        ("uri", ("spiffe://example/alice",), "spiffe://example/alice"),
    ],
)
async def test_the_user_is_a_name_of_the_certificate_whatever_the_client_says(
    node: Any,
    pki: dict[str, Path],
    tmp_path: Path,
    secure_channel: Channels,
    authority: Authority,
    how: str | None,
    alternatives: tuple[str, ...],
    user: str,
) -> None:
    running = await node(**pki, client_ca=authority.write(tmp_path / "ca.pem"), certificate_user=how)
    certificate = authority.issue(tmp_path / "alice", "alice", alternatives=alternatives)
    async with secure_channel(running.messaging, certificate) as channel:
        stream = Wire(channel)
        await stream.hello(credentials={"password": {"user": "mallory", "password": "x"}})
        listed = (await call(channel, "Admin/ListConnections")).connections
        assert [one.user for one in listed] == [user]
        stream.close()


async def test_a_certificate_without_the_name_is_told_so(
    node: Any, pki: dict[str, Path], tmp_path: Path, secure_channel: Channels, authority: Authority
) -> None:
    running = await node(**pki, client_ca=authority.write(tmp_path / "ca.pem"), certificate_user="email")
    for alternatives in ((), ("a@example.org", "b@example.org")):
        certificate = authority.issue(tmp_path / "alice", "alice", alternatives=alternatives)
        async with secure_channel(running.messaging, certificate) as channel:
            with pytest.raises(CallError, match=r"UNAUTHENTICATED.*mail address"):
                await call(channel, "Admin/GetStatistics")


@pytest.mark.covers("EMS-SEC-A08")
async def test_with_users_a_certificate_counts_only_where_it_is_said_and_for_known_names(
    node: Any,
    pki: dict[str, Path],
    tmp_path: Path,
    secure_channel: Channels,
    authority: Authority,
    users_file: Callable[..., Path],
) -> None:
    flags = {
        **pki,
        "client_ca": authority.write(tmp_path / "ca.pem"),
        "users": await asyncio.to_thread(users_file, alice="right"),
    }
    alice = authority.issue(tmp_path / "alice", "alice")
    bob = authority.issue(tmp_path / "bob", "bob")
    both = await node(**flags)
    async with secure_channel(both.messaging, alice) as channel:
        with pytest.raises(CallError, match=r"UNAUTHENTICATED.*no user and password"):
            await call(channel, "Admin/GetStatistics")
        stream = Wire(channel)
        assert (await stream.hello(credentials={"password": {"user": "alice", "password": "right"}})).broker == "sterna"
        stream.close()
    either = await node(**flags, certificate_user="cn", folder="either")
    async with secure_channel(either.messaging, alice) as channel:
        await call(channel, "Admin/GetStatistics")
    async with secure_channel(either.messaging, bob) as channel:
        with pytest.raises(CallError, match="no user of this broker"):
            await call(channel, "Admin/GetStatistics")


async def test_an_exchanged_client_ca_counts_from_the_next_connection_on(
    node: Any, pki: dict[str, Path], tmp_path: Path, secure_channel: Channels, authority: Authority
) -> None:
    ca = authority.write(tmp_path / "ca.pem")
    running = await node(**pki, client_ca=ca)
    other = Authority("others")
    bob = other.issue(tmp_path / "bob", "bob")
    other.write(ca)
    await running.reload()
    async with secure_channel(running.messaging, bob) as channel:
        await call(channel, "Admin/GetStatistics")
    async with secure_channel(running.messaging, authority.issue(tmp_path / "alice", "alice")) as channel:
        with pytest.raises(CallError):
            await call(channel, "Admin/GetStatistics", timeout_s=5)
