"""Applications that ask and answer, some of which do not wait for the answer."""

from __future__ import annotations

import asyncio

import sterna
from sterna import Message, Queue, errors

from tests.world.programs import Application, CutError, closed, connected, guarded

_TOO_OFTEN = 25
"""So often no message is handed out again within one run, unless it goes in a circle."""

ASKED = "asked"


async def answerer(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Answers whoever asks, also those who have gone meanwhile."""
    await answering(app, connection, Queue(ASKED), app.random.random() * steps / 4)


async def asker(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Asks whoever answers, or itself, by request and reply; does not always wait for the answer."""
    queue = Queue(f"ask.{app.key()}" if app.random.random() < 0.5 else ASKED)
    own = None if queue.name == ASKED else asyncio.create_task(_answering_itself(app, connection, queue))
    for count in range(steps // 4):
        if app.is_over:
            break
        question = f"{app.name} {count}"
        if app.random.random() < 0.15:
            await _asked_and_gone(app, queue, question)
            continue
        try:
            reply = await app.call("request", connection.request(queue, question, timeout=2.0))
        except (CutError, errors.RequestTimeoutError, errors.ConnectionLostError, errors.NoRespondersError):
            continue
        if reply.body != f"re {question}":
            app.facts.odd.append(f"{app.name} asked {question} and was answered {reply.body!r}")
    if own is not None:
        own.cancel()
        await asyncio.wait((own,))


async def _asked_and_gone(app: Application, queue: Queue, question: str) -> None:
    """Asks over a connection of its own, and leaves without waiting."""
    other = await connected(app, app.url)
    if other is None:
        return
    asking = asyncio.create_task(other.request(queue, question, timeout=2.0))
    await app.pause()
    await closed(app, other)
    await asyncio.wait((asking,))
    asking.exception()


async def _answering_itself(app: Application, connection: sterna.Connection, queue: Queue) -> None:
    await guarded(app, "answering", answering(app, connection, queue, 1e6))


async def answering(
    app: Application, connection: sterna.Connection, queue: Queue, seconds: float, *, is_slow: bool = False
) -> None:
    """Answers what comes to a queue, for so long."""
    times: dict[str, int] = {}

    async def answer(message: Message) -> None:
        times[message.message_id] = times.get(message.message_id, 0) + 1
        if times[message.message_id] == _TOO_OFTEN:
            app.facts.odd.append(f"{app.name} was asked the same again and again: {message.body!r}")
        if is_slow:
            await asyncio.sleep(app.random.choice((0.0, 0.01, 0.3)) * app.random.random())
        elif app.random.random() < 0.2:
            await app.pause()
        await connection.reply(message, f"re {message.body}")

    connection.on_error(lambda _: None)
    consumer = await app.call("consumer", connection.consumer(queue, listener=answer))
    try:
        for _ in range(round(seconds * 5)):
            if app.is_over or consumer.closed is not None:
                break
            await asyncio.sleep(0.2)
    finally:
        await app.surely("consumer.close", consumer.close)
