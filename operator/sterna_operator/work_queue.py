"""The order in which objects are looked at.

Watches put keys in, workers take them out. The rules:

- A key stands in the queue once, with the most urgent priority that anybody gave it. A change that a user made goes
  before a reference that arrived, that before drift, that before a resync: ten thousand objects at a cold start do
  not keep the one that somebody has just created.
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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from sterna_operator.keys import Key


class Priority(enum.IntEnum):
    """Why an object is looked at; the smaller, the sooner."""

    USER_CHANGE = 0
    REFERENCE = 1
    DRIFT = 2
    RESYNC = 3


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


class WorkQueue:
    """The queue. All methods but `get` return at once; everything runs on one event loop."""

    def __init__(
        self,
        *,
        backoff: Backoff | None = None,
        bucket: TokenBucket | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._backoff = backoff or Backoff()
        self._bucket = bucket or TokenBucket()
        self._clock = clock
        self._chance = chance
        self._numbers = itertools.count()
        self._ready: list[tuple[Priority, int, Key]] = []
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
        depth = dict.fromkeys(Priority, 0)
        for entry in self._entries.values():
            depth[entry.priority] += 1
        return depth

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
        while self._ready:
            priority, number, key = self._ready[0]
            entry = self._entries.get(key)
            if entry is None or entry.number != number:
                heapq.heappop(self._ready)
                continue
            if self._is_held and priority >= Priority.RESYNC:
                return None
            if priority >= Priority.DRIFT:
                if self._bucket.wait_s(now) > 0:
                    return None
                self._bucket.take(now)
            heapq.heappop(self._ready)
            del self._entries[key]
            self._taken[key] = None
            self.taken_at = now
            return Item(key, priority, now - entry.since)
        return None

    def wait_s(self) -> float | None:
        """How long until `pop` may have something without anybody adding it; None: for ever."""
        now = self._clock()
        is_held_back = self._is_held and bool(self._ready) and self._ready[0][0] >= Priority.RESYNC
        waits = [self._bucket.wait_s(now)] if self._entries and not is_held_back else []
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
        number = next(self._numbers)
        self._entries[key] = _Entry(priority, number, known.since if known else self._clock())
        heapq.heappush(self._ready, (priority, number, key))
        self._changed.set()

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
