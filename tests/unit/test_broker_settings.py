"""Addresses, and how flags, manifest and defaults come together."""

import json
from pathlib import Path
from typing import Any

import pytest
from sterna_broker import addresses
from sterna_broker.addresses import Address, AddressError
from sterna_broker.options import BrokerOptions, missing_protection, settle
from sterna_resources import read_text
from sterna_resources.broker import Broker

_VOLUME_BYTES = 10**11


def broker(spec: str) -> Broker:
    text = f"apiVersion: sterna.dev/v1alpha1\nkind: Broker\nmetadata: {{name: main}}\nspec: {{{spec}}}\n"
    resource = read_text(text, "f")[0].resource
    assert isinstance(resource, Broker)
    return resource


@pytest.mark.covers("EMS-ADMIN-B24")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:7222", Address("127.0.0.1", 7222)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:1", Address("::1", 1)),
        (":7222", Address("127.0.0.1", 7222)),
        ("127.9.9.9:1", Address("127.9.9.9", 1)),
    ],
)
def test_loopback_addresses_are_taken(text: str, expected: Address) -> None:
    assert addresses.parse(text, "listen", ["TLS", "users"]) == expected


def test_a_name_for_two_addresses_is_one_of_them_for_clients() -> None:
    assert Address("localhost", 7222).single() == Address("127.0.0.1", 7222)
    assert Address("::1", 7222).single() == Address("::1", 7222)


@pytest.mark.parametrize("text", ["0.0.0.0:7222", "[::]:7222", "10.0.0.1:7222", "example.org:7222", "*:7222"])
def test_other_addresses_are_refused_saying_why(text: str) -> None:
    with pytest.raises(AddressError, match="has no TLS and no users"):
        addresses.parse(text, "listen", ["TLS", "users"])
    assert addresses.parse(text, "listen", []).port == 7222


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        ({}, ["TLS", "users"]),
        ({"users": Path("u")}, ["TLS"]),
        ({"tls_cert": Path("c"), "tls_key": Path("k")}, ["users"]),
        ({"tls_cert": Path("c"), "tls_key": Path("k"), "users": Path("u")}, []),
        ({"tls_cert": Path("c"), "tls_key": Path("k"), "client_ca": Path("a")}, []),
        ({"tls_cert": Path("c"), "tls_key": Path("k"), "users_from_cluster": True}, []),
        ({"insecure": True}, []),
    ],
)
def test_what_is_missing_for_listening_beyond_this_machine(flags: dict[str, Any], missing: list[str]) -> None:
    found = missing_protection(BrokerOptions(data=Path("d"), **flags))
    assert [one.partition(" ")[0] for one in found] == missing


@pytest.mark.parametrize("text", ["7222", "localhost", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(AddressError, match="is no address"):
        addresses.parse(text, "listen", [])


@pytest.mark.covers("EMS-ADMIN-A04")
def test_flags_come_before_the_manifest_and_that_before_defaults() -> None:
    manifest = broker("name: named, listeners: {messaging: '127.0.0.1:1', monitor: '127.0.0.1:2'}, drainMs: 5")
    plain = settle(BrokerOptions(data=Path("d")), None, "1.2", _VOLUME_BYTES)
    assert (plain.name, str(plain.messaging), str(plain.monitor)) == ("sterna", "127.0.0.1:7222", "127.0.0.1:7280")
    assert plain.drain_ms == 10_000
    from_manifest = settle(BrokerOptions(data=Path("d")), manifest, "1.2", _VOLUME_BYTES)
    assert (from_manifest.name, from_manifest.messaging.port, from_manifest.drain_ms) == ("named", 1, 5)
    flags = BrokerOptions(data=Path("d"), name="flag", listen="127.0.0.1:3", drain_ms=0)
    settled = settle(flags, manifest, "1.2", _VOLUME_BYTES)
    assert (settled.name, settled.messaging.port, settled.monitor.port, settled.drain_ms) == ("flag", 3, 2, 0)


def test_the_engine_is_told_its_limits_and_not_the_brokers_own() -> None:
    settings = settle(
        BrokerOptions(data=Path("d"), force_start=True),
        broker("limits: {sessions: 7, leases: 3}"),
        "1.2",
        _VOLUME_BYTES,
    )
    told = json.loads(settings.engine_json())
    assert told["limits"]["sessions"] == 7
    assert not {"leases", "connections"} & set(told["limits"])
    assert told["force_start"] is True
    assert settings.limits.leases == 3


def test_a_broker_name_that_would_break_message_ids_is_refused() -> None:
    with pytest.raises(ValueError, match="part of message ids"):
        broker("name: a.b")
    assert settle(BrokerOptions(data=Path("d")), broker(""), "1", _VOLUME_BYTES).name == "main"


def test_how_long_unused_dynamic_destinations_stay_is_ten_minutes_unless_it_is_said() -> None:
    for spec, idle_ms in (("", 600_000), ("dynamicIdleMs: 5000", 5_000)):
        settled = settle(BrokerOptions(data=Path("d")), broker(spec), "1", _VOLUME_BYTES)
        assert settled.engine["dynamic_idle_ms"] == idle_ms


def test_what_waits_for_snapshots_may_take_a_tenth_of_the_volume_unless_it_is_said() -> None:
    plain = settle(BrokerOptions(data=Path("d")), None, "1", _VOLUME_BYTES)
    assert (plain.engine["snapshot_bytes_max"], plain.engine["snapshot_age_max_ms"]) == (10**10, 7 * 86_400_000)
    said = broker("snapshots: {keptBytes: 5000000, keptAgeMs: 60000}")
    settled = settle(BrokerOptions(data=Path("d")), said, "1", _VOLUME_BYTES)
    assert (settled.engine["snapshot_bytes_max"], settled.engine["snapshot_age_max_ms"]) == (5_000_000, 60_000)
