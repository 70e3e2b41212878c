"""The applications of the world: what users of the SDK do, with each call cancelled or timed out at any await."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

import sterna
from sterna import AcknowledgeMode, DeliveryMode, Message, Queue, errors

from tests.world import awaits
from tests.world.facts import Facts, Handing, Sending, Subscription, Transaction

T = TypeVar("T")

CALL_S = 400.0
"""What no call may take, since a connection gives up after 120 s."""

BODY_LARGE = 700_000

#: The first fits no frame, the second not the least that a producer may have under way either.
BODIES_LARGE = (BODY_LARGE, 1_300_000)

#: Of those that are sent many at a time: each fits a frame.
BODY_OF_MANY = 150_000
#: How long the SDK sends again what is refused for now (`Reconnect.give_up_after_s`).
_PATIENCE_S = 120.0


class CutError(Exception):
    """The application has cancelled its own call."""


@dataclass
class Application:
    """What all programs of a client share."""

    name: str
    url: str
    random: Random
    facts: Facts
    queues: tuple[str, ...]
    cut_share: float
    audit: Callable[[sterna.Connection], Awaitable[None]]
    """Compares what the broker keeps for a connection with what the SDK has on it."""

    is_given_up: Callable[[str, str], bool] = lambda _broker, _client_id: False
    """Whether a broker (by its name) has no connection of a client id any more."""

    is_over: bool = False
    is_closing: bool = False
    """Whether it has begun to close its connection."""

    closes_session: bool = False
    """Whether it has begun to close the session that its programs share."""

    keys: int = 0

    _waited_for_long: set[str] = field(default_factory=set)
    """Queues that took nothing for as long as the SDK waits for one."""

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def call(self, what: str, work: Coroutine[Any, Any, T] | Awaitable[T], *, may_cut: bool = True) -> T:
        """Makes a call of the SDK, which may be cancelled at any of its awaits.

        Raises:
            CutError: it was.
            SternaError: what the call raised.
        """
        task: Any = asyncio.ensure_future(work)
        if may_cut and not self.is_over and self.random.random() < self.cut_share:
            delay_s = self.random.choice((0.0, 0.0, 0.0005, 0.002, 0.01, 0.3)) * self.random.random()
            asyncio.get_running_loop().call_later(delay_s, self._cut, task)
        try:
            done, _ = await asyncio.wait((task,), timeout=CALL_S)
        except asyncio.CancelledError:
            # The program is over; its call ends by itself, and nobody asks how.
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            raise
        if not done:
            where = " > ".join(f"{file.name}:{line}" for file, line in awaits.frames(task))
            self.facts.hung.append(f"{self.name}: {what}: {where}")
            task.cancel()
            raise CutError
        if task.cancelled():
            self.facts.count(f"{what}: cut")
            raise CutError
        error = task.exception()
        self.facts.count(f"{what}: {'ok' if error is None else type(error).__name__}")
        if isinstance(error, errors.ProtocolError):
            self.facts.odd.append(f"{self.name}: {what}: the SDK and a broker did not understand each other: {error}")
        if error is not None:
            raise error
        result: T = task.result()
        return result

    async def surely(self, what: str, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Makes a call again as often as it is cut, until it ends by itself."""
        while True:
            try:
                return await self.call(what, make())
            except CutError:
                continue

    def _cut(self, task: asyncio.Future[Any]) -> None:
        task.cancel()

    async def pause(self) -> None:
        """Does something else for a moment."""
        await asyncio.sleep(self.random.choice((0.0, 0.001, 0.02, 0.3)) * self.random.random())

    def key(self) -> str:
        """One that no other message has."""
        self.keys += 1
        return f"{self.name}-{self.keys}"

    def sending(self, queue: str, lane: str, mode: DeliveryMode, transaction: Transaction | None = None) -> Sending:
        """Notes that a message is sent."""
        sending = Sending(
            self.key(), queue, lane, self.keys, mode == DeliveryMode.PERSISTENT, self.now_s(), transaction=transaction
        )
        self.facts.sendings[sending.key] = sending
        if transaction is not None:
            transaction.sent.append(sending)
        return sending

    def handed(
        self,
        message: Message,
        consumer: str,
        transaction: Transaction | None = None,
        subscription: Subscription | None = None,
    ) -> Handing:
        """Notes that a message is in hand."""
        body = str(message.body)
        queue, key = message.destination.name, body.partition(" ")[0]
        if subscription is not None:
            queue, key = f"news@{subscription.name}", subscription.key(key)
        handing = Handing(key, queue, consumer, message.message_id, message.redelivered, self.now_s())
        handing.transaction, handing.is_belated = transaction, self._is_belated(message)
        if transaction is not None:
            transaction.handed.append(handing)
        self.facts.handings.append(handing)
        if subscription is None and handing.key not in self.facts.sendings:
            self.facts.odd.append(f"{consumer} was given a message that nobody sent: {body[:80]!r}")
        return handing

    def _is_belated(self, message: Message) -> bool:
        part: Any = getattr(message._consumer, "part", None)
        return part is not None and self.is_given_up(part.lifeline.broker, part.lifeline.client_id)

    def failed(self, sending: Sending, error: errors.SternaError) -> None:
        """Notes that a message could not be sent. What cannot be taken now is no failure: it is waited for."""
        sending.outcome = "refused" if self.is_certain(error) else "unknown"
        if not isinstance(error, errors.UnavailableError):
            return
        if self.now_s() - sending.began_s >= _PATIENCE_S:
            self._waited_for_long.add(sending.queue)  # what was sent to it later is given up with it
        # A name that has no home yet gets none while etcd is away: that is said of the name, and for no other reason.
        if error.subject != sending.queue and sending.queue not in self._waited_for_long:
            self.facts.odd.append(f"{self.name} was told that {sending.queue} is not to be had: {error}")

    @staticmethod
    def is_certain(error: errors.SternaError) -> bool:
        """Whether an error says that nothing took effect."""
        doubts = (errors.UnknownProducerError, errors.ConnectionLostError, errors.ClosedError, errors.FlushError)
        return not isinstance(error, doubts)

    def taken(self, handing: Handing, how: str) -> None:
        """Notes that it may have been, or was, acknowledged."""
        if how == "yes":
            handing.taken, handing.taken_s = "yes", self.now_s()
        elif handing.taken == "no":
            handing.taken = "maybe"


