"""What has just come to live on a broker is opened there when what hangs on it holds."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sterna
from sterna_broker.cluster.member import Member
from sterna_broker.node import Node
from sterna_broker.options import BrokerOptions, cluster_options
from sterna_etcd.records import HomeRecord

from tests.cluster.conftest import LAYOUT, NAME, Cluster, Connect, Operator, document
from tests.waiting import eventually

_DURABLE = document("DurableSubscription", "audit", topic="prices", clientId="reader")
_OF_ALL = document("DurableSubscription", "audit", topic="*", clientId="reader")
_BRIDGE = document("Bridge", "keep", source={"topic": "prices"}, targets=[{"queue": "archive"}])


@pytest.mark.parametrize(
    ("hanging", "homes"),
    [
        (_DURABLE, [("topic", "prices")]),
        (_OF_ALL, [("pattern", "*"), ("topic", "prices")]),
        (_BRIDGE, [("queue", "archive"), ("topic", "prices")]),
    ],
    ids=["durable", "pattern", "bridge"],
)
async def test_nothing_is_missed_that_is_sent_at_once(
    cluster: Callable[..., Cluster],
    connect: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hanging: dict[str, Any],
    homes: list[tuple[str, str]],
) -> None:
    made = await asyncio.to_thread(cluster, 0)
    applied, may_apply = Member._apply, asyncio.Event()
    may_apply.set()

    async def apply(member: Member) -> None:
        await may_apply.wait()
        await applied(member)

    monkeypatch.setattr(Member, "_apply", apply)
    options = cluster_options(name="b0", etcd=made.etcd.urls, cluster=NAME)
    node = Node(BrokerOptions(data=tmp_path / "b0", listen="127.0.0.1:0", monitor="127.0.0.1:0", cluster=options))
    async with made.client() as etcd:
        for manifest in (document("Topic", "prices"), document("Queue", "archive"), hanging):
            await Operator(etcd).put(manifest, claim="reader/audit" if "clientId" in manifest["spec"] else "")
        for kind, name in homes:
            await etcd.put(LAYOUT.home(kind, name), HomeRecord(broker="b9", static=True).encode())
        await node.start()
        try:
            member = node.member
            assert member is not None
            await eventually(lambda: member.applied_revision > 0, timeout_s=30, what="the first round")
            may_apply.clear()
            for kind, name in homes:
                await etcd.put(LAYOUT.home(kind, name), HomeRecord(broker="b0", static=True).encode())
            await eventually(lambda: member.link.view.home("topic", "prices") == "b0", timeout_s=30, what="the home")
            connection = await connect(f"sterna://{node.messaging}", client_id="reader")
            sending = asyncio.create_task(connection.send(sterna.Topic("prices"), "at once"))
            # Without anything to wait for it is sent by now.
            await asyncio.wait({sending}, timeout=1)
            may_apply.set()
            await asyncio.wait_for(sending, 30)
            if hanging is _BRIDGE:
                consumer = await connection.consumer("archive")
            else:
                consumer = await connection.consumer(sterna.Topic(hanging["spec"]["topic"]), durable="audit")
            message = await consumer.receive(10)
            assert message is not None
            assert message.text == "at once"
            await connection.close()
        finally:
            may_apply.set()
            await node.stop()
