"""A broker that has all the connections it may have: what its user sees, and that he gets in when there is room."""

from __future__ import annotations

import asyncio
import functools

import aiohttp
import pytest
import sterna
from sterna import errors

from tests.running import ANYTHING, RunningBroker, manifest
from tests.sdk.conftest import Connect
from tests.waiting import eventually

_ONE_CONNECTION = (*ANYTHING, manifest("Broker", "b", "limits: {connections: 1}"))


@pytest.mark.parametrize("own_broker", [_ONE_CONNECTION], indirect=True)
async def test_whoever_is_not_let_in_for_want_of_room_is_told_so_by_the_broker(
    own_broker: RunningBroker, connect: Connect
) -> None:
    url = f"sterna://{own_broker.address}"
    await connect(url)
    with pytest.raises(errors.LimitExceededError) as caught:
        await sterna.connect(url, connect_attempts=2)
    error = caught.value
    assert (error.code, error.subject, error.retryable) == (errors.ErrorCode.LIMIT_EXCEEDED, "connections", True)
    assert "spec.limits.connections" in error.remedy


@pytest.mark.parametrize("own_broker", [_ONE_CONNECTION], indirect=True)
async def test_whoever_has_patience_is_let_in_when_another_leaves(own_broker: RunningBroker, connect: Connect) -> None:
    url = f"sterna://{own_broker.address}"
    first = await connect(url)
    second = asyncio.ensure_future(connect(url, connect_attempts=100))
    await eventually(functools.partial(_has_refused, own_broker), what="a refusal")
    assert not second.done()
    await first.close()
    await (await asyncio.wait_for(second, 20)).send("q", "here")


async def _has_refused(broker: RunningBroker) -> bool:
    async with aiohttp.ClientSession() as session, session.get(f"{broker.monitor}/metrics") as response:
        return 'sterna_streams_cut_total{code="LIMIT_EXCEEDED"}' in await response.text()
