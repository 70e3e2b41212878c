"""What cannot be delivered: its deadLetterQueue may live on another broker, and anything may end meanwhile."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
import sterna
from sterna import AcknowledgeMode
from sterna_etcd import Claim
from sterna_etcd.records import ObjectStatus

from tests.running import manifest
from tests.world.clusters import LAYOUT, Cluster
from tests.world.stage import Stage, staged
from tests.world.test_homes import held

UNDELIVERED = "$sys.undelivered"


async def _exhaust(connection: sterna.Connection, queue: str, *bodies: str) -> None:
    """Has these delivered as often as the queue allows, and one more expire."""
    for body in bodies:
        await connection.send(queue, body)
    await connection.send(queue, f"{bodies[0]} fleeting", time_to_live_ms=1)
    async with await connection.session(AcknowledgeMode.INDIVIDUAL) as session:
        consumer = await session.consumer(queue)
        for _ in range(2 * len(bodies)):
            message = await consumer.receive(10)
            assert message is not None
            message.release()
        await session.flush()
    await asyncio.sleep(2)


async def _found(connection: sterna.Connection, queue: str) -> list[tuple[object, str, str]]:
    """All that is in a queue of this very broker, with reason and origin."""
    async with connection.browser(queue) as browser:
        return sorted([(one.body, one.reason, one.destination.name) async for one in browser], key=str)


def _as_told(*bodies: str) -> list[tuple[object, str, str]]:
    found = [(body, "MAX_REDELIVERY", "orders") for body in bodies]
    return sorted([*found, *((f"{body} fleeting", "EXPIRED", "orders") for body in bodies)], key=str)


async def _said(cluster: Cluster, broker: str) -> str:
    found = (await cluster.client.get(LAYOUT.object_status(Claim("Queue", "orders"), broker))).found
    return ObjectStatus.decode(found.key, found.value).message if found is not None else ""


@pytest.mark.covers("EMS-DEST-A23")
@staged
async def test_a_dead_letter_queue_on_another_broker_gets_nothing_and_that_is_told(stage: Stage) -> None:
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    await cluster.apply("Queue", "dead", broker="b1")
    await cluster.until_home("queue", "dead", "b1")
    await cluster.apply("Queue", "orders", broker="b0", maxRedelivery=2, deadLetterQueue="dead")
    await cluster.until_home("queue", "orders", "b0")
    here = await stage.connect(cluster.brokers["b0"])
    await _exhaust(here, "orders", "apart")
    assert await _found(here, UNDELIVERED) == _as_told("apart")
    assert held(cluster, "b1") == {"dead": 0}

    async def is_said() -> bool:
        return "'dead' lives on b1" in await _said(cluster, "b0")

    await cluster.until(is_said)
    [warning] = cluster.brokers["b0"].readyz()["warnings"]
    assert warning.startswith("queue 'orders': the deadLetterQueue 'dead' lives on b1: ")
    assert cluster.brokers["b1"].readyz()["warnings"] == []
    # Where both live on one broker it gets them, and nothing is to be said.
    await cluster.give("queue", "dead", "b0")

    async def is_silent() -> bool:
        return await _said(cluster, "b0") == "" and cluster.brokers["b0"].readyz()["warnings"] == []

    await cluster.until(is_silent)
    await stage.until(lambda: "dead" in held(cluster, "b0"))
    await _exhaust(here, "orders", "together")
    assert await _found(here, "dead") == _as_told("together")
    # What is left here of one that lives elsewhere again is served to nobody, and takes nothing more.
    await cluster.give("queue", "dead", "b1")
    await cluster.until(is_said)
    await asyncio.sleep(3)
    await _exhaust(here, "orders", "left")
    assert held(cluster, "b0")["dead"] == 2
    assert await _found(here, UNDELIVERED) == _as_told("apart", "left")
    await here.close()


@staged
async def test_what_expires_while_the_broker_is_away_goes_where_its_queue_wants_it(stage: Stage) -> None:
    queues = [manifest("Queue", "orders", "deadLetterQueue: dead"), manifest("Queue", "dead")]
    broker = await stage.broker(config=stage.manifests(*queues))
    connection = await stage.connect(broker)
    await connection.send("orders", "fleeting", time_to_live_ms=500)
    await connection.close()
    broker.kill()
    await asyncio.sleep(2)
    await broker.start()
    await asyncio.sleep(2)
    connection = await stage.connect(broker)
    assert await _found(connection, "dead") == [("fleeting", "EXPIRED", "orders")]
    await connection.close()


@pytest.mark.covers("EMS-DEST-A23", "EMS-DEST-A02")
@staged
async def test_what_expires_before_anybody_opens_its_dynamic_queue_goes_where_the_entry_wants_it(stage: Stage) -> None:
    entry, dead = manifest("Queue", "any", "name: 'orders.>', deadLetterQueue: dead"), manifest("Queue", "dead")
    broker = await stage.broker(config=stage.manifests(entry, dead))
    connection = await stage.connect(broker)
    for body, lives_ms in (("away", 500), ("unopened", 5_000)):
        await connection.send("orders.1", body, time_to_live_ms=lives_ms)
    await connection.close()
    broker.kill()
    await asyncio.sleep(2)
    await broker.start()
    await asyncio.sleep(10)
    connection = await stage.connect(broker)
    found = [(body, reason) for body, reason, _ in await _found(connection, "dead")]
    assert found == [("away", "EXPIRED"), ("unopened", "EXPIRED")]
    await connection.close()


@staged
async def test_what_expires_unopened_is_judged_by_the_entry_as_it_is_then(stage: Stage) -> None:
    entry, dead = manifest("Queue", "any", "name: 'orders.>'"), manifest("Queue", "dead")
    broker = await stage.broker(config=stage.manifests(entry, dead))
    connection = await stage.connect(broker)
    await connection.send("orders.1", "fleeting", time_to_live_ms=5_000)
    await connection.close()
    assert broker.node is not None
    [outcome] = await broker.node.live.apply(
        manifest("Queue", "any", "name: 'orders.>', deadLetterQueue: dead"), "test"
    )
    assert outcome.change == "configured"
    await asyncio.sleep(10)
    connection = await stage.connect(broker)
    assert [body for body, _, _ in await _found(connection, "dead")] == ["fleeting"]
    await connection.close()


@staged
async def test_a_member_without_its_etcd_puts_aside_what_expired_in_dynamic_queues(stage: Stage) -> None:
    cluster = await stage.cluster("b0")
    await cluster.apply("Queue", "dead", broker="b0")
    await cluster.apply("Queue", "any", name="orders.>", deadLetterQueue="dead")
    await cluster.until_home("queue", "dead", "b0")
    await cluster.until(lambda: cluster.member("b0").objects.allows("queue", "orders.1"))
    broker = cluster.brokers["b0"]
    connection = await stage.connect(broker)
    await connection.send("orders.1", "away", time_to_live_ms=5_000)
    await connection.close()
    await asyncio.sleep(3)
    broker.kill()
    cluster.etcd.kill()
    await asyncio.sleep(10)
    await stage.start(broker)
    await asyncio.sleep(5)
    assert held(cluster, "b0") == {"dead": 1, "orders.1": 0}
    await connection.close(failed=True)


@staged
async def test_what_expired_while_away_does_not_go_into_what_lives_elsewhere_by_then(stage: Stage) -> None:
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    for name, more in (("dead", {}), ("orders", {"deadLetterQueue": "dead"})):
        await cluster.apply("Queue", name, broker="b0", **more)
        await cluster.until_home("queue", name, "b0")
    broker = cluster.brokers["b0"]
    await stage.until(lambda: "dead" in held(cluster, "b0") and "orders" in held(cluster, "b0"))
    connection = await stage.connect(broker)
    await connection.send("dead", "left")
    await cluster.give("queue", "dead", "b1")
    await stage.until(lambda: any("lives on b1" in one for one in broker.readyz()["warnings"]))
    await connection.send("orders", "fleeting", time_to_live_ms=3_000)
    await connection.close()
    broker.kill()
    await asyncio.sleep(5)
    await stage.start(broker)
    await asyncio.sleep(5)
    connection = await stage.connect(broker)
    assert await _found(connection, UNDELIVERED) == [("fleeting", "EXPIRED", "orders")]
    assert held(cluster, "b0")["dead"] == 1
    await connection.close()


@pytest.mark.parametrize("seed", range(5))
def test_nothing_that_is_put_aside_is_lost_or_doubled_whatever_ends_the_broker(seed: int) -> None:
    """Every message is taken, or stands in one dead letter queue, once; kills and power cuts come at any moment."""

    @staged
    async def shown(stage: Stage) -> None:
        random = Random(f"dead letters {seed}")
        queues = [
            manifest("Queue", "orders", "maxRedelivery: 2, deadLetterQueue: dead"),
            manifest("Queue", "others", "maxRedelivery: 2, deadLetterQueue: $sys.undelivered"),
            manifest("Queue", "dead", "maxRedelivery: 2, deadLetterQueue: $sys.undelivered"),
        ]
        broker = await stage.broker(config=stage.manifests(*queues))
        confirmed: list[str] = []
        for start in range(4):
            connection = await stage.connect(broker)
            ending = asyncio.create_task(asyncio.sleep(random.random() * 0.3))
            working = asyncio.create_task(_works(connection, random, start, confirmed))
            await asyncio.wait((ending, working), return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            await asyncio.wait((working,))
            broker.kill(power=random.random() < 0.5)
            await connection.close(failed=True)
            await asyncio.sleep(1)
            await broker.start()
        connection = await stage.connect(broker)
        # What is left is delivered until it is put aside.
        for queue in ("orders", "others"):
            await _exhausted(connection, queue)
        aside = [body for queue in ("dead", UNDELIVERED) for body, _, _ in await _found(connection, queue)]
        assert len(set(aside)) == len(aside)
        missing = [body for body in confirmed if body not in aside]
        assert missing == []
        assert len(confirmed) > 5
        await connection.close()

    shown()


async def _works(connection: sterna.Connection, random: Random, start: int, confirmed: list[str]) -> None:
    """Sends, and has some of it delivered in vain."""
    session = await connection.session(AcknowledgeMode.INDIVIDUAL)
    consumers = {queue: await session.consumer(queue, prefetch=5) for queue in ("orders", "others")}
    for number in range(60):
        queue = random.choice(("orders", "others"))
        body = f"{start}.{number} of {queue}"
        await connection.send(queue, body, time_to_live_ms=random.choice((0, 0, 20)))
        confirmed.append(body)
        message = await consumers[queue].receive(0.01)
        if message is not None:
            message.release()


async def _exhausted(connection: sterna.Connection, queue: str) -> None:
    async with await connection.session(AcknowledgeMode.INDIVIDUAL) as session:
        consumer = await session.consumer(queue)
        while (message := await consumer.receive(2)) is not None:
            message.release()
        await session.flush()
