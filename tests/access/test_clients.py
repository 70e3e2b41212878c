"""The SDK and the command line against a live broker with TLS and users: coming in, staying, and being told why not."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import sterna
from prometheus_client.parser import text_string_to_metric_families
from sterna import admin, blocking, errors
from sterna._proto.sterna.v1 import messaging_pb2 as messaging
from sterna.cli.application import run
from sterna_broker.surroundings import monotonic_ms

from tests.access.authorities import Authority
from tests.access.conftest import hashed
from tests.broker.wire import BIG, lazy_stream
from tests.waiting import eventually

Node = Callable[..., Any]


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No contexts of whoever runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("URL", "USER", "PASSWORD", "PASSWORD_FILE", "CA", "CERT", "KEY", "SERVER_NAME", "CONTEXT"):
        monkeypatch.delenv(f"STERNA_{name}", raising=False)


def url_of(running: Any, scheme: str = "sternas") -> str:
    return f"{scheme}://localhost:{running.messaging.port}"


def trusting(authority: Authority, **fields: Any) -> sterna.Tls:
    return sterna.Tls(ca=authority.pem, **fields)


async def refused(url: str, **options: Any) -> errors.SternaError:
    """How a connection is refused; the admin client says the same."""
    with pytest.raises(errors.SternaError) as caught:
        await sterna.connect(url, connect_attempts=1, **options)
    return caught.value


async def test_everybody_who_is_admitted_looks_names_up_and_nobody_else(
    node: Node, pki: dict[str, Path], authority: Authority, users_file: Callable[..., Path]
) -> None:
    running = await node(**pki, users=await asyncio.to_thread(users_file, alice="1"))
    options: dict[str, Any] = {"user": "alice", "password": "1", "tls": trusting(authority)}
    async with admin.connect(url_of(running), **options) as client:
        spec = f"{{url: '{url_of(running)}', clientId: c}}"
        await client.apply(
            f"apiVersion: sterna.dev/v1alpha1\nkind: ConnectionFactory\nmetadata: {{name: f}}\nspec: {spec}\n"
        )
    factory = await sterna.lookup("f", url_of(running), **options)
    assert isinstance(factory, sterna.ConnectionFactory)
    # A factory has no credentials: they are the program's.
    async with factory.connect(**options) as connection:
        assert connection.client_id == "c"
    async with sterna.Naming("sternas://localhost:1", **options) as naming:
        assert await naming.lookup(f"{url_of(running)}/f") == factory
        with pytest.raises(errors.InvalidArgumentError, match="is without TLS, and the own URL is not"):
            await naming.lookup(f"{url_of(running, 'sterna')}/f")
    for wrong in ({"password": "2"}, {"user": "", "password": ""}):
        with pytest.raises(errors.UnauthenticatedError):
            await sterna.lookup("f", url_of(running), **{**options, **wrong})
    with pytest.raises(errors.TlsError, match="speaks TLS, and was called without"):
        await sterna.lookup("f", url_of(running, "sterna"), user="alice", password="1")


@pytest.mark.covers("EMS-SEC-A11", "EMS-SEC-E03")
async def test_messages_and_administration_over_tls(
    node: Node, pki: dict[str, Path], authority: Authority, users_file: Callable[..., Path]
) -> None:
    running = await node(**pki, users=await asyncio.to_thread(users_file, alice="1"))
    options: dict[str, Any] = {"user": "alice", "password": "1", "tls": trusting(authority)}
    async with sterna.connect(url_of(running), **options) as connection:
        await connection.send("q", "hello")
        consumer = await connection.consumer("q")
        received = await consumer.receive(5)
        assert received is not None
        assert received.body == "hello"
        async with admin.connect(url_of(running), **options) as client:
            assert [one.user for one in await client.connections()] == ["alice"]
            assert [one.body async for one in client.browse_queue("q")] in ([], ["hello"])


@pytest.mark.covers("EMS-SEC-B01", "EMS-SEC-E04")
async def test_a_wrong_password_is_said_at_once(
    node: Node, pki: dict[str, Path], authority: Authority, users_file: Callable[..., Path]
) -> None:
    running = await node(**pki, users=await asyncio.to_thread(users_file, alice="1"))
    for user in ("alice", "carol"):
        credentials: dict[str, Any] = {"user": user, "password": "s3cret"}
        with pytest.raises(errors.UnauthenticatedError, match="user or the password is wrong") as caught:
            await sterna.connect(url_of(running), tls=trusting(authority), **credentials)
        assert "s3cret" not in str(caught.value)
        async with admin.connect(url_of(running), tls=trusting(authority), **credentials) as client:
            with pytest.raises(errors.UnauthenticatedError, match="user or the password is wrong"):
                await client.statistics()


# --- TLS that fails says at what


@pytest.mark.covers("EMS-SEC-E14")
async def test_an_authority_that_is_not_trusted(node: Node, pki: dict[str, Path]) -> None:
    running = await node(**pki)
    error = await refused(url_of(running), tls=sterna.Tls(ca=Authority("others").pem))
    assert isinstance(error, errors.TlsError)
    assert "of an authority that is not trusted" in error.cause
    assert "ca" in error.remedy
    with pytest.raises(errors.TlsError, match="authority that is not trusted"):
        async with admin.connect(url_of(running), tls=sterna.Tls(ca=Authority("others").pem)):
            pass


async def test_an_expired_certificate(node: Node, tmp_path: Path, authority: Authority) -> None:
    certificate, key = authority.issue(tmp_path, days=-1)
    running = await node(tls_cert=certificate, tls_key=key)
    assert "has expired" in str(await refused(url_of(running), tls=trusting(authority)))


@pytest.mark.covers("EMS-SEC-E14")
async def test_a_certificate_for_another_name_and_saying_which_name(
    node: Node, tmp_path: Path, authority: Authority
) -> None:
    certificate, key = authority.issue(tmp_path, "broker", alternatives=("broker.example",))
    running = await node(tls_cert=certificate, tls_key=key)
    assert "is not for the name localhost" in str(await refused(url_of(running), tls=trusting(authority)))
    named = trusting(authority, server_name="broker.example")
    async with sterna.connect(url_of(running), tls=named) as connection:
        assert connection.connected


@pytest.mark.covers("EMS-SEC-E27")
async def test_tls_where_there_is_none_and_none_where_there_is_tls(
    node: Node, pki: dict[str, Path], authority: Authority
) -> None:
    plain, secure = await node(), await node(**pki, folder="secure")
    assert "nobody speaks TLS there" in str(await refused(url_of(plain), tls=trusting(authority)))
    error = await refused(url_of(secure, "sterna"))
    assert isinstance(error, errors.TlsError)
    assert "write sternas://" in error.remedy


@pytest.mark.covers("EMS-SEC-E06", "EMS-SEC-E10", "EMS-SEC-E14")
async def test_certificates_of_clients_that_are_missing_or_wrong(
    node: Node, pki: dict[str, Path], tmp_path: Path, authority: Authority
) -> None:
    running = await node(**pki, client_ca=authority.write(tmp_path / "ca.pem"))
    assert "wants a certificate of the client" in str(await refused(url_of(running), tls=trusting(authority)))
    certificate, key = Authority("others").issue(tmp_path / "others", "mallory")
    wrong = trusting(authority, certificate=certificate, key=key)
    assert "refuses the client's certificate" in str(await refused(url_of(running), tls=wrong))
    certificate, key = authority.issue(tmp_path / "alice", "alice")
    async with sterna.connect(url_of(running), tls=trusting(authority, certificate=certificate, key=key)):
        pass
    # Where no certificate is asked for, none is needed.
    async with sterna.connect(url_of(await node(**pki, folder="open")), tls=trusting(authority)):
        pass


async def test_files_that_cannot_be_used_are_named(node: Node, pki: dict[str, Path], tmp_path: Path) -> None:
    running = await node(**pki)
    missing = await refused(url_of(running), tls=sterna.Tls(ca=tmp_path / "missing"))
    assert f"cannot read ca {tmp_path / 'missing'}: No such file" in str(missing)
    await asyncio.to_thread((tmp_path / "garbage").write_text, "s3cret")
    garbage = await refused(url_of(running), tls=sterna.Tls(certificate=tmp_path / "garbage", key=tmp_path / "garbage"))
    assert f"certificate {tmp_path / 'garbage'} holds no PEM" in str(garbage)
    assert "s3cret" not in str(garbage)


async def test_pem_that_grpc_cannot_use_is_named_and_grpc_says_nothing_of_it(
    node: Node, pki: dict[str, Path], tmp_path: Path, authority: Authority, capfd: pytest.CaptureFixture[str]
) -> None:
    running = await node(**pki, client_ca=authority.write(tmp_path / "ca.pem"))
    certificate, key = authority.issue(tmp_path / "alice", "alice")
    _, of_another = authority.issue(tmp_path / "bob", "bob")
    damaged = tmp_path / "damaged.pem"
    await asyncio.to_thread(damaged.write_text, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"ca": key}, f"ca {key} holds no certificate that can be read"),
        ({"ca": damaged}, f"ca {damaged} holds no certificate that can be read"),
        ({"ca": key.read_text()}, "ca holds no certificate that can be read"),
        ({"certificate": damaged, "key": key}, f"certificate {damaged} holds no certificate that can be read"),
        ({"certificate": certificate, "key": damaged}, f"key {damaged} holds no private key that can be read"),
        ({"certificate": certificate, "key": of_another}, f"key {of_another} does not belong to the certificate"),
    )
    for fields, said in cases:
        error = await refused(url_of(running), tls=sterna.Tls(**{"ca": authority.pem, **fields}))
        assert isinstance(error, errors.TlsError), fields
        assert said in str(error)
        assert "start a broker" not in error.remedy
    # What surrounds a certificate is nobody's business: bundles have names and dates there, in any letters.
    adorned = "# Übersicht\n".encode() + authority.pem + b"and more\n"
    async with sterna.connect(url_of(running), tls=sterna.Tls(ca=adorned, certificate=certificate, key=key)):
        pass
    assert "ssl_" not in capfd.readouterr().err


async def test_certificates_may_be_texts_as_the_environment_has_them(
    node: Node, pki: dict[str, Path], tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await node(**pki, client_ca=authority.write(tmp_path / "ca.pem"))
    certificate, key = authority.issue(tmp_path / "alice", "alice")
    texts = {"CA": authority.pem.decode(), "CERT": certificate.read_text(), "KEY": key.read_text()}
    for name, text in texts.items():
        monkeypatch.setenv(f"STERNA_{name}", text)
    monkeypatch.setenv("STERNA_URL", url_of(running))
    async with sterna.connect() as connection:
        assert connection.connected
        assert "BEGIN" not in repr(connection._lifeline.options)


async def test_nobody_there_is_no_matter_of_tls(authority: Authority) -> None:
    error = await refused("sternas://127.0.0.1:1", tls=trusting(authority))
    assert isinstance(error, errors.UnreachableError)
    assert not isinstance(error, errors.TlsError)


# --- Change under a live connection


async def test_a_password_that_changes_is_asked_for_again_and_nothing_is_lost(
    node: Node, users_file: Callable[..., Path]
) -> None:
    path = await asyncio.to_thread(users_file, alice="old")
    running = await node(users=path)
    passwords, asked = ["old"], []

    async def password() -> str:
        asked.append(passwords[-1])
        return passwords[-1]

    restored = asyncio.Event()
    url = url_of(running, "sterna")
    async with sterna.connect(url, user="alice", password=password) as connection:
        connection.on_restored(lambda _: restored.set())
        producer = await connection.producer("q")
        for number in range(50):
            await producer.send_soon(f"m{number}")
        passwords.append("new")
        await asyncio.to_thread(users_file, alice="new")
        await running.reload()
        for number in range(50, 100):
            await producer.send_soon(f"m{number}")
        await asyncio.wait_for(restored.wait(), 10)
        await producer.flush()
        assert asked[0] == "old"
        assert asked[-1] == "new"
        consumer = await connection.consumer("q")
        received = [await consumer.receive(5) for _ in range(100)]
        assert [one.body for one in received if one] == [f"m{number}" for number in range(100)]
        assert await consumer.receive(0.1) is None


async def test_a_connection_whose_password_was_taken_back_is_over(node: Node, users_file: Callable[..., Path]) -> None:
    running = await node(users=await asyncio.to_thread(users_file, alice="old"))
    async with sterna.connect(url_of(running, "sterna"), user="alice", password="old") as connection:
        await asyncio.to_thread(users_file, alice="new")
        await running.reload()
        await eventually(lambda: connection.closed, what="the end of the connection")
        assert isinstance(connection.closed, errors.UnauthenticatedError)


async def _cut(running: Any) -> dict[str, float]:
    """How many streams were cut, by code, as the broker's metrics say; of those that were."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{running.monitor}/metrics") as response:
        families = list(text_string_to_metric_families(await response.text()))
    samples = [sample for family in families for sample in family.samples if sample.name == "sterna_streams_cut_total"]
    assert "UNAUTHENTICATED" in {sample.labels["code"] for sample in samples}, "it is there before the first"
    return {sample.labels["code"]: sample.value for sample in samples if sample.value}


