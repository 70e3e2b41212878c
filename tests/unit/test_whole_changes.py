"""A change of the configuration whose caller goes away, or whose disk fails, in the middle: whole, or not at all."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sterna_broker.configuration import applied
from sterna_broker.configuration.applied import AppliedFolder
from sterna_broker.contract import admin
from sterna_broker.server.admin import Administration
from sterna_broker.whole import to_its_end

from tests.unit.test_live_configuration import House, manifest

TWO = manifest("Queue", "a", "maxMessages: 2") + "---\n" + manifest("Queue", "b")


@pytest.fixture
def house(tmp_path: Path) -> House:
    made = House(tmp_path)
    made.write(manifest("Queue", "a", "maxMessages: 1"))
    return made


async def _turns() -> None:
    """Gives everybody else a few turns."""
    for _ in range(20):
        await asyncio.sleep(0)


class _Gate:
    """Holds a function up in its thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.came, self.goes = threading.Event(), threading.Event()
        function: Callable[..., Any] = getattr(AppliedFolder, name)

        def held(*arguments: Any) -> Any:
            self.came.set()
            assert self.goes.wait(20)
            return function(*arguments)

        monkeypatch.setattr(AppliedFolder, name, held)

    async def cancel_there(self, task: "asyncio.Task[Any]") -> None:
        """Cancels a task that waits there, more than once, and lets the function go on."""
        await asyncio.to_thread(self.came.wait, 20)
        for _ in range(3):
            task.cancel()
            await _turns()
        self.goes.set()
        await asyncio.wait((task,))


def _running(house: House) -> dict[str, int]:
    return {name: row["maxMessages"] for name, row in house.engine.queues.items()}


async def _after_a_restart(house: House) -> dict[str, int]:
    await house.start()
    return _running(house)


