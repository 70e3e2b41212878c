"""The engine against a model of one queue: anything a client or a broken machine does, in any order.

Clients speak raw frames. Receivers have credit only while they ask (it is drained), so that at any moment the model
can say exactly which messages must come, in which order, and how flagged. How deliveries are spread over receivers that
wait at the same time, transactions and selectors are other tests' business.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sterna._proto.sterna.v1 import message_pb2 as message_pb
from sterna._proto.sterna.v1 import messaging_pb2 as pb

from tests.core.driver import Client, Driver, queue, text, texts
from tests.core.queue_model import QueueModel, Sent
from tests.support.seeds import seed
from tests.waiting import eventually_blocking

RECEIVERS = (0, 1)
SEGMENT_BYTES = 1 << 16
RETURNING = "$sys.redelivery.delay"


def _number(name: str, default: int) -> int:
    """A variable that the engine's own tests follow as well (core/src/sim/seeds.rs)."""
    return int(os.environ.get(name) or default)


EXAMPLES = _number("SEEDS", 40)
STEPS = _number("STEPS", 30)

# Which of what a receiver holds a rule is about: one bit each, again from the start beyond the eighth.
masks = st.integers(0, 255)
receivers = st.sampled_from(RECEIVERS)
# Priority (4 often, so that there is something to be kept in order), time to live, and how much longer the body is.
outlines = st.lists(
    st.tuples(
        st.sampled_from((4, 4, 4, 0, 7, 9)), st.sampled_from((0, 0, 0, 500, 5_000)), st.sampled_from((0, 50, 9_000))
    ),
    min_size=1,
    max_size=6,
)


def threads() -> set[str]:
    """The threads of this process. A new one has no name yet, so names do not tell an engine's."""
    return {task.name for task in Path("/proc/self/task").iterdir()}


def chosen(messages: list[Sent], mask: int) -> list[Sent]:
    """Some of them."""
    return [message for index, message in enumerate(messages) if mask >> index % 8 & 1]


def ranges(messages: list[Sent]) -> list[pb.SequenceRange]:
    """Their numbers, neighbours joined."""
    found: list[pb.SequenceRange] = []
    for number in sorted(message.sequence for message in messages if message.sequence is not None):
        if found and found[-1].last + 1 == number:
            found[-1].last = number
        else:
            found.append(pb.SequenceRange(first=number, last=number))
    return found


class Receiver:
    """A client with one session, and at most one consumer in it."""

    def __init__(self, driver: Driver) -> None:
        self.client: Client = driver.client(heartbeat_ms=3_600_000)
        self.source = 0
        self.consumer = 0
        self.open_session()

    def open_session(self) -> None:
        """A new session, which has no consumer."""
        self.session = self.client.session(pb.EXPLICIT_CLIENT)
        self.is_consuming = False

    def ask(self, count: int) -> list[pb.Delivery]:
        """Up to `count` messages, and no more until it asks again."""
        if not self.is_consuming:
            self.consumer += 1
            self.limit = 0
            self.source = self.client.consumer(self.session, queue("q"), self.consumer, credit=0).consumer_opened.source
            self.is_consuming = True
        before = len(self.client.deliveries(self.consumer))
        drained = len(self.client.of("drained"))
        credit = pb.Credit(consumer=self.consumer, message_limit=self.limit + count, drain=True)
        self.client.send(pb.ClientFrame(session=self.session, credit=credit))
        self.client.driver.wait(lambda: len(self.client.of("drained")) > drained)
        self.limit = self.client.of("drained")[-1].message_limit
        return self.client.deliveries(self.consumer)[before:]

    def acknowledgement(self, messages: list[Sent]) -> pb.Ack:
        """The frame that acknowledges them."""
        return pb.Ack(sets=[pb.AckSet(source=self.source, ranges=ranges(messages))])

    def seen(self, messages: list[Sent]) -> list[pb.SeenSet]:
        """What says that an application saw them."""
        return [pb.SeenSet(source=self.source, ranges=ranges(messages))] if messages else []


