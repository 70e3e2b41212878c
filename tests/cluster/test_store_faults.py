"""etcd away, back, emptied, restored from an old copy, or another one: brokers keep what they have, and say so."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sterna import errors

from tests.cluster.conftest import LAYOUT, Cluster, Connect, Operator, document, waited

Make = Callable[..., Cluster]

# A broker that writes to a copy does so many times a second.
_WATCHED_S = 4.0


async def warned(cluster: Cluster, text: str, name: str = "b0") -> None:
    """Until a broker's readiness warns of something; it is ready all the while."""

    async def look() -> bool:
        found = await asyncio.to_thread(cluster.readiness, name)
        assert found["ready"], found
        return any(text in warning for warning in found["warnings"])

    await waited(look, 20, f"a warning of '{text}'")


async def quiet(cluster: Cluster, name: str = "b0") -> None:
    """Until a broker has nothing to warn of."""

    async def look() -> bool:
        return not (await asyncio.to_thread(cluster.readiness, name))["warnings"]

    await waited(look, 20, "no warnings")


async def passes(cluster: Cluster, connect: Connect, queue: str) -> None:
    """That a message goes through a queue."""
    connection = await connect(cluster.url())
    await connection.send(queue, "through")
    consumer = await connection.consumer(queue)
    message = await consumer.receive(5)
    assert message is not None
    assert message.text == "through"
    await connection.close()


async def configured(cluster: Cluster, *queues: str) -> None:
    """Writes queues, and waits until they are applied."""
    async with cluster.client() as etcd:
        operator = Operator(etcd)
        for queue in queues:
            await operator.until(await operator.put(document("Queue", queue)), "applied", timeout_s=20)


async def test_a_new_broker_waits_for_etcd_and_says_so(cluster: Make) -> None:
    made = await asyncio.to_thread(cluster, 0)
    async with made.client() as etcd:
        # An etcd that is killed before it has elected itself comes back without members, and elects nobody for ever.
        await etcd.put("/elsewhere", b"")
    await asyncio.to_thread(made.etcd.first.kill)
    broker = await asyncio.to_thread(lambda: made.add("b0", wait=False))
    await waited(lambda: asyncio.to_thread(lambda: "waiting_for_etcd" in broker.stderr), 60, "the broker to say so")
    assert not broker.has_started
    await asyncio.to_thread(made.etcd.restart, made.etcd.first)
    await waited(lambda: asyncio.to_thread(lambda: broker.has_started), 60, "the broker")


async def test_a_broker_starts_from_what_it_kept(cluster: Make, connect: Connect) -> None:
    made = await asyncio.to_thread(cluster, 1)
    await configured(made, "orders")
    assert await asyncio.to_thread(made.brokers["b0"].terminate) == 0
    await asyncio.to_thread(made.etcd.first.kill)
    await asyncio.to_thread(made.brokers["b0"].start)
    await warned(made, "cannot be used")
    await passes(made, connect, "orders")
    await asyncio.to_thread(made.etcd.restart, made.etcd.first)
    await configured(made, "later")
    await quiet(made)
    await passes(made, connect, "later")


async def test_a_broker_that_loses_etcd_keeps_serving(cluster: Make, connect: Connect) -> None:
    made = await asyncio.to_thread(cluster, 1)
    await configured(made, "orders")
    async with made.client() as etcd:
        operator = Operator(etcd)
        claim = await operator.put(document("Queue", "any", name="app.>"), claim="app.>")
        await operator.until(claim, "applied", timeout_s=20)
    await asyncio.to_thread(made.etcd.first.kill)
    await warned(made, "cannot be used")
    await passes(made, connect, "orders")
    connection = await connect(made.url())
    with pytest.raises(errors.SendTimeoutError):
        # Nobody can say where a new name lives: whoever can wait does.
        await connection.send("app.new", "given up", timeout=1)
    waiting = asyncio.create_task(connection.send("app.late", "later"))
    assert "sterna_etcd_followed 0.0" in await asyncio.to_thread(made.metrics, "b0")
    await asyncio.to_thread(made.etcd.restart, made.etcd.first)
    await configured(made, "later")
    await quiet(made)
    assert "sterna_etcd_followed 1.0" in await asyncio.to_thread(made.metrics, "b0")
    await passes(made, connect, "later")
    await passes(made, connect, "app.new")
    await asyncio.wait_for(waiting, 20)


