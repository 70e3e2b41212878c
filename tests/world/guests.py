"""Applications that use what the others leave alone, for clients of their own.

What an administrator asks, cuts for snapshots, `async with` around a message, transactions that go from broker to
broker or have more under way than there is room for, sessions that stop and start, temporary destinations that go.

Seeds have them or have not (`Scene.guests`), so that the others are the runs that they were.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, Final

import sterna
import sterna.admin
from sterna import AcknowledgeMode, DeliveryMode, Queue, Topic, errors

from tests.world.facts import Sending, Transaction
from tests.world.programs import (
    BODY_OF_MANY,
    EXPLICIT,
    Application,
    CutError,
    body_of,
    closed,
    connected,
    guarded,
    received,
    settle,
    worker,
)

_KINDS: Final = ("Queue", "Topic", "Bridge", "DurableSubscription", "Broker")


async def inspector(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Asks a broker for all that can be asked for."""
    del connection

    async def asks(admin: sterna.admin.Admin) -> None:
        kind = app.random.choice(_KINDS)
        match app.random.randrange(4):
            case 0:
                await admin.statistics()
            case 1:
                await admin.connections()
            case 2:
                await admin.resources(kind, temporaries=True, system=app.random.random() < 0.5)
            case 3:
                found = await admin.resources(kind)
                if found:
                    await admin.resource(kind, app.random.choice(found).name)

    async with sterna.admin.connect(app.url) as admin:
        for _ in range(steps // 2 + 1):
            if app.is_over:
                break
            try:
                await app.call("inspect", asks(admin))
            except (CutError, errors.SternaError):
                pass  # it is gone meanwhile, or nobody answers
            await app.pause()


async def archivist(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Takes cuts of a broker's store, reads them, and confirms most."""
    del connection

    async def keeps(admin: sterna.admin.Admin) -> None:
        cut = await admin.begin_cut(wait=app.random.choice((0.01, 2.0)))
        if cut is None:
            return
        async with admin.hold_cut(cut) as held:
            async with aclosing(held.parts()) as parts:
                async for _ in parts:
                    await app.pause()
                    if app.random.random() < 0.02:
                        return
            if app.random.random() < 0.8:
                await held.confirm(app.random.randbytes(32))

    async with sterna.admin.connect(app.url) as admin:
        for _ in range(steps // 4 + 1):
            if app.is_over:
                break
            try:
                await app.call("keep a cut", keeps(admin))
            except (CutError, errors.ConnectionLostError, errors.ConflictError, errors.InUseError):
                pass
            except (errors.UnreachableError, errors.UnavailableError, errors.ShuttingDownError):
                pass
            await app.pause()


async def careful(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Works on each message within a block, at whose end it is acknowledged, or given back."""
    queue, name = app.random.choice(app.queues), app.key()
    session = await app.call("session", connection.session(app.random.choice(EXPLICIT)))
    consumer = await app.call("consumer", session.consumer(Queue(queue)))

    async def works(message: sterna.Message, handing: Any) -> None:
        async with message:
            await app.pause()
            if app.random.random() < 0.2:
                raise ValueError("the application's own failure")
            # In CLIENT mode with all before it.
            for _, one in hand:
                app.taken(one, "maybe")
            app.taken(handing, "maybe")

    hand: list[Any] = []
    for _ in range(steps):
        if app.is_over:
            break
        try:
            await received(app, consumer, name, hand)
            if hand:
                await app.call("work in a block", works(*hand[-1]))
        except (CutError, ValueError):
            continue
        except errors.NotAllowedError:
            pass  # what is given back had become void
    await app.surely("session.close", session.close)


async def roamer(app: Application, connection: sterna.Connection, steps: int) -> None:
    """A transacted session that has a destination at a time, and goes to where each lives."""
    random = app.random
    name, lane = app.key(), app.key()
    session = await app.call("session", connection.session(transacted=True))
    for _ in range(steps // 3 + 1):
        if app.is_over:
            break
        queue = Queue(random.choice(app.queues))
        transaction = Transaction(name)
        app.facts.transactions.append(transaction)
        opened: Any = None
        try:
            takes = random.random() < 0.5
            opening = session.consumer(queue) if takes else session.producer(queue)
            opened = await app.call("open what is elsewhere", opening)
            if isinstance(opened, sterna.Consumer):
                message = await app.call("receive", opened.receive(timeout=random.choice((0.05, 0.5))))
                if message is not None:
                    app.handed(message, name, transaction)
            else:
                sending = app.sending(queue.name, f"{lane} {queue.name}", DeliveryMode.PERSISTENT, transaction)
                await app.call("send in transaction", opened.send(body_of(random, sending.key)))
            transaction.ending = "in doubt"
            await app.call("commit", session.commit())
            transaction.ending = "committed"
        except (CutError, errors.TransactionInDoubtError):
            pass
        except errors.TransactionRolledBackError:
            transaction.ending = "rolled back"
        except errors.SpansHomesError:
            pass  # what was cut has opened something all the same
        if transaction.ending == "open":
            transaction.ending = "rolled back"
            await app.surely("rollback", session.rollback)
        if opened is not None:
            await app.surely("close what is elsewhere", opened.close)
    await app.surely("session.close", session.close)


async def crowd(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Sends in transactions, by several tasks, more at once than there is room for."""
    random = app.random
    name, queue, lane = app.key(), random.choice(app.queues), app.key()
    session = await app.call("session", connection.session(transacted=True))
    narrow = random.choice(({}, {"window": 1}, {"window": 5}))
    producer = await app.call("producer", session.producer(Queue(queue), **narrow))
    for _ in range(steps // 10 + 1):
        if app.is_over:
            break
        transaction = Transaction(name)
        app.facts.transactions.append(transaction)
        # Which of them comes first is nobody's promise: each has a lane of its own.
        sendings = [
            app.sending(queue, f"{lane} {number}", DeliveryMode.PERSISTENT, transaction)
            for number in range(random.randrange(2, 30))
        ]
        filling = "x" * random.choice((0, 20, BODY_OF_MANY))
        calls = [
            app.call("send in a crowd", producer.send(f"{one.key} {filling}", timeout=random.choice((0.01, None))))
            for one in sendings
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        failed = [one for one in outcomes if isinstance(one, BaseException)]
        for one in failed:
            if not isinstance(one, (CutError, errors.SternaError)):
                raise one
        await settle(app, session, transaction, failed=bool(failed))
    await app.surely("session.close", session.close)


async def dropper(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Makes temporary destinations, sends itself something by them, and deletes them."""
    for _ in range(steps // 4 + 1):
        if app.is_over or connection.closed is not None:
            break
        making = connection.temporary_queue if app.random.random() < 0.7 else connection.temporary_topic
        try:
            made: Queue | Topic = await app.call("make a temporary", making())
            consumer = await app.call("consumer", connection.consumer(made))
            await app.call("send to a temporary", connection.send(made, app.key()))
            await app.call("receive", consumer.receive(timeout=0.2))
            await app.surely("close of a temporary's consumer", consumer.close)
            await app.surely("delete a temporary", lambda made=made: connection.delete_temporary(made))  # type: ignore[misc]
        except CutError:
            continue
        except errors.NoSuchDestinationError:
            continue  # it went with a connection that broke
        await app.pause()


async def idler(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Receives in a session that stops now and then, and flushes what it has acknowledged."""
    queue, name = app.random.choice(app.queues), app.key()
    session = await app.call("session", connection.session(AcknowledgeMode.INDIVIDUAL))
    consumer = await app.call("consumer", session.consumer(Queue(queue)))
    hand: list[Any] = []
    for _ in range(steps):
        if app.is_over:
            break
        try:
            draw = app.random.random()
            if draw < 0.15:
                await app.call("session.stop", session.stop())
                await app.pause()
                await app.surely("session.start", session.start)
            elif draw < 0.3:
                await app.call("session.flush", session.flush())
            await received(app, consumer, name, hand)
            while hand:
                message, handing = hand.pop()
                app.taken(handing, "maybe")
                message.acknowledge()
        except CutError:
            continue
    await app.surely("session.close", session.close)


async def cashier(app: Application, connection: sterna.Connection, steps: int) -> None:
    """A listener in a transacted session, which passes each message on and commits."""
    random = app.random
    source, target = random.sample(app.queues, 2)
    name, lane = app.key(), app.key()
    session = await app.call("session", connection.session(transacted=True))
    producer = await app.call("producer", session.producer(Queue(target)))

    async def passes_on(message: sterna.Message) -> None:
        transaction = Transaction(name)
        app.facts.transactions.append(transaction)
        app.handed(message, name, transaction)
        sending = app.sending(target, lane, DeliveryMode.PERSISTENT, transaction)
        await producer.send(body_of(random, sending.key, large=False))
        if random.random() < 0.2:
            transaction.ending = "rolled back"
            await session.rollback()
            return
        transaction.ending = "in doubt"
        try:
            await session.commit()
        except errors.TransactionInDoubtError:
            raise
        except errors.TransactionRolledBackError:
            transaction.ending = "rolled back"
            raise
        transaction.ending = "committed"

    consumer = await app.call("consumer", session.consumer(Queue(source), listener=passes_on))
    for _ in range(steps // 2):
        if app.is_over or consumer.closed is not None or connection.closed is not None:
            break
        await asyncio.sleep(0.1)
    await app.surely("session.close", session.close)


async def announcer(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Sends here and there by a producer of no destination, does not wait, and flushes all now and then."""
    random = app.random
    producer = await app.call("producer", connection.producer())
    lane = app.key()
    for _ in range(steps):
        if app.is_over or connection.closed is not None:
            break
        queue = random.choice(app.queues)
        sending = app.sending(queue, f"{lane} {queue}", DeliveryMode.PERSISTENT)

        def told(outcome: Any, sending: Sending = sending) -> None:
            if isinstance(outcome, errors.SternaError):
                app.failed(sending, outcome)
            else:
                sending.outcome = "confirmed"

        body = body_of(random, sending.key)
        try:
            sent = producer.send_soon(body, destination=Queue(queue), on_completion=told)
            await app.call("send_soon anywhere", sent)
            if random.random() < 0.1:
                await app.call("flush all", connection.flush())
        except (CutError, errors.FlushError):
            continue  # it may have been queued all the same: then its outcome is told
        except errors.SternaError as error:
            app.failed(sending, error)
            await app.pause()
    await app.surely("flush", producer.flush)


async def exposed(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Works on a connection of its own, which an administrator closes now and then: it comes back by itself."""
    del connection
    own = await connected(app, app.url)
    if own is None:
        return
    working = asyncio.create_task(guarded(app, "works while it is closed", worker(app, own, steps)))

    async def closes(admin: sterna.admin.Admin) -> None:
        for one in await admin.connections():
            if one.client_id == own.client_id:
                await admin.close_connection(one.id, reason="as a test")

    try:
        async with sterna.admin.connect(app.url) as admin:
            while not working.done() and not app.is_over:
                try:
                    await app.call("close a connection", closes(admin))
                except (CutError, errors.SternaError):
                    pass
                await asyncio.sleep(app.random.choice((0.05, 0.5, 3.0)) * app.random.random())
    finally:
        await asyncio.wait((working,))
        await closed(app, own)


async def orderly(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Has each thing within a block of its own: connection, session, consumer, transaction."""
    del connection
    name, lane = app.key(), app.key()

    async def once() -> None:
        source, target = app.random.sample(app.queues, 2)
        async with sterna.connect(app.url) as own, await own.session(transacted=True) as session:
            async with await session.consumer(Queue(source)) as consumer, await session.producer(target) as producer:
                for _ in range(app.random.randrange(1, 5)):
                    await transacts(session, consumer, producer, target)

    async def transacts(
        session: sterna.Session, consumer: sterna.Consumer, producer: sterna.Producer, target: str
    ) -> None:
        transaction = Transaction(name)
        app.facts.transactions.append(transaction)
        try:
            async with session.transaction():
                message = await consumer.receive(timeout=app.random.choice((0.05, 0.5)))
                if message is not None:
                    app.handed(message, name, transaction)
                sending = app.sending(target, f"{lane} {target}", DeliveryMode.PERSISTENT, transaction)
                await producer.send(body_of(app.random, sending.key))
                if app.random.random() < 0.2:
                    raise ValueError("the application's own failure")
                # From here on the block's end commits.
                transaction.ending = "in doubt"
        except errors.TransactionInDoubtError:
            raise
        except errors.TransactionRolledBackError:
            transaction.ending = "rolled back"
        except ValueError:
            transaction.ending = "rolled back"
        else:
            transaction.ending = "committed"

    for _ in range(steps // 6 + 1):
        if app.is_over:
            break
        try:
            await app.call("work in blocks", once())
        except (CutError, errors.SternaError):
            await app.pause()


GUESTS: Final = (
    inspector,
    archivist,
    careful,
    roamer,
    roamer,
    crowd,
    dropper,
    idler,
    cashier,
    announcer,
    exposed,
    orderly,
)
