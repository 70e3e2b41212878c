"""One name has one home: what a broker serves is what etcd says lives there, whenever homes move."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest
import sterna
from sterna import errors
from sterna_etcd import HomeKey, NoSpaceError

from tests.support.deaf_etcd import DeafEtcd
from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained


def held(cluster: Cluster, broker: str, kind: str = "queue") -> dict[str, int]:
    """What a broker's engine has of a kind, with its messages."""
    rows = cluster.brokers[broker].listed(kind)
    return {row["name"]: row["statistics"]["messages"] for row in rows if not row["name"].startswith("$")}


async def sent_all(connection: sterna.Connection, name: str, count: int) -> list[str]:
    """Sends so many, one after the other, and goes on whatever becomes of one; what was confirmed."""
    confirmed = []
    for number in range(count):
        try:
            async with asyncio.timeout(20):
                await connection.send(name, f"{name} {number}")
        except (errors.SternaError, TimeoutError):
            continue
        confirmed.append(f"{name} {number}")
    return confirmed


@staged
async def test_an_opening_that_waits_looks_at_the_home_again_before_it_answers(stage: Stage) -> None:
    """Whatever the moment at which its home moves while a name is being opened, it is not opened where it was."""
    cluster = await stage.two()
    for number in range(12):
        name = f"t{number}"
        await cluster.apply("Topic", name, broker="b1")
        await cluster.apply("DurableSubscription", f"d{number}", topic=name, clientId="c", name=f"d{number}")
        await cluster.until_home("topic", name, "b1")
        connection = await stage.connect(cluster.brokers["b1"])
        opening = asyncio.create_task(connection.producer(sterna.Topic(name)))
        await asyncio.sleep(0.0004 * number)
        await cluster.give("topic", name, "b0")
        await asyncio.wait((opening,))
        await asyncio.sleep(2)
        producer = opening.result()
        await producer.send("x")
        assert not _produced(cluster, "b1", name), number
        await connection.close()


@staged
async def test_what_is_opened_while_its_home_moves_is_not_confirmed_where_that_was(stage: Stage) -> None:
    """Topics that are placed on a broker that is being emptied, with a durable subscription each, and used at once.

    Where one is opened at a broker that its home has left, nothing hangs on it: what is confirmed there goes to nobody.
    """
    cluster = await stage.two()
    connections = [await stage.connect(cluster.brokers["b1"]) for _ in range(4)]
    await cluster.drain("b1")
    sending: list[asyncio.Task[Any]] = []
    names = [f"t{number}" for number in range(60)]
    for number, name in enumerate(names):
        await cluster.apply("Topic", name, broker="b1")
        await cluster.apply("DurableSubscription", f"d{number}", topic=name, clientId="c", name=f"d{number}")
        # What is sent before anybody has heard of a subscription is not for it.
        await stage.until(functools.partial(_is_known, cluster, f"c/d{number}"))
        for connection in connections:
            await asyncio.sleep(stage.random.random() * 0.01)
            sending.append(asyncio.create_task(connection.send(sterna.Topic(name), "x", timeout=60)))
    await asyncio.sleep(5)
    # What holds messages by now stays, and takes more again.
    await cluster.undrain("b1")
    await asyncio.wait(sending)
    assert [one.exception() for one in sending if one.exception()] == []
    await asyncio.sleep(5)
    homes = {"b0": 0, "b1": 0}
    for name in names:
        home = await cluster.home("topic", name)
        other = "b0" if home == "b1" else "b1"
        assert (_durable_at(cluster, home, name), _durable_at(cluster, other, name)) == (len(connections), 0), name
        homes[home] += 1
    assert min(homes.values()) > 0
    for connection in connections:
        await connection.close()


def _is_known(cluster: Cluster, durable: str) -> bool:
    members = [cluster.member(name) for name in cluster.brokers]
    return all(one.objects.named("DurableSubscription", durable) is not None for one in members)


