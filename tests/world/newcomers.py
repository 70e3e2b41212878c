"""Applications that give messages back for later, drain what they consume from, and listen to several at once.

Seeds have them or have not (`Scene.newcomers`), so that the others are the runs that they were.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import sterna
from sterna import Queue, errors

from tests.world.programs import EXPLICIT, Application, CutError, awaited, received, worked_on

#: How long what is given back may have to wait; less than what is waited for before anything is judged.
_LATER_MS: Final = (1, 50, 1_000, 8_000)


async def postponer(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Gives back for later what it cannot do now, and acknowledges the rest."""
    random = app.random
    queue, name = random.choice(app.queues), app.key()
    session = await app.call("session", connection.session(random.choice(EXPLICIT)))
    consumer = await app.call("consumer", session.consumer(Queue(queue)))
    hand: list[Any] = []
    for _ in range(steps):
        if app.is_over:
            break
        try:
            await received(app, consumer, name, hand)
            if hand and random.random() < 0.5:
                message, _ = hand.pop()
                message.release(delay_ms=random.choice(_LATER_MS))
            elif hand:
                # In CLIENT mode with all before it.
                for _, one in hand:
                    app.taken(one, "maybe")
                await app.call("acknowledge", awaited(hand[-1][0].acknowledge()))
                hand.clear()
        except CutError:
            continue
        except errors.NotAllowedError:
            hand.clear()  # what was given back had become void
    await app.surely("session.close", session.close)


async def drainer(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Has loops over a consumer, as a worker with several tasks has, which it drains before it ends, time and again."""
    random = app.random
    queue, name = random.choice(app.queues), app.key()
    for _ in range(steps // 5 + 1):
        if app.is_over or connection.closed is not None:
            break
        try:
            consumer = await app.call("consumer", connection.consumer(Queue(queue)))
        except CutError:
            continue
        at_work: set[Any] = set()
        loops = [asyncio.create_task(_loop(app, consumer, name, at_work)) for _ in range(random.randrange(1, 4))]
        await asyncio.wait(loops, timeout=random.choice((0.05, 0.5, 3.0)) * random.random())
        try:
            finished = await app.call("drain", consumer.drain(random.choice((None, 0.0, 0.01, 5.0))))
            if finished and at_work:
                app.facts.odd.append(f"{app.name}: {name} was drained while {len(at_work)} loops had a message in hand")
        except CutError:
            pass
        await app.surely("consumer.close", consumer.close)
        _, pending = await asyncio.wait(loops, timeout=30)
        if pending:
            app.facts.odd.append(f"{app.name}: {len(pending)} loops over a consumer go on that was drained and closed")
        for one in pending:
            one.cancel()


async def _loop(app: Application, consumer: sterna.Consumer, name: str, at_work: set[Any]) -> None:
    me = asyncio.current_task()
    try:
        async for message in consumer:
            at_work.add(me)
            await worked_on(app, message, name)
            at_work.discard(me)
    except errors.SternaError:
        pass  # the connection is over, or the consumer
    finally:
        at_work.discard(me)


async def crew(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Has several messages at once handed to a function, which fails now and then."""
    random = app.random
    queue, name = random.choice(app.queues), app.key()
    many = random.randrange(2, 6)
    busy = 0

    async def on_message(message: sterna.Message) -> None:
        nonlocal busy
        busy += 1
        if busy > many:
            app.facts.odd.append(f"{app.name}: {busy} messages at once where {many} are wanted")
        try:
            handing = app.handed(message, name)
            await app.pause()
            if random.random() < 0.1:
                raise ValueError("the application's own failure")
            app.taken(handing, "maybe")
        finally:
            busy -= 1

    options: dict[str, Any] = random.choice(({}, {"prefetch": 1}, {"prefetch": 50}))
    consumer = await app.call(
        "consumer", connection.consumer(Queue(queue), listener=on_message, concurrency=many, **options)
    )
    for _ in range(steps // 2):
        if app.is_over or consumer.closed is not None or connection.closed is not None:
            break
        await asyncio.sleep(0.1)
    if random.random() < 0.5:
        try:
            if await app.call("drain", consumer.drain(random.choice((None, 0.01)))) and busy:
                app.facts.odd.append(f"{app.name}: {name} was drained while its listener had {busy} messages")
        except CutError:
            pass
    await app.surely("consumer.close", consumer.close)


NEWCOMERS: Final = (postponer, drainer, crew)
