"""A bridge in a cluster with an end that nobody has described: it is said wherever people look."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import sterna
import sterna.admin
from sterna_broker.configuration.live import LiveConfiguration
from sterna_etcd import Claim
from sterna_etcd.records import ObjectStatus

from tests.running import ANYTHING, manifest
from tests.world.brokers import Broker
from tests.world.clusters import LAYOUT, Cluster
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained


async def _said(cluster: Cluster, claim: Claim) -> ObjectStatus | None:
    """What is said in etcd of an object, which the operator puts into its status."""
    found = (await cluster.client.get(LAYOUT.object_status(claim, "b1"))).found
    return ObjectStatus.decode(found.key, found.value) if found is not None else None


@staged
async def test_a_bridge_that_dangles_shows_in_status_readiness_and_metrics_until_it_does_not(stage: Stage) -> None:
    cluster = await stage.cluster("b0", "b1")
    await cluster.apply("Topic", "news", broker="b1")
    await cluster.until_home("topic", "news", "b1")
    claim = await cluster.apply("Bridge", "over", source={"topic": "news"}, targets=[{"queue": "copies"}])
    text = "no manifest describes the queue 'copies'"

    async def is_said() -> bool:
        said = await _said(cluster, claim)
        return said is not None and text in said.message

    await cluster.until(is_said)
    said = await _said(cluster, claim)
    assert said is not None
    assert (said.state, said.home) == ("applied", "b1")
    # The broker that has it says so, and no other.
    counts = {name: broker.metrics()["sterna_dangling_bridges"] for name, broker in cluster.brokers.items()}
    assert counts == {"b0": 0, "b1": 1}
    warned = {name: broker.readyz()["warnings"] for name, broker in cluster.brokers.items()}
    assert warned["b0"] == []
    assert [text in one and "'over'" in one for one in warned["b1"]] == [True]
    assert cluster.brokers["b1"].readyz()["ready"]

    async def status_warns() -> bool:
        status = await cluster.status("b1")
        return status is not None and any(text in one for one in status.warnings)

    await cluster.until(status_warns)
    # It leads there all the same, and its target has the home that it has.
    assert await cluster.home("queue", "copies") == "b1"
    connection = await stage.connect(cluster.brokers["b0"])
    await connection.send(sterna.Topic("news"), "x")
    assert await drained(connection, "copies") == ["x"]
    # Once the target is described there is nothing to say.
    await cluster.apply("Queue", "copies")

    async def is_silent() -> bool:
        status, said = await cluster.status("b1"), await _said(cluster, claim)
        return status is not None and status.warnings == [] and said is not None and said.message == ""

    await cluster.until(is_silent)
    assert cluster.brokers["b1"].metrics()["sterna_dangling_bridges"] == 0
    assert cluster.brokers["b1"].readyz()["warnings"] == []
    await connection.close()


@staged
async def test_the_target_of_a_bridge_that_is_deleted_while_the_log_makes_room_is_made_again(stage: Stage) -> None:
    """Refused for now it is asked for again: till then all that is sent to the bridge's source would be refused."""
    broker = await stage.broker(config=stage.manifests(*ANYTHING, OVER))
    assert broker.node is not None
    connection = await stage.connect(broker)
    await connection.send("orders", "before")
    handover: Any = broker.node.live._handover
    reconfigure, refusals = handover._reconfigure, 3

    def refuse(text: str) -> str:
        nonlocal refusals
        refusals -= 1
        handover._reconfigure = reconfigure if refusals == 0 else refuse
        error = {"code": "STORE_FULL", "subject": "disk", "message": "no space.", "remedy": "", "retryable": True}
        return json.dumps({"refused": [{"kind": "queue", "name": "copies", "error": error}]})

    handover._reconfigure = refuse
    async with sterna.admin.connect(f"sterna://{broker.address}") as admin:
        await admin.delete("Queue", "copies", with_messages=True)
    assert refusals == 0
    await connection.send("orders", "after")
    assert await drained(connection, "copies") == ["after"]
    await connection.close()


def _without_room(configure: Callable[[str], str], times: int) -> Callable[[str], str]:
    """What hands over to an engine whose log has no room for the queue "copies" so many times."""
    error = {"code": "STORE_FULL", "subject": "disk", "message": "no space.", "remedy": "", "retryable": True}
    left = times

    def hand_over(text: str) -> str:
        nonlocal left
        given = json.loads(text)
        if left == 0 or "copies" not in [row["name"] for row in given.get("queues", [])]:
            return configure(text)
        left -= 1
        given["queues"] = [row for row in given["queues"] if row["name"] != "copies"]
        answer = json.loads(configure(json.dumps(given)))
        answer["refused"] = [*answer.get("refused", []), {"kind": "queue", "name": "copies", "error": error}]
        return json.dumps(answer)

    return hand_over


