"""Engines on a simulated disk: whatever happens to them is a step that the test asks for, and comes again."""

import json
import select
from collections.abc import Callable
from typing import Any

import pytest
from sterna_core import Engine, StoreError
from sterna_core._core import SimulatedDisk

from tests.core.driver import ALLOWED, Client, Driver, queue, text, texts

SETTINGS = {"broker": "test", "segment_bytes": 1 << 20}


class Stepped(Driver):
    """A driver whose engine lives on a simulated disk; its jobs run when somebody waits for something."""

    def __init__(self, seed: int = 1) -> None:
        self.disk = SimulatedDisk(seed)
        self.starts = 0
        self.settings = SETTINGS
        self.wall_ms, self.monotonic_ms = 1_700_000_000_000, 1_000
        self.last_stream = 0
        self.clients = {}
        self.tickets = []
        self.allowed = ALLOWED
        self.refuse = lambda ticket: None
        self.failed: str | None = None
        self.start()

    def start(self) -> None:
        self.starts += 1
        secret = f"start {self.starts}".encode()
        settings = json.dumps(self.settings)
        self.engine = Engine.open_simulated(self.disk, secret, settings, self.wall_ms, self.monotonic_ms)

    def step(self) -> bool:
        """One job, the writer's first; whether there was one."""
        jobs = self.engine.jobs()
        return bool(jobs) and self.engine.run_job(jobs[0])

    def settle(self) -> None:
        """Until nothing is left to do."""
        self.poll()
        while self.step():
            self.poll()

    def wait(self, until: Callable[[], bool]) -> None:
        self.poll()
        while not until():
            assert self.step(), "the engine has nothing more to do"
            self.poll()

    def crash(self, *, power: bool) -> None:
        self.engine.kill()
        self.clients.clear()
        self.disk.crash(power=power)


@pytest.fixture
def stepped() -> Stepped:
    return Stepped()


def publisher(driver: Driver) -> Client:
    client = driver.client()
    client.producer(client.session(), queue("orders"))
    return client


def taken(driver: Driver, count: int) -> list[Any]:
    client = driver.client()
    client.consumer(client.session(), queue("orders"))
    driver.wait(lambda: len(client.deliveries()) >= count)
    return list(client.deliveries())


def is_readable(engine: Engine) -> bool:
    return bool(select.select([engine.fileno()], [], [], 0)[0])


def test_a_job_runs_when_it_is_asked_for_and_its_result_wakes_the_loop(stepped: Stepped) -> None:
    client = publisher(stepped)
    stepped.settle()
    assert stepped.engine.jobs() == []
    assert not is_readable(stepped.engine)
    client.publish(1, 1, [text("one")])
    assert stepped.engine.jobs() == ["writer"]
    assert client.confirmed() == set()
    assert not is_readable(stepped.engine)
    assert stepped.engine.run_job("writer")
    assert not stepped.engine.run_job("writer")
    assert is_readable(stepped.engine)
    assert client.confirmed() == set()
    stepped.poll()
    assert not is_readable(stepped.engine)
    assert client.confirmed() == {1}


def kept_after_a_power_cut(seed: int) -> tuple[str, ...]:
    """The texts that are there after the power went while a second message was written; the first was confirmed."""
    stepped = Stepped(seed)
    client = publisher(stepped)
    client.publish(1, 1, [text("one")])
    stepped.wait(lambda: client.confirmed() == {1})
    client.publish(1, 2, [text("two")])
    stepped.poll()
    stepped.disk.set_faults(crash_in=1 + seed % 3)
    stepped.step()
    stepped.crash(power=True)
    stepped.start()
    stepped.settle()
    kept = texts(taken(stepped, 1))
    stepped.engine.stop()
    return tuple(kept)


def test_what_was_confirmed_is_there_after_a_power_cut_and_what_was_not_may_not_be() -> None:
    assert {kept_after_a_power_cut(seed) for seed in range(16)} == {("one",), ("one", "two")}


def test_a_killed_process_leaves_what_it_had_written_and_its_lock(stepped: Stepped) -> None:
    client = publisher(stepped)
    stepped.settle()
    client.publish(1, 1, [text("one")])
    assert stepped.engine.run_job("writer")
    with pytest.raises(StoreError, match="lock"):
        stepped.start()
    stepped.crash(power=False)
    stepped.start()
    assert texts(taken(stepped, 1)) == ["one"]


def test_jobs_of_a_killed_engine_never_run(stepped: Stepped) -> None:
    client = publisher(stepped)
    client.publish(1, 1, [text("one")])
    stepped.poll()
    before = stepped.disk.operations()
    engine = stepped.engine
    stepped.crash(power=False)
    assert stepped.disk.operations() == before
    with pytest.raises(Exception, match="stopped"):
        engine.jobs()


def test_a_failed_sync_is_told_by_the_poll(stepped: Stepped) -> None:
    client = publisher(stepped)
    stepped.settle()
    client.publish(1, 1, [text("one")])
    stepped.poll()
    stepped.disk.set_faults(fail_sync_in=1)
    stepped.step()
    _, _, _, failed = stepped.engine.poll()
    assert failed is not None
    assert client.confirmed() == set()


def test_a_clone_of_a_disk_goes_its_own_way(stepped: Stepped) -> None:
    client = publisher(stepped)
    client.publish(1, 1, [text("one")])
    stepped.wait(lambda: client.confirmed() == {1})
    clone = Stepped(9)
    clone.engine.kill()
    clone.disk = stepped.disk.fork(9)
    clone.start()
    client.publish(1, 2, [text("two")])
    stepped.wait(lambda: client.confirmed() == {1, 2})
    assert texts(taken(clone, 1)) == ["one"]
    assert texts(taken(stepped, 2)) == ["one", "two"]


def test_flipped_bits_are_seen_by_the_next_start(stepped: Stepped) -> None:
    client = publisher(stepped)
    client.publish(1, 1, [text("x" * 9_000)])
    stepped.wait(lambda: client.confirmed() == {1})
    stepped.crash(power=False)
    segment = next(name for name in stepped.disk.files() if name.endswith(".segment"))
    contents = stepped.disk.contents(segment)
    assert contents is not None
    assert stepped.disk.flip(segment, contents.index(b"xxxx") + 5_000, 0x10)
    with pytest.raises(StoreError):
        stepped.start()


def test_the_same_seed_and_secret_leave_the_same_bytes() -> None:
    def life() -> list[bytes | None]:
        stepped = Stepped(5)
        client = publisher(stepped)
        client.publish(1, 1, [text(str(number)) for number in range(20)])
        stepped.wait(lambda: len(client.confirmed()) == 20)
        stepped.crash(power=True)
        stepped.start()
        assert len(texts(taken(stepped, 20))) == 20
        stepped.engine.stop()
        return [stepped.disk.contents(name) for name in stepped.disk.files()]

    assert life() == life()


def test_an_engine_with_threads_has_no_steps(tmp_path: Any) -> None:
    driver = Driver(tmp_path / "store")
    assert driver.engine.jobs() == []
    assert not driver.engine.run_job("writer")
    driver.engine.stop()
