"""Steps that many tests take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.conformance.provider import Consumer, Destination, Message, Mode, Provider, Queue, Session
from tests.waiting import eventually


async def receive(consumer: Consumer, count: int) -> list[Message]:
    """The next so many messages."""
    return [await consumer.receive() for _ in range(count)]


async def bodies(consumer: Consumer, count: int) -> list[Any]:
    """The bodies of the next so many messages."""
    return [message.body for message in await receive(consumer, count)]


async def shared(consumers: Sequence[Consumer], count: int) -> list[Any]:
    """The bodies of so many messages, of which any consumer may get any."""
    found: list[Any] = []

    def take() -> bool:
        for consumer in consumers:
            while (message := consumer.receive_no_wait()) is not None:
                found.append(message.body)
        return len(found) >= count

    await eventually(take, what=f"{count} messages for {len(consumers)} consumers")
    return found


async def until_end(consumer: Consumer, end: str = "end") -> list[Any]:
    """The bodies of all messages before one that says `end`: so nothing else had come, and no time was waited for."""
    found: list[Any] = []
    while (body := (await consumer.receive()).body) != end:
        found.append(body)
    return found


async def send_all(session: Session, destination: Destination, *bodies: Any, **how: Any) -> None:
    """Sends each, one after the other."""
    for body in bodies:
        await session.send(destination, body, **how)


async def waiting(provider: Provider, queue: Queue) -> list[Any]:
    """The bodies of what is in a queue, in its order, by looking."""
    return [message.body for message in await provider.browse(queue)]


async def holds(provider: Provider, destination: Destination, messages: int) -> None:
    """Waits until the destination holds so many."""

    async def does() -> bool:
        return (await provider.held(destination)).messages == messages

    await eventually(does, what=f"{messages} messages in {destination}")


async def session_of(provider: Provider, mode: Mode = Mode.AUTO, *, client_id: str = "") -> Session:
    """A session on a connection of its own."""
    return await (await provider.connect(client_id=client_id)).session(mode)
