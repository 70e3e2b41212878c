"""How far a `sterna send` came, when it is stopped."""

from __future__ import annotations

import asyncio

import pytest
from sterna import errors
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
