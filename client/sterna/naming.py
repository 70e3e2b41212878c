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
            timeout: how long each address may take to answer, in seconds.
        """
        self._target = resolve(url, Given(user=user, password=password), tls=tls)
        self._token = token
        self._timeout = timeout
        self._elsewhere: dict[str, Any] = {"user": user, "password": password, "token": token, "timeout": timeout}
        self._tls = tls
        self._asking = asyncio.Lock()
        # Which address is asked next, and the way to it, where it has answered.
        self._at = 0
        self._channel: grpc.aio.Channel | None = None
        self._is_closed = False

    @classmethod
    def at(cls, target: Target, *, timeout: float = 30.0) -> Naming:
        """As made by the URL of `target`, where it has been settled where to and as whom."""
        made = cls(str(target.url), timeout=timeout)
        made._target = target
        return made

    async def __aenter__(self) -> Naming:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Hangs up. What was looked up stays usable."""
        self._is_closed = True
        await self._leave()

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
        scheme, separator, rest = name.partition("://")
        if separator:
            place, slash, own = rest.partition("/")
            if not (slash and own) or "," in place or "+" in place or "?" in place:
                cause = f"{name.partition('?')[0]!r} names nothing at one address"
                raise errors.InvalidArgumentError(cause, subject="name", remedy="write sterna://host:port/NAME")
            if self._target.url.secure and scheme != "sternas":
                # Credentials never travel less protected than the application said.
                cause = f"{scheme}://{place} is without TLS, and the own URL is not"
                raise errors.InvalidArgumentError(cause, subject="name", remedy="write sternas://host:port/NAME")
            tls = self._tls if scheme == "sternas" else None
            async with Naming(f"{scheme}://{place}", tls=tls, **self._elsewhere) as other:
                return await other._lookup(own, kind)
        async with self._asking:
            return _read(await self._ask(name, kind))

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
            if self._is_closed:
                await self._leave()
                self._check_open()
        stub: Any = naming_pb2_grpc.NamingStub(self._channel)
        request = naming_pb2.LookupRequest(name=name, kind=kind)  # type: ignore[arg-type]
        metadata = authorization(self._target.user, password, token)
        try:
            return await stub.Lookup(request, timeout=self._timeout, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise refusal(error, address) from error
        except asyncio.CancelledError:
            # Whoever closes the channel cancels the call, and not the task that waits for it.
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                self._check_open()
            raise

    def _check_open(self) -> None:
        if self._is_closed:
            raise errors.ClosedError("it was closed", subject="naming")

    async def _leave(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            # Whoever waits for it may be cancelled.
            await asyncio.shield(closing(channel))


def _read(answer: Any) -> ConnectionFactory | Queue | Topic:
    found = answer.WhichOneof("found")
    if found == "factory":
        return factory_of(answer.factory)
    if found == "destination":
        destination = destination_from(answer.destination.kind, answer.destination.name)
        assert isinstance(destination, Queue | Topic)  # there are no others
        return destination
    raise errors.ProtocolError("the broker found something that this client does not know", subject="name")