def _durable_at(cluster: Cluster, broker: str, topic: str) -> int:
    """How many messages a broker has for the durable subscriptions to a topic."""
    rows = cluster.brokers[broker].listed("durable")
    return sum(int(row["statistics"]["messages"]) for row in rows if row["topic"] == topic)


def _produced(cluster: Cluster, broker: str, topic: str) -> bool:
    rows = cluster.brokers[broker].listed("topic")
    return any(row["name"] == topic and row["statistics"].get("producers") for row in rows)


@staged
async def test_a_name_that_was_given_away_by_force_is_served_by_nobody_but_its_home(stage: Stage) -> None:
    cluster = await stage.two("orders")
    connection = await stage.connect(cluster.brokers["b1"])
    for number in range(20):
        await connection.send("orders", f"before {number}")
    producer = await connection.producer("orders")
    consumer = await connection.consumer("orders", prefetch=1)
    first = await consumer.receive(5)
    assert first is not None
    await cluster.drain("b1", force=True)
    await cluster.until_home("queue", "orders", "b0")
    await asyncio.sleep(2)  # the next round of the broker that has lost it
    await producer.send("after")
    await connection.send("orders", "after, by nobody in particular")
    assert held(cluster, "b0")["orders"] == 2
    again = await consumer.receive(10)
    assert again is not None
    assert again.body == "after"
    assert held(cluster, "b1")["orders"] in (19, 20)
    await connection.close()


@staged
async def test_what_is_left_of_a_name_that_was_given_away_is_counted_and_keeps_its_broker(stage: Stage) -> None:
    cluster = await stage.two("orders")
    connection = await stage.connect(cluster.brokers["b1"])
    for number in range(3):
        await connection.send("orders", f"before {number}")
    await cluster.give("queue", "orders", "b0")
    await asyncio.sleep(3)
    assert _stray(cluster, "b0") == (0, 0, 0)
    assert _stray(cluster, "b1") == (1, 3, 1)
    await cluster.drain("b1")
    await asyncio.sleep(20)

    async def said() -> Any:
        status = await cluster.status("b1")
        return status.draining if status is not None else None

    left = await cluster.until(said)
    assert (left.destinations, left.messages) == (1, 3)
    assert "orders" in left.waits_for
    # Given back, it is had again where it is.
    await cluster.undrain("b1")
    await cluster.give("queue", "orders", "b1")
    await asyncio.sleep(3)
    assert sorted(await drained(connection, "orders")) == [f"before {number}" for number in range(3)]
    assert cluster.member("b1").warnings == []
    assert _stray(cluster, "b1") == (0, 0, 0)
    await connection.close()


def _stray(cluster: Cluster, broker: str) -> tuple[float, float, int]:
    """What a broker's metrics say of destinations and messages that are stray, and how many warnings name one."""
    told = cluster.brokers[broker].metrics()
    warnings = [one for one in cluster.brokers[broker].readyz()["warnings"] if "live on other brokers" in one]
    return told["sterna_stray_destinations"], told["sterna_stray_messages"], len(warnings)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_broker_that_was_away_serves_nothing_that_was_given_away(restarts: bool) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two("orders")
        lost = cluster.brokers["b1"]
        connection = await stage.connect(lost)
        producer = await connection.producer("orders")
        await producer.send("before")
        await asyncio.sleep(3)
        # It is cut off from etcd, which gives what it has to another; then it is back.
        if restarts:
            lost.kill()
        else:
            cluster.cut_off("b1")
            await asyncio.sleep(15)
        await cluster.give_up("b1", "b0")
        await cluster.apply("Queue", "other", broker="b0")
        if restarts:
            cluster.etcd.kill()
            await lost.start()
        else:
            await producer.send("while it is cut off")  # it goes on serving
        assert cluster.member("b1").link.fault is not None
        cluster.etcd.start()
        stage.network.heal()
        await stage.until(lambda: cluster.member("b1").link.fault is None)
        await asyncio.sleep(2)
        assert any("orders" in warning for warning in cluster.member("b1").warnings)
        stranded = held(cluster, "b1")["orders"]
        await producer.send("after")
        assert held(cluster, "b1")["orders"] == stranded
        assert held(cluster, "b0")["orders"] == 1
        other = await stage.connect(lost)
        assert await sent_all(other, "orders", 3) == [f"orders {number}" for number in range(3)]
        assert held(cluster, "b1")["orders"] == stranded
        await other.close()
        await connection.close()

    shown()


