"""Brokers for tests: in a process of their own, or on the test's own loop (where a slow callback fails the test)."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from sterna_broker import logs
from sterna_broker.node import Node
from sterna_broker.options import BrokerOptions

from tests.broker.wire import Wire
from tests.running import ANYTHING, RunningBroker


@pytest.fixture
def broker_process(tier_broker: None, tmp_path: Path) -> Iterator[Callable[..., RunningBroker]]:
    """Makes brokers in processes of their own; call `start` on them. They are ended with the test."""
    with ExitStack() as stack:

        def make(manifests: Iterable[str] | None = ANYTHING, name: str = "broker", **flags: Any) -> RunningBroker:
            broker = RunningBroker(tmp_path / name, manifests, **flags)
            stack.callback(broker.stop)
            return broker

        yield make


@pytest.fixture
async def node(tier_loop: None, tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Makes brokers on the test's own loop, started."""
    logs.configure("json", "warning")
    async with AsyncExitStack() as stack:

        async def make(manifests: Iterable[str] | None = ANYTHING, folder: str = "node", **flags: Any) -> Node:
            return await stack.enter_async_context(_running(tmp_path / folder, manifests, flags))

        yield make


@asynccontextmanager
async def _running(folder: Path, manifests: Iterable[str] | None, flags: dict[str, Any]) -> AsyncIterator[Node]:
    config = folder / "config"
    if manifests is not None:
        config.mkdir(parents=True, exist_ok=True)
        (config / "all.yaml").write_text("---\n".join(manifests))
    defaults: dict[str, Any] = {
        "data": folder / "data",
        "config": config if manifests is not None else None,
        "listen": "127.0.0.1:0",
        "monitor": "127.0.0.1:0",
        "drain_ms": 0,
    }
    running = Node(BrokerOptions(**{**defaults, **flags}))
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@pytest.fixture
async def channel_to() -> AsyncIterator[Callable[[Any], grpc.aio.Channel]]:
    """Opens channels to an address, a Node or a RunningBroker."""
    channels: list[grpc.aio.Channel] = []

    def open_channel(target: Any) -> grpc.aio.Channel:
        address = getattr(target, "address", None) or getattr(target, "messaging", None) or target
        channels.append(grpc.aio.insecure_channel(str(address)))
        return channels[-1]

    yield open_channel
    for channel in channels:
        await channel.close()


@pytest.fixture
async def wire(channel_to: Callable[[Any], grpc.aio.Channel]) -> AsyncIterator[Callable[..., Any]]:
    """Opens streams of raw frames, greeted unless told otherwise."""
    wires: list[Wire] = []

    async def open_wire(target: Any, *, greet: bool = True, **hello: Any) -> Wire:
        opened = Wire(channel_to(target))
        wires.append(opened)
        if greet:
            await opened.hello(**hello)
        return opened

    yield open_wire
    for opened in wires:
        opened.close()
