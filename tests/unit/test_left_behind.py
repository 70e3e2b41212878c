"""The note of what may be left behind: it outlives the process, and who cannot write it is told so."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from sterna_broker.cluster import left_behind
from sterna_broker.cluster.kept import KeptError, replace
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


async def test_what_was_being_forgotten_when_somebody_was_cancelled_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = LeftBehind(tmp_path)
    assert await noted.note([_ONE, _OTHER])
    asked, goes_on = threading.Event(), threading.Event()

    def slow(path: Path, text: str) -> None:
        asked.set()
        goes_on.wait(20)
        replace(path, text)

    monkeypatch.setattr(left_behind, "replace", slow)
    forgetting = asyncio.create_task(noted.forget_all_but([_OTHER]))
    assert await asyncio.to_thread(asked.wait, 20)
    forgetting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await forgetting
    # Its thread is at it still; what comes behind waits for it, and does not rely on what was there.
    noting = asyncio.create_task(noted.note([_ONE]))
    await asyncio.sleep(0)
    goes_on.set()
    assert await noting
    assert _loaded(tmp_path) == {_ONE}


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": 2, "names": []}', '{"format": 1}', '{"format": 1, "names": [["x"]]}']
)
def test_a_file_that_cannot_be_read_refuses_the_start_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(KeptError, match=FILE):
        _loaded(tmp_path)
