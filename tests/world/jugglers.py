"""Applications that do several things at once in one session, and those that look at what queues hold.

Tasks that share a transacted session open, work and close while the session goes to another broker and while it
commits; others share one that acknowledges; browsers look on. What waits for a queue while somebody looks at it has to
be shown, which is judged when all is drained (`checker.py`).

Seeds have them or have not (`Scene.jugglers`), so that the others are the runs that they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import sterna
from sterna import AcknowledgeMode, DeliveryMode, Queue, errors

from tests.world.facts import Look, Transaction
from tests.world.programs import MODES_AT_ONCE, Application, CutError, awaited, body_of, closed, connected, settle

#: What a task does in a session that it shares.
Thing = sterna.Consumer | sterna.Producer


async def looks(app: Application, session: sterna.Session | sterna.Connection, queue: str) -> None:
    """Looks through a queue, alone or by two, for a while or to the end; notes what was shown if that was all."""
    look = Look(queue, app.facts.held(queue))
    limit = app.random.choice((3, 10_000, 10_000, 10_000))
    browser = session.browser(Queue(queue))

    async def through() -> None:
        async for message in browser:
            key = str(message.body).partition(" ")[0]
            if message.message_id in look.ids:
                app.facts.odd.append(f"{app.name} was shown {key} twice by one browser")
            look.ids.add(message.message_id)
            look.shown.add(key)
            if len(look.shown) >= limit:
                return
            if app.random.random() < 0.1:
                await app.pause()

    await asyncio.gather(*(through() for _ in range(app.random.choice((1, 1, 2)))))
    if len(look.shown) < limit:
        # As every loop it ends without a word when the application itself has closed what it is in.
        if session.closed is None:
            app.facts.looks.append(look)
    else:
        await app.surely("close of a browser", browser.close)


async def juggler(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Several tasks open, work and close in one transacted session, which goes to where what they open lives."""
    table = _Table(app, await app.call("session", connection.session(transacted=True)))
    for _ in range(steps // 4 + 1):
        if app.is_over or connection.closed is not None or table.session.closed is not None:
            break
        await table.once()
    await app.surely("session.close", table.session.close)


class _Table:
    """One transacted session and what is open in it."""

    def __init__(self, app: Application, session: sterna.Session) -> None:
        self._app = app
        self.session = session
        self._name = app.key()
        self._things: list[tuple[Thing, str, str]] = []

    async def once(self) -> None:
        """A transaction: who has something works with it, others open or close; then somebody ends it."""
        random, app = self._app.random, self._app
        transaction = Transaction(self._name)
        app.facts.transactions.append(transaction)
        leaving = [one for one in self._things if random.random() < 0.3]
        self._things = [one for one in self._things if one not in leaving]
        works: list[Coroutine[Any, Any, None]] = [self._works(*one, transaction) for one in self._things]
        # Those that are closed and opened are in nobody's transaction, and it need not wait for them.
        others = [app.surely("close at once", one.close) for one, _, _ in leaving]
        others += [self._opens() for _ in range(random.randrange(4))]
        if random.random() < 0.2:
            others.append(looks(app, self.session, random.choice(app.queues)))
        beside = [asyncio.ensure_future(one) for one in others]
        for one in beside:
            # Looked at, also where the end of the transaction is an error and nobody waits for them any more.
            one.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        random.shuffle(works)
        failed = await _all(works)
        if beside and random.random() < 0.7:
            await asyncio.wait(beside)
        await settle(app, self.session, transaction, failed=failed)
        if beside:
            await asyncio.wait(beside)
        _raise_what_is_no_answer([one.exception() for one in beside if not one.cancelled()])

    async def _opens(self) -> None:
        app = self._app
        queue = app.random.choice(app.queues)
        thing: Thing
        if app.random.random() < 0.5:
            thing = await app.call("open a consumer at once", self.session.consumer(Queue(queue)))
        else:
            thing = await app.call("open a producer at once", self.session.producer(Queue(queue)))
        self._things.append((thing, queue, app.key()))

    async def _works(self, thing: Thing, queue: str, name: str, transaction: Transaction) -> None:
        app = self._app
        for _ in range(app.random.randrange(3)):
            if isinstance(thing, sterna.Consumer):
                message = await app.call("receive at once", thing.receive(timeout=app.random.choice((0.05, 0.5))))
                if message is not None:
                    app.handed(message, name, transaction)
            else:
                sending = app.sending(queue, name, DeliveryMode.PERSISTENT, transaction)
                await app.call("send at once", thing.send(body_of(app.random, sending.key)))


async def sharer(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Several tasks consume from several queues in one session, each for a while, and acknowledge what each has."""
    random = app.random
    session = await app.call("session", connection.session(random.choice(MODES_AT_ONCE)))

    async def shares() -> None:
        name, queue = app.key(), random.choice(app.queues)
        consumer = await app.call("open a consumer at once", session.consumer(Queue(queue)))
        for _ in range(random.randrange(1, 5)):
            try:
                message = await app.call("receive at once", consumer.receive(timeout=random.choice((0.05, 0.5))))
                if message is None:
                    continue
                handing = app.handed(message, name)
                app.taken(handing, "maybe")
                if session.mode is AcknowledgeMode.AUTO:
                    continue
                if await app.call("acknowledge", awaited(message.acknowledge())):
                    app.taken(handing, "yes")
            except CutError:
                continue
        if random.random() < 0.8:
            await app.surely("close at once", consumer.close)

    for _ in range(steps // 6 + 1):
        if app.is_over or connection.closed is not None or session.closed is not None:
            break
        works = [shares() for _ in range(random.randrange(1, 4))]
        if random.random() < 0.3:
            works.append(looks(app, session, random.choice(app.queues)))
        await _all(works)
    await app.surely("session.close", session.close)


async def looker_on(app: Application, connection: sterna.Connection, steps: int) -> None:
    """Looks through queues on a connection of its own, and does not always see it through."""
    del connection
    own = await connected(app, app.url)
    if own is None:
        return
    for _ in range(steps // 4 + 1):
        if app.is_over or own.closed is not None:
            break
        try:
            await app.call("look through a queue", looks(app, own, app.random.choice(app.queues)))
        except (CutError, errors.SternaError):
            pass  # it lives elsewhere now, or is gone
        await app.pause()
    await closed(app, own)


async def _all(works: list[Coroutine[Any, Any, None]]) -> bool:
    """Whether one of them failed, when all have ended."""
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    _raise_what_is_no_answer(outcomes)
    return any(isinstance(one, BaseException) for one in outcomes)


def _raise_what_is_no_answer(outcomes: list[Any]) -> None:
    for one in outcomes:
        if isinstance(one, BaseException) and not isinstance(one, (CutError, errors.SternaError)):
            raise one


JUGGLERS: Final = (juggler, juggler, sharer, looker_on)
