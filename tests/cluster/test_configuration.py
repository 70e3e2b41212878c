"""Configuration from etcd: what the operator or an administrator writes holds on the broker that it lives on."""

import asyncio

import pytest
import sterna
from sterna import admin
from sterna.inventory import Change
from sterna_etcd import Claim
from sterna_etcd.records import Deleting

from tests.cluster.conftest import Cluster, Connect, Operator, document, waited
from tests.running import manifest


async def test_a_queue_is_applied_where_it_lives(two: Cluster, operator: Operator) -> None:
    claim = await operator.put(document("Queue", "orders", maxMessages=5))
    status = await operator.until(claim, "applied")
    assert (status.uid, status.home) == ("uid-1", await operator.home("queue", "orders"))
    again = await operator.put(document("Queue", "orders", maxMessages=7), generation=2)
    await operator.until(again, "applied", generation=2)


async def test_the_manifest_names_the_home(two: Cluster, operator: Operator) -> None:
    for number in range(4):
        claim = await operator.put(document("Queue", f"q{number}", broker="b1"))
        assert (await operator.until(claim, "applied")).home == "b1"


async def test_names_are_spread_over_the_brokers(two: Cluster, operator: Operator) -> None:
    homes = []
    for number in range(10):
        claim = await operator.put(document("Queue", f"q{number}"))
        homes.append((await operator.until(claim, "applied")).home)
    # Both members place; one that has not yet heard of the last home counts one less.
    assert min(homes.count("b0"), homes.count("b1")) >= 4


async def test_a_mistake_takes_out_that_object_alone(two: Cluster, operator: Operator) -> None:
    bad = await operator.put(document("Queue", "bad", maxMessages="many"))
    good = await operator.put(document("Queue", "good"))
    orphan = await operator.put(document("Queue", "orphan", store="nowhere"))
    await operator.until(good, "applied")
    assert "maxMessages" in (await operator.until(bad, "refused")).message
    assert "nowhere" in (await operator.until(orphan, "refused")).message
    await operator.put(document("Queue", "bad", maxMessages=3), generation=2)
    await operator.until(bad, "applied", generation=2)


async def test_a_value_that_cannot_be_read_is_named_and_changes_nothing(two: Cluster, operator: Operator) -> None:
    claim = await operator.put(document("Queue", "orders"))
    await operator.until(claim, "applied")
    await operator.etcd.put("/sterna/c1/config/Queue/orders", b"{")
    await waited(lambda: asyncio.to_thread(lambda: two.readiness("b0")["warnings"]), 30, "a warning")
    assert (await asyncio.to_thread(two.readiness, "b0"))["ready"]
    assert next(iter((await operator.status(claim)).values())).state == "applied"


async def test_wildcard_entries_hold_everywhere(two: Cluster, operator: Operator, connect: Connect) -> None:
    claim = await operator.put(document("Queue", "any", name="app.>"), claim="app.>")
    await operator.everywhere(claim)
    assert set(await operator.status(claim)) == {"b0", "b1"}


async def test_every_broker_answers_for_every_name(two: Cluster, operator: Operator, connect: Connect) -> None:
    factory = document("ConnectionFactory", "billing", url="sterna://a", aliases=["Billing"])
    claim = await operator.put(factory)
    queue = await operator.put(document("Queue", "orders", aliases=["Orders"]))
    thief = await operator.put(document("Queue", "thief", aliases=["Billing"]))
    await operator.everywhere(claim)
    await operator.until(queue, "applied")
    # Whoever was there first stays.
    assert "'Billing' is an alias of the ConnectionFactory billing" in (await operator.until(thief, "refused")).message
    for name in ("b0", "b1"):
        async with sterna.Naming(two.url(name)) as naming:
            await waited(lambda naming=naming: _leads_to(naming, "Orders", "orders"), 30, "the queue's alias")  # type: ignore[misc]
            assert (await naming.factory("Billing")).url == "sterna://a"
            # All else of it holds.
            await waited(lambda naming=naming: _leads_to(naming, "thief", "thief"), 30, "its own name")  # type: ignore[misc]
    await operator.put(document("ConnectionFactory", "billing", url="sterna://b"), generation=2)
    async with sterna.Naming(two.url("b1")) as naming:

        async def has_changed() -> bool:
            return (await naming.factory("billing")).url == "sterna://b"

        await waited(has_changed, 30, "the changed factory")


async def test_an_older_object_that_takes_an_alias_takes_nothing_else_away(
    two: Cluster, operator: Operator, connect: Connect
) -> None:
    factory = await operator.put(document("ConnectionFactory", "billing", url="sterna://a"))
    await operator.everywhere(factory)
    queue = await operator.put(document("Queue", "orders", aliases=["Orders", "Other"], maxMessages=1))
    await operator.until(queue, "applied")
    taking = document("ConnectionFactory", "billing", url="sterna://a", aliases=["Orders", "orders"])
    await operator.put(taking, generation=2)
    refused = await operator.until(queue, "refused")
    assert (refused.reason, refused.home) == ("NameTaken", await operator.home("queue", "orders"))
    assert "'Orders' is an alias of the ConnectionFactory billing" in refused.message
    assert any("'Orders'" in one for one in (await asyncio.to_thread(two.readiness, "b0"))["warnings"])
    async with sterna.Naming(two.url("b1")) as naming:
        for name in ("Orders", "orders"):
            await waited(lambda name=name: _is(naming, name, "billing"), 30, name)  # type: ignore[misc]
        for name in ("orders", "Other"):
            assert await naming.queue(name) == sterna.Queue("orders")
    # It is configured as before, and takes what it is told.
    await operator.put(document("Queue", "orders", aliases=["Orders", "Other"], maxMessages=2), generation=2)
    await operator.until(queue, "refused", generation=2)
    connection = await connect(two.url())
    for number in range(2):
        await connection.send("orders", str(number))
    with pytest.raises(sterna.errors.DestinationFullError):
        await connection.send("orders", "3")
    await operator.put(document("ConnectionFactory", "billing", url="sterna://a"), generation=3)
    await operator.until(queue, "applied", generation=2)