async def test_an_emptied_etcd_deletes_nothing(cluster: Make, connect: Connect) -> None:
    made = await asyncio.to_thread(cluster, 1)
    await configured(made, "orders")
    await (await connect(made.url())).send("orders", "kept")
    async with made.client() as etcd:
        await etcd.delete(LAYOUT.prefix, is_prefix=True)
        await warned(made, "emptied")
        reader = await connect(made.url())
        consumer = await reader.consumer("orders")
        message = await consumer.receive(5)
        assert message is not None
        assert message.text == "kept"
        await reader.close()
        # And nothing of this broker is written to it.
        assert (await etcd.list_all(LAYOUT.prefix)).values == []
    # Nor does a start change any of it.
    assert await asyncio.to_thread(made.brokers["b0"].terminate) == 0
    await asyncio.to_thread(made.brokers["b0"].start)
    await warned(made, "emptied")
    await passes(made, connect, "orders")


async def test_another_etcd_is_not_believed_until_somebody_says_so(cluster: Make, connect: Connect) -> None:
    made = await asyncio.to_thread(cluster, 1)
    await configured(made, "orders")
    await (await connect(made.url())).send("orders", "kept")
    await asyncio.to_thread(made.etcd.first.kill)
    await asyncio.to_thread(made.etcd.first.wipe)
    await asyncio.to_thread(made.etcd.restart, made.etcd.first)
    async with made.client() as etcd:
        # Another cluster's identity is there: this broker's is not made anew.
        await etcd.put(LAYOUT.identity, b'{"id":"other","created_ms":1}')
        await warned(made, "is not the one that was known")
        assert [pair.key for pair in (await etcd.list_all(LAYOUT.prefix)).values] == [LAYOUT.identity]
        assert await asyncio.to_thread(made.brokers["b0"].terminate) == 0
        broker = made.brokers["b0"]
        broker.flags["cluster"] = {**broker.flags["cluster"], "accept_store": True}
        await asyncio.to_thread(broker.start)
        await quiet(made)
        # What lies on its disk has its home here again, although nobody configures it any more.
        await waited(lambda: Operator(etcd).home("queue", "orders"), 20, "a home")
        assert await Operator(etcd).home("queue", "orders") == "b0"
        await configured(made, "orders")
        consumer = await (await connect(made.url())).consumer("orders")
        message = await consumer.receive(5)
        assert message is not None
        assert message.text == "kept"


async def test_brokers_come_to_an_emptied_etcd_one_by_one_and_nothing_moves(cluster: Make, connect: Connect) -> None:
    made = await asyncio.to_thread(cluster, 2)
    queues = ("orders", "invoices")
    await configured(made, *queues)
    async with made.client() as etcd:
        homes = {queue: await Operator(etcd).home("queue", queue) for queue in queues}
    assert set(homes.values()) == {"b0", "b1"}
    sender = await connect(made.url())
    for queue in queues:
        await sender.send(queue, f"kept in {queue}")
    await sender.close()
    await asyncio.to_thread(made.etcd.first.kill)
    await asyncio.to_thread(made.etcd.first.wipe)
    await asyncio.to_thread(made.etcd.restart, made.etcd.first)
    for name in ("b0", "b1"):
        await warned(made, "emptied", name)
    at_b1 = next(queue for queue in queues if homes[queue] == "b1")
    for name in ("b1", "b0"):
        broker = made.brokers[name]
        assert await asyncio.to_thread(broker.terminate) == 0
        broker.flags["cluster"] = {**broker.flags["cluster"], "accept_store": True}
        await asyncio.to_thread(broker.start)
        await quiet(made, name)
        if name == "b1":
            # Both are configured again while the one that has half of them has not come yet.
            async with made.client() as etcd:
                claims = {queue: await Operator(etcd).put(document("Queue", queue)) for queue in queues}
                await Operator(etcd).until(claims[at_b1], "applied", timeout_s=20)
            # It knows where the other one is.
            early = await connect(made.url("b1"))
            await early.send(next(queue for queue in queues if homes[queue] == "b0"), "sent meanwhile")
            await early.close()
    async with made.client() as etcd:
        assert {queue: await Operator(etcd).home("queue", queue) for queue in queues} == homes
    reader = await connect(made.url())
    for queue in queues:
        message = await (await reader.consumer(queue)).receive(5)
        assert message is not None
        assert message.text == f"kept in {queue}"


