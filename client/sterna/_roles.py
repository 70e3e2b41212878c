"""What the objects of a connection are to one another, so that none of them has to import the others.

A lifeline is below everything that lives on it: it knows parts of sessions, consumers and producers by what it does
with them, and nothing else of them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from sterna import errors
from sterna._failures import Failures
from sterna._link import Link
from sterna._machines.consuming import ConsumerState
from sterna._machines.producing import Producing
from sterna._machines.settling import SessionState
from sterna.destinations import Destination, DestinationLike
from sterna.modes import AcknowledgeMode, Durability

if TYPE_CHECKING:
    import asyncio

#: What a `Homes` gives: lifelines, which it knows nothing of that stands here.
Place = TypeVar("Place")


class Ending(Protocol):
    """What may be over."""

    @property
    def closed(self) -> errors.SternaError | None:
        """Why it is over; None while it is not."""


class Bystander(Protocol):
    """What wants to know when the stream breaks and when all is over."""

    def interrupted(self, reason: errors.SternaError) -> None:
        """The stream broke."""

    def fail(self, error: errors.SternaError) -> None:
        """The connection is over."""


class LaneRole(Ending, Protocol):
    """A producer as the broker knows it: what frames are for."""

    @property
    def id(self) -> int:
        """Its number on the connection."""

    @property
    def origin(self) -> Any:
        """What the ledger knows it as, where there is one."""

    @property
    def machine(self) -> Producing:
        """What it keeps."""

    def on_credit(self, credit: Any) -> None:
        """ProducerCredit."""

    def on_confirmed(self, confirmed: Any) -> None:
        """Confirmed, one range of a Confirm."""

    def on_rejected(self, rejected: Any) -> None:
        """Rejected."""

    def on_closed(self, error: errors.SternaError) -> None:
        """ProducerClosed, with its reason."""

    async def settled(self) -> None:
        """Waits until everything sent so far is confirmed or failed."""


class FeedRole(Protocol):
    """A consumer as the broker knows it: what frames are for, and what its part asks of it."""

    @property
    def closed(self) -> errors.SternaError | None:
        """Why it is over; None while it is not."""

    @property
    def id(self) -> int:
        """Its number on the connection."""

    @property
    def destination(self) -> Destination:
        """What it takes from."""

    @property
    def browses(self) -> bool:
        """Whether it only looks."""

    @property
    def state(self) -> ConsumerState:
        """Its rules."""

    def moved(self, error: errors.SternaError) -> bool:
        """Whether its destination lives elsewhere now and it goes there."""

    async def open(self, link: Link) -> None:
        """Opens it on the link in use."""

    def move(self, part: Any) -> None:
        """Belongs to another part of the session, or to one that has moved."""

    def on_deliver(self, deliver: Any) -> None:
        """Deliver."""

    def on_drained(self, drained: Any) -> None:
        """Drained."""

    def on_closed(self, error: errors.SternaError) -> None:
        """ConsumerClosed, with its reason."""

    async def reopen(self, link: Link) -> None:
        """Opens it on a new link."""

    def interrupted(self) -> None:
        """The link is gone."""

    def wake_all(self) -> None:
        """Whoever waits for a message looks again."""

    def ask(self) -> None:
        """Has what there is to say written with the next batch."""

    def finish(self) -> None:
        """Whoever asks is done with what it was handed last."""

    async def stop_listening(self) -> None:
        """Lets its listener finish with the message it has."""

    def fail(self, error: errors.SternaError) -> None:
        """It is over."""


class SendingRole(Protocol):
    """A producer of the application, wherever its lanes are."""

    @property
    def destination(self) -> Destination | None:
        """What it sends to; None: anonymous."""

    @property
    def is_following(self) -> bool:
        """Whether it is on its way to another broker."""

    def moved(self, error: errors.MovedError) -> bool:
        """Whether its destination lives elsewhere now and it goes there."""

    async def open_first(self, link: Link) -> None:
        """Opens its lanes where they have not been before."""

    async def reopen(self, link: Link) -> None:
        """Opens its lanes on a new link."""

    def interrupted(self) -> None:
        """The link is gone."""

    @property
    def failures(self) -> Failures:
        """What failed of messages that nobody waits for."""

    async def settled(self) -> None:
        """Waits until everything sent so far is confirmed or failed."""

    def move(self, part: Any) -> None:
        """Belongs to another part of the session, or to one that has moved."""

    def fail(self, error: errors.SternaError) -> None:
        """It is over."""


class PartRole(Ending, Protocol):
    """A session on one broker."""

    @property
    def number(self) -> int:
        """The broker's number for it, on the link in use."""

    @property
    def link(self) -> Link | None:
        """The link in use, once it is open there."""

    @property
    def state(self) -> SessionState:
        """Its rules."""

    @property
    def feeds(self) -> Iterable[FeedRole]:
        """Its consumers."""

    @property
    def producers(self) -> Iterable[SendingRole]:
        """Its producers."""

    async def open(self, link: Link) -> None:
        """Opens it on a new link."""

    def interrupted(self) -> None:
        """The link is gone."""

    def gather(self, link: Link) -> None:
        """Posts what is to be acknowledged."""

    async def flush(self) -> None:
        """Waits until the broker has dealt with everything."""

    async def close(self, *, failed: bool) -> None:
        """Ends it."""

    def on_transaction_ended(self, ended: Any) -> None:
        """The broker has rolled a transaction back by itself."""

    def fail(self, error: errors.SternaError) -> None:
        """It is over."""


class Session(Protocol):
    """What consumers and producers say of the `sterna.Session` that they belong to."""

    mode: AcknowledgeMode
    closed: errors.SternaError | None
    #: The part of it on its own broker, for `_parts.part_of`.
    _part: Any

    async def producer(self, destination: DestinationLike | None = None, **options: Any) -> Any:
        """See Session.producer."""

    async def consumer(self, destination: DestinationLike, *, listener: Any = None, **options: Any) -> Any:
        """See Session.consumer."""

    def browser(self, queue: DestinationLike, *, selector: str = "", durable: str = "") -> Any:
        """See Session.browser."""

    async def unsubscribe(self, name: str) -> None:
        """See Session.unsubscribe."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """See Session.transaction."""

    async def flush(self) -> None:
        """See Session.flush."""

    async def recover(self) -> None:
        """See Session.recover."""

    async def commit(self) -> Durability | None:
        """See Session.commit."""

    async def rollback(self) -> None:
        """See Session.rollback."""

    async def start(self) -> None:
        """See Session.start."""

    async def stop(self) -> None:
        """See Session.stop."""

    async def close(self, *, failed: bool = False) -> None:
        """See Session.close."""


class HomesRole(Protocol, Generic[Place]):
    """Where destinations of other brokers are."""

    @property
    def lifelines(self) -> list[Place]:
        """Those to all brokers that are in use."""

    async def at(self, moved: errors.MovedError) -> Place:
        """The one to where something lives."""

    def named(self, broker: str) -> Place | None:
        """The one to the broker of this name, if there is one."""

    async def seek(self, lost: Place) -> None:
        """Asks by the others where that is now which lives on one that has broken."""

    def spawn(self, work: Coroutine[Any, Any, None], given_up: Callable[[], None]) -> asyncio.Task[None]:
        """Runs something that nobody waits for, until the connection is closed."""
