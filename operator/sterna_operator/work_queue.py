"""The order in which objects are looked at.

Watches put keys in, workers take them out. The rules:

- A key stands in the queue once, with the most urgent priority that anybody gave it. A change that a user made goes
  before a reference that arrived, that before drift, that before a resync: ten thousand objects at a cold start do
  not keep the one that somebody has just created.
- No priority starves: one that was passed over so many times (`_PATIENCE`) has its turn. What brokers report of a new
  queue is a reference, and a thousand deletions that somebody has ordered are changes of a user.
- Within a priority flows take turns, and each is worked off in the order in which it came. A flow is what `flow_of`
  says of a key; the operator's are a namespace's objects that stay, and those that go (`wakeups`). So nobody waits
  behind the thousand objects of somebody else.
- A key is never handed to two workers at once. Whoever adds it meanwhile has it looked at again afterwards.
- A failure holds its key back, longer each time; a change by the user, or a reference that arrived, does not wait for
  that.
- What nobody waits for (drift, resync) is taken from a token bucket, so that it cannot flood the API server.
- While everything is still being listed, resyncs wait (`hold`): what is well already has no part in that race.

Everything here decides from the time it is told; only `get` waits.
"""

import asyncio
import enum
import heapq
import itertools
import random  # noqa: TID251 - the operator as a process is not simulated
import time  # noqa: TID251 - the operator as a process is not simulated
from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from sterna_operator.keys import Key


class Priority(enum.IntEnum):
    """Why an object is looked at; the smaller, the sooner."""

    USER_CHANGE = 0
    REFERENCE = 1
    DRIFT = 2
    RESYNC = 3


# So often a priority that has something is passed over at most, for what is more urgent.
_PATIENCE = {Priority.USER_CHANGE: 0, Priority.REFERENCE: 3, Priority.DRIFT: 15, Priority.RESYNC: 63}


@dataclass(frozen=True)
class Backoff:
    """How long a key waits after its n-th failure in a row: doubled each time, a fifth of it by chance."""

    first_s: float = 0.5
    max_s: float = 60.0

    def delay_s(self, failures: int, chance: float) -> float:
        """`chance` is from 0 to 1."""
        full = min(self.first_s * 2.0 ** min(failures - 1, 30), self.max_s)
        return full * (0.8 + 0.2 * chance)


@dataclass
class TokenBucket:
    """At most `rate` takings a second, `burst` at once."""

    rate: float = 500.0
    burst: float = 1000.0

    def __post_init__(self) -> None:
        self._tokens = self.burst
        self._at: float | None = None

    def wait_s(self, now: float) -> float:
        """How long until there is a token; 0: there is one."""
        self._fill(now)
        return max(0.0, (1.0 - self._tokens) / self.rate)

    def take(self, now: float) -> None:
        """Uses up one."""
        self._fill(now)
        self._tokens -= 1.0

    def _fill(self, now: float) -> None:
        if self._at is not None:
            self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
        self._at = now


@dataclass(frozen=True, slots=True)
class Item:
    """A key that a worker has taken, why, and how long it had been ready."""

    key: Key
    priority: Priority
    waited_s: float


@dataclass(frozen=True, slots=True)
class _Entry:
    priority: Priority
    number: int
    since: float


class _Line:
    """What waits with one priority: flows that take turns."""

    def __init__(self) -> None:
        self._flows: dict[Hashable, deque[tuple[int, Key]]] = {}
        self._turns: deque[Hashable] = deque()

    def put(self, flow: Hashable, number: int, key: Key) -> None:
        """At the end of its flow."""
        if flow not in self._flows:
            self._flows[flow] = deque()
            self._turns.append(flow)
        self._flows[flow].append((number, key))

    def take(self, is_live: Callable[[Key, int], bool]) -> Key | None:
        """The first of the flow whose turn it is; None: there is nothing any more. What is not live is passed over."""
        while self._turns:
            flow = self._turns.popleft()
            waiting = self._flows[flow]
            found = None
            while waiting and found is None:
                number, key = waiting.popleft()
                found = key if is_live(key, number) else None
            if waiting:
                self._turns.append(flow)
            else:
                del self._flows[flow]
            if found is not None:
                return found
        return None


