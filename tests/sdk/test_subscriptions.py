"""Topics: plain, durable, shared and shared durable subscriptions (EMS-CLI-A01 to A03)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import sterna
from sterna import Topic, errors

from tests.sdk.conftest import Connect, drain, drain_group


async def bodies(consumer: sterna.Consumer, count: int = 0) -> list[str]:
    return [one.body for one in await drain(consumer, count)]


async def group_bodies(consumers: Sequence[sterna.Consumer], count: int) -> list[str]:
    return sorted(one.text for one in await drain_group(consumers, count))


@pytest.mark.covers("EMS-DEST-A02")
async def test_a_plain_subscription_gets_what_is_published_while_it_is_there(connect: Connect, name: str) -> None:
    connection = await connect()
    topic = Topic(name)
    await connection.send(topic, "before")
    first, second = await connection.consumer(topic), await connection.consumer(topic)
    await connection.send(topic, "during")
    assert await bodies(first, 1) == ["during"]
    assert await bodies(second, 1) == ["during"]


@pytest.mark.covers("EMS-CLI-A01")
async def test_a_durable_subscription_collects_while_nobody_is_there(connect: Connect, name: str) -> None:
    topic = Topic(name)
    publisher = await connect()
    subscriber = await connect(client_id=name)
    await (await subscriber.consumer(topic, durable="d")).close()
    await publisher.send(topic, "away")
    await subscriber.close()
    await publisher.send(topic, "gone")
    again = await connect(client_id=name)
    consumer = await again.consumer(topic, durable="d")
    assert not consumer.replaced
    assert await bodies(consumer, 2) == ["away", "gone"]
    with pytest.raises(errors.InUseError):
        await again.consumer(topic, durable="d")
    with pytest.raises(errors.InUseError):
        await again.unsubscribe("d")
    await consumer.close()
    await again.unsubscribe("d")
    await publisher.send(topic, "too late")
    fresh = await again.consumer(topic, durable="d")
    assert await bodies(fresh) == []
    with pytest.raises(errors.NoSuchSubscriptionError):
        await again.unsubscribe("other")


@pytest.mark.covers("EMS-CLI-A01")
async def test_a_durable_with_another_selector_is_a_new_one(connect: Connect, name: str) -> None:
    topic = Topic(name)
    connection = await connect(client_id=name)
    await (await connection.consumer(topic, durable="d")).close()
    await connection.send(topic, "old", properties={"x": 1})
    consumer = await connection.consumer(topic, durable="d", selector="x = 2")
    assert consumer.replaced
    await connection.send(topic, "one", properties={"x": 1})
    await connection.send(topic, "two", properties={"x": 2})
    assert await bodies(consumer, 1) == ["two"]


async def test_a_durable_subscription_needs_a_client_id(connect: Connect, name: str) -> None:
    connection = await connect()
    with pytest.raises(errors.InvalidArgumentError) as caught:
        await connection.consumer(Topic(name), durable="d")
    assert caught.value.subject == "client_id"


@pytest.mark.covers("EMS-CLI-A02")
async def test_each_message_goes_to_one_of_a_shared_group(connect: Connect, name: str) -> None:
    topic = Topic(name)
    one, other = await connect(), await connect()
    group = [await one.consumer(topic, shared="g", prefetch=1), await other.consumer(topic, shared="g", prefetch=1)]
    for number in range(10):
        await one.send(topic, str(number))
    assert await group_bodies(group, 10) == [str(number) for number in range(10)]
    for consumer in group:
        await consumer.close()
    await one.send(topic, "nobody")
    assert await bodies(await one.consumer(topic, shared="g")) == []


@pytest.mark.covers("EMS-CLI-A02")
async def test_a_shared_durable_keeps_for_its_group(connect: Connect, name: str) -> None:
    topic = Topic(name)
    connection = await connect()
    await (await connection.consumer(topic, durable="sd", shared=True)).close()
    await connection.send(topic, "kept")
    other = await connect()
    one, two = [await other.consumer(topic, durable="sd", shared=True, prefetch=1) for _ in range(2)]
    assert await group_bodies((one, two), 1) == ["kept"]
    with pytest.raises(errors.SternaError):
        await other.consumer(topic, durable="sd", shared=True, selector="x = 1")


@pytest.mark.covers("EMS-CLI-A03")
async def test_subscriptions_of_all_kinds_get_each_message_once(connect: Connect, name: str) -> None:
    topic = Topic(name)
    connection = await connect(client_id=name)
    plain = await connection.consumer(topic)
    durable = await connection.consumer(topic, durable="d")
    shared = [await connection.consumer(topic, shared="s") for _ in range(2)]
    both = [await connection.consumer(topic, durable="sd", shared=True) for _ in range(2)]
    for number in range(4):
        await connection.send(topic, str(number))
    expected = ["0", "1", "2", "3"]
    assert await bodies(plain, 4) == expected
    assert await bodies(durable, 4) == expected
    assert await group_bodies(shared, 4) == expected
    assert await group_bodies(both, 4) == expected


@pytest.mark.covers("EMS-DEST-A44", "EMS-DEST-A42")
async def test_a_pattern_subscribes_to_all_that_match(connect: Connect, name: str) -> None:
    connection = await connect()
    deep = await connection.consumer(Topic(f"{name}.>"))
    level = await connection.consumer(Topic(f"{name}.*.end"))
    for tail in (".a", ".a.end", ".b.end", ".a.b.end", ""):
        await connection.send(Topic(name + tail), tail)
    found = await drain(deep, 4)
    assert [one.body for one in found] == [".a", ".a.end", ".b.end", ".a.b.end"]
    assert [one.destination for one in found] == [Topic(name + one.body) for one in found]
    assert await bodies(level, 2) == [".a.end", ".b.end"]


async def test_no_local_leaves_out_what_this_connection_published(connect: Connect, name: str) -> None:
    topic = Topic(name)
    mine, other = await connect(), await connect()
    consumer = await mine.consumer(topic, no_local=True)
    await mine.send(topic, "mine")
    await other.send(topic, "other")
    assert await bodies(consumer, 1) == ["other"]


@pytest.mark.covers("EMS-DEST-A45")
async def test_a_queue_is_not_consumed_by_a_pattern(connect: Connect) -> None:
    connection = await connect()
    with pytest.raises(errors.SternaError) as caught:
        await connection.consumer("a.>")
    assert isinstance(caught.value, errors.UsageError)


def test_options_that_contradict_each_other_are_refused() -> None:
    from sterna.consumers import ConsumerOptions

    for wrong in ({"shared": True}, {"shared": "a", "durable": "b"}, {"prefetch": -1}):
        with pytest.raises(errors.InvalidArgumentError):
            ConsumerOptions(**wrong)
