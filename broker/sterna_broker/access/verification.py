"""Checks passwords without holding up messages, whoever comes in whatever numbers.

Checking argon2id is slow by design, so it happens in a few threads of low priority. As many may wait for them as are
answered in time, judged by how long the latest checks took, and half of those from one host: whoever comes on top is
told to come back. Clients that come again do not wait at all:
what was checked is remembered for a while under a keyed digest (the key lives in this process only), and several that
come with the same password at once share one check.

Nobody learns by the time an answer takes whether a user exists: an unknown name is checked against hashes that nothing
fits, and takes the work of some user that exists, always the same for the same name. Wrong passwords are remembered
for a shorter while, for known and unknown users alike: a client that was given a wrong one asks again and again.
"""

import asyncio
import base64
import hashlib
import hmac
import os
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NoReturn

import structlog
from argon2 import Type, low_level
from argon2.exceptions import Argon2Error
from sterna_resources.passwords import PASSWORD_CHARACTERS_MAX, USER_CHARACTERS_MAX, Cost

from sterna_broker.access.throttle import FailureThrottle
from sterna_broker.access.users import Credential, UserStore
from sterna_broker.refusals import RefusedError
from sterna_broker.surroundings import monotonic_ms, monotonic_s, random_bytes

_log = structlog.get_logger(part="access")

THREADS_MAX = 4
# Clients wait for five seconds.
ANSWERED_WITHIN_S = 3.0
WAITING_MIN = 8
# What a check takes, before there was one; later the average in which the latest counts for so much.
_CHECK_S = 0.04
_LATEST_WEIGHT = 0.1
REMEMBERED_MAX = 10_000
REMEMBERED_MS = 600_000
WRONG_REMEMBERED_MS = 30_000
# A third of the processor beside a busy thread of the usual priority.
_NICENESS = 5
_LOGGED_MAX = 20
_LOGGED_EVERY_MS = 10_000


@dataclass(frozen=True)
class _Verdict:
    """What was found, and when."""

    credential: Credential | None
    found_ms: int


