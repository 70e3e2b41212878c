"""How far a `sterna send` came, when it is stopped."""

from __future__ import annotations

import asyncio
import time

import pytest
from sterna import errors
from sterna.cli.patience import in_time
from sterna.cli.tally import Place, Tally
from sterna.messages import Sent

_SENT = Sent("ID:b:1", 1, 1, None)


@pytest.mark.parametrize(
    ("error", "unanswered"),
    [
        (errors.ConnectionLostError("given up"), True),
        (errors.ClosedError("the connection's tasks were cancelled"), True),
        (errors.UnknownProducerError("forgotten"), True),
        (errors.DestinationFullError("full"), False),
    ],
)
async def test_what_the_connection_ended_without_an_answer_may_have_arrived(
    error: errors.SternaError, unanswered: bool
) -> None:
    tally = Tally("line")
    numbers = [tally.begin(Place(1, line)) for line in (1, 2, 3)]
    tally.settle(numbers[0], _SENT)
    tally.settle(numbers[1], error)
    assert tally.error is error
    assert tally.refused.done()
    assert tally.unanswered == 1
    tally.settle(numbers[2], _SENT)
    # A flush has nothing to wait for, and says so.
    tally.all_answered()
    said = tally.report()
    assert "2 confirmed, go on from line 2" in said
    assert "of these are confirmed already: line 3" in said
    assert ("1 were sent and not answered" in said) is unanswered


async def test_what_was_never_sent_is_waited_for_by_nobody() -> None:
    tally = Tally("line")
    tally.begin(Place(1, 1))
    tally.fail(errors.ConnectionLostError("given up"))
    await asyncio.wait_for(tally.refused, 1)
    assert tally.report() == "0 confirmed, go on from line 1"


def test_each_answer_is_waited_for_from_its_message_or_from_the_answer_before() -> None:
    tally = Tally("line")
    found = [tally.waiting_since_s]
    first, second = (tally.begin(Place(1, line)) for line in (1, 2))
    found.append(tally.waiting_since_s)
    tally.settle(first, _SENT)
    found.append(tally.waiting_since_s)
    tally.settle(second, _SENT)
    found.append(tally.waiting_since_s)
    # Nothing was waited for meanwhile.
    between_s = time.monotonic()
    tally.begin(Place(1, 3))
    nothing, began_s, answered_s, nothing_again = found
    assert (nothing, nothing_again) == (None, None)
    assert began_s is not None
    assert answered_s is not None
    assert began_s < answered_s
    assert (tally.waiting_since_s or 0) >= between_s


async def test_time_is_over_once_something_is_waited_for_too_long_and_not_while_nothing_is() -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    told = iter([None, None, time.monotonic(), time.monotonic() - 60])
    with pytest.raises(errors.SendTimeoutError, match=r"not confirmed within 0\.01 s"):
        await in_time(0.01, lambda: next(told), "queue:q", never)
    assert never.cancelled()
    assert await in_time(60, lambda: None, "queue:q", _done()) == "done"
    assert await in_time(None, lambda: 0.0, "queue:q", _done()) == "done"
    with pytest.raises(errors.DestinationFullError):
        await in_time(60, lambda: None, "queue:q", _refused())


async def _done() -> str:
    return "done"


async def _refused() -> None:
    raise errors.DestinationFullError("full")