class QueueMachine(RuleBasedStateMachine):
    """Does the same to an engine and to the model.

    No rule has a precondition: what a crash keeps is not the same each time, and what is drawn must not depend on it.
    """

    REDELIVERY_DELAY_MS = 0

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="queue-model-"))
        others = threads()
        self.driver = Driver(self.folder / "store", segment_bytes=SEGMENT_BYTES)
        self.driver.allowed = {**self.driver.allowed, "redeliveryDelayMs": self.REDELIVERY_DELAY_MS}
        self.threads = threads() - others
        self.model = QueueModel(self.driver.wall_ms, self.REDELIVERY_DELAY_MS)
        self.receivers: dict[int, Receiver] = {}
        # What each receiver was done with or lost: acknowledging it again means nothing.
        self.stale: dict[int, list[Sent]] = {}
        self.greet()

    def teardown(self) -> None:
        # There is none if it could not be opened again, which the test has failed for already.
        if hasattr(self.driver, "engine"):
            self.driver.engine.stop()
        shutil.rmtree(self.folder)

    def restart(self, *, clean: bool) -> None:
        """Stops the engine or drops it as it is, and opens its store again.

        An engine that is dropped gives up its lock on the store while its threads still finish what they were handed;
        one that died with its process does not write any more. So the old threads' end is awaited in between.
        """
        if clean:
            self.driver.engine.stop()
        del self.driver.engine
        eventually_blocking(lambda: not self.threads & threads(), what="the end of the old threads")
        others = threads()
        self.driver.reopen()
        self.threads = threads() - others
        # What was due at the start is done when the clock has moved on: with time that stands still nothing would come.
        self.driver.advance(1)
        self.model.now_ms += 1

    def greet(self) -> None:
        """A client that sends and browses."""
        self.sender = self.driver.client(heartbeat_ms=3_600_000)
        self.session = self.sender.session()
        self.sender.producer(self.session, queue("q"))
        self.published = self.browsers = 0
        self.receivers.clear()
        self.stale.clear()

    def receiver(self, number: int) -> Receiver:
        """The receiver of that number; a new client if there is none."""
        if number not in self.receivers:
            self.receivers[number] = Receiver(self.driver)
            self.stale[number] = []
        return self.receivers[number]

    def publishing(self, messages: list[Sent]) -> pb.ClientFrame:
        """The frame that sends them now."""
        encoded = [
            text(
                message.body,
                priority=message.priority,
                time_to_live_ms=message.expires_ms and message.expires_ms - self.model.now_ms,
            ).SerializeToString()
            for message in messages
        ]
        first, self.published = self.published + 1, self.published + len(messages)
        publish = pb.Publish(producer=1, first_sequence=first, messages=encoded)
        return pb.ClientFrame(session=self.session, publish=publish)

    def check(self, delivery: pb.Delivery, message: Sent) -> None:
        """That this is the message, as the model has it."""
        assert message_pb.Message.FromString(delivery.message).text == message.body
        assert message.sequence in (None, delivery.sequence)
        message.sequence = delivery.sequence
        assert delivery.expiration_ms == message.expires_ms
        assert (delivery.delivery_count or 1) == message.count + 1
        # After a start the flag may stand where nobody saw the message, but never be missing where somebody did.
        if message.seen or message.epoch == self.model.epoch:
            assert delivery.redelivered == message.seen

    def look(self, name: str = "q") -> list[pb.Delivery]:
        """All that a browser is shown."""
        self.browsers += 1
        number = 1_000 + self.browsers
        self.sender.consumer(self.session, queue(name), number, browse=True)
        self.driver.wait(lambda: any(drained.consumer == number for drained in self.sender.of("drained")))
        self.sender.request(self.session, close_consumer=pb.CloseConsumer(consumer=number))
        return self.sender.deliveries(number)

    @rule(outline=outlines)
    def send(self, outline: list[tuple[int, int, int]]) -> None:
        messages = [self.model.make(*each) for each in outline]
        self.sender.send(self.publishing(messages))
        self.driver.wait(lambda: self.published in self.sender.confirmed())
        durabilities = {one.durability for confirm in self.sender.of("confirm") for one in confirm.confirmed}
        assert durabilities == {pb.DURABLE}
        self.model.put(messages)

    @rule(number=receivers, count=st.integers(1, 5))
    def receive(self, number: int, count: int) -> None:
        expected = self.model.ready()[:count]
        deliveries = self.receiver(number).ask(count)
        assert len(deliveries) == len(expected), f"{len(deliveries)} came, {len(expected)} were due"
        for delivery, message in zip(deliveries, expected, strict=True):
            self.check(delivery, message)
            message.holder, message.consumer = number, self.receivers[number].consumer

    @rule(number=receivers, outline=outlines, count=st.integers(1, 5), mask=masks)
    def work(self, number: int, outline: list[tuple[int, int, int]], count: int, mask: int) -> None:
        """What a queue is for. With each step left to chance little would be held when something happens to it."""
        self.send(outline=outline)
        self.receive(number=number, count=count)
        self.acknowledge(number=number, mask=mask, again=True)

    @rule(number=receivers, mask=masks, again=st.booleans())
    def acknowledge(self, number: int, mask: int, again: bool) -> None:
        messages = chosen(self.model.held(number), mask)
        receiver = self.receiver(number)
        named = messages + self.stale[number] if again else messages
        if receiver.source and named:
            reply = receiver.client.request(receiver.session, acknowledge=receiver.acknowledgement(named))
            assert reply.HasField("done")
            self.model.acknowledge(messages)
            self.stale[number] += messages

    @rule(number=receivers, mask=masks, seen=st.booleans())
    def release(self, number: int, mask: int, seen: bool) -> None:
        messages = chosen(self.model.held(number), mask)
        receiver = self.receiver(number)
        if messages:
            sets = [pb.AckSet(source=receiver.source, ranges=ranges(messages))]
            receiver.client.request(receiver.session, release=pb.Release(sets=sets, seen=seen))
            self.model.give_back(messages, messages if seen else [])

    @rule(number=receivers, mask=masks)
    def recover(self, number: int, mask: int) -> None:
        self.end(number, mask, lambda receiver, seen: {"recover": pb.Recover(seen=seen)})

    @rule(number=receivers, mask=masks)
    def close_session(self, number: int, mask: int) -> None:
        self.end(number, mask, lambda receiver, seen: {"close_session": pb.CloseSession(seen=seen)})
        self.receivers[number].open_session()

    def end(self, number: int, mask: int, frame: Callable[[Receiver, list[pb.SeenSet]], dict[str, object]]) -> None:
        """Gives back all that a receiver holds, by a frame that names what was seen of it."""
        receiver, held = self.receiver(number), self.model.held(number)
        seen = chosen(held, mask)
        reply = receiver.client.request(receiver.session, **frame(receiver, receiver.seen(seen)))
        assert not reply.HasField("error")
        self.model.give_back(held, seen)

    @rule(number=receivers, mask=masks)
    def close_consumer(self, number: int, mask: int) -> None:
        receiver = self.receiver(number)
        if receiver.is_consuming:
            # What an earlier consumer left with the session is not this one's.
            own = [message for message in self.model.held(number) if message.consumer == receiver.consumer]
            seen = chosen(own, mask)
            closing = pb.CloseConsumer(consumer=receiver.consumer, seen=receiver.seen(seen))
            receiver.client.request(receiver.session, close_consumer=closing)
            receiver.is_consuming = False
            # What was seen stays with the session.
            self.model.give_back([message for message in own if message not in seen], [])

    @rule(number=receivers)
    def lose_client(self, number: int) -> None:
        if number in self.receivers:
            self.receivers.pop(number).client.close()
            held = self.model.held(number)
            self.model.give_back(held, held)

    @rule(ms=st.sampled_from((1, 499, 500, 4_500)))
    def let_time_pass(self, ms: int) -> None:
        self.driver.advance(ms)
        self.driver.poll()
        self.model.now_ms += ms
        self.model.expire()

    @rule()
    def browse(self) -> None:
        expected = self.model.in_order()
        found = self.look()
        assert len(found) == len(expected)
        for delivery, message in zip(found, expected, strict=True):
            self.check(delivery, message)
        assert texts(self.look(RETURNING)) == [message.body for message in self.model.returning()]

    @rule()
    def purge(self) -> None:
        if len(self.model.messages) <= 3:
            return
        for number in self.receivers:
            self.stale[number] += self.model.held(number)
        assert self.driver.engine.purge("queue", "q") == self.model.purge()
        self.driver.poll()

    @rule()
    def stop_and_start(self) -> None:
        self.restart(clean=True)
        assert json.loads(self.driver.engine.recovery())["clean"]
        self.model.restart(clean=True)
        self.greet()
        self.browse()

    @rule(outline=outlines, mask=masks, sends_last=st.booleans(), is_polled=st.booleans())
    def crash(self, outline: list[tuple[int, int, int]], mask: int, sends_last: bool, is_polled: bool) -> None:
        """The broker dies before it has answered what was just sent and acknowledged; some of it is not written."""
        for number in RECEIVERS:
            self.receive(number=number, count=2)
        unconfirmed = [self.model.make(*each) for each in outline]
        unanswered: list[Sent] = []
        frames = [(self.sender, self.publishing(unconfirmed))]
        for number, receiver in self.receivers.items():
            if messages := chosen(self.model.held(number), mask):
                unanswered += messages
                acknowledge = receiver.acknowledgement(messages)
                frames.append((receiver.client, pb.ClientFrame(session=receiver.session, acknowledge=acknowledge)))
        for client, frame in reversed(frames) if sends_last else frames:
            self.driver.engine.handle(client.stream, pb.ClientBatch(frames=[frame]).SerializeToString())
        if is_polled:
            self.driver.poll()
        self.restart(clean=False)
        self.model.restart(clean=False)
        self.greet()
        self.model.crash(texts(self.look()), texts(self.look(RETURNING)), unconfirmed, unanswered)
        self.browse()

    @invariant()
    def statistics_agree(self) -> None:
        self.settle()
        wrong = self.wrong_figures()
        assert not wrong, f"figures and what they should be: {wrong}"

    def settle(self) -> None:
        """Has what has expired go.

        What is not durable yet is looked at again a millisecond later, by the clock, which stands still here; where the
        log has no room for the record, it is when upkeep has made some, in another thread.
        """
        while self.wrong_figures():
            self.let_time_pass(1)
            if not self.wrong_figures() or not self.driver.wait_for_more():
                return

    def wrong_figures(self) -> dict[str, tuple[int, int]]:
        """What the engine says of the queue and what the model has, where they differ."""
        self.driver.advance(0)
        rows = json.loads(self.driver.engine.list("queue", "q"))
        [found] = [row["statistics"] for row in rows if row["name"] == "q"]
        model = self.model
        expected = {
            "messages": sum(not model.waits(message) for message in model.messages),
            "redelivery_delayed_messages": sum(model.waits(message) for message in model.messages),
            "delivered_messages": sum(message.holder is not None for message in model.messages),
            "bytes": found["bytes"] if any(not model.waits(message) for message in model.messages) else 0,
            "consumers": sum(receiver.is_consuming for receiver in self.receivers.values()),
            "producers": 1,
        }
        if model.epoch == 1:
            # A later start counts what it finds in the log, which depends on how much of that is left.
            expected["acknowledged_total"] = model.acknowledged_since_start
            expected["published_total"] = model.published_since_start
        return {name: (found[name], value) for name, value in expected.items() if found[name] != value}

    @invariant()
    def nothing_comes_back(self) -> None:
        assert not self.model.gone & {message.body for message in self.model.messages}
        sequences = [message.sequence for message in self.model.messages if message.sequence is not None]
        assert sequences == sorted(set(sequences)), "numbers follow the order of arrival"


class DelayingMachine(QueueMachine):
    """What was seen and comes back has to wait: longer than some of the pauses that are drawn, and not than others."""

    REDELIVERY_DELAY_MS = 700


@pytest.mark.covers("EMS-MSG-A15", "EMS-DEST-A32", "EMS-DEST-A33")
@pytest.mark.timeout(max(120, EXAMPLES))
@pytest.mark.parametrize("machine", [QueueMachine, DelayingMachine])
def test_the_engine_agrees_with_the_model(machine: type[QueueMachine]) -> None:
    # The same runs for the same seed: what it finds, everybody can repeat.
    bounded = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, derandomize=True)
    try:
        run_state_machine_as_test(hypothesis.seed(seed())(machine), settings=bounded)
    except Exception as failure:
        drawn = f"SEED={seed()} SEEDS={EXAMPLES} STEPS={STEPS}"
        failure.add_note(f"run it again with: {drawn} .venv/bin/python -m pytest tests/core/test_queue_model.py")
        raise
