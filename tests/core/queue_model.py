"""One queue as plain Python has it: what the engine must agree with, whatever happens to it.

`test_queue_model.py` does to this and to the engine the same things, and compares. The model knows no log, no index and
no timer: a list of messages in the order they were sent, and for each who holds it and what became of it before.
"""

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(eq=False)
class Sent:
    """A message that waits or is held."""

    body: str
    priority: int
    # By the wall clock; 0: never.
    expires_ms: int
    # The start of the broker during which it was sent.
    epoch: int
    holder: int | None = None
    # Which of its holder's consumers it was sent to last.
    consumer: int = 0
    # Known since it was first delivered or browsed.
    sequence: int | None = None
    # An application may have seen it, at any time.
    seen: bool = False
    # Deliveries that count, since the broker started.
    count: int = 0
    # It came back, and waits until then; 0: it does not.
    ready_ms: int = 0


@dataclass
class QueueModel:
    """A queue, its clock and its receivers, which are numbers."""

    now_ms: int
    # How long what was seen and comes back waits.
    redelivery_delay_ms: int = 0
    epoch: int = 1
    # In the order in which they were sent.
    messages: list[Sent] = field(default_factory=list)
    # Back in their places since something was last known to be durable: a crash may forget that they wait.
    returned: list[Sent] = field(default_factory=list)
    # Purged, and nothing that came after is known to be durable: a crash may bring them back (see `crash`).
    purged: list[Sent] = field(default_factory=list)
    sent: int = 0
    # Bodies that may never be seen again: acknowledged or purged durably, expired, or lost with a crash.
    gone: set[str] = field(default_factory=set)
    acknowledged_since_start: int = 0
    published_since_start: int = 0

    def make(self, priority: int, time_to_live_ms: int, padding: int) -> Sent:
        """A message with a body that no other has; it is not in the queue yet."""
        self.sent += 1
        expires_ms = self.now_ms + time_to_live_ms if time_to_live_ms else 0
        return Sent(f"{self.sent}:{'x' * padding}", priority, expires_ms, self.epoch)

    def put(self, messages: list[Sent]) -> None:
        """They are confirmed as durable, and with them all that happened before."""
        self.messages += messages
        self.published_since_start += len(messages)
        self.settle()

    def settle(self) -> None:
        """Something was confirmed as durable, so all that happened before it is, too."""
        self.gone.update(message.body for message in self.purged)
        self.purged.clear()
        self.returned.clear()

    def waits(self, message: Sent) -> bool:
        """Whether it came back, and its time to come again is not there yet."""
        return message.ready_ms > self.now_ms

    def returning(self) -> list[Sent]:
        """What waits to come again, as one sees it: by priority, and as sent within each."""
        alive = [message for message in self.messages if self.waits(message) and not self.is_expired(message)]
        return sorted(alive, key=lambda message: -message.priority)

    def is_expired(self, message: Sent) -> bool:
        """Whether its time is up."""
        return 0 < message.expires_ms <= self.now_ms

    def in_order(self) -> list[Sent]:
        """What a browser sees: by priority, as sent within each; held or not, not expired or waiting to come again."""
        alive = [message for message in self.messages if not self.is_expired(message) and not self.waits(message)]
        return sorted(alive, key=lambda message: -message.priority)

    def ready(self) -> list[Sent]:
        """What can be delivered, in the order in which it must be."""
        return [message for message in self.in_order() if message.holder is None]

    def held(self, holder: int) -> list[Sent]:
        """What a receiver has been sent and is not done with, as sent by the producer."""
        return [message for message in self.messages if message.holder == holder]

    def acknowledge(self, messages: Collection[Sent]) -> None:
        """They are done with, durably."""
        self._remove(messages)
        self.gone.update(message.body for message in messages)
        self.acknowledged_since_start += len(messages)
        if messages:
            self.settle()

    def give_back(self, messages: Collection[Sent], seen: Collection[Sent]) -> None:
        """They are ready again; those that were seen come flagged, and later; whose time was up meanwhile never."""
        for message in messages:
            message.holder = None
            if message in seen:
                message.seen = True
                message.count += 1
                message.ready_ms = self.redelivery_delay_ms and self.now_ms + self.redelivery_delay_ms
                self.returned.append(message)
        self.expire()

    def expire(self) -> None:
        """What waits and has expired goes. What is held stays until it is given back."""
        over = [message for message in self.messages if message.holder is None and self.is_expired(message)]
        self._remove(over)
        self.gone.update(message.body for message in over)

    def purge(self) -> int:
        """Everything goes, held or not; how many. It is durable with the next thing that is."""
        count = len(self.messages)
        self.purged += self.messages
        self.messages = []
        return count

    def restart(self, *, clean: bool) -> None:
        """Every receiver is gone, and all they were sent may have been seen; counts begin anew."""
        if clean:
            self.settle()
        self.epoch += 1
        self.acknowledged_since_start = self.published_since_start = 0
        for message in self.messages + self.purged:
            message.seen = message.seen or message.holder is not None
            message.holder = None
            message.count = 0
        self.expire()

    def crash(self, found: list[str], waiting: list[str], unconfirmed: list[Sent], unanswered: list[Sent]) -> None:
        """After `restart`: takes over what is there of what nobody had an answer about, and fails for anything else.

        `found` is what can be delivered, `waiting` what waits to come again. `unconfirmed` was sent and `unanswered`
        acknowledged just before; both may have been lost or not.
        """
        for message in self.returned:
            if message.body in found:
                message.ready_ms = 0  # that it waits was not written
        self.returned.clear()
        waits = {message.body for message in self.messages + self.purged if self.waits(message)}
        assert not waits & set(found), "it came before its time"
        assert set(waiting) <= waits, "it waits, and need not"
        there = {*found, *waiting}
        must = {message.body for message in self.messages} - {message.body for message in unanswered}
        assert must <= there, f"lost: {must - there}"
        kept = [message.body in there for message in unconfirmed if not self.is_expired(message)]
        assert kept == sorted(kept, reverse=True), "a later message survived an earlier one"
        known = sorted(self.messages + self.purged, key=lambda message: int(message.body.split(":")[0])) + unconfirmed
        assert there <= {message.body for message in known}, "what was done with is back"
        self.gone.update(message.body for message in known if message.body not in there)
        self.messages = [message for message in known if message.body in there]
        self.purged.clear()

    def _remove(self, messages: Collection[Sent]) -> None:
        self.messages = [message for message in self.messages if message not in messages]
