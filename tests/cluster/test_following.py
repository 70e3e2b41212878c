"""One address serves the whole cluster: whatever lives on another broker, the SDK and the command line follow."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sterna
import sterna.blocking
from sterna import errors

from tests.cluster.conftest import Cluster, Connect, Operator, document
from tests.support.held_answers import HeldAnswers

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
async def spread(two: Cluster, operator: Operator) -> Cluster:
    """Queues q0 and q1 and topics t0 and t1, each on the broker of its number; app.> may be created."""
    for number in (0, 1):
        for kind, letter in (("Queue", "q"), ("Topic", "t")):
            claim = await operator.put(document(kind, f"{letter}{number}", broker=f"b{number}"))
            await operator.until(claim, "applied")
    for kind in ("Queue", "Topic"):
        claim = await operator.put(document(kind, "any", name="app.>"), claim="app.>")
        await operator.everywhere(claim)
    return two


async def test_producers_and_consumers_follow(spread: Cluster, connect: Connect) -> None:
    connection = await connect(spread.url("b0"))
    for name in ("q0", "q1"):
        producer = await connection.producer(name)
        await producer.send(name)
    for name in ("q0", "q1"):
        consumer = await connection.consumer(name)
        message = await consumer.receive(5)
        assert message is not None
        assert message.text == name
    assert connection.broker == "b0"


async def test_anonymous_sends_go_home_each(spread: Cluster, connect: Connect) -> None:
    connection = await connect(spread.url("b0"))
    sent = [await connection.send(name, name) for name in ("q0", "q1", "q1", "q0")]
    assert [one.message_id.split(".")[0] for one in sent] == ["ID:b0", "ID:b1", "ID:b1", "ID:b0"]
    for mode in (sterna.DeliveryMode.RELIABLE, sterna.DeliveryMode.NON_PERSISTENT):
        await connection.send("q1", "more", delivery_mode=mode)
    consumer = await connection.consumer("q1")
    assert [message.text for _ in range(4) if (message := await consumer.receive(5))] == ["q1", "q1", "more", "more"]


async def test_one_session_reaches_over_brokers(spread: Cluster, connect: Connect) -> None:
    connection = await connect(spread.url("b1"))
    session = await connection.session(sterna.AcknowledgeMode.CLIENT)
    for name in ("q0", "q1"):
        await connection.send(name, name)
    received = []
    for name in ("q0", "q1"):
        consumer = await session.consumer(name)
        received.append(await consumer.receive(5))
    assert received[1] is not None
    # In CLIENT mode one acknowledgement is for all that the session was handed, on whichever broker.
    await received[1].acknowledge()
    await session.close()
    for name in ("q0", "q1"):
        again = await connection.consumer(name)
        assert await again.receive(0.3) is None


async def test_a_durable_lives_with_its_topic(spread: Cluster, connect: Connect) -> None:
    first = await connect(spread.url("b0"), client_id="reader")
    consumer = await first.consumer(sterna.Topic("t1"), durable="news")
    await first.close()
    assert consumer.closed is not None
    other = await connect(spread.url("b0"))
    await other.send(sterna.Topic("t1"), "while away")
    second = await connect(spread.url("b0"), client_id="reader")
    again = await second.consumer(sterna.Topic("t1"), durable="news")
    message = await again.receive(5)
    assert message is not None
    assert message.text == "while away"
    await again.close()
    await second.unsubscribe("news")


async def test_requests_and_replies_cross(spread: Cluster, connect: Connect) -> None:
    server, client = await connect(spread.url("b0")), await connect(spread.url("b0"))

    async def answer(message: sterna.Message) -> None:
        await server.reply(message, f"{message.text}!")

    for name in ("q0", "q1"):
        await server.consumer(name, listener=answer)
    for name in ("q0", "q1"):
        assert (await client.request(name, name, timeout=5)).text == f"{name}!"


async def test_a_transaction_goes_to_its_home_and_no_further(spread: Cluster, connect: Connect) -> None:
    connection = await connect(spread.url("b0"))
    session = await connection.session(transacted=True)
    producer = await session.producer("q1")
    with pytest.raises(errors.SpansHomesError, match="q0"):
        await session.producer("q0")
    await producer.send("in it")
    await session.commit()
    consumer = await connection.consumer("q1")
    assert await consumer.receive(5) is not None


async def test_a_dynamic_name_has_one_home_whoever_opens_it(spread: Cluster, connect: Connect) -> None:
    one, other = await connect(spread.url("b0")), await connect(spread.url("b1"))
    names = [f"app.n{number}" for number in range(6)]
    await asyncio.gather(*(connection.send(name, "x") for name in names for connection in (one, other)))
    for name in names:
        consumer = await one.consumer(name)
        assert [await consumer.receive(5) is not None for _ in range(2)] == [True, True]
        assert await consumer.receive(0.2) is None


async def test_a_pattern_lives_on_one_broker_with_all_that_it_matches(
    spread: Cluster, operator: Operator, connect: Connect
) -> None:
    one, other = await connect(spread.url("b0")), await connect(spread.url("b1"))
    consumer = await one.consumer(sterna.Topic("app.prices.*"))
    for number in range(4):
        await other.send(sterna.Topic(f"app.prices.{number}"), str(number))
    received = [await consumer.receive(5) for _ in range(4)]
    assert sorted(message.text for message in received if message) == ["0", "1", "2", "3"]
    with pytest.raises(errors.SpansHomesError):
        await one.consumer(sterna.Topic("*"))


async def test_the_home_is_killed_and_comes_back(spread: Cluster, connect: Connect) -> None:
    connection = await connect(spread.url("b0"))
    producer, consumer = await connection.producer("q1"), await connection.consumer("q1")
    await producer.send("before")
    await asyncio.to_thread(spread.brokers["b1"].kill)
    sending = asyncio.create_task(producer.send("after"))
    await asyncio.to_thread(spread.brokers["b1"].start)
    await asyncio.wait_for(sending, 20)
    texts = {message.text for _ in range(3) if (message := await consumer.receive(2))}
    assert texts == {"before", "after"}


async def test_a_home_that_is_being_started_is_waited_for(spread: Cluster, connect: Connect) -> None:
    connection = await connect(spread.url("b0"))
    await asyncio.to_thread(spread.brokers["b1"].kill)
    opening = asyncio.create_task(connection.producer("q1"))
    # Another broker is reached meanwhile.
    await (await connection.producer("q0")).send("here")
    assert not opening.done()
    await asyncio.to_thread(spread.brokers["b1"].start)
    producer = await asyncio.wait_for(opening, 20)
    await producer.send("there")


def test_the_blocking_face_follows(spread: Cluster) -> None:
    with sterna.blocking.connect(spread.url("b0")) as connection:
        connection.send("q1", "over there")
        with connection.consumer("q1") as consumer:
            message = consumer.receive(5)
            assert message is not None
            assert message.text == "over there"


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    rooms = os.pathsep.join(str(ROOT / name) for name in ("client", "crds", "etcd", "broker"))
    return subprocess.run(
        [sys.executable, "-m", "sterna", *arguments],
        env={**os.environ, "PYTHONPATH": rooms, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_the_command_line_follows(spread: Cluster) -> None:
    def run() -> None:
        url = spread.url("b0")
        assert command("send", "q1", "hello", "--server", url).returncode == 0
        got = command("receive", "q1", "--server", url)
        assert "hello" in got.stdout, got.stderr
        assert command("send", "q1", "again", "--server", url).returncode == 0
        looked = command("browse", "q1", "--server", url)
        assert "again" in looked.stdout, looked.stderr
        purged = command("purge", "queue", "q1", "--yes", "--server", url)
        assert purged.returncode == 0, purged.stderr

    await asyncio.to_thread(run)


async def test_what_is_being_opened_goes_along_when_a_transacted_session_goes_elsewhere(
    spread: Cluster, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the session is open where it is, so that it may go: what was just being opened would be left there."""
    connection = await connect(spread.url("b0"))
    for kind, make in (("open_consumer", "consumer"), ("open_producer", "producer")):
        session = await connection.session(transacted=True)
        with monkeypatch.context() as patched:
            gate = HeldAnswers(patched, spread.brokers["b0"].address, kind, refusals=False)
            first = asyncio.create_task(getattr(session, make)("q0"))
            await asyncio.wait_for(gate.arrived.wait(), 10)
            second = await session.producer("q1")  # the session goes to b1
            gate.opened.set()
            # Its destination is at b0, and the session has something at b1 by now.
            with pytest.raises(errors.SpansHomesError):
                await asyncio.wait_for(first, 10)
        await second.send(make)
        await session.commit()
        await session.close()
    consumer = await connection.consumer("q1")
    assert [(await consumer.receive(5)).text for _ in range(2)] == ["consumer", "producer"]  # type: ignore[union-attr]


async def test_a_session_that_goes_elsewhere_while_its_connection_is_restored_is_left_alone_where_it_was(
    spread: Cluster, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was among those to be opened anew, and what is in it would be opened a second time, where nobody has it."""
    connection = await connect(spread.url("b0"))
    going, other = await connection.session(transacted=True), await connection.session()
    restored = asyncio.Event()
    connection.on_restored(lambda _: restored.set())
    async with asyncio.timeout(20):
        there = HeldAnswers(monkeypatch, spread.brokers["b1"].address, "open_session")
        opening = asyncio.create_task(going.consumer("q1"))
        await there.arrived.wait()
        here = HeldAnswers(monkeypatch, spread.brokers["b0"].address, "open_session")
        await connection._lifeline._link.abort()  # type: ignore[union-attr]
        await here.arrived.wait()
        there.opened.set()
        consumer = await opening
        here.opened.set()
        await restored.wait()
        await (await other.producer("q1")).send("x")
        message = await consumer.receive(5)
        assert message is not None
        await going.commit()
