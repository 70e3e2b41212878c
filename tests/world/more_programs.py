"""More applications: durable subscriptions that come and go, and who fiddles with all there is."""

from __future__ import annotations

import asyncio

import sterna
from sterna import AcknowledgeMode, DeliveryMode, Queue, Topic, errors

from tests.world.administrators import administrator, bridger, configurer, mortal
from tests.world.asking import answerer, asker
from tests.world.facts import Subscription
from tests.world.programs import (
    Application,
    CutError,
    acknowledger,
    body_of,
    connected,
    listener,
    looper,
    receiver,
    sender,
    worker,
)
from tests.world.unary import caller, looker

NEWS = "news"


async def publisher(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Publishes to the topic, and waits for each confirmation."""
    lane = app.key()
    producer = await app.call("producer", connection.producer(Topic(NEWS)))
    for _ in range(steps):
        if app.is_over:
            break
        sending = app.sending(NEWS, lane, DeliveryMode.PERSISTENT)
        # Only its copies count: a topic keeps nothing for nobody.
        app.facts.published.append(app.facts.sendings.pop(sending.key))
        try:
            await app.call("publish", producer.send(body_of(app.random, sending.key)))
        except CutError:
            sending.outcome = "unknown"
        except errors.SternaError:
            sending.outcome = "unknown"
        else:
            sending.outcome, sending.confirmed_s = "confirmed", app.now_s()
        await app.pause()


async def subscriber(app: Application, connection: sterna.Connection, steps: int) -> None:
    """A durable subscription on a connection of its own: opened, read, left, opened again; ended now and then."""
    del connection
    name = app.key()
    subscription = Subscription(f"id-{name}", name)
    app.facts.subscriptions.append(subscription)
    own = await connected(app, app.url, client_id=subscription.client_id)
    if own is None:
        return
    try:
        for _ in range(3):
            if app.is_over:
                break
            try:
                await _read(app, own, subscription, steps // 3 + 1)
            except (CutError, errors.InUseError):
                await app.pause()
        if app.random.random() < 0.3:
            subscription.ended_s = app.now_s()
            await app.call("unsubscribe", own.unsubscribe(name))
    finally:
        await app.surely("connection.close", own.close)


async def _read(app: Application, own: sterna.Connection, subscription: Subscription, steps: int) -> None:
    mode = app.random.choice((AcknowledgeMode.INDIVIDUAL, AcknowledgeMode.CLIENT, AcknowledgeMode.AUTO))
    opening = own.consumer(Topic(NEWS), durable=subscription.name, acknowledge_mode=mode)
    consumer = await app.call("durable consumer", opening)
    if subscription.began_s is None:
        subscription.began_s = app.now_s()
    for _ in range(steps):
        if app.is_over:
            break
        try:
            message = await app.call("receive", consumer.receive(timeout=app.random.choice((0.05, 1.0))))
        except CutError:
            continue
        if message is None:
            continue
        handing = app.handed(message, subscription.name, subscription=subscription)
        if mode == AcknowledgeMode.AUTO:
            app.taken(handing, "maybe")
        elif app.random.random() < 0.8:
            app.taken(handing, "maybe")
            if mode == AcknowledgeMode.CLIENT:
                for one in app.facts.handings:
                    if one.consumer == subscription.name:
                        app.taken(one, "maybe")
            message.acknowledge()
    await app.call("consumer.close", consumer.close())


async def opener(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Opens what an operator has just placed, wherever that is, and keeps it open for a while."""
    opened: set[str] = set()
    for _ in range(steps):
        if app.is_over:
            break
        await asyncio.sleep(app.random.random() * 0.1)
        for name in app.facts.placed:
            if name in opened:
                continue
            opened.add(name)
            try:
                producer = await app.call("open what is placed", connection.producer(Topic(name)))
                await app.call("publish to what is placed", producer.send("x", timeout=30.0))
            except CutError:
                continue
            except errors.SternaError:
                if connection.closed is not None:
                    return
    if opened:
        await asyncio.sleep(20)


async def fiddler(app: Application, connection: sterna.Connection, steps: int) -> None:
    """What else there is: sessions that stop and start, temporary topics, reliable sends, what is left at once."""
    session = await app.call("session", connection.session())
    for _ in range(steps // 3 + 1):
        if app.is_over:
            break
        draw = app.random.choice((_stopping, _temporary, _reliable, _briefly, _flushing))
        try:
            await draw(app, connection, session)
        except CutError:
            continue
        except errors.SternaError:
            if session.closed is not None:
                return
    await app.surely("session.close", session.close)


async def _stopping(app: Application, _: sterna.Connection, session: sterna.Session) -> None:
    await app.call("session.stop", session.stop())
    await app.call("session.start", session.start())


async def _temporary(app: Application, connection: sterna.Connection, _: sterna.Session) -> None:
    topic = await app.call("temporary topic", connection.temporary_topic())
    await app.call("delete temporary", connection.delete_temporary(topic))


async def _reliable(app: Application, _: sterna.Connection, session: sterna.Session) -> None:
    producer = await app.call("producer", session.producer(Queue(f"reliable.{app.name}")))
    await app.call("send reliable", producer.send("x", delivery_mode=DeliveryMode.RELIABLE))
    await app.call("producer.close", producer.close())


async def _briefly(app: Application, _: sterna.Connection, session: sterna.Session) -> None:
    async def take() -> None:
        async with await session.consumer(Queue(f"brief.{app.name}")), await session.producer():
            pass

    await app.call("made and left", take())


async def _flushing(app: Application, connection: sterna.Connection, _: sterna.Session) -> None:
    await app.call("connection.flush", connection.flush())


PROGRAMS = (
    *(sender,) * 4,
    receiver,
    receiver,
    looper,
    looper,
    acknowledger,
    acknowledger,
    *(worker,) * 3,
    listener,
    asker,
    asker,
    answerer,
    looker,
    caller,
    caller,
    publisher,
    publisher,
    subscriber,
    subscriber,
    administrator,
    configurer,
    bridger,
    mortal,
    fiddler,
    fiddler,
    opener,
    opener,
)
