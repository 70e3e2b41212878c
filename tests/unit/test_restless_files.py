"""Files that are never twice the same: nothing of them is loaded, and that is said."""

import os
from pathlib import Path

from sterna_broker.access.watching import RESTLESS_LOOKS, Watch
from sterna_broker.node import Node
from sterna_broker.options import BrokerOptions


async def test_what_never_comes_to_rest_is_told_until_it_does(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    file = config / "all.yaml"
    file.write_text("")
    node = Node(BrokerOptions(data=tmp_path / "data", config=config))
    watch = node._folder
    assert watch is not None
    loaded: list[int] = []

    async def load() -> bool:
        loaded.append(file.stat().st_mtime_ns)
        return True

    watch._load = load
    for look in range(1, RESTLESS_LOOKS + 1):
        assert node.readiness().warnings == []
        os.utime(file, ns=(look, look))
        await watch.look()
    assert loaded == []
    (warning,) = node.readiness().warnings
    assert "configuration folder" in warning
    await watch.look()
    assert loaded == [RESTLESS_LOOKS]
    assert node.readiness().warnings == []


async def test_what_is_read_as_it_is_counts_from_then_on(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")

    async def load() -> bool:
        return True

    watch = Watch([file], load, settles=True)
    for look in range(1, RESTLESS_LOOKS + 1):
        os.utime(file, ns=(look, look))
        await watch.look()
    assert watch.is_restless
    await watch.look(anyway=True)
    assert not watch.is_restless
