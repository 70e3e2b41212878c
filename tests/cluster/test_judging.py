"""What an administrator applies is judged beside what this broker knows; what it has not seen is not overwritten."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sterna_broker.cluster.configuration import ClusterConfiguration
from sterna_broker.cluster.member import Member
from sterna_broker.cluster.options import ClusterOptions
from sterna_broker.configuration.applied import AppliedFolder
from sterna_broker.refusals import RefusedError
from sterna_etcd import Claim, Etcd, EtcdSettings
from sterna_etcd.records import ConfigRecord, Owner

from tests.cluster.conftest import LAYOUT, document
from tests.etcds import RunningEtcd
from tests.waiting import eventually

CLAIM = Claim("Queue", "orders")


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[Etcd]:
    with RunningEtcd(tmp_path / "etcd") as running:
        async with Etcd(EtcdSettings.of_urls(running.urls)) as client:
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
