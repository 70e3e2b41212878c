"""What happens to awaits is counted, by room and by what it is."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.world import __main__, awaits
from tests.world.clusters import Cluster
from tests.world.run import Verdict
from tests.world.stage import Stage, staged


async def _waits(cluster: Cluster, stage: Stage, opened: asyncio.Event) -> None:
    connection = await stage.connect(cluster.brokers["b1"])
    consumer = await connection.consumer("orders")
    opened.set()
    await consumer.receive(3600)


def _places(counts: Counter[str]) -> set[str]:
    return {name.partition(":")[0] for name in counts}


@staged
async def test_it_is_counted_where_tasks_are_cut_and_killed_and_where_homes_move_under_them(stage: Stage) -> None:
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    await cluster.apply("Queue", "orders", broker="b1")
    await cluster.until_home("queue", "orders", "b1")
    counts = stage.loop.awaits
    opened = asyncio.Event()
    process, waiting = stage.process("waits", _waits(cluster, stage, opened))
    await stage.until(opened.is_set)
    assert "sterna/consumers.py receive" not in _places(counts.moved)
    await cluster.give("queue", "orders", "b0")
    assert "sterna/consumers.py receive" in _places(counts.moved)
    assert "sterna_broker/server/connect.py serve" in _places(counts.moved)
    assert "sterna_etcd/watch.py _follow" in _places(counts.moved), "also what an asynchronous generator awaits"
    assert "sterna/consumers.py receive" not in _places(counts.cut)
    waiting.cancel()
    assert "sterna/consumers.py receive" in _places(counts.cut)
    process, _ = stage.process("waits too", _waits(cluster, stage, asyncio.Event()))
    await asyncio.sleep(5)
    stage.loop.kill(process)
    assert "sterna/consumers.py receive" in _places(counts.killed)
    assert not {*counts.cut, *counts.killed, *counts.moved} - set(awaits.read())


def test_what_was_counted_is_added_up_over_runs_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(__main__, "BOOK", tmp_path / "build" / "world.json")
    monkeypatch.setattr(__main__, "_quiet", lambda **_: None)  # it would outlast this test
    counts = awaits.Counts(cut=Counter({awaits.read()[0]: 2}))
    monkeypatch.setattr(__main__, "played", lambda scene, **_: Verdict(scene, counts=counts))
    for runs in (3, 6):
        monkeypatch.setattr(sys, "argv", ["world", "--seeds", "3"])
        assert __main__.main() == 0
        told = capsys.readouterr().out
        assert f"{runs} runs in all, 0 of them bad\n1 of {len(awaits.read())} awaits were cut" in told
        assert __main__._read()["awaits"].cut == Counter({awaits.read()[0]: 2 * runs})


def test_every_room_is_looked_at() -> None:
    rooms = {name.partition("/")[0] for name in awaits.read()}
    assert rooms == {"sterna", "sterna_broker", "sterna_etcd"}
