"""Applications with habits, for clients of their own.

Services that go on for as long as they can, batches that are worked on for a while, connections that are opened and
closed again and again, heavy goods, and visitors who do not wait for their answer.

Seeds have them or have not (`Scene.extras`), so that the others are the runs that they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import sterna
import sterna.admin
from sterna import AcknowledgeMode, DeliveryMode, Message, Queue, errors

from tests.world import awaits
from tests.world.asking import ASKED, answering
from tests.world.facts import Handing
from tests.world.programs import (
    BODIES_LARGE,
    CALL_S,
    Application,
    CutError,
    body_of,
    closed,
    connected,
    ended,
    guarded,
    received,
    worked_on,
    worker,
)

#: Queues that somebody deletes now and then.
STALLS: Final = ("stall.one", "stall.two")

_DAYS_S: Final = (0.005, 0.05, 0.5, 3.0)
_LIVES_S: Final = (1.0, 5.0, 20.0)
_PATIENCE_S: Final = (0.3, 5.0, 30.0)


async def attendant(app: Application, connection: sterna.Connection, steps: int) -> None:
    """A service: a listener that goes on for as long as it can, and is opened again where it has ended."""
    del steps
    queue, name = app.random.choice(app.queues), app.key()
    told: list[BaseException] = []
    connection.on_error(told.append)
    until_s = app.now_s() + app.random.choice(_LIVES_S)

    async def on_message(message: Message) -> None:
        handing = app.handed(message, name)
        if app.random.random() < 0.3:
            await app.pause()
        if app.random.random() < 0.05:
            raise ValueError("the application's own failure")
        app.taken(handing, "maybe")

    def goes_on() -> bool:
        return app.now_s() < until_s and not app.is_over

    while goes_on() and connection.closed is None:
        consumer = await app.call("consumer", connection.consumer(Queue(queue), listener=on_message))
        for _ in range(round(_LIVES_S[-1] * 10)):
            if not goes_on() or consumer.closed is not None:
                break
            await asyncio.sleep(0.1)
        await ended(app, connection, consumer, told)
        await app.surely("consumer.close", consumer.close)


async def stallholder(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Sends to a queue that somebody deletes now and then; also who deletes it, with or without what it holds."""
    lane, queue = app.key(), app.random.choice(STALLS)
    async with sterna.admin.connect(app.url) as admin:
        for _ in range(steps):
            await app.pause()
            if app.is_over or connection.closed is not None:
                break
            try:
                if app.random.random() < 0.2:
                    app.facts.begin_to_empty(queue, deletes=True)
                    try:
                        deleting = admin.delete("Queue", queue, with_messages=app.random.random() < 0.7)
                        await app.call("delete", deleting)
                    finally:
                        app.facts.has_emptied(queue, app.now_s() + 1.0)
                    continue
                sending = app.sending(queue, lane, DeliveryMode.PERSISTENT)
                try:
                    await app.call("send", connection.send(Queue(queue), body_of(app.random, sending.key)))
                except CutError:
                    sending.outcome = "unknown"
                except errors.SternaError as error:
                    sending.outcome = "refused" if app.is_certain(error) else "unknown"
                else:
                    sending.outcome = "confirmed"
            except (CutError, errors.SternaError):
                continue


