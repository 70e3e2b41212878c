"""What a closed connection leaves behind: nothing, also before Python's garbage collector has run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import sterna
from sterna import errors
from sterna.admin import connect as connect_admin

from tests.running import RunningBroker
from tests.waiting import eventually

_ESTABLISHED = "01"


@pytest.fixture
def no_garbage_collector() -> Iterator[None]:
    """Only what is counted down to nothing goes."""
    gc.disable()
    yield
    gc.enable()


def _open_sockets(broker: RunningBroker) -> int:
    """How many connections of TCP the broker has, as the kernel knows them."""
    port = int(broker.address.rpartition(":")[2])
    tables = [Path("/proc/net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return sum(row[3] == _ESTABLISHED and int(row[1].rpartition(":")[2], 16) == port for row in rows)


async def test_a_closed_connection_has_no_socket(no_garbage_collector: None, own_broker: RunningBroker) -> None:
    kept = []
    for number in range(30):
        connection = await sterna.connect(f"sterna://{own_broker.address}")
        await connection.send(f"q{number}", "x")
        consumer = await connection.consumer(f"q{number}")
        assert await consumer.receive(5) is not None
        kept += [connection, consumer]  # as applications hold what they no longer use
        assert _open_sockets(own_broker) >= 1
        await connection.close()
    await eventually(lambda: _open_sockets(own_broker) == 0)


async def test_what_could_not_be_opened_has_no_socket(no_garbage_collector: None, own_broker: RunningBroker) -> None:
    url = f"sterna://{own_broker.address}"
    first = await sterna.connect(url, client_id="taken")
    refused = []
    for _ in range(10):
        with pytest.raises(errors.SternaError) as caught:
            await sterna.connect(url, client_id="taken")
        refused.append(caught.value)
    async with connect_admin(url) as admin:
        await admin.statistics()
    await eventually(lambda: _open_sockets(own_broker) == 1)
    await first.close()
    await eventually(lambda: _open_sockets(own_broker) == 0)
