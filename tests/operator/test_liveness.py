"""When the operator wants to be started anew: a dead watch is a reason, an API server that is away is none."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from sterna_operator.watching import DEAD_AFTER_S, WatchClock

from tests.operator.broker_double import BrokerDouble
from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.support.unreliable_proxy import UnreliableProxy
from tests.waiting import eventually

pytestmark = [
    pytest.mark.slow_callbacks(30_000),
]


class Time:
    """A clock that stands until it is told to go on."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.clock = WatchClock(clock=lambda: self.now)
        self.clock.expect(["/queues"])

    def passes(self, seconds: float, *, answered: bool | None) -> None:
        """Time passes, with a request every two seconds; `answered` None: with no request at all."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(self.now + 2.0, until)
            if answered is not None:
                self.clock.note_server(answered)


def test_a_watch_is_dead_while_the_server_answers() -> None:
    time = Time()
    time.passes(DEAD_AFTER_S - 1, answered=True)
    assert time.clock.dead() == []
    time.passes(2, answered=True)
    assert time.clock.dead() == ["/queues"]


def test_a_watch_is_dead_when_nobody_has_asked_the_server_either() -> None:
    time = Time()
    time.passes(DEAD_AFTER_S + 1, answered=None)
    assert time.clock.dead() == ["/queues"]


def test_no_watch_is_dead_while_the_server_is_away() -> None:
    time = Time()
    time.passes(10 * DEAD_AFTER_S, answered=False)
    assert time.clock.dead() == []


def test_after_an_absence_watches_have_their_time_again() -> None:
    time = Time()
    time.passes(10 * DEAD_AFTER_S, answered=False)
    time.passes(DEAD_AFTER_S - 1, answered=True)
    assert time.clock.dead() == []
    time.passes(4, answered=True)
    assert time.clock.dead() == ["/queues"]


def test_single_failures_do_not_keep_a_dead_watch_alive() -> None:
    time = Time()
    for _ in range(int(DEAD_AFTER_S / 8) + 1):
        time.passes(4, answered=True)
        time.passes(4, answered=False)
    assert time.clock.dead() == ["/queues"]


@pytest.fixture
def proxy(world: World, tmp_path: Path) -> Iterator[UnreliableProxy]:
    with UnreliableProxy(world.server.url, world.server.kubeconfig, tmp_path) as made:
        yield made


def _health(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def test_a_server_that_is_away_is_no_reason_to_start_anew(
    world: World, operator: MakeOperator, proxy: UnreliableProxy
) -> None:
    dead_after_s = 12.0
    world.make_cluster()
    running = operator(kubeconfig=str(proxy.kubeconfig), watch_dead_after_s=dead_after_s)
    async with BrokerDouble(world.etcd_urls, world.etcd_name):
        world.queue("orders")
        await world.ready("Queue", "orders", timeout_s=60)
        proxy.freeze()
        proxy.failing = lambda method, path: 503

        async def is_well_without_word() -> bool:
            """Whether no watch has heard anything for too long, and all is well none the less."""
            figures = await asyncio.to_thread(world.metrics, running.address)
            ages = [age for name, age in figures.items() if name.startswith("sterna_operator_watch_age_seconds{")]
            return min(ages) > dead_after_s + 5 and await asyncio.to_thread(_health, running.address) == (200, "ok")

        await eventually(lambda: asyncio.ensure_future(is_well_without_word()), timeout_s=90, what="well, but deaf")
        # The server answers, and the watches say nothing: that is what another process would mend.
        proxy.failing = lambda method, path: 503 if "watch=true" in path else None

        async def is_ill() -> bool:
            status, text = await asyncio.to_thread(_health, running.address)
            return status == 503 and "watch is dead" in text

        await eventually(lambda: asyncio.ensure_future(is_ill()), timeout_s=90, what="a dead watch")
    assert not running.has_ended
