"""A broker process with TLS and users: what it refuses to start with, where it listens, and what it never says."""

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tests.access.authorities import Authority
from tests.access.test_tls import shown
from tests.broker.calls import CallError, call
from tests.broker.wire import FrameError, Wire
from tests.running import RunningBroker
from tests.waiting import eventually
from tools.fingerprints import ROOT

SECRETS = ("s3cret-right", "s3cret-wrong", "argon2id", "PRIVATE")


def flags_of(paths: dict[str, Path]) -> dict[str, str]:
    return {name: str(path) for name, path in paths.items()}


def test_a_broker_beyond_this_machine_says_what_it_is_missing(
    broker_process: Any, pki: dict[str, Path], users_file: Callable[..., Path]
) -> None:
    users = {"users": str(users_file(alice="1"))}
    for name, flags, missing in (
        ("nothing", {}, "no TLS (--tls-cert and --tls-key) and no users (--users"),
        ("users", users, "no TLS (--tls-cert and --tls-key):"),
        ("tls", flags_of(pki), "no users (--users, or --client-ca for client certificates):"),
    ):
        broker = broker_process(name=name, listen="0.0.0.0:0", **flags)
        broker.launch()
        assert broker.wait() == 2
        assert missing in broker.stderr
        assert "--insecure" in broker.stderr
    both = broker_process(name="both", listen="0.0.0.0:0", monitor="0.0.0.0:0", **users, **flags_of(pki)).start()
    assert both.stdout.startswith("sterna broker 'sterna' serves sternas://0.0.0.0:")
    assert "monitor https://0.0.0.0:" in both.stdout
    assert both.terminate() == 0


def test_insecure_is_possible_and_is_spoken_of(broker_process: Any) -> None:
    broker = broker_process(listen="0.0.0.0:0", insecure=True).start()
    assert broker.terminate() == 0
    assert "listening_insecurely" in broker.stderr
    assert "TLS (--tls-cert" in broker.stderr


@pytest.mark.covers("EMS-SEC-E26")
@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"tls_cert": "nowhere.crt"}, "--tls-cert nowhere.crt: is of no use without --tls-key"),
        ({"tls_key": "nowhere.key"}, "--tls-key nowhere.key: is of no use without --tls-cert"),
        ({"client_ca": "nowhere.crt"}, "--client-ca nowhere.crt: is of no use without --tls-cert"),
        ({"certificate_user": "cn"}, "--certificate-user cn: is of no use without --client-ca"),
        ({"tls_cert": "nowhere.crt", "tls_key": "nowhere.key"}, "--tls-cert nowhere.crt: No such file"),
        ({"users": "nowhere.yaml"}, "--users nowhere.yaml: No such file"),
    ],
)
def test_a_broker_does_not_start_with_access_settings_that_cannot_be_used(
    broker_process: Any, flags: dict[str, str], why: str
) -> None:
    broker = broker_process(**flags)
    broker.launch()
    assert broker.wait() == 2
    assert why in broker.stderr
    assert "Traceback" not in broker.stderr


def test_a_broker_does_not_start_with_files_for_etcd_that_cannot_be_used(
    tier_broker: None, authority: Authority, tmp_path: Path
) -> None:
    ca = authority.write(tmp_path / "ca.pem")
    cert, key = authority.issue(tmp_path / "broker", "broker")
    _, of_another = authority.issue(tmp_path / "another", "another")
    damaged, nowhere = tmp_path / "damaged.pem", tmp_path / "nowhere"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"ca": damaged}, f"{damaged} holds no certificate"),
        ({"ca": key}, f"{key} holds no certificate"),
        ({"ca": nowhere}, f"{nowhere} cannot be read: No such file"),
        ({"ca": ca, "cert": damaged, "key": key}, f"{damaged} holds no certificate"),
        ({"ca": ca, "cert": cert, "key": damaged}, f"{damaged} holds no private key"),
        ({"ca": ca, "cert": cert, "key": of_another}, f"{of_another} is not the key of the first certificate"),
        ({"ca": ca, "user": "app", "password_file": nowhere}, f"{nowhere} cannot be read: No such file"),
    )
    for number, (files, why) in enumerate(cases):
        member = {"etcd": "https://127.0.0.1:1", "cluster": "c", **files}
        broker = RunningBroker(tmp_path / f"broker-{number}", None, name="b", cluster=member)
        broker.launch()
        try:
            assert broker.wait() == 2, broker.stderr
        finally:
            broker.stop()
        assert why in broker.stderr
        assert "ssl_" not in broker.stderr, "gRPC was not asked"
        assert "Traceback" not in broker.stderr


