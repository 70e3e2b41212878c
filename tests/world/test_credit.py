"""Windows and credit, of producers and consumers: what fits, what waits, and that nothing waits for ever."""

from __future__ import annotations

import asyncio
import gc

import pytest
import sterna
import sterna.admin
from sterna import AcknowledgeMode, DeliveryMode, errors

from tests.running import ANYTHING, manifest
from tests.world.processes import current
from tests.world.stage import Stage, staged

_LARGE = "x" * 700_000


@pytest.mark.covers("EMS-DEST-A26")
@staged
async def test_a_message_larger_than_the_window_in_bytes_comes_and_the_next_one_too(stage: Stage) -> None:
    connection = await stage.connect(await stage.broker())
    for number in range(12):
        await connection.send("q", f"{number} {_LARGE}")
    consumer = await connection.consumer("q", prefetch_bytes=1_000)
    for number in range(12):
        message = await consumer.receive(10)
        assert message is not None, number
        assert message.text.startswith(f"{number} ")
    await connection.close()


@staged
async def test_many_producers_of_large_messages_do_not_wait_for_credit_that_never_comes(stage: Stage) -> None:
    # With such frames a message may be larger than what is left of its producer's window.
    limits = manifest("Broker", "m", "limits: {frameBytes: 16777216, messageBytes: 16777216}")
    config = stage.manifests(*ANYTHING, limits)
    connection = await stage.connect(await stage.broker(config=config, segment_bytes=64 * 1024 * 1024))
    producers = [await connection.producer(f"q.{number}") for number in range(12)]
    async with asyncio.timeout(60):
        for _ in range(2):
            await asyncio.gather(*(one.send("x" * 7_000_000) for one in producers))
    await connection.close()


@staged
async def test_a_large_body_goes_in_pieces_that_fit_the_broker_s_frames(stage: Stage) -> None:
    """One that does not ends the connection, and with it the messages of everybody else on it."""
    limits = manifest("Broker", "m", "limits: {frameBytes: 65536}")
    connection = await stage.connect(await stage.broker(config=stage.manifests(*ANYTHING, limits)))
    interrupted: list[object] = []
    connection.on_interrupted(interrupted.append)
    body = "x" * 500_000
    await connection.send("q", body, timeout=20.0)
    consumer = await connection.consumer("q")
    message = await consumer.receive(20)
    assert message is not None
    assert (message.text == body, interrupted) == (True, [])
    await connection.close()


@staged
async def test_a_send_ends_in_its_time_also_when_nobody_answers(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    producer = await connection.producer("q")
    assert broker.process is not None
    stage.network.part(current(), broker.process)
    before_s = stage.loop.time()
    with pytest.raises(errors.SendTimeoutError):
        await producer.send("x", timeout=2.0)
    assert 1.9 < stage.loop.time() - before_s < 2.5
    stage.network.heal()
    await producer.flush()
    assert [one.body async for one in connection.browser("q")] == ["x"], "it is sent all the same"
    await connection.close()


@pytest.mark.covers("EMS-CLI-A27")
@staged
async def test_the_end_of_a_listener_is_told(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    told: list[BaseException] = []
    connection.on_error(told.append)
    await connection.send("q", "x")
    heard: list[str] = []
    await connection.consumer("q", listener=lambda message: heard.append(message.body))
    await stage.until(lambda: heard)
    async with sterna.admin.connect(f"sterna://{broker.address}") as admin:
        await admin.delete("Queue", "q", with_messages=True)
    await stage.until(lambda: told)
    [error] = told
    assert isinstance(error, errors.ClosedError)
    assert "will not go on" in str(error)
    # One that the application closes itself is not told of.
    consumer = await connection.consumer("other", listener=lambda _: None)
    await consumer.close()
    await connection.close()
    assert told == [error]


@staged
async def test_a_session_forgets_the_subscriptions_that_it_had(stage: Stage) -> None:
    connection = await stage.connect(await stage.broker())
    session = await connection.session(AcknowledgeMode.INDIVIDUAL)
    for number in range(100):
        await connection.send("q", str(number))
        async with await session.consumer("q") as consumer:
            message = await consumer.receive(5)
            assert message is not None
            assert await message.acknowledge()
        async with await session.consumer(sterna.Topic(f"t.{number}")):
            pass
    await session.flush()
    assert session._part.state.sources < 40
    assert len(session._part.state.handed) <= 1
    await connection.close()


@staged
async def test_the_answer_to_a_send_that_was_cut_short_is_nobodys(stage: Stage) -> None:
    """Every 128th pauses when its message is on its way: its end then is no exception that somebody forgot."""
    folder = stage.manifests(*ANYTHING, manifest("Queue", "narrow", "maxMessages: 127, overflowPolicy: rejectIncoming"))
    connection = await stage.connect(await stage.broker(config=folder))
    session = await connection.session()
    producer = await session.producer("narrow")
    for number in range(127):
        await producer.send(str(number))
    sending = asyncio.create_task(producer.send("one too many"))
    await asyncio.sleep(0)
    sending.cancel()
    await asyncio.wait((sending,))
    assert sending.cancelled()
    del sending
    with pytest.raises(errors.DestinationFullError):
        await producer.send("another")
    gc.collect()
    assert stage.faults() == []
    await connection.close()


@pytest.mark.parametrize("is_begun", [False, True])
def test_who_waits_for_room_in_a_transaction_when_the_link_breaks_is_in_it_or_hears_that_it_is_lost(
    is_begun: bool,
) -> None:
    """What begins one has lost nothing: it goes over the next link, and the commit has it."""

    @staged
    async def shown(stage: Stage) -> None:
        broker = await stage.broker()
        connection = await stage.connect(broker)
        session = await connection.session(transacted=True)
        producer = await session.producer("q")
        flood = await connection.producer("flood", delivery_mode=DeliveryMode.RELIABLE)
        if is_begun:
            await producer.send("before")
        assert broker.process is not None
        stage.network.part(current(), broker.process)

        async def floods() -> None:
            while True:
                await flood.send_soon(bytes(100_000))

        flooding = asyncio.create_task(floods())
        await asyncio.sleep(0.5)
        sending = asyncio.create_task(producer.send("first"))
        await asyncio.sleep(0.5)
        assert not sending.done()
        flooding.cancel()
        stage.network.heal()
        await stage.broken(connection)
        if is_begun:
            with pytest.raises(errors.TransactionRolledBackError):
                await sending
            await session.rollback()
            await producer.send("first")
        else:
            await asyncio.wait_for(sending, 20)
        await session.commit()
        assert [one.body async for one in connection.browser("q")] == ["first"]
        await connection.close()

    shown()
