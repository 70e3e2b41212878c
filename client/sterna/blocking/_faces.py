"""The faces: each holds its asynchronous twin and the portal to it, and does nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Any

from sterna import _listening as listening
from sterna import connections, consumers, errors, messages, producers, sessions
from sterna.blocking._batches import Batch
from sterna.blocking._portal import Portal
from sterna.bodies import Body
from sterna.destinations import Destination, DestinationLike, Queue, Topic
from sterna.messages import Sent
from sterna.modes import AcknowledgeMode, Durability

# What fails is not to be held up by what it has sent before.
_FAILED_S = 1.0


class Message(messages.Message):
    """A received message; reading it needs no thread, settling it goes through the portal."""

    __slots__ = ("_portal",)

    def __init__(self, twin: messages.Message, portal: Portal) -> None:
        super().__init__(*messages.made_of(twin))
        self._portal = portal

    def acknowledge(self, *, alone: bool = False, wait: bool = True) -> bool:  # type: ignore[override]
        """Says that it is done with, and waits for the broker's word unless `wait` is False.

        Returns whether it took effect; True without waiting. See `sterna.Message.acknowledge`.
        """
        settled = self._portal.call(partial(super().acknowledge, alone=alone))
        if not wait:
            return True

        async def waiting() -> bool:
            return await settled

        return self._portal.run(waiting())

    def release(self, *, delay_ms: int = 0) -> None:
        """Gives it back; see `sterna.Message.release`."""
        self._portal.call(partial(super().release, delay_ms=delay_ms))

    def __enter__(self) -> Message:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.acknowledge()
        else:
            self.release()


Listener = Callable[[Message], Any]


class Producer:
    """See `sterna.Producer`."""

    def __init__(self, twin: producers.Producer, portal: Portal) -> None:
        self._twin, self._portal = twin, portal
        self._batch = Batch(twin, portal.take)
        portal.batch(self._batch)

    @property
    def destination(self) -> Destination | None:
        """What it sends to; None: anonymous."""
        return self._twin.destination

    @property
    def last_number(self) -> int:
        """The highest number that the broker had of a named producer when it was opened; 0: none."""
        return self._twin.last_number

    @property
    def unconfirmed(self) -> int:
        """How many messages are waiting for their confirmation."""
        return self._twin.unconfirmed + self._batch.pending

    def send(self, body: Body = None, **options: Any) -> Sent:
        """Sends a message and returns when it is confirmed; see `sterna.Producer.send`."""
        self._settle()
        return self._portal.run(self._twin.send(body, **options))

    def send_soon(self, body: Body = None, **options: Any) -> int:
        """Queues a message; see `sterna.Producer.send_soon`. Completions are called in another thread.

        It returns when the message is checked, and waits only while very many are on their way to the loop's thread.
        What stops one there (the producer was closed meanwhile) is given to its completion, or raised by `flush`; the
        numbers of those behind it are less by one then. A body or properties that are changed afterwards stay as sent.
        """
        completion = options.get("on_completion")
        if completion is not None:
            options["on_completion"] = lambda outcome: self._portal.submit(completion, outcome)
        self._portal.check()
        if (left := self._batch.leave(body, options)) is not None:
            number, ticket = left
            self._portal.left(self._batch, ticket)
            return number
        self._settle()
        number = self._portal.run(self._twin.send_soon(body, **options))
        self._batch.hopped(number, options)
        return number

    def _settle(self) -> None:
        self._portal.check()
        self._batch.wait()

    def flush(self) -> None:
        """Waits until everything sent so far is confirmed; see `sterna.Producer.flush`."""
        self._settle()
        self._portal.run(self._twin.flush())
        self._batch.raise_failures()

    def close(self) -> None:
        """Flushes, then ends the producer."""
        self._settle()
        self._portal.run(self._twin.close())
        self._batch.raise_failures()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Consumer:
    """See `sterna.Consumer`."""

    def __init__(self, twin: consumers.Consumer, portal: Portal) -> None:
        self._twin, self._portal = twin, portal

    @property
    def destination(self) -> Destination:
        """What it consumes."""
        return self._twin.destination

    @property
    def prefetch(self) -> int:
        """How many messages may be sent ahead; see `sterna.Consumer.prefetch`."""
        return self._twin.prefetch

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message, or None after `timeout` seconds; see `sterna.Consumer.receive`."""
        found = self._portal.run(self._twin.receive(timeout))
        return None if found is None else Message(found, self._portal)

    def receive_nowait(self) -> Message | None:
        """A message that is here already, or None; see `sterna.Consumer.receive_nowait`."""
        found = self._portal.call(self._twin.receive_nowait)
        return None if found is None else Message(found, self._portal)

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        try:
            return Message(self._portal.run(self._twin.__anext__()), self._portal)
        except StopAsyncIteration:
            raise StopIteration from None

    def drain(self, timeout: float | None = None) -> bool:
        """Takes no more, and waits until what is in hand is done; see `sterna.Consumer.drain`."""
        return self._portal.run(self._twin.drain(timeout))

    def close(self, *, failed: bool = False) -> None:
        """Ends the consumer; see `sterna.Consumer.close`."""
        self._portal.run(self._twin.close(failed=failed))

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=kind is not None)