async def batcher(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Takes several messages, works on all of them for a while, and is then done with them at once."""
    random = app.random
    mode = random.choice((AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL))
    queue, name = random.choice(app.queues), app.key()
    session = await app.call("session", connection.session(mode))
    consumer = await app.call("consumer", session.consumer(Queue(queue)))
    hand: list[tuple[Message, Handing]] = []
    for _ in range(steps):
        if app.is_over:
            break
        try:
            await received(app, consumer, name, hand)
            if len(hand) < random.randrange(2, 10):
                continue
            await asyncio.sleep(random.choice((0.01, 0.3, 2.0)) * random.random())
            for message, handing in hand if mode is AcknowledgeMode.INDIVIDUAL else hand[-1:]:
                for one in (handing,) if mode is AcknowledgeMode.INDIVIDUAL else [one for _, one in hand]:
                    app.taken(one, "maybe")
                message.acknowledge()
            hand.clear()
        except CutError:
            continue
    await app.surely("session.close", session.close)


async def commuter(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Works on connections of its own, each of which another task closes, as at SIGTERM, whatever the rest is at."""
    del connection
    for _ in range(steps // 4 + 1):
        if app.is_over:
            break
        own = await connected(app, app.url)
        if own is None:
            return
        works = app.random.sample(_WORKS, 3)
        tasks = [asyncio.create_task(guarded(app, one.__name__, one(app, own))) for one in works]
        await asyncio.sleep(app.random.choice(_DAYS_S) * app.random.random())
        await closed(app, own)
        for work, task in zip(works, tasks, strict=True):
            # As when the process ends: what it works on then, it is not done with.
            if work is _iterates and app.random.random() < 0.7:
                task.cancel()
        _, pending = await asyncio.wait(tasks, timeout=CALL_S)
        for task in pending:
            where = " > ".join(f"{file.name}:{line}" for file, line in awaits.frames(task))
            app.facts.hung.append(f"{app.name}: a connection is closed, and somebody waits on: {where}")
            task.cancel()


async def _iterates(app: Application, own: sterna.Connection) -> None:
    consumer = await own.consumer(Queue(app.random.choice(app.queues)))
    name = app.key()
    async for message in consumer:
        await worked_on(app, message, name)


async def _waits(app: Application, own: sterna.Connection) -> None:
    """Without a time limit: until there is a message, or the connection is closed."""
    name = app.key()
    consumer = await own.consumer(Queue(app.random.choice(app.queues)), acknowledge_mode=AcknowledgeMode.INDIVIDUAL)
    while True:
        try:
            message = await app.call("receive without limit", consumer.receive())
        except CutError:
            continue
        assert message is not None
        await worked_on(app, message, name)
        message.acknowledge()


async def _sends(app: Application, own: sterna.Connection) -> None:
    queue, lane = app.random.choice(app.queues), app.key()
    producer = await own.producer(Queue(queue))
    while True:
        sending = app.sending(queue, lane, DeliveryMode.PERSISTENT)
        try:
            await app.call("send", producer.send(body_of(app.random, sending.key)))
        except CutError:
            sending.outcome = "unknown"
        except errors.SternaError as error:
            app.failed(sending, error)
            raise
        else:
            sending.outcome = "confirmed"
        await asyncio.sleep(0.3 * app.random.random())


async def _transacts(app: Application, own: sterna.Connection) -> None:
    await worker(app, own, 50)


async def _asks(app: Application, own: sterna.Connection) -> None:
    while True:
        try:
            await app.call("request", own.request(Queue(ASKED), app.key(), timeout=app.random.choice(_PATIENCE_S)))
        except (CutError, errors.RequestTimeoutError, errors.NoRespondersError):
            await asyncio.sleep(0.3 * app.random.random())


_WORKS: Final[tuple[Callable[[Application, sterna.Connection], Coroutine[Any, Any, None]], ...]] = (
    _iterates,
    _iterates,
    _waits,
    _waits,
    _sends,
    _transacts,
    _asks,
)


async def freighter(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Sends large bodies by several producers, which share what a connection may have under way."""
    queue = app.random.choice(app.queues)
    producers = [
        (app.key(), await app.call("producer", connection.producer(Queue(queue))))
        for _ in range(app.random.choice((1, 3, 12)))
    ]
    for _ in range(steps // 4 + 1):
        if app.is_over:
            break
        lane, producer = app.random.choice(producers)
        sending = app.sending(queue, lane, DeliveryMode.PERSISTENT)
        is_large = app.random.random() < 0.3
        filling = "x" * app.random.choice(BODIES_LARGE) if is_large else "x" * app.random.randrange(200)
        try:
            await app.call("send freight", producer.send(f"{sending.key} {filling}"))
        except CutError:
            sending.outcome = "unknown"
        except errors.SternaError as error:
            app.failed(sending, error)
            if connection.closed is not None:
                return
        else:
            sending.outcome = "confirmed"


async def clerk(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Answers whoever asks, and takes its time."""
    del steps
    await answering(app, connection, Queue(ASKED), app.random.choice(_LIVES_S), is_slow=True)


async def visitor(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Asks, each time over a connection of its own, and leaves when it has waited for long enough."""
    del connection
    for _ in range(steps // 4 + 1):
        if app.is_over:
            break
        own = await connected(app, app.url)
        if own is None:
            return
        asking = asyncio.create_task(guarded(app, "asks", _asks(app, own)))
        await asyncio.sleep(app.random.choice(_DAYS_S) * app.random.random())
        await closed(app, own)
        await asyncio.wait((asking,))


HABITS: Final = (
    attendant,
    attendant,
    stallholder,
    batcher,
    batcher,
    commuter,
    commuter,
    freighter,
    clerk,
    visitor,
)
