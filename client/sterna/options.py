"""What `connect` is told: who asks, how patient it is, and how hard it tries after a break."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna._secrets import Secret, reveal
from sterna._surroundings import uniform
from sterna.tls import Tls

if TYPE_CHECKING:
    from sterna._ledger import Book


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnect:
    """How hard to try after the stream broke.

    Pauses between rounds over all addresses grow from `initial_ms` to `maximum_ms`, each shortened by a random part of
    up to half. After `give_up_after_s` seconds (None: never) the connection closes with ConnectionLostError.
    """

    initial_ms: int = 50
    maximum_ms: int = 3000
    give_up_after_s: float | None = 120.0

    def pause_s(self, round_: int) -> float:
        """The pause after so many rounds without success."""
        longest: float = min(self.initial_ms << min(round_, 20), self.maximum_ms) / 1000
        return longest * uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Options:
    """What `connect` was told. Secrets never show in its representation."""

    client_id: str
    user: str
    password: Secret = field(repr=False)
    token: Secret = field(repr=False)
    product: str
    heartbeat_ms: int
    connect_timeout_s: float
    connect_attempts: int
    reconnect: Reconnect
    tls: Tls | None = None
    #: What an application's connection and its hidden ones write their ledger into.
    book: Book | None = field(default=None, repr=False)
    connect_delay_ms: int = 500

    def pause_s(self) -> float:
        """The pause between two rounds over all addresses before the first connection."""
        return self.connect_delay_ms / 1000 * uniform(0.5, 1.0)

    async def hello(self) -> pb.Hello:
        """The greeting, with credentials as they are at this moment.

        Raises:
            UnauthenticatedError: they could not be had.
        """
        token = await reveal(self.token, "token")
        password = "" if token else await reveal(self.password, "password")
        hello = pb.Hello(
            protocol_version=1,
            client_id=self.client_id,
            product=self.product,
            host=socket.gethostname(),
            heartbeat_ms=self.heartbeat_ms,
        )
        if token:
            hello.credentials.token = token
        elif self.user or password:
            hello.credentials.password.user = self.user
            hello.credentials.password.password = password
        return hello
