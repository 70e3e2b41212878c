"""What a broker says and writes is about what it has judged: what it only heard of is neither told nor overwritten."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sterna_broker.cluster.configuration import ClusterConfiguration
from sterna_broker.cluster.member import Member
from sterna_broker.cluster.options import ClusterOptions
from sterna_broker.cluster.view import Stored
from sterna_broker.configuration.applied import AppliedFolder
from sterna_broker.refusals import RefusedError
from sterna_etcd import Claim, Etcd, EtcdSettings
from sterna_etcd.records import BrokerRecord, ConfigRecord, Owner

from tests.cluster.conftest import LAYOUT, document
from tests.etcds import RunningEtcd
from tests.waiting import eventually

CLAIM = Claim("Queue", "orders")


@pytest.fixture
def store(tier_etcd: None, tmp_path: Path) -> Iterator[RunningEtcd]:
    """An etcd of one member."""
    with RunningEtcd(tmp_path / "etcd") as running:
        yield running


@pytest.fixture
async def etcd(store: RunningEtcd) -> AsyncIterator[Etcd]:
    """A client of it."""
    async with Etcd(EtcdSettings.of_urls(store.urls)) as client:
        yield client


@pytest.fixture
async def member(etcd: Etcd, tmp_path: Path) -> AsyncIterator[Member]:
    """A member whose rounds the test makes."""
    folder = tmp_path / "b0"
    folder.mkdir()
    made = Member(ClusterOptions(etcd.settings, "c1", "b0"), folder, "1", lambda _: None)
    await made.start()
    # Nothing is waited for, as if each change came right after the waiting.
    made.applied_revision = 2**62
    yield made
    await made.stop()


async def test_a_change_that_came_while_another_was_examined_is_a_conflict(
    etcd: Etcd, member: Member, tmp_path: Path
) -> None:
    configuration = ClusterConfiguration(member, AppliedFolder(tmp_path / "applied"), lambda _: None)
    theirs = ConfigRecord(manifest=document("Queue", "orders", maxMessages=1), owner=Owner(by="admin"), generation=7)
    await etcd.put(LAYOUT.config(CLAIM), theirs.encode())
    await eventually(lambda: CLAIM in member.link.view.configs, what="the change to be heard of")
    ours = json.dumps(document("Queue", "orders", maxMessages=2))
    with pytest.raises(RefusedError) as refused:
        await configuration.apply(ours, "ours")
    assert refused.value.code == "CONFLICT"
    await member._examine()
    assert [one.change for one in await configuration.apply(ours, "ours")] == ["configured"]
    found = (await etcd.get(LAYOUT.config(CLAIM))).found
    assert found is not None
    assert ConfigRecord.decode(found.key, found.value).generation == 8


async def test_what_has_changed_since_it_was_deleted_for_is_not_deleted(
    etcd: Etcd, member: Member, tmp_path: Path
) -> None:
    configuration = ClusterConfiguration(member, AppliedFolder(tmp_path / "applied"), lambda _: None)
    await configuration.apply(json.dumps(document("Queue", "orders", maxMessages=1)), "ours")
    await eventually(lambda: CLAIM in member.link.view.configs, what="the queue to be heard of")
    await member._examine()
    entry = configuration.objects.entries["Queue", "orders"]
    revision = await configuration.prepare_delete(entry)
    theirs = ConfigRecord(manifest=document("Queue", "orders", maxMessages=2), owner=Owner(by="admin"), generation=2)
    changed = await etcd.put(LAYOUT.config(CLAIM), theirs.encode())
    await eventually(lambda: member.link.view.configs[CLAIM].revision == changed, what="the change to be heard of")
    with pytest.raises(RefusedError) as refused:
        await configuration.delete(entry, revision)
    assert refused.value.code == "CONFLICT"
    assert (await etcd.get(LAYOUT.config(CLAIM))).found is not None
    await member._examine()
    await configuration.delete(entry, await configuration.prepare_delete(entry))
    assert (await etcd.get(LAYOUT.config(CLAIM))).found is None


async def test_nothing_is_said_of_a_generation_that_was_not_judged_yet(etcd: Etcd, member: Member) -> None:
    bad = ConfigRecord(manifest=document("Queue", "orders", maxMessages="many"), owner=Owner(by="admin"))
    member.link.view.brokers["b0"] = Stored(
        BrokerRecord(addresses=[], version="1", incarnation="i", started_ms=1), revision=1, created=1
    )
    await etcd.put(LAYOUT.config(CLAIM), bad.encode())
    await eventually(lambda: CLAIM in member.link.view.configs, what="the queue to be heard of")
    await member._say()
    assert CLAIM not in member._statuses.said
    await member._examine()
    await member._say()
    assert CLAIM in member._statuses.said
