"""The pauses of what is followed from one broker to the next."""

from types import SimpleNamespace
from typing import Any

import pytest
from sterna import Reconnect, errors
from sterna._branches import Branches, Hops

_MOVED = errors.MovedError("it lives elsewhere")


@pytest.mark.parametrize(
    "reconnect", [Reconnect(initial_ms=0, maximum_ms=0), Reconnect(), Reconnect(initial_ms=2000, maximum_ms=60_000)]
)
async def test_who_follows_for_long_asks_no_more_often_than_before(reconnect: Reconnect) -> None:
    pauses: list[float] = []

    async def rest(pause_s: float) -> None:
        pauses.append(pause_s)

    hops = Hops(reconnect, rest)
    for _ in range(60):
        await hops.pause(_MOVED)
    assert pauses[:4] == [0.0, 0.02, 0.04, 0.08]
    assert min(pauses[10:]) >= 0.5
    assert max(pauses) <= max(0.5, reconnect.maximum_ms / 1000)


async def test_who_follows_gives_up_as_late_as_reconnecting_would() -> None:
    async def rest(_: float) -> None:
        """Time stands still."""

    hops = Hops(Reconnect(give_up_after_s=0), rest)
    with pytest.raises(errors.MovedError):
        for _ in range(60):
            await hops.pause(_MOVED)
    hops = Hops(Reconnect(give_up_after_s=None), rest)
    for _ in range(1000):
        await hops.pause(_MOVED)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.UnreachableError("nobody answered"), True),
        (errors.ShuttingDownError("it stops", retryable=True), True),
        (errors.LimitExceededError("it is full", subject="connections", retryable=True), True),
        (errors.LimitExceededError("too many wrong passwords", subject="credentials", retryable=True), False),
        (errors.LimitExceededError("it has enough of them", subject="sessions"), False),
        (errors.TransactionRolledBackError("it is gone", retryable=True), False),
    ],
)
async def test_who_is_sent_to_a_broker_that_takes_no_connection_asks_again_and_not_for_other_reasons(
    error: errors.SternaError, expected: bool
) -> None:
    told = [errors.MovedError("it lives elsewhere")]

    class Root:
        """A part whose destination lives on a broker that cannot be had at first."""

        lifeline = SimpleNamespace(options=SimpleNamespace(reconnect=Reconnect(initial_ms=0, maximum_ms=0)))

    class To(Branches[Any]):
        """Branches of it."""

        async def homed(self, part: Any, moved: errors.MovedError) -> Any:
            raise error

    async def make(_: Any) -> str:
        if told:
            raise told.pop()
        return "made"

    following = To(Root()).following(Root(), make)
    if expected:
        assert await following == "made"
        return
    with pytest.raises(type(error)):
        await following