async def test_of_two_administrators_who_take_an_alias_at_the_same_time_one_is_told_that_it_is_the_others(
    two: Cluster,
) -> None:
    async with admin.connect(two.url("b0")) as first, admin.connect(two.url("b1")) as second:
        for number in range(5):
            factory = manifest("ConnectionFactory", f"f{number}", f"url: 'sterna://a', aliases: [X{number}]")
            queue = manifest("Queue", f"q{number}", f"aliases: [X{number}]")
            answers = [one for (one,) in await asyncio.gather(first.apply(factory), second.apply(queue))]
            (loser,) = [one for one in answers if one.error is not None]
            assert loser.change is Change.REFUSED
            winner = next(one for one in answers if one is not loser)
            for name in ("b0", "b1"):
                async with sterna.Naming(two.url(name)) as naming:
                    alias = f"X{number}"
                    await waited(lambda: _is(naming, alias, winner.name), 30, alias)  # noqa: B023 - awaited here


async def _is(naming: sterna.Naming, name: str, found: str) -> bool:
    return (await naming.lookup(name)).name == found


async def _leads_to(naming: sterna.Naming, name: str, queue: str) -> bool:
    try:
        return await naming.queue(name) == sterna.Queue(queue)
    except sterna.errors.NoSuchDestinationError:
        return False


async def test_partners_of_a_bridge_live_together(two: Cluster, operator: Operator) -> None:
    for kind, name in (("Topic", "prices"), ("Queue", "archive"), ("Queue", "audit")):
        await operator.put(document(kind, name))
    bridge = document("Bridge", "keep", source={"topic": "news"}, targets=[{"queue": "news-archive"}])
    await operator.put(document("Topic", "news"))
    await operator.put(document("Queue", "news-archive"))
    claim = await operator.put(bridge)
    ends = ("topic", "news"), ("queue", "news-archive")
    # Whether they were placed before or together with the bridge decides; once both are, it says so.
    homes = {await waited(lambda: operator.home(*end), 30, f"a home of {end}") for end in ends}  # noqa: B023 - awaited here
    word = "applied" if len(homes) == 1 else "refused"

    async def is_said() -> bool:
        return [one.state for one in (await operator.status(claim)).values()] == [word]

    await waited(is_said, 30, f"{claim} {word}")
    split = document("Bridge", "split", source={"topic": "a"}, targets=[{"queue": "b"}])
    await operator.put(document("Topic", "a", broker="b0"))
    await operator.put(document("Queue", "b", broker="b1"))
    refused = await operator.until(await operator.put(split), "refused")
    assert refused.reason == "SpansHomes"
    assert "'a' on b0" in refused.message
    assert "'b' on b1" in refused.message


async def test_deletion_by_policy(two: Cluster, operator: Operator, connect: Connect) -> None:
    claims: dict[str, Claim] = {}
    for policy in ("delete", "onlyIfEmpty", "retain"):
        claims[policy] = await operator.put(document("Queue", policy.lower()))
        await operator.until(claims[policy], "applied")
        connection = await connect(two.url())
        producer = await connection.producer(policy.lower())
        await producer.send("kept")
        deleting = Deleting(policy=policy, uid="request-1")
        await operator.put(document("Queue", policy.lower()), generation=2, deleting=deleting)
    for policy in ("delete", "retain"):
        status = await operator.until(claims[policy], "deleted", generation=2)
        assert (status.uid, status.messages) == ("request-1", 1 if policy == "delete" else 0)
    blocked = await operator.until(claims["onlyIfEmpty"], "blocked", generation=2)
    assert blocked.messages == 1
    connection = await connect(two.url())
    consumer = await connection.consumer("onlyifempty")
    message = await consumer.receive(5)
    assert message is not None
    await connection.close()
    await operator.until(claims["onlyIfEmpty"], "deleted", generation=2)
    # What was retained is managed no more, and still has its message.
    await operator.etcd.delete("/sterna/c1/config/Queue/retain")
    kept = await (await connect(two.url())).consumer("retain")
    assert await kept.receive(5) is not None


async def test_a_home_on_a_broker_that_never_was_there_is_refused(two: Cluster, operator: Operator) -> None:
    claim = await operator.put(document("Queue", "orders", broker="b9"))
    refused = await operator.until(claim, "refused")
    assert refused.reason == "BrokerMissing"
    assert "'b9'" in refused.message
    await operator.put(document("Queue", "orders", broker="b1"), generation=2)
    assert (await operator.until(claim, "applied", generation=2)).home == "b1"
