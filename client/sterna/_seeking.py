"""Asking one broker of a cluster where that lives which another one had, when nobody answers there.

Opening something tells (MOVED) where its destination lives, by addresses: those of the broker that is gone, perhaps new
ones, or those of another broker. It is asked in a session of its own, which ends at once with what was opened in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sterna import errors
from sterna._link import Link, LinkLostError
from sterna._proto.sterna.v1 import message_pb2
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna._roles import FeedRole, PartRole, SendingRole

if TYPE_CHECKING:
    from sterna._lifeline import Lifeline
    from sterna.destinations import Destination


@dataclass(frozen=True, slots=True)
class _Producing:
    """A producer on a connection that has broken."""

    part: PartRole
    sending: SendingRole
    destination: Destination

    def asking(self, by: Lifeline, named: message_pb2.Destination) -> dict[str, Any]:
        """What asks for it: for what its user may do there."""
        return {"name": "open_producer", "content": pb.OpenProducer(producer=by.next_producer_id(), destination=named)}

    def follow(self, moved: errors.MovedError) -> None:
        """It goes where its destination lives, unless it was closed meanwhile."""
        if self.sending in self.part.producers:
            self.sending.moved(moved)


@dataclass(frozen=True, slots=True)
class _Consuming:
    """A consumer on a connection that has broken."""

    part: PartRole
    feed: FeedRole
    destination: Destination

    def asking(self, by: Lifeline, named: message_pb2.Destination) -> dict[str, Any]:
        """What asks for it: for what its user may do there."""
        number = by.next_consumer_id()
        opening = pb.OpenConsumer(consumer=number, destination=named, browse=self.feed.browses)
        return {"name": "open_consumer", "content": opening}

    def follow(self, moved: errors.MovedError) -> None:
        """It goes where its destination lives, unless it was closed meanwhile; a browser ends with its link."""
        if self.feed in self.part.feeds and not self.feed.browses:
            self.feed.moved(moved)


async def seek(lost: Lifeline, *, by: Lifeline, others: Iterable[Lifeline]) -> bool:
    """Tells `lost` where its broker is now, and sends what lives with one of the `others` by now there.

    Whether anything was said of where it is.

    Raises:
        SternaError: it could not be asked.
    """
    sought = list(_all_on(lost))
    if not sought:
        return True
    link = await by.ready()

    def end(reply: Any) -> None:
        link.end_session(reply.session_opened.session)

    opened = await link.request(0, "open_session", pb.OpenSession(stopped=True), undo=end)
    is_told = False
    try:
        for one in sought:
            moved = await _asked(link, opened.session_opened.session, by, one)
            if moved is None:
                continue
            is_told = True
            addresses = lost.named(moved.addresses)
            if not any(other.address in addresses for other in others):
                lost.also_at(addresses)
                break
            one.follow(moved)
    finally:
        end(opened)
    return is_told


def _all_on(lost: Lifeline) -> Iterator[_Producing | _Consuming]:
    """All that has a destination, and is not on its way anywhere."""
    for part in lost.parts:
        for producer in part.producers:
            if producer.destination is not None and not producer.is_following:
                yield _Producing(part, producer, producer.destination)
        for feed in part.feeds:
            yield _Consuming(part, feed, feed.destination)


async def _asked(link: Link, session: int, by: Lifeline, one: _Producing | _Consuming) -> errors.MovedError | None:
    """What is said of where it lives; None: nothing."""
    kind, name = one.destination.kind, one.destination.name
    named = message_pb2.Destination(kind=kind, name=name)  # type: ignore[arg-type]
    try:
        await link.request(session, **one.asking(by, named))
    except errors.MovedError as moved:
        return moved if moved.addresses else None
    except LinkLostError:
        raise
    except errors.SternaError:
        return None
    here = errors.MovedError(f"{one.destination} lives on the broker '{by.broker}'", subject=name, retryable=True)
    here.addresses = (by.address,)
    return here
