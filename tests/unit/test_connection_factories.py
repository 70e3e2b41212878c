"""What a connection factory says, and what a program may say instead; how its settings reach `connect`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import sterna
from sterna._proto.sterna.v1 import naming_pb2
from sterna._surroundings import Surroundings
from sterna.errors import InvalidArgumentError, ProtocolError
from sterna.factories import factory_of
from sterna.options import Options
from sterna_resources import ManifestError, read_text
from sterna_resources.connection_factory import ConnectionFactorySpec, FactoryTls

from tests.running import manifest

MANY = sterna.ConnectionFactory(
    name="f",
    url="sternas://a:1,b:2+c:3",
    client_id="billing",
    connect_attempts=7,
    connect_delay_ms=20,
    connect_timeout_s=0.5,
    reconnect=sterna.Reconnect(initial_ms=1, maximum_ms=2, give_up_after_s=None),
    heartbeat_ms=9_000,
    tls=sterna.Tls(ca="/ca.pem", certificate="/c.pem", key="/k.pem", server_name="mq"),
)


def options_of(connection: sterna.Connection) -> Options:
    return connection._lifeline.options


@pytest.mark.covers("EMS-CLI-B01", "EMS-CLI-B05", "EMS-CLI-B06")
async def test_a_connection_has_the_settings_of_its_factory() -> None:
    connection = MANY.connect(user="me", password="secret")
    made = options_of(connection)
    assert connection._lifeline.addresses == ("a:1", "b:2", "c:3")
    assert (made.client_id, made.connect_attempts, made.connect_delay_ms) == ("billing", 7, 20)
    assert (made.connect_timeout_s, made.heartbeat_ms, made.reconnect) == (0.5, 9_000, MANY.reconnect)
    assert (made.tls, made.user, made.password) == (MANY.tls, "me", "secret")


async def test_what_a_factory_does_not_say_is_as_without_it() -> None:
    said, plain = (
        options_of(sterna.ConnectionFactory(name="f", url="sterna://a").connect()),
        sterna.connect("sterna://a"),
    )
    assert said == options_of(plain)


@pytest.mark.covers("EMS-CLI-B01")
async def test_a_program_may_say_everything_but_where_to_connect() -> None:
    own = sterna.Tls(ca="/other.pem")
    made = options_of(MANY.connect(client_id="x", connect_attempts=1, tls=own, reconnect=sterna.Reconnect()))
    assert (made.client_id, made.connect_attempts, made.tls, made.reconnect) == ("x", 1, own, sterna.Reconnect())
    assert made.heartbeat_ms == 9_000
    with pytest.raises(InvalidArgumentError, match="the connection factory 'f' says where to connect"):
        MANY.connect(url="sterna://b")


@pytest.mark.parametrize(("milliseconds", "seconds"), [(0, None), (1_500, 1.5)], ids=["for-ever", "a-while"])
def test_patience_is_told_in_milliseconds(milliseconds: int, seconds: float | None) -> None:
    read = factory_of(naming_pb2.ConnectionFactory(url="sterna://a", reconnect_give_up_ms=milliseconds))
    assert read.reconnect == sterna.Reconnect(give_up_after_s=seconds)
    assert (read.connect_delay_ms, read.connect_timeout_s, read.tls) == (None, None, None)


async def test_each_connection_draws_the_order_of_brokers_and_keeps_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter((0.9, 0.5, 0.1, 0.1, 0.5, 0.9))

    class Loaded(Surroundings):
        def uniform(self, low: float, high: float) -> float:
            return next(drawn)

    monkeypatch.setattr("sterna._surroundings.here", Loaded())
    factory = sterna.ConnectionFactory(name="f", url="sterna://a:1,b:1+c:1+d:1", load_balancing="random")
    assert factory.connect()._lifeline.addresses == ("d:1", "c:1", "a:1", "b:1")
    assert factory.connect()._lifeline.addresses == ("a:1", "b:1", "c:1", "d:1")


async def test_the_pause_between_rounds_of_the_first_connection_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float, *rest: Any) -> None:
        slept.append(seconds)
        await sleep(0, *rest)

    monkeypatch.setattr("sterna._lifeline.asyncio.sleep", noted)
    factory = sterna.ConnectionFactory(
        name="f", url="sterna://127.0.0.1:1", connect_attempts=3, connect_delay_ms=10_000
    )
    with pytest.raises(sterna.errors.UnreachableError):
        await factory.connect()
    assert [5.0 <= one <= 10.0 for one in slept if one >= 1.0] == [True, True]


@pytest.mark.covers("EMS-CLI-B35")
@pytest.mark.parametrize("secret", ["password: x", "sslPassword: x", "tls: {keyPassword: x}", "tls: {password: x}"])
def test_a_factory_has_no_place_for_a_password(secret: str) -> None:
    with pytest.raises(ManifestError, match="unknown field"):
        read_text(manifest("ConnectionFactory", "f", f"url: 'sternas://a', {secret}"), "f.yaml")
    fields = {*ConnectionFactorySpec.model_fields, *FactoryTls.model_fields}
    fields |= {
        field.name
        for one in ("ConnectionFactory", "FactoryTls")
        for field in naming_pb2.DESCRIPTOR.message_types_by_name[one].fields
    }
    assert not [field for field in fields if "password" in field or "secret" in field]


def test_a_url_with_a_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(ManifestError) as caught:
        read_text(manifest("ConnectionFactory", "f", "url: 'sterna://me:hidden@a'"), "f.yaml")
    assert "spec.url: holds neither user nor password" in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.covers("EMS-CLI-B03")
def test_a_url_has_at_most_a_thousand_characters() -> None:
    text = manifest("ConnectionFactory", "f", f"url: 'sterna://{'a' * 991}'")
    assert read_text(text, "f.yaml")
    with pytest.raises(ManifestError, match="at most 1000"):
        read_text(text.replace("sterna://", "sterna://a"), "f.yaml")


def test_files_are_named_and_not_read(tmp_path: Path) -> None:
    answer = naming_pb2.ConnectionFactory(url="sternas://a", tls=naming_pb2.FactoryTls(ca_file=str(tmp_path / "none")))
    assert factory_of(answer).tls == sterna.Tls(ca=str(tmp_path / "none"))


@pytest.mark.parametrize("balancing", ["none", "random"])
async def test_a_factory_of_the_programs_own_keeps_the_options_of_its_url(balancing: Any) -> None:
    for url in ("sterna://a,b?client_id=mine&user=me", "a,b?client_id=mine&user=me"):
        made = options_of(sterna.ConnectionFactory(name="f", url=url, load_balancing=balancing).connect())
        assert (made.client_id, made.user) == ("mine", "me")


PEM = "-----BEGIN PRIVATE KEY-----\nhidden"


@pytest.mark.parametrize(
    "said",
    [
        {"url": "sterna://a?user=me&password_file=/etc/hidden"},
        {"url": "sterna://me:hidden@a"},
        {"url": "sternas://a", "tls": {"ca_file": PEM}},
        {"url": "sternas://a", "tls": {"certificate_file": "/c.pem", "key_file": PEM}},
    ],
)
def test_a_broker_that_says_more_than_a_factory_may_is_not_believed(said: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="the broker's connection factory") as caught:
        factory_of(naming_pb2.ConnectionFactory(**said))
    assert "hidden" not in str(caught.value)


@pytest.mark.covers("EMS-CLI-B35")
def test_a_key_in_place_of_its_file_is_refused_without_repeating_it() -> None:
    tls = json.dumps({"keyFile": PEM, "certificateFile": PEM})
    text = manifest("ConnectionFactory", "f", f"url: 'sternas://a', tls: {tls}")
    with pytest.raises(ManifestError, match="names a file of the client's machine") as caught:
        read_text(text, "f.yaml")
    assert "hidden" not in str(caught.value)


def test_a_client_id_that_no_broker_takes_is_refused() -> None:
    with pytest.raises(ManifestError, match="may not hold control characters"):
        read_text(manifest("ConnectionFactory", "f", r'url: "sterna://a", clientId: "a\nb"'), "f.yaml")
