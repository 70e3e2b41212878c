"""TLS with certificates on both sides, and users whose tokens end."""

import asyncio
import base64
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from sterna_etcd import AccessError, Etcd, UnavailableError
from sterna_etcd.proto import etcd_pb2 as pb
from sterna_etcd.wire import Method

from tests.etcd.conftest import Connect
from tests.etcds import RunningEtcd
from tests.waiting import eventually


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


def authority(folder: Path) -> tuple[Path, Path]:
    """A certificate authority's certificate and key."""
    folder.mkdir(parents=True)
    key, cert = folder / "ca.key", folder / "ca.crt"
    elliptic = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *elliptic, "-keyout", key, "-out", cert, "-days", "1", "-subj", "/CN=test authority")
    return cert, key


def issued(folder: Path, ca: tuple[Path, Path], name: str) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, and its key."""
    key, request, cert, extra = (folder / f"{name}.{end}" for end in ("key", "csr", "crt", "ext"))
    elliptic = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", *elliptic, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    extra.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n")
    signed_by = ("-CA", ca[0], "-CAkey", ca[1], "-CAcreateserial")
    openssl("x509", "-req", "-in", request, *signed_by, "-out", cert, "-days", "1", "-extfile", extra)
    return cert, key


@pytest.fixture
def encrypted(etcd: Callable[..., RunningEtcd], tmp_path: Path) -> tuple[RunningEtcd, tuple[Path, Path]]:
    """An etcd that wants a certificate of whoever comes, and the authority."""
    ca = authority(tmp_path / "ca")
    cert, key = issued(tmp_path / "ca", ca, "server")
    flags = [f"--cert-file={cert}", f"--key-file={key}", f"--trusted-ca-file={ca[0]}", "--client-cert-auth"]
    return etcd(scheme="https", flags=flags), ca


async def test_certificates_on_both_sides(
    encrypted: tuple[RunningEtcd, tuple[Path, Path]], client: Connect, tmp_path: Path, prefix: str
) -> None:
    running, ca = encrypted
    cert, key = await asyncio.to_thread(issued, tmp_path / "ca", ca, "client")
    etcd = client(running, ca=ca[0], cert=cert, key=key)
    await etcd.put(prefix + "a", b"1")
    assert (await etcd.get(prefix + "a")).found is not None


async def test_a_certificate_of_somebody_else_is_refused_until_it_is_replaced(
    encrypted: tuple[RunningEtcd, tuple[Path, Path]], client: Connect, tmp_path: Path, prefix: str
) -> None:
    running, ca = encrypted
    stranger = await asyncio.to_thread(authority, tmp_path / "stranger")
    cert, key = await asyncio.to_thread(issued, tmp_path / "stranger", stranger, "client")
    etcd = client(running, ca=ca[0], cert=cert, key=key, timeout_ms=1_500)
    with pytest.raises(UnavailableError):
        await etcd.put(prefix + "a", b"1")
    good = await asyncio.to_thread(issued, tmp_path / "ca", ca, "good")
    cert.write_bytes(good[0].read_bytes())
    key.write_bytes(good[1].read_bytes())
    await etcd.put(prefix + "a", b"1")


async def test_many_may_ask_while_a_certificate_is_renewed(
    encrypted: tuple[RunningEtcd, tuple[Path, Path]], client: Connect, tmp_path: Path, prefix: str
) -> None:
    running, ca = encrypted
    cert, key = await asyncio.to_thread(issued, tmp_path / "ca", ca, "client")
    etcd = client(running, ca=ca[0], cert=cert, key=key)
    for number in range(10):
        os.utime(cert, ns=(number, number))
        # Whoever finds the newer file first makes the new connection, for all.
        await asyncio.gather(*(etcd.get(prefix + "a") for _ in range(30)))


async def test_a_certificate_that_is_being_written_is_waited_for_and_named(
    encrypted: tuple[RunningEtcd, tuple[Path, Path]], client: Connect, tmp_path: Path, prefix: str
) -> None:
    running, ca = encrypted
    cert, key = await asyncio.to_thread(issued, tmp_path / "ca", ca, "client")
    whole = cert.read_bytes()
    etcd = client(running, ca=ca[0], cert=cert, key=key, timeout_ms=1_500)
    cert.write_bytes(whole[:100])
    with pytest.raises(AccessError, match=f"{cert} holds no certificate"):
        await etcd.put(prefix + "a", b"0")
    cert.write_bytes(whole)
    await etcd.put(prefix + "a", b"1")
    cert.write_bytes(whole[:100])
    with pytest.raises(UnavailableError, match=f"{cert} holds no certificate"):
        await etcd.put(prefix + "a", b"2")
    patient = asyncio.create_task(etcd.put(prefix + "a", b"3"))
    cert.write_bytes(whole)
    await patient


async def test_a_server_that_cannot_be_trusted_is_told_nothing(
    encrypted: tuple[RunningEtcd, tuple[Path, Path]], client: Connect, tmp_path: Path, prefix: str
) -> None:
    running, ca = encrypted
    stranger = await asyncio.to_thread(authority, tmp_path / "stranger")
    cert, key = await asyncio.to_thread(issued, tmp_path / "ca", ca, "client")
    with pytest.raises(UnavailableError):
        await client(running, ca=stranger[0], cert=cert, key=key, timeout_ms=1_500).put(prefix + "a", b"1")


async def administrate(etcd: Etcd, path: str, **fields: Any) -> None:
    """A call of etcd's user administration, which the client leaves out: encoded by hand."""
    encoded = b""
    for number, value in enumerate(fields.values(), 1):
        raw = value if isinstance(value, bytes) else value.encode()
        encoded += bytes([number << 3 | 2, len(raw)]) + raw

    class Raw:
        """The bytes as they are."""

        @staticmethod
        def SerializeToString(request: bytes) -> bytes:  # noqa: N802, protobuf's name
            return request

    await etcd.call(Method(f"/etcdserverpb.Auth/{path}", Raw, pb.StatusResponse), encoded)


