"""Output that needs the disk, with a host that polls once when something happens, as the broker does."""

import json
import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.core.driver import ALLOWED, WAIT_SECONDS, Driver, queue, text, texts


class Frugal(Driver):
    """Polls once, and again only when it answered a ticket; otherwise waits until the engine says something."""

    def poll(self) -> None:
        ready, tickets, _, _ = self.engine.poll()
        for client, output in ((self.clients.get(one), self.engine.take_output(one, 1 << 20)) for one in ready):
            if client is not None and output is not None:
                client.take(output)
        for ticket in map(json.loads, tickets):
            allowed = ALLOWED if ticket["kind"] == "destination" else {"user": ""}
            self.engine.answer(ticket["ticket"], json.dumps({"ok": allowed}))
        if tickets:
            self.poll()

    def wait(self, until: Callable[[], bool]) -> None:
        while not until():
            readable, _, _ = select.select([self.engine.fileno()], [], [], WAIT_SECONDS)
            assert readable, "the engine has nothing more to say"
            self.poll()

    def settle(self) -> None:
        """Until the engine's threads have nothing under way that would wake us anyway."""
        while select.select([self.engine.fileno()], [], [], 0.5)[0]:
            self.poll()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Frugal]:
    driver = Frugal(tmp_path / "store")
    yield driver
    driver.engine.stop()


def test_payloads_that_are_not_cached_are_read_without_another_poll(driver: Frugal) -> None:
    client = driver.client()
    session = client.session()
    client.producer(session, queue("orders"))
    client.publish(session, 1, [text("one"), text("two"), text("three")])
    driver.wait(lambda: client.confirmed() == {1, 2, 3})
    driver.restart()
    cold = driver.client()
    session = cold.session()
    driver.settle()
    cold.consumer(session, queue("orders"))
    driver.wait(lambda: len(cold.deliveries()) == 3)
    assert texts(cold.deliveries()) == ["one", "two", "three"]