def body_of(random: Random, key: str, *, large: bool = True) -> str:
    """A body that begins with the key; some are large."""
    draw = random.random()
    if draw < 0.01 and large:
        return key + " " + "x" * BODY_LARGE
    return key + " " + "x" * random.randrange(200) if draw < 0.3 else key


MODES = (DeliveryMode.PERSISTENT, DeliveryMode.PERSISTENT, DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT)


async def sender(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Sends, and waits for each confirmation, or not."""
    random = app.random
    queue = random.choice(app.queues)
    lane = app.key()
    anonymous = random.random() < 0.3
    mixes = random.random() < 0.4
    producer = None if anonymous else await app.call("producer", connection.producer(Queue(queue)))
    waiting: list[Sending] = []
    for _ in range(steps):
        if app.is_over:
            break
        mode = random.choice(MODES) if mixes else DeliveryMode.PERSISTENT
        if producer is not None and random.random() < 0.4:
            await _send_soon(app, producer, app.sending(queue, lane, mode), mode, waiting)
            continue
        if random.random() < 0.3:
            await app.pause()
        sending = app.sending(queue if producer else random.choice(app.queues), lane, mode)
        body = body_of(random, sending.key)
        try:
            if producer is None:
                sent = await app.call("send", connection.send(Queue(sending.queue), body, delivery_mode=mode))
            else:
                sent = await app.call("send", producer.send(body, delivery_mode=mode))
        except CutError:
            sending.outcome = "unknown"
        except errors.SternaError as error:
            app.failed(sending, error)
            if isinstance(error, errors.ClosedError | errors.ConnectionLostError) and connection.closed is not None:
                return
        else:
            sending.outcome = "confirmed"
            sending.durable = sent.durability is not None and sent.durability >= sterna.Durability.DURABLE
    if producer is not None and waiting:
        await app.call("flush", producer.flush())


async def _send_soon(
    app: Application, producer: sterna.Producer, sending: Sending, mode: DeliveryMode, waiting: list[Sending]
) -> None:
    def told(outcome: Any) -> None:
        if isinstance(outcome, errors.SternaError):
            app.failed(sending, outcome)
        else:
            sending.outcome = "confirmed"
            sending.durable = outcome.durability is not None and outcome.durability >= sterna.Durability.DURABLE

    waiting.append(sending)
    body = body_of(app.random, sending.key)
    try:
        await app.call("send_soon", producer.send_soon(body, delivery_mode=mode, on_completion=told))
    except CutError:
        pass  # it may have been queued all the same: then its outcome is told
    except errors.SternaError as error:
        sending.outcome = "refused" if Application.is_certain(error) else "unknown"


async def receiver(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Receives in AUTO mode, call by call."""
    queue, name = app.random.choice(app.queues), app.key()
    consumer = await app.call("consumer", connection.consumer(Queue(queue), **_window(app.random)))
    for _ in range(steps):
        if app.is_over:
            break
        try:
            message = await app.call("receive", consumer.receive(timeout=app.random.choice((0.05, 1.0))))
        except CutError:
            continue
        if message is not None:
            app.taken(app.handed(message, name), "maybe")
        if app.random.random() < 0.2:
            await app.pause()
    if app.random.random() < 0.5:
        await app.call("consumer.close", consumer.close())


async def looper(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Iterates in AUTO mode; may be cancelled while it works on a message, which then was not done with."""
    queue, name = app.random.choice(app.queues), app.key()
    consumer = await app.call("consumer", connection.consumer(Queue(queue), **_window(app.random)))
    session = consumer.session

    async def loop() -> None:
        left = steps
        async for message in consumer:
            await worked_on(app, message, name)
            left -= 1
            if left <= 0 or app.is_over:
                break

    task = asyncio.create_task(loop())
    _, pending = await asyncio.wait((task,), timeout=app.random.choice((0.05, 0.5, 3.0)) * app.random.random())
    if pending:
        if app.random.random() < 0.5:
            task.cancel()
            await asyncio.wait((task,))
            await app.call("consumer.close", consumer.close(failed=True))
            return
        # As a handler of SIGTERM would: while the loop has a message in hand, which it has not done with.
        await app.call("consumer.close", consumer.close())
        if session.closed is None and app.random.random() < 0.5:
            app.closes_session = True
            await app.call("session.close", session.close())
        task.cancel()
        await asyncio.wait((task,))
    if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, errors.SternaError):
        raise error


def _window(random: Random) -> dict[str, Any]:
    return random.choice(({}, {}, {"prefetch": 0}, {"prefetch": 1}, {"prefetch": 50}, {"prefetch_bytes": 4000}))


#: In which several tasks may share a session: who settles a message settles nobody else's.
MODES_AT_ONCE = (AcknowledgeMode.AUTO, AcknowledgeMode.INDIVIDUAL, AcknowledgeMode.EXPLICIT_CLIENT_DUPS_OK)

EXPLICIT = (AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL, AcknowledgeMode.EXPLICIT_CLIENT_DUPS_OK)


async def received(app: Application, consumer: sterna.Consumer, name: str, hand: list[tuple[Message, Handing]]) -> None:
    """Waits for a moment; what has come by then is in hand."""
    message = await app.call("receive", consumer.receive(timeout=app.random.choice((0.05, 1.0))))
    if message is not None:
        hand.append((message, app.handed(message, name)))


async def worked_on(app: Application, message: Message, name: str) -> None:
    """Takes its time over a message, and is done with it when the next one is asked for, if not before."""
    handing = app.handed(message, name)
    await app.pause()
    app.taken(handing, "maybe")


async def acknowledger(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Acknowledges by itself: one, or all so far; gives some back, recovers now and then."""
    random = app.random
    mode = random.choice(EXPLICIT)
    queue, name = random.choice(app.queues), app.key()
    session = await app.call("session", connection.session(mode))
    consumer = await app.call("consumer", session.consumer(Queue(queue), **_window(random)))
    hand: list[tuple[Message, Handing]] = []
    for _ in range(steps):
        if app.is_over:
            break
        try:
            await received(app, consumer, name, hand)
            draw = random.random()
            if hand and draw < 0.6:
                await _acknowledge(app, mode, hand)
            elif hand and draw < 0.7:
                hand.pop()[0].release()
            elif draw < 0.75:
                hand.clear()
                await app.call("recover", session.recover())
        except CutError:
            continue
        except errors.NotAllowedError:
            pass  # what was released had become void
    if random.random() < 0.5:
        await app.call("session.close", session.close())


async def _acknowledge(app: Application, mode: AcknowledgeMode, hand: list[tuple[Message, Handing]]) -> None:
    message, handing = hand[-1]
    covered = [one for _, one in hand] if mode == AcknowledgeMode.CLIENT else [handing]
    for one in covered:
        app.taken(one, "maybe")
    promise = message.acknowledge()
    if mode == AcknowledgeMode.CLIENT:
        hand.clear()
    else:
        hand.pop()
    if app.random.random() < 0.5 and await app.call("acknowledge", awaited(promise)):
        app.taken(handing, "yes")


async def awaited(promise: Any) -> Any:
    """What comes of it, as a call that can be cut."""
    return await promise


async def worker(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Takes from one queue and sends to another, in transactions; does it again when told that it was rolled back."""
    random = app.random
    source, target = random.sample(app.queues, 2)
    name, lane = app.key(), app.key()
    session = await app.call("session", connection.session(transacted=True))
    consumer = await app.call("consumer", session.consumer(Queue(source), **_window(random)))
    producer = await app.call("producer", session.producer(Queue(target)))
    for _ in range(steps):
        if app.is_over:
            break
        transaction = Transaction(name)
        app.facts.transactions.append(transaction)
        try:
            for _ in range(random.randrange(1, 4)):
                message = await app.call("receive", consumer.receive(timeout=random.choice((0.05, 0.5))))
                if message is None:
                    continue
                app.handed(message, name, transaction)
                if random.random() < 0.9:
                    sending = app.sending(target, lane, DeliveryMode.PERSISTENT, transaction)
                    await app.call("send in transaction", producer.send(body_of(random, sending.key)))
            await _end(app, session, transaction)
        except CutError:
            if transaction.ending == "open":
                await give_up(app, session, transaction)
        except errors.TransactionRolledBackError as error:
            if not isinstance(error, errors.TransactionInDoubtError) and transaction.ending == "open":
                await give_up(app, session, transaction)
    if random.random() < 0.5:
        await app.call("session.close", session.close())


async def _end(app: Application, session: sterna.Session, transaction: Transaction) -> None:
    if app.random.random() < 0.2:
        await give_up(app, session, transaction)
        return
    transaction.ending = "in doubt"
    try:
        await app.call("commit", session.commit())
    except errors.TransactionInDoubtError:
        raise
    except errors.TransactionRolledBackError:
        transaction.ending = "rolled back"
        raise
    transaction.ending = "committed"


async def give_up(app: Application, session: sterna.Session, transaction: Transaction) -> None:
    """Rolls a transaction back."""
    # Rolled back whatever comes of the call: nobody has committed it.
    transaction.ending = "rolled back"
    await app.surely("rollback", session.rollback)


async def settle(app: Application, session: sterna.Session, transaction: Transaction, *, failed: bool) -> None:
    """Commits a transaction in which nothing has failed, but for some, and notes what came of it."""
    if failed:
        await give_up(app, session, transaction)
        return
    with contextlib.suppress(CutError, errors.TransactionRolledBackError):
        await _end(app, session, transaction)


async def listener(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Has messages handed to a function, which fails now and then."""
    queue, name = app.random.choice(app.queues), app.key()
    enough = asyncio.Event()
    left = steps

    async def on_message(message: Message) -> None:
        nonlocal left
        handing = app.handed(message, name)
        if app.random.random() < 0.3:
            await app.pause()
        left -= 1
        if left <= 0:
            enough.set()
        if app.random.random() < 0.1:
            raise ValueError("the application's own failure")
        app.taken(handing, "maybe")

    told: list[BaseException] = []
    connection.on_error(told.append)
    consumer = await app.call("consumer", connection.consumer(Queue(queue), listener=on_message))
    while not enough.is_set() and not app.is_over and consumer.closed is None:
        await asyncio.wait((asyncio.ensure_future(enough.wait()),), timeout=0.5)
        if app.random.random() < 0.1:
            break
    await ended(app, connection, consumer, told)
    await app.call("consumer.close", consumer.close())


async def ended(
    app: Application, connection: sterna.Connection, consumer: sterna.Consumer, told: list[BaseException]
) -> None:
    """Looks whether the end of a listener was told, where it has ended and nobody here has asked for that."""
    if (why := consumer.closed) is None:
        return
    await asyncio.sleep(1)
    has_closed = app.is_closing or app.closes_session or connection.closed is not None
    if not has_closed and not any(one.__cause__ is why for one in told):
        app.facts.odd.append(f"{app.name}: nobody was told that a listener has ended: {why!r}")


Program = Callable[[Application, sterna.Connection, int], Coroutine[Any, Any, None]]


async def client(app: Application, programs: Sequence[Program], count: int, steps: int) -> None:
    """One process of an application: a connection, some programs on it, and its end."""
    connection = await connected(app, app.url)
    if connection is None:
        return
    chosen = [app.random.choice(programs) for _ in range(count)]
    tasks = [asyncio.create_task(guarded(app, one.__name__, one(app, connection, steps))) for one in chosen]
    if app.random.random() < 0.15:
        # As a handler of SIGTERM does: whatever the others are at.
        await asyncio.wait(tasks, timeout=app.random.choice((0.05, 0.5, 3.0)) * app.random.random())
        app.is_closing = True
        await closed(app, connection)
    await asyncio.wait(tasks)
    await app.audit(connection)
    await closed(app, connection)


async def closed(app: Application, connection: sterna.Connection) -> None:
    """Closes a connection, as often as that is cut."""
    try:
        await app.surely("connection.close", connection.close)
    except errors.SternaError:
        pass  # what was left of send_soon


async def connected(app: Application, url: str, **options: Any) -> sterna.Connection | None:
    """A connection, at the second try where the first was cut; None: it could not be had."""
    while True:
        connection = sterna.connect(url, **options)
        try:
            await app.call("connect", _entered(connection))
        except CutError:
            await app.call("connection.close", connection.close(), may_cut=False)
        except errors.SternaError:
            return None
        else:
            return connection


async def _entered(connection: sterna.Connection) -> None:
    await connection


async def guarded(app: Application, name: str, program: Coroutine[Any, Any, None]) -> None:
    """Runs a program to its end, or to an error of the SDK's."""
    try:
        await program
    except (CutError, errors.SternaError):
        pass  # an application that ends at an error; what it was told stands in the facts
    except Exception as error:  # noqa: BLE001 - the SDK raises its own errors, and nothing else
        app.facts.odd.append(f"{app.name}: {name} met {error!r}: {traceback.format_exc(limit=-4)}")
