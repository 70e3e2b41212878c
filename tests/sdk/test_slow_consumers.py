"""A client that does not read what it asked for is cut off: what its user sees, and whoever watches the broker."""

from __future__ import annotations

import asyncio
import threading

import aiohttp
import pytest
import sterna
from prometheus_client.parser import text_string_to_metric_families
from sterna import AcknowledgeMode, errors

from tests.running import ANYTHING, RunningBroker, manifest
from tests.waiting import eventually

_BODY = "x" * 500_000
_COUNT = 60
_CUT = "sterna_streams_cut_total"


async def _cut(broker: RunningBroker) -> dict[str, float]:
    """How many streams were cut, by reason."""
    async with aiohttp.ClientSession() as session, session.get(f"{broker.monitor}/metrics") as response:
        families = text_string_to_metric_families(await response.text())
    return {one.labels["code"]: one.value for family in families for one in family.samples if one.name == _CUT}


class _Application(threading.Thread):
    """A program that asks for more than it reads: its event loop is held up from its first message on."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.has_one, self.go_on = threading.Event(), threading.Event()
        self.interrupted: list[sterna.Interrupted] = []
        self.received: list[tuple[object, bool]] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:  # noqa: BLE001 - of this thread, and told by the test
            self.failure = error

    async def _work(self) -> None:
        async with sterna.connect(self._url) as connection:
            connection.on_interrupted(self.interrupted.append)
            session = await connection.session(AcknowledgeMode.CLIENT)
            consumer = await session.consumer("big", prefetch=1_000)
            first = await consumer.receive(10)
            assert first is not None
            self.has_one.set()
            self.go_on.wait(30)
            await eventually(lambda: self.interrupted, what="the end of the stream")
            for _ in range(_COUNT):
                message = await consumer.receive(10)
                assert message is not None
                self.received.append((message.properties["number"], message.redelivered))
                await message.acknowledge()


@pytest.mark.slow_callbacks(30_000)
@pytest.mark.parametrize("own_broker", [(*ANYTHING, manifest("Broker", "b", "slowConsumerMs: 500"))], indirect=True)
async def test_who_does_not_read_is_cut_off_as_slow_and_gets_all_of_it_after_coming_back(
    own_broker: RunningBroker,
) -> None:
    url = f"sterna://{own_broker.address}"
    assert (await _cut(own_broker))["SLOW_CONSUMER"] == 0
    application = _Application(url)
    async with sterna.connect(url) as connection:
        for number in range(_COUNT):
            await connection.send("big", _BODY, properties={"number": number})
        application.start()
        try:
            await asyncio.to_thread(application.has_one.wait, 10)

            async def is_cut() -> bool:
                return (await _cut(own_broker))["SLOW_CONSUMER"] > 0

            await eventually(is_cut, what="the cut")
        finally:
            application.go_on.set()
            await asyncio.to_thread(application.join, 30)
    assert application.failure is None
    [told] = application.interrupted
    assert isinstance(told.error, errors.SlowConsumerError)
    assert told.error.subject == "stream"
    assert "less" in told.error.remedy
    assert [number for number, _ in application.received] == list(range(_COUNT))
    assert application.received[0][1]
    assert {code: times for code, times in (await _cut(own_broker)).items() if times} == {"SLOW_CONSUMER": 1}
