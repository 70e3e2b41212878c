"""Several brokers that share an etcd: homes, a broker that is emptied, restarts, an etcd that is away."""

from __future__ import annotations

import asyncio
from typing import Any

import sterna

from tests.world.stage import Stage, staged


async def drained(connection: sterna.Connection, name: str) -> list[str]:
    """What is left of a queue."""
    found: list[Any] = []
    consumer = await connection.consumer(name)
    while (message := await consumer.receive(3.0)) is not None:
        found.append(message.body)
    await consumer.close()
    return found


@staged
async def test_names_have_one_home_each_and_all_brokers_lead_there(stage: Stage) -> None:
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    one, other = [await stage.connect(cluster.brokers[name]) for name in ("b0", "b1")]
    for number in range(6):
        await one.send(f"q{number}", f"from one {number}")
        await other.send(f"q{number}", f"from other {number}")
    homes = [await cluster.home("queue", f"q{number}") for number in range(6)]
    assert set(homes) == {"b0", "b1"}
    for number in range(6):
        assert await drained(other, f"q{number}") == [f"from one {number}", f"from other {number}"]
    await one.close()
    await other.close()


@staged
async def test_a_broker_is_emptied_and_its_users_follow(stage: Stage) -> None:
    cluster = await stage.two("orders")
    connection = await stage.connect(cluster.brokers["b0"])
    producer, consumer = await connection.producer("orders"), await connection.consumer("orders")
    await producer.send("before")
    assert await consumer.receive(5) is not None
    await cluster.drain("b1")
    await consumer.receive(0.05)  # the acknowledgement leaves
    await cluster.until_home("queue", "orders", "b0")
    await producer.send("after")
    after = await consumer.receive(10)
    assert after is not None
    assert after.body == "after"
    await connection.close()


@staged
async def test_a_broker_starts_from_its_kept_copy_while_etcd_is_away(stage: Stage) -> None:
    cluster = await stage.two("orders")
    connection = await stage.connect(cluster.brokers["b1"])
    await connection.send("orders", "kept")
    await connection.close()
    await asyncio.sleep(3)
    cluster.brokers["b1"].kill(power=True)
    cluster.etcd.kill()
    await cluster.brokers["b1"].start()
    connection = await stage.connect(cluster.brokers["b1"])
    assert await drained(connection, "orders") == ["kept"]
    assert any("etcd cannot be used" in warning for warning in cluster.member("b1").warnings)
    cluster.etcd.start()
    await stage.until(lambda: cluster.member("b1").warnings == [])
    await connection.close()


@staged
async def test_a_session_that_reaches_over_brokers_recovers_on_all_of_them(stage: Stage) -> None:
    cluster = await stage.cluster("b0", "b1")
    for name in ("b0", "b1"):
        await cluster.apply("Queue", f"at-{name}", broker=name)
        await cluster.until_home("queue", f"at-{name}", name)
    connection = await stage.connect(cluster.brokers["b0"])
    session = await connection.session(sterna.AcknowledgeMode.CLIENT)
    consumers = []
    for name in ("b0", "b1"):
        await connection.send(f"at-{name}", "first")
        await connection.send(f"at-{name}", "second")
        consumers.append(await session.consumer(f"at-{name}"))
    for consumer in consumers:
        assert await consumer.receive(5) is not None
    await session.recover()
    again = [one for consumer in consumers if (one := await consumer.receive(5)) is not None]
    assert [(one.body, one.redelivered) for one in again] == [("first", True), ("first", True)]
    # One acknowledged alone is no other's, wherever that is; what the session acknowledges is everywhere.
    assert await again[0].acknowledge(alone=True)
    await session.recover()
    again = [one for consumer in consumers if (one := await consumer.receive(5)) is not None]
    assert [(one.body, one.redelivered) for one in again] == [("second", False), ("first", True)]
    assert await again[0].acknowledge()
    await session.recover()
    last = await consumers[1].receive(5)
    assert last is not None
    assert (last.body, last.redelivered) == ("second", False)
    await connection.close()
