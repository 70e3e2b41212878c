"""What a keeper of brokers looks for is found when it is there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sterna_broker.configuration.live import LiveConfiguration
from sterna_broker.node import Node

from tests.world.__main__ import played
from tests.world.run import Scene

#: In some of them a start is told to stop; and one by itself has its configuration read again.
_SEEDS = range(2000100, 2000140)
_STARTS = replace(
    Scene.of(_SEEDS[0]), clients=1, programs=1, steps=1, faults=0, extras=0, deeds=4, guests=0, newcomers=0, jugglers=0
)
_RELOADS = replace(_STARTS, brokers=1)


async def _nothing(_: Node) -> None:
    return None


async def _reads_nothing(_: LiveConfiguration) -> None:
    return None


@pytest.mark.parametrize(
    ("scene", "where", "name", "former", "word"),
    [
        (_STARTS, Node, "_give_up", _nothing, "a start that was told to stop leaves"),
        (_RELOADS, LiveConfiguration, "reload", _reads_nothing, "the folder says"),
    ],
)
def test_what_a_cut_start_leaves_and_a_reload_does_not_do_is_found(
    scene: Scene, where: type, name: str, former: object, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setattr(where, name, former)
        # Which of them it is changes with whatever is done before it.
        found = next((one for one in (replace(scene, seed=seed) for seed in _SEEDS) if _shows(one, word)), None)
    assert found is not None
    assert played(found).problems == []


def _shows(scene: Scene, word: str) -> bool:
    return any(word in problem for problem in played(scene).problems)
