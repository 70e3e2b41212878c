"""Looking things up by name: connection factories, and the queues and topics that are configured.

    factory = await sterna.lookup("orders", "sterna://a:7222,b:7222")

    async with sterna.Naming("sterna://a:7222,b:7222", user="billing", password=secret) as naming:
        factory = await naming.factory("orders")
        queue = await naming.queue("OrdersIn")

Whoever is not there is passed over: the next address of the URL is asked, and the one that answered is asked first the
next time (EMS-CLI-D29). A name with an address before it, `sterna://host:port/NAME`, is looked up there (EMS-CLI-D28).
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from sterna import errors
from sterna._channels import closing, dialled, refusal
from sterna._secrets import Secret, authorization, reveal
from sterna.destinations import Queue, Topic, destination_from
from sterna.factories import ConnectionFactory, factory_of
from sterna.targets import Given, Target, resolve
from sterna.tls import Tls
from sterna.urls import parse_url

if TYPE_CHECKING:
    import grpc

__all__ = ["Naming", "lookup"]

#: As LookupRequest.Kind has them.
_ANY, _FACTORY, _QUEUE, _TOPIC = range(4)
_OPTIONS: Final = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
#: With one of these another broker may answer.
_ELSEWHERE: Final = (errors.UnreachableError, errors.ConnectionLostError, errors.UnavailableError)


async def lookup(
    name: str,
    url: str | None = None,
    *,
    user: str = "",
    password: Secret = "",
    token: Secret = "",
    tls: Tls | None = None,
    timeout: float = 30.0,
) -> ConnectionFactory | Queue | Topic:
    """What a name, or alias, leads to; arguments as for `Naming`.

    Raises:
        NoSuchDestinationError: to nothing: what clients create by using it is not looked up.
        InvalidArgumentError: to several things: `Naming` can ask for one of a kind.
        UnreachableError: nobody answered at any address.
    """
    async with Naming(url, user=user, password=password, token=token, tls=tls, timeout=timeout) as naming:
        return await naming.lookup(name)


class Naming:
    """Looks names up at the brokers of a URL. It dials when it is first asked; close it, or use `async with`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        user: str = "",
        password: Secret = "",
        token: Secret = "",
        tls: Tls | None = None,
        timeout: float = 30.0,
    ) -> None:
        """Nothing is dialled yet.

        Args:
            url: as for `sterna.connect`, with the same meaning of none; its addresses are asked in turn.
            user: who asks, with `password` or `token`, as for `sterna.connect`. Names with an address before them are
                looked up there with the same; what came from the environment or a context goes to its own URL alone.
            password: asked for at each call, if it is a function.
            token: the same.
            tls: for `sternas://`.
            timeout: how long each address may take to be reached, and again to answer, in seconds.
        """
        self._target = resolve(url, Given(user=user, password=password, token=token), tls=tls)
        self._token = token
        self._timeout = timeout
        self._elsewhere: dict[str, Any] = {"user": user, "password": password, "token": token, "timeout": timeout}
        self._tls = tls
        self._asking = asyncio.Lock()
        # Which address is asked next, and the way to it, where it has answered.
        self._at = 0
        self._channel: grpc.aio.Channel | None = None
        self._is_closed = False
        # Whoever is being answered, each with what is done when it is told; and what asks at other addresses for them.
        self._askers: dict[asyncio.Task[Any], asyncio.Future[None]] = {}
        self._sent_away: set[asyncio.Task[Any]] = set()
        self._others: set[Naming] = set()

    @classmethod
    def at(cls, target: Target, *, timeout: float = 30.0) -> Naming:
        """As made by the URL of `target`, where it has been settled where to and as whom."""
        # Its own text may be longer than a URL may be: it has the ports that were left out.
        made = cls(target.addresses[0], timeout=timeout)
        made._target = target
        return made

    async def __aenter__(self) -> Naming:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Hangs up; whoever is being answered is told so. What was looked up stays usable."""
        for ended in self._end():
            # Whoever waits for it may be cancelled.
            await asyncio.shield(ended)

    def _end(self) -> list[asyncio.Future[None]]:
        """Hangs up without waiting; what is done when that has happened, and everybody has been told."""
        self._is_closed = True
        channel, self._channel = self._channel, None
        ended = [closing(channel)] if channel is not None else []
        for other in self._others:
            ended += other._end()
        for task, told in self._askers.items():
            # What a password's function does is done by the asker itself, which looks before it goes on.
            if task is not asyncio.current_task() and task not in self._sent_away:
                self._sent_away.add(task)
                task.cancel()
            if task in self._sent_away:
                ended.append(told)
        return ended

    async def lookup(self, name: str) -> ConnectionFactory | Queue | Topic:
        """What a name leads to; see `sterna.lookup`."""
        return await self._lookup(name, _ANY)

    async def factory(self, name: str) -> ConnectionFactory:
        """The connection factory of a name, also where a queue or topic has the same."""
        found = await self._lookup(name, _FACTORY)
        assert isinstance(found, ConnectionFactory)  # the broker was asked for nothing else
        return found

    async def queue(self, name: str) -> Queue:
        """The queue of a name."""
        found = await self._lookup(name, _QUEUE)
        assert isinstance(found, Queue)  # the broker was asked for nothing else
        return found

    async def topic(self, name: str) -> Topic:
        """The topic of a name."""
        found = await self._lookup(name, _TOPIC)
        assert isinstance(found, Topic)  # the broker was asked for nothing else
        return found

    async def _lookup(self, name: str, kind: int) -> ConnectionFactory | Queue | Topic:
        self._check_open()
        asker = asyncio.current_task()
        assert asker is not None  # a coroutine runs in one
        self._askers[asker] = told = asyncio.get_running_loop().create_future()
        try:
            if "://" in name:
                return await self._lookup_elsewhere(name, kind)
            async with self._asking:
                return _read(await self._ask(name, kind))
        except asyncio.CancelledError:
            # By `close`, unless others have cancelled it, too.
            if asker in self._sent_away and asker.uncancel() == 0:
                self._check_open()
            raise
        finally:
            del self._askers[asker]
            self._sent_away.discard(asker)
            told.set_result(None)

    async def _lookup_elsewhere(self, name: str, kind: int) -> ConnectionFactory | Queue | Topic:
        """What a name with an address before it leads to."""
        url, own = self._split(name)
        other = Naming(url, tls=self._tls if url.startswith("sternas:") else None, **self._elsewhere)
        self._others.add(other)
        try:
            async with other:
                return await other._lookup(own, kind)
        finally:
            self._others.discard(other)

    def _split(self, name: str) -> tuple[str, str]:
        """The URL and the name of a name with an address before it.

        Raises:
            InvalidArgumentError: it has no such form, or leads to where credentials may not go.
        """
        scheme, _, rest = name.partition("://")
        place, slash, own = rest.partition("/")
        if "@" in rest and not _is_place(place):
            # Said before anything is quoted, as of URLs: what stands before the @ may be a password.
            cause, remedy = "an address holds no user or password", "pass user= and password="
            raise errors.InvalidArgumentError(cause, subject="name", remedy=remedy)
        if not (slash and own) or "," in place or "+" in place or "?" in place:
            cause = f"{name.partition('?')[0]!r} names nothing at one address"
            raise errors.InvalidArgumentError(cause, subject="name", remedy="write sterna://host:port/NAME")
        if self._target.url.secure and scheme != "sternas":
            # Credentials never travel less protected than the application said.
            cause = f"{scheme}://{place} is without TLS, and the own URL is not"
            raise errors.InvalidArgumentError(cause, subject="name", remedy="write sternas://host:port/NAME")
        return f"{scheme}://{place}", own

    async def _ask(self, name: str, kind: int) -> Any:
        """The answer of the first address that gives one, beginning with the one that answered last."""
        addresses = self._target.addresses
        # One that answered before and is gone may be back, as another process: it is dialled anew, too.
        tries = len(addresses) + (self._channel is not None)
        failure: errors.SternaError = errors.UnreachableError("no address was tried")
        for _ in range(tries):
            address = addresses[self._at]
            try:
                return await self._call(address, name, kind)
            except _ELSEWHERE as error:
                failure = error
                await self._leave()
                self._at = (self._at + 1) % len(addresses)
        raise failure

    async def _call(self, address: str, name: str, kind: int) -> Any:
        import grpc

        from sterna._proto.sterna.v1 import naming_pb2, naming_pb2_grpc

        token = await reveal(self._token, "token")
        password = "" if token else await reveal(self._target.password, "password")
        self._check_open()
        if self._channel is None:
            self._channel = await dialled(address, self._target.tls, _OPTIONS, self._timeout)
        stub: Any = naming_pb2_grpc.NamingStub(self._channel)
        request = naming_pb2.LookupRequest(name=name, kind=kind)  # type: ignore[arg-type]
        metadata = authorization(self._target.user, password, token)
        try:
            return await stub.Lookup(request, timeout=self._timeout, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise refusal(error, address) from error

    def _check_open(self) -> None:
        if self._is_closed:
            raise errors.ClosedError("it was closed", subject="naming")

    async def _leave(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            # Whoever waits for it may be cancelled.
            await asyncio.shield(closing(channel))


def _is_place(text: str) -> bool:
    try:
        parse_url(f"sterna://{text}")
    except errors.InvalidArgumentError:
        return False
    return True


def _read(answer: Any) -> ConnectionFactory | Queue | Topic:
    found = answer.WhichOneof("found")
    if found == "factory":
        return factory_of(answer.factory)
    if found == "destination":
        destination = destination_from(answer.destination.kind, answer.destination.name)
        assert isinstance(destination, Queue | Topic)  # there are no others
        return destination
    raise errors.ProtocolError("the broker found something that this client does not know", subject="name")
