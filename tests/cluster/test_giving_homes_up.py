"""Homes that nothing refers to any more, in a broker that looks for them all the time."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sterna
from sterna_broker.cluster import member
from sterna_broker.node import Node
from sterna_broker.options import BrokerOptions, cluster_options
from sterna_etcd import Etcd

from tests.cluster.conftest import LAYOUT, NAME, Operator, document, waited
from tests.etcds import RunningEtcd

_TIMEOUT_S = 30.0
pytestmark = pytest.mark.slow_callbacks(30_000)


@pytest.fixture
async def node(tier_etcd: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """A broker of a cluster, in this process; what is unused for two seconds is given up."""
    monkeypatch.setattr(member, "_UNUSED_S", 2.0)
    monkeypatch.setattr(member, "_PRUNE_S", 0.0)
    with RunningEtcd(tmp_path / "etcd") as etcd:
        joined = cluster_options(etcd=etcd.urls, cluster=NAME, name="b0")
        running = Node(
            BrokerOptions(
                data=tmp_path / "data", listen="127.0.0.1:0", monitor="127.0.0.1:0", cluster=joined, name="b0"
            )
        )
        await running.start()
        try:
            yield running
        finally:
            running.hurry()
            await running.stop()


async def test_a_patterns_home_is_given_up_when_nobody_subscribes_to_it_any_more(node: Node) -> None:
    assert node.options.cluster is not None
    async with Etcd(node.options.cluster.etcd) as etcd:
        operator = Operator(etcd)
        await operator.until(
            await operator.put(document("Topic", "any", name="app.>")), "applied", timeout_s=_TIMEOUT_S
        )
        connection = await sterna.connect(f"sterna://{node.messaging}")
        try:
            short, lasting = sterna.Topic("app.short.*"), sterna.Topic("app.lasting.*")
            consumer = await connection.consumer(short)
            await connection.consumer(lasting)
            homes = LAYOUT.homes_of("pattern")

            async def patterns() -> set[str]:
                return {LAYOUT.home_of(pair.key).name for pair in (await etcd.list_all(homes)).values}

            assert await patterns() == {short.name, lasting.name}
            await consumer.close()

            async def is_only_lasting() -> bool:
                return await patterns() == {lasting.name}

            await waited(is_only_lasting, _TIMEOUT_S, "the pattern's home to be given up")
            # Several looks later the other one stands, for somebody still subscribes; and the name can be had again.
            again = await connection.consumer(short)
            await connection.send(sterna.Topic("app.short.1"), "x")
            message = await again.receive(_TIMEOUT_S)
            assert message is not None
            assert message.text == "x"
            assert await patterns() == {short.name, lasting.name}
        finally:
            await connection.close(failed=True, timeout_s=5)
