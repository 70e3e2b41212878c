"""A real broker in a process of its own, shared by a module's tests, and connections that end with their test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc.aio  # noqa: F401 - loaded before any loop runs, since the tests bound how long a callback may take
import pytest
import sterna
import sterna.connections

from tests.running import ANYTHING, RunningBroker
from tests.waiting import eventually

Connect = Callable[..., Awaitable[sterna.Connection]]


@pytest.fixture(scope="module")
def broker(tier_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker on which any destination may be created. Tests use destinations of their own."""
    with RunningBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def own_broker(tier_broker: None, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker for one test, to be killed and started again: at the same port each time.

    Its manifests are the fixture's parameter, when it has one. (Fixtures start brokers outside the event loop.)
    """
    with RunningBroker(tmp_path / "broker", getattr(request, "param", ANYTHING)) as running:
        yield running


@pytest.fixture
def url(broker: RunningBroker) -> str:
    """Where the shared broker is."""
    return f"sterna://{broker.address}"


@pytest.fixture
async def connect(url: str) -> AsyncIterator[Connect]:
    """Opens connections, to the shared broker unless told otherwise; they are closed with the test."""
    opened: list[sterna.Connection] = []

    async def open_connection(other: str = "", **options: Any) -> sterna.Connection:
        opened.append(await sterna.connect(other or url, **options))
        return opened[-1]

    yield open_connection
    for connection in opened:
        await connection.close(failed=True, timeout_s=5)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A destination name that no other test uses."""
    return "t." + "".join(one if one.isalnum() else "-" for one in request.node.name)[:100]


async def drain(consumer: sterna.Consumer, count: int = 0, *, timeout: float = 0.3) -> list[sterna.Message]:
    """Everything that comes: so many are waited for patiently, and more until nothing comes for `timeout` seconds."""
    found: list[sterna.Message] = []
    while (message := await consumer.receive(10.0 if len(found) < count else timeout)) is not None:
        found.append(message)
    return found


async def drain_group(consumers: Sequence[sterna.Consumer], count: int) -> list[sterna.Message]:
    """The same for several consumers, of which any may get any message."""
    found: list[sterna.Message] = []

    def take() -> bool:
        for consumer in consumers:
            while (message := consumer.receive_nowait()) is not None:
                found.append(message)
        return len(found) >= count

    await eventually(take, timeout_s=30, what=f"{count} messages for the group")
    for consumer in consumers:
        found.extend(await drain(consumer))
    return found
