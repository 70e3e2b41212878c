"""The temporary destinations of a connection, which go with each link and come again under other names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from sterna._link import Link
from sterna._proto.sterna.v1 import message_pb2
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna.destinations import Destination, destination_from
from sterna.events import Hook, TemporaryReplaced

T = TypeVar("T")


class Surviving(Protocol):
    """A connection, as what it has made knows it."""

    async def ready(self) -> Link:
        """Waits until there is a restored stream."""

    async def retrying(self, make: Callable[[Link], Awaitable[T]]) -> T:
        """`make` on the link in use, and again on the next one when it breaks meanwhile."""

    def renamed(self, before: Destination, after: Destination) -> None:
        """One has another name, on the link that is being restored; nothing is sent there yet."""


class Temporaries:
    """See the module. An application keeps the name that it was given first; `current` is the one by now."""

    def __init__(self, lifeline: Surviving) -> None:
        self._lifeline = lifeline
        self.on_replaced: Hook[TemporaryReplaced] = Hook("on_temporary_replaced")
        self._current: dict[Destination, Destination] = {}

    async def restore(self, link: Link) -> None:
        """Has each made anew on a new link."""
        for original, current in list(self._current.items()):
            if original not in self._current:
                continue  # it was abandoned while another one was made
            made = await self._make(link, original.kind)
            if original not in self._current:
                _abandon(link, made)
                continue
            self._current[original] = made
            self._lifeline.renamed(current, made)
            self.on_replaced.emit(TemporaryReplaced(current, made))

    async def make(self, kind: int) -> Destination:
        """One that lives as long as the connection, under changing names."""
        made = await self._lifeline.retrying(lambda link: self._make(link, kind))
        self._current[made] = made
        return made

    async def delete(self, destination: Destination) -> None:
        """Deletes one, whatever its name is by then."""

        def gone(_: pb.Reply) -> None:
            self._current.pop(destination, None)

        async def ask(link: Link) -> None:
            # Also where whoever asks has given up: the next link would make it anew.
            await link.request(0, "delete_temporary", _deleting(self.current(destination)), at_once=gone, undo=gone)

        await self._lifeline.retrying(ask)

    def abandon(self, destination: Destination, link: Link | None) -> None:
        """Deletes one without waiting for the broker's word: whoever was about to use it was cancelled."""
        current = self._current.pop(destination, None)
        if current is not None and link is not None:
            _abandon(link, current)

    async def settled(self, destination: Destination) -> Destination:
        """As `current`, waiting while one is being replaced."""
        if destination in self._current:
            await self._lifeline.ready()
        return self.current(destination)

    def current(self, destination: Destination) -> Destination:
        """`destination`, or what took the place of a temporary one."""
        return self._current.get(destination, destination)

    async def _make(self, link: Link, kind: int) -> Destination:
        def undo(reply: pb.Reply) -> None:
            _abandon(link, _made(reply))

        creating = pb.CreateTemporary(kind=kind)  # type: ignore[arg-type]
        return _made(await link.request(0, "create_temporary", creating, undo=undo))


def _made(reply: pb.Reply) -> Destination:
    made = reply.temporary_created.destination
    return destination_from(made.kind, made.name)


def _deleting(destination: Destination) -> pb.DeleteTemporary:
    named = message_pb2.Destination(kind=destination.kind, name=destination.name)  # type: ignore[arg-type]
    return pb.DeleteTemporary(destination=named)


def _abandon(link: Link, destination: Destination) -> None:
    link.tell(0, "delete_temporary", _deleting(destination))