@staged
async def test_what_is_opened_while_its_broker_is_emptied_is_opened_where_it_goes(stage: Stage) -> None:
    """Names that are placed on a broker that is being emptied, and used at once: each message is at its home."""
    cluster = await stage.two()
    connections = [await stage.connect(cluster.brokers[name]) for name in ("b0", "b1")]
    await cluster.drain("b1")
    sending: list[asyncio.Task[Any]] = []
    names = [f"q{number}" for number in range(40)]
    for number, name in enumerate(names):
        await cluster.apply("Queue", name, broker="b1")
        await asyncio.sleep(stage.random.random() * 0.03)
        connection = connections[number % 2]
        sending += [asyncio.create_task(connection.send(name, f"{count}", timeout=30)) for count in range(3)]
        if number % 5 == 4:
            await cluster.undrain("b1")
            await cluster.drain("b1")
    await asyncio.sleep(5)
    # What holds messages by now stays, and takes more again.
    await cluster.undrain("b1")
    done, _ = await asyncio.wait(sending)
    assert [one.exception() for one in done if one.exception()] == []
    await asyncio.sleep(5)
    for name in names:
        home = await cluster.home("queue", name)
        other = "b0" if home == "b1" else "b1"
        assert held(cluster, home)[name] == 3, name
        assert name not in held(cluster, other), name
    for connection in connections:
        await connection.close()


@staged
async def test_what_etcd_does_not_say_is_gone_is_not_made_again_and_takes_nothing_until_it_does(stage: Stage) -> None:
    cluster, etcd = await in_doubt(stage, "queue", "orders")
    sending = asyncio.create_task((await stage.connect(cluster.brokers["b1"])).send("orders", "once"))
    await configured_again(cluster)
    assert "orders" not in held(cluster, "b1")
    assert not sending.done()
    etcd.hears = True
    await cluster.until_home("queue", "orders", "b0")
    await sending
    connection = await stage.connect(cluster.brokers["b0"])
    assert await drained(connection, "orders") == ["once"]


@staged
async def test_a_pattern_that_etcd_does_not_say_is_gone_keeps_its_subscription_and_the_topic_waits(
    stage: Stage,
) -> None:
    cluster, etcd = await in_doubt(stage, "pattern", "app.*")
    sending = asyncio.create_task((await stage.connect(cluster.brokers["b1"])).send(sterna.Topic("app.x"), "once"))
    await configured_again(cluster)
    assert held(cluster, "b1", "durable") == {"all": 0}
    assert not sending.done()
    etcd.hears = True
    await cluster.until_home("topic", "app.x", "b0")
    await sending
    reader = await stage.connect(cluster.brokers["b0"], client_id="reader")
    consumer = await reader.consumer(sterna.Topic("app.*"), durable="all")
    message = await consumer.receive(5)
    assert message is not None
    assert message.body == "once"


@staged
async def test_what_is_forced_to_leave_is_served_by_nobody_until_etcd_has_said_whose_it_is(stage: Stage) -> None:
    cluster = await stage.two("orders")
    connection = await stage.connect(cluster.brokers["b1"])
    producer = await connection.producer("orders")
    await producer.send("before")
    homes = cluster.member("b1").homes
    etcd = DeafEtcd(homes._etcd, does=False)
    homes._etcd = etcd  # type: ignore[assignment]
    await cluster.drain("b1", force=True)
    await cluster.until(lambda: homes.is_leaving(HomeKey("queue", "orders")))
    sending = asyncio.create_task(producer.send("after", timeout=60))
    await configured_again(cluster)
    assert held(cluster, "b1") == {"orders": 1}
    assert not sending.done()
    etcd.hears = True
    await cluster.until_home("queue", "orders", "b0")
    await sending
    assert (held(cluster, "b0")["orders"], held(cluster, "b1")) == (1, {"orders": 1})
    await connection.close()


