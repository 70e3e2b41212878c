"""Sessions: the scope of acknowledgements and transactions (EMS-CLI-A05).

A session's mode says who acknowledges what its consumers receive. What the application was handed and has not
acknowledged is kept by source; that is what CLIENT acknowledges, what recover, rollback and close report as seen, and
what becomes void when the connection breaks. Acknowledgements are gathered as ranges and written with the next batch.

A transacted session has one transaction at a time; it begins with the first send or receive after the last one ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sterna import errors
from sterna._acknowledging import (
    AT_ONCE,
    LAZY,
    LAZY_COUNT,
    SOURCES_SPARE,
    Ranges,
    Settled,
    ack_set,
    ranges_of,
    seen_set,
)
from sterna._branches import Branches, following, keep
from sterna._link import Link, LinkLostError
from sterna._listening import Listener
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna.consumers import Consumer, ConsumerOptions
from sterna.destinations import Destination, DestinationLike, destination_of
from sterna.messages import Message
from sterna.modes import AcknowledgeMode, Durability
from sterna.producers import Producer, ProducerOptions

if TYPE_CHECKING:
    from sterna._lifeline import Lifeline


class Session:
    """An ordered conversation inside a connection; made by `connection.session()`. Close it, or use `async with`."""

    def __init__(self, lifeline: Lifeline, mode: AcknowledgeMode, *, stopped: bool = False) -> None:
        self._lifeline = lifeline
        self.mode = mode
        self._number = 0
        self._transacted = mode == AcknowledgeMode.TRANSACTED
        self._acknowledges_itself = mode in AT_ONCE
        self._keeps_track = mode not in AT_ONCE and mode != AcknowledgeMode.NONE
        self.closed: errors.SternaError | None = None
        # Ordered, here and elsewhere: whatever is done for each of them is done in the same order in each run.
        self._consumers: dict[Consumer, None] = {}
        self._producers: dict[Producer, None] = {}
        self._stopped = stopped
        self._handed: dict[int, set[int]] = {}
        self._ranges: dict[int, Ranges] = {}
        self._settled: Settled | None = None
        self._outstanding: list[Settled] = []
        self._gathering = False
        self._lazy = mode in LAZY
        self._lazy_count = 0
        self._link: Link | None = None
        self._transaction = 0
        self._in_transaction = False
        self._transaction_error: errors.SternaError | None = None
        #: In a cluster: what this session has on other brokers. All its parts share one.
        self._branches = Branches(self)

    # --- Opening, on each link anew

    async def _open(self, link: Link) -> None:
        """Opens the session on `link`; its producers and consumers come after it."""
        opening = pb.OpenSession(acknowledge_mode=int(self.mode), stopped=self._stopped)  # type: ignore[arg-type]

        def undo(reply: Any) -> None:
            link.tell(reply.session_opened.session, "close_session", pb.CloseSession())

        reply = await link.request(0, "open_session", opening, undo=undo)
        self._number = reply.session_opened.session
        self._link = link

    def _interrupted(self) -> None:
        """The link is gone, and with it every delivery that was not acknowledged."""
        self._link = None
        # What was to be gathered for the old link is void; the next link is to be asked anew.
        self._gathering = False
        if self._in_transaction:
            cause = "the connection broke during the transaction"
            self._transaction_failed(errors.TransactionRolledBackError(cause, retryable=True))
        self._void()
        for consumer in self._consumers:
            consumer._interrupted()
            if self._transacted:
                consumer._wake_all()  # whoever waits learns that the transaction is lost
        for producer in self._producers:
            producer._interrupted()

    def _void(self) -> None:
        self._handed.clear()
        for ranges in self._ranges.values():
            ranges.take()
        self._lazy_count = 0
        if self._settled is not None:
            self._settled.settle(False)
            self._settled = None

    def _open_link(self) -> Link | None:
        if self.closed is not None:
            raise self.closed
        return self._link

    # --- Making things

    async def producer(self, destination: DestinationLike | None = None, **options: Any) -> Producer:
        """A producer for `destination`, or an anonymous one; options are those of `ProducerOptions` (EMS-CLI-A29).

        Raises:
            NoSuchDestinationError: no such destination, and none may be created under this name.
        """
        target = None if destination is None else destination_of(destination)
        return await self._producer(target, ProducerOptions(**options))

    async def _producer(self, target: Destination | None, options: ProducerOptions) -> Producer:
        async def make(session: Session) -> Producer:
            producer = Producer(session, target, options)
            await session._lifeline.retrying(producer._open_first, session)
            keep(session, producer)
            session._producers[producer] = None
            return producer

        return await following(self, make)

    async def consumer(
        self, destination: DestinationLike, *, listener: Listener | None = None, **options: Any
    ) -> Consumer:
        """A consumer of `destination`; options are those of `ConsumerOptions`.

        With a `listener` (a function or coroutine function of one message) messages are handed to it one by one, and
        acknowledged by the session's mode when it returns (EMS-CLI-A27); without, ask the consumer (EMS-CLI-A26).

        Raises:
            NoSuchDestinationError: no such destination, and none may be created under this name.
            InUseError: another consumer has this durable subscription.
            InvalidSelectorError: with the offset of the character.
        """
        target, chosen = destination_of(destination), ConsumerOptions(**options)

        async def make(session: Session) -> Consumer:
            consumer = Consumer(session, target, chosen)
            await session._add(consumer)
            return consumer

        consumer = await following(self, make)
        if listener is not None:
            consumer._start_listening(listener)
        return consumer

    async def _add(self, consumer: Consumer) -> None:
        await self._lifeline.retrying(consumer._open, self)
        keep(self, consumer)
        self._consumers[consumer] = None

    @property
    def _parts(self) -> list[Session]:
        """This session on its brokers, itself first; a branch has no others."""
        return self._branches.parts if self._branches.root is self else [self]

    def browser(self, queue: DestinationLike, *, selector: str = "", durable: str = "") -> Consumer:
        """Looks at a queue's messages, or with `durable` at a durable subscription's, without taking them.

        Iterate over it: each message once, in order, those that were there; then it ends.
        """
        options = ConsumerOptions(selector=selector, durable=durable, browse=True)
        return Consumer(self, destination_of(queue), options)

    async def unsubscribe(self, name: str) -> None:
        """Ends a durable subscription of this connection's client id, with what it holds (EMS-CLI-A01).

        Raises:
            NoSuchSubscriptionError: there is none of this name.
            InUseError: it has a consumer.
        """
        # A durable lives with its topic, and its name does not say where: whoever has it, among those in use, knows it.
        for other in self._lifeline.homes.connections if self._lifeline.homes is not None else ():
            await self._branches.at(other._lifeline)
        missing: errors.NoSuchSubscriptionError | None = None
        for part in self._parts:

            async def ask(link: Link, part: Session = part) -> None:
                await link.request(part._number, "unsubscribe", pb.Unsubscribe(name=name))

            try:
                await part._lifeline.retrying(ask, part)
            except errors.NoSuchSubscriptionError as error:
                missing = error
            else:
                return
        if missing is not None:
            raise missing

    # --- Starting and stopping deliveries

    async def stop(self) -> None:
        """Suspends deliveries to this session's consumers until `start`."""
        await self._start(stop=True)

    async def start(self) -> None:
        """Lets deliveries go on."""
        await self._start(stop=False)

    async def _start(self, *, stop: bool) -> None:
        for part in self._parts:
            part._stopped = stop

            async def ask(link: Link, part: Session = part) -> None:
                await link.request(part._number, "start", pb.Start(stop=stop))

            await part._lifeline.retrying(ask, part)

    # --- Handing out and acknowledging

    def _hand(self, source: int, sequence: int) -> None:
        """The application was handed a message that it has to settle."""
        kept = self._handed.get(source)
        if kept is None:
            kept = self._handed[source] = set()
        kept.add(sequence)
        if self._transacted:
            self._begin()

    def _finished(self, source: int, sequence: int, epoch: int) -> None:
        """The application is done with a message that the session acknowledges itself."""
        self._ranges_of(source, epoch).add(sequence)
        if not self._gathering:
            self._acknowledge_soon()

    def _ranges_of(self, source: int, epoch: int) -> Ranges:
        """Where what is to be acknowledged of a source gathers."""
        ranges = self._ranges.get(source)
        if ranges is None:
            ranges = self._ranges[source] = Ranges(source, epoch)
        ranges.epoch = epoch
        return ranges

    def _acknowledge_soon(self) -> None:
        """Something was added to the ranges."""
        if self._lazy:
            self._lazy_count += 1
            if self._lazy_count < LAZY_COUNT:
                return
        self._schedule()

    def _dry(self) -> None:
        """A consumer waits: lazy acknowledgements may leave now."""
        if self._lazy and self._lazy_count and not self._gathering:
            self._schedule()

    def _schedule(self) -> None:
        if self._link is not None and not self._gathering:
            self._gathering = True
            self._link.gather(self._gather)

    def _gather(self, link: Link) -> None:
        """Posts what is to be acknowledged."""
        self._gathering = False
        self._lazy_count = 0
        sets = [ack_set(one.source, one.take(), one.epoch) for one in self._ranges.values() if one]
        if len(self._ranges) > 2 * len(self._consumers) + SOURCES_SPARE:
            # Most are of consumers that were closed: going through them each time would cost more and more.
            used = {consumer._source for consumer in self._consumers}
            self._ranges = {source: one for source, one in self._ranges.items() if source in used}
        if not sets:
            return
        settled, self._settled = self._settled or Settled(), None
        self._outstanding.append(settled)

        def settle(_: Any, error: errors.SternaError | None) -> None:
            self._outstanding.remove(settled)
            if error is None or isinstance(error, LinkLostError):
                settled.settle(error is None)
            else:
                settled.settle(False, error)
                self._lifeline.report(error)

        link.begin(self._number, "acknowledge", pb.Ack(sets=sets), settle)

    def _acknowledge(self, message: Message) -> Settled:
        """See Message.acknowledge."""
        link = self._open_link()
        consumer, source = message._consumer, message._consumer._source
        if link is None or message._generation != consumer._generation:
            return Settled(False)
        if not self._keeps_track or self._transacted:
            # The session does it: at once, at the loop's next step, never, or with the commit.
            if self._acknowledges_itself:
                consumer._acknowledge_in_hand(message.sequence)
            return self._settled if self._settled is not None and self._gathering else Settled(True)
        if self.mode == AcknowledgeMode.CLIENT:
            for part in self._branches.parts:
                if part is not self:
                    part._acknowledge_all()
            done = [(source, sequence) for source, kept in self._handed.items() for sequence in sorted(kept)]
            self._handed.clear()
        else:
            kept = self._handed.get(source, set())
            done = [(source, message.sequence)] if message.sequence in kept else []
            kept.discard(message.sequence)
            if not kept:
                self._handed.pop(source, None)
        if not done:
            return Settled(True)
        if self._settled is None:
            self._settled = Settled(hurry=self._dry)
        settled = self._settled
        for one, sequence in done:
            self._finished(one, sequence, link.welcome.epoch)
        return settled

    def _acknowledge_all(self) -> None:
        """Acknowledges what was handed out, in CLIENT mode, because another part of the session does."""
        link, handed = self._link, self._handed
        if link is None:
            return
        self._handed = {}
        for source, kept in handed.items():
            for sequence in sorted(kept):
                self._finished(source, sequence, link.welcome.epoch)

    def _release(self, message: Message) -> None:
        """See Message.release."""
        link = self._open_link()
        consumer = message._consumer
        if link is None or message._generation != consumer._generation:
            return  # it goes back by itself
        if self._keeps_track:
            kept = self._handed.get(consumer._source, set())
            if message.sequence not in kept:
                cause = "the message was acknowledged or given back before"
                raise errors.NotAllowedError(cause, subject=message.message_id)
            kept.discard(message.sequence)
        elif not consumer._in_hand.forget(message.sequence):
            cause = f"a session in {self.mode.name} mode acknowledged the message already"
            raise errors.NotAllowedError(
                cause, subject=message.message_id, remedy="use a session with an explicit mode, or async for"
            )
        self._give_back(link, consumer._source, message.sequence)

    def _give_back(self, link: Link, source: int, sequence: int, *, seen: bool = True) -> None:
        """Releases one message: whether the application has `seen` it decides if that counts as a delivery."""
        sets = [ack_set(source, [(sequence, sequence)], link.welcome.epoch)]
        self._post(link, pb.ClientFrame(session=self._number, release=pb.Release(sets=sets, seen=seen)))

    def _post(self, link: Link, frame: Any) -> None:
        """A frame behind the acknowledgements gathered so far."""
        self._gather(link)
        link.post(frame.SerializeToString())

    async def flush(self) -> None:
        """Waits until the broker has dealt with every acknowledgement made so far, and confirmed what was sent.

        Raises:
            FlushError: messages of `send_soon` failed.
            SternaError: acknowledgements were refused.
        """
        for branch in self._parts[1:]:
            await branch.flush()
        for producer in list(self._producers):
            await producer.flush()
        if self._link is not None:
            self._gather(self._link)
        for settled in list(self._outstanding):
            await settled

    # --- Recovering

    def _seen(self, only: int | None = None) -> list[pb.SeenSet]:
        """What the application was handed and has not settled, of one source or all."""
        sets = {source: set(kept) for source, kept in self._handed.items()}
        for consumer in self._consumers:
            if consumer._in_hand:
                sets.setdefault(consumer._source, set()).update(consumer._in_hand.sequences())
        return [seen_set(source, kept) for source, kept in sets.items() if kept and only in (None, source)]

    def _redeliver(self, recover: pb.Recover, before: pb.ClientFrame | None = None) -> Settled:
        """Asks for redelivery of everything unsettled. Deliveries that come before the reply to `recover` are void.

        A rollback goes `before`: its own reply waits for the disk, and its redeliveries might overtake it.
        """
        link = self._open_link()
        if link is None:
            return Settled(True)
        self._gather(link)
        for consumer in self._consumers:
            consumer._begin_dropping()
        self._handed.clear()
        settled = Settled()

        def settle(_: Any, error: errors.SternaError | None) -> None:
            # Here and not after the await: deliveries that follow the reply are good again.
            for consumer in self._consumers:
                consumer._end_dropping()
            settled.settle(True, None if isinstance(error, LinkLostError) else error)

        if before is not None:
            link.post(before.SerializeToString())
        link.begin(self._number, "recover", recover, settle)
        return settled

    async def recover(self) -> None:
        """Has everything that is unacknowledged delivered again, in order, flagged as redelivered.

        Messages received before are void: acknowledging them does nothing.

        Raises:
            NotAllowedError: in a transacted session; use `rollback`.
        """
        if self._transacted:
            raise errors.NotAllowedError("a transacted session does not recover", remedy="call rollback()")
        for begun in [part._redeliver(pb.Recover(seen=part._seen())) for part in self._branches.parts]:
            await begun

    # --- Transactions

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """Commits what is sent and received inside, or rolls it back when an exception leaves the block.

        Raises:
            TransactionRolledBackError: at the end, when it could not be committed.
            NotAllowedError: when the session is not transacted.
        """
        self._check_transacted()
        try:
            yield self
        except BaseException:
            await self.rollback()
            raise
        await self.commit()

    def _check_transacted(self) -> None:
        """Raises NotAllowedError when the session is not transacted."""
        if self.closed is not None:
            raise self.closed
        if not self._transacted:
            cause = f"the session is in {self.mode.name} mode"
            raise errors.NotAllowedError(cause, remedy="make it with connection.session(transacted=True)")

    def _begin(self) -> None:
        if not self._in_transaction:
            self._in_transaction = True
            self._transaction += 1

    def _transaction_for_send(self) -> int:
        """The id of the current transaction, for a message in it.

        Raises:
            TransactionRolledBackError: the transaction is lost already.
        """
        if self._transaction_error is not None:
            raise self._transaction_error
        self._begin()
        return self._transaction

    def _check_transaction(self) -> None:
        """Raises TransactionRolledBackError when the transaction that a message would be received in is lost.

        It would be of another link than those before it, and no commit could take both.
        """
        if isinstance(self._transaction_error, errors.TransactionRolledBackError):
            raise self._transaction_error

    def _transaction_failed(self, error: errors.SternaError) -> None:
        """The current transaction cannot be committed any more."""
        if self._in_transaction and self._transaction_error is None:
            self._transaction_error = error

    def _end_transaction(self) -> errors.SternaError | None:
        error, self._transaction_error = self._transaction_error, None
        self._in_transaction = False
        return error

    async def commit(self) -> Durability | None:
        """Makes the sends and receives since the last commit take effect together; None when there were none.

        Raises:
            TransactionRolledBackError: nothing took effect; its cause says why.
            TransactionInDoubtError: the connection broke during the commit itself.
        """
        self._check_transacted()
        if not self._in_transaction:
            return None
        if self._transaction_error is not None:
            lost = isinstance(self._transaction_error, errors.TransactionRolledBackError)
            reason = self._transaction_error
            await self.rollback()
            if lost:
                raise reason
            raise errors.TransactionRolledBackError(f"a message was refused: {reason}") from reason
        link = self._open_link()
        if link is None:  # pragma: no cover - interrupted() has set the error
            raise errors.TransactionRolledBackError("the connection is interrupted", retryable=True)
        transaction, handed = self._transaction, self._handed
        self._handed = {}
        sets = [ack_set(source, ranges_of(kept), link.welcome.epoch) for source, kept in handed.items() if kept]
        if sets:
            acknowledge = pb.Ack(sets=sets, transaction=transaction)
            self._post(link, pb.ClientFrame(session=self._number, acknowledge=acknowledge))
        self._end_transaction()
        verb = pb.Transact(transaction=transaction, verb=pb.Transact.COMMIT)
        try:
            reply = await link.request(self._number, "transact", verb)
        except LinkLostError as error:
            cause = "the connection broke while the commit was under way"
            raise errors.TransactionInDoubtError(cause) from error
        except errors.TransactionRolledBackError:
            raise
        except errors.SternaError as error:
            raise errors.TransactionRolledBackError(f"the commit failed: {error.cause}") from error
        if reply.transacted.rolled_back:
            raise errors.TransactionRolledBackError("the broker rolled the transaction back")
        return Durability(reply.transacted.durability)

    async def rollback(self) -> None:
        """Undoes the sends and receives since the last commit; what was received comes again, flagged."""
        self._check_transacted()
        if not self._in_transaction:
            return
        seen = self._seen()
        lost = self._end_transaction()
        if lost is None or not isinstance(lost, errors.TransactionRolledBackError):
            verb = pb.Transact(transaction=self._transaction, verb=pb.Transact.ROLLBACK, seen=seen)
            await self._redeliver(pb.Recover(), before=pb.ClientFrame(session=self._number, transact=verb))

    # --- Closing

    def _fail(self, error: errors.SternaError) -> None:
        """The session is over: whoever waits in it learns why."""
        if self.closed is not None:
            return
        self.closed = error
        self._lifeline.forget(self)
        self._void()
        for consumer in [*self._consumers, *self._branches.followers_of(self)]:
            consumer._fail(error)
        for producer in list(self._producers):
            producer._fail(error)

    async def close(self, *, failed: bool = False) -> None:
        """Ends the session: an open transaction is rolled back, what is unacknowledged is delivered again to others.

        In AUTO mode what the caller's own iteration handed out last counts as done, unless `failed`; what another task
        has in hand comes again, flagged. What was only prefetched goes back uncounted (EMS-DEST-A23).
        """
        if self.closed is not None:
            return
        await self._branches.leave(self)
        failure = await self._flush_producers()
        for consumer in list(self._consumers):
            await consumer._stop_listening()
            if not failed:
                consumer._finish()
        while branches := self._parts[1:]:
            await branches[0].close(failed=failed)
        link = self._link
        seen = self._seen()
        if link is not None:
            self._gather(link)
        outstanding = list(self._outstanding)
        self._fail(errors.ClosedError("the session was closed", subject="session"))
        if link is not None:
            with contextlib.suppress(LinkLostError, errors.ClosedError):
                await link.request(self._number, "close_session", pb.CloseSession(seen=seen))
            for one in outstanding:
                with contextlib.suppress(errors.SternaError):
                    await one  # a refusal was reported when it came
        if failure is not None and not failed:
            raise failure

    async def _flush_producers(self) -> errors.SternaError | None:
        failure: errors.SternaError | None = None
        for producer in list(self._producers):
            if not self._transacted:
                try:
                    await producer.flush()
                except errors.SternaError as error:
                    failure = failure or error
        return failure

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(failed=kind is not None)