async def test_whoever_is_not_let_in_or_not_any_more_is_told_and_counted_among_the_streams_that_were_cut(
    node: Node, users_file: Callable[..., Path]
) -> None:
    running = await node(users=await asyncio.to_thread(users_file, alice="old"), open_metrics=True)
    url = url_of(running, "sterna")
    assert await _cut(running) == {}
    for number, (user, password) in enumerate((("alice", "wrong"), ("carol", "1"), ("", ""))):
        with pytest.raises(errors.UnauthenticatedError) as caught:
            await sterna.connect(url, user=user, password=password)
        assert (caught.value.subject, caught.value.retryable) == ("credentials", False)
        assert await _cut(running) == {"UNAUTHENTICATED": number + 1}
    interrupted: list[sterna.Interrupted] = []
    async with sterna.connect(url, user="alice", password="old") as connection:
        connection.on_interrupted(interrupted.append)
        consumer = await connection.consumer("q")
        await asyncio.to_thread(users_file, alice="new")
        await running.reload()
        await eventually(lambda: connection.closed, what="the end of the connection")
        # First it has to leave, and then it is not let in: each has its own reason.
        with pytest.raises(errors.UnauthenticatedError):
            await consumer.receive(5)
        with pytest.raises(errors.UnauthenticatedError):
            await connection.send("q", "x")
    assert [one.error.code for one in interrupted] == [errors.ErrorCode.CLOSED]
    assert "not valid any more" in interrupted[0].error.cause
    assert await _cut(running) == {"CLOSED": 1, "UNAUTHENTICATED": 4}