async def test_an_etcd_restored_from_an_old_copy_is_noticed_and_not_written_to(
    cluster: Make, connect: Connect, tmp_path: Path
) -> None:
    made = await asyncio.to_thread(cluster, 1)
    await configured(made, "orders")
    member, broker = made.etcd.first, made.brokers["b0"]
    async with made.client() as etcd:
        # Nobody writes between the look and the copy.
        os.kill(broker.pid, signal.SIGSTOP)
        copied = (await etcd.get("/elsewhere")).revision
        await asyncio.to_thread(member.kill)
    await asyncio.to_thread(member.copy_to, tmp_path / "copy")
    os.kill(broker.pid, signal.SIGCONT)
    await asyncio.to_thread(made.etcd.restart, member)
    async with made.client() as etcd:
        # What is remembered is so far ahead that nothing but a write for each look at it could come there.
        for _ in range(300):
            await etcd.put("/elsewhere", b"")
    await configured(made, "later")
    await passes(made, connect, "later")
    await asyncio.to_thread(member.kill)
    await asyncio.to_thread(member.restore_from, tmp_path / "copy")
    await asyncio.to_thread(made.etcd.restart, member)
    async with made.client() as etcd:
        await warned(made, "restored from an old copy")
        # What the copy does not know yet is there as before.
        await passes(made, connect, "later")
        began = time.monotonic()
        while time.monotonic() - began < _WATCHED_S:
            # Each write would bring the copy nearer to the revision that is remembered. What etcd does by itself, when
            # a lease ends, are a few writes at most.
            assert (await etcd.get("/elsewhere")).revision <= copied + 5
        await warned(made, "and was at")


async def test_a_restored_etcd_is_noticed_although_others_have_written_to_it_since(
    cluster: Make, connect: Connect, tmp_path: Path
) -> None:
    made = await asyncio.to_thread(cluster, 1)
    await configured(made, "orders")
    member, broker = made.etcd.first, made.brokers["b0"]
    await asyncio.to_thread(member.kill)
    await asyncio.to_thread(member.copy_to, tmp_path / "copy")
    await asyncio.to_thread(made.etcd.restart, member)
    await configured(made, "later")
    witness = LAYOUT.witness("broker", "b0")
    async with made.client() as etcd:
        at_first = (await etcd.get(witness)).found

        async def is_renewed() -> bool:
            found = (await etcd.get(witness)).found
            return found is not None and (at_first is None or found.value != at_first.value)

        await waited(is_renewed, 60, "a new token")
        revision = (await etcd.get(witness)).revision
    assert await asyncio.to_thread(broker.terminate) == 0
    await asyncio.to_thread(member.kill)
    await asyncio.to_thread(member.restore_from, tmp_path / "copy")
    await asyncio.to_thread(made.etcd.restart, member)
    async with made.client() as etcd:
        while await etcd.put("/elsewhere", b"") <= revision + 100:
            pass
    await asyncio.to_thread(broker.start)
    await warned(made, "restored from an old copy")
    await passes(made, connect, "later")


async def test_the_kept_copy_of_another_cluster_is_refused(cluster: Make) -> None:
    made = await asyncio.to_thread(cluster, 1)
    broker = made.brokers["b0"]
    assert await asyncio.to_thread(broker.terminate) == 0
    broker.flags["cluster"] = {**broker.flags["cluster"], "cluster": "c2"}
    await asyncio.to_thread(broker.launch)
    assert await asyncio.to_thread(broker.wait) == 2
    assert "belongs to the cluster 'c1', not 'c2'" in broker.stderr