OVER = manifest("Bridge", "over", "source: {queue: orders}, targets: [{queue: copies}]")


@staged
async def test_a_broker_that_starts_while_its_log_makes_room_serves_once_all_is_there_that_is_described(
    stage: Stage,
) -> None:
    connect = LiveConfiguration.connect

    def refusing(
        self: LiveConfiguration, configure: Callable[[str], str], reconfigure: Callable[[str], str] | None = None
    ) -> None:
        connect(self, _without_room(configure, 1), reconfigure)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LiveConfiguration, "connect", refusing)
        broker = await stage.broker(config=stage.manifests(*ANYTHING, OVER))
    connection = await stage.connect(broker)
    await connection.send("orders", "x")
    assert await drained(connection, "copies") == ["x"]
    await connection.close()


async def _reloaded_without_room(stage: Stage, times: int) -> Broker:
    """A broker that has read "copies" and a bridge to it, for which its log had no room so many times."""
    folder = stage.manifests(*ANYTHING)
    broker = await stage.broker(config=folder)
    assert broker.node is not None
    handover: Any = broker.node.live._handover
    handover._reconfigure = _without_room(handover._reconfigure, times)
    (folder / "all.yaml").write_text("---\n".join([*ANYTHING, OVER]))
    await broker.node.reload()
    return broker


@staged
async def test_a_reload_waits_until_the_log_has_room_for_what_it_describes(stage: Stage) -> None:
    broker = await _reloaded_without_room(stage, 3)
    connection = await stage.connect(broker)
    await connection.send("orders", "x")
    assert await drained(connection, "copies") == ["x"]
    await connection.close()


@staged
async def test_what_the_log_has_no_room_for_in_a_while_is_asked_for_on_and_on(stage: Stage) -> None:
    broker = await _reloaded_without_room(stage, 12)
    assert broker.node is not None
    live = broker.node.live
    assert live.lacks_room
    connection = await stage.connect(broker)
    with pytest.raises(sterna.errors.NoSuchDestinationError):
        await connection.send("orders", "too early")
    await stage.until(lambda: not live.lacks_room)
    await connection.send("orders", "x")
    assert await drained(connection, "copies") == ["x"]
    await connection.close()


@staged
async def test_a_bridge_whose_target_the_log_has_no_room_for_is_applied_once_it_has_or_refused(stage: Stage) -> None:
    """Taken without its target it would have all refused that is sent to its source."""
    broker = await stage.broker(config=stage.manifests(*ANYTHING))
    assert broker.node is not None
    handover: Any = broker.node.live._handover
    reconfigure = handover._reconfigure
    connection = await stage.connect(broker)
    async with sterna.admin.connect(f"sterna://{broker.address}") as admin:
        handover._reconfigure = _without_room(reconfigure, 1_000)
        [refused] = await admin.apply(OVER)
        assert (refused.change, refused.error and refused.error.code) == ("refused", sterna.errors.ErrorCode.STORE_FULL)
        await connection.send("orders", "not copied")
        handover._reconfigure = _without_room(reconfigure, 3)
        [applied] = await admin.apply(OVER)
        assert applied.change == "created"
    await connection.send("orders", "x")
    assert await drained(connection, "copies") == ["x"]
    await connection.close()


@staged
async def test_what_the_log_of_a_member_had_no_room_for_is_asked_for_again_without_another_change(stage: Stage) -> None:
    cluster = await stage.cluster("b0")
    node = cluster.brokers["b0"].node
    assert node is not None
    handover: Any = node.live._handover
    reconfigure, refusals = handover._reconfigure, 3

    def refuse(text: str) -> str:
        nonlocal refusals
        if "orders" not in text:
            return str(reconfigure(text))
        refusals -= 1
        handover._reconfigure = reconfigure if refusals == 0 else refuse
        error = {"code": "STORE_FULL", "subject": "disk", "message": "no space.", "remedy": "", "retryable": True}
        return json.dumps({"refused": [{"kind": "queue", "name": "orders", "error": error}]})

    handover._reconfigure = refuse
    await cluster.apply("Queue", "orders", broker="b0", maxMessages=7)

    def limits() -> list[int]:
        rows = cluster.brokers["b0"].listed("queue")
        return [row["properties"]["maxMessages"] for row in rows if row["name"] == "orders"]

    await cluster.until(lambda: limits() == [7])
    assert refusals == 0
