"""The note of what may be left behind: it outlives the process, and who cannot write it is told so."""

from __future__ import annotations

from pathlib import Path

import pytest
from sterna_broker.cluster.kept import KeptError
from sterna_broker.cluster.left_behind import FILE, LeftBehind
from sterna_etcd import HomeKey

_ONE, _OTHER = HomeKey("queue", "one"), HomeKey("topic", "other")


def _loaded(folder: Path) -> frozenset[HomeKey]:
    found = LeftBehind(folder)
    found.load()
    return found.names


async def test_names_are_found_again_until_they_are_forgotten(tmp_path: Path) -> None:
    assert _loaded(tmp_path) == frozenset()
    noted = LeftBehind(tmp_path)
    assert await noted.note([_ONE])
    assert await noted.note([_ONE, _OTHER])
    assert await noted.note([_OTHER])
    assert _loaded(tmp_path) == {_ONE, _OTHER}
    await noted.forget_all_but([_OTHER, HomeKey("queue", "never noted")])
    assert _loaded(tmp_path) == {_OTHER}


async def test_who_cannot_write_says_so_and_has_noted_nothing(tmp_path: Path) -> None:
    noted = LeftBehind(tmp_path)
    assert await noted.note([_ONE])
    (tmp_path / f".{FILE}.new").mkdir()
    assert not await noted.note([_OTHER])
    await noted.forget_all_but([])
    assert noted.names == _loaded(tmp_path) == {_ONE}
    (tmp_path / f".{FILE}.new").rmdir()
    assert await noted.note([_OTHER])


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": 2, "names": []}', '{"format": 1}', '{"format": 1, "names": [["x"]]}']
)
def test_a_file_that_cannot_be_read_refuses_the_start_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(KeptError, match=FILE):
        _loaded(tmp_path)
