"""Under which URLs a broker says that it is reached, and the settings file of a member of a cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sterna_broker.cluster.advertising import AdvertiseError, Advertising, parse
from sterna_broker.options import cluster_options, read_settings
from sterna_resources.problems import ManifestError

from tests.waiting import eventually


@asynccontextmanager
async def started(file: Path, changes: list[int]) -> AsyncIterator[Advertising]:
    advertising = Advertising((), file, lambda: changes.append(1))
    await advertising.start()
    try:
        yield advertising
    finally:
        await advertising.stop()


def test_urls_stand_between_commas_and_variables_come_from_the_environment() -> None:
    text = "sterna://a:1, sterna://$(HOST_IP):31000\n"
    assert parse(text, {"HOST_IP": "192.0.2.1"}) == ("sterna://a:1", "sterna://192.0.2.1:31000")


def test_a_nodes_address_of_ipv6_stands_in_brackets() -> None:
    assert parse("sterna://$(HOST_IP):31000", {"HOST_IP": "2001:db8::1"}) == ("sterna://[2001:db8::1]:31000",)


@pytest.mark.parametrize("text", ["http://a:1", "sterna://$(NOBODY_SET_THIS):1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(AdvertiseError, match="--advertise"):
        parse(text, {})


async def test_a_file_is_read_again_when_it_changes_and_what_is_wrong_with_it_changes_nothing(tmp_path: Path) -> None:
    file, changes = tmp_path / "addresses", list[int]()
    file.write_text("sterna://a:1")
    async with started(file, changes) as advertising:
        assert advertising.urls == ("sterna://a:1",)
        file.write_text("nonsense")
        fresh = tmp_path / "fresh"
        fresh.write_text("sterna://a:1,sternas://b:2")
        assert advertising.urls == ("sterna://a:1",)
        fresh.replace(file)
        await eventually(lambda: len(advertising.urls) == 2, what="the second address")
        assert len(changes) == 2


def test_a_file_is_named_by_an_at_sign(tmp_path: Path) -> None:
    options = cluster_options(etcd="http://e:1", cluster="c", name="b", advertise=f"@{tmp_path / 'addresses'}")
    assert options is not None
    assert options.advertise_file == tmp_path / "addresses"
    assert options.advertise == ()


BROKER = "apiVersion: sterna.dev/v1alpha1\nkind: Broker\nmetadata: {name: b}\nspec: {slowConsumerMs: 5000}\n"
QUEUE = "apiVersion: sterna.dev/v1alpha1\nkind: Queue\nmetadata: {name: q}\nspec: {}\n"


def test_the_settings_of_a_member_are_one_broker_manifest(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text(BROKER)
    assert read_settings(file).spec.slow_consumer_ms == 5_000


@pytest.mark.parametrize("text", ["", QUEUE, f"{BROKER}---\n{QUEUE}"])
def test_settings_hold_nothing_else(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text(text)
    with pytest.raises(ManifestError, match="one Broker manifest"):
        read_settings(file)
