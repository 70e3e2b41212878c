"""The source of a bridge that is parted from while its broker is emptied takes nothing, whatever makes it meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained
from tests.world.test_emptying import _bridged, _home_of_source

_SENDERS = 40


@pytest.mark.parametrize("delay_ms", range(0, 20, 2))
def test_a_source_that_a_change_of_the_configuration_makes_meanwhile_is_shut_at_once(delay_ms: int) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await _bridged(stage)
        home = await _home_of_source(cluster)
        # Each asks by itself: who has asked before the source is there waits until it may be opened.
        connections = [await stage.connect(cluster.brokers[home]) for _ in range(_SENDERS)]
        connection = connections[0]
        await asyncio.sleep(2)
        await cluster.drain(home)
        await asyncio.sleep(delay_ms / 1000)
        await cluster.apply("Queue", "from.here")
        sending = []
        for number, one in enumerate(connections):
            sending.append(asyncio.create_task(one.send("from.here", f"{number}")))
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.2)
        await cluster.undrain(home)
        await asyncio.gather(*sending)
        await asyncio.sleep(3)
        sent = [f"{number}" for number in range(_SENDERS)]
        assert sorted(await drained(connection, "from.here"), key=int) == sent
        assert sorted(await drained(connection, "to.here"), key=int) == sent, "of each there is a copy"
        for one in connections:
            await one.close()

    shown()