class Browser:
    """An iteration over messages that stay where they are."""

    def __init__(self, twin: consumers.Consumer | connections.Browsing, portal: Portal) -> None:
        self._twin, self._portal = twin, portal

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        try:
            return Message(self._portal.run(self._twin.__anext__()), self._portal)
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Ends the browser before it has seen everything."""
        self._portal.run(self._twin.close())

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _listening(listener: Listener | None, portal: Portal) -> listening.Listener | None:
    if listener is None:
        return None

    async def outside(message: messages.Message) -> None:
        await portal.outside(listener, Message(message, portal))

    return outside


class Session:
    """See `sterna.Session`."""

    def __init__(self, twin: sessions.Session, portal: Portal) -> None:
        self._twin, self._portal = twin, portal

    @property
    def mode(self) -> AcknowledgeMode:
        """Who acknowledges what it receives."""
        return self._twin.mode

    def producer(self, destination: DestinationLike | None = None, **options: Any) -> Producer:
        """See `sterna.Session.producer`."""
        return Producer(self._portal.run(self._twin.producer(destination, **options)), self._portal)

    def consumer(self, destination: DestinationLike, *, listener: Listener | None = None, **options: Any) -> Consumer:
        """See `sterna.Session.consumer`. The listener is called in other threads, as many as its `concurrency` says."""
        made = self._twin.consumer(destination, listener=_listening(listener, self._portal), **options)
        return Consumer(self._portal.run(made), self._portal)

    def browser(self, queue: DestinationLike, *, selector: str = "", durable: str = "") -> Browser:
        """See `sterna.Session.browser`."""
        browser = self._portal.call(lambda: self._twin.browser(queue, selector=selector, durable=durable))
        return Browser(browser, self._portal)

    def unsubscribe(self, name: str) -> None:
        """See `sterna.Session.unsubscribe`."""
        self._portal.run(self._twin.unsubscribe(name))

    def start(self) -> None:
        """Lets deliveries go on."""
        self._portal.run(self._twin.start())

    def stop(self) -> None:
        """Suspends deliveries."""
        self._portal.run(self._twin.stop())

    def recover(self) -> None:
        """See `sterna.Session.recover`."""
        self._portal.run(self._twin.recover())

    def flush(self) -> None:
        """See `sterna.Session.flush`."""
        self._portal.settle_all()
        self._portal.run(self._twin.flush())
        self._portal.raise_failures()

    def commit(self) -> Durability | None:
        """See `sterna.Session.commit`."""
        return self._portal.run(self._twin.commit())

    def rollback(self) -> None:
        """See `sterna.Session.rollback`."""
        self._portal.run(self._twin.rollback())

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Session]:
        """See `sterna.Session.transaction`."""
        self._portal.call(sessions.check_transacted, self._twin)
        try:
            yield self
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def close(self, *, failed: bool = False) -> None:
        """See `sterna.Session.close`."""
        self._portal.settle_all(_FAILED_S if failed else None)
        self._portal.run(self._twin.close(failed=failed))

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=kind is not None)


class Connection:
    """See `sterna.Connection`; made by `connect`."""

    def __init__(self, twin: connections.Connection, portal: Portal) -> None:
        self._twin, self._portal = twin, portal

    def broker_time_ms(self) -> int:
        """As the asynchronous `Connection.broker_time_ms`."""
        return self._twin.broker_time_ms()

    @property
    def broker(self) -> str:
        """The broker's name."""
        return self._twin.broker

    @property
    def client_id(self) -> str:
        """The client id that holds."""
        return self._twin.client_id

    @property
    def connected(self) -> bool:
        """Whether there is a stream right now."""
        return self._twin.connected

    def _hook(self, hook: Callable[[Callable[[Any], Any]], Any], callback: Callable[[Any], Any]) -> Any:
        self._portal.call(hook, lambda event: self._portal.submit(callback, event))
        return callback

    def on_interrupted(self, callback: Callable[[Any], Any]) -> Any:
        """Calls `callback` with each Interrupted."""
        return self._hook(self._twin.on_interrupted, callback)

    def on_restored(self, callback: Callable[[Any], Any]) -> Any:
        """Calls `callback` with each Restored."""
        return self._hook(self._twin.on_restored, callback)

    def on_closed(self, callback: Callable[[Any], Any]) -> Any:
        """Calls `callback` with the Closed."""
        return self._hook(self._twin.on_closed, callback)

    def on_temporary_replaced(self, callback: Callable[[Any], Any]) -> Any:
        """Calls `callback` with each TemporaryReplaced."""
        return self._hook(self._twin.on_temporary_replaced, callback)

    def on_error(self, callback: Callable[[Any], Any]) -> Any:
        """Calls `callback` with what no call could raise."""
        return self._hook(self._twin.on_error, callback)

    def session(
        self,
        acknowledge_mode: AcknowledgeMode = AcknowledgeMode.AUTO,
        *,
        transacted: bool = False,
        stopped: bool = False,
    ) -> Session:
        """See `sterna.Connection.session`."""
        made = self._twin.session(acknowledge_mode, transacted=transacted, stopped=stopped)
        return Session(self._portal.run(made), self._portal)

    def producer(self, destination: DestinationLike | None = None, **options: Any) -> Producer:
        """See `sterna.Connection.producer`."""
        return Producer(self._portal.run(self._twin.producer(destination, **options)), self._portal)

    def consumer(
        self,
        destination: DestinationLike,
        *,
        acknowledge_mode: AcknowledgeMode | None = None,
        listener: Listener | None = None,
        **options: Any,
    ) -> Consumer:
        """See `sterna.Connection.consumer`."""
        made = self._twin.consumer(
            destination, acknowledge_mode=acknowledge_mode, listener=_listening(listener, self._portal), **options
        )
        return Consumer(self._portal.run(made), self._portal)

    def send(self, destination: DestinationLike, body: Body = None, **options: Any) -> Sent:
        """See `sterna.Connection.send`."""
        return self._portal.run(self._twin.send(destination, body, **options))

    def browser(self, queue: DestinationLike, *, selector: str = "", durable: str = "") -> Browser:
        """See `sterna.Connection.browser`."""
        return Browser(self._twin.browser(queue, selector=selector, durable=durable), self._portal)

    def unsubscribe(self, name: str) -> None:
        """See `sterna.Connection.unsubscribe`."""
        self._portal.run(self._twin.unsubscribe(name))

    def temporary_queue(self) -> Queue:
        """See `sterna.Connection.temporary_queue`."""
        return self._portal.run(self._twin.temporary_queue())

    def temporary_topic(self) -> Topic:
        """See `sterna.Connection.temporary_topic`."""
        return self._portal.run(self._twin.temporary_topic())

    def delete_temporary(self, destination: Destination) -> None:
        """See `sterna.Connection.delete_temporary`."""
        self._portal.run(self._twin.delete_temporary(destination))

    def request(
        self,
        destination: DestinationLike,
        body: Body = None,
        *,
        timeout: float | None = 30.0,
        needs_responder: bool = True,
        **options: Any,
    ) -> Message:
        """See `sterna.Connection.request`."""
        asking = self._twin.request(destination, body, timeout=timeout, needs_responder=needs_responder, **options)
        return Message(self._portal.run(asking), self._portal)

    def reply(self, request: messages.Message, body: Body = None, **options: Any) -> Sent | None:
        """See `sterna.Connection.reply`."""
        return self._portal.run(self._twin.reply(request, body, **options))

    def flush(self) -> None:
        """See `sterna.Connection.flush`."""
        self._portal.settle_all()
        self._portal.run(self._twin.flush())
        self._portal.raise_failures()

    def close(self, *, failed: bool = False, timeout_s: float = 30.0) -> None:
        """See `sterna.Connection.close`."""
        if self._portal.is_stopped:
            return
        failure: errors.SternaError | None = None
        try:
            self._portal.settle_all(_FAILED_S if failed else timeout_s)
            self._portal.run(self._twin.close(failed=failed, timeout_s=timeout_s))
        except errors.SternaError as error:
            failure = None if self._is_done(error) else error
        finally:
            self._portal.stop()
        if not failed:
            self._portal.raise_failures(failure)
        elif failure is not None:
            raise failure

    def _is_done(self, error: errors.SternaError) -> bool:
        """Whether another thread has closed it meanwhile, which is what a close wants."""
        return isinstance(error, errors.ClosedError) and self._portal.is_stopped

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=kind is not None)

    def __repr__(self) -> str:
        return repr(self._twin)


def connect(url: str | None = None, **options: Any) -> Connection:
    """An open connection; the options are those of `sterna.connect`. Close it, or use `with`."""
    return opened(lambda: connections.connect(url, **options))


def opened(make: Callable[[], connections.Connection]) -> Connection:
    """The face of a connection that is made, and opened, in a thread of its own."""
    portal = Portal()

    async def opening() -> connections.Connection:
        return await make()

    try:
        return Connection(portal.run(opening()), portal)
    except BaseException:
        portal.stop()
        raise
