"""The oracle: what a user of EMS may observe, as plain Python. It reads no clock and opens no socket.

Whoever tests a provider tells the oracle each step that was taken, asks it which observations are allowed, and tells it
what was observed. Where one observation alone is right it allows one; where several are, all of them:

| what | what is allowed | rows |
|---|---|---|
| which of several consumers gets a message, which standby follows | any | EMS-DEST-A12, A13 |
| what a consumer had fetched when it vanished | flagged and counted, or not | EMS-DEST-A23, A28 |
| a NON_PERSISTENT or RELIABLE message after a restart | there, or not | EMS-STORE-A01 |
| a send, acknowledgement or commit that nobody answered | it took effect as a whole, or not at all | EMS-TX-A03 |
| what was acknowledged lazily | there, or not, until the session is closed | EMS-CLI-A05, A08 |
| the redelivered flag of what nobody saw, after a restart | set, or not | EMS-MSG-A20 |
| what was purged, discarded or acknowledged by its session just before a kill | there, or not | EMS-STORE-A02 |
| where a transaction's message stands | where it was sent, or committed | EMS-TX-D01 |
| who subscribed between a send and its commit | gets it, or not | EMS-CLI-A01, TX-D01 |
| the room for what other transactions have sent so far | is taken, or not yet | EMS-TX-A06 |

The rules name the rows of the catalogue (tests/catalogue) that they come from. Backlogs are in `oracle_backlog.py`.
Left out are bridges, delivery and redelivery delays, temporary destinations, patterns, and connections that live on
through a restart; and a limited destination's consumers do not acknowledge lazily.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.conformance.oracle_backlog import SELECTORS, Backlog, Consumer, Draft, Fate, Item, Properties, Seen

#: Modes in which what is received stays in hand until it is acknowledged, committed or given back (EMS-CLI-A05).
HOLDING = ("CLIENT", "EXPLICIT", "EXPLICIT_DUPS_OK", "TRANSACTED")


@dataclass(frozen=True)
class Pending:
    """A message that waits for the commit; behind which number it was sent, and who was there to get it then."""

    name: str
    draft: Draft
    number: int = 0
    targets: tuple[Backlog, ...] = ()


@dataclass(eq=False)
class Session:
    """A session on a connection of its own."""

    mode: str
    consumers: list[Consumer] = field(default_factory=list)
    #: What its application has in hand, as it was received.
    in_hand: list[tuple[Backlog, Item]] = field(default_factory=list)
    #: What it has sent in the transaction under way.
    sends: list[Pending] = field(default_factory=list)


@dataclass
class Removal:
    """An item that is gone, without a confirmation that this is for ever; and its copy in the undelivered queue."""

    backlog: Backlog
    item: Item
    copy: Item | None = None


class Oracle:
    """A server with queues, topics and subscriptions."""

    def __init__(self) -> None:
        self.undelivered = Backlog("$sys.undelivered", keeps_undelivered=True)
        self.queues: dict[str, Backlog] = {}
        #: The subscriptions to each topic, by their names.
        self.topics: dict[str, dict[str, Backlog]] = {}
        self.properties: dict[str, Properties] = {}
        self.sessions: list[Session] = []
        self._unsettled: list[Removal] = []
        self._number = 0
        self._tick = 0

    # --- Destinations and subscriptions

    def define_queue(self, name: str, properties: Properties) -> None:
        """A static queue (EMS-DEST-A03)."""
        self.properties[name] = properties
        self.queues[name] = Backlog(name, properties)

    def define_topic(self, name: str, properties: Properties) -> None:
        """A static topic."""
        self.properties[name] = properties
        self.topics[name] = {}

    def delete_queue(self, name: str) -> None:
        """With all that it holds; `$sys.undelivered` keeps nothing of it (EMS-MSG-A08)."""
        del self.queues[name]

    def backlogs(self) -> list[Backlog]:
        """All of them, the undelivered queue last."""
        subscriptions = [one for topic in self.topics.values() for one in topic.values()]
        return [*self.queues.values(), *subscriptions, self.undelivered]

    def targets(self, name: str, draft: Draft) -> list[Backlog]:
        """Who gets what is sent there: a queue, or each subscription that wants it, once (EMS-DEST-A02, CLI-A03)."""
        if name in self.queues:
            return [self.queues[name]]
        return [one for one in self.topics[name].values() if SELECTORS[one.selector](draft)]

    def unsubscribe(self, topic: str, name: str) -> None:
        """It ends with all that it holds (EMS-CLI-A01)."""
        del self.topics[topic][name]

    # --- Sending

    def may_send(self, session: Session, name: str, draft: Draft) -> set[bool]:
        """Whether the send is accepted (True) or refused as the destination is full (EMS-DEST-A24)."""
        if session.mode == "TRANSACTED":
            # It is judged at the send or at the commit.
            return {True, *self._have_room(session, Pending(name, draft), without=())}
        if draft.mode == "RELIABLE":
            return {True}  # never refused: what finds no room is dropped (EMS-MSG-A19)
        # What other transactions have sent so far has its room already, or not yet (EMS-TX-A06).
        return {self._has_room(name, draft), self._has_room(name, draft, besides=self._reserved(name, session))}

    def sent(self, session: Session, name: str, draft: Draft) -> None:
        """It was accepted."""
        if session.mode == "TRANSACTED":
            self._number += 1
            session.sends.append(Pending(name, draft, self._number, tuple(self.targets(name, draft))))
        elif draft.mode != "RELIABLE" or self._has_room(name, draft):
            self._confirm(self._put(name, draft, self._reserved(name, session)))

    def _reserved(self, name: str, session: Session) -> list[Draft]:
        """What others have sent there in transactions under way."""
        others = [one for one in self.sessions if one is not session]
        return [sent.draft for one in others for sent in one.sends if sent.name == name]

    def _has_room(self, name: str, draft: Draft, without: Iterable[Item] = (), besides: Sequence[Draft] = ()) -> bool:
        overflow = self.properties[name].overflow
        targets = self.targets(name, draft)
        if name in self.topics:
            # Who is full does not get it; with rejectIncoming nobody does (EMS-DEST-A20, A24).
            return overflow != "reject" or all(one.fits(draft, without=without) for one in targets)
        [queue] = targets
        if overflow == "discardOld":
            return queue.overflowing(draft) is not None
        return queue.fits(draft, without=without, besides=besides)

    def _confirm(self, items: list[tuple[Backlog, Item]]) -> None:
        """The server has confirmed them: with what it stores, all that was before stands (EMS-MSG-A17, STORE-A03)."""
        if any(backlog.is_durable and item.draft.mode == "PERSISTENT" for backlog, item in items):
            self.settle()

    def _put(self, name: str, draft: Draft, reserved: Sequence[Draft] = ()) -> list[tuple[Backlog, Item]]:
        """It arrives wherever it is wanted and there is room."""
        self._tick += 1
        added = []
        for backlog in self.targets(name, draft):
            if self.properties[name].overflow == "discardOld":
                for item in backlog.overflowing(draft) or []:
                    self._remove(backlog, item)  # silently, whoever asked (EMS-MSG-A08)
            if backlog.fits(draft):
                self._number += 1
                is_sure = draft.mode != "RELIABLE" or backlog.fits(draft, besides=reserved)
                item = backlog.add(draft, self._number, self._tick)
                item.fate = None if is_sure else Fate(f"that {draft.body[:6]} found room")
                added.append((backlog, item))
                if draft.time_to_live == "short" and not backlog.properties.expiration:
                    self._undeliver(backlog, item)  # EMS-MSG-A04; the destination's expiration wins
        return added

    # --- Receiving

    def subscribe(
        self,
        session: Session,
        source: str,
        *,
        selector: str,
        prefetch: int,
        subscription: str = "",
        is_durable: bool = True,
    ) -> Consumer:
        """A consumer of a queue, or of a subscription, which is made if it is not there (EMS-CLI-A01, A02)."""
        self._tick += 1
        if source in self.queues:
            backlog = self.queues[source]
        else:
            fresh = Backlog(subscription, self.properties[source], False, is_durable, selector)
            backlog, selector = self.topics[source].setdefault(subscription, fresh), ""
        consumer = Consumer(session, backlog, selector, prefetch)
        backlog.open(consumer, self._tick)
        session.consumers.append(consumer)
        return consumer

    def received(self, consumer: Consumer, item: Item, seen: Seen) -> None:
        """The application has it, as it has seen it."""
        session, backlog = consumer.session, consumer.backlog
        item.marks, item.fate = frozenset({seen.marks}), None
        if backlog.properties.exclusive:
            backlog.active = [consumer]
        if session.mode in HOLDING:
            item.is_held = True
            session.in_hand.append((backlog, item))
        elif session.mode == "DUPS_OK":
            item.leaves_with = session
        elif session.mode == "NONE":
            backlog.items.remove(item)  # at most once (EMS-CLI-A06)
        else:
            self._remove(backlog, item, seen=True)  # AUTO acknowledges as the receive returns

    def close_consumer(self, consumer: Consumer) -> None:
        """What it had fetched goes back as it was; what was received stays with the session."""
        self._tick += 1
        consumer.session.consumers.remove(consumer)
        consumer.backlog.close(consumer, self._tick)
        self._forget_unused()

    def _forget_unused(self) -> None:
        """Non-durable subscriptions end with their last consumer, shared ones as well (EMS-DEST-A02, CLI-A02)."""
        for subscriptions in self.topics.values():
            for name, backlog in list(subscriptions.items()):
                if not backlog.is_durable and not backlog.consumers:
                    del subscriptions[name]
                    for session in self.sessions:
                        session.in_hand = [one for one in session.in_hand if one[0] is not backlog]

    # --- Acknowledging

    def acknowledge(self, session: Session, index: int, *, alone: bool) -> None:
        """One in hand: in EXPLICIT modes that one alone (EMS-CLI-A07, A08), as if so asked (A05); else all there is."""
        chosen = self._covered(session, index, alone=alone)
        for backlog, item in chosen:
            session.in_hand.remove((backlog, item))
            item.is_held = False
            if session.mode == "EXPLICIT_DUPS_OK":
                item.leaves_with = session
            elif item in backlog.items:
                backlog.items.remove(item)
        if session.mode != "EXPLICIT_DUPS_OK":
            self._confirm(chosen)

    def _covered(self, session: Session, index: int, *, alone: bool) -> list[tuple[Backlog, Item]]:
        alone = alone or session.mode.startswith("EXPLICIT")
        return [session.in_hand[index]] if alone else list(session.in_hand)

    def recover(self, session: Session) -> None:
        """All that is in hand comes again, flagged and counted, in its old place (EMS-MSG-A20, CLI-A05)."""
        self._give_back(session)
        for consumer in session.consumers:
            consumer.opened = self._tick

    def _give_back(self, session: Session) -> None:
        self._tick += 1
        for backlog, item in session.in_hand:
            if item in backlog.items:
                self._return(backlog, item, sure=True)
        session.in_hand.clear()

    def _return(self, backlog: Backlog, item: Item, *, sure: bool) -> None:
        """It was delivered, or may have been, and is free again; or it came often enough (EMS-DEST-A23)."""
        limit = backlog.properties.max_redelivery
        again = {(True, count + 1) for _, count in item.marks}
        over = {marks for marks in again if limit and marks[1] > limit}
        item.is_held, item.leaves_with = False, None
        item.free_until = self._tick
        if sure:
            item.free_from = self._tick
        item.marks = frozenset(again - over if sure else (again - over) | item.marks)
        if over and sure and not item.marks:
            self._undeliver(backlog, item)
        elif over:
            self._perhaps_undeliver(backlog, item, f"{item.draft.body[:6]} was delivered too often")

    # --- Transactions

    def may_commit(self, session: Session) -> set[bool]:
        """Whether it is committed; nothing of it arrives where a part finds no room (EMS-TX-A06, D01)."""
        # What it acknowledges makes room for what it sends, or does not.
        own = [item for _, item in session.in_hand]
        return self._have_room(session, without=()) | self._have_room(session, without=own)

    def _have_room(self, session: Session, *more: Pending, without: Iterable[Item]) -> set[bool]:
        """Whether there is room for all it has sent; a RELIABLE one without is dropped, or counts like any other."""
        added: list[tuple[Backlog, Item]] = []
        allowed = {True}
        for name, draft in [(one.name, one.draft) for one in (*session.sends, *more)]:
            if not self._has_room(name, draft, without, self._reserved(name, session)):
                allowed |= {False}
            if not self._has_room(name, draft, without):
                allowed = {False} if draft.mode != "RELIABLE" else allowed | {False}
            if True not in allowed:
                break
            targets = [one for one in self.targets(name, draft) if one.fits(draft, without=without)]
            added += [(one, one.add(draft, 0, 0)) for one in targets]
        for backlog, item in added:
            backlog.items.remove(item)
        return allowed

    def commit(self, session: Session) -> None:
        """What was received is done with, what was sent arrives in its order (EMS-TX-D01)."""
        for backlog, item in session.in_hand:
            if item in backlog.items:
                backlog.items.remove(item)
        items = list(session.in_hand)
        items += self._put_sends(session)
        self._confirm(items)
        session.in_hand.clear()

    def _put_sends(self, session: Session) -> list[tuple[Backlog, Item]]:
        """They arrive in their order, where they would be if they had not waited for the commit, or at the end.

        Who subscribed between a send and the commit gets what was sent, or not.
        """
        added = []
        for pending in session.sends:
            for backlog, item in self._put(pending.name, pending.draft, self._reserved(pending.name, session)):
                item.number_at_send = pending.number
                if backlog not in pending.targets:
                    item.fate = Fate(f"that {backlog.name} gets {item.draft.body[:6]}")
                added.append((backlog, item))
        session.sends.clear()
        return added

    def rollback(self, session: Session) -> None:
        """What was sent never was, what was received comes again (EMS-TX-A05)."""
        session.sends.clear()
        self.recover(session)

    # --- Ends of sessions

    def open_session(self, mode: str) -> Session:
        """A session, on a connection of its own."""
        session = Session(mode)
        self.sessions.append(session)
        return session

    def close_session(self, session: Session) -> None:
        """What is in hand comes again, lazy acknowledgements are done, the rest is as before (EMS-DEST-A23)."""
        session.sends.clear()
        self._give_back(session)
        for backlog, item in self._leaving(session):
            self._remove(backlog, item, seen=True)
        for consumer in list(session.consumers):
            self.close_consumer(consumer)
        self.sessions.remove(session)

    def lose_session(self, session: Session) -> None:
        """Its client vanished: all that was sent to it counts as delivered (EMS-DEST-A23)."""
        session.sends.clear()
        self._give_back(session)
        for backlog, item in self._leaving(session):
            self._perhaps_gone(item)
            self._return(backlog, item, sure=True)
        for consumer in list(session.consumers):
            for item in consumer.backlog.fetched_by(consumer):
                self._return(consumer.backlog, item, sure=False)
            self.close_consumer(consumer)
        self.sessions.remove(session)

    def _leaving(self, session: Session) -> list[tuple[Backlog, Item]]:
        return [(one, item) for one in self.backlogs() for item in one.items if item.leaves_with is session]

    # --- Administration

    def purge(self, backlog: Backlog) -> tuple[int, int]:
        """All goes, in hand or not; how many at least, and at most. Nothing is kept as undelivered (EMS-MSG-A08)."""
        counts = backlog.counts()
        for item in list(backlog.items):
            self._remove(backlog, item, seen=item.is_held or item.is_leaving)
        for session in self.sessions:
            session.in_hand = [one for one in session.in_hand if one[0] is not backlog]
        return counts

    def settle(self) -> None:
        """Something persistent was confirmed, and so all that happened before it stands."""
        self._unsettled.clear()

    def restart(self, *, is_kill: bool) -> None:
        """The server ends, or is killed, with all sessions under it, and begins again over what it had stored.

        Counts begin anew; the flag is there where somebody saw the message, and may be where nobody did (EMS-MSG-A20).
        """
        if not is_kill:
            self.settle()
        for backlog in self.backlogs():
            fetched = {item for consumer in backlog.consumers for item in backlog.fetched_by(consumer)}
            for item in list(backlog.items):
                self._survive(backlog, item, item in fetched)
            backlog.consumers, backlog.active = [], []
        self.sessions.clear()
        self._forget_unused()
        for removal in self._unsettled:
            self._perhaps_back(removal)
        self._unsettled.clear()

    def _survive(self, backlog: Backlog, item: Item, was_fetched: bool) -> None:
        """A restart happens to an item."""
        limit, is_seen = backlog.properties.max_redelivery, item.is_held or item.is_leaving
        if limit and (is_seen or was_fetched) and any(count >= limit for _, count in item.marks):
            # It came often enough, or its count is forgotten before somebody looks (EMS-DEST-A23, MSG-A20).
            self._perhaps_undeliver(backlog, item, f"{item.draft.body[:6]} was delivered too often")
        elif item.is_leaving or item.draft.mode != "PERSISTENT":
            self._perhaps_gone(item)  # EMS-CLI-A05; STORE-A01
        flags = {True} if is_seen else {flag for flag, _ in item.marks} | {True}
        item.marks = frozenset((flag, 1) for flag in flags)
        item.is_held, item.leaves_with = False, None

    # --- What nobody answered. To be told before the restart that it was under way at

    def sent_unanswered(self, name: str, draft: Draft) -> None:
        """Confirmed to nobody: it is there as a whole, or not at all."""
        fate = Fate(f"the send of {draft.body[:6]}")
        for _, item in self._put(name, draft):
            item.fate = fate

    def acknowledged_unanswered(self, session: Session, index: int, *, alone: bool) -> None:
        """Each message by itself is gone, or comes again."""
        for _, item in self._covered(session, index, alone=alone):
            self._perhaps_gone(item)

    def committed_unanswered(self, session: Session) -> None:
        """All that was sent is there and all that was received is gone, or neither (EMS-TX-D01)."""
        fate = Fate("the commit")
        for _, item in session.in_hand:
            item.fate, item.there_if = self._fate_of(item, fate), False
        for _, item in self._put_sends(session):
            item.fate = item.fate or self._fate_of(item, fate)

    def _fate_of(self, item: Item, commit: Fate) -> Fate:
        """That of the commit; but what is not stored may be lost with the server, whatever became of it."""
        return commit if item.draft.mode == "PERSISTENT" else Fate(f"the end of {item.draft.body[:6]}")

    # --- What is seen

    def disagreements(self, views: dict[Backlog, list[Seen]]) -> list[str]:
        """All that somebody who looks at these backlogs must not see, or misses."""
        wrong = [text for backlog, view in views.items() for text in backlog.disagreements(view)]
        answers: dict[Fate, set[bool]] = {}
        for backlog, view in views.items():
            bodies = {seen.body for seen in view}
            for item in backlog.items:
                if item.fate is not None:
                    answers.setdefault(item.fate, set()).add((item.draft.body in bodies) == item.there_if)
        wrong += [f"{fate.why} took effect in part" for fate, found in answers.items() if len(found) > 1]
        return wrong

    def learn(self, views: dict[Backlog, list[Seen]]) -> None:
        """Takes over what was seen, of which it had no disagreement."""
        for session in self.sessions:
            for backlog, item in self._leaving(session):
                if backlog in views and item.draft.body not in {seen.body for seen in views[backlog]}:
                    self._remove(backlog, item, seen=True)
        for backlog, view in views.items():
            backlog.learn(view)

    # --- Items that go

    def _remove(self, backlog: Backlog, item: Item, *, seen: bool = False, copy: Item | None = None) -> None:
        """It goes; until something else is confirmed a kill may undo that."""
        backlog.items.remove(item)
        item.is_held, item.leaves_with = False, None
        if seen:
            item.marks = frozenset({(True, 1)})
        if item.draft.mode == "PERSISTENT":
            self._unsettled.append(Removal(backlog, item, copy))

    def _undeliver(self, backlog: Backlog, item: Item) -> None:
        """It is kept as undelivered if its sender asked for that, else it is destroyed (EMS-MSG-A08)."""
        if backlog.keeps_undelivered:
            return
        copy = self._copy(item) if item.draft.preserves else None
        self._remove(backlog, item, seen=True, copy=copy)

    def _perhaps_undeliver(self, backlog: Backlog, item: Item, why: str) -> None:
        item.fate, item.there_if = Fate(why), False
        if item.draft.preserves and not backlog.keeps_undelivered:
            copy = self._copy(item)
            copy.fate, copy.there_if = item.fate, True

    def _copy(self, item: Item) -> Item:
        self._number += 1
        return self.undelivered.add(item.draft, self._number, self._tick)

    def _perhaps_gone(self, item: Item) -> None:
        if item.fate is None:
            item.fate, item.there_if = Fate(f"the loss of {item.draft.body[:6]}"), False

    def _perhaps_back(self, removal: Removal) -> None:
        """A kill may have undone that it went: then it comes from where it was, and its copy is not there.

        What expired goes again, so that nobody sees a difference.
        """
        if removal.item.draft.time_to_live == "short" or removal.backlog not in self.backlogs():
            return
        fate = Fate(f"the return of {removal.item.draft.body[:6]}")
        removal.item.fate, removal.item.there_if = fate, True
        removal.item.marks = frozenset((flag, 1) for flag in {flag for flag, _ in removal.item.marks} | {True})
        removal.backlog.items.append(removal.item)
        removal.backlog.items.sort(key=lambda item: item.number)
        if removal.copy is not None:
            removal.copy.fate, removal.copy.there_if = fate, False
