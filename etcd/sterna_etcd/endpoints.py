"""The endpoints of one etcd and the channels to them.

A request is sent only over a channel that is connected: so a failure to connect is known to be "not sent", and only
what was sent can have an unknown outcome. A channel is made anew when a certificate's file has changed.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from sterna_etcd import credentials
from sterna_etcd.errors import AccessError, EtcdError, UnavailableError
from sterna_etcd.settings import EtcdSettings, target_of
from sterna_etcd.surroundings import monotonic_s

# etcd closes connections whose pings come more often than every 5 s (its --grpc-keepalive-min-time).
_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
]


def _of_grpc(target: str, credentials: Any, options: list[tuple[str, int]]) -> grpc.aio.Channel:
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=options)
    return grpc.aio.secure_channel(target, credentials, options=options)


make_channel: Callable[[str, Any, list[tuple[str, int]]], grpc.aio.Channel] = _of_grpc
"""Makes a channel of a target, credentials (None: without TLS) and options; a simulation has others."""


class Endpoint:
    """One member as a client sees it."""

    def __init__(self, url: str, settings: EtcdSettings) -> None:
        self.url = url
        self._settings = settings
        self._channel: grpc.aio.Channel | None = None
        self._made_of: tuple[float, ...] = ()
        self._making = asyncio.Lock()
        self._retired: dict[asyncio.Task[None], None] = {}
        self._is_closed = False

    async def ready(self, timeout_s: float) -> grpc.aio.Channel:
        """A connected channel.

        Raises:
            UnavailableError: it could not be connected in time, or files that have changed cannot be used, since
                somebody may be in the middle of writing them; nothing was sent.
            AccessError: a certificate's file cannot be used.
        """
        try:
            return await self._connected(await self._current(), timeout_s)
        except grpc.aio.UsageError as error:
            raise closed(self.url) from error

    async def _connected(self, channel: grpc.aio.Channel, timeout_s: float) -> grpc.aio.Channel:
        deadline = monotonic_s() + timeout_s
        state = channel.get_state(try_to_connect=True)
        seen_connecting = False
        while state is not grpc.ChannelConnectivity.READY:
            # A failure of an earlier attempt is not yet one of this attempt.
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and seen_connecting:
                raise UnavailableError(f"etcd: {self.url} cannot be connected to")
            seen_connecting = seen_connecting or state is grpc.ChannelConnectivity.CONNECTING
            left_s = deadline - monotonic_s()
            if left_s <= 0:
                raise UnavailableError(f"etcd: {self.url} was not connected in time")
            try:
                async with asyncio.timeout(left_s):
                    await channel.wait_for_state_change(state)
            except TimeoutError:
                continue
            state = channel.get_state(try_to_connect=True)
        return channel

    async def close(self) -> None:
        """Ends the channel, and every call on it; another one is not made."""
        self._is_closed = True
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
        for task in self._retired:
            task.cancel()
        await asyncio.gather(*self._retired, return_exceptions=True)

    async def _current(self) -> grpc.aio.Channel:
        """The channel; made anew when the files that it was made of have changed."""
        if not self._settings.is_tls:
            if self._channel is None:
                self._channel = self._made(None)
            return self._channel
        # One after the other: two who find newer files would each make a channel, and retire the other's.
        async with self._making:
            try:
                made_of, parts = await asyncio.to_thread(self._read_files, self._made_of if self._channel else ())
            except AccessError as error:
                if self._channel is None:
                    raise
                raise UnavailableError(str(error)) from error
            if self._channel is None or parts is not None:
                self._retire()
                shown = grpc.ssl_channel_credentials(*(parts or (None, None, None)))
                self._channel, self._made_of = self._made(shown), made_of
            return self._channel

    def _made(self, shown: Any) -> grpc.aio.Channel:
        """A channel that shows these credentials; UnavailableError once we are closed, since nobody would end it."""
        if self._is_closed:
            raise client_closed()
        return make_channel(target_of(self.url), shown, _OPTIONS)

    def _retire(self) -> None:
        """Lets what is under way on the old channel finish; a watch, which never does, is ended and comes anew."""
        if self._channel is not None:
            task = asyncio.create_task(self._channel.close(self._settings.attempt_timeout_ms / 1000))
            self._retired[task] = None
            task.add_done_callback(lambda done: self._retired.pop(done, None))

    def _read_files(self, known: tuple[float, ...]) -> tuple[tuple[float, ...], credentials.Credentials | None]:
        files = (self._settings.ca, self._settings.key, self._settings.cert)
        try:
            stamp = tuple(file.stat().st_mtime_ns for file in files if file is not None) or (0,)
        except OSError as error:
            raise credentials.unreadable(error) from error
        return stamp, None if stamp == known else credentials.load(self._settings)


def closed(url: str) -> UnavailableError:
    """The failure of who had a channel that was retired before anything was sent on it."""
    return UnavailableError(f"etcd: the connection to {url} was closed, for another with a newer certificate")


def client_closed() -> UnavailableError:
    """The failure of who asks a client that is closed."""
    return UnavailableError("etcd: this client is closed")


@contextmanager
def outliving_channel(failure: EtcdError) -> Iterator[None]:
    """For who waits for a call: that its channel was closed under it is a failure, and not the end of the task.

    gRPC raises CancelledError in both cases. A task that ends of the first was asked by nobody to end, and whoever has
    many of them, as the operator its workers, would lose one without a word.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # With its frames the exception would keep the call, and that its channel.
        error.__traceback__ = None
        raise failure from None


class Endpoints:
    """All of them, and the one that is used now."""

    def __init__(self, settings: EtcdSettings) -> None:
        self._all = [Endpoint(url, settings) for url in settings.endpoints]
        self._index = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def current(self) -> Endpoint:
        """The one that requests go to."""
        return self._all[self._index]

    def leave(self, endpoint: Endpoint) -> None:
        """Goes on to the next, unless somebody else has done so already."""
        if self.current is endpoint:
            self._index = (self._index + 1) % len(self._all)

    async def close(self) -> None:
        """Ends all channels."""
        for endpoint in self._all:
            await endpoint.close()
