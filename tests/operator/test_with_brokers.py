"""Operator and brokers together: nobody plays a part."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sterna
from sterna import errors
from sterna_etcd import Claim
from sterna_etcd.records import UserRecord

from tests.operator.conftest import MakeOperator
from tests.operator.worlds import World
from tests.running import RunningBroker
from tests.waiting import eventually, within

pytestmark = pytest.mark.slow_callbacks(30_000)

MakeBroker = Callable[..., RunningBroker]

# Long enough for the brokers to have the new password before, on a busy machine, too.
OVERLAP_S = 12


@pytest.fixture
def broker(world: World, tmp_path: Path) -> Iterator[MakeBroker]:
    """Makes brokers of the world's cluster, started; they end with the test."""
    with ExitStack() as stack:

        def make(name: str, **flags: Any) -> RunningBroker:
            cluster = {"etcd": world.etcd_urls, "cluster": world.etcd_name}
            made = RunningBroker(tmp_path / name, None, name=name, cluster=cluster, **flags)
            stack.callback(made.stop)
            return made.start()

        yield make


async def _send(broker: RunningBroker, queue: str | sterna.Topic, count: int) -> None:
    async with sterna.connect(f"sterna://{broker.address}") as connection:
        for number in range(count):
            await connection.send(queue, f"m-{number}")


async def _receive(broker: RunningBroker, queue: str, count: int) -> list[object]:
    bodies: list[object] = []
    async with sterna.connect(f"sterna://{broker.address}") as connection:
        consumer = await connection.consumer(queue)
        for _ in range(count):
            message = await consumer.receive(timeout=5)
            assert message is not None
            bodies.append(message.body)
    return bodies


async def test_all_kinds_are_applied_by_real_brokers_and_serve(
    world: World, operator: MakeOperator, broker: MakeBroker
) -> None:
    world.make_cluster()
    first = broker("b-0")
    broker("b-1")
    operator()
    world.apply("Store", "ledger", {"mode": "sync"})
    world.queue("orders", store="ledger", broker="b-0")
    world.apply("Queue", "any", {"name": "dynamic.>"})
    world.apply("Topic", "prices", {"broker": "b-0"})
    world.apply("Bridge", "copy", {"source": {"topic": "prices"}, "targets": [{"queue": "orders"}]})
    world.apply("DurableSubscription", "audit", {"topic": "prices", "clientId": "c"})
    world.secret("her-password", "one")
    world.apply("User", "ann", {"passwordSecret": {"name": "her-password"}})
    for kind, name in (
        ("Store", "ledger"),
        ("Queue", "orders"),
        ("Queue", "any"),
        ("Topic", "prices"),
        ("Bridge", "copy"),
        ("DurableSubscription", "audit"),
        ("User", "ann"),
    ):
        await world.ready(kind, name)
    found = world.get("Queue", "orders")
    assert found is not None
    assert found["status"]["home"] == "b-0"
    await _send(first, "orders", 3)


async def test_a_new_queue_is_ready_within_2_s(world: World, operator: MakeOperator, broker: MakeBroker) -> None:
    world.make_cluster()
    broker("b-0")
    operator()
    world.queue("first")
    await world.ready("Queue", "first")

    async def becomes_ready(number: int) -> float:
        began = time.monotonic()
        world.queue(f"q-{number}")
        await world.ready("Queue", f"q-{number}")
        return time.monotonic() - began

    await within(2.0, becomes_ready)


async def test_a_queue_with_messages_goes_when_it_is_empty_or_when_it_may(
    world: World, operator: MakeOperator, broker: MakeBroker
) -> None:
    world.make_cluster()
    running = broker("b-0")
    operator()
    for name, policy in (("emptied", "onlyIfEmpty"), ("deleted", "delete"), ("kept", "retain")):
        world.queue(name, deletionPolicy=policy)
        await world.ready("Queue", name)
        await _send(running, name, 3)
        world.delete("Queue", name)
    await world.gone("Queue", "deleted")
    await world.gone("Queue", "kept")
    await world.unconfigured("Queue", "kept")
    assert "3 messages" in await world.reason("Queue", "emptied", "DeletionBlocked")
    assert await _receive(running, "emptied", 3) == ["m-0", "m-1", "m-2"]
    await world.gone("Queue", "emptied")
    # A name whose queue is gone is free at once; one whose messages stayed is its former owner's.
    world.apply("Queue", "stranger", {"name": "kept"})
    await world.reason("Queue", "stranger", "Exists")
    world.delete("Queue", "stranger")
    for name in ("emptied", "deleted", "kept"):
        world.queue(name)
    await world.ready("Queue", "emptied")
    await world.ready("Queue", "deleted")
    await world.ready("Queue", "kept")
    assert await _receive(running, "kept", 3) == ["m-0", "m-1", "m-2"]