async def test_one_that_does_not_read_is_ended_too_when_its_password_is_taken_back_and_counts_once(
    node: Node, users_file: Callable[..., Path], channel_to: Callable[..., Any]
) -> None:
    running = await node(users=await asyncio.to_thread(users_file, alice="old", bob="1"), open_metrics=True)
    async with sterna.connect(url_of(running, "sterna"), user="bob", password="1") as connection:
        for _ in range(BIG):
            await connection.send("big", "x" * 500_000)
        who = messaging.Credentials(password=messaging.Credentials.Password(user="alice", password="old"))
        lazy = await lazy_stream(channel_to(running), credentials=who)
        calls = running._parts.connect
        await eventually(lambda: calls.calls == 2 and _is_stuck(calls), what="a stream that is stuck")
        await asyncio.to_thread(users_file, alice="new", bob="1")
        await running.reload()
        await eventually(lambda: calls.calls == 1, what="its end")
        assert await _cut(running) == {"CLOSED": 1}
        lazy.cancel()


def _is_stuck(calls: Any) -> bool:
    now_ms = monotonic_ms()
    return any(now_ms - since > 100 for one in calls._calls if (since := one.writing_since_ms) is not None)


async def test_a_connection_lives_on_when_the_authority_changes_for_both_sides(
    node: Node, tmp_path: Path, users_file: Callable[..., Path]
) -> None:
    first, second = Authority("first"), Authority("second")
    certificate, key = first.issue(tmp_path)
    ca = first.write(tmp_path / "trusted.pem")
    running = await node(tls_cert=certificate, tls_key=key, users=await asyncio.to_thread(users_file, alice=["1", "2"]))
    restored = asyncio.Event()
    tls = sterna.Tls(ca=ca)
    async with sterna.connect(url_of(running), user="alice", password=lambda: "1", tls=tls) as connection:
        connection.on_restored(lambda _: restored.set())
        second.issue(tmp_path)
        second.write(ca)
        await running.reload()
        async with admin.connect(url_of(running), user="alice", password="1", tls=tls) as client:
            await client.close_connection((await client.connections())[0].id)
        await asyncio.wait_for(restored.wait(), 10)
        await connection.send("q", "hello")