class WorkQueue:
    """The queue. All methods but `get` return at once; everything runs on one event loop."""

    def __init__(
        self,
        *,
        backoff: Backoff | None = None,
        bucket: TokenBucket | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        flow_of: Callable[[Key], Hashable] = lambda key: key.namespace,
    ) -> None:
        self._backoff = backoff or Backoff()
        self._bucket = bucket or TokenBucket()
        self._clock = clock
        self._chance = chance
        self._flow_of = flow_of
        self._numbers = itertools.count()
        self._lines = {priority: _Line() for priority in Priority}
        self._depth = dict.fromkeys(Priority, 0)
        self._passed = dict.fromkeys(Priority, 0)
        self._entries: dict[Key, _Entry] = {}
        self._delayed: list[tuple[float, int, Key]] = []
        self._delays: dict[Key, tuple[float, int, Priority]] = {}
        self._taken: dict[Key, Priority | None] = {}
        self._failures: dict[Key, int] = {}
        self._held: dict[Key, float] = {}
        self._changed = asyncio.Event()
        self._is_held = False
        self.taken_at: float | None = None
        """When a key was last taken, by the clock."""

        self.added_total: Counter[Priority] = Counter()
        self.retries_total = 0

    def hold(self) -> None:
        """Resyncs wait until `release`."""
        self._is_held = True

    def release(self) -> None:
        """Resyncs wait no more."""
        if self._is_held:
            self._is_held = False
            self._changed.set()

    def add(self, key: Key, priority: Priority) -> None:
        """Has a key looked at. One that failed and is held back waits on, unless this is more urgent than drift."""
        self.added_total[priority] += 1
        if key in self._taken:
            again = self._taken[key]
            self._taken[key] = priority if again is None else min(again, priority)
            return
        if key in self._delays and priority >= self._waits_from(key):
            return
        self._put(key, priority)

    def add_after(self, key: Key, delay_s: float, priority: Priority) -> None:
        """Has a key looked at later; the earlier of two times counts."""
        at = self._clock() + delay_s
        known = self._delays.get(key)
        if known is not None and known[0] <= at:
            self._delays[key] = (known[0], known[1], min(known[2], priority))
            return
        number = next(self._numbers)
        self._delays[key] = (at, number, priority)
        heapq.heappush(self._delayed, (at, number, key))
        self._changed.set()

    def done(self, key: Key) -> None:
        """The worker has finished with the key, well."""
        self._failures.pop(key, None)
        self._held.pop(key, None)
        self._release(key)

    def failed(self, key: Key, *, not_before_s: float = 0.0) -> float:
        """The worker could not do it: again later, after the seconds that are returned.

        `not_before_s` is what the server asked for: references that arrive wait for that, too.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self.retries_total += 1
        delay = max(self._backoff.delay_s(failures, self._chance()), not_before_s)
        if not_before_s > 0:
            self._held[key] = self._clock() + not_before_s
        again = self._taken.get(key)
        if again is not None and again >= self._waits_from(key):
            self._taken[key] = None
        self._release(key)
        if key not in self._entries:
            self.add_after(key, delay, Priority.DRIFT)
        return delay

    def failures(self, key: Key) -> int:
        """How often it has failed in a row."""
        return self._failures.get(key, 0)

    def depth(self) -> dict[Priority, int]:
        """How many keys are ready, by priority."""
        return dict(self._depth)

    @property
    def delayed(self) -> int:
        """How many keys wait for their time."""
        return len(self._delays)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is ready and nobody works."""
        return not self._entries and not self._taken

    def pop(self) -> Item | None:
        """The next key, if one may be taken now. Who takes one says `done` or `failed` afterwards."""
        now = self._clock()
        self._ripen(now)
        waiting = [
            priority for priority in self._waiting() if priority < Priority.DRIFT or not self._bucket.wait_s(now)
        ]
        if not waiting:
            return None
        chosen = next((one for one in waiting[1:] if self._passed[one] >= _PATIENCE[one]), waiting[0])
        self._passed[chosen] = 0
        for priority in waiting:
            self._passed[priority] += priority > chosen
        if chosen >= Priority.DRIFT:
            self._bucket.take(now)
        key = self._lines[chosen].take(self._is_live)
        assert key is not None  # its depth says that there is one
        entry = self._remove(key)
        self._taken[key] = None
        self.taken_at = now
        return Item(key, chosen, now - entry.since)

    def wait_s(self) -> float | None:
        """How long until `pop` may have something without anybody adding it; None: for ever."""
        now = self._clock()
        waits = [self._bucket.wait_s(now)] if self._waiting() else []
        if self._delayed:
            waits.append(max(0.0, self._delayed[0][0] - now))
        return min(waits, default=None)

    async def get(self) -> Item:
        """The next key, as soon as there is one."""
        while True:
            self._changed.clear()
            item = self.pop()
            if item is not None:
                # Others may wait for the same signal: there may be more.
                self._changed.set()
                return item
            try:
                async with asyncio.timeout(self.wait_s()):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _waits_from(self, key: Key) -> int:
        """The first priority for which a key that failed is held back; beyond all of them: it did not fail."""
        if key not in self._failures:
            return len(Priority)
        return Priority.REFERENCE if self._held.get(key, 0.0) > self._clock() else Priority.DRIFT

    def _put(self, key: Key, priority: Priority) -> None:
        self._delays.pop(key, None)
        known = self._entries.get(key)
        if known is not None and known.priority <= priority:
            return
        since = self._remove(key).since if known is not None else self._clock()
        number = next(self._numbers)
        self._entries[key] = _Entry(priority, number, since)
        self._depth[priority] += 1
        self._lines[priority].put(self._flow_of(key), number, key)
        self._changed.set()

    def _remove(self, key: Key) -> _Entry:
        entry = self._entries.pop(key)
        self._depth[entry.priority] -= 1
        return entry

    def _is_live(self, key: Key, number: int) -> bool:
        """Whether a key still stands where it was put: it may have become more urgent since."""
        entry = self._entries.get(key)
        return entry is not None and entry.number == number

    def _waiting(self) -> list[Priority]:
        """The priorities that have something which may be taken, the most urgent first."""
        held = Priority.RESYNC if self._is_held else None
        return [priority for priority, depth in self._depth.items() if depth and priority != held]

    def _ripen(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            _, number, key = heapq.heappop(self._delayed)
            known = self._delays.get(key)
            if known is None or known[1] != number:
                continue
            del self._delays[key]
            if key in self._taken:
                again = self._taken[key]
                self._taken[key] = known[2] if again is None else min(again, known[2])
            else:
                self._put(key, known[2])

    def _release(self, key: Key) -> None:
        again = self._taken.pop(key, None)
        if again is not None:
            self._put(key, again)
