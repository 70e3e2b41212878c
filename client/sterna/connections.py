"""Connections: the public face of a client as the broker knows it.

`connect(url)` is awaited or entered. What an application makes here (sessions, producers, consumers, temporary
destinations) survives breaks of the stream; the lifeline below sees to that, and the hooks tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final

from sterna import _homes, errors
from sterna._failures import joined
from sterna._homes import TEMPORARY_PREFIX, Homes
from sterna._in_hand import holder, standing_for
from sterna._lifeline import Lifeline
from sterna._listening import Listener
from sterna._parts import abandon, part_of
from sterna._secrets import Secret
from sterna._surroundings import monotonic_s
from sterna._version import __version__
from sterna.bodies import Body
from sterna.consumers import Consumer, own_session
from sterna.destinations import QUEUE_KIND, TOPIC_KIND, Destination, DestinationLike, Queue, Topic, destination_of
from sterna.ledger import LedgerLike, book_of
from sterna.messages import Message, Sent, made_of
from sterna.modes import AcknowledgeMode, DeliveryMode
from sterna.options import Options, Reconnect
from sterna.producers import Producer, home_of, is_over, within
from sterna.requestors import NEEDS_RESPONDER, Requestor
from sterna.sessions import Session
from sterna.sessions import opened as open_session
from sterna.targets import Given, Target, resolve
from sterna.tls import Tls

#: So long a connection's own broker may take for its answers, where those of others have taken all the time there was.
_LAST_S: Final = 1.0


def connect(
    url: str | None = None,
    *,
    client_id: str = "",
    user: str = "",
    password: Secret = "",
    token: Secret = "",
    tls: Tls | None = None,
    product: str = f"sterna-python/{__version__}",
    heartbeat_ms: int = 0,
    connect_timeout_s: float = 5.0,
    connect_attempts: int = 2,
    connect_delay_ms: int = 500,
    reconnect: Reconnect | None = None,
    ledger: LedgerLike | None = None,
) -> Connection:
    """A connection to the first broker of `url` that answers; `await` it, or use `async with`.

    Without a URL everything that is not given here comes from the environment (STERNA_URL, STERNA_USER,
    STERNA_PASSWORD or STERNA_PASSWORD_FILE, STERNA_CA, STERNA_CERT, STERNA_KEY, STERNA_SERVER_NAME), or from the
    context in use; with one, neither is looked at. `password` and `token` may be functions or coroutine functions:
    they are asked at each dial. `tls` is for `sternas://`, which by itself trusts the usual authorities.

    `client_id` is what durable subscriptions belong to. Each dial may take `connect_timeout_s`; the addresses are
    gone through `connect_attempts` times, with pauses of `connect_delay_ms` between, shortened at random by up to half.
    `heartbeat_ms`: 0 leaves it to the broker (30 s).

    `ledger`: a folder, or a `sterna.Ledger`, into which the connection writes down what it sends, receives and
    acknowledges, and what the broker answers. None: it does not.

    Raises:
        LedgerError: the package that a ledger needs is missing; on entering: its file cannot be made.
        InvalidArgumentError: the URL is none, or what is given does not go together.
        UnreachableError: on entering: nobody answered.
        SternaError: on entering: the broker refused.
    """
    return connect_to(
        resolve(url, Given(user=user, password=password, token=token), tls=tls),
        client_id=client_id,
        token=token,
        product=product,
        heartbeat_ms=heartbeat_ms,
        connect_timeout_s=connect_timeout_s,
        connect_attempts=connect_attempts,
        connect_delay_ms=connect_delay_ms,
        reconnect=reconnect,
        ledger=ledger,
    )


def connect_to(
    target: Target,
    *,
    client_id: str = "",
    token: Secret = "",
    product: str = f"sterna-python/{__version__}",
    heartbeat_ms: int = 0,
    connect_timeout_s: float = 5.0,
    connect_attempts: int = 2,
    connect_delay_ms: int = 500,
    reconnect: Reconnect | None = None,
    ledger: LedgerLike | None = None,
) -> Connection:
    """As `connect`, where it has been settled where to and as whom."""
    parsed = target.url
    client_id = client_id or parsed.options.get("client_id", "")
    options = Options(
        client_id=client_id,
        user=target.user,
        password=target.password,
        token=token,
        product=product,
        heartbeat_ms=heartbeat_ms or int(parsed.options.get("heartbeat_ms", 0)),
        connect_timeout_s=connect_timeout_s,
        connect_attempts=connect_attempts,
        connect_delay_ms=connect_delay_ms,
        reconnect=reconnect or Reconnect(),
        tls=target.tls,
        book=None if ledger is None else book_of(ledger, client_id, product),
    )
    return Connection(parsed.addresses, options)


class Connection:
    """See the module; made by `connect`.

    Hooks: `on_interrupted`, `on_restored`, `on_closed`, `on_temporary_replaced` and `on_error` (what no call could
    raise: a listener's exception, a refused acknowledgement). Register with `connection.on_restored(function)`.
    """

    def __init__(self, addresses: tuple[str, ...], options: Options, homes: Homes | None = None) -> None:
        self._lifeline = lifeline = Lifeline(addresses, options)
        self.on_interrupted = lifeline.on_interrupted
        self.on_restored = lifeline.on_restored
        self.on_closed = lifeline.on_closed
        self.on_temporary_replaced = lifeline.temporaries.on_replaced
        self.on_error = lifeline.on_error
        self._default: Session | None = None
        self._sender: Producer | None = None
        self._requestor: Requestor | None = None
        self._making = asyncio.Lock()
        self._home = Home(self, lifeline)
        self._homes = homes or Homes(self._home)
        lifeline.homes = self._homes
        lifeline.untold = self._homes.root.lifeline.untold

    # --- Beginning and end

    async def _open(self) -> Connection:
        await self._lifeline.open()
        return self

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._open().__await__()

    async def __aenter__(self) -> Connection:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(failed=kind is not None)

    def close(self, *, failed: bool = False, timeout_s: float = 30.0) -> Coroutine[Any, Any, None]:
        """Ends the connection: waits for confirmations and acknowledgements, at most so long, and says goodbye.

        Raises:
            FlushError: messages of `send_soon` failed.
        """
        return standing_for(holder(), partial(self._close, failed=failed, timeout_s=timeout_s))

    async def _close(self, *, failed: bool, timeout_s: float) -> None:
        failure: errors.SternaError | None = None
        began_s = monotonic_s()
        if self._homes.root is self._home and self._lifeline.is_begun:
            failure = await self._homes.close(failed=failed, timeout_s=timeout_s)
        # It had all that time to be confirmed, too; what is done with is still to be said.
        left_s = max(timeout_s - (monotonic_s() - began_s), min(timeout_s, _LAST_S))
        try:
            await self._lifeline.close(failed=failed, timeout_s=left_s)
        except errors.SternaError as error:
            failure = joined((failure, error))
        if failure is not None:
            raise failure

    @property
    def broker(self) -> str:
        """The broker's name, as in message ids."""
        return self._lifeline.broker

    @property
    def client_id(self) -> str:
        """The client id that holds: the one asked for, or one that the broker made up."""
        return self._lifeline.client_id

    def broker_time_ms(self) -> int:
        """This client's estimate of the broker's clock, by which messages expire; milliseconds since 1970."""
        return self._lifeline.broker_time_ms()

    @property
    def epoch(self) -> int:
        """Grows with each start of the broker."""
        return self._lifeline.epoch

    @property
    def address(self) -> str:
        """Where the broker in use is, or was before the interruption."""
        return self._lifeline.address

    @property
    def connected(self) -> bool:
        """Whether there is a stream right now."""
        return self._lifeline.connected

    @property
    def closed(self) -> errors.SternaError | None:
        """Why the connection is over; None while it is not."""
        return self._lifeline.closed

    def __repr__(self) -> str:
        state = "closed" if self.closed is not None else "connected" if self.connected else "interrupted"
        where = self.address or ", ".join(self._lifeline.addresses)
        return f"<sterna.Connection {self.client_id!r} at {where}: {state}>"

    # --- Making things

    async def session(
        self,
        acknowledge_mode: AcknowledgeMode = AcknowledgeMode.AUTO,
        *,
        transacted: bool = False,
        stopped: bool = False,
    ) -> Session:
        """A session; `transacted=True` is short for AcknowledgeMode.TRANSACTED (EMS-CLI-A05)."""
        mode = AcknowledgeMode.TRANSACTED if transacted else AcknowledgeMode(acknowledge_mode)
        return await open_session(self._lifeline, mode, stopped=stopped)

    async def default_session(self) -> Session:
        """The session in AUTO mode that the connection's own shortcuts use."""
        async with self._making:
            if self._default is None or self._default.closed is not None:
                self._default = await self.session()
            return self._default

    async def producer(self, destination: DestinationLike | None = None, **options: Any) -> Producer:
        """As `session.producer`, in the default session."""
        return await (await self.default_session()).producer(destination, **options)

    async def consumer(
        self,
        destination: DestinationLike,
        *,
        acknowledge_mode: AcknowledgeMode | None = None,
        listener: Listener | None = None,
        concurrency: int = 1,
        **options: Any,
    ) -> Consumer:
        """As `session.consumer`, in the default session; with an `acknowledge_mode`, in a session of its own."""
        if acknowledge_mode is None:
            session = await self.default_session()
            return await session.consumer(destination, listener=listener, concurrency=concurrency, **options)
        session = await self.session(acknowledge_mode)
        try:
            consumer = await session.consumer(destination, listener=listener, concurrency=concurrency, **options)
        except BaseException:
            abandon(session)
            raise
        own_session(consumer)
        return consumer

    async def send(
        self, destination: DestinationLike, body: Body = None, *, timeout: float | None = None, **options: Any
    ) -> Sent:
        """Sends one message with the connection's own anonymous producer; see `Producer.send`."""
        sending = self._send(body, {**options, "destination": destination})
        return await (sending if timeout is None else within(timeout, sending, str(destination)))

    async def _send(self, body: Body, options: dict[str, Any]) -> Sent:
        return await (await self._anonymous()).send(body, **options)

    async def _anonymous(self) -> Producer:
        session = await self.default_session()
        async with self._making:
            sender = self._sender
            if sender is None or sender.session is not session or is_over(sender):
                sender = self._sender = await session.producer()
            return sender

    def browser(self, queue: DestinationLike, *, selector: str = "", durable: str = "") -> Browsing:
        """As `session.browser`, in the default session."""
        return Browsing(self, destination_of(queue), selector, durable)

    async def unsubscribe(self, name: str) -> None:
        """As `session.unsubscribe`, in the default session."""
        await (await self.default_session()).unsubscribe(name)

    async def flush(self) -> None:
        """Waits until all that was sent is confirmed and all that was acknowledged dealt with, in every session."""
        failures: list[errors.SternaError] = []
        for part in list(self._lifeline.parts):
            try:
                await part.flush()
            except errors.SternaError as error:
                failures.append(error)
        if (failure := joined([*failures, self._lifeline.untold.take()])) is not None:
            raise failure

    # --- Temporary destinations, requests and replies

    async def temporary_queue(self) -> Queue:
        """A queue that only this connection consumes from and that goes with it (EMS-DEST-A03).

        After an interruption another one takes its place; consumers, and sends that name the old one, follow, and
        `on_temporary_replaced` tells.
        """
        made = await self._lifeline.temporaries.make(QUEUE_KIND)
        return Queue(made.name)

    async def temporary_topic(self) -> Topic:
        """A topic of the same kind; replies to it cross routes (EMS-CLI-A28)."""
        made = await self._lifeline.temporaries.make(TOPIC_KIND)
        return Topic(made.name)

    async def delete_temporary(self, destination: Destination) -> None:
        """Deletes a temporary destination of this connection."""
        await self._lifeline.temporaries.delete(destination)

    async def request(
        self,
        destination: DestinationLike,
        body: Body = None,
        *,
        timeout: float | None = 30.0,
        needs_responder: bool = True,
        **options: Any,
    ) -> Message:
        """Sends a request and returns its reply; `timeout` in seconds, other options are those of `send_soon`.

        Unless told otherwise a request is non-persistent and lives as long as its timeout: nobody answers one that
        nobody waits for any more. All requests of a connection share one temporary queue for replies; the correlation
        id tells them apart.

        Where nobody consumes from the destination, nor from where bridges lead from it, it is not kept, and fails at
        once; with `needs_responder=False` it waits in its queue or durable subscription for somebody to come in time.

        Raises:
            NoRespondersError: nobody is there who could answer; also while who answers is between two brokers.
            RequestTimeoutError: no reply in time.
            ConnectionLostError: the connection broke, and with it the place for the reply.
        """
        target = destination_of(destination)
        options.setdefault("delivery_mode", DeliveryMode.NON_PERSISTENT)
        if timeout is not None:
            options.setdefault("time_to_live_ms", max(1, round(timeout * 1000)))
        if needs_responder:
            options["properties"] = {**(options.get("properties") or {}), NEEDS_RESPONDER: True}
        try:
            async with asyncio.timeout(timeout):
                return await self._request(target, body, options)
        except TimeoutError as error:
            raise errors.RequestTimeoutError(
                f"no reply from {target} within {timeout:g} s", subject=str(target), retryable=True
            ) from error

    async def _request(self, target: Destination, body: Body, options: dict[str, Any]) -> Message:
        if self._lifeline.cluster and self._homes.root is self._home:
            # Question and answer go over the broker that the destination lives on.
            home = await self._home_of(target)
            if home is not self:
                return await home._request(target, body, options)
        if self._requestor is None:
            self._requestor = Requestor(self, self._lifeline)
            self._lifeline.bystanders.append(self._requestor)
        return await self._requestor.request(target, body, options)

    async def _home_of(self, destination: Destination) -> Connection:
        """The connection to the broker that a destination lives on."""
        lifeline = await home_of(await self._anonymous(), destination)
        home: Connection = self._homes.of(lifeline).connection
        return home

    async def reply(self, request: Message, body: Body = None, **options: Any) -> Sent | None:
        """Answers a request at its `reply_to`, with its correlation id (or else its message id).

        None: the asker has gone, and its temporary place for replies with it. That is no error, or a listener that
        answers would give the request back, and be given it again.

        Raises:
            InvalidArgumentError: the request names no place for replies.
        """
        if request.reply_to is None:
            raise errors.InvalidArgumentError("the message names no place for replies", subject="reply_to")
        known_by = request.message_id if request.correlation_id is None else request.correlation_id
        options.setdefault("correlation_id", known_by)
        # The asker's place for replies is on the broker that the request came over.
        home: Connection = self._homes.of(part_of(made_of(request)[0].session).lifeline).connection
        try:
            return await home.send(request.reply_to, body, **options)
        except errors.NoSuchDestinationError:
            if request.reply_to.name.startswith(TEMPORARY_PREFIX):
                return None
            raise


class Home:
    """A connection, as the others of its application know it; see `_homes`."""

    def __init__(self, connection: Connection, lifeline: Lifeline) -> None:
        self.connection = connection
        self.lifeline = lifeline

    async def another(self, addresses: tuple[str, ...], client_id: str | None) -> Home:
        """A connection to another broker of the cluster, as the same client unless told otherwise."""
        options = self.lifeline.options
        if client_id is not None:
            options = replace(options, client_id=client_id)
        return (await Connection(addresses, options, self.connection._homes))._home

    def adopt(self, other: _homes.Home) -> None:
        """What happens to a connection that the application does not know of, it hears from this one."""
        other.lifeline.on_interrupted(self.lifeline.on_interrupted.emit)
        other.lifeline.on_restored(self.lifeline.on_restored.emit)
        other.lifeline.on_error(self.lifeline.report)

    async def close(self, *, failed: bool = False, timeout_s: float = 30.0) -> None:
        """Ends this connection alone."""
        await self.lifeline.close(failed=failed, timeout_s=timeout_s)


class Browsing:
    """An iteration over a browser that the default session opens on first use."""

    def __init__(self, connection: Connection, queue: Destination, selector: str, durable: str) -> None:
        self._connection = connection
        self._arguments = (queue, selector, durable)
        self._browser: Consumer | None = None
        self._is_closed = False

    def __aiter__(self) -> Browsing:
        return self

    async def __anext__(self) -> Message:
        if self._is_closed and self._browser is None:
            raise StopAsyncIteration
        return await (self._browser or self._begun(await self._connection.default_session())).__anext__()

    def _begun(self, session: Session) -> Consumer:
        if self._browser is None:  # or another task that iterates over this one has begun meanwhile
            if self._is_closed:
                raise StopAsyncIteration  # meanwhile
            queue, selector, durable = self._arguments
            self._browser = session.browser(queue, selector=selector, durable=durable)
        return self._browser

    async def close(self) -> None:
        """Ends the browser before it has seen everything."""
        self._is_closed = True
        if self._browser is not None:
            await self._browser.close()

    async def __aenter__(self) -> Browsing:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
