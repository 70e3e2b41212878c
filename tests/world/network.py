"""The network: who listens where, and connections that deliver in order, after a latency.

A connection can stall, be cut so that only one side notices, or break. What was under way then is lost. On it stand
calls (`calls`), which a channel (`channels`) begins and a server (`servers`) answers: what our code uses of grpc.aio.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.world.loop import SimulatedLoop
from tests.world.processes import Process

if TYPE_CHECKING:
    from tests.world.calls import Call
    from tests.world.servers import Server

#: After so long without a word the side that did not notice takes a connection for broken (keepalive).
_CLIENT_SILENCE_S: Final = 40.0
_SERVER_SILENCE_S: Final = 50.0


class Network:
    """Who listens where, and how well they are connected."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.slow = 0.02
        """The share of packets that take long."""

        self._listening: dict[str, Server] = {}
        self._links: list[Link] = []
        self._apart: list[tuple[Process, Process]] = []
        self._ports = itertools.count(40_000)
        self._free_ports = itertools.count(7_000)

    def latency_s(self) -> float:
        """How long a packet takes now."""
        if self.random.random() < self.slow:
            return self.random.uniform(0.001, 0.05)
        return self.random.uniform(0.00002, 0.0004)

    def free_port(self) -> int:
        """One to listen on that nobody else has."""
        return next(self._free_ports)

    def listen(self, address: str, server: Server) -> None:
        """A server is to be had there from now on."""
        self._listening[address] = server

    def forget(self, address: str, server: Server) -> None:
        """It is not any more."""
        if self._listening.get(address) is server:
            del self._listening[address]

    def server_at(self, address: str) -> Server | None:
        """Who listens there."""
        server = self._listening.get(address)
        return None if server is None or server.process.is_dead else server

    def are_apart(self, one: Process, other: Process) -> bool:
        """Whether nothing gets from one to the other."""
        return bool(self._apart) and any({one, other} == {*pair} for pair in self._apart)

    def part(self, one: Process, other: Process) -> None:
        """Nothing gets through between two processes, and nobody is told."""
        self._apart.append((one, other))

    def heal(self) -> None:
        """Everything gets through again, late, where it was not given up meanwhile."""
        self._apart.clear()
        for link in list(self._links):
            link.flush()

    def link(self, client: Process, server: Server) -> Link:
        """A connection."""
        link = Link(self, client, server, next(self._ports))
        self._links.append(link)
        return link

    @property
    def links(self) -> list[Link]:
        """All connections there are."""
        self._links = [one for one in self._links if not one.is_gone]
        return self._links


class Link:
    """One connection: two directions, each in order. `client_knows` and `server_knows`: who has noticed its end."""

    def __init__(self, network: Network, client: Process, server: Server, port: int) -> None:
        self.network = network
        self.client = client
        self.server = server
        self.peer = f"ipv4:10.0.0.1:{port}"
        self.calls: dict[Call, None] = {}
        self.client_knows = self.server_knows = False
        self.on_client_end: list[Callable[[], None]] = []
        self._stalled = False
        self._held: list[tuple[bool, Callable[..., None], tuple[Any, ...]]] = []
        self._last_s = {True: 0.0, False: 0.0}
        client.on_death.append(self._client_died)
        server.process.on_death.append(self._server_died)

    @property
    def is_gone(self) -> bool:
        """Whether both sides know that it has ended."""
        return self.client_knows and self.server_knows

    @property
    def is_up(self) -> bool:
        """Whether neither side knows of an end."""
        return not (self.client_knows or self.server_knows)

    def send(self, to_server: bool, deliver: Callable[..., None], *arguments: Any) -> None:
        """Has the other side do something, after all that was sent before."""
        if self.client_knows or self.server_knows:
            return  # one side has closed: what is on its way to it is answered with a reset
        if self._stalled or self._held or self.network.are_apart(self.client, self.server.process):
            self._held.append((to_server, deliver, arguments))
            if not self._stalled:
                self._give_up_later()
            return
        self._schedule(to_server, deliver, arguments)

    def _schedule(self, to_server: bool, deliver: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        loop = self.network.loop
        when_s = max(loop.time() + self.network.latency_s(), self._last_s[to_server] + 1e-6)
        self._last_s[to_server] = when_s
        target = self.server.process if to_server else self.client
        loop.at(target, when_s - loop.time(), self._deliver, to_server, deliver, arguments)

    def _deliver(self, to_server: bool, deliver: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not (self.server_knows if to_server else self.client_knows):
            deliver(*arguments)

    def stall(self, seconds: float) -> None:
        """Nothing arrives for a while."""
        if not self._stalled:
            self._stalled = True
            self.network.loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._stalled = False
        self.flush()

    def flush(self) -> None:
        """What was held back goes on, if nothing holds it any more."""
        if self._stalled or self.network.are_apart(self.client, self.server.process):
            return
        held, self._held = self._held, []
        for to_server, deliver, arguments in held:
            if not (self.client_knows or self.server_knows):
                self._schedule(to_server, deliver, arguments)

    def _give_up_later(self) -> None:
        loop = self.network.loop
        loop.at(self.client, _CLIENT_SILENCE_S, self._give_up, False)
        loop.at(self.server.process, _SERVER_SILENCE_S, self._give_up, True)

    def _give_up(self, server: bool) -> None:
        if self._held:
            self._end(server)

    def break_(self, *, client_after_s: float | None = 0.0, server_after_s: float | None = 0.0) -> None:
        """It ends; each side notices after so long (None: when it has heard nothing for too long)."""
        loop = self.network.loop
        self._held.clear()
        client_s = _CLIENT_SILENCE_S if client_after_s is None else client_after_s
        server_s = _SERVER_SILENCE_S if server_after_s is None else server_after_s
        self._stalled = True  # what is sent meanwhile gets nowhere
        loop.at(self.client, client_s, self._end, False)
        loop.at(self.server.process, server_s, self._end, True)

    def close_by_client(self) -> None:
        """The client closes its channel: the server learns of it, behind what was sent."""
        if self.client_knows:
            return
        self.send(True, self._end, True)
        self._end(False)

    def close_by_server(self) -> None:
        """The server ends: the client learns of it, behind what was sent."""
        if self.server_knows:
            return
        self.send(False, self._end, False)
        self._end(True)

    def _client_died(self) -> None:
        # The kernel closes the sockets of a process that dies.
        if not self.server_knows:
            self.client_knows = True
            self.network.loop.at(self.server.process, self.network.latency_s(), self._end, True)

    def _server_died(self) -> None:
        if not self.client_knows:
            self.server_knows = True
            self.network.loop.at(self.client, self.network.latency_s(), self._end, False)

    def _end(self, server: bool) -> None:
        if server:
            if not self.server_knows:
                self.server_knows = True
                for call in list(self.calls):
                    call.server_lost()
        elif not self.client_knows:
            self.client_knows = True
            for call in list(self.calls):
                call.client_lost()
            for told in self.on_client_end:
                told()
