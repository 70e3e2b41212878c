"""A Broker manifest on a running broker: what of it holds at once, what waits for the next start, and who says so."""

import asyncio
import json
import os
import signal
import urllib.request
from typing import Any

import pytest
import sterna.admin
from sterna._proto.sterna.v1 import admin_pb2 as admin

from tests.broker.calls import call
from tests.running import ANYTHING, RunningBroker, manifest
from tests.waiting import eventually

FLOW = "spec.flowControl: false -> true"


async def warned(broker: RunningBroker) -> list[str]:
    """What /readyz warns of."""

    def read() -> list[str]:
        with urllib.request.urlopen(f"{broker.monitor}/readyz") as answer:
            warnings: list[str] = json.load(answer)["warnings"]
            return warnings

    return await asyncio.to_thread(read)


async def applied(channel: Any, spec: str, name: str = "sterna", **fields: Any) -> admin.Applied:
    one: admin.Applied
    [one] = (await call(channel, "Admin/Apply", manifests=manifest("Broker", name, spec), **fields)).applied
    return one


async def pending(channel: Any) -> list[str]:
    """What the listing of the Broker says of its next start."""
    effective = (await call(channel, "Admin/Get", kind="Broker", name="sterna")).effective
    waiting: list[str] = json.loads(effective)["fromNextStart"] if effective else []
    return waiting


async def test_an_apply_says_which_settings_of_a_broker_wait_for_its_next_start(
    broker_process: Any, channel_to: Any
) -> None:
    broker = await asyncio.to_thread(broker_process().start)
    channel = channel_to(broker)
    spec = "flowControl: true, limits: {connections: 77}, stores: [{name: s, quotaBytes: 5}]"
    due = ["spec.limits.connections: 10000 -> 77", FLOW]
    dry = await applied(channel, spec, dry_run=True)
    assert sorted(dry.warnings) == sorted(f"{one} holds from the broker's next start on" for one in due)
    assert await warned(broker) == []
    made = await applied(channel, spec)
    assert (made.change, list(made.warnings)) == (admin.Applied.CREATED, list(dry.warnings))
    # Its stores hold at once.
    stores = {one.name: one.quota_bytes for one in (await call(channel, "Admin/GetStatistics")).stores}
    assert stores["s"] == 5
    assert sorted(await pending(channel)) == sorted(due)
    [warning] = await warned(broker)
    assert "a restart is due" in warning
    assert FLOW in warning
    assert "restart_due" in broker.stderr
    # Whoever applies it again is told again; whoever takes a part back hears of the rest.
    again = await applied(channel, spec)
    assert (again.change, list(again.warnings)) == (admin.Applied.UNCHANGED, list(made.warnings))
    less = await applied(channel, "limits: {connections: 77}, stores: [{name: s, quotaBytes: 6}]")
    assert list(less.warnings) == ["spec.limits.connections: 10000 -> 77 holds from the broker's next start on"]
    # What is only a part of a refused call is not taken, and nothing is said of it.
    both = manifest("Broker", "sterna", "drainMs: 1") + "---\n" + manifest("Queue", "q", "maxMesages: 1")
    first, _ = (await call(channel, "Admin/Apply", manifests=both)).applied
    assert list(first.warnings) == []
    assert await asyncio.to_thread(broker.terminate) == 0
    await asyncio.to_thread(broker.start)
    assert await warned(broker) == []
    assert await pending(channel_to(broker)) == []
    assert list((await applied(channel_to(broker), "limits: {connections: 77}")).warnings) == []


async def test_only_what_differs_from_what_holds_waits_for_the_next_start(broker_process: Any, channel_to: Any) -> None:
    started = manifest("Broker", "sterna", "flowControl: true")
    broker = await asyncio.to_thread(broker_process([*ANYTHING, started]).start)
    channel = channel_to(broker)
    # What is written and is the default changes nothing; neither do stores.
    assert (
        list((await applied(channel, "flowControl: true, slowConsumerMs: 30000, stores: [{name: s}]")).warnings) == []
    )
    assert await warned(broker) == []
    async with sterna.admin.connect(f"sterna://{broker.address}") as client:
        [one] = await client.apply(manifest("Broker", "sterna", ""))
        assert one.warnings == ("spec.flowControl: true -> false holds from the broker's next start on",)
        assert (await client.resource("Broker", "sterna")).effective["fromNextStart"]
        await client.delete("Broker", "sterna")
    assert "spec.flowControl: true -> false" in (await warned(broker))[0]


async def test_a_new_name_waits_and_a_flag_comes_before_a_manifest(node: Any, channel_to: Any) -> None:
    channel = channel_to(await node([]))
    assert list((await applied(channel, "drainMs: 5, flowControl: false", name="main")).warnings) == [
        'metadata.name: "sterna" -> "main" holds from the broker\'s next start on',
        "spec.drainMs: 5 does not hold, since --drain-ms 0 of the command line comes before it",
    ]
    named = channel_to(await node([], folder="named", name="b1"))
    assert list((await applied(named, "drainMs: 0", name="main")).warnings) == []
    assert list((await applied(named, "name: b2", name="main")).warnings) == [
        'spec.name: "b2" does not hold, since --name "b1" of the command line comes before it'
    ]


@pytest.mark.parametrize("how", ["looked at", "told"])
async def test_the_folder_tells_what_waits_for_the_next_start(broker_process: Any, how: str) -> None:
    broker = await asyncio.to_thread(broker_process([*ANYTHING]).start)
    (broker.config / "broker.yaml").write_text(manifest("Broker", "sterna", "flowControl: true"))
    if how == "told":
        os.kill(broker.pid, signal.SIGHUP)
    await eventually(lambda: "restart_due" in broker.stderr, what="the line of the log")
    assert FLOW in broker.stderr
    assert FLOW in (await warned(broker))[0]
    (broker.config / "broker.yaml").unlink()

    async def quiet() -> bool:
        return await warned(broker) == []

    await eventually(quiet, what="no warning any more")
    assert broker.stderr.count("restart_due") == 1
