"""`@pytest.mark.covers("EMS-DEST-A14", …)`: this test shows these rows of the catalogue.

A mark belongs only on a test that fails when the behaviour breaks. An id that the catalogue does not have, or a mark
without ids, fails the collection: a typing error would otherwise count as a row shown. With `--covers-out FILE` the
rows of the collected tests are written as JSON (row id to test ids), which is what tools/coverage_report.py reads.
Tests that are skipped whatever happens, or expected to fail, show nothing and are left out.
"""

import json
from pathlib import Path

import pytest

from tools import catalogue


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--covers-out", type=Path, default=None, metavar="FILE", help="write rows shown, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "covers(*ids): rows of the catalogue that this test shows")


def rows_of(item: pytest.Item) -> list[str]:
    """The row ids on a test, its class and its module."""
    ids: list[str] = []
    for mark in item.iter_markers("covers"):
        if not mark.args or mark.kwargs or not all(isinstance(id, str) for id in mark.args):
            raise pytest.UsageError(f"{item.nodeid}: covers() takes row ids, as strings")
        ids += mark.args
    if unknown := catalogue.unknown(ids):
        raise pytest.UsageError(f"{item.nodeid}: not in the catalogue: {', '.join(unknown)}")
    return ids


def shows_nothing(item: pytest.Item) -> bool:
    """Whether the test cannot pass: skipped unconditionally, or expected to fail."""
    return any(mark.name == "xfail" or not mark.args for mark in item.iter_markers() if mark.name in {"skip", "xfail"})


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    shown: dict[str, list[str]] = {}
    for item in items:
        for id in rows_of(item):
            if not shows_nothing(item):
                shown.setdefault(id, []).append(item.nodeid)
    target: Path | None = config.getoption("--covers-out")
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(shown, indent=1, sort_keys=True), encoding="utf-8")