@pytest.mark.covers("EMS-SEC-B42")
def test_the_monitor_has_the_key_of_messaging_and_none_that_has_a_password(
    broker_process: Any, pki: dict[str, Path], tmp_path: Path
) -> None:
    both = broker_process(name="both", **flags_of(pki)).start()
    assert "monitor https://" in both.stdout
    assert both.terminate() == 0
    locked = tmp_path / "locked.key"
    key = load_pem_private_key(pki["tls_key"].read_bytes(), password=None)
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"s3cret-right")))
    broker = broker_process(name="locked", **{**flags_of(pki), "tls_key": str(locked)})
    broker.launch()
    assert broker.wait() == 2
    assert f"--tls-key {locked}: is encrypted" in broker.stderr
    # The certificate alone is not enough.
    keyless = broker_process(name="keyless", tls_cert=str(pki["tls_cert"]))
    keyless.launch()
    assert keyless.wait() == 2
    assert "is of no use without --tls-key" in keyless.stderr


async def answer(stream: Wire, user: str, secret: str) -> str:
    try:
        await stream.hello(credentials={"password": {"user": user, "password": secret}})
    except FrameError as error:
        return str(error)
    return ""


async def test_no_secret_is_ever_logged(
    broker_process: Any,
    pki: dict[str, Path],
    users_file: Callable[..., Path],
    secure_channel: Any,
    authority: Authority,
) -> None:
    users = await asyncio.to_thread(users_file, alice="s3cret-right")
    flags = flags_of({**pki, "users": users})
    broker = await asyncio.to_thread(broker_process(log_level="debug", **flags).start)
    async with secure_channel(broker.address) as channel:
        answers: list[str] = []
        for secret in ("s3cret-right", "s3cret-wrong"):
            for user in ("alice", "s3cret-wrong"):
                stream = Wire(channel)
                answers.append(await answer(stream, user, secret))
                stream.close()
        assert answers.count("") == 1
        assert "s3cret" not in str(answers)
        with pytest.raises(CallError) as caught:
            await call(channel, "Admin/GetStatistics", metadata=(("authorization", "Basic s3cret-wrong"),))
        assert "s3cret" not in str(caught.value)
    users.write_text("alice: s3cret-wrong\n")
    pki["tls_key"].write_text("s3cret-wrong")
    await asyncio.to_thread(broker.terminate)
    assert "authentication_failed" in broker.stderr
    for secret in SECRETS:
        assert secret not in broker.stderr
        assert secret not in broker.stdout


async def test_certificates_are_renewed_and_refused_under_the_loop_that_processes_run(
    broker_process: Any, tmp_path: Path, authority: Authority, users_file: Callable[..., Path]
) -> None:
    certificate, key = authority.issue(tmp_path, "first")
    users = await asyncio.to_thread(users_file, alice="s3cret-right")
    flags = flags_of({"tls_cert": certificate, "tls_key": key, "users": users})
    broker = await asyncio.to_thread(broker_process(**flags).start)
    addresses = (broker.address, str(broker.ready["monitor"]))
    assert [await shown(address, authority) for address in addresses] == ["CN=first"] * 2
    await asyncio.to_thread(authority.issue, tmp_path, "second")

    async def are_new() -> bool:
        return [await shown(address, authority) for address in addresses] == ["CN=second"] * 2

    await eventually(are_new, what="the renewed certificate")
    strange = await asyncio.to_thread(Authority("others").write, tmp_path / "others.pem")
    trusted = await asyncio.to_thread(authority.write, tmp_path / "ca.pem")
    url = f"sternas://{broker.address}?user=alice&password=s3cret-right"
    for ca, code, said in ((strange, 6, "of an authority that is not trusted"), (trusted, 0, "NAME")):
        command = (sys.executable, "-m", "sterna", "get", "queues", "--server", url, "--ca", str(ca))
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT, cwd=ROOT)
        output = (await process.communicate())[0].decode()
        assert (process.returncode, said in output) == (code, True), output
        assert "s3cret" not in output