@pytest.fixture
async def with_users(etcd: Callable[..., RunningEtcd], client: Connect) -> RunningEtcd:
    """An etcd whose tokens live two seconds; root may all, "app" may read and write below /app/."""
    running = await asyncio.to_thread(lambda: etcd(flags=["--auth-token-ttl=2"]))
    admin = client(running)
    await administrate(admin, "UserAdd", name="root", password="secret")
    await administrate(admin, "RoleAdd", name="root")
    await administrate(admin, "UserGrantRole", user="root", role="root")
    await administrate(admin, "UserAdd", name="app", password="word")
    await administrate(admin, "RoleAdd", name="app")
    permission = b"\x08\x02" + b"\x12\x05/app/" + b"\x1a\x05/app0"
    await administrate(admin, "RoleGrantPermission", name="app", perm=permission)
    await administrate(admin, "UserGrantRole", user="app", role="app")
    await administrate(admin, "AuthEnable")
    return running


async def test_users_and_their_rights(with_users: RunningEtcd, client: Connect, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("word\n")
    etcd = client(with_users, user="app", password_file=file)
    await etcd.put("/app/a", b"1")
    with pytest.raises(AccessError, match="permission denied"):
        await etcd.put("/other", b"1")
    with pytest.raises(AccessError):
        await client(with_users).get("/app/a")
    with pytest.raises(AccessError, match="authentication failed"):
        await client(with_users, user="app", password="wrong").get("/app/a")


async def test_a_token_that_ended_is_fetched_anew(with_users: RunningEtcd, client: Connect) -> None:
    etcd = client(with_users, user="app", password="word")
    await etcd.put("/app/a", b"1")
    began = asyncio.get_running_loop().time()
    await eventually(lambda: asyncio.get_running_loop().time() - began > 4)
    await etcd.put("/app/a", b"2")
    etcd._token = base64.b64encode(b"nonsense").decode()
    await etcd.put("/app/a", b"3")


async def test_a_user_where_nobody_asks_does_no_harm(shared: RunningEtcd, client: Connect, prefix: str) -> None:
    assert grpc.aio is not None
    await client(shared, user="somebody", password="word").put(prefix + "a", b"1")
