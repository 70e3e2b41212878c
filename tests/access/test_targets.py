"""Where to connect and as whom: call, URL, environment, contexts; and that secrets stay out of sight."""

import asyncio
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sterna
from sterna import contexts, errors
from sterna._secrets import SecretFile, authorization, reveal
from sterna.cli.application import run
from sterna.connections import connect
from sterna.targets import Given, Target, resolve, resolve_all


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No variables of ours, and a folder for contexts; the file in it."""
    for name in list(os.environ):
        if name.startswith("STERNA_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "config" / "sterna" / "contexts.yaml"


async def _revealed(target: Target) -> str:
    return await reveal(target.password, "password")


def told(target: Target) -> tuple[str, str, str]:
    """URL, user and password."""
    return str(target.url), target.user, asyncio.run(_revealed(target))


@pytest.mark.covers("EMS-ADMIN-B07")
def test_without_anything_it_is_this_machine() -> None:
    assert told(resolve()) == ("sterna://localhost:7222", "", "")
    assert resolve().tls is None


def test_without_a_url_the_environment_says_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("from-file\n")
    monkeypatch.setenv("STERNA_URL", "sternas://a,b")
    monkeypatch.setenv("STERNA_USER", "alice")
    monkeypatch.setenv("STERNA_PASSWORD_FILE", str(tmp_path / "pw"))
    for name in ("CA", "CERT", "KEY", "SERVER_NAME"):
        monkeypatch.setenv(f"STERNA_{name}", name.lower())
    assert told(resolve()) == ("sternas://a:7222,b:7222", "alice", "from-file")
    assert resolve().tls == sterna.Tls(ca="ca", certificate="cert", key="key", server_name="server_name")
    monkeypatch.delenv("STERNA_PASSWORD_FILE")
    monkeypatch.setenv("STERNA_PASSWORD", "plain")
    assert told(resolve())[2] == "plain"
    # What is given in the call comes first.
    assert told(resolve(None, Given(user="bob", password="given"))) == ("sternas://a:7222,b:7222", "bob", "given")


def test_with_a_url_nothing_of_the_environment_goes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STERNA_URL", "sternas://a")
    monkeypatch.setenv("STERNA_USER", "alice")
    monkeypatch.setenv("STERNA_PASSWORD", "s3cret")
    assert told(resolve("sternas://other")) == ("sternas://other:7222", "", "")
    # The command line takes what is missing beside a URL from there.
    assert told(resolve_all("sternas://other")) == ("sternas://other:7222", "alice", "s3cret")


def test_a_url_may_carry_everything(tmp_path: Path) -> None:
    target = resolve("sternas://a?user=al%20ice&password=p%26w&ca=c&server_name=n")
    assert told(target) == ("sternas://a:7222", "al ice", "p&w")
    assert target.tls == sterna.Tls(ca="c", server_name="n")
    (tmp_path / "pw").write_text("from-file")
    assert (told(resolve(f"sternas://a?user=b&password_file={tmp_path / 'pw'}")))[2] == "from-file"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: resolve("sterna://a", tls=sterna.Tls()), "tls was given for a URL without TLS"),
        (lambda: resolve("sterna://a", Given(ca="x")), "ca was given for a URL without TLS"),
        (lambda: resolve("sternas://a?cert=x"), "without its key"),
        (lambda: resolve("sternas://a?password=s3cret&password_file=x"), "a password and a file"),
        (lambda: resolve_all("sterna://a", context="c"), "context"),
        (lambda: resolve_all(context="c"), "no context 'c'"),
    ],
)
def test_what_does_not_go_together_is_refused(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        make()
    assert why in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_password_without_tls_beyond_this_machine_is_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    resolve("sterna://127.0.0.1", Given(password="s3cret"))
    resolve("sternas://example.org", Given(password="s3cret"))
    assert not caplog.records
    resolve("sterna://example.org?password=s3cret")
    assert "travels without TLS" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    "make",
    [
        connect,
        sterna.admin.connect,
        sterna.Naming,
        lambda url, **options: sterna.ConnectionFactory(name="f", url=url).connect(**options),
    ],
    ids=["connect", "admin", "naming", "factory"],
)
@pytest.mark.parametrize("what", ["token", "password"])
def test_whatever_makes_a_connection_speaks_of_secrets_without_tls(
    make: Callable[..., Any], what: str, caplog: pytest.LogCaptureFixture
) -> None:
    for url in ("sterna://localhost", "sternas://example.org"):
        make(url, **{what: "s3cret"})
    assert not caplog.records
    make("sterna://example.org", **{what: "s3cret"})
    assert f"the {what} for sterna://example.org:7222 travels without TLS" in caplog.text
    assert "s3cret" not in caplog.text


def test_secrets_show_nowhere() -> None:
    target = resolve("sternas://a?user=u&password=s3cret", tls=sterna.Tls(certificate=b"s3cret", key=b"s3cret"))
    opened = connect("sternas://a", user="u", password="s3cret", token="s3cret", tls=target.tls)
    admin = sterna.admin.connect("sternas://a?password=s3cret")
    shown = [
        target,
        target.url,
        target.tls,
        opened,
        opened._lifeline.options,
        admin,
        SecretFile("f"),
        Given(password="s3cret"),
    ]
    assert "s3cret" not in "".join(f"{one!r}{one!s}" for one in shown)


# --- Secrets that are asked for


async def test_secrets_may_be_functions_and_coroutine_functions() -> None:
    async def later() -> str:
        return "coroutine"

    class Provider:
        async def __call__(self) -> str:
            return "object"

    assert await reveal(lambda: "function", "password") == "function"
    assert await reveal(later, "password") == "coroutine"
    assert await reveal(Provider(), "password") == "object"


async def test_a_secret_that_cannot_be_had_says_so_and_may_be_had_later(tmp_path: Path) -> None:
    def fails() -> str:
        raise ValueError("s3cret")

    with pytest.raises(errors.UnauthenticatedError, match=r"password could not be had: ValueError") as caught:
        await reveal(fails, "password")
    assert "s3cret" not in str(caught.value)
    assert caught.value.retryable
    with pytest.raises(errors.UnauthenticatedError, match=r"No such file.*: .*/missing"):
        await reveal(SecretFile(tmp_path / "missing"), "password")
    with pytest.raises(errors.UnauthenticatedError, match="gave a int"):
        await reveal(lambda: 7, "password")  # type: ignore[arg-type, return-value]
    nothing: Iterator[str] = iter(())
    with pytest.raises(errors.UnauthenticatedError, match="password could not be had"):
        await asyncio.wait_for(reveal(lambda: next(nothing), "password"), 10)  # which no future takes


def test_calls_carry_what_grpcurl_users_can_type() -> None:
    assert authorization("alice", "s3cret", "") == (("authorization", "Basic YWxpY2U6czNjcmV0"),)
    assert authorization("alice", "s3cret", "t") == (("authorization", "Bearer t"),)
    assert authorization("", "", "") == ()


# --- Contexts


def test_contexts_are_made_chosen_and_listed(nothing_set: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nothing_set.parent.mkdir(parents=True)
    (nothing_set.parent / "pw").write_text("from-file\n")
    arguments = ["--user", "alice", "--password-file", str(nothing_set.parent / "pw"), "--ca", "ca.pem"]
    assert run(["context", "set", "one", "--server", "sternas://a", *arguments]) == 0
    assert run(["context", "set", "two", "--server", "sterna://127.0.0.1:1"]) == 0
    assert stat.S_IMODE(nothing_set.stat().st_mode) == 0o600
    # The first is in use; files are remembered by their whole names.
    assert told(resolve()) == ("sternas://a:7222", "alice", "from-file")
    assert resolve().tls == sterna.Tls(ca=str(Path("ca.pem").absolute()))
    assert run(["context", "use", "two"]) == 0
    assert told(resolve()) == ("sterna://127.0.0.1:1", "", "")
    assert told(resolve_all(context="one")) == ("sternas://a:7222", "alice", "from-file")
    capsys.readouterr()
    assert run(["context", "list"]) == 0
    listed = capsys.readouterr().out
    assert "sternas://a" in listed
    assert run(["context", "set", "one", "--server-name", "n"]) == 0
    assert contexts.load().context("one").values["server_name"] == "n"
    assert contexts.load().context("one").values["user"] == "alice"


def test_two_that_save_contexts_at_once_both_can(nothing_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(name: str) -> contexts.Contexts:
        return contexts.Contexts(nothing_set, name, {name: contexts.Context(name, "sternas://a", {})})

    kept = os.fsync

    def meanwhile(descriptor: int) -> None:
        kept(descriptor)
        monkeypatch.setattr(os, "fsync", kept)
        contexts.save(made("other"))

    monkeypatch.setattr(os, "fsync", meanwhile)
    contexts.save(made("one"))
    assert contexts.load().current == "one"
    assert stat.S_IMODE(nothing_set.stat().st_mode) == 0o600
    full = OSError("no space left")

    def fails(_: int) -> None:
        raise full

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="no space left"):
        contexts.save(made("two"))
    assert [one.name for one in nothing_set.parent.iterdir()] == ["contexts.yaml"]
    assert contexts.load().current == "one"


def test_the_environment_chooses_a_context_and_a_url_makes_it_void(
    nothing_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_set.parent.mkdir(parents=True)
    nothing_set.write_text("contexts: {one: {url: 'sternas://a', user: alice, password: s3cret}}")
    nothing_set.chmod(0o600)
    assert told(resolve())[0] == "sterna://localhost:7222"
    monkeypatch.setenv("STERNA_CONTEXT", "one")
    assert told(resolve()) == ("sternas://a:7222", "alice", "s3cret")
    monkeypatch.setenv("STERNA_URL", "sternas://b")
    assert told(resolve()) == ("sternas://b:7222", "", "")
    assert told(resolve_all("sternas://c")) == ("sternas://c:7222", "", "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("contexts: [s3cret", "not valid YAML"),
        ("contexts: [s3cret]", "no mapping"),
        ("- s3cret", "'current' and 'contexts'"),
        ("contexts: {a: {user: s3cret}}", "without a url"),
        ("contexts: {a: {url: b, colour: s3cret}}", "unknown colour"),
        ("current: b\ncontexts: {a: {url: b}}", "no context 'b'"),
    ],
)
def test_a_wrong_file_says_what_is_wrong_and_repeats_nothing(
    nothing_set: Path, text: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing_set.parent.mkdir(parents=True)
    nothing_set.write_text(text)
    assert run(["get", "queues"]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert "s3cret" not in said


def test_a_file_with_a_password_is_for_nobody_else_to_read(
    nothing_set: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing_set.parent.mkdir(parents=True)
    nothing_set.write_text("contexts: {a: {url: b, password: s3cret}}")
    nothing_set.chmod(0o640)
    assert run(["context", "list"]) == 2
    said = capsys.readouterr().err
    assert "chmod 600" in said
    assert "s3cret" not in said
    nothing_set.chmod(0o600)
    assert run(["context", "list", "-o", "json"]) == 0
    assert "s3cret" not in capsys.readouterr().out