async def test_many_that_come_back_at_once_cost_one_check(node: Node, users_file: Callable[..., Path]) -> None:
    running = await node(users=await asyncio.to_thread(users_file, alice="1"))
    url = url_of(running, "sterna")
    opened = await asyncio.gather(*(sterna.connect(url, user="alice", password="1") for _ in range(50)))
    await asyncio.gather(*(one.close() for one in opened))
    assert running.gate._verifier.checks == 1


# --- The blocking interface and the command line


async def test_the_blocking_interface_takes_the_same(
    node: Node, pki: dict[str, Path], authority: Authority, users_file: Callable[..., Path]
) -> None:
    running = await node(**pki, users=await asyncio.to_thread(users_file, alice="1"))

    def use() -> str:
        tls = trusting(authority)
        with blocking.connect(url_of(running), user="alice", password=lambda: "1", tls=tls) as connection:
            connection.send("q", "hello")
            found = connection.consumer("q").receive(5)
            return str(found.body) if found else ""

    assert await asyncio.to_thread(use) == "hello"


@pytest.mark.covers("EMS-ADMIN-B02", "EMS-ADMIN-B01")
async def test_commands_take_everything_from_the_environment_and_contexts(
    node: Node,
    pki: dict[str, Path],
    authority: Authority,
    tmp_path: Path,
    users_file: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    running = await node(**pki, users=await asyncio.to_thread(users_file, alice="s3cret"))
    ca = authority.write(tmp_path / "ca.pem")
    password = tmp_path / "password"
    await asyncio.to_thread(password.write_text, "s3cret\n")

    async def command(*arguments: str) -> tuple[int, str]:
        code = await asyncio.to_thread(run, list(arguments))
        captured = capsys.readouterr()
        assert "s3cret" not in captured.out + captured.err
        return code, captured.out + captured.err

    access = ["--user", "alice", "--password-file", str(password), "--ca", str(ca)]
    code, said = await command("send", "q", "hello", "--server", url_of(running), *access)
    assert code == 0, said
    monkeypatch.setenv("STERNA_URL", url_of(running))
    monkeypatch.setenv("STERNA_USER", "alice")
    monkeypatch.setenv("STERNA_PASSWORD", "s3cret")
    monkeypatch.setenv("STERNA_CA", str(ca))
    assert (await command("get", "queues"))[0] == 0
    monkeypatch.setenv("STERNA_PASSWORD", "s3cret-wrong")
    code, said = await command("get", "queues")
    assert (code, "UNAUTHENTICATED" in said) == (5, True)
    for name in ("URL", "USER", "PASSWORD", "CA"):
        monkeypatch.delenv(f"STERNA_{name}")
    assert (await command("context", "set", "here", "--server", url_of(running), *access))[0] == 0
    code, said = await command("receive", "q", "--count", "1")
    assert (code, "hello" in said) == (0, True)
    assert (await command("get", "connections", "--context", "here"))[0] == 0
    code, said = await command("get", "queues", "--server", url_of(running), "--ca", str(ca))
    assert (code, "no user and password were given" in said) == (5, True)
    code, said = await command("get", "queues", "--server", url_of(running), "--user", "alice", "--ca", str(ca))
    assert (code, "there is no password for alice" in said) == (2, True)


async def test_nothing_secret_is_in_the_sdks_log(
    node: Node, users_file: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    running = await node(users=await asyncio.to_thread(users_file, alice="s3cret"))
    url = f"{url_of(running, 'sterna')}?user=alice&password=s3cret"
    async with sterna.connect(url) as connection:
        running.users.put({}, "file")
        await eventually(lambda: connection.closed, what="the end of the connection")
        assert "s3cret" not in repr(connection) + str(connection.closed)
    assert "interrupted" in caplog.text
    assert "s3cret" not in caplog.text
    assert hashed("s3cret") not in caplog.text


@pytest.mark.covers("EMS-ADMIN-B06")
async def test_who_asks_is_said_for_one_command_and_forgotten_after_it(
    node: Node, tmp_path: Path, users_file: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    running = await node(users=await asyncio.to_thread(users_file, alice="s3cret"))
    password = tmp_path / "password"
    await asyncio.to_thread(password.write_text, "s3cret\n")

    async def command(*arguments: str) -> tuple[int, str]:
        code = await asyncio.to_thread(run, ["get", "queues", "--server", url_of(running, "sterna"), *arguments])
        return code, capsys.readouterr().err

    for _ in range(2):
        assert (await command("--user", "alice", "--password-file", str(password)))[0] == 0
        code, said = await command()
        assert (code, "no user and password were given" in said) == (5, True)
        code, said = await command("--user", "alice")
        assert (code, "there is no password for alice" in said) == (2, True)


@pytest.mark.covers("UM-CLI-A09")
@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
@pytest.mark.parametrize("secure", [True, False], ids=["tls", "plain"])
async def test_every_way_in_takes_user_and_password(
    node: Node,
    pki: dict[str, Path],
    authority: Authority,
    users_file: Callable[..., Path],
    secure: bool,
    right: bool,
) -> None:
    running = await node(**(pki if secure else {}), users=await asyncio.to_thread(users_file, alice="1"))
    url = url_of(running, "sternas" if secure else "sterna")
    options: dict[str, Any] = {"user": "alice", "password": "1" if right else "2"}
    if secure:
        options["tls"] = trusting(authority)

    async def messaging() -> None:
        async with sterna.connect(url, **options) as connection:
            await connection.send("q", "x")

    async def administration() -> None:
        async with admin.connect(url, **options) as client:
            await client.statistics()

    def waiting() -> None:
        with blocking.connect(url, **options) as connection:
            connection.send("q", "x")

    for enter in (messaging, administration, lambda: asyncio.to_thread(waiting)):
        if right:
            await enter()
        else:
            with pytest.raises(errors.UnauthenticatedError):
                await enter()
