"""A pattern that is given away by hand: what matches it follows, and what its subscriptions hold is told of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import sterna
from sterna_broker.cluster.configuration import ClusterConfiguration
from sterna_broker.configuration.objects import ObjectSet
from sterna_etcd import HomeKey

from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged
from tests.world.test_groups import _PATTERN, grouped, read
from tests.world.test_homes import held
from tests.world.test_torn_groups import until_open

_TOPIC = sterna.Topic("app.x")


async def _flooded(stage: Stage, cluster: Cluster, delay_ms: int) -> list[str]:
    """Gives the pattern away while somebody sends to the topic and has sent; what was confirmed until much later."""
    connection = await stage.connect(cluster.brokers["b1"])
    producer = await connection.producer(_TOPIC)
    confirmed: list[str] = []

    async def send() -> None:
        for number in range(60):
            await producer.send(f"{number}", timeout=60)
            confirmed.append(f"{number}")

    sending = asyncio.create_task(send())
    await cluster.until(lambda: len(confirmed) > 5)
    await asyncio.sleep(delay_ms / 1000)
    await cluster.give("pattern", "app.*", "b0")
    await sending
    await connection.close()
    return confirmed


@pytest.mark.parametrize("delay_ms", range(0, 12, 3))
def test_a_topic_is_open_again_where_its_pattern_is_and_what_is_left_is_stray(delay_ms: int) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await grouped(stage)
        confirmed = await _flooded(stage, cluster, delay_ms)
        assert await cluster.home("topic", "app.x") == "b0"
        await until_open(cluster, "b1")
        left = held(cluster, "b1", "durable")["all"]
        assert left > 5
        await cluster.until(lambda: cluster.member("b1").stray)
        assert cluster.member("b1").stray == {_PATTERN: left}
        assert "pattern 'app.*'" in cluster.member("b1").warnings[0]
        there = await read(stage, cluster)
        assert there == confirmed[left:]
        # It keeps its broker from being emptied, and is had again when its home is given back.
        await cluster.drain("b1")
        await asyncio.sleep(5)
        status = await cluster.status("b1")
        assert status is not None
        assert status.draining is not None
        assert status.draining.messages == left
        await cluster.undrain("b1")
        await cluster.give("pattern", "app.*", "b1")
        await cluster.until_home("topic", "app.x", "b1")
        assert await read(stage, cluster) == confirmed[:left]
        await cluster.until(lambda: not cluster.member("b1").stray and not cluster.member("b0").stray)
        await until_open(cluster, "b0", "b1")

    shown()


@staged
async def test_who_reads_at_the_old_home_of_a_pattern_gets_everything_and_then_it_follows(stage: Stage) -> None:
    cluster = await grouped(stage)
    reader = await stage.connect(cluster.brokers["b1"], client_id="reader")
    consumer = await reader.consumer(sterna.Topic("app.*"), durable="all", prefetch=1)
    confirmed = await _flooded_slowly(stage, cluster, consumer)
    assert await cluster.home("topic", "app.x") == "b0"
    assert held(cluster, "b1", "durable").get("all", 0) == 0
    assert confirmed
    await reader.close()


async def _flooded_slowly(stage: Stage, cluster: Cluster, consumer: sterna.Consumer) -> list[Any]:
    flooding = asyncio.create_task(_flooded(stage, cluster, 0))
    await cluster.until_home("pattern", "app.*", "b0")
    await asyncio.sleep(3)
    assert await cluster.home("topic", "app.x") == "b1"
    found = []
    while (message := await consumer.receive(5)) is not None:
        found.append(message.body)
    confirmed = await flooding
    assert found == confirmed
    return found


@staged
async def test_what_clients_subscribed_durably_to_a_pattern_that_is_gone_does_not_keep_the_topic(stage: Stage) -> None:
    cluster = await stage.two()
    reader = await stage.connect(cluster.brokers["b1"], client_id="mine")
    await reader.consumer(sterna.Topic("app.*"), durable="mine")
    home = await cluster.home("pattern", "app.*")
    away = next(name for name in cluster.brokers if name != home)
    await reader.send(_TOPIC, "before")
    await reader.close()
    await cluster.give("pattern", "app.*", away)
    await cluster.until_home("topic", "app.x", away)
    connection = await stage.connect(cluster.brokers[home])
    await connection.send(_TOPIC, "after", timeout=10)
    await cluster.until(lambda: cluster.member(home).stray == {_PATTERN: 1})
    await connection.close()


@staged
async def test_what_a_durable_subscription_holds_of_a_described_topic_that_was_given_away_is_stray(
    stage: Stage,
) -> None:
    """The topic itself stays as if a client had made it, while what hangs on it holds messages (EMS-DEST-B12)."""
    cluster = await stage.two()
    await cluster.apply("Topic", "app.x", broker="b1")
    await cluster.until_home("topic", "app.x", "b1")
    reader = await stage.connect(cluster.brokers["b1"], client_id="mine")
    await reader.consumer(_TOPIC, durable="mine")
    await reader.send(_TOPIC, "before")
    await reader.close()
    await cluster.give("topic", "app.x", "b0")
    await cluster.until(lambda: cluster.member("b1").stray == {HomeKey("topic", "app.x"): 1})
    await asyncio.sleep(3)
    assert cluster.member("b1").stray == {HomeKey("topic", "app.x"): 1}
    assert held(cluster, "b1", "topic") == {"app.x": 1}
    cluster.brokers["b1"].kill()
    await cluster.brokers["b1"].start()
    await cluster.until(lambda: cluster.member("b1").stray == {HomeKey("topic", "app.x"): 1})
    await cluster.give("topic", "app.x", "b1")
    await cluster.until(lambda: not cluster.member("b1").stray)


@staged
async def test_no_subscription_to_a_pattern_goes_while_a_topic_that_it_matches_takes_messages(stage: Stage) -> None:
    """The pattern is given away just before the engine is told what lives here, in the middle of a round."""
    cluster = await grouped(stage)
    connection = await stage.connect(cluster.brokers["b1"])
    producer = await connection.producer(_TOPIC)
    await connection.send("keeps", "b1 from being empty")
    await cluster.give("queue", "keeps", "b1")
    await asyncio.sleep(3)
    member = cluster.member("b1")
    configuration, drain = member._configuration, member._drain
    assert isinstance(configuration, ClusterConfiguration)
    assert drain is not None
    follow, hand_over, sending = drain.follow, configuration.hand_over, list[asyncio.Task[Any]]()

    async def follows(objects: ObjectSet) -> None:
        await follow(objects)
        await cluster.give("pattern", "app.*", "b0")
        await cluster.until(lambda: member.link.view.home("pattern", "app.*") == "b0")

    async def hands_over(objects: ObjectSet, before: Callable[[], None]) -> list[dict[str, Any]] | None:
        refused = await hand_over(objects, before)
        if not sending and member.link.view.home("pattern", "app.*") == "b0":
            sending.append(asyncio.create_task(producer.send("between", timeout=60)))
            await asyncio.sleep(1)
        return refused

    await cluster.drain("b1")
    await cluster.until(lambda: member.draining is not None)
    await cluster.give("topic", "app.x", "b1")
    await cluster.give("pattern", "app.*", "b1")
    await cluster.undrain("b1")
    drain.follow, configuration.hand_over = follows, hands_over  # type: ignore[method-assign]
    await cluster.until(lambda: sending and sending[0].done())
    assert await read(stage, cluster) == ["between"]
    await connection.close()


@staged
async def test_a_topic_that_a_client_has_subscribed_to_durably_says_what_it_waits_for(stage: Stage) -> None:
    cluster = await grouped(stage)
    reader = await stage.connect(cluster.brokers["b1"], client_id="mine")
    consumer = await reader.consumer(_TOPIC, durable="mine")
    await cluster.give("pattern", "app.*", "b0")
    member = cluster.member("b1")
    await cluster.until(lambda: any("topic 'app.x' takes no messages" in text for text in member.warnings))
    await cluster.until(lambda: any("has 1 durable subscription that clients made" in text for text in member.warnings))
    await consumer.close()
    await reader.unsubscribe("mine")
    await cluster.until_home("topic", "app.x", "b0")
    await cluster.until(lambda: not member.warnings)
    await reader.close()
