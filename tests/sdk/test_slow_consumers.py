"""A client that does not read what it asked for is cut off: what its user sees, and whoever watches the broker."""

from __future__ import annotations

import asyncio
import re
import threading

import aiohttp
import pytest
import sterna
from prometheus_client.parser import text_string_to_metric_families
from sterna import AcknowledgeMode

from tests.running import ANYTHING, RunningBroker, manifest
from tests.sdk.conftest import Connect
from tests.waiting import eventually

#: More than what lies between two sockets.
_BODY, _COUNT = "x" * 500_000, 60


async def _cut(broker: RunningBroker) -> dict[str, float]:
    """How many streams were cut, by code, as the broker's metrics say."""
    async with aiohttp.ClientSession() as session, session.get(f"{broker.monitor}/metrics") as response:
        families = list(text_string_to_metric_families(await response.text()))
    samples = [sample for family in families for sample in family.samples if sample.name == "sterna_streams_cut_total"]
    return {sample.labels["code"]: sample.value for sample in samples}


class _Application(threading.Thread):
    """A program that asks for more than it reads: from its first message on it holds up its own event loop."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.has_one, self.may_go_on = threading.Event(), threading.Event()
        self.told: list[str] = []

    def run(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        async with sterna.connect(self._url, client_id="slow") as connection:
            connection.on_interrupted(lambda event: self.told.append(str(event.error)))
            consumer = await (await connection.session(AcknowledgeMode.CLIENT)).consumer("big", prefetch=1_000)
            assert await consumer.receive(10) is not None
            self.has_one.set()
            self.may_go_on.wait(30)
            await eventually(lambda: self.told, what="the end of the stream")


@pytest.mark.slow_callbacks(30_000)
@pytest.mark.parametrize("own_broker", [(*ANYTHING, manifest("Broker", "b", "slowConsumerMs: 2000"))], indirect=True)
async def test_who_does_not_read_is_cut_off_is_told_and_counted_and_others_get_what_it_held(
    own_broker: RunningBroker, connect: Connect
) -> None:
    connection = await connect(f"sterna://{own_broker.address}")
    for number in range(_COUNT):
        await connection.send("big", _BODY, properties={"number": number})
    assert (await _cut(own_broker))["SLOW_CONSUMER"] == 0
    application = _Application(f"sterna://{own_broker.address}")
    application.start()
    try:
        await asyncio.to_thread(application.has_one.wait, 10)

        async def is_cut() -> bool:
            return (await _cut(own_broker))["SLOW_CONSUMER"] > 0

        await eventually(is_cut, what="the cut")
        # It reads nothing still, and holds up nobody.
        consumer = await connection.consumer("big", prefetch=1)
        got = [await consumer.receive(10) for _ in range(_COUNT)]
    finally:
        application.may_go_on.set()
        await asyncio.to_thread(application.join, 30)
    assert [one and one.properties["number"] for one in got] == list(range(_COUNT))
    assert got[0] is not None
    assert (got[0].redelivered, got[0].delivery_count) == (True, 2)
    [said] = application.told
    assert re.search("unread|not read", said)
    assert {code for code, times in (await _cut(own_broker)).items() if times} == {"SLOW_CONSUMER"}
