"""Whose a broker is stands in a file, as pods mount it, and may become another while it runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from sterna_broker.node import Node
from sterna_broker.options import BrokerOptions, cluster_options
from sterna_etcd import StoreReplacedError, UnclaimedError
from sterna_etcd.records import ClaimRecord

from tests.cluster.conftest import LAYOUT, NAME, Cluster
from tests.waiting import eventually

CLAIM = ClaimRecord(operator="a/op", namespace="ns", name="mq", uid="uid-1")


async def test_a_cluster_that_is_made_anew_under_its_name_keeps_its_brokers(
    cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    made, file = await asyncio.to_thread(cluster, 0), tmp_path / "owner"
    member = cluster_options(name="b0", etcd=made.etcd.urls, cluster=NAME, owner=f"@{file}")
    node = Node(BrokerOptions(data=tmp_path / "b0", listen="127.0.0.1:0", monitor="127.0.0.1:0", cluster=member))
    async with made.client() as etcd:
        await etcd.put(LAYOUT.operator_claim, CLAIM.encode())
        starting = asyncio.create_task(node.start())
        # Until it knows whose it is, it uses nobody's place.
        await eventually(lambda: node.member is not None and isinstance(node.member.link.fault, UnclaimedError))
        assert not starting.done()
        file.write_text("uid-1\n")
        await asyncio.wait_for(starting, 30)
        try:
            assert node.member is not None
            link = node.member.link
            await eventually(lambda: link.fault is None)
            await etcd.put(LAYOUT.operator_claim, CLAIM.model_copy(update={"uid": "uid-2"}).encode())
            await eventually(lambda: isinstance(link.fault, StoreReplacedError), timeout_s=20.0)
            file.write_text("uid-2\n")
            await eventually(lambda: link.fault is None, timeout_s=20.0)
        finally:
            await node.stop()


def test_whose_a_broker_is_needs_an_etcd() -> None:
    with pytest.raises(ValueError, match="--owner need --etcd"):
        cluster_options(etcd="", cluster="", name=None, owner="uid-1")
    plain = cluster_options(etcd="http://e:1", cluster="c", name="b", owner="uid-1")
    assert plain is not None
    assert (plain.owner, plain.owner_file) == ("uid-1", None)
    without = cluster_options(etcd="http://e:1", cluster="c", name="b")
    assert without is not None
    assert without.owner is None
