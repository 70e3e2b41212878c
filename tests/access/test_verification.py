"""Checking passwords: what it costs, whom it holds up, what it gives away."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sterna_broker.access import verification
from sterna_broker.access.throttle import BURST, REFILL_MS, FailureThrottle
from sterna_broker.access.users import UserStore
from sterna_broker.access.verification import Verifier
from sterna_broker.refusals import RefusedError
from sterna_resources.passwords import Cost

from tests.access.conftest import hashed

#: About the real cost: what takes long has to take long here, too.
REAL = Cost()


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> UserStore:
    return UserStore(clock)


@pytest.fixture
async def verifier(store: UserStore, clock: Clock) -> AsyncIterator[Verifier]:
    made = Verifier(store, clock)
    yield made
    await made.stop()


def record(*passwords: str, cost: Cost | None = None) -> dict[str, Any]:
    return {"credentials": [{"argon2": hashed(one, *([cost] if cost else []))} for one in passwords]}


async def refused(verifier: Verifier, user: str, password: str, host: str = "h") -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await verifier.verify(user, password, host)
    return caught.value


async def test_any_of_a_users_passwords_lets_in(store: UserStore, verifier: Verifier) -> None:
    store.replace({"a": record("old", "new"), "b": record("other")})
    old, new = store.live("a")
    assert await verifier.verify("a", "old", "h") == old
    assert await verifier.verify("a", "new", "h") == new
    for user, password in (("a", "other"), ("b", "old"), ("a", ""), ("c", "old"), ("", "")):
        assert (await refused(verifier, user, password)).code == "UNAUTHENTICATED"


async def test_a_wrong_password_and_an_unknown_user_get_the_same_answer(store: UserStore, verifier: Verifier) -> None:
    store.replace({"a": record("1"), "nobody": {"credentials": []}})
    answers = [await refused(verifier, user, "wrong") for user in ("a", "b", "nobody")]
    answers.append(await refused(verifier, "x" * 300, "wrong"))
    answers.append(await refused(verifier, "a", "x" * 5_000))
    assert len({(one.code, one.subject, one.message, one.remedy, one.retryable) for one in answers}) == 1


async def test_an_unknown_user_takes_the_work_of_a_known_one(store: UserStore, verifier: Verifier) -> None:
    store.replace({"a": record("1", "2", "3")})
    for user in ("a", "b"):
        before = verifier.checks
        await refused(verifier, user, "wrong")
        assert verifier.checks - before == 3


async def test_an_unknown_user_takes_the_time_of_a_known_one(store: UserStore, verifier: Verifier) -> None:
    store.replace({"a": record("1", cost=REAL)})

    async def took_s(user: str, password: str) -> float:
        # Of this process's threads, at work: by the clock each may wait for a core as long as it takes.
        began = time.process_time()
        await refused(verifier, user, password, password)
        return time.process_time() - began

    pairs = [(await took_s("a", f"w{number}"), await took_s("b", f"w{number}")) for number in range(15)]
    known, unknown = (statistics.median(side) for side in zip(*pairs, strict=True))
    # Finding out that there is no such user takes some thousandth of this.
    assert 0.5 < known / unknown < 2


async def test_what_was_checked_is_not_checked_again_for_a_while(
    store: UserStore, verifier: Verifier, clock: Clock
) -> None:
    store.replace({"a": record("1")})
    for _ in range(5):
        await verifier.verify("a", "1", "h")
        await refused(verifier, "a", "2")
    assert verifier.checks == 2
    clock.now_ms += verification.WRONG_REMEMBERED_MS
    await refused(verifier, "a", "2")
    await verifier.verify("a", "1", "h")
    assert verifier.checks == 3
    clock.now_ms += verification.REMEMBERED_MS
    await verifier.verify("a", "1", "h")
    assert verifier.checks == 4


async def test_many_with_one_password_at_once_share_one_check(store: UserStore, verifier: Verifier) -> None:
    store.replace({"a": record("1", cost=REAL)})
    found = await asyncio.gather(*(verifier.verify("a", "1", f"h{number % 3}") for number in range(1_000)))
    assert len({one.id for one in found}) == 1
    assert verifier.checks == 1


async def test_a_password_that_was_taken_back_is_refused_though_it_was_remembered(
    store: UserStore, verifier: Verifier
) -> None:
    store.replace({"a": record("old")})
    await verifier.verify("a", "old", "h")
    store.replace({"a": record("new")})
    assert (await refused(verifier, "a", "old")).code == "UNAUTHENTICATED"
    await verifier.verify("a", "new", "h")


async def test_a_password_that_was_wrong_counts_as_soon_as_it_is_right(store: UserStore, verifier: Verifier) -> None:
    store.replace({"a": record("old")})
    await refused(verifier, "a", "new")
    store.replace({"a": record("old", "new")})
    await verifier.verify("a", "new", "h")


async def test_what_changes_while_a_check_is_under_way_counts(store: UserStore, verifier: Verifier) -> None:
    store.replace({"a": record("old", cost=REAL)})
    added, removed = (asyncio.create_task(verifier.verify("a", one, "h")) for one in ("new", "old"))
    await asyncio.sleep(0)
    store.replace({"a": record("new", cost=REAL)})
    assert await added == store.live("a")[0]
    with pytest.raises(RefusedError):
        await removed


async def test_an_ended_password_is_refused_though_it_was_remembered(
    store: UserStore, verifier: Verifier, clock: Clock
) -> None:
    store.replace({"a": {"credentials": [{"argon2": hashed("1"), "not_after_ms": clock.now_ms + 10}]}})
    await verifier.verify("a", "1", "h")
    clock.now_ms += 10
    await refused(verifier, "a", "1")


async def test_guessing_is_slowed_down_for_one_user_from_one_host(
    store: UserStore, verifier: Verifier, clock: Clock
) -> None:
    store.replace({"a": record("1"), "b": record("2")})
    await verifier.verify("a", "1", "good")
    for number in range(BURST):
        assert (await refused(verifier, "a", f"wrong {number}", "bad")).code == "UNAUTHENTICATED"
    stopped = await refused(verifier, "a", "another", "bad")
    assert (stopped.code, stopped.retryable) == ("LIMIT_EXCEEDED", True)
    # Whoever has been let in lately, other hosts and other users are not concerned.
    await verifier.verify("a", "1", "bad")
    await verifier.verify("b", "2", "bad")
    assert (await refused(verifier, "a", "wrong", "elsewhere")).code == "UNAUTHENTICATED"
    clock.now_ms += REFILL_MS
    assert (await refused(verifier, "a", "another", "bad")).code == "UNAUTHENTICATED"
    assert (await refused(verifier, "a", "yet another", "bad")).code == "LIMIT_EXCEEDED"


def test_the_throttle_is_bounded(clock: Clock) -> None:
    throttle = FailureThrottle(clock)
    for number in range(20_000):
        throttle.failed("h", str(number))
    assert len(throttle._debts) == 10_000


async def test_too_many_that_wait_are_told_to_come_back(store: UserStore, verifier: Verifier) -> None:
    store.replace({"a": record("1", cost=REAL)})
    tasks = [
        asyncio.create_task(refused(verifier, f"u{number}", "wrong", "flood"))
        for number in range(verifier.waiting_max // 2)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    over = await refused(verifier, "one more", "wrong", "flood")
    assert (over.code, over.retryable) == ("UNAVAILABLE", True)
    # Somebody from elsewhere is served: after the flood's, but served.
    other = asyncio.create_task(verifier.verify("a", "1", "elsewhere"))
    await asyncio.sleep(0)
    assert not other.done()
    await verifier.stop()
    await asyncio.gather(*tasks, other, return_exceptions=True)


async def test_the_slower_checks_are_the_fewer_may_wait(store: UserStore, verifier: Verifier) -> None:
    before = verifier.waiting_max
    cost = Cost(memory_kib=131_072, passes=3, lanes=1)
    store.replace({"a": await asyncio.to_thread(record, "1", cost=cost)})
    await refused(verifier, "a", "wrong")
    assert verification.WAITING_MIN <= verifier.waiting_max < before


async def test_checking_does_not_hold_up_the_loop(store: UserStore, verifier: Verifier) -> None:
    cost = Cost(memory_kib=65_536, passes=4, lanes=1)
    store.replace({"a": await asyncio.to_thread(record, "1", cost=cost)})
    checking = asyncio.create_task(refused(verifier, "a", "wrong"))
    turns = 0
    while not checking.done():
        await asyncio.sleep(0)
        turns += 1
    await checking
    # One check takes some hundred milliseconds; a loop that is held up would have turned a few times.
    assert turns > 100


async def test_failures_are_logged_without_passwords_and_without_names_that_nobody_has(
    store: UserStore, verifier: Verifier, logged: list[dict[str, Any]]
) -> None:
    store.replace({"a": record("1")})
    await refused(verifier, "a", "s3cret", "ipv4:10.0.0.1")
    await refused(verifier, "s3cret", "s3cret", "ipv4:10.0.0.1")
    for number in range(100):
        await refused(verifier, "b", f"s3cret{number}", f"h{number}")
    failed = [one for one in logged if one["event"] == "authentication_failed"]
    assert [one["user"] for one in failed[:2]] == ["a", None]
    assert failed[0]["host"] == "ipv4:10.0.0.1"
    assert len(failed) == 20
    assert "s3cret" not in str(logged)