@pytest.mark.covers("EMS-DEST-B12")
async def test_a_topic_whose_durables_hold_messages_goes_when_these_are_empty_or_when_it_may(
    world: World, operator: MakeOperator, broker: MakeBroker
) -> None:
    world.make_cluster()
    running = broker("b-0")
    operator()
    async with sterna.admin.connect(f"sterna://{running.address}") as admin:
        for name, policy in (("emptied", "onlyIfEmpty"), ("deleted", "delete"), ("wild", "onlyIfEmpty")):
            world.apply("Topic", name, {"name": f"{name}.a", "deletionPolicy": policy})
            # What others hold of a topic keeps it from nothing.
            topic = "wild.*" if name == "wild" else f"{name}.a"
            world.apply("DurableSubscription", name, {"topic": topic, "clientId": "c"})
            await world.ready("Topic", name)
            await world.ready("DurableSubscription", name)
            await _send(running, sterna.Topic(f"{name}.a"), 3)
            world.delete("Topic", name)
        await world.gone("Topic", "deleted")
        await world.gone("Topic", "wild")
        assert "3 messages" in await world.reason("Topic", "emptied", "DeletionBlocked")
        assert await admin.purge_durable("emptied", client_id="c") == 3
        await world.gone("Topic", "emptied")
        # The subscriptions are objects of their own.
        for name in ("emptied", "deleted"):
            assert (await admin.resource("DurableSubscription", name)).statistics.messages == 0


async def test_a_queue_deleted_behind_the_operators_back_comes_back_with_its_messages(
    world: World, operator: MakeOperator, broker: MakeBroker
) -> None:
    world.make_cluster()
    running = broker("b-0")
    operator()
    world.queue("orders", maxMessages=10)
    await world.ready("Queue", "orders")
    await _send(running, "orders", 3)
    await world.client.delete(world.layout.config(Claim("Queue", "orders")))
    await world.configured("Queue", "orders")
    await world.ready("Queue", "orders")
    assert await _receive(running, "orders", 3) == ["m-0", "m-1", "m-2"]
    await eventually(lambda: "DriftRepaired" in world.events("orders"))


async def test_what_a_broker_finds_wrong_is_shown(world: World, operator: MakeOperator, broker: MakeBroker) -> None:
    world.make_cluster()
    broker("b-0")
    operator()
    world.apply("Topic", "prices", {})
    world.apply("DurableSubscription", "audit", {"topic": "prices", "clientId": "c", "selector": "price >"})
    text = await world.reason("DurableSubscription", "audit", "Refused")
    assert "b-0" in text
    assert world.condition("DurableSubscription", "audit", "Stalled")["status"] == "True"


async def _logs_in(broker: RunningBroker, user: str, password: str) -> bool:
    """Whether a broker lets a user in; whatever else goes wrong is an error."""
    try:
        connection = await sterna.connect(
            f"sterna://{broker.address}", user=user, password=password, connect_attempts=1
        )
    except errors.UnauthenticatedError:
        return False
    await connection.close()
    return True


async def _until_refused(broker: RunningBroker, user: str, password: str) -> tuple[int, float]:
    """Logs in again and again: how often that went well, and when it was refused, in ms."""
    count = 0
    while await _logs_in(broker, user, password):
        count += 1
    return count, time.time() * 1000


async def test_a_changed_secret_lets_the_new_password_in_within_5_s_and_no_login_fails_in_the_overlap(
    world: World, operator: MakeOperator, broker: MakeBroker
) -> None:
    world.make_cluster()
    brokers = [broker(name, users_from_cluster=True) for name in ("b-0", "b-1")]
    operator()

    async def is_changed(number: int) -> float:
        user, secret = f"ann-{number}", f"password-{number}"
        world.secret(secret, "old")
        world.apply("User", user, {"passwordSecret": {"name": secret}, "overlapSeconds": OVERLAP_S})
        await world.ready("User", user)
        old = [asyncio.create_task(_until_refused(one, user, "old")) for one in brokers]
        began = time.monotonic()
        world.secret(secret, "new")
        took = []
        for one in brokers:
            await eventually(lambda one=one: _logs_in(one, user, "new"), timeout_s=30.0, what=f"the new in at {one}")  # type: ignore[misc]
            took.append(time.monotonic() - began)
        found = (await world.client.get(world.layout.user(user))).found
        assert found is not None
        ends = [one.not_after_ms for one in UserRecord.decode(found.key, found.value).credentials]
        assert ends[0] is None
        assert ends[1] is not None
        while not all(one.done() for one in old):
            assert all(await asyncio.gather(*(_logs_in(one, user, "new") for one in brokers)))
        for count, refused_ms in await asyncio.gather(*old):
            # The first login that failed did so after the end of what was promised.
            assert refused_ms >= ends[1]
            assert count >= OVERLAP_S
        assert not any(await asyncio.gather(*(_logs_in(one, user, "old") for one in brokers)))
        return max(took)

    await within(5.0, is_changed)
