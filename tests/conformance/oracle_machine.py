"""The machine of `test_oracle.py`: a real broker beside the oracle, whose users do anything in any order.

Each run draws what two queues and a topic are like, and then steps of three clients and an administrator; the broker is
stopped and killed under them. After each step all that can be looked at is compared. Nothing drawn depends on what was
observed, so that a seed draws the same again: a step that does not make sense there is left out.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

import hypothesis
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.conformance.oracle import Oracle, Session
from tests.conformance.oracle_backlog import SELECTORS, Backlog, Consumer, Draft, Properties, Seen
from tests.conformance.oracle_driver import Client, Driver
from tests.conformance.provider import Provider, Queue, Topic
from tests.support.seeds import is_complete, seed
from tests.waiting import eventually

EXAMPLES = int(os.environ.get("SEEDS") or (300 if is_complete() else 6))
STEPS = int(os.environ.get("STEPS") or 40)
#: What fails is made smaller only when asked for: each try starts brokers, and waits for what does not come.
PHASES = (Phase.generate, Phase.shrink) if os.environ.get("SHRINK") else (Phase.generate,)
#: In one run: each takes as long as all other steps.
RESTARTS_MAX = 4
BODY = 1000
#: Two messages fit, a third does not, with what messages have besides their bodies.
TWO_OF_THEM = 2 * BODY + 500

QUEUES = [
    Properties(),
    Properties(exclusive=True),
    Properties(max_redelivery=2),
    Properties(max_redelivery=3, exclusive=True),
    Properties(expiration=True),
    Properties(maxmsgs=3),
    Properties(maxbytes=TWO_OF_THEM, overflow="reject"),
    Properties(maxmsgs=3, overflow="discardOld"),
    Properties(maxbytes=TWO_OF_THEM, overflow="discardOld"),
]
TOPICS = [
    Properties(),
    Properties(expiration=True),
    Properties(maxmsgs=3),
    Properties(maxmsgs=3, overflow="discardOld"),
    Properties(maxbytes=TWO_OF_THEM, overflow="reject"),
]
MODES = ["AUTO", "CLIENT", "EXPLICIT", "TRANSACTED", "TRANSACTED", "DUPS_OK", "EXPLICIT_DUPS_OK", "NONE"]
#: Of a topic, by its subscriptions: which client may have a consumer of it. A durable one belongs to a client id.
SUBSCRIPTIONS = {"plain": (0, 1, 2), "durable": (0, 0, 0), "shared": (1, 1, 2), "group": (2, 1, 2)}

slots = st.sampled_from((0, 1, 2))
places = st.sampled_from(("first", "first", "second", "topic"))
sources = st.sampled_from(("first", "first", "first", "second", "second", *SUBSCRIPTIONS))
numbers = st.integers(0, 7)
selectors = st.sampled_from(("", "", "", *SELECTORS))
prefetches = st.sampled_from((0, 0, 1, 3))
outlines = st.lists(
    st.tuples(
        st.sampled_from((4, 4, 4, 0, 7, 9)),
        st.sampled_from(("PERSISTENT", "PERSISTENT", "PERSISTENT", "NON_PERSISTENT", "RELIABLE")),
        st.sampled_from(("", "", "", "", "long", "short")),
        st.booleans(),
        st.sampled_from((None, "red", "blue", "green")),
        st.integers(1, 6),
    ),
    min_size=1,
    max_size=3,
)
_words = itertools.count(1)


class EmsMachine(RuleBasedStateMachine):
    """Does the same to a real broker and to the oracle."""

    provider: ClassVar[Provider]
    runner: ClassVar[asyncio.Runner]
    driver_class: ClassVar[type[Driver]] = Driver
    oracle_class: ClassVar[type[Oracle]] = Oracle
    patience_s: ClassVar[float] = 5.0

    def __init__(self) -> None:
        super().__init__()
        self.driver = self.driver_class(self.provider, f"o{next(_words)}")
        self.oracle = self.oracle_class()
        self.slots: dict[int, tuple[Client, Session]] = {}
        self.modes = {0: "AUTO", 1: "CLIENT", 2: "TRANSACTED"}
        self.sent = self.restarts = 0

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Runs it to its end."""
        return self.runner.run(work)

    def teardown(self) -> None:
        # The broker may be one that a failure has left as it was.
        self.do(self._tidy())

    async def _tidy(self) -> None:
        await self.provider.end()

    @initialize(
        first=st.sampled_from(QUEUES),
        second=st.sampled_from(QUEUES),
        topic=st.sampled_from(TOPICS),
        wanted=st.sampled_from(("", "", *SELECTORS)),
    )
    def define(self, first: Properties, second: Properties, topic: Properties, wanted: str) -> None:
        self.wanted = {"durable": wanted, "shared": wanted}
        for name, properties in (("first", first), ("second", second)):
            self.do(self.driver.define(name, Queue, properties))
            self.oracle.define_queue(name, properties)
        self.do(self.driver.define("topic", Topic, topic))
        self.oracle.define_topic("topic", topic)

    # --- What the steps have in common

    def client(self, slot: int) -> tuple[Client, Session]:
        """The client there; a new one if there is none."""
        if slot not in self.slots:
            client = self.do(self.driver.connect(self.modes[slot], is_named=slot == 0))
            self.slots[slot] = client, self.oracle.open_session(self.modes[slot])
        return self.slots[slot]

    def close(self, slot: int) -> None:
        """That client closes its connection."""
        if slot in self.slots:
            client, session = self.slots.pop(slot)
            self.do(client.connection.close())
            self.oracle.close_session(session)

    def close_consumers(self, name: str) -> None:
        """All consumers of a destination are closed."""
        for client, session in self.slots.values():
            for consumer in list(session.consumers):
                if consumer.backlog in self._of(name):
                    self.do(self.driver.close_consumer(client, consumer))
                    self.oracle.close_consumer(consumer)

    def _of(self, name: str) -> list[Backlog]:
        return [self.oracle.queues[name]] if name in self.oracle.queues else list(self.oracle.topics[name].values())

    def consumer(self, slot: int, source: str, selector: str, prefetch: int) -> tuple[Client, Consumer] | None:
        """That client's consumer of it; a new one if there is none; None where there cannot be one."""
        client, session = self.client(slot)
        place = "topic" if source in SUBSCRIPTIONS else source
        properties = self.oracle.properties[place]
        name = f"plain-{slot}" if source == "plain" else source
        for consumer in session.consumers:
            if consumer.backlog.name == name:
                return client, consumer
        is_lazy = session.mode in ("DUPS_OK", "EXPLICIT_DUPS_OK")
        if is_lazy and (properties.is_limited or properties.max_redelivery):
            return None
        if place == "topic":
            if session.mode == "NONE":
                return None
            selector = selector if source == "plain" else self.wanted.get(source, "")
            prefetch = max(prefetch, 1)
        elif properties.is_limited or session.mode == "NONE":
            prefetch = 0
        if properties.exclusive:
            selector = ""
        consumer = self.oracle.subscribe(
            session, place, selector=selector, prefetch=prefetch, subscription=name,
            is_durable=source in ("durable", "group") or place != "topic",
        )  # fmt: skip
        self.do(self.driver.open(client, consumer, place))
        return client, consumer

    def drafts(self, outline: list[tuple[Any, ...]], name: str, session: Session) -> list[Draft]:
        """Messages that no other is like."""
        found = []
        for priority, mode, time_to_live, preserves, colour, number in outline:
            self.sent += 1
            targets = self._of(name)
            # What a consumer fetches before it is over is nobody's business here; nor what a transaction keeps so long.
            if time_to_live == "short" and (session.mode == "TRANSACTED" or any(one.room_ahead() for one in targets)):
                time_to_live = ""
            properties: dict[str, Any] = {"number": number, **({"colour": colour} if colour else {})}
            keeps = preserves and name in self.oracle.queues
            body = f"{self.sent}:".ljust(BODY, "x")
            found.append(Draft(body, priority, mode, time_to_live, keeps, properties))
        return found

    # --- Clients

    @rule(slot=slots, mode=st.sampled_from(MODES))
    def begin_anew(self, slot: int, mode: str) -> None:
        self.close(slot)
        self.modes[slot] = mode

    @rule(slot=slots)
    def vanish(self, slot: int) -> None:
        if slot in self.slots:
            client, session = self.slots.pop(slot)
            self.do(client.connection.vanish())
            self.oracle.lose_session(session)

    @rule(slot=slots, name=places, outline=outlines)
    def send(self, slot: int, name: str, outline: list[tuple[Any, ...]]) -> None:
        client, session = self.client(slot)
        properties = self.oracle.properties[name]
        if session.mode == "TRANSACTED" and (
            properties.overflow == "discardOld" or (properties.is_limited and name == "topic")
        ):
            return  # what is dropped, and for whom there is room, would depend on what nobody saw yet
        if properties.overflow == "discardOld":
            self.close_consumers_that_fetch(name)
        for draft in self.drafts(outline, name, session):
            allowed = self.oracle.may_send(session, name, draft)
            accepted = self.do(self.driver.send(client, name, draft))
            outcome = "accepted" if accepted else "refused"
            assert accepted in allowed, f"{draft.body[:6]} to {name} ({draft.mode}, {session.mode}) was {outcome}"
            if accepted:
                self.oracle.sent(session, name, draft)
            elif session.mode == "TRANSACTED":
                self.do(client.session.rollback())
                self.oracle.rollback(session)
                return
            self.agree()

    def close_consumers_that_fetch(self, name: str) -> None:
        """What `discardOld` may drop would depend on what they have fetched."""
        if any(one.room_ahead() for one in self._of(name)):
            self.close_consumers(name)
            self.agree()

    @rule(slot=slots, source=sources, selector=selectors, prefetch=prefetches, count=st.integers(1, 3))
    def receive(self, slot: int, source: str, selector: str, prefetch: int, count: int) -> None:
        slot = SUBSCRIPTIONS[source][slot] if source in SUBSCRIPTIONS else slot
        found = self.consumer(slot, source, selector, prefetch)
        for _ in range(count if found else 0):
            assert found is not None
            self.receive_one(*found)
            self.agree()

    def receive_one(self, client: Client, consumer: Consumer) -> None:
        """The next message, or nothing."""
        allowed, may_be_none = consumer.backlog.may_come(consumer)
        if may_be_none and not consumer.prefetch:
            return  # it would ask for one, and might hold what comes too late (EMS-DEST-A29)
        got = self.do(self.driver.receive(client, consumer, waits=not may_be_none))
        if got is None:
            return
        message, seen = got
        names = [item.draft.body[:6] for item in allowed]
        items = [item for item in allowed if item.draft.body == seen.body]
        assert items, f"{seen.body[:6]} came from {consumer.backlog.name}, and not of {names}"
        wrong = consumer.backlog.wrong_about(items[0], seen)
        assert not wrong, f"{consumer.backlog.name}: {wrong}"
        self.oracle.received(consumer, items[0], seen)
        client.messages[items[0]] = message

    @rule(slot=slots, number=numbers, alone=st.booleans())
    def acknowledge(self, slot: int, number: int, alone: bool) -> None:
        client, session = self.client(slot)
        if session.in_hand and session.mode != "TRANSACTED":
            index = number % len(session.in_hand)
            self.do(self.driver.acknowledge(client, session.in_hand[index][1], alone=alone))
            self.oracle.acknowledge(session, index, alone=alone)

    @rule(slot=slots, commits=st.booleans())
    def end_transaction_or_recover(self, slot: int, commits: bool) -> None:
        client, session = self.client(slot)
        if session.mode == "TRANSACTED" and commits:
            allowed = self.oracle.may_commit(session)
            committed = self.do(self.driver.commit(client))
            assert committed in allowed, f"the transaction was {'' if committed else 'not '}committed"
            (self.oracle.commit if committed else self.oracle.rollback)(session)
        elif session.mode == "TRANSACTED":
            self.do(client.session.rollback())
            self.oracle.rollback(session)
        elif session.mode in ("CLIENT", "EXPLICIT"):
            self.do(client.session.recover())
            self.oracle.recover(session)

    @rule(slot=slots, number=numbers)
    def close_a_consumer(self, slot: int, number: int) -> None:
        client, session = self.client(slot)
        if session.consumers:
            consumer = session.consumers[number % len(session.consumers)]
            self.do(self.driver.close_consumer(client, consumer))
            self.oracle.close_consumer(consumer)

    @rule(
        slot=slots, place=places, outline=outlines, source=sources, selector=selectors, prefetch=prefetches,
        count=st.integers(1, 3), commits=st.booleans(),
    )  # fmt: skip
    def work(
        self, slot: int, place: str, outline: list[tuple[Any, ...]], source: str, selector: str, prefetch: int,
        count: int, commits: bool,
    ) -> None:  # fmt: skip
        """What messaging is for. With each step left to chance little would be held when something happens to it."""
        self.send(slot=slot, name=place, outline=outline)
        self.receive(slot=slot, source=source, selector=selector, prefetch=prefetch, count=count)
        if commits:
            self.end_transaction_or_recover(slot=slot, commits=True)

    @rule(name=st.sampled_from(("durable", "group")), slot=slots)
    def unsubscribe(self, name: str, slot: int) -> None:
        slot = SUBSCRIPTIONS[name][slot]
        backlog = self.oracle.topics["topic"].get(name)
        if backlog is not None and not backlog.consumers and not any(item.is_held for item in backlog.items):
            client, _ = self.client(slot)
            self.do(self.driver.unsubscribe(client, backlog))
            self.oracle.unsubscribe("topic", name)

    # --- An administrator

    @rule(name=st.sampled_from(("first", "second", "durable", "group")))
    def purge(self, name: str) -> None:
        backlog = self.oracle.queues.get(name) or self.oracle.topics["topic"].get(name)
        # What a consumer has fetched it may hand out still.
        if backlog is not None and len(backlog.items) > 2 and not backlog.room_ahead():
            purged = self.do(self.driver.purge(backlog))
            least, most = self.oracle.purge(backlog)
            assert least <= purged <= most, f"{purged} were purged, not {least} to {most}"

    @rule(name=st.sampled_from(("first", "second")))
    def delete(self, name: str) -> None:
        backlog = self.oracle.queues[name]
        is_named = any(name == sent.name for _, session in self.slots.values() for sent in session.sends)
        if not is_named and not backlog.consumers and not any(item.is_held for item in backlog.items):
            self.do(self.driver.delete(name))
            self.oracle.delete_queue(name)
            self.do(self.driver.define(name, Queue, backlog.properties))
            self.oracle.define_queue(name, backlog.properties)

    @rule(name=st.sampled_from(("first", "second")), selector=selectors)
    def browse(self, name: str, selector: str) -> None:
        backlog = self.oracle.queues[name]
        wrong = backlog.disagreements(self.do(self.driver.look(backlog, selector)), selector)
        assert not wrong, f"by the selector {selector}: {wrong}"

    @rule(
        is_kill=st.sampled_from((True, True, False)), slot=slots, outline=outlines, place=places, number=numbers,
        rounds=st.sampled_from((0, 5, 20, 100)), acknowledges=st.booleans(), alone=st.booleans(),
    )  # fmt: skip
    def restart(
        self, is_kill: bool, slot: int, outline: list[tuple[Any, ...]], place: str, number: int, rounds: int,
        acknowledges: bool, alone: bool = False,
    ) -> None:  # fmt: skip
        """The server ends while a client sends, or acknowledges, or commits, and has no answer yet."""
        self.restarts += 1
        if self.restarts > RESTARTS_MAX:
            return
        under_way: list[tuple[Coroutine[Any, Any, Any], Callable[[], None], Callable[[], None]]] = []
        client, session = self.client(slot)
        counted = any(backlog.properties.max_redelivery for backlog, _ in session.in_hand)
        limited = any(self.oracle.properties[sent.name].is_limited for sent in session.sends)
        if acknowledges and session.mode == "TRANSACTED" and not counted and not limited:
            under_way.append((
                self.driver.commit(client),
                lambda: self.oracle.commit(session),
                lambda: self.oracle.committed_unanswered(session),
            ))  # fmt: skip
        elif acknowledges and session.mode in ("CLIENT", "EXPLICIT") and session.in_hand and not counted:
            index = number % len(session.in_hand)
            under_way.append((
                self.driver.acknowledge(client, session.in_hand[index][1], alone=alone),
                lambda: self.oracle.acknowledge(session, index, alone=alone),
                lambda: self.oracle.acknowledged_unanswered(session, index, alone=alone),
            ))  # fmt: skip
        elif session.mode != "TRANSACTED" and not self.oracle.properties[place].is_limited:
            # What is over before somebody looks would tell nothing.
            [draft] = self.drafts([(*outline[0][:2], "", *outline[0][3:])], place, session)
            under_way.append((
                self.driver.send(client, place, draft),
                lambda: self.oracle.sent(session, place, draft),
                lambda: self.oracle.sent_unanswered(place, draft),
            ))  # fmt: skip
        answered = self.do(self.driver.restart([one for one, _, _ in under_way], rounds, is_kill=is_kill))
        for is_answered, (_, done, perhaps) in zip(answered, under_way, strict=True):
            (done if is_answered else perhaps)()
        self.oracle.restart(is_kill=is_kill)
        self.slots.clear()

    # --- What is compared

    @invariant()
    def agree(self) -> None:
        """All that can be looked at is as it may be, at the latest when what is on its way has arrived."""
        if self.oracle.properties:
            self.do(self._agree())

    async def _agree(self) -> None:
        wrong: list[str] = []
        views: dict[Backlog, list[Seen]] = {}

        async def agrees() -> bool:
            nonlocal wrong, views
            wrong, views = await self.compared()
            return not wrong

        try:
            await eventually(agrees, timeout_s=self.patience_s)
        except AssertionError:
            raise AssertionError("; ".join(wrong)) from None
        self.oracle.learn(views)

    async def compared(self) -> tuple[list[str], dict[Backlog, list[Seen]]]:
        """What is seen otherwise than it may be, and what is seen."""
        shown = [one for one in self.oracle.backlogs() if one.is_durable]
        counted = [one for one in shown if not one.keeps_undelivered]
        # First the figures: what they have, whoever looks then sees.
        figures = await asyncio.gather(*(self.driver.figures(one) for one in counted))
        in_topic = await self.driver.of_topic("topic")
        views = dict(zip(shown, await asyncio.gather(*(self.driver.look(one) for one in shown)), strict=True))
        wrong = self.oracle.disagreements(views)
        for backlog, found in zip(counted, figures, strict=True):
            allowed = backlog.counts(), backlog.handed(), (len(backlog.consumers),) * 2
            for what, one, (least, most) in zip(
                ("messages", "with consumers", "consumers"), found, allowed, strict=True
            ):
                if not least <= one <= most:
                    wrong.append(f"{backlog.name} has {one} {what}, not {least} to {most}")
        least, most = (sum(one) for one in zip((0, 0), *(one.counts() for one in self._of("topic")), strict=True))
        if not least <= in_topic <= most:
            wrong.append(f"the topic's subscriptions have {in_topic} messages, not {least} to {most}")
        return wrong, views


def run(machine: type[EmsMachine], examples: int, **more: Any) -> None:
    """The same runs for the same seed: what it finds, everybody can repeat."""
    bounded = settings(
        max_examples=examples, stateful_step_count=STEPS, deadline=None, derandomize=True,
        phases=PHASES,
        suppress_health_check=list(hypothesis.HealthCheck), **more,
    )  # fmt: skip
    run_state_machine_as_test(hypothesis.seed(seed())(machine), settings=bounded)