@staged
async def test_what_etcd_refuses_to_give_away_is_made_and_served_here_again(stage: Stage) -> None:
    cluster = await stage.two("orders")
    await cluster.placed("full", "b1")
    connection = await stage.connect(cluster.brokers["b1"])
    await connection.send("full", "before")
    member = cluster.member("b1")
    homes, engine = member.homes, member._engine
    assert engine is not None
    homes._etcd = DeafEtcd(homes._etcd, does=False, failure=NoSpaceError("no space"))  # type: ignore[assignment]
    for name in ("orders", "full"):
        key, told = HomeKey("queue", name), member.desk.moved(f"the queue '{name}'", name, "b0")
        # As an order that is taken back at once has it, be it forced or not.
        assert not await homes.move(key, "b0", lambda key=key, told=told: bool(engine.leave(key, told)) or True)  # type: ignore[misc]
    await asyncio.sleep(3)
    assert held(cluster, "b1") == {"orders": 0, "full": 1}
    for name in ("orders", "full"):
        await connection.send(name, "after")
    assert held(cluster, "b1") == {"orders": 1, "full": 2}
    await connection.close()


@staged
async def test_a_broker_that_stops_asks_no_more_about_what_is_in_doubt(stage: Stage) -> None:
    cluster, etcd = await in_doubt(stage, "queue", "orders")
    await cluster.member("b1").stop()
    asked = etcd.asked
    await asyncio.sleep(5)
    assert etcd.asked == asked


@staged
async def test_a_broker_remembers_no_claim_of_what_does_not_live_there(stage: Stage) -> None:
    """Whoever claims name after name, for others too, would remember more and more of them."""
    cluster = await stage.two("orders")
    connection = await stage.connect(cluster.brokers["b0"])
    names = ["orders", *(f"q{number}" for number in range(8))]
    for name in names:
        await (await connection.producer(name)).close()
    assert {await cluster.home("queue", name) for name in names} == {"b0", "b1"}
    await cluster.until(lambda: len(cluster.member("b0").link.view.homes) >= len(names))
    claimed = cluster.member("b0").homes.claimed_s.keys()
    assert claimed <= set(cluster.member("b0").link.view.homes_on("b0"))
    await cluster.drain("b1")
    for name in names:
        await cluster.until_home("queue", name, "b0")
    for broker in ("b0", "b1"):
        member = cluster.member(broker)
        assert member.homes.claimed_s.keys() <= set(member.link.view.homes_on(broker)), broker
    await connection.close()


async def in_doubt(stage: Stage, kind: str, name: str) -> tuple[Cluster, DeafEtcd]:
    """A broker b1 that is emptied, and does not hear whether etcd has given a name away: what it asks gets lost."""
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    if kind == "queue":
        await cluster.apply("Queue", name, broker="b1")
    else:
        await cluster.apply("Topic", "app.x", broker="b1")
        await cluster.apply("DurableSubscription", "all", "reader/all", topic=name, clientId="reader")
    await cluster.until_home(kind, name, "b1")
    await cluster.until(lambda: kind == "queue" or held(cluster, "b1", "durable"))
    homes = cluster.member("b1").homes
    etcd = DeafEtcd(homes._etcd, does=False)
    homes._etcd = etcd  # type: ignore[assignment]
    await cluster.drain("b1")
    await cluster.until(lambda: homes.is_leaving(HomeKey(kind, name)))
    return cluster, etcd


async def configured_again(cluster: Cluster) -> None:
    """Another object has come, and b1 has handed its engine the configuration since."""
    before = cluster.member("b1").applied_revision
    await cluster.apply("Queue", "other", broker="b0")
    await cluster.until_home("queue", "other", "b0")
    await cluster.until(lambda: cluster.member("b1").applied_revision > before)
    await asyncio.sleep(3)