class Verifier:
    """See the module. Lives on the event loop's thread but for the checks themselves."""

    def __init__(self, users: UserStore, monotonic_ms: Callable[[], int] = monotonic_ms) -> None:
        self.checks = 0
        """How many hashes were checked: what it cost."""
        self._users = users
        self._monotonic_ms = monotonic_ms
        self._key = random_bytes(32)
        self._remembered: OrderedDict[bytes, _Verdict] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Task[Credential | None]] = {}
        self._waiting: Counter[str] = Counter()
        self._throttle = FailureThrottle(monotonic_ms)
        self._profiles: list[tuple[Cost, ...]] | None = None
        self._generation = 0
        self._failures_logged = 0
        self._failures_since_ms = monotonic_ms()
        self._check_s = _CHECK_S
        self._threads = max(1, min(THREADS_MAX, (os.cpu_count() or 1) // 2))
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="sterna-access", initializer=_step_back)
        users.on_change(self._on_users_changed)

    @property
    def waiting_max(self) -> int:
        """How many may wait at this moment."""
        return max(WAITING_MIN, int(ANSWERED_WITHIN_S * self._threads / max(self._check_s, 0.001)))

    async def stop(self) -> None:
        """Ends: checks under way are waited for, the others dropped."""
        for task in list(self._under_way.values()):
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    async def verify(self, user: str, password: str, host: str) -> Credential:
        """The credential of this user that the password fits.

        Raises:
            RefusedError: UNAUTHENTICATED, the same whatever is wrong; or, to be tried again: LIMIT_EXCEEDED after too
                many failures, UNAVAILABLE while too many others are waiting.
        """
        if len(user) > USER_CHARACTERS_MAX or len(password) > PASSWORD_CHARACTERS_MAX:
            self._refuse(user, host)
        digest = self._digest(user, password)
        verdict = self._recall(user, digest)
        if verdict is None:
            task = self._under_way.get(digest) or self._begin(user, password, host, digest)
            # Whoever is waiting may go away; others wait for the same.
            found = await asyncio.shield(task)
        else:
            found = verdict.credential
        # It may have been taken back while it was being checked.
        if found is None or not self._users.accepts(user, found.id):
            self._refuse(user, host)
        return found

    def _begin(self, user: str, password: str, host: str, digest: bytes) -> "asyncio.Task[Credential | None]":
        if (wait_ms := self._throttle.wait_ms(host, user)) > 0:
            raise RefusedError(
                "LIMIT_EXCEEDED",
                "credentials",
                "Too many wrong passwords came from there for this user.",
                f"Correct the password, and try again in {wait_ms / 1000:.0f} s.",
                retryable=True,
            )
        if self._waiting.total() >= self.waiting_max or self._waiting[host] >= self.waiting_max // 2:
            raise RefusedError(
                "UNAVAILABLE",
                "credentials",
                "Too many clients are waiting for their passwords to be checked.",
                "Try again in a moment.",
                retryable=True,
            )
        task = asyncio.create_task(self._check(user, password, host, digest), name="check-password")
        self._under_way[digest] = task
        # When everybody who was waiting has gone, nobody asks what came of it.
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return task

    async def _check(self, user: str, password: str, host: str, digest: bytes) -> Credential | None:
        self._waiting[host] += 1
        try:
            found, generation = None, -1
            # What came while a check was under way may be what the client was sent here with.
            while found is None and generation != self._generation:
                generation = self._generation
                found = await self._check_once(user, password)
            self._remember(digest, found)
            if found is None:
                self._throttle.failed(host, user)
            return found
        finally:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host]
            del self._under_way[digest]

    async def _check_once(self, user: str, password: str) -> Credential | None:
        live = self._users.live(user)
        hashes = [one.argon2 for one in live] or [_fitting_nothing(cost) for cost in self._profile_of(user)]
        loop = asyncio.get_running_loop()
        index, checked, took_s = await loop.run_in_executor(self._pool, _first_that_fits, hashes, password)
        self.checks += checked
        self._check_s += _LATEST_WEIGHT * (took_s - self._check_s)
        return live[index] if live and index is not None else None

    def _refuse(self, user: str, host: str) -> NoReturn:
        self._log_failure(user, host)
        raise RefusedError(
            "UNAUTHENTICATED",
            "credentials",
            "The user or the password is wrong.",
            "Check both; a password that was changed is accepted until its overlap ends, not longer.",
        )

    def _log_failure(self, user: str, host: str) -> None:
        """Says who failed, so many times in so long. A name that nobody knows may be a mistyped password."""
        now_ms = self._monotonic_ms()
        if now_ms - self._failures_since_ms >= _LOGGED_EVERY_MS:
            if self._failures_logged > _LOGGED_MAX:
                _log.warning("more_authentications_failed", count=self._failures_logged - _LOGGED_MAX)
            self._failures_logged, self._failures_since_ms = 0, now_ms
        self._failures_logged += 1
        if self._failures_logged <= _LOGGED_MAX:
            _log.warning("authentication_failed", user=user if self._users.knows(user) else None, host=host)

    # --- What is remembered

    def _digest(self, user: str, password: str) -> bytes:
        text = f"{len(user)}:{user}{password}".encode(errors="surrogatepass")
        return hmac.digest(self._key, text, hashlib.sha256)

    def _recall(self, user: str, digest: bytes) -> _Verdict | None:
        verdict = self._remembered.get(digest)
        if verdict is None:
            return None
        age_ms = self._monotonic_ms() - verdict.found_ms
        if verdict.credential is None:
            return verdict if age_ms < WRONG_REMEMBERED_MS else None
        is_good = age_ms < REMEMBERED_MS and self._users.accepts(user, verdict.credential.id)
        return verdict if is_good else None

    def _remember(self, digest: bytes, found: Credential | None) -> None:
        self._remembered[digest] = _Verdict(found, self._monotonic_ms())
        self._remembered.move_to_end(digest)
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    def _on_users_changed(self) -> None:
        """What was wrong may be right now. What was right is looked up again before it is believed."""
        right = ((key, one) for key, one in self._remembered.items() if one.credential is not None)
        self._remembered = OrderedDict(right)
        self._profiles = None
        self._generation += 1

    # --- Names that nobody has

    def _profile_of(self, user: str) -> tuple[Cost, ...]:
        if self._profiles is None:
            self._profiles = self._users.profiles()
        if not self._profiles:
            return (Cost(),)
        number = int.from_bytes(hmac.digest(self._key, user.encode(errors="surrogatepass"), hashlib.sha256)[:8])
        return self._profiles[number % len(self._profiles)]


def _fitting_nothing(cost: Cost) -> str:
    """A hash of this cost whose password nobody knows."""
    salt, digest = (base64.b64encode(random_bytes(size)).rstrip(b"=").decode() for size in (16, 32))
    return f"$argon2id$v=19$m={cost.memory_kib},t={cost.passes},p={cost.lanes}${salt}${digest}"


def _first_that_fits(hashes: list[str], password: str) -> tuple[int | None, int, float]:
    """The index of the first hash that the password fits, how many were checked, and how many seconds it took.

    Runs in a thread of the pool.
    """
    began = monotonic_s()
    encoded = password.encode(errors="surrogatepass")
    for index, one in enumerate(hashes):
        try:
            low_level.verify_secret(one.encode(), encoded, Type.ID)
        except Argon2Error:
            continue
        return index, index + 1, monotonic_s() - began
    return None, len(hashes), monotonic_s() - began


def _step_back() -> None:
    """Lets the event loop and the engine's threads go first: on Linux a thread has a priority of its own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
