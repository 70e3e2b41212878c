"""What a browser shows while its connection breaks, and while others in its session settle what they have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable

import pytest
import sterna
from sterna import AcknowledgeMode, errors
from sterna.connections import Browsing

from tests.world.stage import Stage, staged


async def _looked(
    browser: AsyncIterable[sterna.Message], seen: list[object], at: int, then: Callable[[], Awaitable[object]]
) -> None:
    """Adds what a browser shows to `seen`; behind so many messages something else is done."""
    async for message in browser:
        seen.append(message.body)
        if len(seen) == at:
            await then()


async def _filled(stage: Stage, count: int) -> sterna.Connection:
    connection = await stage.connect(await stage.broker())
    for number in range(count):
        await connection.send("orders", f"{number}")
    return connection


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.TRANSACTED])
@pytest.mark.parametrize("count", [600, 100])
def test_one_that_has_not_seen_all_when_the_connection_breaks_says_so(mode: AcknowledgeMode, count: int) -> None:
    """With 100 the broker has sent all of it, and said so, and most was not looked at."""

    @staged
    async def shown(stage: Stage) -> None:
        connection = await _filled(stage, count)
        session = await connection.session(mode)
        seen: list[object] = []

        async def breaks() -> None:
            await asyncio.sleep(0.1)
            await stage.broken(connection)

        with pytest.raises(errors.ConnectionLostError):
            await asyncio.wait_for(_looked(session.browser("orders"), seen, 10, breaks), 20)
        assert seen == [f"{number}" for number in range(10)]
        await session.close()
        assert connection._lifeline._feeds == {}
        await connection.close()

    shown()


@pytest.mark.parametrize("of", ["session", "connection"])
def test_tasks_that_share_one_are_shown_each_message_once(of: str) -> None:
    """It is open once, whoever looks first; and when that one gives up while it is opened, the others go on."""

    @staged
    async def shown(stage: Stage) -> None:
        await _filled(stage, 100)
        connection = await stage.connect(stage.brokers[0])  # which has no session yet
        browser = (await connection.session() if of == "session" else connection).browser("orders")
        seen: list[object] = []

        async def nothing() -> None: ...

        looking = [asyncio.create_task(_looked(browser, seen, 0, nothing)) for _ in range(3)]
        await asyncio.sleep(0)
        looking[0].cancel()
        _, late = await asyncio.wait(looking, timeout=20)
        assert not late
        assert [one.cancelled() or one.exception() for one in looking] == [True, None, None]
        assert sorted(map(str, seen), key=int) == [f"{number}" for number in range(100)]
        assert [row["consumers"] for row in stage.brokers[0].connections()] == [0, 0]
        assert connection._lifeline._feeds == {}
        await connection.close()

    shown()


@staged
async def test_one_that_has_seen_all_ends_well(stage: Stage) -> None:
    connection = await _filled(stage, 3)
    session = await connection.session()
    browser = session.browser("orders")
    seen = [(await anext(browser)).body for _ in range(3)]
    await asyncio.sleep(0.1)
    await stage.broken(connection)
    seen += [message.body async for message in browser]
    assert seen == ["0", "1", "2"]
    await connection.close()


@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT, AcknowledgeMode.TRANSACTED])
@pytest.mark.parametrize("count", [600, 100])
def test_one_goes_on_when_others_in_its_session_have_everything_delivered_again(
    mode: AcknowledgeMode, count: int
) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        connection = await _filled(stage, count)
        session = await connection.session(mode)
        consumer = await session.consumer("others")
        await connection.send("others", "x")
        assert await consumer.receive(5) is not None
        seen: list[object] = []

        async def gives_back() -> None:
            await asyncio.sleep(0.1)
            await (session.rollback() if mode is AcknowledgeMode.TRANSACTED else session.recover())

        await asyncio.wait_for(_looked(session.browser("orders"), seen, 10, gives_back), 20)
        assert seen == [f"{number}" for number in range(count)]
        again = await consumer.receive(5)
        assert again is not None
        assert again.redelivered
        await connection.close()

    shown()


@pytest.mark.parametrize(("count", "size"), [(300, 30_000), (40, 700_000)])
def test_one_sees_all_that_waits_for_it_at_the_broker_when_its_session_recovers(count: int, size: int) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        connection = await stage.connect(await stage.broker())
        for number in range(count):
            await connection.send("orders", f"{number:04}" + "x" * size)
        session = await connection.session(AcknowledgeMode.CLIENT)
        seen: list[object] = []
        await asyncio.wait_for(_looked(session.browser("orders"), seen, 1, session.recover), 60)
        assert all(isinstance(body, str) for body in seen)
        assert [int(str(body)[:4]) for body in seen] == list(range(count))
        await connection.close()

    shown()


@staged
async def test_one_that_has_not_seen_all_when_the_queue_moves_says_so(stage: Stage) -> None:
    """It would look through the queue from its beginning there, and at nothing when that is empty."""
    cluster = await stage.two("orders")
    connection = await stage.connect(cluster.brokers["b1"])
    for number in range(100):
        await connection.send("orders", f"{number}")
    seen: list[object] = []

    async def goes() -> None:
        await cluster.give("queue", "orders", "b0")
        await cluster.until_home("queue", "orders", "b0")
        await asyncio.sleep(1)

    with pytest.raises(errors.MovedError):
        await asyncio.wait_for(_looked(connection.browser("orders"), seen, 10, goes), 20)
    assert len(seen) == 10
    await connection.close()


@staged
async def test_one_that_is_closed_while_the_first_look_is_prepared_is_not_opened(stage: Stage) -> None:
    await _filled(stage, 1)
    for step in range(20):
        connection = await stage.connect(stage.brokers[0])  # which has no session yet
        browser = connection.browser("orders")

        async def looks(at: Browsing = browser) -> None:
            await anext(at, None)

        looking = asyncio.create_task(looks())
        await asyncio.sleep(step / 4_000)
        await asyncio.wait_for(browser.close(), 10)
        await asyncio.wait_for(looking, 10)
        assert connection._lifeline._feeds == {}, step
        assert [one async for one in browser] == [], step
        await connection.close()


@staged
async def test_one_that_is_closed_before_it_is_open_shows_nothing(stage: Stage) -> None:
    """Whoever looks first has the connection's session made, and the browser behind that."""
    await _filled(stage, 3)
    connection = await stage.connect(stage.brokers[0])  # which has no session yet
    browser = connection.browser("orders")
    looking = asyncio.create_task(_bodies(browser))
    await asyncio.sleep(0)
    await browser.close()
    assert await asyncio.wait_for(looking, 20) == []
    assert await _bodies(browser) == []
    assert [row["consumers"] for row in stage.brokers[0].connections()] == [0, 0]
    await connection.close()


async def _bodies(browser: AsyncIterable[sterna.Message]) -> list[object]:
    return [message.body async for message in browser]
