"""In which order a parallel run takes the tests, and which stay together.

A file's tests go to one worker, which so starts what they share once; a few files whose tests each take long by
themselves are taken apart. All tests with a Spark go to one worker, whose session they share: each further Java takes a
gigabyte, and both cores for a minute until it is warm. What takes longest comes first, or the last test would run
alone: what has set itself a longer time limit, then the higher tiers. In one process the order is that of the files,
as always.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.tiers import TIERS, tier_of_test

# Each of their tests takes a good part of a minute, and shares nothing that is dear.
APART = ("tests/operator/test_crashes.py", "tests/operator/test_cluster_faults.py", "tests/examples/test_demo.py")


#: A file in which one of these stands has tests with a Spark. Whoever hands tests out knows no more than their names.
_OF_SPARK = ("SparkSession", "tier_spark")


def _limit_s(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0]) if mark is not None and mark.args else 0.0


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    weights: dict[str, tuple[float, int]] = {}
    for item in items:
        scope = scope_of(item.nodeid)
        limit, tier = weights.get(scope, (0.0, 0))
        own = TIERS.index(tier_of_test(item))
        weights[scope] = (max(limit, _limit_s(item)), max(tier, own))
    items.sort(key=lambda item: weights[scope_of(item.nodeid)], reverse=True)


def scope_of(nodeid: str) -> str:
    """The tests that stay together with this one have the same."""
    file = nodeid.partition("::")[0]
    if file in APART:
        return nodeid
    return "spark" if _has_spark(file) else file


@cache
def _has_spark(file: str) -> bool:
    try:
        text = Path(file).read_text()
    except OSError:  # somebody may run tests from elsewhere
        return False
    return any(name in text for name in _OF_SPARK)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hook of xdist."""
    # Only a parallel run has xdist's parts.
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist tells no types
        """Hands out file after file, in the order of the collection."""

        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    config.option.loadscopereorder = False
    return ByFile(config, log)
