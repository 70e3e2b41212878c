"""The pauses of what is followed from one broker to the next."""

import pytest
from sterna import Reconnect, errors
from sterna._branches import Hops

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