async def test_a_change_whose_caller_goes_while_it_is_kept_happens_whole(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = await house.start()
    gate = _Gate(monkeypatch, "write")
    applying = asyncio.create_task(live.apply(TWO, "x"))
    await asyncio.to_thread(gate.came.wait, 20)
    # What comes behind it waits until it is over, and not only until its caller has gone.
    next_one = asyncio.create_task(live.apply(manifest("Queue", "c"), "x"))
    await gate.cancel_there(applying)
    assert applying.cancelled()
    await next_one
    assert {key[1] for key in live.objects.entries} == {"a", "b", "c"}
    assert _running(house) == {"a": 2, "b": 0, "c": 0}
    assert await _after_a_restart(house) == {"a": 2, "b": 0, "c": 0}


async def test_a_change_whose_caller_goes_before_it_is_kept_does_not_happen(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = await house.start()
    gate = _Gate(monkeypatch, "load")
    applying = asyncio.create_task(live.apply(TWO, "x"))
    await gate.cancel_there(applying)
    assert applying.cancelled()
    assert house.kept() == []
    assert {key[1] for key in live.objects.entries} == {"a"}
    assert _running(house) == {"a": 1}
    assert await _after_a_restart(house) == {"a": 1}


@pytest.mark.parametrize("at", ["write", "undo"])
async def test_a_change_that_the_engine_refuses_is_undone_whoever_has_gone(
    house: House, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    live = await house.start()
    house.engine.refuse = {"b"}
    gate = _Gate(monkeypatch, at)
    applying = asyncio.create_task(live.apply(TWO, "x"))
    await gate.cancel_there(applying)
    assert applying.cancelled()
    assert house.kept() == []
    assert _running(house) == {"a": 1}
    assert await _after_a_restart(house) == {"a": 1}


async def test_of_a_change_that_cannot_be_kept_whole_nothing_is(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    live = await house.start()
    write = applied._write_synced

    def full(file: Path, text: str) -> None:
        write(file, text)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(applied, "_write_synced", full)
    with pytest.raises(OSError, match="No space"):
        await live.apply(TWO, "x")
    assert house.kept() == []
    assert _running(house) == {"a": 1}
    monkeypatch.undo()
    assert await _after_a_restart(house) == {"a": 1}


@pytest.mark.parametrize("failing", ["a", "b"])
async def test_a_change_that_is_kept_holds_although_its_objects_files_find_no_room(
    house: House, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    live = await house.start()
    write = applied._write_synced

    def full(file: Path, text: str) -> None:
        if json.loads(text).get("name") == failing:
            raise OSError(28, "No space left on device")
        write(file, text)

    monkeypatch.setattr(applied, "_write_synced", full)
    await live.apply(TWO, "x")
    assert _running(house) == {"a": 2, "b": 0}
    with pytest.raises(OSError, match="No space"):
        await live.apply(manifest("Queue", "c"), "x")
    monkeypatch.undo()
    assert await _after_a_restart(house) == {"a": 2, "b": 0}
    await (await house.start()).apply(manifest("Queue", "c"), "x")
    assert house.kept() == ["Queue.a.json", "Queue.b.json", "Queue.c.json"]


async def test_what_cannot_be_undone_is_said(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    live = await house.start()
    house.engine.refuse = {"b"}

    def stuck(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(AppliedFolder, "undo", stuck)
    [_, refused] = await live.apply(TWO, "x")
    assert refused.change == "refused"
    # The old set holds all the same.
    assert _running(house) == {"a": 1}
    assert {key[1] for key in live.objects.entries} == {"a"}


async def test_what_a_reload_has_overtaken_is_removed_before_the_next_change(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = await house.start()
    await live.apply(manifest("Queue", "a", "maxMessages: 2"), "x")
    house.write(manifest("Queue", "a", "maxMessages: 3"))
    gate = _Gate(monkeypatch, "remove")
    reloading = asyncio.create_task(live.reload())
    await asyncio.to_thread(gate.came.wait, 20)
    reloading.cancel()
    next_one = asyncio.create_task(live.apply(manifest("Queue", "a", "maxMessages: 4"), "x"))
    await _turns()
    gate.goes.set()
    await next_one
    assert _running(house) == {"a": 4}
    # Had it come first, it would have been removed as what the folder has overtaken.
    assert await _after_a_restart(house) == {"a": 4}


async def test_a_deletion_whose_caller_goes_happens_in_the_engine_and_in_the_configuration(house: House) -> None:
    live = await house.start()
    came, goes, deleted = asyncio.Event(), asyncio.Event(), list[Any]()
    delete = live.delete

    async def slow(*arguments: Any) -> None:
        came.set()
        await goes.wait()
        await delete(*arguments)

    cast("Any", live).delete = slow

    def tick() -> Any:
        return SimpleNamespace(delete=delete_there)

    def delete_there(*arguments: Any) -> int:
        deleted.append(arguments)
        return 7

    async def durable() -> None:
        raise AssertionError("its caller has gone")

    pump: Any = SimpleNamespace(tick=tick, touch=lambda: None, durable=durable)
    administration = Administration(pump, live, cast("Any", SimpleNamespace()))
    cast("Any", administration)._listing = SimpleNamespace(row=lambda *_: {"name": "a"})
    deleting = asyncio.create_task(
        administration.delete(admin.DeleteRequest(kind="Queue", name="a", with_messages=True))
    )
    await came.wait()
    deleting.cancel()
    await _turns()
    goes.set()
    await asyncio.wait((deleting,))
    assert deleting.cancelled()
    assert len(deleted) == 1
    assert not live.objects.entries
    assert await _after_a_restart(house) == {}


async def test_a_cancellation_waits_for_the_end_and_an_error_is_the_callers() -> None:
    async def fails() -> None:
        await _turns()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await to_its_end(fails())
    waiting = asyncio.create_task(to_its_end(fails()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("room", range(8))
async def test_a_refused_change_is_taken_back_on_a_disk_that_is_full_by_then(
    house: House, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """What there was before comes back whole, however many files find room still: on disk is what runs."""
    live = await house.start()
    await live.apply(manifest("Queue", "b", "maxMessages: 7"), "x")
    house.engine.refuse = {"b"}
    write, left = applied._write_synced, room

    def filling(file: Path, text: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")
        write(file, text)

    monkeypatch.setattr(applied, "_write_synced", filling)
    with contextlib.suppress(OSError):
        [*_, refused] = await live.apply(TWO, "x")
        assert refused.change == "refused"
    assert live.warnings == []
    assert _running(house) == {"a": 1, "b": 7}
    house.engine.refuse = set()
    monkeypatch.undo()
    assert await _after_a_restart(house) == {"a": 1, "b": 7}


async def test_what_cannot_be_undone_is_told_and_undone_before_the_next_change(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = await house.start()
    house.engine.refuse = {"b"}
    undo = AppliedFolder.undo
    is_stuck = True

    def stuck(self: AppliedFolder, *arguments: Any) -> None:
        if is_stuck:
            raise OSError(30, "Read-only file system")
        undo(self, *arguments)

    monkeypatch.setattr(AppliedFolder, "undo", stuck)
    await live.apply(TWO, "x")
    assert [text for text in live.warnings if "Queue 'b'" in text and "next start" in text]
    with pytest.raises(OSError, match="Read-only"):
        await live.apply(manifest("Queue", "c"), "x")
    with pytest.raises(OSError, match="Read-only"):
        await live.reload()
    is_stuck = False
    await live.apply(manifest("Queue", "c"), "x")
    assert live.warnings == []
    assert house.kept() == ["Queue.c.json"]
    house.engine.refuse = set()
    assert await _after_a_restart(house) == {"a": 1, "c": 0}
