"""What was mended is found when it is put back: the reduced run of each fails with it, and passes without."""

from __future__ import annotations

import pytest

from tests.support.seeds import is_complete, seed
from tests.world.__main__ import played
from tests.world.defects import DEFECTS, hunt, put_back, runs


def test_each_has_a_run() -> None:
    assert sorted(DEFECTS) == sorted(runs())


@pytest.mark.parametrize("number", DEFECTS)
def test_a_defect_that_is_put_back_is_found(number: int) -> None:
    scene = runs()[number]
    assert played(scene).problems == []
    with put_back(number):
        assert played(scene).problems != []


@pytest.mark.skipif(not is_complete(), reason="a long search, for make test-all")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", DEFECTS)
def test_fresh_seeds_find_each_defect(number: int) -> None:
    first = seed() * 1_000_000
    assert hunt(number, first, 20_000, played) is not None, f"not in 20,000 seeds from {first} on"
